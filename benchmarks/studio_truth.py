"""The studio on images of which every cell is known: ``python -m benchmarks studio_truth``.

What a person would do is done over HTTP: nothing, 20 clicks and a training, then one reviewed region at a
time, each with a training. After each, F1 of what the model found and of what is exported, and whether the
intervals that the page shows hold the truth.

Then, in another project, 12 clicks on each of two classes: how many of the found cells have the right one,
and F1 of any cell after a training, beside that of the same clicks on one class. The images have no classes,
so those are made: nuclei smaller and larger than the median. The images are of MoNuSeg in
``$SPARSESHOT_DATA``; no starter has learned from them.
"""

import os
import secrets
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import shapely
from fastapi.testclient import TestClient
from numpy.typing import NDArray
from tests.studio.small_project import worker_of

from sparseshot.cells import Cells, read_cells
from sparseshot.metrics.matching import match_points
from sparseshot.studio.api import make_api
from sparseshot.studio.project import Project
from sparseshot.studio.studio import Studio

IMAGES = os.environ.get("SPARSESHOT_IMAGES", "TCGA-B0-5698-01Z-00-DX1,TCGA-AR-A1AK-01Z-00-DX1")
MPP, REACH_UM, CLICKS, REGIONS = 0.25, 3.0, 20, 2
KINDS, CLICKS_OF_A_KIND = ("small", "large"), 12
EVERYWHERE = "0,0,1000000,1000000"


def main() -> None:
    """Print the tables."""
    data = Path(os.environ.get("SPARSESHOT_DATA", "../shared/data")) / "monuseg" / "MoNuSegTrainingData"
    for name in IMAGES.split(","):
        image, truth = (
            data / "Tissue_Images" / f"{name}.tif",
            read_cells(data / "Annotations" / f"{name}.xml"),
        )
        print(f"{name}: {len(truth):,} cells\n")
        print(
            "| after | model's F1 | exported | found, true | found, shown | correct, true | correct, shown |"
        )
        print("|---|---:|---:|---:|---:|---:|---:|")
        with _studio(image) as (client, folder):
            _work(client, truth.xy, folder)
        print("\n| clicks | named rightly | any cell, F1 | trained, F1 |\n|---|---:|---:|---:|")
        for kinds in (KINDS, ("cell",)):
            with _studio(image) as (client, _):
                _tell_kinds(client, truth, kinds)
        print(flush=True)


@contextmanager
def _studio(image: Path) -> Iterator[tuple[TestClient, Path]]:
    """Open a project with an image, whose cells are found."""
    with tempfile.TemporaryDirectory() as folder:
        studio = Studio.of(Project.open([image], folder=Path(folder), mpp=MPP))
        with TestClient(make_api(studio), base_url="http://127.0.0.1") as client:
            try:
                studio.begin()
                _wait(client, "r0")
                yield client, Path(folder)
            finally:
                with suppress(AssertionError):  # it looks for regions, which nobody waits for
                    os.kill(worker_of(Path(folder)), signal.SIGKILL)
                studio.runs.close()


def _work(client: TestClient, truth: NDArray[np.float64], folder: Path) -> None:
    _tell(client, truth, folder, "r0", "0 clicks")
    chosen = np.random.default_rng(0).permutation(len(truth))[:CLICKS]
    _mark(client, [{"class": "cell", "at": at} for at in truth[chosen].round(1).tolist()])
    _train(client, "r1")
    _tell(client, truth, folder, "r1", f"{CLICKS} clicks")
    for number in range(1, REGIONS + 1):
        _review(client, truth)
        _tell(client, truth, folder, f"r{number}", f"{number} reviewed")
        _train(client, f"r{number + 1}")
        _tell(client, truth, folder, f"r{number + 1}", f"{number} reviewed, trained")


def _tell_kinds(client: TestClient, truth: Cells, names: tuple[str, ...]) -> None:
    """Click on cells of two kinds, under two names or under one, and print a row."""
    area = shapely.area(truth.outline)
    kind = (area > np.median(area)).astype(int)
    random = np.random.default_rng(1)
    chosen = [random.permutation(np.flatnonzero(kind == k))[:CLICKS_OF_A_KIND] for k in (0, 1)]
    for k, rows in enumerate(chosen):
        marks = [{"class": names[k % len(names)], "at": at} for at in truth.xy[rows].round(1).tolist()]
        _mark(client, marks)
    answer = _cells(client, "r0", EVERYWHERE, vectors=True)
    xy = np.array([each[:2] for each in answer["cells"]], float).reshape(-1, 2)
    matching = match_points(truth.xy, xy, radius=REACH_UM / MPP)
    told = np.array([answer["classes"][each[2]] for each in answer["cells"]])[matching.found]
    is_new = ~np.isin(matching.truth, np.concatenate(chosen))
    right = told[is_new] == np.array(KINDS)[kind[matching.truth[is_new]]]
    _train(client, "r1")
    trained = match_points(truth.xy, _found(client, "r1", EVERYWHERE), radius=REACH_UM / MPP).counts
    row = [
        " + ".join(f"{2 * CLICKS_OF_A_KIND // len(names)} {name}" for name in names),
        f"{right.mean():.1%}" if len(names) > 1 else "",
        f"{matching.counts.f1:.3f}",
        f"{trained.f1:.3f}",
    ]
    print("| " + " | ".join(row) + " |", flush=True)


def _wait(client: TestClient, result: str) -> None:
    """Wait until a run has found all cells."""
    while True:
        state = client.get("/slides/1/state").json()
        run = next(each for each in state["runs"] if f"r{each['number']}" == result)
        assert run["stage"] != "failed", run["message"]
        if run["stage"] == "done":
            return
        time.sleep(1)


def _train(client: TestClient, result: str) -> None:
    client.post("/slides/1/train", json={"view": None}).raise_for_status()
    _wait(client, result)


def _mark(client: TestClient, items: list[dict[str, Any]]) -> None:
    client.post("/slides/1/marks", json=[{"key": secrets.token_hex(10), "add": items}]).raise_for_status()


def _review(client: TestClient, truth: NDArray[np.float64]) -> None:
    """Go through the suggested region as somebody who knows all cells."""
    while not (said := client.get("/suggestions").json())["ready"]:
        time.sleep(1)
    region = next(each for each in said["regions"] if not each["done"])
    (x0, y0, x1, y1), result = region["box"], region["result"]
    inside = truth[((truth >= (x0, y0)) & (truth < (x1, y1))).all(axis=1)]
    found = _found(client, result, f"{x0},{y0},{x1},{y1}")
    matching = match_points(inside, found, radius=REACH_UM / MPP)
    wrong, missed = np.delete(found, matching.found, axis=0), np.delete(inside, matching.truth, axis=0)
    items = [{"class": "not a cell", "at": at} for at in wrong.round(1).tolist()]
    _mark(client, items + [{"class": "cell", "at": at} for at in missed.round(1).tolist()])
    ring = [[x0, y0], [x1, y0], [x1, y1], [x0, y1]]
    body = {"key": secrets.token_hex(10), "result": result, "region": ring, "by": "truth"}
    client.post("/slides/1/review", json=body | {"threshold": _threshold(client, result)}).raise_for_status()


def _threshold(client: TestClient, result: str) -> float:
    results = client.get("/slides/1/state").json()["results"]
    return float(next(each for each in results if each["id"] == result)["threshold"])


def _cells(client: TestClient, result: str, area: str, *, vectors: bool) -> dict[str, Any]:
    query: dict[str, str | float] = {
        "area": area,
        "threshold": _threshold(client, result),
        "vectors": vectors,
    }
    answer: dict[str, Any] = client.get(f"/slides/1/found/{result}/cells", params=query).json()
    return answer


def _found(client: TestClient, result: str, area: str) -> NDArray[np.float64]:
    cells = _cells(client, result, area, vectors=True)["cells"]
    return np.array([each[:2] for each in cells], float).reshape(-1, 2)


def _tell(client: TestClient, truth: NDArray[np.float64], folder: Path, result: str, after: str) -> None:
    """Print a row."""
    found = _found(client, result, EVERYWHERE)
    threshold = _threshold(client, result)
    export = folder / "export.geojson"
    export.write_bytes(client.get(f"/slides/1/export/{result}.geojson?threshold={threshold}").content)
    cells: Cells = read_cells(export)
    answer = _cells(client, result, EVERYWHERE, vectors=False)
    assert len(cells) == sum(answer["in_slide"].values()), "the export has other cells than the page counts"
    model, exported = (match_points(truth, xy, radius=REACH_UM / MPP).counts for xy in (found, cells.xy))
    quality = answer["quality"] or {}
    row = [
        after,
        f"{model.f1:.3f}",
        f"{exported.f1:.3f}",
        f"{model.recall:.1%}",
        _shown(quality.get("recall"), model.recall),
        f"{model.precision:.1%}",
        _shown(quality.get("precision"), model.precision),
    ]
    print("| " + " | ".join(row) + " |", flush=True)


def _shown(share: list[float] | None, truth: float) -> str:
    if share is None:
        return "not told"
    value, low, high = share
    return f"{value:.0%} ({low:.0%}–{high:.0%}){'' if low <= truth <= high else ' misses'}"


if __name__ == "__main__":
    main()
