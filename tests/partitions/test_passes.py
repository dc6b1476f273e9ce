"""Passes on a cluster: what parts say, and a scheduler that is lost on the way."""

import logging
import time
from contextlib import nullcontext

import dask.array as da
import numpy as np
import pytest
from dask.delayed import delayed
from distributed import LocalCluster

from tests.partitions.killing import Counting
from timbermark.errors import InputError
from timbermark.partitions import connect, open_parts, passes, run_pass

QUIET = {"dashboard_address": ":0", "silence_logs": logging.CRITICAL, "protocol": "tcp://"}


class Slow(Counting):
    def look(self, block):
        time.sleep(0.1)
        return super().look(block)


class Broken(Counting):
    def look(self, block):
        raise ZeroDivisionError("in the pass")


class Refusing(Counting):
    def look(self, block):
        if block.start == 6:
            raise InputError("The rows are wrong.", hint="give others.")
        return super().look(block)


def table():
    return open_parts(da.zeros((60, 2), chunks=(2, 2)), None, None, "rows")


def failing(error):
    """A table whose partition 1 fails when its rows are computed."""

    def fail(rows):
        raise error

    pieces = [delayed(np.zeros)((2, 2)) for _ in range(4)]
    pieces[1] = delayed(fail)(pieces[1])
    return da.concatenate([da.from_delayed(piece, (2, 2), float) for piece in pieces])


def counted(X):
    """The same as a frame, whose rows Dask has to count."""
    return X.to_dask_dataframe(columns=["a", "b"])


@pytest.mark.parametrize("as_given", [lambda X: X, counted])
@pytest.mark.parametrize("where", ["threads", "a cluster"])
def test_a_partition_that_cannot_be_computed_is_named(where, as_given):
    cluster = nullcontext()
    if where == "a cluster":
        cluster = LocalCluster(n_workers=1, threads_per_worker=1, processes=False, **QUIET)
    with cluster, connect(getattr(cluster, "scheduler_address", "local")):
        for error in (ZeroDivisionError("by zero"), OSError("no such file")):
            with pytest.raises(InputError) as caught:
                run_pass(open_parts(as_given(failing(error)), None, None, "rows"), Counting())
            said = f"partition 1 of the rows cannot be computed ({type(error).__name__}: {error})."
            assert caught.value.message == said
            assert caught.value.hint
        with pytest.raises(InputError, match="partition 1 of the rows does not fit in memory"):
            run_pass(open_parts(as_given(failing(MemoryError())), None, None, "rows"), Counting())
        # An error of the pass is no error of the table.
        with pytest.raises(ZeroDivisionError, match="in the pass") as own:
            run_pass(table(), Broken())
        assert "of the rows" in own.value.__notes__[0]


def test_counts_progress_and_refusals_of_a_cluster():
    said = []
    cluster = LocalCluster(n_workers=2, threads_per_worker=1, processes=False, **QUIET)
    with cluster, connect(cluster.scheduler_address):
        assert run_pass(table(), Counting(), said.append)[0] == 60
        single = open_parts(da.zeros((60, 2), chunks=(60, 2)), None, None, "rows")
        assert run_pass(single, Counting())[0] == 60
        with pytest.raises(InputError) as caught:
            run_pass(table(), Refusing())
    assert len(said) == 31
    assert said[-1] == "counting: 60 of 60 rows"
    assert caught.value.message == "partition 3 of the rows: The rows are wrong."
    assert caught.value.hint == "give others."
    # Without the cluster they run on threads.
    assert run_pass(table(), Counting())[0] == 60


def test_a_scheduler_without_workers_is_said():
    cluster = LocalCluster(n_workers=0, processes=False, **QUIET)
    refused = pytest.raises(InputError, match="has no workers")
    with cluster, refused, connect(cluster.scheduler_address):
        pass


def test_a_scheduler_that_is_lost_on_the_way_is_said():
    cluster = LocalCluster(n_workers=1, threads_per_worker=1, processes=False, **QUIET)
    calls = []

    def close_soon(said):
        calls.append(said)
        if len(calls) == 3:
            cluster.close()

    lost = pytest.raises(InputError, match="are gone")
    with cluster, lost as caught, connect(cluster.scheduler_address):
        run_pass(table(), Slow(), close_soon)
    assert "nothing was written" in caught.value.hint


def test_no_two_passes_share_a_task():
    # Another driver's pass may be at the same address in its memory.
    step, parts = Counting(), table().parts
    first, second = (set(passes._plan(parts, step)[0].dask) for _ in range(2))
    own = {key for key in first if "zeros" not in str(key)}
    assert len(own) > 2 * len(parts)
    assert not own & second
