// Training with its progress, and found cells with their expected quality.
const STAGES = { waiting: "starting", training: "learning", view: "finding cells", slides: "finding cells", done: "finished", stopped: "stopped", failed: "failed" };
const ENDED = ["done", "stopped", "failed"], ENOUGH = 20;

const marksOf = (n) => (n === 1 ? "1 mark" : `${n.toLocaleString("en")} marks`);
const percent = (share) => `${Math.round(100 * share)} %`;

// What to do next.
export function advice(marks, learned, stage) {
  if (["waiting", "training"].includes(stage) && learned) return `Learning from ${marksOf(learned)}. You can go on marking.`;
  if (!marks) return "Cells are found without a click. To tell kinds apart, name a class (C) and click some of its cells.";
  if (marks > learned) return `${marksOf(marks - learned)} ${learned ? "since the last run" : "so far"}. If cells are missed or invented, mark some of them and train.`;
  return "Correct what is wrong, or press N to go where the model is unsure.";
}

// The expected quality in plain words, with what it rests on.
export function sentence(quality) {
  if (!quality) return "It is not known yet how good this is. Review a region: press N.";
  const basis = `from ${quality.marks.toLocaleString("en")} cells that it has not learned from`;
  const few = quality.marks < ENOUGH ? " So few marks say little: see the hatched range." : "";
  const wrong = quality.precision ? "" : " How much of what is found are cells is known once 20 of them are reviewed: press N.";
  const certain = quality.precision ? ` Counted in reviewed regions (${quality.certain.toLocaleString("en")} cells): about ${percent(quality.precision[0])} of what is found are cells.` : "";
  return `About ${percent(quality.recall[0])} of the cells are found, ${basis}.${certain}${few}${wrong}`;
}

export const learnPanel = {
  template: `
    <div class="studio-advice">{{ advice }}</div>
    <div class="studio-row">
      <q-btn v-if="!isLearning" unelevated no-caps color="primary" class="studio-grow" icon="play_arrow" label="Train finding" :disable="!marks" @click="$emit('train')"><kbd class="q-ml-sm">T</kbd><q-tooltip>Learn where cells are: for cells that are missed or invented. Kinds follow each click without it.</q-tooltip></q-btn>
      <q-btn v-if="['stopped', 'failed'].includes(stage)" outline no-caps icon="replay" label="Resume" @click="say('resume')"></q-btn>
      <q-btn v-if="isBusy" outline no-caps color="negative" icon="stop" label="Stop" @click="say('stop')"></q-btn>
    </div>
    <q-linear-progress v-if="isBusy" rounded size="6px" instant-feedback :value="run.share"></q-linear-progress>
    <div v-if="run" class="studio-small studio-words">{{ doing }}</div>
    <div v-for="note in run?.notes || []" class="studio-small studio-words studio-note">{{ note }}</div>
    <div v-if="isBusy && run.loss.length > 1">
      <svg class="studio-curve" viewBox="0 0 300 44" preserveAspectRatio="none" role="img" :aria-label="'loss, now ' + last"><polygon :points="'0,44 ' + curve + ' 300,44'"/><polyline :points="curve"/></svg>
    </div>
    <div class="studio-row studio-small">
      <q-toggle v-model="auto" dense size="sm" label="Train by itself after every"></q-toggle>
      <input class="studio-every" type="number" min="1" max="10000" v-model.number="every" aria-label="marks"> marks
    </div>`,
  props: { runs: Array, marks: Number },
  emits: ["train", "say"],
  data() { return { auto: false, every: ENOUGH }; },
  computed: {
    run() { return this.runs.find((run) => !ENDED.includes(run.stage)) || this.runs[0]; },
    stage() { return this.run?.stage || ""; },
    isLearning() { return Boolean(this.run?.number) && ["waiting", "training"].includes(this.stage); },
    isBusy() { return Boolean(this.stage) && !ENDED.includes(this.stage); },
    advice() { return advice(this.marks, this.runs[0]?.marks || 0, this.stage); },
    doing() { return `${this.run.number ? `run ${this.run.number}` : "starter"}: ${STAGES[this.stage]}${this.run.message ? `, ${this.run.message}` : ""}`; },
    last() { return this.run.loss.at(-1).toFixed(3); },
    curve() {
      const loss = this.run.loss, low = Math.min(...loss), high = Math.max(...loss, low + 1e-9);
      return loss.map((value, i) => `${((300 * i) / (loss.length - 1)).toFixed(1)},${(40 - (36 * (value - low)) / (high - low)).toFixed(1)}`).join(" ");
    },
    isDue() { return this.auto && !this.isLearning && this.marks >= (this.runs[0]?.marks || 0) + Math.max(1, this.every || ENOUGH); },
  },
  watch: { isDue(due) { if (due) this.$emit("train"); } },
  methods: { say(what) { this.$emit("say", `/runs/${this.run.number}/${what}`); } },
};

export const foundPanel = {
  template: `
    <div class="studio-small" v-if="name">Shown is {{ name }}, which is not the latest.</div>
    <div class="studio-row"><span class="studio-number">{{ total(counted?.in_slide) }}</span><span class="studio-small">found in the slide{{ whole ? "" : " so far" }}, {{ total(counted?.in_view) }} in view</span></div>
    <div class="studio-small" v-if="expected">{{ expected }}</div>
    <div class="studio-row studio-small">Threshold
      <q-slider dense aria-label="threshold" class="studio-grow" :min="0.01" :max="0.99" :step="0.01" :disable="fixed" :model-value="threshold" @update:model-value="$emit('update:threshold', $event)"></q-slider>
      <span class="studio-tabular">{{ threshold.toFixed(2) }}</span>
      <q-btn v-if="Math.abs(threshold - calibrated) > 0.005 && !fixed" flat dense round size="sm" icon="restart_alt" aria-label="calibrated threshold" @click="$emit('update:threshold', calibrated)"></q-btn>
    </div>
    <div v-for="bar in bars" class="studio-meter" :title="bar.says"><span>{{ bar.name }}</span>
      <div role="img" :aria-label="bar.says"><i :style="{width: bar.at[0] + '%'}"></i><i class="range" :style="{left: bar.at[1] + '%', width: bar.at[2] - bar.at[1] + '%'}"></i><i class="now" :style="{left: bar.at[0] + '%'}"></i></div>
      <b>{{ bar.at[0].toFixed(0) }} %</b></div>
    <div class="studio-small" v-if="!fixed">{{ words }}</div>
    <template v-if="kindBars.length && !fixed"><div v-for="bar in kindBars" class="studio-meter" :title="bar.says"><span class="ellipsis wide">{{ bar.name }}</span>
      <div role="img" :aria-label="bar.says"><i :style="{width: bar.at[0] + '%'}"></i><i class="range" :style="{left: bar.at[1] + '%', width: bar.at[2] - bar.at[1] + '%'}"></i><i class="now" :style="{left: bar.at[0] + '%'}"></i></div>
      <b>{{ bar.at[0].toFixed(0) }} %</b></div>
      <div class="studio-small">Of the clicks on each kind, this share is recognised when it is left out.</div></template>`,
  props: { whole: Boolean, counted: Object, threshold: Number, calibrated: Number, name: String, fixed: Boolean },
  emits: ["update:threshold"],
  computed: {
    kindBars() { return Object.entries(this.counted?.kinds || {}).map(([name, [share, low, high, n]]) => ({ name, at: [share, low, high].map((v) => 100 * v), says: `${percent(share)} (${Math.round(100 * low)}–${Math.round(100 * high)} %) of ${marksOf(n)} of ${name} are recognised when they are left out` })); },
    quality() { return this.counted?.quality || null; },
    words() { return sentence(this.quality); },
    bars() {
      const shares = { found: [this.quality?.recall, "of the cells are found"], correct: [this.quality?.precision, "of what is found are cells"] };
      return Object.entries(shares).filter(([, [share]]) => share).map(([name, [share, says]]) => {
        const at = share.map((v) => 100 * v);
        return { name, at, says: `${percent(share[0])} (${at[1].toFixed(0)}–${at[2].toFixed(0)} %) ${says}` };
      });
    },
    expected() {
      const found = Object.values(this.counted?.in_slide || {}).reduce((a, b) => a + b, 0), each = this.quality?.cells_per_found;
      if (!found || !each) return "";
      const [cells, low, high] = each.map((v) => Math.round(v * found).toLocaleString("en"));
      return `Probably ${cells} cells in all, between ${low} and ${high}.`;
    },
  },
  methods: { total(counts) { return counts ? Object.values(counts).reduce((a, b) => a + b, 0).toLocaleString("en") : "…"; } },
};
