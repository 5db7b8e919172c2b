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
