import os
import threading
import time

import numpy as np
import pytest
from numba import config

from tests.boosting.watching import nobody_waits_for_ever
from timbermark.errors import InputError
from timbermark.kernels.workers import ARRIVED, STOPPED, Workers, count_threads, meet, take

THREADS = [1, 2, 4]


class OwnError(Exception):
    pass


def fails_at(wanted):
    """A task that raises where its number is ``wanted``."""

    def task(number):
        if number == wanted:
            raise OwnError(f"number {wanted}")
        return number

    return task


@pytest.mark.parametrize("n_threads", THREADS)
def test_each_runs_once_on_every_thread(n_threads):
    seen = []
    with Workers(n_threads) as workers:
        workers.each(seen.append)
    assert sorted(seen) == list(range(n_threads))


@pytest.mark.parametrize("n_threads", THREADS)
def test_this_thread_is_the_first(n_threads):
    names = {}
    with Workers(n_threads) as workers:
        workers.each(lambda i: names.update({i: threading.get_ident()}))
    assert names[0] == threading.get_ident()
    assert all(names[i] != names[0] for i in range(1, n_threads))


@pytest.mark.parametrize("n_threads", THREADS)
@pytest.mark.parametrize("n", [0, 1, 2, 3, 10])
def test_split_covers_everything_once(n_threads, n):
    touched = np.zeros(n, int)
    numbers = []

    def task(thread, start, stop):
        numbers.append(thread)
        touched[start:stop] += 1

    with Workers(n_threads) as workers:
        workers.split(task, n)
    assert (touched == 1).all()
    assert sorted(numbers) == list(range(n_threads))


@pytest.mark.parametrize("n_threads", THREADS)
@pytest.mark.parametrize("n", [0, 1, 2, 50])
def test_drain_does_every_item_once(n_threads, n):
    done = []
    with Workers(n_threads) as workers:
        workers.drain(lambda thread, item: done.append((thread, item)), n)
    assert sorted(item for _, item in done) == list(range(n))
    assert all(0 <= thread < n_threads for thread, _ in done)


@pytest.mark.parametrize("n_threads", THREADS)
@pytest.mark.parametrize("n", [0, 1, 50])
def test_map_keeps_the_order(n_threads, n):
    with Workers(n_threads) as workers:
        assert workers.map(lambda i: i * i, iter(range(n))) == [i * i for i in range(n)]


@pytest.mark.parametrize("n_threads", [2, 4])
@pytest.mark.parametrize("failing", [0, 1, -1])
def test_whatever_fails_is_raised_here(n_threads, failing):
    failing %= n_threads
    task = fails_at(failing)
    message = f"number {failing}"
    with Workers(n_threads) as workers:
        with pytest.raises(OwnError, match=message):
            workers.each(task)
        with pytest.raises(OwnError, match=message):
            workers.in_step(lambda thread, sync: task(thread))
        with pytest.raises(OwnError, match=message):
            workers.split(lambda thread, start, stop: task(thread), 10)
        with pytest.raises(OwnError, match=message):
            workers.drain(lambda thread, item: task(item), n_threads)
        with pytest.raises(OwnError, match=message):
            workers.map(task, range(n_threads))
        # None of that has harmed the pool.
        assert workers.map(abs, [-1, -2, -3]) == [1, 2, 3]


def test_one_thread_raises_as_well():
    task = fails_at(0)
    with Workers(1) as workers:
        for attempt in (
            lambda: workers.each(task),
            lambda: workers.in_step(lambda thread, sync: task(thread)),
            lambda: workers.split(lambda thread, start, stop: task(thread), 3),
            lambda: workers.drain(lambda thread, item: task(item), 3),
            lambda: workers.map(task, [0, 1]),
        ):
            with pytest.raises(OwnError, match="number 0"):
                attempt()


@pytest.mark.parametrize("n_threads", [2, 4])
@pytest.mark.parametrize("kind", [OwnError, KeyboardInterrupt])
@pytest.mark.parametrize("failing", [0, -1])
def test_kernels_do_not_wait_for_a_thread_that_failed(n_threads, kind, failing):
    met = {}

    def task(thread, sync):
        syncs.append(sync)
        met[thread] = [meet(sync, 1, n_threads)]
        if thread == failing % n_threads:
            raise kind("after the first meeting")
        met[thread].append(meet(sync, 2, n_threads))

    with (
        nobody_waits_for_ever() as syncs,
        Workers(n_threads) as workers,
        pytest.raises(kind, match="after the first meeting"),
    ):
        workers.in_step(task)
    assert met.pop(failing % n_threads)[0]
    assert len(met) == n_threads - 1
    assert all(result[-1] is False for result in met.values())


@pytest.mark.parametrize("n_threads", [2, 3, 4])
def test_kernels_in_step_wait_for_each_other(n_threads):
    rounds = 50
    seen = np.zeros((rounds, n_threads), int)
    behind = []

    def task(thread, sync):
        syncs.append(sync)
        for i in range(rounds):
            seen[i, thread] = 1
            assert meet(sync, i + 1, n_threads)
            if not seen[i].all():
                behind.append((i, thread))

    with nobody_waits_for_ever() as syncs, Workers(n_threads) as workers:
        workers.in_step(task)
    assert not behind
    assert seen.all()


def test_the_pool_is_gone_afterwards():
    before = threading.active_count()
    with Workers(4) as workers:
        workers.each(lambda i: None)
    assert threading.active_count() <= before


def test_count_threads():
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    assert count_threads(3) == 3
    assert count_threads(None) == count_threads(-1) == cores
    assert count_threads(-2) == max(1, cores - 1)
    assert count_threads(-1000) == 1


def test_no_threads_at_all_are_refused():
    with pytest.raises(InputError, match="n_jobs=0"):
        count_threads(0)


def test_all_threads_are_waited_for_when_one_fails():
    finished = []

    def task(thread):
        if thread < 2:
            raise ValueError(thread)
        time.sleep(0.05)
        finished.append(thread)

    with Workers(4) as workers:
        with pytest.raises(ValueError, match=r"0|1"):
            workers.each(task)
        assert sorted(finished) == [2, 3]


threads = pytest.mark.skipif(
    bool(config.DISABLE_JIT), reason="without compilation there is one thread"
)


def test_a_single_thread_meets_nobody():
    sync = np.zeros(2, np.int64)
    assert meet(sync, 1, 1)
    assert not sync.any()


def test_the_last_to_arrive_does_not_wait():
    sync = np.zeros(2, np.int64)
    sync[ARRIVED] = 3
    assert meet(sync, 2, 2)
    assert sync[ARRIVED] == 4


def test_nobody_waits_after_a_failure():
    sync = np.zeros(2, np.int64)
    sync[STOPPED] = 1
    assert not meet(sync, 1, 2)
    # Nor goes on where all have arrived.
    assert not meet(sync, 1, 2)
    assert sync[ARRIVED] == 2


def test_numbers_are_taken_once():
    tickets = np.zeros(3, np.int64)
    assert [take(tickets, 1) for _ in range(4)] == [0, 1, 2, 3]
    assert take(tickets, 2) == 0
    assert tickets.tolist() == [0, 4, 1]


@threads
def test_threads_take_every_number_once():
    tickets = np.zeros(1, np.int64)
    taken = [[] for _ in range(4)]

    def work(mine):
        for _ in range(2000):
            mine.append(take(tickets, 0))

    workers = [threading.Thread(target=work, args=(mine,)) for mine in taken]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert sorted(number for mine in taken for number in mine) == list(range(8000))


@threads
def test_a_waiting_thread_is_told_to_stop():
    sync = np.zeros(2, np.int64)
    results = []
    waiting = threading.Thread(target=lambda: results.append(meet(sync, 1, 2)))
    waiting.start()
    while sync[ARRIVED] == 0 and waiting.is_alive():
        pass
    sync[STOPPED] = 1
    waiting.join(60)
    assert not waiting.is_alive()
    assert results == [False]
