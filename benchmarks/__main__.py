"""``python -m benchmarks [NAME …]``: run the tables of the named modules, or of all."""

import sys
from importlib import import_module
from pkgutil import iter_modules

import benchmarks

HELPERS = {"__main__", "fuzz", "studio_page", "studio_slide", "timing"}
LONG = {
    "engines",
    "other_networks",
    "peers",
    "quality",
    "scale",
    "studio_kills",
    "studio_truth",
}  # only when named

names = sys.argv[1:] or sorted({m.name for m in iter_modules(benchmarks.__path__)} - HELPERS - LONG)
for name in names:
    print(f"\n## {name}\n", flush=True)
    import_module(f"benchmarks.{name}").main()
