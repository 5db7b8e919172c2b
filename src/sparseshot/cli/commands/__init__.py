"""The commands. Each module adds its commands to the app when it is imported."""

from importlib import import_module
from pkgutil import iter_modules

_FIRST = ("demo", "studio", "train", "predict", "classify", "evaluate", "files", "data")
"""The order of the help; other modules follow by name."""


def load() -> None:
    """Import all modules."""
    others = sorted({module.name for module in iter_modules(__path__)} - set(_FIRST))
    for name in [*_FIRST, *others]:
        import_module(f"{__name__}.{name}")
