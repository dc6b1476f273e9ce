"""A test must fail rather than hang."""

import threading
from contextlib import contextmanager

from timbermark.kernels.workers import STOPPED


@contextmanager
def nobody_waits_for_ever(seconds=60):
    """Gives a list for the ``sync`` arrays of kernels that meet each other.

    Kernels that still wait after ``seconds`` are told to stop, and the test fails.
    """
    syncs = []
    freed = threading.Event()

    def free():
        freed.set()
        for sync in syncs:
            sync[STOPPED] = 1

    timer = threading.Timer(seconds, free)
    timer.start()
    try:
        yield syncs
    finally:
        timer.cancel()
        timer.join()
    assert not freed.is_set(), "kernels were left waiting"
