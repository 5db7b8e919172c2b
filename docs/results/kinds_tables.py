"""Write the tables of kinds from kinds.json into their page: ``python docs/results/kinds_tables.py``."""

import json

from record import HERE, ROOT
from tables import write_tables

from sparseshot.pages import table

PAGE = ROOT / "docs" / "how-to" / "classes.md"
RESULTS = json.loads((HERE / "kinds.json").read_text())


def scores() -> str:
    """Return F1 of each kind, and on the cells of InstanSeg."""
    parts = {
        "brca_m2c": "starter",
        "classify, ours": "starter, fewer",
        "classify, InstanSeg": "InstanSeg, fewer",
    }
    rows = []
    for part, cells in parts.items():
        for number, (marks, f1) in enumerate(RESULTS.get(part, {}).items()):
            each = [f"{value:.3f}" for value in f1]
            rows.append(["" if number else cells, marks, *each, *["–"] * (4 - len(each))])
    return table(["cells", "marks", "lymphocyte", "tumour", "stromal", "mean"], rows, text_columns=2)


def given_found() -> str:
    """Return F1 of the kind of found cells of CRCHisto."""
    rows = [[marks, *(f"{value:.3f}" for value in f1)] for marks, f1 in RESULTS.get("crchisto", {}).items()]
    return table(["marks", "epithelial", "fibroblast", "inflammatory", "mean"], rows)


def held() -> str:
    """Return the coverage of intervals, and the times."""
    rows = [
        [marks, f"{100 * share:.0f} %", f"{width:.2f}"]
        for marks, (share, width) in RESULTS.get("coverage", {}).items()
    ]
    return table(["marks", "intervals that hold the truth", "mean width"], rows)


def seconds() -> str:
    """Return the times."""
    return table(["cells", "kinds", "learn, s", "assign to all, s"], RESULTS.get("speed", []))


TABLES = {
    "kinds-f1": (PAGE, scores),
    "kinds-crchisto": (PAGE, given_found),
    "kinds-coverage": (PAGE, held),
    "kinds-speed": (PAGE, seconds),
}

if __name__ == "__main__":
    write_tables(TABLES)
