"""`timbermark reproduce`: the paper's tables and figures, on this machine."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from timbermark.cli.app import app
from timbermark.errors import InputError, require_library

if TYPE_CHECKING:
    from timbermark.experiments.reproducing import Progress


@app.command()
def reproduce(
    table: Annotated[
        int | None, typer.Option(help="One table, 1 to 8, without figures; all if not given.")
    ] = None,
    dataset: Annotated[
        list[str] | None, typer.Option(help="A data set; may be given several times.")
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(help="How many splits and models.", show_default="3; quick: 1")
    ] = None,
    jobs: Annotated[int, typer.Option(help="Processes; the numbers are the same for any.")] = 2,
    out: Annotated[Path, typer.Option(help="Where results go and are taken up again.")] = Path(
        "timbermark-reproduction"
    ),
    data: Annotated[
        Path | None,
        typer.Option(help="Folder of the data sets.", show_default="TIMBERMARK_DATA, or download"),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A part that takes a minute or two.")
    ] = False,
) -> None:
    """Measure the paper's grid and write its tables and figures, ours beside the paper's.

    A run that was ended goes on where it was when it is started again.
    """
    if jobs < 1:
        raise InputError(f"jobs={jobs} must be at least 1.", hint="2 is a good start.")
    require_library("jinja2", "reproduce", "to write the page of the reproduction")
    require_library("matplotlib", "reproduce", "to draw the figures of the reproduction")
    from timbermark.boosting.warmup import warm_up
    from timbermark.experiments.grid import make_plan
    from timbermark.experiments.page import overall_lines
    from timbermark.experiments.reporting import write_report
    from timbermark.experiments.reproducing import run_plan
    from timbermark.experiments.results import collect
    from timbermark.experiments.sources import find_files
    from timbermark.kernels.compile import is_cold
    from timbermark.kernels.training import train_trees

    plan = make_plan(table, dataset or [], seeds, quick)
    # Before anything is measured: a file that is absent or wrong should not end a long run.
    for name in plan.datasets:
        find_files(name, data)
    if is_cold(train_trees):
        _say("compiling the kernels, once")
        warm_up()
    with _bar() as progress:
        finished = run_plan(plan, out, data, jobs, progress)
    _say("drawing figures and writing tables" if table is None else "writing tables")
    paths = write_report(plan, finished, out, data, with_figures=table is None)
    for text in [*overall_lines(plan, collect(plan, finished)), *map(str, paths)]:
        typer.echo(text)


@contextmanager
def _bar() -> Iterator[Progress]:
    """Show progress on stderr, only on a terminal: a bar with the remaining time."""
    from timbermark.experiments.reproducing import Progress

    if not sys.stderr.isatty():
        yield Progress(_tell_start, lambda cost: None)
        return
    from rich.console import Console
    from rich.progress import BarColumn, TaskProgressColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (BarColumn(), TaskProgressColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Bar("cells", *columns, console=Console(stderr=True), speed_estimate_period=600) as bar:
        task = bar.add_task("", total=None)

        def start(done: float, whole: float) -> None:
            _tell_start(done, whole)
            # What was done before took no time now: it would make the rest look fast.
            bar.update(task, total=whole - done)

        yield Progress(start, lambda cost: bar.advance(task, cost))


def _tell_start(done: float, whole: float) -> None:
    if done >= whole:
        _say("all cells are there already")
    elif done > 0:
        _say(f"going on: {done / whole:.0%} is there already")


def _say(text: str) -> None:
    print(f"timbermark: {text}", file=sys.stderr)
