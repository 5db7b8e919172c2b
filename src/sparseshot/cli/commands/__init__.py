"""The commands. Importing this package imports its modules, each of which adds its commands to the app."""

from importlib import import_module
from pkgutil import iter_modules

_FIRST = ("demo", "studio", "train", "predict", "evaluate", "cells", "slide", "data")
"""The order of the help; other modules follow by name."""

_names = sorted(module.name for module in iter_modules(__path__))
for _name in sorted(_names, key=lambda name: _FIRST.index(name) if name in _FIRST else len(_FIRST)):
    import_module(f"{__name__}.{_name}")
