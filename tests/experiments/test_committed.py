"""The results in docs/ follow from the cells beside them, and keep the promises made of them."""

import shutil
from pathlib import Path

import pytest

from timbermark.experiments.cells_file import CellsFile
from timbermark.experiments.grid import METRICS, make_plan
from timbermark.experiments.page import make_page, page_to_markdown
from timbermark.experiments.results import collect, to_csv

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
