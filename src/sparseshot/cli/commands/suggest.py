"""``sparseshot suggest``: where to mark next."""

from pathlib import Path
from typing import Annotated

from typer import Option

from sparseshot.cli import options
from sparseshot.cli.app import app
from sparseshot.cli.output import complain, echo, print_json, print_table
from sparseshot.errors import InputError, SparseshotError


@app.command(rich_help_panel=options.TRAINING)
def suggest(
    run: options.Model,
    slides: options.SlideFiles,
    out: Annotated[
        Path, Option(help="GeoJSON file for QuPath; of several slides, their names are added to its name.")
    ],
    regions: Annotated[int, Option(min=1, max=1000, help="Number of regions, over all slides.")] = 20,
    side_um: Annotated[float, Option(min=20, max=1000, help="Side of a region.")] = 150.0,
    found: Annotated[
        list[Path] | None,
        Option(
            help="Finished prediction of a slide by this model, to look only where it doubts; repeatable."
        ),
    ] = None,
    candidates: Annotated[
        int, Option(min=1, max=100_000, help="Most regions that the network looks at.")
    ] = 2000,
    mpp: options.Mpp = None,
    force_mpp: options.ForceMpp = False,
    seed: options.Seed = 0,
    device: options.Device = "auto",
) -> None:
    """Suggest regions to mark next, each with its reason; the first teach the model most.

    Example: `sparseshot suggest run a.svs --out next.geojson`

    Open the file in QuPath, mark every cell of a region, and change its class to Exhaustive.
    """
    options.check_paths(run, *slides, *(found or []))
    from sparseshot.active import suggest_regions, write_suggestions
    from sparseshot.files import safe_name
    from sparseshot.images import open_slide
    from sparseshot.prediction import Model
    from sparseshot.prediction.manifest import Manifest
    from sparseshot.prediction.slides import find_slides
    from sparseshot.terminal import shown_events
    from sparseshot.training.recipe import read_run, run_data

    model = Model.load(run, device=device)
    opened = [open_slide(path, mpp=mpp, force_mpp=force_mpp) for path in find_slides(slides)]
    names = [slide.name for slide in opened]
    predicted = {}
    for folder in found or []:
        manifest = Manifest.load(folder)
        if manifest is None:
            raise InputError(f"{folder} holds no prediction; give the folder of one slide")
        predicted[str(manifest.identity["slide"]["name"])] = folder
    learned = []
    if options.is_starter(run):
        pass
    elif read_run(run if run.is_dir() else run.parent) is None:
        complain("warning", f"{run} does not record its marks, so what is unlike them is unknown")
    else:
        try:
            learned = run_data(run).load()[0]
        except SparseshotError as error:
            complain("warning", f"what is unlike the marks is unknown, because they cannot be read: {error}")
    with shown_events() as report:
        suggestions = suggest_regions(
            model,
            opened,
            regions=regions,
            learned=learned,
            found=predicted,
            side_um=side_um,
            candidates=max(candidates, regions),
            seed=seed,
            report=report,
        )
    files = {
        name: out if len(names) == 1 else out.with_name(f"{out.stem} {safe_name(name)}{out.suffix}")
        for name in names
    }
    for name, file in files.items():
        write_suggestions(file, [each for each in suggestions if each.slide == name])
    print_json({"files": list(files.values()), "regions": suggestions})
    rows = [
        (number, each.slide, f"{each.box[0]:.0f}, {each.box[1]:.0f}", each.reason)
        for number, each in enumerate(suggestions, 1)
    ]
    print_table(("", "slide", "left, top", "why"), rows)
    if len(suggestions) < regions:
        echo(f"{len(suggestions)} of {regions}: no other square promises to teach anything")
    for file in files.values():
        echo(f"{file}: drop it on the open slide in QuPath")
