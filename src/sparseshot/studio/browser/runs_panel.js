// The history of runs: go back to one, or compare two.
export default {
  template: `
    <div>
      <div v-if="!results.length" class="studio-small">No runs yet. Every training is kept here, to compare and to go back to.</div>
      <template v-else>
        <q-option-group dense class="studio-runs" type="radio" :options="options" :model-value="shown" @update:model-value="$emit('show', $event, against)"></q-option-group>
        <div class="studio-small">The next training continues from the run that is shown.</div>
        <div class="studio-title q-mt-md">Compare with</div>
        <q-select dense outlined options-dense emit-value map-options aria-label="compare with" :options="others" :model-value="against" @update:model-value="$emit('show', shown, $event)"></q-select>
        <div v-if="against && compared" class="studio-small">{{ outcome }}</div>
        <template v-if="shown.startsWith('r')">
          <div class="studio-title q-mt-md">Slides</div>
          <template v-if="busy"><q-linear-progress rounded size="6px" instant-feedback :value="busy.share"></q-linear-progress><div class="studio-small studio-words">{{ busy.message }}, {{ cohort.filter((row) => row.whole).length }} of {{ cohort.length }} slides finished</div></template>
          <table class="studio-cohort"><tr><th></th><th>cells</th><th>per mm²</th></tr>
            <tr v-for="row in cohort" :key="row.id"><td><a :href="'/?slide=' + row.id">{{ row.name }}</a></td>
              <td colspan="2" v-if="row.problem">{{ row.problem }}</td>
              <template v-else><td>{{ row.cells === undefined ? "–" : row.cells.toLocaleString("en") }}{{ row.cells !== undefined && !row.whole ? " …" : "" }}</td><td>{{ row.per_mm2 ? Math.round(row.per_mm2[0]).toLocaleString("en") : "" }}</td></template></tr></table>
          <q-btn v-if="cohort.length > 1" outline no-caps dense class="full-width" icon="playlist_play" label="Find cells on all slides" :disable="Boolean(busy)" @click="$emit('everything')"></q-btn>
          <div v-if="cohort.length > 1" class="studio-row q-mt-sm"><q-btn outline dense no-caps icon="download" label="CSV" @click="$emit('save', '/cohort/' + shown + '.csv')"></q-btn>
            <q-btn outline dense no-caps icon="summarize" label="Report" :href="'/cohort/' + shown + '.html'" target="_blank"></q-btn></div>
          <div class="studio-title q-mt-md">Model</div>
          <div class="studio-row"><q-input dense outlined v-model="name" maxlength="100" class="studio-grow" aria-label="name of the model"></q-input>
            <q-btn outline no-caps icon="download" label="Download" @click="$emit('save', '/models/' + shown + '.pt?name=' + encodeURIComponent(name.replace(/[^\\p{L}\\p{N}_ .-]/gu, '_') || 'model'))"></q-btn></div>
          <div class="studio-small">For <code>sparseshot predict {{ name || "model" }}.pt</code>, with the kinds you have marked.</div>
        </template>
      </template>
    </div>`,
  props: { results: Array, shown: String, against: String, compared: Array, open: Boolean, busy: Object },
  emits: ["show", "everything", "save"],
  data() { return { cohort: [], name: "model" }; },
  watch: { open() { this.load(); }, busy() { this.load(); }, results() { this.load(); }, shown() { this.load(); } },
  methods: {
    async load() {
      if (!this.open || !this.shown.startsWith("r") || this.loading) return;
      this.loading = true;
      const answer = await fetch(`/cohort/${this.shown}.json`).then((r) => r.json()).catch(() => null);
      this.loading = false;
      if (Array.isArray(answer)) this.cohort = answer;
    },
  },
  computed: {
    options() {
      const time = (begun) => new Date(1000 * begun).toLocaleString("en-GB", { day: "2-digit", month: "short", hour: "2-digit", minute: "2-digit" });
      return this.results.map(({ id, name, begun }) => ({ value: id, label: begun ? `${name}, ${time(begun)}` : name }));
    },
    others() { return [{ value: "", label: "nothing" }, ...this.options.filter((each) => each.value !== this.shown)]; },
    outcome() {
      const name = (id) => (this.results.find((each) => each.id === id)?.name || "").split(",")[0];
      const [both, first, second] = this.compared.map((n) => n.toLocaleString("en"));
      return `${both} found by both, ${first} only by ${name(this.shown)}, ${second} only by ${name(this.against)}`;
    },
  },
};
