"""A run of the grid: measure what is missing, keep what is done."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from timbermark.experiments.cells_file import CellsFile
from timbermark.experiments.grid import Cell, Group, Plan, grouped
from timbermark.experiments.measuring import Measured
from timbermark.experiments.running import MeasureGroup, Work, run_groups

CELLS = "cells.csv"
# Rows of the training file times classes: what training takes, about.
_SIZES = {
    "avila": 10430 * 12,
    "image_segmentation": 157 * 7,
    "letter": 15000 * 26,
    "optdigits": 3812 * 10,
    "pendigits": 7483 * 10,
    "wine_quality": 4872 * 7,
}
_LEAST_SIZE = 10_000
"""What a cell takes however few rows it has, in the same measure."""


@dataclass(frozen=True, slots=True)
class Progress:
    """What a run has to say. ``start`` is told the finished and the whole cost, in no unit;
    ``advance`` the cost of each cell that is done."""

    start: Callable[[float, float], None]
    advance: Callable[[float], None]


SILENT = Progress(lambda done, whole: None, lambda cost: None)


def cost(cell: Cell) -> float:
    """Return what a cell takes, compared with others; it orders work and tells the time left."""
    size = _LEAST_SIZE + _SIZES.get(cell.dataset, 0)
    return size * (0.01 if cell.method == "wrong" and cell.candidates == "train" else 1.0)


def run_plan(
    plan: Plan,
    out: Path,
    data: Path | None = None,
    jobs: int = 1,
    progress: Progress = SILENT,
    work: Work | None = None,
) -> dict[Cell, Measured]:
    """Measure the plan's cells that ``out`` does not hold yet; gives all of the plan's cells.

    Every cell is on disk as soon as it is done, so that a run can be ended at any time and go on
    later. The numbers are the same for any number of jobs.
    """
    out.mkdir(parents=True, exist_ok=True)
    with CellsFile(out / CELLS) as file:
        wanted = plan.cells
        missing = [cell for cell in wanted if cell not in file.finished]
        whole, left = sum(map(cost, wanted)), sum(map(cost, missing))
        progress.start(whole - left, whole)
        for measured in run_groups(_largest_first(missing), work or MeasureGroup(data), jobs):
            file.add(measured)
            progress.advance(cost(measured.cell))
        return {cell: file.finished[cell] for cell in wanted}


def _largest_first(cells: list[Cell]) -> dict[Group, list[Cell]]:
    """Return groups ordered so that a long one is never the last to start."""
    groups = grouped(cells)
    ordered = sorted(groups, key=lambda group: -sum(map(cost, groups[group])))
    return {group: groups[group] for group in ordered}
