// The slide with its marks and found cells. Places are level-0 pixels; on the map y points up, so lat = -y.
import { leaflet as L } from "nicegui-leaflet";

const NEGATIVE = "not a cell";
const TOOLS = [
  { name: "mark", key: "m", icon: "add_circle_outline", says: "Mark a cell: click (Alt: not a cell, Shift: delete)" },
  { name: "negative", key: "x", icon: "highlight_off", says: "Not a cell: click" },
  { name: "outline", key: "o", icon: "gesture", says: "Outline a cell: drag around it" },
  { name: "erase", key: "e", icon: "delete_outline", says: "Delete a mark or region: click" },
  { name: "region", key: "r", icon: "select_all", says: "All cells are marked here: drag a box" },
  { name: "accept", key: "a", icon: "done_all", says: "Accept the found cells: drag a box" },
  { name: "reject", key: "j", icon: "remove_done", says: "Reject the found cells: drag a box" },
];
const DRAWS = new Set(["outline", "region", "accept", "reject"]);
const NEAR_PX = 14, MOST_SHOWN = 5000, VECTORS_FROM_ZOOM = -2;

const Cross = L.CircleMarker.extend({
  _updatePath() {
    const renderer = this._renderer;
    if (!renderer._drawing || this._empty()) return;
    const { x, y } = this._point, s = this._radius * 0.8, c = renderer._ctx;
    for (const [width, color] of [[5, "#ffffff"], [2.5, "#c00000"]]) {
      c.beginPath();
      c.lineWidth = width;
      c.strokeStyle = color;
      c.globalAlpha = this.options.opacity;
      c.moveTo(x - s, y - s); c.lineTo(x + s, y + s);
      c.moveTo(x - s, y + s); c.lineTo(x + s, y - s);
      c.stroke();
    }
    c.globalAlpha = 1;
  },
});

const at = (x, y) => L.latLng(-y, x);
const ring = (points) => points.map(([x, y]) => at(x, y));
const newKey = () => Array.from(crypto.getRandomValues(new Uint8Array(10)), (b) => b.toString(36).padStart(2, "0")).join("");

function tiles(url, size, levels, options) {
  const layer = L.tileLayer("", {
    tileSize: 256, noWrap: true, minNativeZoom: -levels, maxNativeZoom: 0, minZoom: -levels - 2, maxZoom: 4,
    bounds: [[-size[1] + 0.5, 0.5], [-0.5, size[0] - 0.5]], keepBuffer: 3, updateWhenZooming: false, ...options,
  });
  layer.getTileUrl = (c) => url(-c.z, c.x, c.y);
  return layer;
}

export default {
  template: `
    <div class="studio-map">
      <div ref="map" class="studio-canvas" tabindex="0" aria-label="slide"></div>
      <div class="studio-tools" role="toolbar">
        <button v-for="t in tools" :key="t.name" :class="{on: tool === t.name}" :data-tool="t.name" @click="choose(t.name)">
          <q-icon :name="t.icon" size="22px"></q-icon><small>{{ t.key.toUpperCase() }}</small>
          <q-tooltip anchor="center right" self="center left">{{ t.says }}</q-tooltip>
        </button>
        <hr>
        <button @click="undo('undo')" data-tool="undo"><q-icon name="undo" size="22px"></q-icon><small>Z</small>
          <q-tooltip anchor="center right" self="center left">Undo</q-tooltip></button>
        <button @click="undo('redo')" data-tool="redo"><q-icon name="redo" size="22px"></q-icon><small>Y</small>
          <q-tooltip anchor="center right" self="center left">Redo</q-tooltip></button>
      </div>
      <div class="studio-classes">
        <button v-for="(name, i) in names" :key="name" :class="{on: name === chosen && tool !== 'negative'}" @click="pick(name)">
          <i :style="{background: classes[name]}"></i><span>{{ name }}</span><b>{{ counts[name] || 0 }}</b><small>{{ i + 1 }}</small>
        </button>
        <button :class="{on: tool === 'negative'}" @click="choose('negative')">
          <i class="cross">×</i><span>not a cell</span><b>{{ counts["not a cell"] || 0 }}</b><small>X</small>
        </button>
        <button class="add" @click="addClass"><i>+</i><span>new class</span></button>
      </div>
      <div class="studio-corner">
        <div class="studio-overview" v-show="overview" @click="jump">
          <img :src="'/slides/' + slide.id + '/thumbnail.jpg'" alt="overview of the slide" draggable="false"><div :style="frame"></div>
        </div>
        <div class="studio-scale"><span>{{ scale.text }}</span><div :style="{width: scale.px + 'px'}"></div></div>
      </div>
      <div class="studio-notice" v-if="failure" role="alert">{{ failure }}</div>
      <div class="studio-hint" v-if="!total && !failure">Click some cells to mark them. Press ? for help.</div>
      <input ref="file" type="file" class="studio-file" @change="send" aria-label="file with marks">
    </div>`,
  props: {
    slide: Object, result: String, version: String, threshold: Number, paint: String, strength: Number,
    showSlide: Boolean, showMarks: Boolean, showFound: Boolean, overview: Boolean, resourcePath: String,
  },
  data() {
    return {
      tools: TOOLS, tool: "mark", chosen: "cell", classes: { cell: "#f0e442" }, counts: {}, total: 0,
      frame: {}, scale: { px: 100, text: "" }, failure: "",
    };
  },
  computed: {
    names() { return Object.keys(this.classes).filter((name) => name !== NEGATIVE); },
  },
  async mounted() {
    await this.$nextTick();
    await new Promise((done) => {
      const link = document.createElement("link");
      Object.assign(link, { rel: "stylesheet", onload: done, onerror: done });
      link.href = `${window.path_prefix}${this.resourcePath}/leaflet/leaflet.css`;
      document.head.appendChild(link);
    });
    this.marks = new Map();
    this.shown = new Map();
    this.queue = JSON.parse(sessionStorage.getItem("studio-queue") || "[]");
    this.map = L.map(this.$refs.map, {
      crs: L.CRS.Simple, preferCanvas: true, zoomControl: false, attributionControl: false, keyboard: false,
      doubleClickZoom: false, boxZoom: false, zoomSnap: 1, wheelPxPerZoomLevel: 90, maxZoom: 4, minZoom: -20,
    });
    L.control.zoom({ position: "topright" }).addTo(this.map);
    this.vectors = L.layerGroup().addTo(this.map);
    this.dots = L.layerGroup().addTo(this.map);
    this.map.on("moveend", () => this.moved());
    this.map.on("move", () => this.measure());
    this.map.on("click", (e) => this.click(e));
    this.map.on("mousedown", (e) => this.press(e));
    this.map.on("mousemove", (e) => this.drag(e));
    this.map.on("mouseup", () => this.release());
    this.onKey = (e) => this.key(e);
    window.addEventListener("keydown", this.onKey);
    new ResizeObserver(() => this.map.invalidateSize()).observe(this.$refs.map);
    this.poll = setInterval(() => this.refresh(), 1500);
    this.open();
  },
  unmounted() {
    window.removeEventListener("keydown", this.onKey);
    clearInterval(this.poll);
    this.map.remove();
  },
  watch: {
    slide(now, before) { if (now.id !== before.id || now.mpp !== before.mpp) this.open(); },
    result() { this.showResult(); },
    version() { this.showResult(); },
    threshold() { this.refilter(); },
    paint() { this.refilter(); },
    strength() { this.restyle(); },
    showSlide() { this.restyle(); },
    showMarks() { this.draw(); },
    showFound() { this.restyle(); this.look(); },
    tool() { this.$refs.map.classList.toggle("drawing", DRAWS.has(this.tool)); this.map.dragging[DRAWS.has(this.tool) ? "disable" : "enable"](); },
  },
  methods: {
    open() {
      const { id, size, levels } = this.slide;
      this.base?.remove();
      this.marks.clear();
      this.marksVersion = "";
      this.base = tiles((z, x, y) => `/slides/${id}/tiles/${z}/${x}/${y}.jpg`, size, levels, { zIndex: 1 }).addTo(this.map);
      this.base.on("tileerror", (e) => this.complain(e.tile.src));
      const bounds = L.latLngBounds(at(0, size[1]), at(size[0], 0));
      this.map.setMinZoom(-levels - 1);
      this.map.setMaxBounds(bounds.pad(0.5));
      const [known, x, y, zoom] = location.hash.slice(1).split(",");
      if (known === id && [x, y, zoom].every((v) => Number.isFinite(Number(v)))) this.map.setView(at(Number(x), Number(y)), Number(zoom), { animate: false });
      else this.map.fitBounds(bounds, { animate: false });
      this.showResult();
      this.refresh();
      this.flush();
    },
    async complain(url) {
      if (this.lastComplaint > Date.now() - 5000) return;
      this.lastComplaint = Date.now();
      const answer = await fetch(url).catch(() => null);
      if (answer?.ok) return;
      this.warn(answer ? (await answer.json().catch(() => ({}))).error || "a part of the slide cannot be read" : "the studio does not answer; is it still running?");
    },
    warn(text) {
      this.failure = text;
      clearTimeout(this.forget);
      this.forget = setTimeout(() => { if (!this.queue.length) this.failure = ""; }, 8000);
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
    },
    measure() {
      const { size, mpp } = this.slide, zoom = this.map.getZoom(), umPerPx = mpp / 2 ** zoom;
      const power = 10 ** Math.floor(Math.log10(120 * umPerPx));
      const um = [5, 2, 1].map((k) => k * power).find((k) => k / umPerPx <= 120) || power;
      this.scale = { px: um / umPerPx, text: um >= 1000 ? `${um / 1000} mm` : `${Number(um.toPrecision(2))} µm` };
      const [x0, y0, x1, y1] = this.area(), share = (v, n) => `${Math.min(100, Math.max(0, (100 * v) / n))}%`;
      this.frame = { left: share(x0, size[0]), top: share(y0, size[1]), right: share(size[0] - x1, size[0]), bottom: share(size[1] - y1, size[1]) };
    },
    jump(e) {
      const box = e.currentTarget.querySelector("img").getBoundingClientRect();
      this.map.panTo(at(((e.clientX - box.left) / box.width) * this.slide.size[0], ((e.clientY - box.top) / box.height) * this.slide.size[1]));
    },
    goto(x, y, zoom) { this.map.setView(at(x, y), zoom); },

    // ---- found cells
    found(path) { return `/slides/${this.slide.id}/found/${this.result}/${path}`; },
    showResult() {
      this.overlay?.remove();
      this.overlay = null;
      if (this.result && this.version) {
        const query = () => `?threshold=${this.threshold}&paint=${this.paint}&v=${this.version}`;
        this.overlay = tiles((z, x, y) => this.found(`${z}/${x}/${y}.png`) + query(), this.slide.size, this.slide.levels, { zIndex: 2 });
        this.overlay.addTo(this.map);
      }
      this.restyle();
      this.look();
    },
    refilter() {
      clearTimeout(this.filtering);
      this.filtering = setTimeout(() => { this.overlay?.redraw(); this.look(); }, 60);
    },
    restyle() {
      this.base?.setOpacity(this.showSlide ? 1 : 0.15);
      this.overlay?.setOpacity(this.showFound && !this.isVector ? this.strength : 0);
      this.vectors.eachLayer((shape) => shape.setStyle({ opacity: this.strength }));
    },
    async look() {
      if (!this.result || !this.version) { this.vectors.clearLayers(); return; }
      const close = this.map.getZoom() >= VECTORS_FROM_ZOOM && this.paint === "class" && this.showFound;
      const asked = this.found(`cells?area=${this.area()}&threshold=${this.threshold}&vectors=${close}&v=${this.version}`);
      this.asked = asked;
      const answer = await fetch(asked).then((r) => (r.ok ? r.json() : null)).catch(() => null);
      if (!answer || this.asked !== asked) return;
      this.$emit("counted", { in_view: answer.in_view, in_slide: answer.in_slide });
      this.vectors.clearLayers();
      this.isVector = Boolean(answer.cells);
      const um = 4 / this.slide.mpp;
      (answer.cells || []).forEach(([x, y, label, score], i) => {
        const style = { color: answer.colors[label], weight: 2, fillOpacity: 0.08, opacity: this.strength };
        const outline = answer.outlines[i];
        const shape = outline ? L.polygon(ring(outline), style) : L.circle(at(x, y), { ...style, radius: um });
        const says = document.createElement("span");
        says.textContent = `${answer.classes[label]}, ${Math.round(100 * score)} %`;
        this.vectors.addLayer(shape.bindTooltip(says, { direction: "top" }));
      });
      this.restyle();
    },

    // ---- marks
    async refresh() {
      if (this.queue.length) return this.flush();
      const answer = await fetch(`/slides/${this.slide.id}/marks?since=${this.marksVersion}`).catch(() => null);
      if (!answer) this.warn("the studio does not answer; is it still running?");
      else if (answer.ok) this.apply(await answer.json(), this.slide.id);
    },
    apply(answer, slide) {
      if (slide !== this.slide.id) return;
      const before = this.marksVersion;
      this.marksVersion = answer.version;
      if (JSON.stringify(this.classes) !== JSON.stringify(answer.classes)) this.classes = answer.classes;
      if (answer.all) {
        this.marks = new Map(answer.all.map((item) => [item.id, item]));
        for (const change of this.queue.filter((c) => c.slide === slide)) this.foresee(change);
      }
      for (const change of answer.changes || []) {
        for (const id of change.removed) this.marks.delete(id);
        for (const item of change.added) this.marks.set(item.id, item);
      }
      if (before !== answer.version) this.draw();
    },
    foresee({ key, remove = [], add = [] }) {
      for (const id of remove) this.marks.delete(id);
      add.forEach((item, i) => this.marks.set(`${key}:${i}`, { ...item, id: `${key}:${i}`, waits: true }));
    },
    change(change) {
      const whole = { key: newKey(), slide: this.slide.id, ...change };
      this.foresee(whole);
      this.queue.push(whole);
      this.keep();
      this.draw();
      this.flush();
    },
    keep() { sessionStorage.setItem("studio-queue", JSON.stringify(this.queue)); },
    async flush() {
      if (this.sending || !this.queue.length) return;
      this.sending = true;
      const slide = this.queue[0].slide;
      let batch = this.queue.slice(0, 200);
      const other = batch.findIndex((c) => c.slide !== slide);
      if (other > 0) batch = batch.slice(0, other);
      const body = JSON.stringify(batch.map(({ slide: _, ...change }) => change));
      const since = slide === this.slide.id ? this.marksVersion : "";
      let saved = false;
      try {
        const answer = await fetch(`/slides/${slide}/marks?since=${since}`, { method: "POST", headers: { "Content-Type": "application/json" }, body });
        const said = await answer.json();
        saved = answer.ok;
        if (answer.ok || answer.status === 422) this.queue.splice(0, batch.length);
        if (answer.ok) { this.failure = ""; this.apply(said, slide); }
        else this.warn(`not saved: ${said.error || "the studio refused it"}`);
        if (answer.status === 422) { this.marksVersion = ""; this.sending = false; this.refresh(); }
      } catch {
        this.warn(`not saved yet: the studio does not answer (${this.queue.length} waiting)`);
      }
      this.keep();
      this.sending = false;
      if (saved && this.queue.length) this.flush();
    },
    draw() {
      const bounds = this.map.getBounds().pad(0.2), counts = {}, wanted = new Map();
      let total = 0;
      for (const item of this.marks.values()) {
        if (item.class) { counts[item.class] = (counts[item.class] || 0) + 1; total++; }
        const [x, y] = item.at || (item.outline || item.region)[0];
        if (this.showMarks && wanted.size < MOST_SHOWN && (item.region || bounds.contains(at(x, y)))) wanted.set(item.id, item);
      }
      if (total !== this.total || JSON.stringify(counts) !== JSON.stringify(this.counts)) {
        this.counts = counts;
        this.total = total;
        this.$emit("marked", { counts, total });
      }
      for (const [id, [item, shape]] of this.shown) {
        if (wanted.get(id) !== item) { this.dots.removeLayer(shape); this.shown.delete(id); }
      }
      for (const [id, item] of wanted) {
        if (!this.shown.has(id)) {
          const shape = this.shape(item);
          this.dots.addLayer(shape);
          this.shown.set(id, [item, shape]);
        }
      }
    },
    shape(item) {
      const opacity = item.waits ? 0.5 : 1, interactive = false;
      if (item.region) return L.polygon(ring(item.region), { color: "#0072b2", weight: 2, dashArray: "6 4", fillOpacity: 0.04, interactive });
      const color = this.classes[item.class] || "#888888";
      if (item.class === NEGATIVE) return new Cross(at(...this.place(item)), { radius: 7, opacity, interactive });
      if (item.outline) return L.polygon(ring(item.outline), { color, weight: 3, fillOpacity: 0.15, opacity, interactive });
      return L.circleMarker(at(...item.at), { radius: 6, color: "#222222", weight: 1.5, fillColor: color, fillOpacity: opacity, opacity, interactive });
    },
    place(item) {
      if (item.at) return item.at;
      const points = item.outline || item.region;
      return [0, 1].map((k) => points.reduce((sum, p) => sum + p[k], 0) / points.length);
    },
    nearest(latlng) {
      const here = this.map.latLngToContainerPoint(latlng);
      let best = null, distance = NEAR_PX;
      for (const [, [item]] of this.shown) {
        const points = item.region ? item.region : [this.place(item)];
        for (const [x, y] of points) {
          const d = here.distanceTo(this.map.latLngToContainerPoint(at(x, y)));
          if (d < distance) { best = item; distance = d; }
        }
      }
      return best;
    },
    undo(what) { this.change({ [what]: true }); },
    point(latlng) { return [Math.round(latlng.lng * 10) / 10, Math.round(-latlng.lat * 10) / 10]; },
    inside([x, y]) { return x >= 0 && y >= 0 && x <= this.slide.size[0] && y <= this.slide.size[1]; },
    click(e) {
      if (DRAWS.has(this.tool) || !e.latlng) return;
      const o = e.originalEvent || {}, point = this.point(e.latlng);
      if (this.tool === "erase" || o.shiftKey) {
        const item = this.nearest(e.latlng);
        if (item) this.change({ remove: [item.id] });
        return;
      }
      if (!this.inside(point)) return;
      const name = this.tool === "negative" || o.altKey ? NEGATIVE : this.chosen;
      const there = this.nearest(e.latlng);
      if (there?.class === name && !there.waits) return;  // a double click marks one cell
      const remove = there?.class && there.class !== name ? [there.id] : [];
      this.change({ remove, add: [{ class: name, at: point }] });
    },
    press(e) {
      if (!DRAWS.has(this.tool) || e.originalEvent.button) return;
      this.path = [e.latlng];
      const color = { outline: this.classes[this.chosen], reject: "#c00000" }[this.tool] || "#0072b2";
      this.ghost = (this.tool === "outline" ? L.polyline([e.latlng], { color }) : L.rectangle([e.latlng, e.latlng], { color, weight: 2 })).addTo(this.map);
    },
    drag(e) {
      if (!this.path) return;
      this.path.push(e.latlng);
      if (this.tool === "outline") this.ghost.setLatLngs(this.path);
      else this.ghost.setBounds(L.latLngBounds(this.path[0], e.latlng));
    },
    release() {
      if (!this.path) return;
      const points = this.path.map((p) => this.point(p)), [first, last] = [points[0], points[points.length - 1]];
      this.ghost.remove();
      this.path = null;
      const [width, height] = this.slide.size;
      const [x0, x1] = [first[0], last[0]].sort((a, b) => a - b).map((v) => Math.min(width, Math.max(0, v)));
      const [y0, y1] = [first[1], last[1]].sort((a, b) => a - b).map((v) => Math.min(height, Math.max(0, v)));
      if (this.tool === "outline") {
        const thin = points.filter((p, i) => !i || i % Math.ceil(points.length / 60) === 0);
        if (thin.length > 3) this.change({ add: [{ class: this.chosen, outline: thin }] });
      } else if (x1 - x0 < 4 || y1 - y0 < 4) return;
      else if (this.tool === "region") this.change({ add: [{ region: [[x0, y0], [x1, y0], [x1, y1], [x0, y1]] }] });
      else this.judge([x0, y0, x1, y1], this.tool === "accept");
    },
    async judge(area, accept) {
      if (!this.result || !this.version) return this.warn("nothing has been found yet; train first");
      const body = JSON.stringify({ key: newKey(), result: this.result, area, threshold: this.threshold, accept });
      const answer = await fetch(`/slides/${this.slide.id}/judge`, { method: "POST", headers: { "Content-Type": "application/json" }, body }).catch(() => null);
      const said = answer ? await answer.json() : { error: "the studio does not answer" };
      this.warn(said.error || `${said.marked} found cells ${accept ? "accepted" : "rejected"}`);
      this.refresh();
    },
    async addClass() {
      const name = (window.prompt("Name of the new class") || "").trim();
      if (!name) return;
      const palette = ["#f0e442", "#56b4e9", "#009e73", "#e69f00", "#cc79a7", "#0072b2", "#d55e00"];
      const body = JSON.stringify({ name, color: palette[this.names.length % palette.length] });
      const answer = await fetch("/classes", { method: "POST", headers: { "Content-Type": "application/json" }, body }).catch(() => null);
      if (!answer?.ok) return this.warn("the class was not added; give another name");
      await this.refresh();
      this.pick(name);
    },
    pickFile() { this.$refs.file.click(); },
    async send() {
      const [file] = this.$refs.file.files;
      if (!file) return;
      const form = new FormData();
      form.append("file", file);
      const answer = await fetch(`/slides/${this.slide.id}/import?key=${newKey()}`, { method: "POST", body: form }).catch(() => null);
      const said = answer ? await answer.json().catch(() => ({})) : {};
      this.$refs.file.value = "";
      this.warn(answer?.ok ? [`${said.marks} marks from ${file.name}`, ...said.said].join("; ") : `not imported: ${said.error || "the studio does not answer"}`);
      this.refresh();
    },

    // ---- keys
    choose(name) { this.tool = name; },
    pick(name) { this.chosen = name; if (this.tool !== "outline") this.tool = "mark"; },
    key(e) {
      if (e.target.matches("input:not([type=range]), textarea, [contenteditable]") || document.querySelector(".q-dialog")) return;
      const key = e.key.toLowerCase(), ctrl = e.ctrlKey || e.metaKey;
      const arrows = { arrowleft: [-120, 0], arrowright: [120, 0], arrowup: [0, -120], arrowdown: [0, 120] };
      const tool = TOOLS.find((t) => t.key === key);
      if (key === "z" && !e.altKey) this.undo(e.shiftKey ? "redo" : "undo");
      else if (key === "y") this.undo("redo");
      else if (ctrl || e.altKey) return;
      else if (/^[1-9]$/.test(key)) { if (this.names[key - 1]) this.pick(this.names[key - 1]); }
      else if (tool) this.choose(tool.name);
      else if (arrows[key]) this.map.panBy(arrows[key]);
      else if (key === "+" || key === "=") this.map.zoomIn();
      else if (key === "-") this.map.zoomOut();
      else if (key === "enter") this.click({ latlng: this.map.getCenter() });
      else if (key === "escape") this.choose("mark");
      else if ("?tnfgsv".includes(key) && key.length === 1) this.$emit("asked", { key });
      else return;
      e.preventDefault();
    },
  },
};
