// The slide with its marks and found cells, tools and keys.
import { leaflet as L } from "nicegui-leaflet";
import { NEGATIVE, at, send, tiles, turnedCrs } from "sparseshot-studio/geometry.js";
import { SHAPES, drawing } from "sparseshot-studio/drawing.js";
import { MAGNIFICATIONS, viewing } from "sparseshot-studio/viewing.js";
import { finding } from "sparseshot-studio/finding.js";
import { marking } from "sparseshot-studio/marking.js";
import { reviewing } from "sparseshot-studio/reviewing.js";

const TOOLS = [
  { name: "mark", key: "m", icon: "add_circle_outline", says: "Mark a cell: click. Drag a mark to move it. Alt: not a cell. Shift: delete" },
  { name: "negative", key: "x", icon: "highlight_off", says: "Not a cell: click" },
  { name: "outline", key: "o", icon: "gesture", says: "Outline a cell: draw around it" },
  { name: "erase", key: "e", icon: "backspace", says: "Delete a mark or a region: click" },
  { name: "region", key: "r", icon: "select_all", says: "All cells are marked here: draw an area" },
  { name: "count", key: "k", icon: "grid_on", says: "Count in an area: draw it" },
  { name: "accept", key: "a", icon: "done_all", says: "Accept found cells: draw an area" },
  { name: "reject", key: "j", icon: "remove_done", says: "Reject found cells: draw an area" },
  { name: "ruler", key: "w", icon: "straighten", says: "Measure a distance: drag" },
];
const DRAWS = new Set(["outline", "region", "count", "accept", "reject"]);
const HINTS = {
  mark: "", negative: "Click what is not a cell. M goes back to marking.",
  outline: "Draw around a cell.", ruler: "Drag from one place to another.", erase: "Click a mark, or a corner of a region, to delete it.",
  region: "Draw an area in which you have marked every cell.", count: "Draw an area to count its cells.",
  accept: "Draw an area of found cells that are right.", reject: "Draw an area of found cells that are wrong.",
};
const PAGE_KEYS = "?tfgsvdu";  // training, help and layers, which are not the map's

export default {
  template: `
    <div class="studio-map" :class="{reviewing: region}">
      <div ref="map" class="studio-canvas" tabindex="0" aria-label="slide"></div>
      <div class="studio-tools studio-float" role="toolbar" aria-label="tools">
        <button v-for="t in tools" :key="t.name" :class="{on: tool === t.name}" :data-tool="t.name" :aria-label="t.says" :aria-pressed="tool === t.name" @click="choose(t.name); $event.detail && $event.currentTarget.blur()">
          <q-icon :name="t.icon" size="20px"></q-icon><small>{{ t.key.toUpperCase() }}</small>
          <q-tooltip anchor="center right" self="center left">{{ t.says }}</q-tooltip>
        </button>
        <hr>
        <button @click="undo('undo')" data-tool="undo" aria-label="Undo"><q-icon name="undo" size="20px"></q-icon><small>Z</small>
          <q-tooltip anchor="center right" self="center left">Undo</q-tooltip></button>
        <button @click="undo('redo')" data-tool="redo" aria-label="Redo"><q-icon name="redo" size="20px"></q-icon><small>Y</small>
          <q-tooltip anchor="center right" self="center left">Redo</q-tooltip></button>
      </div>
      <div class="studio-shapes studio-float" v-if="draws" role="toolbar" aria-label="shapes">
        <button v-for="[name, icon, says] in shapes" :key="name" :class="{on: shapeNow() === name}" :data-shape="name" :aria-label="says" @click="drawsBy = name; forgetPath(); $event.detail && $event.currentTarget.blur()"><q-icon :name="icon" size="18px"></q-icon><q-tooltip>{{ says }} (L)</q-tooltip></button>
        <q-slider v-if="shapeNow() === 'brush'" v-model="brush" dense :min="3" :max="120" aria-label="size of the brush" class="studio-brush"></q-slider>
      </div>
      <div class="studio-classes studio-float" role="toolbar" aria-label="classes">
        <template v-for="(name, i) in names" :key="name"><button :class="{on: name === chosen && tool !== 'negative'}" @click="pick(name)">
          <i :style="{background: classes[name]}" @click="$refs.color[i].click()" title="click to change the colour"></i><input ref="color" type="color" tabindex="-1" :value="classes[name]" :aria-label="'colour of ' + name" @change="recolor(name, $event.target.value)"><span>{{ name }}</span><b>{{ counts[name] || 0 }}</b><small v-if="i < 9">{{ i + 1 }}</small>
        </button>
        <button v-if="name === chosen && tool !== 'negative'" class="more" :aria-label="'change the class ' + name"><q-icon name="more_vert" size="16px"></q-icon>
          <q-menu ref="menu"><div class="studio-class-menu">
            <form @submit.prevent="renameClass(name, $event)"><input :value="name" maxlength="100" :aria-label="'new name of ' + name" name="to"><button type="submit">Rename</button></form>
            <div v-if="names.length > 1" class="studio-small">Merge into</div>
            <button v-for="other in names.filter((each) => each !== name)" @click="closeMenu(); changeClass(name, other)"><i :style="{background: classes[other]}"></i>{{ other }}</button>
            <hr><button @click="closeMenu(); deleteClass(name)"><q-icon name="delete_outline" size="16px"></q-icon>{{ name === "cell" ? "Delete its marks" : "Delete" }}</button>
          </div></q-menu></button></template>
        <button :class="{on: tool === 'negative'}" @click="choose('negative')">
          <i class="cross">×</i><span>not a cell</span><b>{{ counts["not a cell"] || 0 }}</b><small>X</small>
        </button>
        <form v-if="naming" @submit.prevent="addClass"><input ref="name" v-model="newClass" maxlength="100" placeholder="name, then Enter" aria-label="name of the new class" @keydown.esc="naming = false"></form>
        <button v-else class="add" @click="nameClass" aria-label="new class"><i>+</i><span>class</span><small>C</small></button>
      </div>
      <div class="studio-corner">
        <div class="studio-overview" v-show="overview" @click="jump">
          <img :src="'/slides/' + slide.id + '/thumbnail.jpg'" alt="overview of the slide" draggable="false"><div :style="frame"></div>
        </div>
        <div class="studio-measures"><div class="studio-place studio-float">{{ scale.times }}<span ref="place"></span></div>
          <div class="studio-scale studio-float"><span>{{ scale.text }}</span><div :style="{width: scale.px + 'px'}"></div></div></div>
      </div>
      <div class="studio-look studio-float" role="toolbar" aria-label="view">
        <button @click="wholeSlide" aria-label="Whole slide"><q-icon name="fit_screen" size="18px"></q-icon><q-tooltip anchor="center left" self="center right">The whole slide (Home)</q-tooltip></button>
        <button v-for="times in magnifications" :key="times" @click="magnify(times)" :aria-label="times + ' times'">{{ times }}×</button>
        <button @click="turn" aria-label="Turn"><q-icon name="rotate_90_degrees_cw" size="18px"></q-icon><q-tooltip anchor="center left" self="center right">Turn by 90° (Q)</q-tooltip></button>
        <button @click="screenshot" aria-label="Picture of the view"><q-icon name="photo_camera" size="18px"></q-icon><q-tooltip anchor="center left" self="center right">Keep the view as a picture, with its scale</q-tooltip></button>
      </div>
      <div class="studio-legend studio-float" v-if="legendRows.length || ramp">
        <div v-for="row in legendRows" :key="row.name"><i :style="{background: row.color}"></i><span>{{ row.name }}</span><b>{{ row.count.toLocaleString() }}</b></div>
        <div v-if="ramp" class="ramp"><span>{{ ramp[0] }}</span><i></i><span>{{ ramp[1] }}</span></div>
      </div>
      <div class="studio-saved studio-float" :class="{waits: unsaved}" role="status"><q-icon :name="unsaved ? 'sync' : 'check'" size="14px"></q-icon>{{ unsaved ? unsaved + " not saved" : "saved" }}</div>
      <div class="studio-notice" v-if="failure" role="alert">{{ failure }}</div>
      <div class="studio-hint" v-else-if="message" role="status">{{ message }}</div>
      <div class="studio-review studio-float" v-if="region" role="region" aria-label="review">
        <div class="why"><b>Region {{ region.number }} of {{ region.of }}</b> {{ region.reason }}</div>
        <div class="how"><span><b>{{ progress.found - progress.removed }}</b> kept</span><span><b>{{ progress.removed }}</b> removed</span><span><b>{{ progress.added }}</b> added</span>
          <em>Click a found cell to remove it, click elsewhere to add one.</em></div>
        <div class="do"><label>by <input v-model="reviewer" maxlength="100" aria-label="your name" placeholder="your name" @change="signed"></label>
          <button class="main" @click="done">All right here <kbd>Enter</kbd></button>
          <button @click="previous" aria-label="region before"><q-icon name="arrow_back" size="16px"></q-icon> <kbd>P</kbd></button><button @click="next">Skip <kbd>N</kbd></button><button @click="leave">Leave <kbd>Esc</kbd></button></div>
      </div>
      <div class="studio-hint" v-else-if="!message && !failure && (hint || !Object.keys(counts).length)">{{ hint || "To tell kinds apart, name a class (C) and click some of its cells." }}</div>
      <div class="studio-review studio-float" v-if="question" role="alertdialog" :aria-label="question.text">
        <div>{{ question.text }}</div>
        <div class="do"><button class="main" @click="question.yes(); question = null">{{ question.does }}</button><button @click="question = null">No</button></div>
      </div>
      <input ref="file" type="file" class="studio-file" @change="sendFile" aria-label="file with marks">
    </div>`,
  props: {
    slide: Object, result: String, against: String, version: String, threshold: Number, paint: String, heat: String, strength: Number, heatStrength: Number, slideStrength: Number,
    showSlide: Boolean, showMarks: Boolean, showFound: Boolean, overview: Boolean, whole: Boolean, person: String, resourcePath: String,
  },
  emits: ["view", "counted", "state", "reviewing", "asked", "counting"],
  data() {
    return {
      tools: TOOLS, shapes: SHAPES, magnifications: MAGNIFICATIONS, tool: "mark", drawsBy: "box", brush: 20, chosen: "cell", classes: { cell: "#f0e442" }, counts: {}, unsaved: 0,
      frame: {}, scale: { px: 100, text: "" }, failure: "", message: "", naming: false, newClass: "", inSlide: {}, legendColors: {},
      region: null, question: null, progress: { found: 0, removed: 0, added: 0 }, reviewer: localStorage.getItem("studio-reviewer") ?? this.person,
    };
  },
  computed: {
    names() { return Object.keys(this.classes).filter((name) => name !== NEGATIVE); },
    draws() { return DRAWS.has(this.tool); },
    hint() {
      const how = { polygon: " Click its corners; Enter ends it.", brush: " Paint; Alt takes away." };
      return HINTS[this.tool] + (this.draws ? `${how[this.shapeNow()] || ""} L: another shape. Space: move the slide.` : "");
    },
    legendRows() {
      const names = this.result && this.version && this.showFound && this.paint !== "score" ? Object.keys(this.inSlide) : [];
      return names.length > 1 ? names.map((name) => ({ name, color: this.legendColors[name] || this.classes[name], count: this.inSlide[name] })) : [];
    },
    ramp() {
      if (!this.result || !this.version) return null;
      if (this.heat) return this.heat === "density" ? ["few cells", "crowded"] : ["sure", "unsure"];
      return this.paint === "score" && this.showFound ? ["score 0", "1"] : null;
    },
  },
  async mounted() {
    await this.$nextTick();
    await new Promise((done) => {
      const link = document.createElement("link");
      Object.assign(link, { rel: "stylesheet", onload: done, onerror: done });
      link.href = `${window.path_prefix}${this.resourcePath}/leaflet/leaflet.css`;
      document.head.appendChild(link);
    });
    Object.assign(this, { marks: new Map(), shown: new Map(), negatives: [], cells: null });
    this.queue = JSON.parse(sessionStorage.getItem(`studio-queue-${this.slide.project}`) || "[]");
    this.map = L.map(this.$refs.map, {
      crs: turnedCrs(), preferCanvas: true, zoomControl: false, attributionControl: false, keyboard: false,
      doubleClickZoom: false, boxZoom: false, zoomSnap: 1, wheelPxPerZoomLevel: 90, maxZoom: 6, minZoom: -20,
    });
    L.control.zoom({ position: "topright" }).addTo(this.map);
    this.vectors = L.layerGroup().addTo(this.map);
    this.dots = L.layerGroup().addTo(this.map);
    this.map.on("moveend", () => this.moved());
    this.map.on("move", () => this.measure());
    this.map.on("click", (e) => this.click(e));
    this.map.on("mousedown", (e) => this.press(e));
    this.map.on("mousemove", (e) => this.drag(e));
    this.map.on("mouseup", (e) => this.release(e));
    this.map.on("dblclick", () => { if (this.corners?.length > 2) this.closePolygon(); });
    this.$refs.map.slideMap = this;  // so that scripts can ask where the map is
    this.onKey = (e) => this.key(e);
    this.onKeyUp = (e) => { if (e.key === " ") this.pan(false); };
    window.addEventListener("keydown", this.onKey);
    window.addEventListener("keyup", this.onKeyUp);
    new ResizeObserver(() => this.map.invalidateSize()).observe(this.$refs.map);
    this.poll = setInterval(() => this.refresh(), 700);
    this.open();
    // Not before: the page may change a property while there is no map yet.
    this.$watch(() => [this.result, this.against, this.version, this.heat], () => this.showResult());
    this.$watch(() => [this.strength, this.heatStrength, this.slideStrength, this.showSlide], () => this.restyle());
    this.$watch("threshold", () => this.refilter());
    this.$watch("paint", () => { this.cells = null; this.refilter(); });
    this.$watch("overview", () => this.measure());
    this.$watch("showMarks", () => this.draw());
    this.$watch("showFound", () => { this.restyle(); this.look(); });
    this.$watch("tool", () => { this.forgetPath(); this.forgetRuler(); this.map.dragging[this.draws || this.tool === "ruler" ? "disable" : "enable"](); });
  },
  unmounted() {
    window.removeEventListener("keydown", this.onKey);
    window.removeEventListener("keyup", this.onKeyUp);
    clearInterval(this.poll);
    this.map.remove();
  },
  methods: {
    ...finding, ...marking, ...drawing, ...viewing, ...reviewing,
    open() {
      const { id, size, levels } = this.slide;
      this.marksVersion = "";
      this.base = tiles((z, x, y) => `/slides/${id}/tiles/${z}/${x}/${y}.jpg`, size, levels, { zIndex: 1, className: "studio-base" }).addTo(this.map);
      this.base.on("tileerror", (e) => this.complain(e.tile.src));
      const bounds = L.latLngBounds(at(0, size[1]), at(size[0], 0));
      this.map.setMinZoom(-levels - 1);
      this.map.setMaxBounds(bounds.pad(0.5));
      const [known, x, y, zoom] = location.hash.slice(1).split(",");
      if (known === id && [x, y, zoom].every((v) => Number.isFinite(Number(v)))) this.map.setView(at(Number(x), Number(y)), Number(zoom), { animate: false });
      else this.map.fitBounds(bounds, { animate: false });
      this.showResult();
      this.refresh();
      this.keep();
      this.flush();
      send(`/slides/${id}/look`, { view: this.area(), find: "slide" });
      const coming = JSON.parse(sessionStorage.getItem("studio-review") || "null");
      sessionStorage.removeItem("studio-review");
      if (coming?.slide === id) this.enter(coming, coming.result);
    },
    async complain(url) {
      if (this.lastComplaint > Date.now() - 5000) return;
      this.lastComplaint = Date.now();
      const answer = await fetch(url).catch(() => null);
      if (answer?.ok) return;
      this.warn(answer ? (await answer.json().catch(() => ({}))).error || "A part of the slide cannot be read." : "The studio does not answer. Is it still running?");
    },
    // What stays is said until marks are saved again.
    warn(text, stays = false) {
      Object.assign(this, { failure: text, stays });
      clearTimeout(this.forget);
      if (!stays) this.forget = setTimeout(() => { this.failure = ""; }, 8000);
    },
    tell(text) {
      this.message = text;
      clearTimeout(this.silence);
      this.silence = setTimeout(() => { this.message = ""; }, 5000);
    },
    area() {
      const b = this.map.getBounds();
      return [b.getWest(), -b.getNorth(), b.getEast(), -b.getSouth()].map((v) => Math.round(v));
    },
    moved() {
      this.measure();
      this.draw();
      clearTimeout(this.looking);
      this.looking = setTimeout(() => this.look(), 120);
      const { lat, lng } = this.map.getCenter();
      history.replaceState(null, "", `#${this.slide.id},${Math.round(lng)},${Math.round(-lat)},${this.map.getZoom()}`);  // survives a reload
      this.$emit("view", { area: this.area() });
      clearTimeout(this.asking);
      if (!this.whole) this.asking = setTimeout(() => send(`/slides/${this.slide.id}/look`, { view: this.area() }), 500);
    },
    measure() {
      const { size, mpp } = this.slide, zoom = this.map.getZoom(), umPerPx = mpp / 2 ** zoom;
      const power = 10 ** Math.floor(Math.log10(120 * umPerPx));
      const um = [5, 2, 1].map((k) => k * power).find((k) => k / umPerPx <= 120) || power;
      this.scale = { px: um / umPerPx, text: um >= 1000 ? `${um / 1000} mm` : `${Number(um.toPrecision(2))} µm`, times: `${Number(this.magnification().toPrecision(2))}×` };
      const [x0, y0, x1, y1] = this.area(), share = (v, n) => `${Math.min(100, Math.max(0, (100 * v) / n))}%`;
      this.frame = { left: share(x0, size[0]), top: share(y0, size[1]), right: share(size[0] - x1, size[0]), bottom: share(size[1] - y1, size[1]) };
    },
    jump(e) {
      const box = e.currentTarget.querySelector("img").getBoundingClientRect();
      this.map.panTo(at(((e.clientX - box.left) / box.width) * this.slide.size[0], ((e.clientY - box.top) / box.height) * this.slide.size[1]));
    },
    signed() { localStorage.setItem("studio-reviewer", this.reviewer); },

    // ---- keys
    choose(name) { this.tool = name; },
    closeMenu() { this.$refs.menu?.[0]?.hide(); },
    renameClass(name, e) { const to = e.target.elements.to.value; this.closeMenu(); if (to.trim() !== name) this.changeClass(name, to); },
    pick(name) { this.chosen = name; if (this.tool !== "outline") this.tool = "mark"; },
    async nameClass() { this.naming = true; await this.$nextTick(); this.$refs.name.focus(); },
    key(e) {
      if (e.target.matches("input:not([type=range]), textarea, [contenteditable]") || document.querySelector(".q-dialog")) return;
      const key = e.key.toLowerCase(), ctrl = e.ctrlKey || e.metaKey;
      const arrows = { arrowleft: [-120, 0], arrowright: [120, 0], arrowup: [0, -120], arrowdown: [0, 120] };
      const isOnControl = e.target.closest("button, a, [role=slider], [role=tab], [role=checkbox], [role=switch], [role=radio]");
      const tool = TOOLS.find((t) => t.key === key);
      if (key === "z" && !e.altKey) this.undo(e.shiftKey ? "redo" : "undo");
      else if (key === "y") this.undo("redo");
      else if (ctrl || e.altKey) return;
      else if (isOnControl && (arrows[key] || key === "enter" || key === " ")) return;
      else if (key === " ") this.pan(true);
      else if (key === "[" || key === "]") { this.brush = Math.min(120, Math.max(3, Math.round(this.brush * (key === "]" ? 1.25 : 0.8)))); this.brushRing?.setRadius(this.brush); }
      else if (key === "backspace" && this.corners) { this.corners.pop(); if (this.corners.length) this.ghost.setLatLngs(this.corners); else this.forgetPath(); }
      else if (key === "q") this.turn();
      else if (key === "p") this.previous();
      else if (/^[1-9]$/.test(key)) { if (this.names[key - 1]) this.pick(this.names[key - 1]); }
      else if (tool) this.choose(tool.name);
      else if (key === "l") this.nextShape();
      else if (key === "c") this.nameClass();
      else if (arrows[key]) this.map.panBy(arrows[key]);
      else if (key === "+" || key === "=") this.map.zoomIn();
      else if (key === "-") this.map.zoomOut();
      else if (key === "home") this.wholeSlide();
      else if (key === "n") this.next();
      else if (key === "enter") { if (this.region) this.done(); else this.useInMiddle(); }
      else if (key === "escape") {
        if (this.question) this.question = null;
        else if (this.corners || this.path) this.forgetPath();
        else { if (this.region && this.tool === "mark") this.leave(); this.choose("mark"); }
      }
      else if (key.length === 1 && PAGE_KEYS.includes(key)) this.$emit("asked", { key });
      else return;
      e.preventDefault();
    },
  },
};
