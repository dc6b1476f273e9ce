"""The progress bar of an inquiry: questions and bits, on stderr, and only for a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def questions_bar(wanted: bool) -> Iterator[Callable[[int, int, float], None] | None]:
    """Yield a function that shows questions asked and evidence; None if not wanted.

    >>> with questions_bar(False) as bar:
    ...     print(bar)
    None
    """
    if not wanted or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
    )

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[bits]:.1f} bits"))
    with Progress(
        "questions", *columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True
    ) as progress:
        task = progress.add_task("", total=None, bits=0.0)
        yield lambda done, total, bits: progress.update(
            task, completed=done, total=total, bits=bits
        )
