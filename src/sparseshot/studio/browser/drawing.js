// What is drawn with the mouse: boxes, lassos, polygons, brush strokes; marks that are moved; the ruler.
import { leaflet as L } from "nicegui-leaflet";
import { NEGATIVE, at, boxRing, brushed, isInside, placeOf, ring, thinned } from "sparseshot-studio/geometry.js";

const MOVE_PX = 5, NEAR_PX = 10, GRAB_PX = 9;
const KIND = { outline: "outline", region: "region", count: "count" };  // of the items that a brush extends
export const SHAPES = [["box", "crop_square", "Box: drag"], ["lasso", "gesture", "Lasso: drag around"], ["polygon", "polyline", "Polygon: click its corners, Enter ends it"], ["brush", "brush", "Brush: paint; Alt takes away; [ and ] change its size"]];

export const drawing = {
  // An outline of a cell is no box.
  shapeNow() { return this.tool === "outline" && this.drawsBy === "box" ? "lasso" : this.drawsBy; },
  nextShape() {
    const names = SHAPES.map(([name]) => name).filter((name) => name !== "box" || this.tool !== "outline");
    this.drawsBy = names[(names.indexOf(this.shapeNow()) + 1) % names.length];
    this.forgetPath();
  },
  colorOfTool() { return { outline: this.classes[this.chosen], reject: "#b3261e", count: "#7b1fa2", ruler: "#111111" }[this.tool] || "#1f5fa8"; },
  // Leaflet takes a place on a small circle for its middle.
  exact(e) { return { originalEvent: e.originalEvent, containerPoint: this.map.mouseEventToContainerPoint(e.originalEvent), latlng: this.map.mouseEventToLatLng(e.originalEvent) }; },
  press(event) {
    const e = this.exact(event);
    if (this.panning || e.originalEvent.button) return;
    this.hasMoved = false;
    if (this.tool === "ruler") {
      this.forgetRuler();
      this.path = [e.latlng];
      this.ruler = L.polyline([e.latlng, e.latlng], { color: "#111111", weight: 3, interactive: false }).addTo(this.map);
      this.ruler.bindTooltip("", { permanent: true, direction: "top", className: "studio-ruler" });
      return;
    }
    if (!this.draws) {
      const marks = [...this.shown.values()].map(([item]) => item).filter((item) => item.at && !item.waits);
      const item = ["mark", "negative"].includes(this.tool) && !e.originalEvent.shiftKey && this.nearest(this.point(e.latlng), marks, GRAB_PX / 2 ** this.map.getZoom());
      if (item) { this.moving = { item, from: e.containerPoint }; this.map.dragging.disable(); }
      return;
    }
    const color = this.colorOfTool(), shape = this.shapeNow();
    if (shape === "polygon") return;
    this.path = [e.latlng];
    this.takesAway = e.originalEvent.altKey;
    if (shape === "box") this.ghost = L.rectangle([e.latlng, e.latlng], { color, weight: 2 });
    else if (shape === "brush") this.ghost = L.polyline([e.latlng, e.latlng], { color: this.takesAway ? "#ffffff" : color, weight: 2 * this.brush, opacity: 0.4, interactive: false });
    else this.ghost = L.polygon([e.latlng], { color, weight: 2, fillOpacity: 0.1 });
    this.ghost.addTo(this.map);
  },
  drag(event) {
    const e = this.exact(event);
    this.pointAt(e.latlng);
    if (this.moving) {
      if (!this.moving.ghost && e.containerPoint.distanceTo(this.moving.from) < MOVE_PX) return;
      this.moving.ghost ??= L.circleMarker(e.latlng, { radius: 7, color: "#1a1a1a", weight: 2, fillColor: this.classes[this.moving.item.class] || "#b3261e", fillOpacity: 0.8, interactive: false }).addTo(this.map);
      this.moving.ghost.setLatLng(e.latlng);
      return;
    }
    if (this.corners) this.ghost.setLatLngs([...this.corners, e.latlng]);
    if (!this.path) return;
    this.path.push(e.latlng);
    if (this.ruler && this.tool === "ruler") this.measureTo(e.latlng);
    else if (this.shapeNow() === "box") this.ghost.setBounds(L.latLngBounds(this.path[0], e.latlng));
    else this.ghost.setLatLngs(this.path);
  },
  release(event) {
    if (event && (this.moving || this.path)) this.drag(event);  // a busy browser may not have told the last move
    const e = event && this.exact(event);
    if (this.moving) {
      const { item, ghost } = this.moving;
      this.moving = null;
      this.map.dragging.enable();
      ghost?.remove();
      const { id, ...same } = item;
      if (ghost && e) { this.hasMoved = true; this.change({ remove: [id], add: [{ class: same.class, at: this.within(e.latlng) }] }); }
      return;
    }
    if (!this.path) return;
    const points = this.path.map((p) => this.within(p)), shape = this.shapeNow();
    if (this.tool === "ruler") { this.path = null; return; }
    this.forgetPath();
    if (shape === "brush") return this.strokeEnded(points);
    this.closed(shape === "box" ? boxRing([...points[0], ...points.at(-1)]) : points);
  },
  // Corners of a polygon, one click each.
  corner(latlng) {
    if (this.shapeNow() !== "polygon" || this.panning) return;
    const px = (p) => this.map.latLngToContainerPoint(p);
    if (this.corners?.length > 2 && px(this.corners[0]).distanceTo(px(latlng)) < NEAR_PX) return this.closePolygon();
    if (this.corners && px(this.corners.at(-1)).distanceTo(px(latlng)) < 3) return;  // a double click
    this.ghost ??= L.polygon([latlng], { color: this.colorOfTool(), weight: 2, fillOpacity: 0.1, interactive: false }).addTo(this.map);
    this.corners = [...(this.corners || []), latlng];
    this.ghost.setLatLngs(this.corners);
  },
  closePolygon() {
    const corners = this.corners.map((p) => this.within(p));
    this.forgetPath();
    this.closed(corners);
  },
  forgetPath() {
    this.ghost?.remove();
    this.ghost = this.path = this.corners = null;
  },
  closed(area) {
    const sides = [0, 1].map((k) => Math.max(...area.map((p) => p[k])) - Math.min(...area.map((p) => p[k])));
    if (Math.min(...sides) < 4 || area.length < 3) return;
    if (this.tool === "outline") this.change({ add: [{ class: this.chosen, outline: thinned(area, 60) }] });
    else this.enclose(thinned(area, 200));
  },
  // A stroke that begins on an area of its kind extends it; with Alt it takes away from it.
  strokeEnded(points) {
    const kind = KIND[this.tool], own = [...this.marks.values()].filter((item) => item[kind] && !item.note);
    const item = own.find((each) => points.some((p) => isInside(p, each[kind])));
    if (this.takesAway && !item) return;
    const area = brushed(points, this.brush / 2 ** this.map.getZoom(), item?.[kind], this.takesAway)?.map((p) => p.map((v, k) => Math.min(this.slide.size[k], Math.max(0, v))));
    if (!item) return area && this.closed(area);
    const { id, score, ...same } = item;
    this.change({ remove: [id], add: area ? [{ ...same, [kind]: thinned(area, kind === "outline" ? 120 : 400) }] : [] });
  },
  enclose(area) {
    if (this.tool === "count") {
      const names = new Set([...this.marks.values()].map((item) => item.name));
      let number = 1;
      while (names.has(`Region ${number}`)) number += 1;
      this.change({ add: [{ count: area, name: `Region ${number}` }] });
      return this.$emit("counting");
    }
    if (this.tool !== "region") return this.judge(area, this.tool === "accept");
    const make = () => this.change({ add: [{ region: area }] });
    const marked = [...this.marks.values()].some((item) => item.class && item.class !== NEGATIVE && isInside(placeOf(item), area));
    if (marked) make();
    else this.question = { text: "0 cells are marked here. Everything in this area would count as not a cell. Is there really none?", does: "Yes, none", yes: make };
  },
  // The same with the keyboard: a tool that draws takes the middle of the view.
  useInMiddle() {
    if (this.corners?.length > 2) return this.closePolygon();
    if (this.tool === "ruler") return;
    if (!this.draws) return this.click({ latlng: this.map.getCenter() });
    if (this.tool === "outline") return this.warn("Drag around a cell to outline it.");
    const { x, y } = this.map.getSize(), corner = (k) => this.within(this.map.containerPointToLatLng([x * k, y * k]));
    this.enclose(boxRing([...corner(0.25), ...corner(0.75)]));
  },
  measureTo(latlng) {
    const [a, b] = [this.path[0], latlng].map((p) => this.point(p)), um = Math.hypot(a[0] - b[0], a[1] - b[1]) * this.slide.mpp;
    this.ruler.setLatLngs([this.path[0], latlng]);
    this.ruler.setTooltipContent(um >= 1000 ? `${(um / 1000).toFixed(2)} mm` : `${um.toFixed(1)} µm`);
    this.ruler.openTooltip(latlng);
  },
  forgetRuler() { this.ruler?.remove(); this.ruler = null; },
  showBrush(latlng) {
    const isBrush = this.draws && this.shapeNow() === "brush";
    if (!isBrush) { this.brushRing?.remove(); this.brushRing = null; return; }
    this.brushRing ??= L.circleMarker(latlng, { color: "#111111", weight: 1.5, fill: false, interactive: false }).addTo(this.map);
    this.brushRing.setLatLng(latlng).setRadius(this.brush);
  },
};
