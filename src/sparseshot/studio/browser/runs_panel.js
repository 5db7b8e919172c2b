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
      </template>
    </div>`,
  props: { results: Array, shown: String, against: String, compared: Array },
  emits: ["show"],
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
