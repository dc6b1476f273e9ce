"""Threads that work in step, without the interpreter lock.

The phases of a boosting iteration follow each other within microseconds, but waking a sleeping
thread takes some 70: threads meet in compiled code instead. ``sync`` int64[2] is theirs: how often
a thread arrived at a meeting, and whether all shall stop.
"""

from timbermark.kernels.compile import add_shared, load_shared, part, yield_core

ARRIVED, STOPPED = 0, 1
_PATIENCE = 4096


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
