"""Tasks of Dask, one for each part of a table: where they run, and which part one fails of."""

from __future__ import annotations

import sys
from asyncio import CancelledError as AsyncCancelledError
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from traceback import walk_tb
from typing import Any

from timbermark.errors import InputError, TimbermarkError
from timbermark.kernels.workers import count_threads

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
