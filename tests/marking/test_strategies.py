import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.experiments.making import made_pool
from timbermark.errors import InputError
from timbermark.marking.strategies import (
    STRATEGIES,
    Pool,
    check_flips,
    farthest_points,
    fill_with_medians,
    flip_labels,
    propose_rows,
    select_rows,
)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_candidates_are_distinct_allowed_and_of_their_kind(strategy):
    pool = made_pool()
    found = propose_rows(strategy, pool, 10, seed=1)
    assert len(set(found.order.tolist())) == len(found.order) == len(found.neighbours) == 10
    assert pool.allowed[found.order].all()
    right = pool.predicted[found.order] == pool.label[found.order]
    if strategy == "wrong":
        assert not right.any()
    elif strategy != "random":
        assert right.all()
    again = propose_rows(strategy, pool, 10, seed=1)
    assert np.array_equal(found.order, again.order)
    assert np.array_equal(found.neighbours, again.neighbours)


@pytest.mark.parametrize("strategy", ["wrong", "confidence"])
def test_least_sure_rows_come_first(strategy):
    pool = made_pool()
    order = propose_rows(strategy, pool, 15).order
    assert (np.diff(pool.sureness[order]) >= 0).all()
    alike = pool.allowed & ((pool.predicted == pool.label) == (strategy == "confidence"))
    rest = np.setdiff1d(np.flatnonzero(alike), order)
    assert pool.sureness[order].max() <= pool.sureness[rest].min()


def test_outliers_are_far_from_every_cluster():
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(size=(100, 2)), rng.normal(size=(100, 2)) + 8, [[14.0, -6.0]]])
    confidence = np.tile([0.9, 0.1], (201, 1))
    pool = Pool(X, np.zeros(201, np.int64), confidence, np.ones(201, np.bool_))
    assert propose_rows("outlier", pool, 3).order[0] == 200


@pytest.mark.parametrize("n", [12, 70])  # exact k-means, mini-batches
def test_cluster_centers_have_neighbours_that_are_no_centers(n):
    pool = made_pool(n=300)
    found = propose_rows("cluster", pool, n, seed=3)
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
    found = propose_rows("cluster", pool, len(right))
    assert np.array_equal(np.sort(found.order), right)
    assert (found.neighbours == -1).all()


def test_wrong_prediction_flip_needs_three_classes():
    check_flips("wrong", 3)
    check_flips("cluster", 2)
    with pytest.raises(InputError) as caught:
        check_flips("wrong", 2)
    assert caught.value.code == "strategy.two-classes"
    assert "cluster" in caught.value.hint


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_too_few_candidates_are_counted(strategy):
    pool = made_pool()
    right = pool.predicted == pool.label
    kind = {"wrong": ~right, "random": np.ones_like(right)}.get(strategy, right)
    there = int((pool.allowed & kind).sum())
    assert len(propose_rows(strategy, pool, there).order) == there
    with pytest.raises(InputError) as caught:
        propose_rows(strategy, pool, there + 1)
    assert caught.value.code == "strategy.too-few"
    assert "confidence" in caught.value.hint or strategy == "confidence"
    fewer = propose_rows(strategy, pool, there + 1, least=there)
    assert len(fewer.order) == len(fewer.neighbours) == there


def test_confidence_selects_the_least_sure():
    found = propose_rows("random", made_pool(), 50)
    places = select_rows("confidence", found, 20)
    assert len(set(places.tolist())) == 20
    sureness = found.pool.sureness[found.order]
    assert sureness[places].max() <= np.delete(sureness, places).min()


def test_distance_selects_the_farthest_on_raw_values():
    found = propose_rows("random", made_pool(), 50)
    places = select_rows("distance", found, 20, seed=2)
    assert len(set(places.tolist())) == 20
    X = found.pool.X[found.order]
    far = np.linalg.norm(X - X[places[0]], axis=1)
    assert places[1] == far.argmax()
    assert np.array_equal(places, select_rows("distance", found, 20, seed=2))
    firsts = {int(select_rows("distance", found, 1, seed)[0]) for seed in range(8)}
    assert len(firsts) > 1


@given(st.integers(0, 10_000), st.integers(1, 12))
def test_farthest_points_are_the_naive_ones(seed, k):
    X = np.random.default_rng(seed).integers(-5, 6, (15, 2)).astype(float)
    chosen = [3]
    while len(chosen) < k:
        nearest = ((X[:, None] - X[chosen][None]) ** 2).sum(axis=2).min(axis=1)
        nearest[chosen] = -1
        chosen.append(int(nearest.argmax()))
    assert farthest_points(X, k, 3).tolist() == chosen


def test_only_missing_values_are_replaced():
    X = np.random.default_rng(0).normal(size=(50, 3)) * [1, 1000, 0.001]
    assert np.array_equal(fill_with_medians(X), X)
    holes = X.copy()
    holes[::7, 1] = np.nan
    filled = fill_with_medians(holes)
    known = ~np.isnan(holes)
    assert np.array_equal(filled[known], X[known])
    assert np.allclose(filled[::7, 1], np.nanmedian(holes[:, 1]))


def test_values_without_end_do_not_stop_the_strategies():
    pool = made_pool()
    pool.X[3] = [np.inf, np.nan, -np.inf]
    for strategy in STRATEGIES:
        assert len(propose_rows(strategy, pool, 10).order) == 10


@given(st.integers(0, 10_000), st.integers(3, 9))
def test_flip_labels_are_the_likeliest_of_the_others(seed, n_classes):
    rng = np.random.default_rng(seed)
    confidence = rng.integers(0, 4, (8, n_classes)) / 4  # ties are frequent
    label = rng.integers(0, n_classes, 8)
    for probabilities, truth, flipped in zip(
        confidence, label, flip_labels(confidence, label), strict=True
    ):
        banned = {int(probabilities.argmax()), int(truth)}
        others = (c for c in range(n_classes) if c not in banned)
        assert flipped == max(others, key=lambda c: probabilities[c])


def test_two_classes_leave_no_label_for_a_wrong_prediction():
    assert flip_labels(np.array([[0.6, 0.4]]), np.array([0])).tolist() == [1]
    with pytest.raises(InputError) as caught:
        flip_labels(np.array([[0.6, 0.4]]), np.array([1]))
    assert caught.value.code == "strategy.two-classes"
