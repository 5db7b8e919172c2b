// Suggested regions: go to the next, correct what was found there, and say that it is done.
import { leaflet as L } from "nicegui-leaflet";
import { NEGATIVE, at, boxRing, isInside, newKey, placeOf, ring, send } from "sparseshot-studio/geometry.js";

export const reviewing = {
  // Suggested regions that are not done; null while they are looked for.
  async openRegions() {
    const answer = await fetch("/suggestions").then((r) => r.json()).catch(() => null);
    if (!answer) return { says: "The studio does not answer." };
    if (answer.run === null) return { says: "When all cells of the slide are found, the studio suggests where to look." };
    if (!answer.ready) return { waits: true, says: "Looking for regions that are worth your time …" };
    if (answer.problem) return { says: `There are no suggestions: ${answer.problem}` };
    const open = answer.regions.map((each, i) => ({ ...each, run: answer.run, number: i + 1, of: answer.regions.length })).filter((each) => !each.done);
    return { open, says: open.length ? "" : "All suggested regions are done. Train again for new ones." };
  },
  async next() {
    const { open, waits, says } = await this.openRegions();
    clearTimeout(this.waiting);
    if (waits) this.waiting = setTimeout(() => this.next(), 1500);
    if (!open?.length) return this.tell(says);
    // Which were seen, in their order, outlives the way to another slide.
    const name = (each) => `${each.run}.${each.number}`, own = this.region && `${this.region.run}.${this.region.number}`;
    const seen = this.seenRegions(), order = (each) => seen.findIndex((other) => name(other) === name(each));
    const rest = open.filter((each) => name(each) !== own).sort((a, b) => order(a) - order(b));
    if (!rest.length) return this.tell("This is the only region that is left.");
    this.goTo(rest[0], [...seen.filter((other) => name(other) !== name(rest[0])), rest[0]]);
  },
  seenRegions() { return JSON.parse(sessionStorage.getItem(`studio-seen-${this.slide.project}`) || "[]"); },
  // The region before this one, also if it is done.
  previous() {
    const seen = this.seenRegions(), own = seen.findIndex((each) => this.region && each.run === this.region.run && each.number === this.region.number);
    const before = seen[(own < 0 ? seen.length : own) - 1];
    if (!before) return this.tell("There is no region before this one.");
    this.goTo(before, seen);
  },
  goTo(region, seen) {
    sessionStorage.setItem(`studio-seen-${this.slide.project}`, JSON.stringify(seen));
    if (region.slide === this.slide.id) return this.enter(region, region.result);
    sessionStorage.setItem("studio-review", JSON.stringify(region));
    const [x, y] = [0, 1].map((k) => Math.round((region.box[k] + region.box[k + 2]) / 2));
    window.location.href = `/?slide=${region.slide}#${region.slide},${x},${y},0`;
  },
  enter(region, result) {
    this.region = { ...region, result, ring: boxRing(region.box) };
    this.$emit("reviewing", { result });
    this.choose("mark");
    this.shade?.remove();
    const world = boxRing([-1e6, -1e6, 1e7, 1e7]);
    this.shade = L.layerGroup([
      L.polygon([ring(world), ring(this.region.ring)], { stroke: false, fillColor: "#000", fillOpacity: 0.4, interactive: false }),
      L.polygon(ring(this.region.ring), { color: "#ffffff", weight: 5, fill: false, interactive: false }),
      L.polygon(ring(this.region.ring), { color: "#00695c", weight: 2.5, fill: false, interactive: false }),
    ]).addTo(this.map);
    const [x0, y0, x1, y1] = region.box;
    this.map.options.zoomSnap = 0;  // fill the view
    this.map.fitBounds(L.latLngBounds(at(x0, y1), at(x1, y0)), { paddingTopLeft: [70, 56], paddingBottomRight: [20, 132], maxZoom: 2 });
    this.map.options.zoomSnap = 1;
    if (this.cells) this.drawCells();
  },
  leave() {
    this.shade?.remove();
    this.shade = this.region = null;
    this.$emit("reviewing", { result: "" });
    if (this.cells) this.drawCells();
  },
  // A click on a found cell removes it, another one brings it back; elsewhere it is a mark as always.
  reviewClick(point) {
    if (!isInside(point, this.region.ring)) { this.tell("This lies outside of the region. Esc leaves it."); return true; }
    const cell = this.cellAt(point);
    if (!cell) return false;
    const no = this.negativeNear(...cell);
    if (no) this.change({ remove: [no.id] });
    else this.change({ add: [{ class: NEGATIVE, at: cell }] });
    return true;
  },
  async done() {
    if (!this.region || this.finishing) return;
    const { ring: region, result } = this.region;
    if (this.result !== result || this.isDerived()) return this.warn("Another run suggested this region. Show its cells, by class, or leave the region.");
    this.finishing = true;
    await this.flush();
    if (this.queue.length) { this.finishing = false; return this.warn("Some marks are not saved yet. Try again when the studio answers."); }
    const body = { key: newKey(), result, region, threshold: this.threshold, by: this.reviewer };
    const said = await send(`/slides/${this.slide.id}/review`, body);
    this.finishing = false;
    if (said.error) return this.warn(`Not saved: ${said.error}`);
    this.leave();
    const { open } = await this.openRegions(), left = open?.length;
    this.tell(`Region done: ${said.accepted} accepted, ${said.rejected} rejected. ${left ? `N goes to the next, ${left} left.` : "It was the last one."}`);
    this.refresh();
  },
  tally() {
    if (!this.region) return;
    const inside = (x, y) => isInside([x, y], this.region.ring), level = this.level();
    const found = (this.cells?.cells || []).filter(([x, y, , score]) => score >= level && inside(x, y));
    const removed = found.filter(([x, y]) => this.denied(x, y)).length;
    const added = [...this.marks.values()].filter((item) => item.class && item.class !== NEGATIVE && !item.score && inside(...placeOf(item))).length;
    this.progress = { found: found.length, removed, added };
  },
};
