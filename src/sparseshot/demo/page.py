"""All of it as one HTML file that needs nothing else: no network, no other file."""

from collections.abc import Sequence
from html import escape
from importlib.resources import files

from sparseshot.demo.charts import colour_of
from sparseshot.demo.figures import chart_figures, slide_figures
from sparseshot.demo.folder import DemoFolder
from sparseshot.demo.judging import Judged, Numbers, Score
from sparseshot.demo.words import comparison, lead, percent
from sparseshot.experiments.progress import duration

_NEXT = """<p>On your own slides: mark some cells in QuPath, export them as GeoJSON, and</p>
<pre><code>sparseshot train --slide slide.svs --marks marks.geojson --task detect --loss {loss} --out run
sparseshot predict run slide.svs --out found</code></pre>
<p><code>found/slide.svs/qupath.zip</code> goes back into QuPath: drop it on the open slide.
Look, correct, train again.</p>
<p>In your own PyTorch code:</p>
<pre><code>from sparseshot.losses import ExclusiveCrossEntropy

criterion = ExclusiveCrossEntropy()
loss = criterion(logits, target, progress=step / steps)   # 0 in the target: not marked</code></pre>"""


def make_page(folder: DemoFolder, judged: Judged) -> str:
    """Draw everything and write the page."""
    numbers = judged.numbers
    parts = [
        "<h1>Every cell, from the few that were marked</h1>",
        f'<p class="lead">{lead(numbers)}</p>',
        _tiles(numbers),
        *(f"<p>{sentence}</p>" for sentence in comparison(numbers)),
        *slide_figures(folder, judged),
        "<h2>Numbers</h2>",
        "<p>A cell is found if something was found within 3 µm of it, one for one. Every cell of the slide "
        "counts, marked or not; “recall, unmarked” is the share found of those that nobody marked.</p>",
        _scores(numbers),
        chart_figures(judged),
        "<h2>Speed</h2>",
        _speed(numbers),
        "<h2>What is here</h2>",
        _files(folder),
        "<h2>What to do next</h2>",
        _NEXT.format(loss=folder.plan.losses[-1]),
        _footer(numbers),
    ]
    style = files("sparseshot.demo").joinpath("page.css").read_text(encoding="utf-8")
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>sparseshot demo</title>\n<style>\n{style}</style>\n</head>\n<body>\n"
        + "\n".join(parts)
        + "\n</body>\n</html>\n"
    )


def _tiles(numbers: Numbers) -> str:
    tiles = []
    for loss, each in numbers.losses.items():
        values = "".join(
            f"<div><span>{score.f1:.2f}</span>"
            f'<div class="bar"><i style="width:{100 * score.f1:.0f}%"></i></div>{text}</div>'
            for score, text in (
                (each.half, "F1 at threshold 0.5"),
                (each.calibrated, "F1, threshold calibrated"),
            )
        )
        tiles.append(
            f'<div class="tile" style="--loss:{colour_of(loss)}"><b>{escape(each.title)}</b>'
            f'<div class="pair">{values}</div></div>'
        )
    return f'<div class="tiles">{"".join(tiles)}</div>'


def _scores(numbers: Numbers) -> str:
    header = ("", "threshold", "F1", "precision", "recall", "recall, unmarked", "found", "missed", "false")
    rows = []
    for each in numbers.losses.values():
        rows.append((each.title, "0.5", *_score(each.half)))
        rows.append(("", f"{each.calibrated.threshold:.3f} (calibrated)", *_score(each.calibrated)))
    return _table(header, rows)


def _score(score: Score) -> tuple[str, ...]:
    precision = "–" if score.precision is None else f"{score.precision:.3f}"
    counts = (f"{count:,}" for count in (score.found, score.missed, score.false))
    return f"{score.f1:.3f}", precision, f"{score.recall:.3f}", f"{score.recall_unmarked:.3f}", *counts


def _speed(numbers: Numbers) -> str:
    header = ("", "training", "crops/s", "prediction, mm²/s")
    rows = []
    for each in numbers.losses.values():
        speed = each.predicted_mm2_per_second
        rows.append(
            (
                each.title,
                duration(each.training_seconds),
                f"{each.crops_per_second:.0f}",
                "–" if speed is None else f"{speed:.2f}",
            )
        )
    began = "the rest of it, after it had been stopped, took" if numbers.resumed else "all took"
    cores, hardware = numbers.machine["cores"], numbers.machine["gpu"] or numbers.machine["processor"]
    return _table(header, rows) + (
        f"<p>From the first pixel to this page, {began} {duration(numbers.seconds)} on {cores} cores "
        f"({escape(str(hardware))}). The losses were trained side by side.</p>"
    )


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(text)}</th>" for text in header)
    body = "".join("<tr>" + "".join(f"<td>{escape(text)}</td>" for text in row) + "</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _files(folder: DemoFolder) -> str:
    own = folder.of_loss(folder.plan.losses[-1])
    described = {
        folder.slide: "the slide: open it in QuPath",
        folder.marks: "the marks: drop the file on the slide",
        own.found / "qupath.zip": "every cell that was found: drop it on the slide too",
        own.cells: "the same as GeoParquet, for Python, R and GIS",
        folder.truth: "every cell there is, as GeoParquet",
        folder.numbers: "the numbers of this page",
    }
    items = []
    for path, text in described.items():
        name = path.relative_to(folder.path).as_posix()
        items.append(f'<li><a href="{name}"><code>{name}</code></a>: {text}</li>')
    return f"<ul>{''.join(items)}</ul>"


def _footer(numbers: Numbers) -> str:
    width, height = numbers.slide_px
    told = ", ".join(f"{name} {version}" for name, version in numbers.versions.items() if name != "machine")
    return (
        f"<footer>Slide of {width:,} × {height:,} pixels at {numbers.mpp:g} µm; "
        f"{percent(numbers.marks / numbers.cells)} of its cells marked. {escape(told)}.</footer>"
    )
