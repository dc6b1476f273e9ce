import threading

import numpy as np
import pytest
from numba import config

from timbermark.kernels.barrier import ARRIVED, STOPPED, meet, take

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
