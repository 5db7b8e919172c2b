"""``sparseshot evaluate`` and ``sparseshot quality``: how good a model is, with ground truth and without."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typer import Argument, Option

from sparseshot.cli import options
from sparseshot.cli.app import app
from sparseshot.cli.output import echo, print_json, print_table
from sparseshot.errors import DataNotFoundError, InputError, counted

if TYPE_CHECKING:
    from sparseshot.metrics import KindScores
    from sparseshot.prediction.export import PredictionSummary
    from sparseshot.training.evaluation import Evaluation


@app.command(rich_help_panel=options.TRAINING)
def evaluate(
    run: Annotated[Path, Argument(help="Folder of a run, or its model.pt.")],
    dataset: options.Dataset = None,
    root: options.OptionalRoot = None,
    split: Annotated[Literal["train", "validation", "test"], Option(help="Split of the data set.")] = "test",
    slide: options.Slides = None,
    marks: options.Marks = None,
    exhaustive_class: options.ExhaustiveClass = "Exhaustive",
    keep_large: options.KeepLarge = False,
    mpp: options.Mpp = None,
    force_mpp: options.ForceMpp = False,
    everywhere: options.Everywhere = False,
    out: Annotated[Path | None, Option(help="Folder for the results; default: the run.")] = None,
    device: options.Device = "auto",
    network: options.Network = None,
) -> None:
    """Compare what a model finds with the ground truth.

    On the test images of the data set it was trained on:

        sparseshot evaluate run

    On your own images, in which all cells are marked:

        sparseshot evaluate run --images pictures --marks marks

    If the marks have exhaustive regions, only these are counted.

    Reports Dice (segmentation) or F1 within 3 µm (detection) at threshold 0.5, at the calibrated threshold,
    and at the best one, which only the ground truth can tell. For a model of kinds, also F1 of each kind and
    which are taken for which.
    """
    options.check_paths(run, *(slide or []), *(marks or []), root)
    from sparseshot.datasets import load_dataset
    from sparseshot.training.annotated import AnnotatedSlide, TrainingData, open_samples
    from sparseshot.training.pairs import find_pairs
    from sparseshot.training.recipe import run_data
    from sparseshot.training.runs import evaluate_run

    shown: list[AnnotatedSlide] = []
    if slide:
        pairs = find_pairs(slide, marks or [], None)
        images, _ = TrainingData(
            pairs=tuple(pairs),
            mpp=mpp,
            force_mpp=force_mpp,
            everywhere=everywhere,
            exhaustive_class=exhaustive_class,
            keep_large=keep_large,
        ).load()
    else:
        data = run_data(run)
        name, place = dataset or data.dataset, root or data.root
        if name is None or place is None:
            raise InputError(
                "choose the images to evaluate on: --dataset with --root, or --images with --marks"
            )
        images = open_samples(load_dataset(name, place, split=split))
        if (data.dataset, data.root) == (name, place):
            shown = data.load()[0][:1]  # an image it was trained on, with its marks
    folder = out or (run if run.is_dir() else run.parent)
    options.find_own_modules(network)
    result = evaluate_run(
        run, images, folder, shown=shown, exhaustive=not slide, device=device, network=network
    )
    print_json(result)
    _show(result)


def _show(result: "Evaluation") -> None:
    from sparseshot.models.config import TASKS

    name = TASKS[result.task].score_name
    rows = []
    for at, score in (("0.5", result.half), ("calibrated", result.calibrated), ("best", result.best)):
        if score is not None:
            pooled, mean, precision, recall = (
                f"{number:.3f}" for number in (score.pooled, score.mean, score.precision, score.recall)
            )
            interval = _interval(score.low, score.high)
            rows.append((at, f"{score.threshold:.2f}", pooled, interval, mean, precision, recall))
    where = "on " if not result.regions else f"in {counted(result.regions, 'exhaustive region')} of "
    what = "recall" if result.sparse else name
    echo(f"{what} {where}{counted(result.images, 'image')} with {counted(result.cells, 'cell')}")
    if result.sparse:
        print_table(("at", "threshold", "recall"), [(row[0], row[1], row[-1]) for row in rows[:-1]])
        return
    print_table(("at", "threshold", name, "95 %", "mean of images", "precision", "recall"), rows)
    outlines = []
    for at, point in (("0.5", result.half), ("calibrated", result.calibrated)):
        if point is not None and point.panoptic_quality is not None:
            matched = (point.f1_at_iou_half, point.f1_at_iou_tight)
            scores = (*matched, point.panoptic_quality, point.aggregated_jaccard_index)
            outlines.append((at, *(f"{score:.3f}" for score in scores)))
    if outlines:
        print_table(("outlines at", "F1 at IoU 0.5", "F1 at IoU 0.7", "PQ", "AJI"), outlines)
    if result.kinds is not None:
        _show_kinds(result.kinds)


def _interval(low: float, high: float) -> str:
    return "–" if math.isnan(low) else f"{low:.3f}–{high:.3f}"


def _show_kinds(scores: "KindScores") -> None:
    from sparseshot.metrics.kind_counts import NOTHING
    from sparseshot.models.kinds import OTHER

    columns = zip(scores.kinds, scores.f1, scores.intervals, scores.precision, scores.recall, strict=True)
    rows = [
        (name, f"{f1:.3f}", _interval(*own), f"{precision:.3f}", f"{recall:.3f}")
        for name, f1, own, precision, recall in columns
    ]
    rows.append(("mean", f"{scores.mean_f1:.3f}", _interval(*scores.mean_interval), "", ""))
    print_table(("kind", "F1", "95 %", "precision", "recall"), rows)
    names = (*scores.kinds, OTHER, NOTHING)
    print_table(
        ("is \\ found as", *names),
        [(name, *map(str, row)) for name, row in zip(names, scores.confusion, strict=True)],
    )


@app.command(rich_help_panel=options.TRAINING)
def quality(
    run: Annotated[Path, Argument(help="Folder of a finished training run, or its model.pt.")],
    found: Annotated[
        list[Path] | None, Argument(help="Folders that predict wrote, each of one slide or of several.")
    ] = None,
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
    told = {} if kinds is None else {"kinds": {"recall": kinds.recall(), "marks": kinds.marks}}
    print_json({"model": run, "quality": own, "slides": entries} | told)
    if own is None:
        echo("unknown: no mark was held out or none is found, or an earlier version trained this model")
    else:
        echo(f"on slides like the marked ones {own.sentence()}")
    if kinds is not None and (sentence := kinds.sentence()):
        echo(sentence)
    if entries:
        rows = [_expected_row(entry) for entry in entries]
        print_table(("found", "expected cells", "90 % interval", "slide"), rows)


def _of_kinds(summary: "PredictionSummary") -> dict[str, Any]:
    """Return what a result says of its kinds, which may have been learned since."""
    return {"kinds": summary.quality["kinds"]} if "kinds" in summary.quality else {}


def _expected_row(entry: dict[str, Any]) -> tuple[object, ...]:
    cells, low, high = entry["expected"].get("cells", (None, None, None))
    interval = "unknown" if cells is None else f"{low:,}–{high:,}"
    return entry["found"], cells, interval, entry["slide"]
