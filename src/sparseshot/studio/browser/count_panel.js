// Regions to count in: cells, density and the share of each kind, with their intervals.
const number = (v, digits = 0) => v.toLocaleString("en", { maximumFractionDigits: digits, minimumFractionDigits: digits });

export default {
  template: `
    <div>
      <div class="studio-small">Choose the tool K and draw an area; L changes its shape. Counts follow clicks, reviews and the threshold.</div>
      <div class="studio-row studio-small"><q-toggle v-model="scored" dense size="sm" label="Positive nuclei (DAB) from an optical density of"></q-toggle>
        <input class="studio-every" type="number" min="0.05" max="5" step="0.05" v-model.number="density" aria-label="optical density of DAB"></div>
      <div v-for="region in regions" :key="region.id" class="studio-count">
        <div class="studio-row">
          <b v-if="!region.id" class="studio-grow">{{ region.name }}</b>
          <input v-else class="studio-grow" :value="region.name" maxlength="100" :aria-label="'name of ' + region.name" @change="$emit('rename', region.id, $event.target.value.trim() || region.name)">
          <q-btn v-if="region.id" flat dense round size="sm" icon="my_location" aria-label="show" @click="$emit('go', region.id)"></q-btn>
          <q-btn v-if="region.id" flat dense round size="sm" icon="delete_outline" aria-label="delete" @click="$emit('remove', region.id)"></q-btn>
        </div>
        <table>
          <tr><td>cells</td><td>{{ number(region.cells) }}</td><td></td></tr>
          <tr v-if="region.per_mm2"><td>per mm²</td><td>{{ number(region.per_mm2[0]) }}</td><td>{{ number(region.per_mm2[1]) }}–{{ number(region.per_mm2[2]) }}</td></tr>
          <tr v-for="(kind, name) in several(region)"><td>{{ name }}</td><td>{{ number(kind[0]) }}</td><td>{{ number(100 * kind[1], 1) }} % ({{ number(100 * kind[2], 1) }}–{{ number(100 * kind[3], 1) }})</td></tr>
          <tr v-if="region.positive"><td>positive</td><td>{{ number(region.positive[0]) }}</td><td>{{ number(100 * region.positive[1], 1) }} % ({{ number(100 * region.positive[2], 1) }}–{{ number(100 * region.positive[3], 1) }})</td></tr>
        </table>
        <div class="studio-small">{{ number(region.mm2, 3) }} mm²{{ region.id ? "" : " of tissue" }}</div>
      </div>
      <div v-if="regions.length" class="studio-row q-mt-sm">
        <q-btn outline dense no-caps icon="download" label="CSV" @click="$emit('save', 'csv', query)"></q-btn>
        <q-btn outline dense no-caps icon="download" label="QuPath GeoJSON" @click="$emit('save', 'geojson', query)"></q-btn>
      </div>
      <div class="studio-small q-mt-sm">Ranges are 95 % intervals of counting alone (Poisson, Wilson): they do not hold what the model misses or invents. That is on the page <i>Work</i>.</div>
    </div>`,
  props: { slide: String, result: String, threshold: Number, counted: Object, open: Boolean },
  emits: ["rename", "go", "remove", "save"],
  data() { return { regions: [], scored: false, density: 0.2 }; },
  computed: { query() { return `?threshold=${this.threshold}${this.scored && this.density > 0 && this.density <= 5 ? `&positive_od=${this.density}` : ""}`; } },
  watch: { counted() { this.load(); }, open() { this.load(); }, query() { this.load(); } },
  methods: {
    number,
    several(region) { return Object.keys(region.kinds).length > 1 ? region.kinds : {}; },
    async load() {
      if (!this.open || !this.result) return;
      const answer = await fetch(`/slides/${this.slide}/found/${this.result}/regions.json${this.query}`).then((r) => r.json()).catch(() => null);
      if (Array.isArray(answer)) this.regions = answer;
    },
  },
};
