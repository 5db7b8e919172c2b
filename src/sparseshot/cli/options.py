"""Options that several commands have, so that they are called, explained and checked alike."""

from pathlib import Path
from typing import Annotated, Literal

import typer

Json = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]
Mpp = Annotated[float | None, typer.Option(help="µm per pixel, where the file does not tell.")]
Dataset = Annotated[str | None, typer.Option(help="A benchmark set of `sparseshot data list`.")]
ExhaustiveClass = Annotated[
    str, typer.Option(help="Annotations of this class are regions in which every cell is marked.")
]
Seed = Annotated[int, typer.Option(help="Of everything random.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1 or mps.")]
Precision = Annotated[
    Literal["auto", "32", "bf16"], typer.Option(help="bf16 is faster where the hardware has it.")
]

_root = typer.Option(help="Folder of the data set, or the folder around it.")
Root = Annotated[Path, _root]
OptionalRoot = Annotated[Path | None, _root]

TRAINING = "From marks to cells"
FILES = "Look at files"
RESEARCH = "Data sets and experiments"
"""Headings of the help, over the commands that belong together."""
