"""Data frames and arrays of Dask as tables in parts, and tasks of Dask, one for each part.

`timbermark.partitions.passes` plans the passes over them.
"""

from __future__ import annotations

import sys
from asyncio import CancelledError as AsyncCancelledError
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass
from itertools import pairwise
from traceback import walk_tb
from typing import Any

import numpy as np

from timbermark.errors import InputError, TimbermarkError
from timbermark.files.tables import plain_name
from timbermark.kernels.workers import count_threads
from timbermark.partitions.parts import BLOCK_ROWS, Block, Parts

SMALLER = "give more and smaller partitions, or workers with more memory."
OWN_FAULT = "This happened while timbermark looked at "
"""Begins the note of an error that no task of a table is to blame for."""


def compute_parts(
    root: Any,
    tasks: Sequence[Any],
    names: Sequence[str],
    done: Callable[[int], None] = lambda number: None,
) -> Any:
    """Return the value of ``root``, a delayed object that needs ``tasks``, one for each part.

    They run on the cluster whose client is in use, or on threads. ``names``: of the parts;
    ``done``: called with the number of each part whose task is finished. Raises InputError, which
    names the part, if what computes it fails, or if workers die of it; and if the scheduler is
    gone.
    """
    client = find_client()
    if client is None:
        return _compute_on_threads(root, tasks, names, done)
    return _compute_on_cluster(client, root, tasks, names, done)


def find_client() -> Any:
    """Return the client of Dask that is in use, None if there is none."""
    if "distributed" not in sys.modules:
        return None
    from distributed import Client

    try:
        client = Client.current()
    except ValueError:
        return None
    return client if client.status == "running" else None


def _compute_on_threads(
    root: Any, tasks: Sequence[Any], names: Sequence[str], done: Callable[[int], None]
) -> Any:
    from dask.callbacks import Callback
    from dask.threaded import get

    number = {task.key: i for i, task in enumerate(tasks)}

    def finished(key: Any, result: Any, graph: Any, state: Any, worker: Any) -> None:
        if key in number:
            done(number[key])

    try:
        with Callback(posttask=finished):
            return get(dict(root.dask), root.key, num_workers=count_threads(None))
    except Exception as error:
        part = _find_part(error, dict(root.dask), number)
        if part is not None:
            _blame(error, names[part])
        raise


def _compute_on_cluster(
    client: Any,
    root: Any,
    tasks: Sequence[Any],
    names: Sequence[str],
    done: Callable[[int], None],
) -> Any:
    from distributed import as_completed
    from distributed.scheduler import KilledWorker

    number = {task.key: i for i, task in enumerate(tasks)}
    name = None
    try:
        whole, *single = client.compute([root, *tasks], optimize_graph=False)
        waiting = as_completed(single)
        del single  # a result that was merged need not be kept
        for one in waiting:
            if one.status == "error":
                name = names[number[one.key]]
                one.result()
            if one.status != "finished":
                break  # the whole result says why
            done(number[one.key])
            one.release()
        return whole.result()
    except KilledWorker as error:
        raise InputError(
            f"Workers died again and again of {name or 'one task'} ({error.last_worker.address}), "
            "which most likely needs more memory than they have.",
            hint=SMALLER,
        ) from None
    except (Exception, CancelledError, AsyncCancelledError) as error:
        if name is not None:
            _blame(error, name)
        elif isinstance(error, MemoryError):
            raise InputError("A worker is out of memory.", hint=SMALLER) from None
        elif isinstance(error, OSError | TimeoutError | CancelledError | AsyncCancelledError):
            raise InputError(
                f"The scheduler or its workers are gone ({type(error).__name__}).",
                hint="see whether they run, and try again; nothing was written.",
            ) from None
        raise


def _blame(error: BaseException, name: str) -> None:
    """Raise InputError for an error of a task that computes a part; return for all others."""
    noted = any(note.startswith(OWN_FAULT) for note in getattr(error, "__notes__", ()))
    if noted or isinstance(error, TimbermarkError):
        return
    if isinstance(error, MemoryError):
        raise InputError(f"{name} does not fit in memory.", hint=SMALLER) from None
    said = " ".join(f"{type(error).__name__}: {error}".split())[:200].rstrip(": .")
    raise InputError(
        f"{name} cannot be computed ({said}).",
        hint="mend what computes this partition, or leave it out.",
    ) from error


def _find_part(error: BaseException, graph: dict[Any, Any], number: dict[Any, int]) -> int | None:
    """Return the first of the tasks that need the one which failed, None if none does."""
    from dask.core import get_dependencies

    # Dask tells a failed task of threads nowhere but in its own frame.
    keys = [
        frame.f_locals["key"]
        for frame, _ in walk_tb(error.__traceback__)
        if frame.f_globals.get("__name__") == "dask.local" and "key" in frame.f_locals
    ]
    needed_by: dict[Any, list[Any]] = {}
    for key in graph:
        for other in get_dependencies(graph, key):
            needed_by.setdefault(other, []).append(key)
    seen, todo = set(keys), list(keys)
    while todo:
        for key in needed_by.get(todo.pop(), ()):
            if key not in seen:
                seen.add(key)
                todo.append(key)
    return min((number[key] for key in seen if key in number), default=None)


def is_dask(table: Any) -> bool:
    """Return whether an object is a collection of Dask, without importing Dask."""
    dask = sys.modules.get("dask")
    return dask is not None and bool(dask.is_dask_collection(table))


def open_collection(X: Any, y: Any, features: Sequence[str] | None, what: str) -> Parts:
    """Return a data frame or an array of Dask, with labels of Dask or in memory, in parts.

    ``features``: the columns of a data frame that must hold numbers, None for all. Raises
    InputError if it has not two dimensions, or if labels do not go with it.
    """
    if len(getattr(X, "shape", ())) != 2:
        raise InputError(f"The {what} are no table of Dask.", hint="give a data frame or a matrix.")
    if not hasattr(X, "columns") and len(X.chunks[1]) > 1:
        X = X.rechunk({1: -1})
    pieces = np.ravel(np.asarray(X.to_delayed(), dtype=object)).tolist()
    names = [f"partition {i} of the {what}" for i in range(len(pieces))]
    lengths = _lengths(X, pieces, names)
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(int).tolist()
    labels: list[Any]
    if y is None:
        labels = [None] * len(pieces)
    elif is_dask(y):
        labels = _label_pieces(X, y, len(pieces), what)
    else:
        given = np.asarray(y)
        if given.shape != (starts[-1],):
            raise InputError(
                f"Labels of the shape {given.shape} do not go with {starts[-1]} {what}.",
                hint="give one label per row.",
            )
        labels = [given[a:b] for a, b in pairwise(starts)]
    columns = _Columns.of(X, features)
    parts = tuple(
        _DaskPart(names[i], starts[i], lengths[i], columns, (piece, own))
        for i, (piece, own) in enumerate(zip(pieces, labels, strict=True))
    )
    return Parts(parts, in_memory=False, labelled=y is not None)


@dataclass(frozen=True, slots=True)
class _Columns:
    """What the columns of every partition have to be, which Dask does not check.

    ``names``: None in arrays; ``numbers``: those that must hold numbers.
    """

    width: int
    names: tuple[Any, ...] | None
    numbers: frozenset[Any]

    @classmethod
    def of(cls, X: Any, features: Sequence[str] | None) -> _Columns:
        """Return the columns that a table of Dask says it has."""
        if not hasattr(X, "columns"):
            return cls(int(X.shape[1]), None, frozenset())
        names = tuple(X.columns)
        # LightGBM knows a column by its name without blanks.
        wanted = None if features is None else {plain_name(name) for name in features}
        used = (n for n in names if wanted is None or plain_name(n) in wanted)
        return cls(len(names), names, frozenset(used))

    def take(self, rows: Any) -> Any:
        """Return a partition with its columns in order. Raises InputError for other columns."""
        if self.names is None:
            if np.shape(rows)[1:] != (self.width,):
                raise InputError(
                    f"It has the shape {np.shape(rows)}, and the table {self.width} columns.",
                    hint=_SAME,
                )
            if _holds_texts(rows):
                raise InputError(f"It holds {rows.dtype}, and not numbers.", hint=_CODES)
            return rows
        found = list(rows.columns)
        missing = [name for name in self.names if name not in found]
        more = [name for name in found if name not in self.names]
        if missing or more or len(found) != self.width:
            said = f"lacks the column '{missing[0]}'" if missing else "has a column twice"
            said = f"has a column '{more[0]}'" if more and not missing else said
            raise InputError(f"It {said}, other than the table.", hint=_SAME)
        for name in self.names:
            if name in self.numbers and _holds_texts(rows[name]):
                raise InputError(
                    f"Its column '{name}' holds {rows[name].dtype}, and not numbers.", hint=_CODES
                )
        return rows if tuple(found) == self.names else rows[list(self.names)]


_SAME = "give the same columns in every partition."
_CODES = "give the codes that the model was trained on, as numbers, in every partition."


def _holds_texts(cells: Any) -> bool:
    """Return whether an array or a column has a type other than numbers, or holds texts."""
    if str(cells.dtype) == "category":
        return False
    kind = getattr(cells.dtype, "kind", "O")
    if kind != "O":
        return kind not in "biuf"
    return any(isinstance(cell, str | bytes) for cell in np.ravel(np.asarray(cells, object)))


@dataclass(frozen=True, slots=True, eq=False)
class _DaskPart:
    """One partition; its pieces are the rows and the labels."""

    name: str
    start: int
    n_rows: int
    columns: _Columns
    pieces: tuple[Any, ...] = ()

    def read(self, *pieces: Any) -> Iterator[Block]:
        """Yield slices of what Dask has computed."""
        rows, labels = pieces
        if len(rows) != self.n_rows:
            raise InputError(
                f"There were {self.n_rows} rows before, and now there are {len(rows)}.",
                hint="give tables that are the same each time they are computed, or persist them.",
            )
        if labels is not None and len(labels) != len(rows):
            raise InputError(
                f"There are {len(rows)} rows and {len(labels)} labels.",
                hint="give rows and labels in the same partitions.",
            )
        rows = self.columns.take(rows)
        for first in range(0, len(rows), BLOCK_ROWS):
            last = first + BLOCK_ROWS
            own = None if labels is None else np.asarray(labels[first:last])
            block = rows.iloc[first:last] if hasattr(rows, "iloc") else rows[first:last]
            yield Block(block, own, self.start + first)


def _lengths(X: Any, pieces: Sequence[Any], names: Sequence[str]) -> list[int]:
    """Return the number of rows of each partition, computed where Dask does not know it."""
    if not hasattr(X, "columns"):
        known = [float(size) for size in X.chunks[0]]
        if not np.isnan(known).any():
            return [int(size) for size in known]
    from dask.delayed import delayed

    counts = [delayed(len, pure=False)(piece) for piece in pieces]
    found = compute_parts(delayed(list, pure=False)(counts), counts, names)
    return [int(n) for n in found]


def _label_pieces(X: Any, y: Any, n: int, what: str) -> list[Any]:
    if len(getattr(y, "shape", ())) == 2:
        y = y[:, 0] if not hasattr(y, "columns") else y[y.columns[0]]
    arrays = not hasattr(X, "columns") and hasattr(y, "chunks")
    if arrays and y.chunks[0] != X.chunks[0] and not np.isnan([*X.chunks[0], *y.chunks[0]]).any():
        if y.shape[0] != X.shape[0]:
            raise InputError(
                f"{y.shape[0]} labels do not go with {X.shape[0]} {what}.",
                hint="give one label per row.",
            )
        y = y.rechunk((X.chunks[0],))
    pieces: list[Any] = np.ravel(np.asarray(y.to_delayed(), dtype=object)).tolist()
    if len(pieces) != n:
        raise InputError(
            f"The labels are in {len(pieces)} partitions, and the {what} in {n}.",
            hint="give both in the same partitions.",
        )
    return pieces
