"""``sparseshot train``: from images and a few marks to a model."""

from pathlib import Path
from typing import Annotated, Any, Literal

from typer import Option

from sparseshot.cli import options
from sparseshot.cli.app import app, resumable
from sparseshot.cli.output import complain, echo, print_json
from sparseshot.errors import InputError, counted
from sparseshot.terminal import shown_events


@app.command(rich_help_panel=options.TRAINING)
def train(
    out: Annotated[Path, Option(help="Folder of the run; the same command resumes it.")],
    dataset: options.Dataset = None,
    root: options.OptionalRoot = None,
    slide: options.Slides = None,
    marks: options.Marks = None,
    pairs: Annotated[Path | None, Option(help="CSV file with the columns slide and marks.")] = None,
    task: Annotated[
        Literal["segment", "detect"] | None,
        Option(help="Find outlines or positions; default: outlines if the marks are outlines."),
    ] = None,
    from_: Annotated[
        str | None,
        Option(
            "--from",
            help="Weights to start from: starter, scratch, a run folder or a model.pt.",
            show_default="starter",
        ),
    ] = None,
    loss: Annotated[
        str | None,
        Option(
            help="Loss: distil, adaptive, ece (the paper's), ce, focal, huber, …, or module:Class.",
            show_default="distil from a start that knows the marked cells, else adaptive",
        ),
    ] = None,
    loss_option: Annotated[
        list[str] | None, Option(help="Argument of the loss, as alpha=0.05; repeatable.")
    ] = None,
    network: options.Network = None,
    fraction: Annotated[
        float, Option(help="Share of the marks to keep, or their number, to simulate sparse ones.")
    ] = 1.0,
    marking: Annotated[
        str, Option(help="Choice of that share: random, large, corner, images or classes.")
    ] = "random",
    classes: Annotated[
        str | None, Option(help="Classes to learn, comma-separated, or any; default: those of the marks.")
    ] = None,
    negative: Annotated[str | None, Option(help="Classes of certain negatives, comma-separated.")] = None,
    exhaustive_class: options.ExhaustiveClass = "Exhaustive",
    keep_large: options.KeepLarge = False,
    radius_um: options.RadiusUm = None,
    mpp: options.Mpp = None,
    force_mpp: options.ForceMpp = False,
    everywhere: options.Everywhere = False,
    profile: Annotated[
        Literal["standard", "quick", "paper"],
        Option(help="Settings: the defaults, or as in the paper, small (quick) or at full size."),
    ] = "standard",
    config: Annotated[Path | None, Option(help="TOML file of settings; options override it.")] = None,
    steps: Annotated[
        int | None, Option(min=1, help="Optimiser steps; default: by start and number of marks.")
    ] = None,
    minutes: Annotated[
        float | None, Option(min=0.05, max=10_000, help="About how long to train, instead of --steps.")
    ] = None,
    seed: options.OptionalSeed = None,
    rounds: Annotated[int, Option(help="Rounds of weak supervision; 1 is none.")] = 1,
    tau: Annotated[float, Option(help="Lowest probability of a prediction that becomes a mark.")] = 0.75,
    device: options.Device = "auto",
    precision: options.OptionalPrecision = None,
) -> None:
    """Train a model on sparsely marked images.

    On a benchmark data set with 30 % of its marks:

        sparseshot train --dataset tnbc --root data --task segment --fraction 0.3 --out run

    On your own slides, marked in QuPath:

        sparseshot train --slide a.svs --marks a.geojson --task detect --out run

    Run the same command again to resume an interrupted run.
    """
    if (dataset is None) == (not slide and pairs is None):
        raise InputError("choose the training data: --dataset with --root, --slide with --marks, or --pairs")
    if dataset is not None and root is None:
        raise InputError(f"--dataset {dataset} needs its folder: --root DIR")
    if steps is not None and minutes is not None:
        raise InputError("--steps and --minutes both say how long to train; give one of them")
    parent = None if from_ in {None, "scratch"} else Path(str(from_))
    from sparseshot.work.folder import CONFIG, LOG, MODEL, RECIPE

    begun = any((out / name).exists() for name in (RECIPE, CONFIG))  # then it may no longer need its parent
    options.check_paths(None if begun else parent, root, *(slide or []), *(marks or []), pairs, config)
    from sparseshot.models.config import make_config
    from sparseshot.models.device import make_fabric
    from sparseshot.training.annotated import TrainingData
    from sparseshot.training.logs import numbers_of, read_log
    from sparseshot.training.pairs import find_pairs
    from sparseshot.training.recipe import WeakSupervision
    from sparseshot.training.runs import train_run

    settings: dict[str, Any] = {
        "task": task,
        "start": from_,
        "loss": loss,
        "network": network,
        "loss_options": dict(map(_loss_option, loss_option)) if loss_option else None,
        "classes": () if classes == "any" else _names(classes),
        "negative_classes": _names(negative),
        "steps": steps,
        "radius_um": radius_um,
        "seed": seed,
        "precision": precision,
    }
    given = {name: value for name, value in settings.items() if value is not None}
    configuration = make_config(profile, config, given)
    options.find_own_modules(configuration.loss, configuration.network)
    data = TrainingData(
        dataset=dataset,
        root=root,
        pairs=() if dataset is not None else tuple(find_pairs(slide or [], marks or [], pairs)),
        fraction=fraction,
        marking=marking,
        seed=configuration.seed,
        mpp=mpp,
        force_mpp=force_mpp,
        everywhere=everywhere,
        exhaustive_class=exhaustive_class,
        keep_large=keep_large,
    )
    fabric = make_fabric(configuration.precision, device=device)
    with resumable(), shown_events() as report:
        weak = WeakSupervision(rounds, tau)
        checkpoint = train_run(
            configuration,
            data,
            out,
            weak=weak,
            minutes=minutes,
            fabric=fabric,
            report=report,
        )
    estimates = numbers_of(read_log(out / LOG), "marked_share")
    marked = estimates[-1] if estimates else None
    evidence = checkpoint.evidence
    if evidence is not None and evidence.is_uncertain:
        complain(
            "warning",
            f"the best threshold is uncertain, between {evidence.interval.low:.2f} and "
            f"{evidence.interval.high:.2f} with 90 % confidence, from {counted(evidence.marks, 'mark')}; "
            "mark more cells, in other places",
        )
    model = {"model": out / MODEL, "steps": checkpoint.step, "threshold": checkpoint.threshold}
    print_json(model | {"criterion": checkpoint.criterion, "marked_share": marked})
    threshold = "none: no marks were held out"
    if checkpoint.threshold is not None:
        threshold = f"{checkpoint.threshold:.3f}"
    echo(f"{out / MODEL}: {counted(checkpoint.step, 'step')}, calibrated threshold {threshold}")
    if marked is not None:
        echo(f"about {marked:.0%} of the cells are marked, as estimated by the loss")


def _names(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(name.strip() for name in text.split(",") if name.strip())


def _loss_option(text: str) -> tuple[str, Any]:
    """Read ``name=value`` with the value as in TOML, or as a plain word."""
    import tomllib

    name, equals, value = text.partition("=")
    if not equals:
        raise InputError(f"--loss-option {text!r} is not name=value, as alpha=0.05")
    try:
        return name.strip(), tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return name.strip(), value.strip()
