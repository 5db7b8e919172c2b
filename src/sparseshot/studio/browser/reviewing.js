// Suggested regions: go to the next, correct what was found there, and say that it is done.
import { leaflet as L } from "nicegui-leaflet";
import { NEGATIVE, at, boxRing, isInside, newKey, placeOf, ring, send } from "sparseshot-studio/geometry.js";

export const reviewing = {
  async next() {
    const answer = await fetch("/suggestions").then((r) => r.json()).catch(() => null);
    if (!answer) return this.warn("The studio does not answer.");
    if (answer.run === null) return this.tell("When all cells of the slide are found, the studio suggests where to look.");
    if (!answer.ready) {
      clearTimeout(this.waiting);
      this.waiting = setTimeout(() => this.next(), 1500);
      return this.tell("Looking for regions that are worth your time …");
    }
    if (answer.problem) return this.warn(`There are no suggestions: ${answer.problem}`);
    const open = answer.regions.map((each, i) => ({ ...each, number: i + 1, of: answer.regions.length })).filter((each) => !each.done);
    const store = `studio-skipped-${this.slide.project}`;  // outlives the way to another slide
    const skipped = new Set(JSON.parse(sessionStorage.getItem(store) || "[]"));
    const rest = open.filter((each) => !skipped.has(`${answer.run}.${each.number}`));
    const [region] = rest.length ? rest : open;
    if (!rest.length) skipped.clear();
    if (!region) return this.tell("All suggested regions are done. Train again for new ones.");
    sessionStorage.setItem(store, JSON.stringify([...skipped, `${answer.run}.${region.number}`]));
    const { result } = region;
    if (region.slide !== this.slide.id) {
      sessionStorage.setItem("studio-review", JSON.stringify({ ...region, result }));
      const [x, y] = [0, 1].map((k) => Math.round((region.box[k] + region.box[k + 2]) / 2));
      window.location.href = `/?slide=${region.slide}#${region.slide},${x},${y},0`;
      return;
    }
    this.enter(region, result);
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
    this.tell(`Region done: ${said.accepted} accepted, ${said.rejected} rejected. N goes to the next.`);
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
