"""Threads for kernels that release the interpreter lock, and where those that work in step meet.

No result may depend on how many there are: tasks write to places of their own.

The phases of a boosting iteration follow each other within microseconds, but waking a sleeping
thread takes some 70: threads meet in compiled code instead. ``sync`` int64[2] is theirs: how often
a thread arrived at a meeting, and whether all shall stop.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, wait
from types import TracebackType
from typing import TypeVar

import numpy as np

from timbermark.errors import InputError
from timbermark.kernels.compile import add_shared, load_shared, part, yield_core

Item = TypeVar("Item")
Result = TypeVar("Result")

ARRIVED, STOPPED = 0, 1
_PATIENCE = 4096


def count_threads(n_jobs: int | None) -> int:
    """Return the number of threads, by scikit-learn's convention; None is all cores.

    >>> count_threads(3)
    3
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    cores = cores or 1
    if n_jobs is None:
        return cores
    if n_jobs == 0:
        raise InputError("n_jobs=0 is no number of threads.", hint="use None for all cores.")
    return n_jobs if n_jobs > 0 else max(1, cores + 1 + n_jobs)


class Workers:
    """A pool that lives for one call of ``fit``, ``update`` or ``predict``.

    >>> with Workers(2) as workers:
    ...     workers.map(abs, [-1, 2])
    [1, 2]
    """

    def __init__(self, n_threads: int) -> None:
        self.n_threads = n_threads
        self._pool = ThreadPoolExecutor(n_threads - 1) if n_threads > 1 else None
        self._aside = ThreadPoolExecutor(1) if n_threads > 1 else None

    def __enter__(self) -> Workers:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for pool in (self._pool, self._aside):
            if pool is not None:
                pool.shutdown()

    def begin(self, task: Callable[[], Result]) -> Callable[[], Result]:
        """Start a task on a thread of its own, and return what waits for its result.

        On one thread it runs when its result is wanted. It must not touch warning filters, which
        all threads share.
        """
        return task if self._aside is None else self._aside.submit(task).result

    def each(self, task: Callable[[int], None]) -> None:
        """Run ``task(thread number)`` once on every thread, this one included."""
        if self._pool is None:
            task(0)
            return
        others = [self._pool.submit(task, i) for i in range(1, self.n_threads)]
        try:
            task(0)
        finally:
            # All of them, whatever happened: they may still be writing to the caller's arrays.
            wait(others)
        for other in others:
            other.result()

    def in_step(self, task: Callable[[int, np.ndarray], None]) -> None:
        """Run ``task(thread, sync)`` on every thread, for kernels that meet at ``sync``.

        Where one fails or is interrupted, the others are told to stop instead of waiting for it.
        """
        sync = np.zeros(2, np.int64)

        def guarded(thread: int) -> None:
            try:
                task(thread, sync)
            except BaseException:
                sync[STOPPED] = 1
                raise

        try:
            self.each(guarded)
        except BaseException:
            sync[STOPPED] = 1
            raise

    def drain(self, task: Callable[[int, int], None], n_items: int) -> None:
        """Run ``task(thread, item)`` for every item; a free thread takes the next one."""
        if self._pool is None or n_items == 1:
            for item in range(n_items):
                task(0, item)
            return
        counter = itertools.count()

        def run(thread: int) -> None:
            while (item := next(counter)) < n_items:
                task(thread, item)

        self.each(run)

    def split(self, task: Callable[[int, int, int], None], n: int) -> None:
        """Run ``task(thread, start, stop)`` on equal parts of ``range(n)``."""
        size = -(-n // self.n_threads)
        self.each(lambda i: task(i, min(i * size, n), min((i + 1) * size, n)))

    def map(self, task: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
        """Return the results of ``task`` for every item, in order."""
        todo = list(items)
        results: dict[int, Result] = {}

        def run(thread: int, i: int) -> None:
            results[i] = task(todo[i])

        self.drain(run, len(todo))
        return [results[i] for i in range(len(todo))]


@part
def meet(sync, meeting, n_threads):
    """Wait until all threads are at the ``meeting``-th meeting (counted from 1).

    Returns False where somebody failed: all must return. More threads than cores only cost time: a
    thread that waits for long gives up its core.
    """
    if n_threads == 1:
        return True
    add_shared(sync, ARRIVED, 1)
    looks = 0
    while load_shared(sync, ARRIVED) < meeting * n_threads:
        if load_shared(sync, STOPPED) != 0:
            return False
        looks += 1
        if looks > _PATIENCE:
            yield_core()
    return load_shared(sync, STOPPED) == 0


@part
def take(tickets, counter):
    """Return the next number of a counter that all threads draw from."""
    return add_shared(tickets, counter, 1)


@part
def own_rows(turn, n):
    """Return where the rows of a thread begin and end, of ``n`` rows that all share."""
    size = (n + turn.n_threads - 1) // turn.n_threads
    return min(turn.thread * size, n), min((turn.thread + 1) * size, n)
