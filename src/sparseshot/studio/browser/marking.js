// Marks: drawn at once, pale until they are on disk; kept in this tab until the studio has confirmed them.
import { leaflet as L } from "nicegui-leaflet";
import { Cross, NEGATIVE, SAME_UM, at, newKey, placeOf, ring, send } from "sparseshot-studio/geometry.js";

const NEAR_PX = 14, MOST_SHOWN = 5000;
const SILENT = "The studio does not answer. Is it still running?";

export const marking = {
  async refresh() {
    if (this.queue.length) return this.flush();
    const answer = await fetch(`/slides/${this.slide.id}/state?since=${this.marksVersion}`).catch(() => null);
    if (!answer) return this.warn(SILENT, true);
    if (this.failure === SILENT) this.failure = "";
    if (!answer.ok) return;
    const state = await answer.json();
    this.apply(state, this.slide.id);
    this.$emit("state", state);
  },
  apply(answer, slide) {
    if (slide !== this.slide.id) return;
    const before = this.marksVersion;
    this.marksVersion = answer.version;
    if (JSON.stringify(this.classes) !== JSON.stringify(answer.classes)) this.recolored(answer.classes);
    if (answer.all) {
      this.marks = new Map(answer.all.map((item) => [item.id, item]));
      for (const change of this.queue.filter((c) => c.slide === slide)) this.foresee(change);
    }
    for (const change of answer.changes || []) {
      for (const id of change.removed) this.marks.delete(id);
      for (const item of change.added) this.marks.set(item.id, item);
    }
    if (before !== answer.version) this.changed();
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
    this.changed();
    this.flush();
  },
  changed() {
    const before = this.negatives.length;
    this.gatherNegatives();
    this.draw();
    if (this.negatives.length !== before && this.cells) this.drawCells();
    clearTimeout(this.recounting);
    if (this.result) this.recounting = setTimeout(() => this.look(), 100);  // counts and kinds follow what was decided
    this.tally();
  },
  keep() { this.unsaved = this.queue.length; sessionStorage.setItem(`studio-queue-${this.slide.project}`, JSON.stringify(this.queue)); },
  // One request at a time: whoever asks while one is under way waits for the same.
  flush() {
    if (this.queue.length) this.sending ??= this.sendQueue().finally(() => { this.sending = null; });
    return this.sending;
  },
  async sendQueue() {
    while (this.queue.length && await this.sendBatch());
    if (!this.queue.length && !this.marksVersion) this.refresh();
  },
  // Return whether the studio took or refused the oldest changes, so that they need not be sent again.
  async sendBatch(most = 200) {
    const slide = this.queue[0].slide;
    let batch = this.queue.slice(0, most);
    const other = batch.findIndex((c) => c.slide !== slide);
    if (other > 0) batch = batch.slice(0, other);
    const body = JSON.stringify(batch.map(({ slide: _, ...change }) => change));
    const since = slide === this.slide.id ? this.marksVersion : "";
    let isSettled = false;
    try {
      const answer = await fetch(`/slides/${slide}/marks?since=${since}&project=${this.slide.project}`, { method: "POST", headers: { "Content-Type": "application/json" }, body });
      const said = await answer.json();
      const isRefused = answer.status === 422;
      if (isRefused && batch.length > 1) {  // one of them is wrong: only that one is dropped
        for (const _ of batch) if (!await this.sendBatch(1)) return false;
        return true;
      }
      isSettled = answer.ok || isRefused;
      if (isSettled) this.queue.splice(0, batch.length);
      if (isRefused) this.marksVersion = "";  // what was drawn in advance is wrong
      if (answer.ok) { if (this.stays) this.failure = ""; this.apply(said, slide); }
      else if (answer.status === 409) this.warn("Not saved: another project is open at this address. Open yours again, and reload this page.", true);
      else this.warn(`Not saved: ${said.error || "the studio refused it"}`, !isRefused);
    } catch {
      const marks = this.queue.length === 1 ? "1 change waits" : `${this.queue.length} changes wait`;
      this.warn(`Not saved yet: the studio does not answer. ${marks} here until it is back.`, true);
    }
    this.keep();
    return isSettled;
  },
  draw() {
    const bounds = this.map.getBounds().pad(0.2), counts = {}, wanted = new Map();
    for (const item of this.marks.values()) {
      if (item.class) counts[item.class] = (counts[item.class] || 0) + 1;
      const [x, y] = item.at || (item.outline || item.region || item.count)[0];
      if (this.showMarks && wanted.size < MOST_SHOWN && (item.region || item.count || bounds.contains(at(x, y)))) wanted.set(item.id, item);
    }
    if (JSON.stringify(counts) !== JSON.stringify(this.counts)) this.counts = counts;
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
    if (item.region) {
      const color = item.note ? "#00695c" : "#1f5fa8";
      return L.polygon(ring(item.region), { color, weight: 2.5, dashArray: item.note ? null : "7 5", fillOpacity: 0.03, interactive });
    }
    if (item.count) {
      const says = document.createElement("span");
      says.textContent = item.name;
      return L.polygon(ring(item.count), { color: "#7b1fa2", weight: 2.5, fillOpacity: 0.02, interactive }).bindTooltip(says, { permanent: true, direction: "center", className: "studio-region-name" });
    }
    const color = this.classes[item.class] || "#888888";
    if (item.class === NEGATIVE) return new Cross(at(...placeOf(item)), { radius: item.score ? 5 : 7, opacity, interactive });
    if (item.outline) return L.polygon(ring(item.outline), { color, weight: 3, fillOpacity: 0.15, opacity, interactive });
    // A found cell that was accepted is smaller than a mark made by hand.
    return L.circleMarker(at(...item.at), { radius: item.score ? 3.5 : 5, color: "#1a1a1a", weight: 1.5, fillColor: color, fillOpacity: opacity, opacity, interactive });
  },
  nearest([x, y], items, reach) {
    let best = null;
    for (const item of items) {
      for (const [a, b] of item.region || item.count || [placeOf(item)]) {
        const d = Math.hypot(a - x, b - y);
        if (d <= reach) { best = item; reach = d; }
      }
    }
    return best;
  },
  undo(what) { this.change({ [what]: true }); },
  point(latlng) { return [Math.round(latlng.lng * 10) / 10, Math.round(-latlng.lat * 10) / 10]; },
  // The nearest place on the slide.
  within(latlng) { return this.point(latlng).map((v, k) => Math.min(this.slide.size[k], Math.max(0, v))); },
  inside([x, y]) { return x >= 0 && y >= 0 && x <= this.slide.size[0] && y <= this.slide.size[1]; },
  click(e) {
    if (this.hasMoved || !e.latlng) { this.hasMoved = false; return; }
    if (this.draws) return this.corner(e.latlng);
    if (this.tool === "ruler") return;
    const o = e.originalEvent || {}, point = this.point(e.latlng), reach = NEAR_PX / 2 ** this.map.getZoom();
    if (this.tool === "erase" || o.shiftKey) {
      const item = this.nearest(point, [...this.shown.values()].map(([each]) => each), reach);
      if (item) this.change({ remove: [item.id] });
      return;
    }
    if (!this.inside(point)) return;
    if (this.region && this.tool === "mark" && !o.altKey && this.reviewClick(point)) return;
    const name = this.tool === "negative" || o.altKey ? NEGATIVE : this.chosen;
    // Zoomed out, the dot of another cell may be as near as this.
    const there = this.nearest(point, [...this.marks.values()].filter((item) => item.class), Math.min(reach, SAME_UM / this.slide.mpp));
    if (there ? there.class === name : o.detail > 1) return;  // a double click marks one cell
    this.change({ remove: there ? [there.id] : [], add: [{ class: name, at: point }] });
  },

  // Regions to count in: named, shown, removed.
  renameRegion(id, name) { const { count } = this.marks.get(id); this.change({ remove: [id], add: [{ count, name }] }); },
  removeRegion(id) { this.change({ remove: [id] }); },
  showRegion(id) { this.map.fitBounds(L.latLngBounds(ring(this.marks.get(id).count)).pad(0.1)); },
  async judge(area, accept) {
    if (!this.result || !this.version) return this.warn("Nothing has been found yet. Train first.");
    if (this.isDerived()) return this.warn("Show one run, coloured by class, to accept or reject its cells.");
    const said = await send(`/slides/${this.slide.id}/judge`, { key: newKey(), result: this.result, area, threshold: this.threshold, accept });
    const cells = said.marked === 1 ? "1 found cell" : `${said.marked} found cells`;
    if (said.error) this.warn(said.error); else this.tell(`${cells} ${accept ? "accepted" : "rejected"}`);
    this.refresh();
  },
  async addClass() {
    const name = this.newClass.trim();
    if (!name) return;
    const said = await send("/classes", { name });
    if (said.error) return this.warn(`The class was not added: ${said.error}`);
    this.newClass = "";
    this.naming = false;
    await this.refresh();
    this.pick(name);
  },
  async recolor(name, color) {
    const said = await send("/classes", { name, color });
    if (said.error) return this.warn(`The colour was not changed: ${said.error}`);
    await this.refresh();
  },
  recolored(classes) {
    this.classes = classes;
    if (!classes[this.chosen]) this.chosen = Object.keys(classes)[0];
    this.shown.forEach(([, shape]) => this.dots.removeLayer(shape));
    this.shown.clear();
  },
  // Rename a class, merge it into another, or delete it with its marks (null).
  async changeClass(name, to) {
    if (to !== null && !(to = to.trim())) return;
    await this.flush();
    const said = await send("/classes/change", { key: newKey(), name, to });
    if (said.error) return this.warn(`The class was not changed: ${said.error}`);
    if (this.chosen === name && to && to !== NEGATIVE) this.classes = { ...this.classes, [to]: this.classes[to] || this.classes[name] }, this.chosen = to;
    await this.refresh();
    this.changed();
  },
  deleteClass(name) {
    const own = this.counts[name] || 0, gone = () => this.changeClass(name, null);
    if (!own) return gone();
    this.question = { text: `Delete ${name === "cell" ? "all marks of cell" : name} with ${own === 1 ? "its mark" : `its ${own} marks`} here, and those on other slides? Undo brings marks back.`, does: "Delete", yes: gone };
  },
  // Not a link: if the export fails, the page stays and says why.
  async saveFile(url) {
    this.tell("Writing the file …");
    const answer = await fetch(url).catch(() => null);
    const content = await (answer?.ok ? answer.blob() : answer?.json())?.catch(() => null);
    if (!answer?.ok || !content) return this.warn(`Not exported: ${content?.error || "the studio does not answer"}`);
    this.give(content, decodeURIComponent(answer.headers.get("Content-Disposition").split("''")[1]));
  },
  give(content, name) {
    const link = Object.assign(document.createElement("a"), { download: name, href: URL.createObjectURL(content) });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60000);
  },
  pickFile() { this.$refs.file.click(); },
  async sendFile() {
    const [file] = this.$refs.file.files;
    if (!file) return;
    const form = new FormData();
    form.append("file", file);
    const answer = await fetch(`/slides/${this.slide.id}/import?key=${newKey()}`, { method: "POST", body: form }).catch(() => null);
    const said = answer ? await answer.json().catch(() => ({})) : {};
    this.$refs.file.value = "";
    if (answer?.ok) this.failure = "";  // of an import before
    if (answer?.ok) this.tell([`${said.marks} ${said.marks === 1 ? "mark" : "marks"} from ${file.name}`, ...said.said].join("; "));
    else this.warn(`Not imported: ${file.name}: ${(said.error || "the studio does not answer").replace(`${file.name}: `, "")}`);
    this.refresh();
  },
};
