import multiprocessing
import os
from pathlib import Path

import pytest

from tests.experiments.making import (
    broken_work,
    dying_work,
    failing_work,
    fake_work,
    made_cell,
)
from timbermark.errors import InputError
from timbermark.experiments.measuring import Cell, grouped, make_plan
from timbermark.experiments.results import CellsFile
from timbermark.experiments.running import (
    MeasureGroup,
    Progress,
    WorkerLostError,
    cost,
    run_groups,
    run_plan,
)

PLAN = make_plan(quick=True)
posix = pytest.mark.skipif(os.name != "posix", reason="ends a process by a signal")


@pytest.fixture
def prepared(monkeypatch):
    """Workers come from a process that has imported everything, and need not do so themselves."""
    if os.name == "posix":
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["tests.experiments.making"])
        monkeypatch.setattr(multiprocessing, "get_context", lambda kind: context)


def by_cell(found):
    return {measured.cell: measured for measured in found}


@pytest.mark.usefixtures("prepared")
@pytest.mark.parametrize("jobs", [1, 3])
def test_any_number_of_jobs_runs_every_cell_once(jobs):
    found = list(run_groups(grouped(PLAN.cells), fake_work, jobs))
    assert len(found) == len(PLAN.cells)
    assert by_cell(found) == {cell: made_cell(cell) for cell in PLAN.cells}


@pytest.mark.usefixtures("prepared")
@pytest.mark.parametrize("jobs", [1, 2])
def test_an_error_of_ours_comes_out_as_it_is(jobs):
    with pytest.raises(InputError, match="cannot be measured") as caught:
        list(run_groups(grouped(PLAN.cells), failing_work, jobs))
    assert caught.value.hint == "use another."


@pytest.mark.usefixtures("prepared")
def test_a_bug_in_a_worker_keeps_its_traceback():
    with pytest.raises(RuntimeError, match="ZeroDivisionError: a bug"):
        list(run_groups(grouped(PLAN.cells), broken_work, 2))


@posix
@pytest.mark.usefixtures("prepared")
def test_a_killed_worker_is_noticed(tmp_path):
    with pytest.raises(WorkerLostError, match="ended before its work was done"):
        run_plan(PLAN, tmp_path, jobs=2, work=dying_work)
    with CellsFile(tmp_path / "cells.csv") as file:
        assert file.finished


def test_the_same_numbers_in_one_process_and_in_two(shared):
    cells = [
        Cell("image_segmentation", "train", 0, "cluster", 0.1, "confidence"),
        Cell("image_segmentation", "holdout", 0, "outlier", 0.1, "distance"),
    ]
    work = MeasureGroup(Path(shared))
    alone, together = (by_cell(run_groups(grouped(cells), work, jobs)) for jobs in (1, 2))
    assert alone.keys() == together.keys() == set(cells)
    for cell in cells:
        assert alone[cell].measures == together[cell].measures


class Stopping:
    """Works like `fake_work` but is interrupted after some cells, and notes what it did."""

    def __init__(self, after):
        self.after, self.done = after, []

    def __call__(self, group, cells):
        for cell in cells:
            if len(self.done) == self.after:
                raise KeyboardInterrupt
            self.done.append(cell)
            yield made_cell(cell)


def test_a_run_that_was_ended_goes_on_without_repeating_a_cell(tmp_path):
    first, second = Stopping(after=30), Stopping(after=None)
    with pytest.raises(KeyboardInterrupt):
        run_plan(PLAN, tmp_path, work=first)
    path = tmp_path / "cells.csv"
    path.write_bytes(path.read_bytes()[:-9])  # as if killed within the last line
    found = run_plan(PLAN, tmp_path, work=second)
    assert found == {cell: made_cell(cell) for cell in PLAN.cells}
    assert len(second.done) == len(PLAN.cells) - 29
    assert set(first.done[:29]).isdisjoint(second.done)
    again = Stopping(after=0)
    assert run_plan(PLAN, tmp_path, work=again) == found
    assert again.done == []


def test_cells_of_a_quick_run_count_for_the_full_one(tmp_path):
    run_plan(PLAN, tmp_path, work=fake_work)
    full = make_plan(datasets=PLAN.datasets, seeds=1)
    more = Stopping(after=None)
    run_plan(full, tmp_path, work=more)
    assert set(more.done) == set(full.cells) - set(PLAN.cells)


def test_the_largest_groups_start_first(tmp_path):
    work = Stopping(after=None)
    run_plan(make_plan(seeds=1), tmp_path, work=work)
    order = list(dict.fromkeys(cell.dataset for cell in work.done))
    assert order[:2] == ["letter", "avila"]
    assert order[-1] == "image_segmentation"


def test_progress_adds_up(tmp_path):
    told = []
    progress = Progress(lambda *said: told.append(said), lambda c: told.append(c))
    with pytest.raises(KeyboardInterrupt):
        run_plan(PLAN, tmp_path, progress=progress, work=Stopping(after=3))
    (done, whole), *steps = told
    assert (done, len(steps)) == (0, 3)
    assert whole == pytest.approx(sum(map(cost, PLAN.cells)))
    told.clear()
    run_plan(PLAN, tmp_path, progress=progress, work=fake_work)
    assert told[0][0] == pytest.approx(sum(steps))
    assert told[0][0] + sum(told[1:]) == pytest.approx(whole)
