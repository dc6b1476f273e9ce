"""A progress bar for work that takes more than a moment: on stderr, and only for a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from timbermark.boosting.fitting import no_progress


@contextmanager
def training_bar(
    n_iterations: int, wanted: bool, what: str = "iterations"
) -> Iterator[Callable[[int], None]]:
    """Show how many of ``n_iterations`` are done; silent unless wanted and stderr is a terminal.

    >>> with training_bar(10, wanted=False) as progress:
    ...     progress(10)
    """
    if not wanted or not sys.stderr.isatty():
        yield no_progress
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(what, *columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=n_iterations)
        yield lambda done: progress.update(task, completed=done)


@contextmanager
def step_bar(wanted: bool) -> Iterator[Callable[[str], None]]:
    """Show which step is under way; silent unless wanted and stderr is a terminal.

    >>> with step_bar(False) as say:
    ...     say("reading the model")
    """
    if not wanted or not sys.stderr.isatty():
        yield lambda said: None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    spinner = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*spinner, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=None)
        yield lambda said: progress.update(task, description=said)
