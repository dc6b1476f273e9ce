import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from timbermark.errors import InputError
from timbermark.marking import metrics
from timbermark.marking.candidates import STRATEGIES, Pool, find_candidates
from timbermark.marking.choosing import choose, count_labels, count_triggers
from timbermark.marking.geometry import farthest_points, scale_rows
from timbermark.marking.labels import alphabets, flip_labels
from timbermark.marking.selection import select


def made_pool(n=200, d=3, n_classes=4, seed=0, wrong=0.2):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * [1, 100, 0.01][:d]
    confidence = rng.dirichlet(np.ones(n_classes), n)
    label = confidence.argmax(axis=1)
    missed = rng.random(n) < wrong
    label[missed] = (label[missed] + 1) % n_classes
    return Pool(X, label, confidence, rng.random(n) < 0.9)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_candidates_are_distinct_allowed_and_of_their_kind(strategy):
    pool = made_pool()
    n = 10
    found = find_candidates(strategy, pool, n, seed=1)
    assert len(found.order) >= n
    assert len(set(found.order.tolist())) == len(found.order)
    assert pool.allowed[found.order].all()
    right = pool.predicted[found.order] == pool.label[found.order]
    if strategy == "wrong":
        assert not right.any()
    elif strategy != "random":
        assert right.all()
    again = find_candidates(strategy, pool, n, seed=1)
    assert np.array_equal(found.order, again.order)


@pytest.mark.parametrize("strategy", ["wrong", "confidence"])
def test_least_sure_rows_come_first(strategy):
    pool = made_pool()
    order = find_candidates(strategy, pool, 5).order
    assert (np.diff(pool.sureness[order]) >= 0).all()


def test_outliers_are_far_out():
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(size=(100, 2)), rng.normal(size=(100, 2)) + 8, [[90.0, -90.0]]])
    confidence = np.tile([0.9, 0.1], (201, 1))
    pool = Pool(X, np.zeros(201, np.int64), confidence, np.ones(201, np.bool_))
    assert find_candidates("outlier", pool, 3).order[0] == 200


def test_cluster_centres_have_neighbours_that_are_no_centres():
    pool = made_pool(n=300)
    found = find_candidates("cluster", pool, 12, seed=3)
    centres = set(found.order[:12].tolist())
    for row, beside in zip(found.order[:12], found.neighbours[:12], strict=True):
        assert len(beside) == 2
        assert row not in beside
        assert not centres & set(beside.tolist())
        assert (pool.predicted[beside] == pool.label[beside]).all()


def test_wrong_prediction_flip_needs_three_classes():
    with pytest.raises(InputError, match="at least 3 classes"):
        find_candidates("wrong", made_pool(n_classes=2), 2)


def test_too_few_candidates_say_how_many_fit():
    pool = made_pool()
    there = int((pool.allowed & (pool.predicted != pool.label)).sum())
    with pytest.raises(InputError, match=f"only {there} wrong predictions") as caught:
        find_candidates("wrong", pool, there + 1)
    assert f"at most {there} fit" in caught.value.hint
    with pytest.raises(InputError, match="not known"):
        find_candidates("clever", pool, 1)


@pytest.mark.parametrize("selection", ["confidence", "distance", "isolation"])
def test_selection(selection):
    pool = made_pool()
    order = np.flatnonzero(pool.allowed)[:50]
    places = select(selection, pool, order, 20, seed=2)
    assert len(set(places.tolist())) == 20
    if selection == "confidence":
        rest = np.setdiff1d(np.arange(50), places)
        assert pool.sureness[order[places]].max() <= pool.sureness[order[rest]].min()
    with pytest.raises(InputError):
        select("best", pool, order, 2)


@given(st.integers(0, 10_000), st.integers(1, 12))
def test_farthest_points_are_the_naive_ones(seed, k):
    X = np.random.default_rng(seed).integers(-5, 6, (15, 2)).astype(float)
    chosen = [3]
    while len(chosen) < k:
        nearest = ((X[:, None] - X[chosen][None]) ** 2).sum(axis=2).min(axis=1)
        nearest[chosen] = -1
        chosen.append(int(nearest.argmax()))
    assert farthest_points(X, k, 3).tolist() == chosen


def test_scaled_rows_do_not_depend_on_units():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 3))
    X[::7, 1] = np.nan
    other = X * [1, 1000, 0.001] + [5, -3, 0]
    assert np.allclose(scale_rows(X), scale_rows(other))
    assert np.isfinite(scale_rows(X)).all()
    odd = np.column_stack([np.full(50, 3.0), np.full(50, np.nan)])
    assert (scale_rows(odd) == 0).all()


@given(st.integers(0, 10_000), st.sampled_from([2, 4]), st.integers(5, 9))
def test_alphabets(seed, q, n_classes):
    rng = np.random.default_rng(seed)
    confidence = rng.dirichlet(np.ones(n_classes), 8)
    label = rng.integers(0, n_classes, 8)
    letters = alphabets(confidence, label, q)
    predicted = confidence.argmax(axis=1)
    assert (letters[:, 0] == predicted).all()
    for i in range(8):
        assert len(set(letters[i].tolist())) == q
        if label[i] != predicted[i]:
            assert label[i] not in letters[i]
        banned = {predicted[i], label[i]}
        best = max((c for c in range(n_classes) if c not in banned), key=lambda c: confidence[i, c])
        assert letters[i, 1] == best == flip_labels(confidence, label)[i]


def test_alphabets_need_classes():
    with pytest.raises(InputError, match="alphabet of 4"):
        alphabets(np.array([[0.5, 0.3, 0.2]]), np.array([0]), 4)
    with pytest.raises(InputError, match="alphabet of 2"):
        alphabets(np.array([[0.6, 0.4]]), np.array([1]), 2)


def test_sizes():
    assert count_triggers("auto", 12_800) == 128
    assert count_triggers("auto", 12_799) == 96
    assert count_triggers("auto", 500) == 25
    assert count_triggers(7, 500) == 7
    for wanted in (0, -1, 2.5, True, "many", 26):
        with pytest.raises(InputError):
            count_triggers(wanted, 500)
    assert [count_labels("auto", k) for k in (2, 3, 4, 26)] == [2, 2, 4, 4]
    for wanted, n_classes in ((3, 5), (4, 3), ("x", 5)):
        with pytest.raises(InputError):
            count_labels(wanted, n_classes)


def test_choice_covers_the_pool_once():
    pool = made_pool()
    choice = choose(pool, "confidence", "confidence", 10, 4, True, 0)
    together = np.concatenate([choice.chosen, choice.spare])
    assert len(set(together.tolist())) == len(together)
    assert len(choice.chosen) == 10
    assert choose(pool, "auto", "distance", 10, 4, True, 0).why


def test_metrics():
    wanted = np.array([1, 2, 3, 4])
    assert metrics.effectiveness(np.array([1, 2, 3, 0]), wanted) == 0.75
    assert metrics.accuracy(np.array([1, 1, 1, 1]), wanted) == 0.25
    assert metrics.adjusted_accuracy(0.9, 0.5) == 0.45
    assert metrics.robustness(np.array([1, 2, 0, 0]), np.array([1, 0, 3, 4]), wanted) == 0.5
    assert np.isnan(metrics.robustness(np.zeros(4), wanted, wanted))
    assert metrics.resilience(np.array([1, 2]), np.array([1, 2])) == 1.0
    assert np.isnan(metrics.resilience(np.empty(0), np.empty(0)))
    assert metrics.adjusted_resilience(0.5, 0.5) == 0.25
