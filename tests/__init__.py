"""Tests. Each process of a parallel run keeps to one core, as long as there are cores for all.

Libraries start as many threads as they see cores, and theirs and ours wait for each other busily:
two processes with two threads each on two cores take twice as long as two with one each. This has
to happen before any of them is imported.
"""

import os


def _keep_to_one_core() -> None:
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    if worker.startswith("gw") and hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[int(worker[2:]) % len(cores)]})


_keep_to_one_core()
