"""Running groups of cells in one process or several, with the same numbers.

Each worker process is given one group at a time, the largest first, and sends every cell back as
soon as it is done; only this process writes files.

A run of the grid measures what is missing and keeps what is done.
"""

from __future__ import annotations

import multiprocessing
import signal
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, cast

from timbermark.errors import TimbermarkError
from timbermark.experiments.measuring import Cell, Group, Measured, Plan, grouped
from timbermark.experiments.results import CellsFile

Work = Callable[[Group, list[Cell]], Iterator[Measured]]


class WorkerLostError(TimbermarkError, RuntimeError):
    """A worker process ended without a word."""


@dataclass(frozen=True, slots=True)
class MeasureGroup:
    """The work on a group: load its data set from ``folder`` and measure its cells."""

    folder: Path | None

    def __call__(self, group: Group, cells: list[Cell]) -> Iterator[Measured]:
        """Give out cells as they are done."""
        from timbermark.experiments.datasets import load_dataset
        from timbermark.experiments.measuring import measure_cells

        return measure_cells(load_dataset(group.dataset, self.folder), cells)


def run_groups(groups: Mapping[Group, list[Cell]], work: Work, jobs: int) -> Iterator[Measured]:
    """Run groups in the order given and give out each cell as it is done.

    With one job everything happens in this process. ``work`` must be something that can be sent
    to another process. Raises what the work raises, WorkerLostError where a process was killed; the
    other processes are then ended.
    """
    if jobs == 1 or len(groups) < 2:
        for group, cells in groups.items():
            yield from work(group, cells)
        return
    yield from _run_in_processes(groups, work, min(jobs, len(groups)))


def _run_in_processes(
    groups: Mapping[Group, list[Cell]], work: Work, jobs: int
) -> Iterator[Measured]:
    waiting = list(groups.items())
    # A fresh process: one that is forked would inherit threads and locks in any state.
    context = multiprocessing.get_context("spawn")
    workers: dict[Connection[Any, Any], Any] = {}
    try:
        for _ in range(jobs):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(theirs, work), daemon=True)
            process.start()
            theirs.close()
            ours.send(waiting.pop(0))
            workers[ours] = process
        while workers:
            for ready in wait(list(workers)):
                line = cast("Connection[Any, Any]", ready)
                try:
                    said = line.recv()
                except EOFError:
                    raise WorkerLostError(
                        "A worker process ended before its work was done.",
                        hint="memory may be short: use --jobs 1. What is finished is kept.",
                    ) from None
                if isinstance(said, Measured):
                    yield said
                elif said is not None:
                    raise said
                elif waiting:
                    line.send(waiting.pop(0))
                else:
                    line.send(None)
                    workers.pop(line).join()
                    line.close()
    finally:
        for line, process in workers.items():
            process.terminate()
            process.join()
            line.close()


def _serve(line: Connection[Any, Any], work: Work) -> None:
    """Run a worker: groups come in, cells go out, None after the last of a group."""
    # The first process is asked to stop by the user and tells this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        while (task := line.recv()) is not None:
            for measured in work(*task):
                line.send(measured)
            line.send(None)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return  # the first process was killed: nobody waits for more
    except TimbermarkError as error:
        line.send(error)
    except Exception:
        line.send(RuntimeError(f"A worker process failed.\n{traceback.format_exc()}"))


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
