// Which layers are shown, and how.
const LAYERS = [["Slide", "S", "showSlide", "slideStrength"], ["Marks", "G", "showMarks"], ["Found cells", "F", "showFound", "strength"], ["Overview", "V", "overview"]];
const COLORINGS = [["class", "class"], ["likely", "likely kind"], ["score", "score"], ["excluded", "left out"]];
const HEATS = [["", "none"], ["density", "density"], ["doubt", "uncertainty"]];
const ABOUT = {
  class: "Each cell in the colour of its class.",
  likely: "Lymphocyte, tumour or stromal, as the starter believes without a mark, in faint colours.",
  score: "From dark (unlikely) to bright (certain).",
  excluded: "What the loss does with unmarked cells: those it is sure of are left out, neither cell nor background; the others count as background.",
  density: "How crowded found cells are.",
  doubt: "Where decisions are probably wrong: cells near the threshold, weaker ones included.",
};

export const layersPanel = {
  template: `
    <div>
      <div v-for="[name, key, show, strength] in layers" class="studio-row studio-layer">
        <q-toggle dense size="sm" class="studio-layer-name" :label="name" :model-value="modelValue[show]" @update:model-value="set(show, $event)"></q-toggle>
        <q-slider v-if="strength" dense class="studio-grow" :min="0.1" :max="1" :step="0.05" :aria-label="'opacity of ' + name.toLowerCase()" :model-value="modelValue[strength]" @update:model-value="set(strength, $event)"></q-slider><q-space v-else></q-space>
        <kbd>{{ key }}</kbd>
      </div>
      <template v-for="[title, name, options] in choices">
        <div class="studio-title q-mt-md">{{ title }}</div>
        <q-btn-toggle dense no-caps spread unelevated toggle-color="primary" class="full-width studio-toggle" :options="options" :model-value="modelValue[name]" @update:model-value="set(name, $event)"></q-btn-toggle>
        <div class="studio-small">{{ about[modelValue[name]] }}</div>
      </template>
      <div v-if="modelValue.heat" class="studio-row studio-small">Opacity
        <q-slider dense class="studio-grow" :min="0.1" :max="1" :step="0.05" aria-label="opacity of the heat map" :model-value="modelValue.heatStrength" @update:model-value="set('heatStrength', $event)"></q-slider></div>
    </div>`,
  props: { modelValue: Object },
  emits: ["update:modelValue"],
  data() {
    const options = (pairs) => pairs.map(([value, label]) => ({ value, label }));
    return { layers: LAYERS, about: ABOUT, choices: [["Colour found cells by", "paint", options(COLORINGS)], ["Heat map", "heat", options(HEATS)]] };
  },
  methods: { set(name, value) { this.$emit("update:modelValue", { ...this.modelValue, [name]: value }); } },
};
