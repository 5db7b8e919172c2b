// The page. It learns by GET (its slide's state again and again, found cells and tiles as they are shown) and says by POST.
import slideMap from "sparseshot-studio/slide_map.js";
import { foundPanel, learnPanel } from "sparseshot-studio/work_panel.js";
import { layersPanel } from "sparseshot-studio/layers_panel.js";
import countPanel from "sparseshot-studio/count_panel.js";
import runsPanel from "sparseshot-studio/runs_panel.js";
import helpSheet from "sparseshot-studio/help_sheet.js";
import { fileChooser, pixelSize, slideCards } from "sparseshot-studio/slide_cards.js";
import { send } from "sparseshot-studio/geometry.js";

const FILES = { geojson: "QuPath GeoJSON", parquet: "GeoParquet", csv: "CSV" };

export default {
  components: { slideMap, learnPanel, foundPanel, layersPanel, countPanel, runsPanel, helpSheet, fileChooser, slideCards, pixelSize },
  template: `
    <div v-if="problem" class="studio-form studio-alone"><div class="text-lg">{{ problem }}</div></div>
    <div v-else-if="slides && !slide" class="studio-gallery">
      <div class="studio-brand"><b>sparse<span>shot</span></b></div><div class="text-lg">{{ slides.length ? "Choose a slide" : "No slides yet" }}</div>
      <slide-cards :slides="slides" :key="slides.length"></slide-cards>
      <file-chooser v-if="adds || !slides.length" :known="slides.map((each) => each.name)" @added="added"></file-chooser>
      <div v-else><q-btn outline no-caps icon="add" label="Add slides" @click="adds = true"></q-btn></div>
    </div>
    <pixel-size v-else-if="slide?.needs_mpp" :slide="slide"></pixel-size>
    <div v-else-if="slide?.problem" class="studio-form studio-alone">
      <div class="text-lg">{{ slide.name }}</div><div class="studio-small">{{ slide.problem }}</div>
    </div>
    <div v-else-if="slide" class="studio-page">
      <header class="studio-head">
        <div class="studio-brand"><b>sparse<span>shot</span></b></div>
        <q-btn flat no-caps dense class="studio-chip" @click="chooses = true">
          <img :src="'/slides/' + slide.id + '/thumbnail.jpg'" alt=""><span class="ellipsis">{{ slide.name }}</span><q-icon name="expand_more" size="18px"></q-icon>
          <q-tooltip>Slides of this project</q-tooltip>
        </q-btn>
        <q-btn flat dense no-caps class="studio-facts gt-xs" aria-label="about the slide"><span class="studio-small ellipsis">{{ facts }}</span>
          <q-menu @before-show="label = true"><div class="studio-about">
            <img v-if="label" :src="'/slides/' + slide.id + '/label.jpg'" alt="label of the slide" @error="label = false"><div v-else class="studio-small">The file holds no picture of a label.</div>
            <form class="studio-row" @submit.prevent="correct"><input type="number" step="any" min="0" :value="slide.mpp" name="mpp" aria-label="µm per pixel"> µm/px <q-btn outline dense no-caps type="submit" label="Correct"></q-btn></form>
            <div class="studio-small">If the file states a wrong size of its pixels, correct it here; cells are then found anew.</div>
          </div></q-menu></q-btn>
        <q-space></q-space>
        <q-btn flat dense no-caps icon="upload" label="Import" @click="map.pickFile()"><q-tooltip>Marks from QuPath GeoJSON, GeoParquet, CSV and others</q-tooltip></q-btn>
        <q-btn flat dense no-caps icon="download" label="Export">
          <q-menu><q-list dense><template v-for="what in ['Marks', 'Found cells']">
            <q-item-label header>{{ what }}</q-item-label>
            <q-item v-for="(title, ending) in files" clickable v-close-popup @click="exported(what, ending)"><q-item-section>{{ title }}</q-item-section></q-item>
          </template></q-list></q-menu>
        </q-btn>
        <q-btn flat dense no-caps icon="summarize" label="Report">
          <q-menu><q-list dense>
            <q-item clickable v-close-popup @click="report('report.html')"><q-item-section>Report of this slide<q-item-label caption>Counts, density and what they rest on, to keep or print</q-item-label></q-item-section></q-item>
            <q-item v-if="result.whole" clickable v-close-popup @click="report('page/index.html')"><q-item-section>Page of predict<q-item-label caption>What was found, before anybody decided</q-item-label></q-item-section></q-item>
            <q-item v-if="slides.length > 1 && shown.startsWith('r')" clickable v-close-popup @click="open('/cohort/' + shown + '.html')"><q-item-section>Report of all slides</q-item-section></q-item>
          </q-list></q-menu>
        </q-btn>
        <q-btn flat dense round icon="contrast" aria-label="light or dark" @click="$q.dark.toggle()"><q-tooltip>Light or dark</q-tooltip></q-btn>
        <q-btn flat dense round icon="help_outline" aria-label="help" @click="helps = true"><q-tooltip>Keys (?)</q-tooltip></q-btn>
      </header>
      <div class="studio-body">
        <slide-map ref="map" class="studio-left" v-bind="layers" :slide="about" :person="person" :resource-path="resourcePath" :result="shown" :against="against"
          :version="version" :threshold="threshold" :whole="Boolean(result.whole)" @view="view = $event.area" @counted="counted = $event" @state="learned" @reviewing="review" @asked="key" @counting="tab = 'count'"></slide-map>
        <aside class="studio-side">
          <q-tabs v-model="tab" dense no-caps align="justify" indicator-color="primary"><q-tab name="work" label="Work"></q-tab><q-tab name="count" label="Count"></q-tab><q-tab name="layers" label="Layers"></q-tab><q-tab name="runs" label="Runs"></q-tab></q-tabs>
          <div class="studio-panel" v-show="tab === 'work'">
            <section class="studio-section"><div class="studio-title">Learn</div>
              <learn-panel :runs="runs" :marks="marks" @train="train" @say="say"></learn-panel></section>
            <section class="studio-section"><div class="studio-title">Found</div>
              <found-panel v-if="shown" v-model:threshold="threshold" :counted="counted" :calibrated="result.threshold" :whole="Boolean(result.whole)" :name="isOlder ? result.name : ''" :fixed="Boolean(against)"></found-panel>
              <div v-else class="studio-small">Looking for cells …</div>
              <q-btn v-if="left" outline no-caps class="full-width" icon="explore" :label="'Next region to review (' + left + ' left)'" @click="map.next()"><kbd class="q-ml-sm">N</kbd></q-btn></section>
          </div>
          <count-panel class="studio-panel" v-show="tab === 'count'" :open="tab === 'count'" :slide="slide.id" :result="shown" :threshold="threshold" :counted="counted"
            @rename="(id, name) => map.renameRegion(id, name)" @remove="map.removeRegion($event)" @go="map.showRegion($event)"
            @save="(ending, query) => map.saveFile('/slides/' + slide.id + '/found/' + shown + '/regions.' + ending + query)"></count-panel>
          <layers-panel class="studio-panel" v-show="tab === 'layers'" v-model="layers"></layers-panel>
          <runs-panel class="studio-panel" v-show="tab === 'runs'" :results="results" :shown="shown" :against="against" :compared="counted?.compared" :open="tab === 'runs'" :busy="runs.find((run) => !['done', 'stopped', 'failed'].includes(run.stage))" @show="show" @everything="say('/slides/' + slide.id + '/look', { view, find: 'all' })" @save="map.saveFile($event)"></runs-panel>
        </aside>
      </div>
      <q-dialog v-model="chooses"><div class="studio-sheet"><div class="text-lg">Slides</div><slide-cards :slides="slides" :shown="slide.id" :key="slides.length"></slide-cards>
        <file-chooser v-if="adds" :known="slides.map((each) => each.name)" @added="added"></file-chooser><div v-else><q-btn outline no-caps icon="add" label="Add slides" @click="adds = true"></q-btn></div></div></q-dialog>
      <q-dialog v-model="helps"><help-sheet @close="helps = false"></help-sheet></q-dialog>
    </div>`,
  props: { wanted: String, project: String, person: String, resourcePath: String },
  data() {
    return {
      slides: null, problem: "", files: FILES, tab: "work", chooses: false, helps: false, view: null, runs: [], results: [], marks: 0, counted: null,
      adds: false, label: true, left: 0, shown: "", against: "", threshold: 0.5, latest: -1, reviewed: "", failed: null, began: false, regions: 0,
      layers: { paint: "class", heat: "", strength: 0.9, heatStrength: 0.7, slideStrength: 1, showSlide: true, showMarks: true, showFound: true, overview: true },
    };
  },
  computed: {
    slide() { return this.slides?.find((each) => each.id === this.wanted) || (this.slides?.length === 1 && !this.began ? this.slides[0] : null); },
    about() { const { id, name, size, mpp, levels } = this.slide; return { id, name, size, mpp, levels, project: this.project }; },
    reviews() { return [this.runs.map((run) => run.number + run.stage).join(), this.regions].join(); },
    facts() { const { size, mpp } = this.slide; return `${size.map((v) => v.toLocaleString()).join(" × ")} px, ${Number(mpp.toPrecision(3))} µm/px`; },
    map() { return this.$refs.map; },
    result() { return this.results.find((each) => each.id === this.shown) || {}; },
    isOlder() { return this.results.length > 1 && this.results[0].id !== this.shown; },
    version() { return [this.shown, this.against].map((id) => this.results.find((each) => each.id === id)?.version || "").join("/").replace(/\/$/, ""); },
  },
  async mounted() {
    this.$q.dark.set("auto");
    await this.load();
    this.began = Boolean(this.slides && !this.slides.length);  // stays where slides are added
  },
  watch: {
    // Suggestions are written after a run, a while later.
    reviews() { clearTimeout(this.counting); this.counting = setTimeout(() => this.countRegions(), 500); },
  },
  methods: {
    async load() {
      const answer = await fetch("/slides").then((r) => r.json()).catch(() => null);
      if (Array.isArray(answer)) this.slides = answer;
      else this.problem = "The studio does not answer. Is it still running?";
    },
    async added() { await this.load(); },
    async countRegions() {
      const { open, waits } = (await this.map?.openRegions()) || {};
      this.left = open?.length || 0;
      clearTimeout(this.counting);
      if (waits) this.counting = setTimeout(() => this.countRegions(), 2000);
    },
    async correct(e) {
      const said = await send(`/slides/${this.slide.id}/mpp`, { mpp: Number(e.target.elements.mpp.value) });
      if (said?.error) this.map.warn(`Not corrected: ${said.error}`);
      else window.location.reload();
    },
    // What the studio said: runs, results and the number of marks; marks themselves are the map's.
    learned({ runs, results, total_marks: marks, regions }) {
      Object.assign(this, { runs, results, marks, regions });
      const [newest] = results;
      // A person who reviews accepts the cells that are shown.
      if (newest && (((newest.run ?? -1) > this.latest && !this.reviewed) || !results.some((each) => each.id === this.shown))) {
        this.latest = newest.run ?? -1;
        this.show(newest.id, "");
      }
      const failure = runs[0]?.stage === "failed" ? runs[0].number : 0;
      if (failure && this.failed !== null && failure !== this.failed) this.map.warn(`The training failed: ${runs[0].message}`);
      this.failed = failure;
    },
    show(id, against) {
      if (id !== this.shown) this.threshold = this.results.find((each) => each.id === id)?.threshold ?? this.threshold;
      Object.assign(this, { shown: id, against: against === id ? "" : against });
    },
    review({ result }) {
      this.reviewed = result;
      if (!result) return;
      Object.assign(this.layers, { paint: "class", showFound: true });
      if (this.results.some((each) => each.id === result)) this.show(result, "");
    },
    async train() {
      if (!this.runs.some((run) => run.number && ["waiting", "training"].includes(run.stage))) await this.say(`/slides/${this.slide.id}/train`, { view: this.view, start: this.result.run ?? null });
    },
    async say(path, body = {}) {
      const said = await send(path, body);
      if (said.error) this.map.warn(said.error);
      await this.map.refresh();
    },
    report(what) {
      if (!this.shown) return this.map.warn("Nothing has been found yet.");
      this.open(`/slides/${this.slide.id}/found/${this.shown}/${what}${what === "report.html" ? `?threshold=${this.threshold}` : ""}`);
    },
    open(path) { window.open(path, "_blank", "noopener"); },
    exported(what, ending) {
      const name = what === "Marks" ? "marks" : this.shown;
      if (!name) return this.map.warn("Nothing has been found yet.");
      this.map.saveFile(`/slides/${this.slide.id}/export/${name}.${ending}?threshold=${name === "marks" ? 0 : this.threshold}`);
    },
    key({ key }) {
      const switches = { s: "showSlide", g: "showMarks", f: "showFound", v: "overview" }, heats = { d: "density", u: "doubt" };
      if (switches[key]) this.layers[switches[key]] = !this.layers[switches[key]];
      else if (heats[key]) this.layers.heat = this.layers.heat === heats[key] ? "" : heats[key];
      else if (key === "?") this.helps = true;
      else if (key === "t") this.train();
    },
  },
};
