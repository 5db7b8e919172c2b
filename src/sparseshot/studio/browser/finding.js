// Found cells: tiles drawn by the server, shapes where few are in view, heat maps, counts.
import { leaflet as L } from "nicegui-leaflet";
import { CELL_UM, SAME_UM, at, isInside, ring, tiles, NEGATIVE } from "sparseshot-studio/geometry.js";

const VECTORS_FROM_ZOOM = -2;

export const finding = {
  // Two results compared, or what the loss has left out.
  isDerived() { return Boolean(this.against) || ["excluded", "likely"].includes(this.paint); },
  level() { return this.against ? 0 : this.threshold; },
  found(path, query, paint = this.paint) {
    const values = { ...query, paint, v: this.painted || this.version, ...(this.against ? { against: this.against } : {}) };
    return `/slides/${this.slide.id}/found/${this.result}/${path}?${new URLSearchParams(values)}`;
  },
  showResult() {
    this.overlay?.remove();
    this.heatMap?.remove();
    this.overlay = this.heatMap = null;
    if (this.result && this.version) {
      const { size, levels } = this.slide;
      const layer = (paint, zIndex) => tiles(
        (z, x, y) => this.found(`${z}/${x}/${y}.png`, { threshold: this.level() }, paint()), size, levels, { zIndex });
      if (this.heat) this.heatMap = layer(() => this.heat, 2).addTo(this.map);
      this.overlay = layer(() => this.paint, 3).addTo(this.map);
    }
    this.restyle();
    this.look();
  },
  refilter() {
    if (this.cells) this.drawCells();
    clearTimeout(this.filtering);
    this.filtering = setTimeout(() => { this.overlay?.redraw(); this.heatMap?.redraw(); this.look(); }, 80);
  },
  restyle() {
    this.base?.setOpacity(this.showSlide ? this.slideStrength : 0);
    const strength = this.heat ? Math.min(0.35, this.strength) : this.strength;  // the heat map shows through
    this.overlay?.setOpacity(this.showFound && !this.isVector ? strength : 0);
    this.heatMap?.setOpacity(this.heatStrength);
    this.vectors.eachLayer((shape) => shape.setStyle({ opacity: strength }));
  },
  async look() {
    if (!this.result || !this.version) return this.vectors.clearLayers();
    const close = this.map.getZoom() >= VECTORS_FROM_ZOOM && this.paint !== "score" && this.showFound;
    // All of them, whatever their score: the slider then filters without asking again.
    const query = (threshold, vectors) => this.found("cells", { area: this.area(), threshold, vectors });
    const asked = this.asked = query(this.level(), false);
    const fetched = (url) => fetch(url).then((r) => r.json()).catch(() => null);
    const [counted, shapes] = await Promise.all([fetched(asked), close ? fetched(query(0, true)) : null]);
    if (!counted || this.asked !== asked) return;
    if (counted.error) return this.warn(counted.error);
    this.$emit("counted", counted);
    if (this.painted !== counted.version) {  // a click has taught other kinds
      this.painted = counted.version;
      this.overlay?.redraw();
    }
    this.cells = shapes?.cells ? shapes : null;
    this.inSlide = counted.in_slide;
    this.legendColors = Object.fromEntries(counted.classes.map((name, i) => [name, counted.colors[i]]));
    this.drawCells();
  },
  drawCells() {
    this.vectors.clearLayers();
    this.isVector = Boolean(this.cells);
    const { cells, outlines, colors, classes } = this.cells || { cells: [] }, level = this.level(), um = CELL_UM / this.slide.mpp;
    const weight = this.map.getZoom() >= 1 ? 2.5 : 1.75;
    cells.forEach(([x, y, label, score], i) => {
      if (score < level || (this.region && !isInside([x, y], this.region.ring))) return;
      const denied = this.denied(x, y);
      const style = denied
        ? { color: "#666666", weight: 1.5, fillOpacity: 0, opacity: this.strength, dashArray: "3 3" }
        : { color: colors[label], weight, fillOpacity: 0, opacity: this.strength };
      const shape = outlines[i] ? L.polygon(ring(outlines[i]), style) : L.circle(at(x, y), { ...style, radius: um });
      const says = document.createElement("span");
      says.textContent = denied ? "rejected" : `${classes[label]}, ${Math.round(100 * score)} %`;
      this.vectors.addLayer(shape.bindTooltip(says, { direction: "top", opacity: 0.9 }));
    });
    this.restyle();
    this.tally();
  },
  // Whether a person has said that there is no cell.
  denied(x, y) { return this.negativeNear(x, y) !== null; },
  negativeNear(x, y) { return this.nearest([x, y], this.negatives, SAME_UM / this.slide.mpp); },
  gatherNegatives() { this.negatives = [...this.marks.values()].filter((item) => item.class === NEGATIVE); },
  // The place of the found cell under the pointer.
  cellAt(point) {
    const level = this.level(), cells = (this.cells?.cells || []).filter(([, , , score]) => score >= level);
    return this.nearest(point, cells.map(([x, y]) => ({ at: [x, y] })), CELL_UM / this.slide.mpp)?.at;
  },
};
