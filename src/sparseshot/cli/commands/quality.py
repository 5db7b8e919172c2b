"""``sparseshot quality``: how good a model is expected to be, without ground truth."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument

from sparseshot.cli import options
from sparseshot.cli.app import app
from sparseshot.cli.output import echo, print_json, print_table
from sparseshot.errors import DataNotFoundError, InputError

if TYPE_CHECKING:
    from sparseshot.prediction.export import PredictionSummary


@app.command(rich_help_panel=options.TRAINING)
def quality(
    run: Annotated[Path, Argument(help="Folder of a finished training run, or its model.pt.")],
    found: Annotated[
        list[Path] | None, Argument(help="Folders that predict wrote, each of one slide or of several.")
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Estimate recall from held-out marks, and with exhaustive regions precision, F1 and the number of cells.

    For a model of kinds, also how many of the cells of each kind are recognised.

    Example: `sparseshot quality run found`

    All have 90 % intervals. They hold for slides that look like the marked ones.
    """
    options.check_paths(run, *(found or []))
    from sparseshot.metrics import expected_quality
    from sparseshot.models.checkpoint import fingerprint
    from sparseshot.models.model_files import load_model
    from sparseshot.prediction.export import expected_on_slide, read_summary
    from sparseshot.prediction.manifest import Manifest, is_prediction, predictions_in

    checkpoint = load_model(run)
    evidence, threshold = checkpoint.evidence, checkpoint.threshold
    slides = []
    for folder in found or []:
        inside = [folder] if is_prediction(folder) else predictions_in(folder)
        if not inside:
            raise DataNotFoundError(folder, "holds no prediction; give a folder that predict wrote")
        slides += inside
    entries, model = [], fingerprint(checkpoint)
    for folder in slides:
        manifest = Manifest.load(folder)
        if manifest is None or not manifest.finished:
            raise DataNotFoundError(folder, "its prediction is not finished; run the same predict again")
        if not manifest.is_by(model):
            raise InputError(f"{folder} was predicted by another model than {run}; give that model")
        summary = read_summary(folder, manifest)
        there = None if evidence is None else expected_quality(evidence, summary.threshold)
        entry = {"slide": summary.slide, "folder": folder, "threshold": summary.threshold}
        entry |= {
            "found": summary.cells,
            "expected": expected_on_slide(there, summary.counts) | _of_kinds(summary),
        }
        entries.append(entry)
    own = None if evidence is None or threshold is None else expected_quality(evidence, threshold)
    kinds = None if checkpoint.kinds is None else checkpoint.kinds.evidence
    if as_json:
        told = {} if kinds is None else {"kinds": {"recall": kinds.recall(), "marks": kinds.marks}}
        print_json({"model": run, "quality": own, "slides": entries} | told)
        return
    if own is None:
        echo("unknown: no mark was held out or none is found, or an earlier version trained this model")
    else:
        echo(f"on slides like the marked ones {own.sentence()}")
    if kinds is not None and (sentence := kinds.sentence()):
        echo(sentence)
    if entries:
        rows = [_row(entry) for entry in entries]
        print_table(("found", "expected cells", "90 % interval", "slide"), rows)


def _of_kinds(summary: "PredictionSummary") -> dict[str, Any]:
    """Return what a result says of its kinds, which may have been learned since."""
    return {"kinds": summary.quality["kinds"]} if "kinds" in summary.quality else {}


def _row(entry: dict[str, Any]) -> tuple[object, ...]:
    cells, low, high = entry["expected"].get("cells", (None, None, None))
    interval = "unknown" if cells is None else f"{low:,}–{high:,}"
    return entry["found"], cells, interval, entry["slide"]
