"""What the page decides by itself, without a browser."""

from pathlib import Path

import pytest
from tests.studio.page_scripts import MISSING, run_page

pytestmark = pytest.mark.skipif(MISSING, reason="node is not installed (Debian's package nodejs)")


def test_a_refused_change_leaves_the_others(tmp_path: Path) -> None:
    said = run_page(
        tmp_path,
        """
        const queue = [...Array(10).keys()].map((i) => (
          { key: `k${i}`, slide: "1", add: [{ class: "cell", at: [i, i] }] }
        ));
        queue[5].add = [{ class: "cell", outline: [[0, 0], [9, 9], [9, 0], [0, 9]] }];
        const stored = [];
        serve((url, changes) => {
          if (changes?.some((each) => each.add[0].outline)) return [422, { error: "it crosses itself" }];
          stored.push(...(changes || []).map((each) => each.key));
          return [200, { version: "1", classes: {}, all: [] }];
        });
        const p = page({ queue });
        await p.flush();
        answer({ stored, left: p.queue.length, says: p.failure });
        """,
    )
    assert said["stored"] == [f"k{i}" for i in range(10) if i != 5]
    assert said["left"] == 0
    assert said["says"] == "Not saved: it crosses itself"


@pytest.mark.parametrize(
    ("zoom", "clicks", "wanted"),
    [
        # At 0.5 µm/px, 13 pixels are 6.5 µm: a neighbour.
        (0, "click(100), click(113)", ["cell 100,100", "cell 113,100"]),
        (0, "click(100), pick('T'), click(113)", ["T 113,100", "cell 100,100"]),
        (-2, "click(100), click(150, { altKey: true })", ["cell 100,100", "not a cell 150,100"]),
        (-2, "click(100), click(112, { shiftKey: true })", []),  # the dot under the pointer
        (0, "click(100), click(105)", ["cell 100,100"]),
        (0, "click(100), pick('T'), click(105)", ["T 105,100"]),
        (-4, "click(100), click(132, { detail: 2 })", ["cell 100,100"]),  # the hand moved by two pixels
        (4, "click(100), click(100.5)", ["cell 100,100"]),
        (4, "click(100), click(103)", ["cell 100,100", "cell 103,100"]),  # far apart on the screen
    ],
)
@pytest.mark.parametrize("saved", [True, False])
def test_a_click_marks_the_cell_under_it_and_no_neighbour(
    tmp_path: Path, zoom: int, clicks: str, wanted: list[str], saved: bool
) -> None:
    said = run_page(
        tmp_path,
        f"""
        const p = page({{ zoom: {zoom} }});
        p.flush = () => {{ if ({str(saved).lower()}) p.marks.forEach((item) => {{ delete item.waits; }}); }};
        const pick = (name) => p.pick(name);
        const click = (x, keys) => p.click({{ latlng: {{ lat: -100, lng: x }}, originalEvent: keys }});
        {clicks};
        answer(marked(p));
        """,
    )
    assert said == wanted


def test_a_review_accepts_what_the_suggesting_run_found_and_nothing_else(tmp_path: Path) -> None:
    said = run_page(
        tmp_path,
        """
        const sent = [], p = page();
        serve((url, body) => { if (body) sent.push(body.result); return [200, {}]; });
        p.enter({ box: [0, 0, 9, 9], number: 1, of: 1 }, "r1");
        p.result = "r2";
        await p.done();
        const says = p.failure;
        p.result = "r1";
        await p.done();
        answer({ sent, says, events: p.events.map(([name, value]) => `${name} ${value.result}`) });
        """,
    )
    assert said["sent"] == ["r1"]
    assert "Another run suggested this region" in said["says"]
    assert said["events"] == ["reviewing r1", "reviewing "]


def test_a_new_class_with_the_name_of_another_chooses_that_one(tmp_path: Path) -> None:
    said = run_page(
        tmp_path,
        """
        const sent = [], p = page(), classes = { cell: "#112233", T: "#445566" };
        Object.assign(p, { names: ["cell", "T"], newClass: " T " });
        serve((url, body) => { if (body) sent.push(body); return [200, { version: "1", classes }]; });
        await p.addClass();
        answer({ sent, chosen: p.chosen, classes: p.classes });
        """,
    )
    assert said["sent"] == [{"name": "T"}]
    assert said["chosen"] == "T"
    assert said["classes"] == {"cell": "#112233", "T": "#445566"}


def test_the_page_says_why_a_class_was_not_changed(tmp_path: Path) -> None:
    said = run_page(
        tmp_path,
        """
        const p = page(), says = [];
        p.newClass = "T";
        serve(() => [507, { error: "the disk is full" }]);
        for (const change of [() => p.addClass(), () => p.recolor("cell", "#112233")]) {
          await change();
          says.push(p.failure);
        }
        answer(says);
        """,
    )
    assert said == [
        f"The {what}: the disk is full" for what in ("class was not added", "colour was not changed")
    ]


def test_every_region_has_its_turn_on_several_slides(tmp_path: Path) -> None:
    said = run_page(
        tmp_path,
        """
        const about = { box: [0, 0, 9, 9], result: "r4", done: false };
        const regions = ["1", "2", "2"].map((slide) => ({ slide, ...about }));
        serve((url) => [200, url === "/suggestions"
          ? { run: 4, ready: true, problem: "", regions } : { version: "1", classes: {}, all: [] }]);
        const shown = [];
        let p = page({ slide: "1" });
        for (let i = 0; i < 5; i++) {
          await p.next();
          const slide = location.href.match(/slide=(\\d+)/)?.[1];
          location.href = "";
          if (slide) { p = page({ slide }); p.open(); }
          shown.push(`${p.slide.id}: ${p.region?.number} ${p.region?.result}`);
        }
        answer(shown);
        """,
    )
    assert said == ["1: 1 r4", "2: 2 r4", "2: 3 r4", "1: 1 r4", "2: 2 r4"]
