"""Options that several commands share, so that each has one name, one help text and one check."""

import sys
from pathlib import Path
from typing import Annotated, Literal

from typer import Argument, Option

from sparseshot.errors import DataNotFoundError

Mpp = Annotated[float | None, Option(min=0.01, max=100, help="µm per pixel, for files that do not say.")]
ForceMpp = Annotated[
    bool, Option("--force-mpp", help="Use --mpp also for files that state another pixel size.")
]
Everywhere = Annotated[
    bool, Option("--everywhere", help="Take glass for tissue, where tissue is not recognised.")
]
Dataset = Annotated[str | None, Option(help="Benchmark data set, as in `sparseshot data list`.")]
Device = Annotated[str, Option(help="auto, cpu, cuda, cuda:1 or mps.")]

Network = Annotated[
    str | None,
    Option(help="Network of your own, as module:function; modules of this folder are found."),
]

Cluster = Annotated[
    str | None,
    Option(help="Run on a Ray cluster: auto for the one of this machine, or HOST:PORT of its head."),
]

Model = Annotated[
    Path, Argument(help="Folder of a finished training run, its model.pt, or starter (starter-outlines).")
]
SlideFiles = Annotated[list[Path], Argument(help="Slides or images, or folders of them.")]
Threshold = Annotated[
    float | None, Option(help="Lowest probability of a cell; default: calibrated in training.")
]

_root = Option(help="Folder of the data set, or its parent folder.")
Root = Annotated[Path, _root]
OptionalRoot = Annotated[Path | None, _root]

# torch and NumPy take 64-bit seeds; training puts the step into the lower half.
_seed = Option(min=0, max=2**31 - 1, help="Random seed.", show_default="0")
Seed = Annotated[int, _seed]
OptionalSeed = Annotated[int | None, _seed]

_precision = Option(
    help="bf16 is faster where the hardware supports it.",
    show_default="auto",
)
PredictionPrecision = Annotated[Literal["auto", "32", "bf16"], _precision]
OptionalPrecision = Annotated[Literal["auto", "32", "bf16"] | None, _precision]

Engine = Annotated[
    Literal["auto", "eager", "openvino"],
    Option(help="What runs the network; auto: OpenVINO for slides on a CPU, if it is installed."),
]

Slides = Annotated[
    list[Path] | None,
    Option("--slide", "--images", help="Slide or image, or a folder of them; repeatable."),
]
Marks = Annotated[
    list[Path] | None,
    Option(help="Marks of each --slide, or a folder of files with the same names; repeatable."),
]
RadiusUm = Annotated[
    float | None,
    Option(min=0.1, max=100, help="Keep one detection within this distance; default: by the marks."),
]
KeepLarge = Annotated[
    bool, Option("--keep-large", help="Keep outlines above 2,000 µm², which are taken for regions.")
]
ExhaustiveClass = Annotated[
    str, Option(help="Class of the annotations that outline exhaustively marked regions.")
]

TRAINING = "From marks to cells"
FILES = "Inspect files"
RESEARCH = "Data sets and experiments"
"""Headings of the help, over the commands that belong together."""


STARTERS = ("starter", "starter-outlines")
"""Models that come with the package, by name; here, so that no command loads PyTorch to know them."""


def is_starter(model: Path) -> bool:
    """Return whether a path is the name of a starter, and not that of a file or folder."""
    return str(model) in STARTERS and not model.exists()


def find_own_modules(*names: str | None) -> None:
    """Let modules in the current folder be imported, after all others, if the user named one of their own."""
    here = str(Path.cwd())
    if any(":" in name for name in names if name) and here not in sys.path:
        sys.path.append(here)


def check_paths(*paths: Path | None) -> None:
    """Raise DataNotFoundError for the first path that does not exist, before anything heavy is loaded.

    A starter need not be there as a file.
    """
    for path in paths:
        if path is not None and not path.exists() and not is_starter(path):
            raise DataNotFoundError(path, "no such file or folder")
