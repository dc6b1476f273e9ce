"""The results in docs/ follow from the cells beside them, and keep the promises made of them."""

import csv
import shutil
from pathlib import Path

import pytest

from timbermark.experiments.measuring import METRICS, make_plan
from timbermark.experiments.page import make_page, page_to_markdown
from timbermark.experiments.results import CellsFile, collect, to_csv

DOCS = Path(__file__).parents[2] / "docs"
pytestmark = pytest.mark.skipif(
    not (DOCS / "reproduction").exists(), reason="the documentation is not here"
)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    path = tmp_path_factory.mktemp("cells") / "cells.csv"
    shutil.copy(DOCS / "reproduction" / "cells.csv", path)  # opening it is opening it for more
    with CellsFile(path) as file:
        return dict(file.finished)


PLAN = make_plan(seeds=3)


def test_all_cells_are_there(finished):
    assert set(finished) == set(PLAN.cells)


def test_results_are_the_means_of_the_cells(finished):
    written = (DOCS / "reproduction" / "results.csv").read_text()
    assert to_csv(collect(PLAN, finished)) == written


def test_the_page_shows_these_tables(finished):
    page = page_to_markdown(make_page(PLAN, collect(PLAN, finished), finished))
    written = (DOCS / "reproduction.md").read_text()
    for line in page.splitlines():
        if line.startswith("| "):
            assert line in written, line


@pytest.mark.parametrize("metric", METRICS)
def test_dashes_are_where_they_are_due(finished, metric):
    for cell, measured in finished.items():
        value = getattr(measured.measures, metric)
        too_few = cell.method == "wrong" and measured.n_wrong < measured.n
        nobody_else = metric == "adjusted_resilience" and measured.n == measured.k
        nobody_took = metric == "robustness" and measured.measures.effectiveness == 0.0
        assert (value != value) == (too_few or nobody_else or nobody_took), cell


def read_rows(name):
    with (DOCS / "paper" / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def table_cells(beginning):
    """The cells of the table in paper.md whose first line begins so: {row: {column: text}}."""
    text = (DOCS / "paper.md").read_text(encoding="utf-8")
    lines = text[text.index(beginning) :].split("\n\n")[0].splitlines()
    split = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {row[0]: dict(zip(split[0][1:], row[1:], strict=True)) for row in split[2:]}


def test_the_tables_of_the_paper_in_practice_are_those_of_its_files():
    shown = table_cells("| strategy, selection |")
    marks = {
        (row["set"], f"{row['strategy']}, {row['selection']}", row["mode"]): row
        for row in read_rows("marks.csv")
    }
    for name, cells in shown.items():
        for data, cell in cells.items():
            if cell == "–":
                assert (data, name, "exact") not in marks
                continue
            for mode, part in zip(("exact", "lazy"), cell.split(" / "), strict=True):
                row = marks[data, name, mode]
                took, changed = part.removesuffix(" %").split(" · ")
                assert float(took) == pytest.approx(float(row["set_share"]), abs=0.0051)
                assert float(changed) == pytest.approx(100 * float(row["changed"]), abs=0.051)
    left = read_rows("survives.csv")
    attacks = list(dict.fromkeys(row["attack"] for row in left))
    shown = table_cells("| attack | pendigits, paper")
    assert len(shown) == len(attacks)
    for cells, attack in zip(shown.values(), attacks, strict=True):
        for row in (row for row in left if row["attack"] == attack):
            told = cells[f"{row['set']}, {row['mark']}"].split(", ")
            for bits, name in zip(told, ("score_bits", "label_bits"), strict=True):
                assert float(bits) == pytest.approx(float(row[name]), abs=0.51)


def test_the_default_of_marks_in_place_sets_every_bit():
    rows = [
        row for row in read_rows("marks.csv")
        if (row["strategy"], row["selection"]) == ("cluster", "confidence")
    ]  # fmt: skip
    assert len({row["set"] for row in rows}) == 6
    assert {row["set_share"] for row in rows} == {"1.0"}
