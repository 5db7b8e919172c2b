// Slides to choose from, and the question for the size of a slide's pixels.
import { send } from "sparseshot-studio/geometry.js";

export const slideCards = {
  template: `
    <div class="studio-cards">
      <a v-for="slide in slides" :key="slide.id" class="studio-card" :class="{on: slide.id === shown}" :href="'/?slide=' + slide.id">
        <div v-if="slide.problem" class="studio-thumbnail"><q-icon :name="slide.needs_mpp ? 'straighten' : 'broken_image'" size="48px"></q-icon></div>
        <img v-else class="studio-thumbnail" :src="'/slides/' + slide.id + '/thumbnail.jpg'" alt="">
        <div class="studio-card-name">{{ slide.name }}</div>
        <div v-if="slide.problem" class="studio-small">{{ slide.problem }}</div>
        <template v-else>
          <div class="studio-small">{{ slide.size.map((v) => v.toLocaleString("en")).join(" × ") }} px, {{ Number(slide.mpp.toPrecision(3)) }} µm/px{{ tissue[slide.id] || "" }}</div>
          <div class="studio-small">{{ slide.marks === 1 ? "1 mark" : slide.marks.toLocaleString("en") + " marks" }}</div>
        </template>
      </a>
    </div>`,
  props: { slides: Array, shown: String },
  data() { return { tissue: {} }; },
  async mounted() {
    for (const { id, problem } of this.slides) {
      const said = problem ? null : await fetch(`/slides/${id}/tissue`).then((r) => (r.ok ? r.json() : null)).catch(() => null);
      if (said) this.tissue[id] = `, ${said.mm2.toFixed(1)} mm² tissue`;
    }
  },
};

// A chooser of files on the server, in the folders that the studio may see.
export const fileChooser = {
  template: `
    <div class="studio-files">
      <div class="studio-row"><q-btn v-if="up !== null" flat dense round icon="arrow_upward" aria-label="folder above" @click="open(up)"></q-btn><b class="studio-grow">{{ name }}</b></div>
      <div v-if="problem" class="studio-small studio-note">{{ problem }}</div>
      <button v-for="each in folders" @click="open(each.place)"><q-icon name="folder" size="20px"></q-icon>{{ each.name }}</button>
      <button v-for="each in slides" @click="add(each)" :disabled="known.includes(each.name) || each.place === adding"><q-icon name="biotech" size="20px"></q-icon><span class="studio-grow">{{ each.name }}</span><span class="studio-small">{{ known.includes(each.name) ? "in the project" : each.place === adding ? "…" : "add" }}</span></button>
      <div v-if="!folders.length && !slides.length" class="studio-small">There are no slides in this folder.</div>
      <div class="studio-small">Files of this computer, in the folders that the studio was started with.</div>
    </div>`,
  props: { known: Array },
  emits: ["added"],
  data() { return { name: "", up: null, folders: [], slides: [], problem: "", adding: "" }; },
  mounted() { this.open(""); },
  methods: {
    async open(place) {
      const said = await fetch(`/files?${new URLSearchParams({ place })}`).then((r) => r.json()).catch(() => ({ error: "the studio does not answer" }));
      this.problem = said.error || "";
      if (!said.error) Object.assign(this, said);
    },
    async add({ place, name }) {
      this.adding = place;
      const said = await send("/slides", { place });
      this.adding = "";
      this.problem = said.error ? `${name}: ${said.error}` : "";
      if (!said.error) this.$emit("added", said.slide);
    },
  },
};

export const pixelSize = {
  template: `
    <form class="studio-form studio-alone" @submit.prevent="save">
      <div class="text-lg">{{ slide.name }} does not state the size of its pixels.</div>
      <div class="studio-small">The model needs it to know how large a cell is. Your scanner's software shows it.</div>
      <q-input v-model.number="mpp" type="number" step="any" outlined autofocus label="µm per pixel"></q-input>
      <div class="studio-row"><q-btn v-for="[name, size] in usual" outline dense no-caps :label="name + ': ' + size + ' µm'" @click="mpp = size"></q-btn></div>
      <div v-if="problem" class="studio-small studio-note">{{ problem }}</div>
      <q-btn unelevated no-caps color="primary" class="full-width" type="submit" label="Open the slide"></q-btn>
    </form>`,
  props: { slide: Object },
  data() { return { mpp: 0.25, problem: "", usual: [["40×", 0.25], ["20×", 0.5], ["10×", 1]] }; },
  methods: {
    async save() {
      const said = await send(`/slides/${this.slide.id}/mpp`, { mpp: this.mpp });
      if (said?.error) this.problem = said.error;
      else window.location.reload();
    },
  },
};
