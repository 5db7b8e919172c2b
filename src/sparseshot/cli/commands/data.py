"""``sparseshot data``: list, check and fetch the benchmark data sets."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from sparseshot.cli import options
from sparseshot.cli.app import App, app
from sparseshot.cli.output import echo, print_json, print_table, running
from sparseshot.terminal import shown_events

if TYPE_CHECKING:
    from sparseshot.datasets import DatasetInfo
    from sparseshot.datasets.checking import CheckReport

data = App()
app.add_typer(data, name="data", rich_help_panel=options.RESEARCH)


@data.callback()
def _about() -> None:
    """List, check and fetch benchmark data sets.

    Example: `sparseshot data list`
    """


Name = Annotated[str, Argument(help="Name of the data set, as in `sparseshot data list`.")]


@data.command("list")
def list_datasets(
    as_markdown: Annotated[bool, Option("--markdown", help="Print a Markdown table.")] = False,
) -> None:
    """Show every data set that sparseshot reads.

    Example: `sparseshot data list`
    """
    from sparseshot.datasets.catalogue import CATALOGUE, catalogue_markdown

    print_json([_entry(info) for info in CATALOGUE.values()])
    if as_markdown:
        for line in catalogue_markdown().splitlines():
            echo(line)
        return
    rows = [
        (
            info.name,
            info.published and info.published.images,
            info.published and info.published.cells,
            len(info.classes) or "yours",
            "yours" if info.mpp is None else f"{info.mpp:g}",
            info.licence,
            "fetch" if info.archive else (info.page or "private"),
        )
        for info in CATALOGUE.values()
    ]
    print_table(("name", "images", "cells", "classes", "µm/px", "licence", "available"), rows)


@data.command("check")
def check_dataset(name: Name, root: options.Root) -> None:
    """Compare a folder with the catalogue: files, counts, sizes, cells outside their image.

    The exit code is 1 if anything is missing or wrong.

    Example: `sparseshot data check tnbc --root data/tnbc`
    """
    from sparseshot.datasets import check, dataset_info

    info = dataset_info(name)
    with shown_events() as report:
        checked = check(info, root, report=report)
    print_json(checked)
    _show(checked, info)
    if not checked.ok:
        raise typer.Exit(1)


@data.command("fetch")
def fetch_dataset(
    name: Name,
    out: Annotated[Path, Option(help="Folder for the data set; created if missing.")],
    address: Annotated[
        str | None, Option(help="Another address of the same archive, such as your own mirror.")
    ] = None,
    keep_archive: Annotated[bool, Option("--keep-archive", help="Keep the downloaded archive.")] = False,
) -> None:
    """Download and unpack a data set, or say where to get it.

    Example: `sparseshot data fetch tnbc --out data/tnbc`
    """
    from sparseshot.datasets import dataset_info, fetch

    info = dataset_info(name)
    if images := _count_images(info, out):
        print_json({"name": info.name, "folder": out, "images": images, "fetched": False})
        echo(f"{info.title} is in {out} already, {images} images; nothing to do.")
        echo(f"To check that it is complete: sparseshot data check {info.name} --root {out}")
        return
    echo(f"{info.title}: {info.licence}; cite {info.citation}", err=running.json)
    with shown_events(in_bytes=True) as report:
        fetched = fetch(info, out, address=address, keep_archive=keep_archive, report=report)
    print_json({"name": info.name, "fetched": True, **vars(fetched)})
    checked = "as published" if fetched.as_published else "the publisher states none"
    echo(f"{fetched.images} images in {fetched.folder}, from {fetched.bytes:,} bytes")
    echo(f"MD5 {fetched.md5} ({checked})")
    echo(f"SHA-256 {fetched.sha256}")


def _count_images(info: "DatasetInfo", out: Path) -> int:
    from sparseshot.datasets.layout import find_layout
    from sparseshot.errors import DataNotFoundError

    try:
        return len(find_layout(info, out).entries)
    except DataNotFoundError:
        return 0


def _entry(info: "DatasetInfo") -> dict[str, object]:
    names = ("name", "title", "about", "classes", "mpp", "mpp_note", "licence", "citation", "page", "note")
    return {
        **{name: getattr(info, name) for name in names},
        "images": info.published and info.published.images,
        "cells": info.published and info.published.cells,
        "splits": info.splits.source,
        "address": info.archive.address if info.archive else None,
    }


def _show(report: "CheckReport", info: "DatasetInfo") -> None:
    echo(f"{info.title} in {report.folder}")
    head = ("part", "images", "expected", "cells", "expected", "")
    print_table(head, [list(vars(part).values()) for part in report.parts])
    used = ", ".join(f"{split} {count:,}" for split, count in report.used.items())
    echo(f"used as: {used} ({info.splits.source})")
    for problem in report.problems:
        echo(f"wrong: {problem}")
    for line in report.mended:
        echo(f"repaired: {line}")
