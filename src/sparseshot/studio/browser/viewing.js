// Looking around: magnifications, turning, where the pointer is, and a picture of the view.
import { leaflet as L } from "nicegui-leaflet";
import { at, view } from "sparseshot-studio/geometry.js";

export const MAGNIFICATIONS = [5, 10, 20, 40];

export const viewing = {
  wholeSlide() { this.map.fitBounds(L.latLngBounds(at(0, this.slide.size[1]), at(this.slide.size[0], 0))); },
  // 40× is 0.25 µm for a pixel of the screen.
  magnify(times) {
    this.map.options.zoomSnap = 0;
    this.map.setView(this.map.getCenter(), Math.log2((this.slide.mpp * times) / 10), { animate: false });
    this.map.options.zoomSnap = 1;
  },
  magnification() { return 10 / (this.slide.mpp / 2 ** this.map.getZoom()); },
  turn() {
    const [center, zoom] = [this.map.getCenter(), this.map.getZoom()];
    view.turn = (view.turn + 1) % 4;
    this.map.setView(center, zoom, { reset: true, animate: false });
    this.moved();
  },
  pointAt(latlng) {
    this.showBrush(latlng);
    const [x, y] = this.point(latlng), { mpp } = this.slide, n = (v) => Math.round(v).toLocaleString("en");
    if (this.$refs.place) this.$refs.place.textContent = this.inside([x, y]) ? `x ${n(x)}, y ${n(y)} px · ${(x * mpp / 1000).toFixed(3)}, ${(y * mpp / 1000).toFixed(3)} mm` : "";
  },
  // While space is held, dragging moves the slide, whatever the tool is.
  pan(isHeld) {
    if (this.panning === isHeld) return;
    this.panning = isHeld;
    this.map.dragging[isHeld || !(this.draws || this.tool === "ruler") ? "enable" : "disable"]();
    this.$refs.map.style.setProperty("cursor", isHeld ? "grab" : "", "important");
  },
  // What is in view with its scale, as a PNG.
  async screenshot() {
    const frame = this.$refs.map.getBoundingClientRect(), ratio = window.devicePixelRatio || 1;
    const canvas = Object.assign(document.createElement("canvas"), { width: frame.width * ratio, height: frame.height * ratio }), c = canvas.getContext("2d");
    c.scale(ratio, ratio);
    Object.assign(c, { fillStyle: "#ffffff", font: "13px sans-serif", textBaseline: "bottom" });
    c.fillRect(0, 0, frame.width, frame.height);
    const place = (element) => { const box = element.getBoundingClientRect(); return [box.left - frame.left, box.top - frame.top, box.width, box.height]; };
    const layers = [...this.$refs.map.querySelectorAll(".leaflet-tile-pane > .leaflet-layer")].sort((a, b) => a.style.zIndex - b.style.zIndex);
    for (const layer of layers) {
      c.globalAlpha = Number(layer.style.opacity || 1);
      for (const image of layer.querySelectorAll("img")) {
        const [x, y, width, height] = place(image);
        if (!image.complete || !image.naturalWidth) continue;
        c.save();
        c.translate(x + width / 2, y + height / 2);
        c.rotate((view.turn * Math.PI) / 2);
        c.drawImage(image, -width / 2, -height / 2, width, height);
        c.restore();
      }
    }
    c.globalAlpha = 1;
    for (const drawn of this.$refs.map.querySelectorAll(".leaflet-overlay-pane canvas")) c.drawImage(drawn, ...place(drawn));
    const { px, text } = this.scale, [x, y] = [frame.width - 24 - px, frame.height - 24];
    c.fillStyle = "#ffffffe0";
    c.fillRect(x - 12, y - 30, px + 24, 42);
    c.fillStyle = "#111111";
    c.fillRect(x, y, px, 3);
    c.textAlign = "center";
    c.fillText(text, x + px / 2, y - 4);
    const content = await new Promise((done) => canvas.toBlob(done));
    this.give(content, `${this.slide.name.replace(/\.[^.]*$/, "")}-view.png`);
  },
};
