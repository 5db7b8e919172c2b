// The sheet with all keys.
const KEYS = {
  Mark: {
    "1 … 9": "choose a class", C: "new class", M: "mark a cell: click; drag a mark to move it. Alt + click: not a cell. Shift + click: delete", X: "mark what is not a cell",
    O: "outline a cell, for segmentation", E: "delete a mark or a region", R: "region in which every cell is marked", K: "region to count in", L: "draw a box, a lasso, a polygon, or with a brush", "[ ]": "size of the brush; Alt takes away", "Z, Y": "undo, redo",
  },
  "Learn and correct": {
    T: "train on all marks", "N, P": "next suggested region, the one before", Enter: "region done; elsewhere: use the tool in the middle of the view", Esc: "leave the region, or the tool",
    "A, J": "accept or reject found cells in an area",
  },
  Look: {
    "+ − arrows": "zoom and move; the wheel and dragging do, too", Space: "hold it to move the slide with any tool", Home: "the whole slide", Q: "turn by 90°", W: "measure a distance", "F, G, S, V": "show or hide found cells, marks, the slide, the overview",
    "D, U": "heat map of density, of uncertainty", "?": "this sheet",
  },
};

export default {
  template: `
    <div class="studio-sheet">
      <div class="studio-row"><div class="text-lg studio-grow">Keys</div><q-btn flat dense round icon="close" aria-label="close" @click="$emit('close')"></q-btn></div>
      <div class="studio-columns">
        <div v-for="(keys, title) in keys" class="studio-keys"><div class="studio-title">{{ title }}</div>
          <div v-for="(meaning, key) in keys"><span><kbd>{{ key }}</kbd></span><span>{{ meaning }}</span></div></div>
      </div>
      <div class="studio-small">A cell that nobody marked counts as unmarked, not as background. So mark a few typical cells, train, and correct what is wrong; nobody has to mark them all.</div>
    </div>`,
  emits: ["close"],
  data() { return { keys: KEYS }; },
};
