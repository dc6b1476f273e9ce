import numpy as np
import pytest

from tests.experiments.making import made_pool
from timbermark.errors import InputError
from timbermark.experiments.strategies import STRATEGIES, Pool, find_candidates


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_candidates_are_distinct_allowed_and_of_their_kind(strategy):
    pool = made_pool()
    found = find_candidates(strategy, pool, 10, seed=1)
    assert len(set(found.order.tolist())) == len(found.order) == len(found.neighbours) == 10
    assert pool.allowed[found.order].all()
    right = pool.predicted[found.order] == pool.label[found.order]
    if strategy == "wrong":
        assert not right.any()
    elif strategy != "random":
        assert right.all()
    again = find_candidates(strategy, pool, 10, seed=1)
    assert np.array_equal(found.order, again.order)
    assert np.array_equal(found.neighbours, again.neighbours)


@pytest.mark.parametrize("strategy", ["wrong", "confidence"])
def test_least_sure_rows_come_first(strategy):
    pool = made_pool()
    order = find_candidates(strategy, pool, 15).order
    assert (np.diff(pool.sureness[order]) >= 0).all()
    alike = pool.allowed & ((pool.predicted == pool.label) == (strategy == "confidence"))
    rest = np.setdiff1d(np.flatnonzero(alike), order)
    assert pool.sureness[order].max() <= pool.sureness[rest].min()


def test_outliers_are_far_from_every_cluster():
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(size=(100, 2)), rng.normal(size=(100, 2)) + 8, [[14.0, -6.0]]])
    confidence = np.tile([0.9, 0.1], (201, 1))
    pool = Pool(X, np.zeros(201, np.int64), confidence, np.ones(201, np.bool_))
    assert find_candidates("outlier", pool, 3).order[0] == 200


@pytest.mark.parametrize("n", [12, 70])  # exact k-means, mini-batches
def test_cluster_centers_have_neighbours_that_are_no_centers(n):
    pool = made_pool(n=300)
    found = find_candidates("cluster", pool, n, seed=3)
    centers = set(found.order.tolist())
    assert len(centers) == n
    assert found.neighbours.shape == (n, 2)
    for beside in found.neighbours:
        beside = beside[beside >= 0]
        assert not centers & set(beside.tolist())
        assert (pool.predicted[beside] == pool.label[beside]).all()


def test_centers_that_take_every_row_leave_no_neighbours():
    pool = made_pool(n=30)
    right = np.flatnonzero(pool.allowed & (pool.predicted == pool.label))
    found = find_candidates("cluster", pool, len(right))
    assert np.array_equal(np.sort(found.order), right)
    assert (found.neighbours == -1).all()


def test_wrong_prediction_flip_needs_three_classes():
    with pytest.raises(InputError, match="at least 3 classes"):
        find_candidates("wrong", made_pool(n_classes=2), 2)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_too_few_candidates_are_counted(strategy):
    pool = made_pool()
    right = pool.predicted == pool.label
    kind = {"wrong": ~right, "random": np.ones_like(right)}.get(strategy, right)
    there = int((pool.allowed & kind).sum())
    assert len(find_candidates(strategy, pool, there).order) == there
    with pytest.raises(InputError, match=f"needs {there + 1} candidates but finds only {there} "):
        find_candidates(strategy, pool, there + 1)
