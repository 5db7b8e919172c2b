"""The report says what the metrics say, shows what is missing, and is the same whenever it is made."""

import base64
import json
import re
from pathlib import Path

import pytest
from tests.experiments.made_results import write_results

from sparseshot.errors import DataNotFoundError, FormatError, InputError
from sparseshot.experiments import Results, open_experiment
from sparseshot.experiments.plan import Experiment, Method, Run, grid_of_runs
from sparseshot.experiments.report import make_report, raw_metrics, write_raw_metrics, write_report
from sparseshot.experiments.report.comparisons import compare
from sparseshot.experiments.report.document import (
    Block,
    Bullets,
    Figure,
    Fold,
    Heading,
    Paragraph,
    Table,
    figures_of,
)
from sparseshot.experiments.report.html import to_html
from sparseshot.experiments.report.markdown import to_markdown
from sparseshot.experiments.subjects import Subject

FRACTIONS = [0.1, 0.3, 0.6, 1.0]


def sweep(
    *datasets: str,
    losses: tuple[str, ...] = ("ece", "ce"),
    seeds: tuple[int, ...] = (0,),
    name: str = "sweep",
) -> Experiment:
    methods = [Method(loss, loss, f"method {loss}") for loss in losses]
    subjects = [Subject(dataset) for dataset in datasets or ("tnbc",)]
    runs = grid_of_runs(subjects, ["segment"], methods, FRACTIONS, seeds, profile="quick", settings={})
    return Experiment(name, "A sweep", "What it shows.", tuple(runs))


def report_of(out: Path, *, restricted: bool = False) -> list[Block]:
    return make_report(Results.read(out), restricted_images=restricted)


def tables(blocks: list[Block], *, first: str) -> list[Table]:
    return [block for block in blocks if isinstance(block, Table) and block.header[0] == first]


def text_of(blocks: list[Block]) -> str:
    return to_markdown(blocks).replace("\xa0", " ")


def test_the_numbers_on_the_page_are_those_of_the_metrics(tmp_path: Path) -> None:
    scores = {("ece", 0.3): (0.7123, 0.7456), ("ce", 1.0): (0.8001, 0.7999)}

    def score(run: Run) -> tuple[float, float]:
        return scores.get((run.method.name, run.fraction), (0.5, 0.6))

    write_results(tmp_path, sweep(), scores=score)
    (table,) = tables(report_of(tmp_path), first="Dice")
    assert list(table.header[2:6]) == ["10\xa0%", "30\xa0%", "60\xa0%", "100\xa0%"]
    assert table.rows[0][:4] == ["method ece", "0.5", "**0.50**", "**0.71**"]
    assert table.rows[1][1:4] == ["calibrated", "**0.60**", "**0.75**"]
    assert table.rows[2][1:4] == ["the paper", "0.73", "0.80"]
    assert table.rows[3][5] == "**0.80**"
    area = ((0.5 + 0.7123) / 2 * 0.2 + (0.7123 + 0.5) / 2 * 0.3 + 0.5 * 0.4) / 0.9
    assert table.rows[0][6:] == [f"{area:.3f}", "4"]
    assert "<strong>0.71</strong>" in to_html([table], title="x")


def test_seeds_become_a_mean_and_a_spread(tmp_path: Path) -> None:
    write_results(tmp_path, sweep(seeds=(0, 1)), scores=lambda run: (0.70 + 0.04 * run.seed, 0.8))
    (table,) = tables(report_of(tmp_path), first="Dice")
    assert table.rows[0][2] == "**0.72 ±0.02**"
    assert table.rows[1][2] == "**0.80 ±0.00**"


def test_missing_and_failed_runs_are_shown_as_such(tmp_path: Path) -> None:
    write_results(tmp_path, sweep(), missing=("tnbc-segment-ece-0.6-s0",), failed=("tnbc-segment-ce-0.1-s0",))
    blocks = report_of(tmp_path)
    (table,) = tables(blocks, first="Dice")
    assert table.rows[0][4] == "–"
    assert table.rows[3][2] == "failed"
    assert table.rows[0][7] == "2", "the area is over what both methods and the paper have"
    text = text_of(blocks)
    assert "6 of 8 runs are done, **1 failed**, 1 are still missing" in text
    assert "OutOfMemoryError: not enough <memory>" in text
    (failures,) = tables(blocks, first="run")
    assert "&lt;memory&gt;" in to_html([failures], title="x")
    assert "`tnbc-segment-ece-0.6-s0`" in text


def test_nothing_run_yet_makes_a_report_too(tmp_path: Path) -> None:
    experiment = sweep()
    write_results(tmp_path, experiment, missing=tuple(run.name for run in experiment.runs))
    text = text_of(report_of(tmp_path))
    assert "0 of 8 runs are done" in text
    assert "nan" not in text


def test_the_same_runs_make_the_same_files(tmp_path: Path) -> None:
    write_results(tmp_path / "out", sweep())
    files = []
    for name in ("a", "b"):
        folder = tmp_path / name
        written = write_report(
            report_of(tmp_path / "out"), folder / "report.html", figures=folder / "figures"
        )
        files.append({path.relative_to(folder): path.read_bytes() for path in written})
    assert files[0] == files[1]


def test_the_page_needs_nothing_but_itself(tmp_path: Path) -> None:
    write_results(tmp_path / "out", sweep())
    write_report(report_of(tmp_path / "out"), tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    sources = re.findall(r'(?:src|href)="([^"]*)"', page)
    assert sources
    assert all(source.startswith(("data:image/", "#")) for source in sources)
    assert "<script" not in page
    first = next(source for source in sources if source.startswith("data:image/svg"))
    assert b"<svg" in base64.b64decode(first.split(",")[1])
    for anchor in re.findall(r'href="#([^"]*)"', page):
        assert f'id="{anchor}"' in page


def test_the_markdown_links_figures_that_exist(tmp_path: Path) -> None:
    write_results(tmp_path / "out", sweep())
    write_report(
        report_of(tmp_path / "out"), tmp_path / "docs" / "r.html", figures=tmp_path / "docs" / "pictures"
    )
    links = re.findall(r"!\[[^\]]*\]\(([^)]*)\)", (tmp_path / "docs" / "r.md").read_text())
    assert len(links) == 3, "curves, exclusion, panels"
    for link in links:
        assert (tmp_path / "docs" / link).stat().st_size > 1000
    assert "![" not in to_markdown(report_of(tmp_path / "out"))


def test_estimates_of_how_much_was_marked_stand_beside_the_truth(tmp_path: Path) -> None:
    write_results(tmp_path / "plain", sweep())
    assert "marked-share" not in {figure.name for figure in figures_of(report_of(tmp_path / "plain"))}
    write_results(tmp_path / "adaptive", sweep(losses=("adaptive", "ce")))
    blocks = report_of(tmp_path / "adaptive")
    figure = next(figure for figure in figures_of(blocks) if figure.name == "marked-share")
    assert b"<svg" in figure.content
    (estimates,) = figure.draw.args[0].values()  # type: ignore[attr-defined]
    assert [estimate.true for estimate in estimates] == pytest.approx(FRACTIONS)
    assert [estimate.found for estimate in estimates] == pytest.approx([0.9 * f for f in FRACTIONS])


def test_images_that_may_not_be_passed_on_stay_at_home(tmp_path: Path) -> None:
    write_results(tmp_path, sweep("tnbc", "monuseg", "consep"))
    shown = {figure.name for figure in figures_of(report_of(tmp_path)) if figure.kind == "jpg"}
    assert shown == {"tnbc-segment-panels"}
    assert "MoNuSeg (CC BY-NC-SA 4.0)" in text_of(report_of(tmp_path))
    everything = {
        figure.name for figure in figures_of(report_of(tmp_path, restricted=True)) if figure.kind == "jpg"
    }
    assert everything == {"tnbc-segment-panels", "monuseg-segment-panels", "consep-segment-panels"}


def test_it_says_how_much_is_kept_with_few_marks(tmp_path: Path) -> None:
    def score(run: Run) -> tuple[float, float]:
        half = {"ece": 0.76 if run.fraction < 1 else 0.8, "ce": 0.04 if run.fraction < 0.5 else 0.8}
        return half[run.method.name], 0.8

    write_results(tmp_path, sweep(), scores=score)
    text = text_of(report_of(tmp_path))
    assert (
        "method ece keeps 95 % of what it reaches with all marks (at least 92 % throughout in 1 of 1" in text
    )
    assert "method ce keeps 5 % of what it reaches with all marks (at least 92 % throughout in 0 of 1" in text


def test_it_says_where_a_rival_is_better(tmp_path: Path) -> None:
    def score(run: Run) -> tuple[float, float]:
        return (0.75 if run.method.name == "focal" and run.fraction == 0.1 else 0.7), 0.7

    write_results(tmp_path, sweep(losses=("ece", "focal")), scores=score)
    text = text_of(report_of(tmp_path))
    assert "At threshold 0.5, better than method ece: method focal at 10 % (0.75 against 0.70)." in text
    assert "At the calibrated threshold no other method is better than method ece by more than 0.01." in text


def test_it_says_where_ours_differs_from_the_paper(tmp_path: Path) -> None:
    paper = {0.1: 0.73, 0.3: 0.80, 0.6: 0.83, 1.0: 0.82}

    def score(run: Run) -> tuple[float, float]:
        return (paper[run.fraction] + 0.02 if run.method.name == "ece" else 0.1), 0.7

    write_results(tmp_path, sweep(), scores=score)
    text = text_of(report_of(tmp_path))
    assert "Against the paper, method ece agrees within 0.03 at 10, 30, 60 and 100 %." in text
    assert (
        "Against the paper, method ce is on average 0.48 lower at 10, 30, 60 and 100 %, furthest off at "
        "100 %: 0.10, in the paper 0.84." in text
    )
    assert "is best here too, at threshold 0.5, at 3 of 4 fractions: 10, 30 and 60 %." in text


def test_a_stand_in_is_named(tmp_path: Path) -> None:
    write_results(tmp_path, sweep("wbc_zheng"))
    assert "The paper's numbers are of WBC-NuClick, for which WBC-Zheng stands in." in text_of(
        report_of(tmp_path)
    )


def test_methods_are_ranked_and_tested(tmp_path: Path) -> None:
    write_results(
        tmp_path,
        sweep("tnbc", "monuseg"),
        scores=lambda run: (
            0.7 - (0.02 + 0.001 * run.fraction * len(run.subject.dataset)) * (run.method.name == "ce"),
            0.7,
        ),
    )
    blocks = report_of(tmp_path)
    half, calibrated = tables(blocks, first="method")
    assert half.rows[0] == ["method ece", "1.00", "", "", "", ""]
    assert half.rows[1] == ["method ce", "2.00", "8", "8", "+0.022", "0.0078"]
    assert calibrated.rows[1][-1] == "too few pairs", "where nothing differs nothing can be told"


def test_one_data_set_and_two_fractions_are_too_few_to_test(tmp_path: Path) -> None:
    write_results(tmp_path, sweep(), missing=("tnbc-segment-ce-0.1-s0",))
    assert tables(report_of(tmp_path), first="method")[0].rows[1][-1] == "too few pairs"


@pytest.mark.parametrize("name", ["weak-supervision", "annealing", "exclusive-recall"])
def test_tables_of_the_paper_stand_beside_ours(tmp_path: Path, name: str) -> None:
    experiment = open_experiment(name, profile="quick").experiment
    write_results(tmp_path, experiment, scores=lambda run: (0.61 + 0.1 * (run.method.name == "ece"), 0.65))
    blocks = report_of(tmp_path)
    table = next(block for block in blocks if isinstance(block, Table))
    row = table.rows[0]
    assert row[1] == "**0.71**"
    assert row[-1] == ("**0.88**" if name == "exclusive-recall" else "**0.80**")
    assert table.rows[1][1] == "0.61"
    assert "in the paper" in text_of(blocks)
    assert not compare(Results.read(tmp_path)), "what stands for a table is not drawn as a curve"


def test_where_nothing_is_found_nothing_is_best(tmp_path: Path) -> None:
    experiment = open_experiment("annealing", profile="quick").experiment
    write_results(tmp_path, experiment, scores=lambda run: (0.0, 0.5))
    blocks = report_of(tmp_path)
    table = next(block for block in blocks if isinstance(block, Table))
    assert {row[1] for row in table.rows} == {"0.00"}
    assert "at threshold 0.5 none (all 0.00) and at the calibrated threshold" in text_of(blocks)


def test_two_experiments_share_runs_and_keep_their_titles(tmp_path: Path) -> None:
    table = open_experiment("annealing", profile="quick").experiment
    both = sweep(name="curves")
    write_results(tmp_path, table)
    write_results(tmp_path, both)
    text = text_of(report_of(tmp_path))
    assert "ρ sigmoid of the linear one" in text
    assert "method ece" in text


def test_time_memory_and_machine_are_told(tmp_path: Path) -> None:
    write_results(tmp_path, sweep())
    blocks = report_of(tmp_path)
    (times,) = tables(blocks, first="data set")
    assert times.rows == [["tnbc", "segmentation", "8", "1 min 58 s", "1 min 58 s", "812 MB"]]
    text = text_of(blocks)
    assert "on Made CPU (2 cores), threads a run: 1" in text
    assert "torch 2.13.0" in text
    assert "`sparseshot experiment sweep --profile quick --root DATA --out DIR`: 8 of 8 runs." in text


def test_raw_metrics_are_one_small_file(tmp_path: Path) -> None:
    write_results(
        tmp_path / "out", sweep(), failed=("tnbc-segment-ce-0.1-s0",), missing=("tnbc-segment-ce-1-s0",)
    )
    results = Results.read(tmp_path / "out")
    write_raw_metrics(results, tmp_path / "docs" / "metrics.json")
    text = (tmp_path / "docs" / "metrics.json").read_text()
    again = json.loads(text)
    assert again == json.loads(json.dumps(raw_metrics(results)))
    runs = {run["name"]: run for run in again["runs"]}
    assert len(runs) == 8
    done = results.results["tnbc-segment-ece-0.3-s0"]
    assert runs["tnbc-segment-ece-0.3-s0"]["half"]["pooled"] == pytest.approx(done.score("half"), abs=1e-4)
    assert runs["tnbc-segment-ce-0.1-s0"]["error"].startswith("OutOfMemoryError")
    assert runs["tnbc-segment-ce-1-s0"]["state"] == "missing"
    assert len(text) < 1000 * len(runs)


def test_raw_metrics_have_what_a_loss_took_the_marked_share_for(tmp_path: Path) -> None:
    write_results(tmp_path, sweep(losses=("adaptive", "ce")))
    for run in raw_metrics(Results.read(tmp_path))["runs"]:
        if run["method"] == "ce":
            assert "marked_share" not in run
        else:
            found = 0.9 * run["fraction"]
            assert run["marked_share"] == pytest.approx(
                {"true": run["fraction"], "found": found, "alpha": found / (2 - found)},
                abs=1e-4,
            )


def test_a_folder_without_experiments_is_told(tmp_path: Path) -> None:
    with pytest.raises(DataNotFoundError, match="holds no experiment"):
        Results.read(tmp_path)


@pytest.mark.parametrize("content", ["{", "[]", '{"name": "x"}'])
def test_a_broken_plan_is_told(tmp_path: Path, content: str) -> None:
    (tmp_path / "plans").mkdir()
    (tmp_path / "plans" / "x.json").write_text(content)
    with pytest.raises(FormatError, match=r"x\.json: .*run the experiment again"):
        Results.read(tmp_path)


def test_html_is_escaped_and_whole() -> None:
    blocks: list[Block] = [
        Heading(1, "T"),
        Heading(2, "A & B"),
        Paragraph("**bold** and `a<b`"),
        Bullets(["<script>alert(1)</script>"]),
        Table(["x"], [["<b>"]], lines=frozenset({0}), quiet=frozenset({0})),
        Fold("more", [Paragraph("inside")]),
        Figure("f", 'a "caption"', lambda: b"<svg/>"),
    ]
    page = to_html(blocks, title="a < b")
    assert "<script>alert" not in page
    assert "<title>a &lt; b</title>" in page
    assert '<h2 id="a-b">A &amp; B</h2>' in page
    assert "<strong>bold</strong> and <code>a&lt;b</code>" in page
    assert '<tr class="line quiet"><td class="w">&lt;b&gt;</td></tr>' in page
    assert 'alt="a &quot;caption&quot;"' in page
    assert to_markdown(blocks, figures="pics").count("pics/f.svg") == 1


def test_the_legend_of_many_methods_stays_on_the_figure(tmp_path: Path) -> None:
    methods = [Method(f"m{n}", "ece", f"method {n}, which has a rather long title") for n in range(11)]
    runs = grid_of_runs([Subject("tnbc")], ["segment"], methods, FRACTIONS, [0], profile="quick", settings={})
    write_results(tmp_path, Experiment("many", "Many", "Methods.", tuple(runs)))
    figure = next(each for each in figures_of(report_of(tmp_path)) if each.name.endswith("curves"))
    drawing = figure.content.decode()
    width = float(re.findall(r'viewBox="0 0 (\S+)', drawing)[0])
    legend = drawing[drawing.index('id="legend_1"') :]
    places = [float(x) for x in re.findall(r"translate\((\S+) \S+\) scale", legend)]
    assert len(places) >= 11
    assert 0 <= min(places) <= max(places) <= width


def test_a_report_is_first_about_what_people_choose_between(tmp_path: Path) -> None:
    write_results(tmp_path, sweep(losses=("focal", "adaptive", "ce", "ece")))
    assert told_first(report_of(tmp_path)) == ["ece", "adaptive", "ce"]
    some = make_report(Results.read(tmp_path), about="adaptive", against=["focal", "ece"])
    assert told_first(some) == ["adaptive", "focal", "ece"]
    assert told_first(make_report(Results.read(tmp_path), against=["ece"])) == ["focal", "ece"]


def told_first(blocks: list[Block]) -> list[str]:
    headline = next(line for line in text_of(blocks).splitlines() if "keeps" in line)
    return re.findall(r"method (\S+) keeps", headline)


def test_a_report_may_be_about_another_method(tmp_path: Path) -> None:
    write_results(tmp_path, sweep(losses=("focal", "huber")))
    assert "method focal keeps" in text_of(report_of(tmp_path)), "what was run is what it is about"
    other = text_of(make_report(Results.read(tmp_path), about="huber"))
    assert "better than method huber" in other
    assert "huber better in" in other
    with pytest.raises(InputError, match="no run is of the method 'ece'; there are focal, huber"):
        make_report(Results.read(tmp_path), against=["ece"])
