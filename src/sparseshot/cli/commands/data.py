"""``sparseshot data``: the benchmark sets, whether a folder holds one, and how to get one."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sparseshot.cli.app import app, resumable
from sparseshot.cli.options import RESEARCH, Json, Root
from sparseshot.cli.output import print_json, print_table, progress_bars

if TYPE_CHECKING:
    from rich.progress import ProgressColumn

    from sparseshot.datasets import DatasetInfo, Fetched
    from sparseshot.datasets.checking import Report

data = typer.Typer(no_args_is_help=True)
app.add_typer(data, name="data", rich_help_panel=RESEARCH)


@data.callback()
def _about() -> None:
    """List, check and fetch benchmark data sets.

    Example: `sparseshot data list`
    """


Name = Annotated[str, typer.Argument(help="Name of the data set, as `sparseshot data list` shows it.")]


@data.command("list")
def list_datasets(
    as_json: Json = False,
    as_markdown: Annotated[
        bool, typer.Option("--markdown", help="Print all of it as a Markdown table.")
    ] = False,
) -> None:
    """Show every data set that sparseshot reads.

    Example: `sparseshot data list`
    """
    from sparseshot.datasets.catalogue import CATALOGUE, catalogue_markdown

    if as_json:
        print_json([_as_json(info) for info in CATALOGUE.values()])
        return
    if as_markdown:
        typer.echo(catalogue_markdown())
        return
    from rich.table import Table

    table = Table(
        "name", "images", "cells", "classes", "µm/px", "licence", "get it", box=None, pad_edge=False
    )
    for info in CATALOGUE.values():
        published = info.published
        table.add_row(
            info.name,
            f"{published.images:,}",
            "" if published.cells is None else f"{published.cells:,}",
            str(len(info.classes)) if info.classes else "yours",
            "yours" if info.mpp is None else f"{info.mpp:g}",
            info.licence,
            "fetch" if info.archive else (info.page or "private"),
        )
    print_table(table)


@data.command("check")
def check_dataset(
    name: Name,
    root: Root,
    as_json: Json = False,
) -> None:
    """Hold a folder against the catalogue: files, counts, sizes, cells outside their image.

    Exit code 1 if anything is missing or wrong.

    Example: `sparseshot data check tnbc --root data/tnbc`
    """
    from sparseshot.datasets import check, dataset_info

    info = dataset_info(name)
    with _bar(f"checking {info.title}") as progress:
        report = check(info, root, progress=progress)
    if as_json:
        print_json(report.as_json())
    else:
        _show(report, info)
    if not report.ok:
        raise typer.Exit(1)


@data.command("fetch")
def fetch_dataset(
    name: Name,
    out: Annotated[Path, typer.Option(help="Folder to put it in; made if it is not there.")],
    address: Annotated[
        str | None, typer.Option(help="Another address of the same archive, e.g. a mirror of your own.")
    ] = None,
    keep_archive: Annotated[
        bool, typer.Option("--keep-archive", help="Keep the downloaded archive.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Download and unpack a data set, or tell where to get it.

    A transfer that broke off goes on where it stopped.

    Example: `sparseshot data fetch tnbc --out data/tnbc`
    """
    from sparseshot.datasets import dataset_info, fetch

    info = dataset_info(name)
    if images := _images_there(info, out):
        if as_json:
            print_json({"name": info.name, "folder": out, "images": images, "fetched": False})
            return
        typer.echo(f"{info.title} is in {out} already, {images} images; nothing to do.")
        typer.echo(f"Is it whole? sparseshot data check {info.name} --root {out}")
        return
    typer.echo(f"{info.title}: {info.licence}; cite {info.citation}", err=as_json)
    with resumable(), _bar(f"fetching {info.title}", in_bytes=True) as progress:
        fetched = fetch(info, out, address=address, keep_archive=keep_archive, progress=progress)
    if as_json:
        print_json(_fetched_as_json(info, fetched))
        return
    checked = "as published" if fetched.verified else "the publisher gives none to compare with"
    typer.echo(f"{fetched.images} images in {fetched.folder}, from {fetched.size_bytes:,} bytes")
    typer.echo(f"MD5 {fetched.checksums.md5} ({checked})")
    typer.echo(f"SHA-256 {fetched.checksums.sha256}")


def _fetched_as_json(info: "DatasetInfo", fetched: "Fetched") -> dict[str, object]:
    return {
        "name": info.name,
        "folder": fetched.folder,
        "images": fetched.images,
        "fetched": True,
        "bytes": fetched.size_bytes,
        "md5": fetched.checksums.md5,
        "sha256": fetched.checksums.sha256,
        "as_published": fetched.verified,
    }


def _images_there(info: "DatasetInfo", out: Path) -> int:
    from sparseshot.datasets.layout import find_layout
    from sparseshot.errors import DataNotFoundError

    try:
        return len(find_layout(info, out).entries)
    except DataNotFoundError:
        return 0


def _as_json(info: "DatasetInfo") -> dict[str, object]:
    return {
        "name": info.name,
        "title": info.title,
        "about": info.about,
        "images": info.published.images,
        "cells": info.published.cells,
        "classes": list(info.classes),
        "mpp": info.mpp,
        "mpp_note": info.mpp_note,
        "splits": info.splits.source,
        "licence": info.licence,
        "citation": info.citation,
        "page": info.page,
        "address": info.archive.address if info.archive else None,
        "note": info.note,
    }


def _show(report: "Report", info: "DatasetInfo") -> None:
    from rich.table import Table

    table = Table("part", "images", "expected", "cells", "expected", "", box=None, pad_edge=False)
    for part in report.parts:
        table.add_row(
            part.part,
            f"{part.images:,}",
            "" if part.images_expected is None else f"{part.images_expected:,}",
            f"{part.cells:,}",
            "not counted" if part.cells_expected is None else f"{part.cells_expected:,}",
            part.state,
        )
    typer.echo(f"{info.title} in {report.folder}")
    print_table(table)
    used = ", ".join(f"{split} {count:,}" for split, count in report.used.items())
    typer.echo(f"used as: {used} ({info.splits.source})")
    for problem in report.problems:
        typer.echo(f"wrong: {problem}")
    for line in report.mended:
        typer.echo(f"mended: {line}")


@contextmanager
def _bar(title: str, *, in_bytes: bool = False) -> Iterator[Callable[[int, int | None], None]]:
    """Show a progress bar on a terminal, and nothing elsewhere."""
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    counts: tuple[ProgressColumn, ...]
    counts = (DownloadColumn(), TransferSpeedColumn()) if in_bytes else (MofNCompleteColumn(),)
    columns = (TextColumn("{task.description}"), BarColumn(), *counts, TimeRemainingColumn())
    with progress_bars(*columns) as bars:
        task = bars.add_task(title, total=None)
        yield lambda done, total: bars.update(task, completed=done, total=total)
