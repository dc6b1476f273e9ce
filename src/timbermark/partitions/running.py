"""Passes over the parts of a table: on threads, or wherever a scheduler of Dask sends them.

Every part gives one result, and results are merged in groups, so that no more than a few of them
are in one place. Merging must not care about order. A worker that dies loses nothing but time: Dask
runs its tasks again elsewhere.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar
from uuid import uuid4

from timbermark.errors import InputError, TimbermarkError
from timbermark.kernels.workers import Workers, count_threads
from timbermark.partitions.computing import OWN_FAULT, SMALLER, compute_parts
from timbermark.partitions.opening import need_dask
from timbermark.partitions.parts import Block, Part, Parts

_MERGED_AT_ONCE = 8
_PATIENCE = "15s"
"""How long a scheduler may take to answer."""

Result = TypeVar("Result")
Say = Callable[[str], None]


class Pass(Protocol[Result]):
    """What is done with every block of rows."""

    @property
    def title(self) -> str:
        """Return the title of the pass that is shown while it runs."""

    def look(self, block: Block) -> Result:
        """Return the result of one block. Raises InputError for rows that cannot be used."""

    def merge(self, results: Sequence[Result]) -> Result:
        """Return the combined result of several blocks, which may come in any order."""


def run_pass(table: Parts, step: Pass[Result], say: Say = lambda said: None) -> Result:
    """Return the result of a pass over all rows of a table.

    Raises InputError if the table has no rows, if a part cannot be used, which it names, or where
    workers die of it or their scheduler is gone.
    """
    parts = [part for part in table.parts if part.n_rows]
    if not parts:
        raise InputError("The table has no rows.", hint="give one that has some.")
    count = _Counter(sum(part.n_rows for part in parts), step.title, say)
    with warnings.catch_warnings():
        # What threads do to the filters for warnings is undone here.
        warnings.simplefilter("ignore")
        if table.in_memory:
            return _run_in_memory(parts, step, count)
        root, looks = _plan(parts, step)
        names = [part.name for part in parts]
        found: Result = compute_parts(root, looks, names, lambda i: count.add(parts[i].n_rows))
        return found


@contextmanager
def connect(scheduler: str) -> Iterator[None]:
    """Send passes to the scheduler at an address; "local" keeps them on threads of this machine.

    Raises InputError if it does not answer or has no workers, MissingLibraryError without Dask.

    >>> with connect("local"):
    ...     pass
    """
    if scheduler == "local":
        yield
        return
    need_dask("to send passes to a cluster")
    from distributed import Client

    try:
        # One that fails must not be what later passes are sent to.
        client = Client(scheduler, timeout=_PATIENCE, set_as_default=False)
    except (OSError, ValueError, TimeoutError) as error:
        said = " ".join(str(error).split())[:200]
        raise InputError(
            f"The scheduler {scheduler} does not answer ({said}).",
            hint="give an address as tcp://10.0.0.1:8786, or local for this machine's threads.",
        ) from None
    with client, client.as_current():
        if not client.scheduler_info(n_workers=-1)["workers"]:
            raise InputError(f"The scheduler {scheduler} has no workers.", hint="start some first.")
        yield


class _Counter:
    """Says how many rows a pass has seen."""

    def __init__(self, n_rows: int, title: str, say: Say) -> None:
        self.n_rows, self.title, self.say, self.done = n_rows, title, say, 0
        self.add(0)

    def add(self, n_rows: int) -> None:
        self.done += n_rows
        self.say(f"{self.title}: {self.done:,} of {self.n_rows:,} rows")


def _look(step: Pass[Any], part: Part, pieces: Sequence[Any] = ()) -> Any:
    """Return the result of one part, None if it has no rows."""
    found = None
    try:
        for block in part.read(*pieces):
            told = step.look(block)
            found = told if found is None else step.merge([found, told])
    except TimbermarkError as error:
        if part.name in error.message or part.name == "rows":
            raise
        raise InputError(f"{part.name}: {error.message}", hint=error.hint) from None
    except MemoryError:
        raise InputError(f"{part.name} does not fit in memory.", hint=SMALLER) from None
    except Exception as error:
        error.add_note(f"{OWN_FAULT}{part.name}.")
        raise
    return found


def _merge(step: Pass[Any], results: Sequence[Any]) -> Any:
    known = [result for result in results if result is not None]
    return step.merge(known) if len(known) > 1 else known[0] if known else None


def _run_in_memory(parts: Sequence[Part], step: Pass[Result], count: _Counter) -> Result:
    def look(part: Part) -> Any:
        found = _look(step, part)
        count.add(part.n_rows)
        return found

    with Workers(count_threads(None)) as workers:
        merged: Result = _merge(step, workers.map(look, parts))
    return merged


def _plan(parts: Sequence[Part], step: Pass[Any]) -> tuple[Any, list[Any]]:
    """Return a pass as a delayed result, and its tasks that look at parts."""
    from dask.delayed import delayed

    # One node for what all tasks need: a worker that comes later gets it from the graph. Its key
    # is its own: other drivers may use the same scheduler at the same time.
    shared = delayed(step, name=f"timbermark-pass-{uuid4().hex}", traverse=False)
    look, merge = delayed(_look, pure=False), delayed(_merge, pure=False)
    looks = [
        look(shared, delayed(_without_pieces(part), traverse=False), list(part.pieces))
        for part in parts
    ]
    level = looks
    # Once at least: the result must not be the task of a part, which is released when it is done.
    while level is looks or len(level) > 1:
        groups = [level[i : i + _MERGED_AT_ONCE] for i in range(0, len(level), _MERGED_AT_ONCE)]
        level = [merge(shared, group) for group in groups]
    return level[0], looks


def _without_pieces(part: Part) -> Part:
    if not part.pieces:
        return part
    from dataclasses import replace

    return replace(part, pieces=())  # type: ignore[type-var]
