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

// Quarter turns of the view, clockwise; the same for all of the page.
export const view = { turn: 0 };
const TURNED = [(x, y) => [x, y], (x, y) => [y, -x], (x, y) => [-x, -y], (x, y) => [-y, x]];
export const turnedCrs = () => L.extend({}, L.CRS.Simple, { projection: {
  project({ lng, lat }) { return L.point(...TURNED[view.turn](lng, lat)); },
  unproject({ x, y }) { const [lng, lat] = TURNED[(4 - view.turn) % 4](x, y); return L.latLng(lat, lng); },
} });
// The column and row of a tile of the slide, of those in the turned view.
const UNTURNED = [(x, y) => [x, y], (x, y) => [y, -x - 1], (x, y) => [-x - 1, -y - 1], (x, y) => [-y - 1, x]];

export function tiles(url, size, levels, options) {
  const layer = L.tileLayer("", {
    tileSize: 256, noWrap: true, minNativeZoom: -levels, maxNativeZoom: 0, minZoom: -levels - 2, maxZoom: 6,
    bounds: [[-size[1] + 0.5, 0.5], [-0.5, size[0] - 0.5]], keepBuffer: 3, updateWhenZooming: false, ...options,
  });
  layer.getTileUrl = (c) => url(-c.z, ...UNTURNED[view.turn](c.x, c.y));
  layer.createTile = (c, done) => {
    const image = L.TileLayer.prototype.createTile.call(layer, c, done);
    if (!view.turn) return image;
    const frame = document.createElement("div");
    image.style.cssText = `width: 100%; height: 100%; transform: rotate(${90 * view.turn}deg)`;
    frame.appendChild(image);
    return frame;
  };
  // Leaflet's redraw() does not round the zoom, and would ask for tiles of a level that does not exist.
  layer._clampZoom = (zoom) => L.TileLayer.prototype._clampZoom.call(layer, Math.round(zoom));
  return layer;
}

// The outline of what a brush has covered, joined to an area or taken away from it; null if nothing is left.
export function brushed(path, radius, area, takesAway) {
  const all = [...path.flatMap(([x, y]) => [[x - radius, y - radius], [x + radius, y + radius]]), ...(area || [])];
  const [x0, y0, x1, y1] = [0, 1].map((k) => Math.min(...all.map((p) => p[k]))).concat([0, 1].map((k) => Math.max(...all.map((p) => p[k]))));
  const scale = Math.min(8, 900 / Math.max(x1 - x0, y1 - y0)), width = Math.ceil((x1 - x0) * scale) + 4, height = Math.ceil((y1 - y0) * scale) + 4;
  const canvas = Object.assign(document.createElement("canvas"), { width, height }), c = canvas.getContext("2d", { willReadFrequently: true });
  const line = (points) => { c.beginPath(); points.forEach(([x, y]) => c.lineTo((x - x0) * scale + 2, (y - y0) * scale + 2)); };
  if (area) { line(area); c.fill(); }
  c.globalCompositeOperation = takesAway ? "destination-out" : "source-over";
  Object.assign(c, { lineWidth: 2 * radius * scale, lineCap: "round", lineJoin: "round" });
  line(path.length > 1 ? path : [path[0], path[0]]);
  c.stroke();
  const pixels = c.getImageData(0, 0, width, height).data;
  const ring = largestOutline((x, y) => x >= 0 && y >= 0 && x < width && y < height && pixels[4 * (y * width + x) + 3] > 127, width, height);
  const corners = ring && L.LineUtil.simplify(ring.map(([x, y]) => L.point(x, y)), 2);
  return corners?.length > 3 ? corners.map(({ x, y }) => [(x - 2) / scale + x0, (y - 2) / scale + y0].map((v) => Math.round(10 * v) / 10)) : null;
}

// Follow the edges of a mask, inside on the right, and return the largest ring.
export function largestOutline(isSet, width, height) {
  const steps = [[1, 0], [0, 1], [-1, 0], [0, -1]], seen = new Set();
  let best = null, most = 0;
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      if (!isSet(x, y) || isSet(x, y - 1) || seen.has(y * width + x)) continue;
      const ring = [];
      let [i, j] = [x, y], heading = 0, twice = 0;
      do {
        if (heading === 0) seen.add(j * width + i);
        ring.push([i, j]);
        const [dx, dy] = steps[heading];
        twice += i * dy - j * dx;
        i += dx; j += dy;
        const at = (side) => { const [rx, ry] = steps[(heading + 1) % 4]; return isSet(i + (dx + side * rx - 1) / 2, j + (dy + side * ry - 1) / 2); };
        if (!at(1)) heading = (heading + 1) % 4;
        else if (at(-1)) heading = (heading + 3) % 4;
      } while (i !== x || j !== y || heading !== 0);
      if (Math.abs(twice) > most) { most = Math.abs(twice); best = ring; }
    }
  }
  return best;
}

export async function send(path, body) {
  const answer = await fetch(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) }).catch(() => null);
  if (!answer) return { error: "the studio does not answer" };
  const said = await answer.json().catch(() => ({}));
  return answer.ok ? said : { error: said.error || "the studio refused it" };
}
