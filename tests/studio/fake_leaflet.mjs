// A Leaflet that draws nothing: every property and result is the same thing, which nobody can wait for.
export const anything = new Proxy(function () {}, {
  get: (_, name) => (name === "then" ? undefined : anything), apply: () => anything, construct: () => anything,
});
export const leaflet = new Proxy({ latLng: (lat, lng) => ({ lat, lng }) }, { get: (own, name) => own[name] ?? anything });
