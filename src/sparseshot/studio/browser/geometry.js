// Places are level-0 pixels; on the map y points up, so lat = -y.
import { leaflet as L } from "nicegui-leaflet";

export const NEGATIVE = "not a cell";
export const SAME_UM = 3, CELL_UM = 4;

export const at = (x, y) => L.latLng(-y, x);
export const ring = (points) => points.map(([x, y]) => at(x, y));
export const newKey = () => Array.from(crypto.getRandomValues(new Uint8Array(10)), (b) => b.toString(36).padStart(2, "0")).join("");
export const boxRing = ([x0, y0, x1, y1]) => [[x0, y0], [x1, y0], [x1, y1], [x0, y1]];

export function placeOf(item) {
  if (item.at) return item.at;
  const points = item.outline || item.region || item.count;
  return [0, 1].map((k) => points.reduce((sum, p) => sum + p[k], 0) / points.length);
}

export function isInside([x, y], points) {
  let inside = false;
  for (let i = 0, j = points.length - 1; i < points.length; j = i++) {
    const [a, b] = points[i], [c, d] = points[j];
    if (b > y !== d > y && x < ((c - a) * (y - b)) / (d - b) + a) inside = !inside;
  }
  return inside;
}

export const thinned = (points, most) => points.filter((_, i) => i % Math.ceil(points.length / most) === 0);

// A white-rimmed cross: "not a cell".
export const Cross = L.CircleMarker.extend({
  _updatePath() {
    const renderer = this._renderer;
    if (!renderer._drawing || this._empty()) return;
    const { x, y } = this._point, s = this._radius * 0.8, c = renderer._ctx;
    for (const [width, color] of [[5, "#ffffff"], [2.5, "#b3261e"]]) {
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

export function tiles(url, size, levels, options) {
  const layer = L.tileLayer("", {
    tileSize: 256, noWrap: true, minNativeZoom: -levels, maxNativeZoom: 0, minZoom: -levels - 2, maxZoom: 4,
    bounds: [[-size[1] + 0.5, 0.5], [-0.5, size[0] - 0.5]], keepBuffer: 3, updateWhenZooming: false, ...options,
  });
  layer.getTileUrl = (c) => url(-c.z, c.x, c.y);
  // Leaflet's redraw() does not round the zoom, and would ask for tiles of a level that does not exist.
  layer._clampZoom = (zoom) => L.TileLayer.prototype._clampZoom.call(layer, Math.round(zoom));
  return layer;
}

export async function send(path, body) {
  const answer = await fetch(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) }).catch(() => null);
  if (!answer) return { error: "the studio does not answer" };
  const said = await answer.json().catch(() => ({}));
  return answer.ok ? said : { error: said.error || "the studio refused it" };
}
