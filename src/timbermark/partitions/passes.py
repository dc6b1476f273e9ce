"""Passes over the parts of a table: on threads, or wherever a scheduler of Dask sends them.

Every part gives one result, and results are merged in groups, so that no more than a few of them
are in one place. Merging must not care about order. A worker that dies loses nothing but time: Dask
runs its tasks again elsewhere.

`open_parts` says which tables are in parts; `pick_rows` takes the rows whose numbers have the
lowest hashes.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar
from uuid import uuid4

import numpy as np

from timbermark.errors import InputError, MissingLibraryError, TimbermarkError
from timbermark.kernels.hashing import hash_rows
from timbermark.kernels.workers import Workers, count_threads
from timbermark.partitions.dask_tables import (
    OWN_FAULT,
    SMALLER,
    compute_parts,
    is_dask,
    open_collection,
)
from timbermark.partitions.parquet import open_files
from timbermark.partitions.parts import Block, Part, Parts


def is_in_parts(table: Any) -> bool:
    """Return whether a table is one of Dask, or the names of Parquet files.

    >>> is_in_parts("rows/*.parquet"), is_in_parts([[1.0, 2.0]])
    (True, False)
    """
    if isinstance(table, Parts | str | os.PathLike):
        return True
    listed = isinstance(table, list) and len(table) > 0
    return is_dask(table) or (listed and all(isinstance(t, str | os.PathLike) for t in table))


def open_parts(table: Any, y: Any, features: Sequence[str] | None, what: str) -> Parts:
    """Return a table in parts.

    ``y``: its labels, or the name of the label column of Parquet files. ``features``: the names of
    the columns that a model takes, if it has any. ``what``: what the rows are called in messages.

    Raises InputError for tables that cannot be used, MissingLibraryError without Dask.
    """
    if isinstance(table, Parts):
        return table
    need_dask("to read tables that do not fit in memory")
    if is_dask(table):
        return open_collection(table, y, features, what)
    if y is not None and not isinstance(y, str):
        raise InputError(
            f"The labels of {what} in files are not a column of these.",
            hint="give the name of their label column.",
        )
    return open_files(table, features, y)[0]


def need_dask(purpose: str) -> None:
    """Raise MissingLibraryError where Dask is not installed."""
    try:
        import dask  # noqa: F401
        import distributed  # noqa: F401
    except ImportError:
        raise MissingLibraryError.for_extra("dask", purpose) from None


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


_EXTRA_DEVIATIONS = 6.0
"""Standard deviations that are added to a limit on hashes, so that enough rows are below it."""


def place_keys(start: int, n: int, seed: int) -> np.ndarray:
    """Return uint64 [n]: hashes of the numbers of rows, from ``start`` on.

    >>> bool((place_keys(0, 10, seed=1)[5:] == place_keys(5, 5, seed=1)).all())
    True
    """
    keys = np.empty(n, np.uint64)
    numbers = np.arange(start, start + n, dtype=np.uint64)[:, None]
    hash_rows(numbers, np.uint64(seed & 0xFFFFFFFFFFFFFFFF), keys)
    return keys


def hash_limit(k: int, n: int) -> int | None:
    """Return a bound that the ``k`` lowest of ``n`` hashes do not exceed, None for k >= n.

    >>> hash_limit(10, 10) is None, hash_limit(10, 10**6) < 2**52
    (True, True)
    """
    if k >= n:
        return None
    share = (k + _EXTRA_DEVIATIONS * np.sqrt(k) + 10) / n
    return int(min(share, 1.0) * (2.0**64 - 2048))


def pick_rows(table: Parts, k: int, seed: int) -> Any:
    """Return at most ``k`` rows, float64 [k, d], of a table of numbers, in the order of hashes.

    Raises InputError, which names the part, for what is no number.
    """
    return run_pass(table, _Picking(k, seed, hash_limit(k, table.n_rows)))[0]


@dataclass(frozen=True, slots=True)
class _Picking:
    """The pass that keeps the rows with the lowest hashes."""

    k: int
    seed: int
    limit: int | None
    title = "reading rows"

    def look(self, block: Block) -> tuple[np.ndarray, np.ndarray]:
        keys = place_keys(block.start, len(block.rows), self.seed)
        rows = _numbers(block.rows)
        if self.limit is not None:
            kept = keys <= np.uint64(self.limit)
            rows, keys = rows[kept], keys[kept]
        return self.merge([(rows, keys)])

    def merge(
        self, results: Sequence[tuple[np.ndarray, np.ndarray]]
    ) -> tuple[np.ndarray, np.ndarray]:
        rows, keys = (np.concatenate(part) for part in zip(*results, strict=True))
        order = np.argsort(keys, kind="stable")[: self.k]
        return rows[order], keys[order]


def _numbers(rows: Any) -> np.ndarray:
    try:
        if hasattr(rows, "iloc"):
            return np.asarray(rows.to_numpy(np.float64, na_value=np.nan))
        return np.asarray(rows, np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"There is something that is no number ({error}).",
            hint="give the codes that the model was trained on.",
        ) from None
