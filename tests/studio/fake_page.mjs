// The map of the page without a browser: its own methods, over a Leaflet that draws nothing.
import component from "sparseshot-studio/slide_map.js";
import { anything } from "nicegui-leaflet";

class Storage {
  items = new Map();
  getItem(name) { return this.items.get(name) ?? null; }
  setItem(name, text) { this.items.set(name, text); }
  removeItem(name) { this.items.delete(name); }
}

for (const name of ["sessionStorage", "localStorage"]) Object.defineProperty(globalThis, name, { value: new Storage() });
globalThis.location = { hash: "", href: "" };
globalThis.window = { location };

// Answer requests by a function of the address and the body: [status, answer].
export function serve(answer) {
  globalThis.fetch = async (url, { body } = {}) => {
    const [status, said] = answer(url, body && JSON.parse(body));
    return { ok: status < 400, status, json: async () => said };
  };
}

// A page that has loaded a slide of 10,000 pixels a side.
export function page({ slide = "1", mpp = 0.5, zoom = 0, queue = [] } = {}) {
  const map = new Proxy({ options: {}, getZoom: () => zoom }, { get: (own, name) => own[name] ?? anything });
  const about = { id: slide, size: [10000, 10000], levels: 3, mpp, project: "p" };
  return {
    ...component.methods, area: () => [0, 0, 100, 100], result: "", against: "", paint: "class", version: "", threshold: 0.5, showMarks: true, showFound: true, events: [],
    slide: about, map, dots: anything, vectors: anything, tool: "mark", chosen: "cell", draws: false,
    marksVersion: "", classes: {}, counts: {}, region: null, failure: "", message: "", reviewer: "",
    marks: new Map(), shown: new Map(), negatives: [], cells: null, queue,
    $emit(name, value) { this.events.push([name, value]); },
  };
}

// What the page has marked: class and place.
export const marked = (page) => [...page.marks.values()].map((item) => `${item.class} ${item.at}`).sort();
