"""The commands. Each module adds its commands to the app when it is imported."""

from importlib import import_module
from pkgutil import iter_modules

_FIRST = ("demo", "studio", "train", "predict", "classify", "evaluate", "files", "data")
"""The order of the help; other modules follow by name."""


def load(command: str = "") -> None:
    """Import the module that is called as a command, or all of them if there is none."""
    names = sorted(module.name for module in iter_modules(__path__))
    names.sort(key=lambda name: _FIRST.index(name) if name in _FIRST else len(_FIRST))
    for name in [command] if command in names else names:
        import_module(f"{__name__}.{name}")
