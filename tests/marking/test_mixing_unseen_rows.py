"""Rows that stand for unseen ones: near training rows, as far as a shadow model says."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import make_classification

from timbermark.estimator import TimberClassifier
from timbermark.experiments.datasets import load_dataset
from timbermark.kernels.workers import Workers
from timbermark.marking.defaults import NEIGHBOUR_RANKS
from timbermark.marking.mixing import USUAL, Neighbourhood, estimate_labels, find_unseen

VALUES = [0.0, 1.0, 2.5, -3.0, np.nan]


def mixed(X, n, distance, named=None, share=1.0):
    return Neighbourhood(X, np.random.default_rng(3), named, share).mix(X, n, distance)


@given(
    st.lists(st.lists(st.sampled_from(VALUES), min_size=3, max_size=3), min_size=1, max_size=12),
    st.integers(1, 30),
    st.floats(0.0, 2.0),
    st.sampled_from([None, [True, False, False], [True, True, True]]),
)
def test_values_come_from_the_columns(rows, n, distance, named):
    X = np.array(rows)
    named = None if named is None else np.array(named)
    found = mixed(X, n, distance, named)
    np.testing.assert_array_equal(found, mixed(X, n, distance, named))
    assert found.shape == (n, 3)
    for j in range(3):
        given, made = ({str(x) for x in column} for column in (X[:, j], found[:, j]))
        if named is not None and named[j]:
            assert made <= given
        # Only values that one row alone has are replaced, by others in between, as the column has.
        tied = {str(x) for x in X[:, j] if np.count_nonzero(X[:, j] == x) > 1}
        assert made - given == set() or given - tied - {"nan"}
        finite = found[~np.isnan(found[:, j]), j]
        if len(finite):
            assert np.nanmin(X[:, j]) <= finite.min()
            assert finite.max() <= np.nanmax(X[:, j])
            assert (np.round(finite, 1) == finite).all()


def test_values_of_unseen_rows_are_in_all_gaps():
    """A threshold that moves between two training values moves none of these."""
    X = np.sort(np.random.default_rng(0).normal(size=(300, 1)), axis=0)
    found = mixed(X, 3000, 0.0)
    assert np.isin(found, X).mean() < 0.01
    place = np.searchsorted(X[:, 0], found[:, 0])
    share = np.bincount(place, minlength=301)[1:300] / 3000
    wide = np.diff(X[:, 0]) > np.median(np.diff(X[:, 0]))
    # As in fresh rows of the same kind, wide gaps have more of them, and nearly none has no part.
    fresh = np.random.default_rng(1).normal(size=30_000)
    known = np.bincount(np.searchsorted(X[:, 0], fresh), minlength=301)[1:300] / 30_000
    assert share[wide].sum() == pytest.approx(known[wide].sum(), abs=0.1)
    assert share.max() < 5.0 / 300


def test_values_that_several_rows_have_stay():
    X = np.repeat(np.arange(50.0), 4)[:, None] + [0.0, 0.5]
    found = mixed(X, 500, 1.0)
    assert np.isin(found[:, 0], X[:, 0]).all()
    assert np.isin(found[:, 1], X[:, 1]).all()


def test_mixtures_are_near_without_being_rows():
    rng = np.random.default_rng(0)
    # Two clusters far from each other: a mixture across them resembles neither.
    X = np.vstack([rng.normal(size=(200, 6)), rng.normal(size=(200, 6)) + 50.0])
    found = mixed(X, 500, 1.0)
    # But for the values between both, where no row is.
    assert np.isin((found > 25).sum(axis=1), [0, 6]).mean() > 0.95
    same = (found[:, None, :] == X[None]).all(axis=2).any(axis=1)
    assert same.mean() == 0.0


def test_the_distance_is_a_place_among_the_ranks():
    X = np.repeat(np.arange(200.0), 2)[:, None] * np.ones((1, 8))
    assert {tuple(row) for row in mixed(X, 400, 0.0)} == {tuple(row) for row in X}
    for place, rank in enumerate(NEIGHBOUR_RANKS):
        apart = np.ptp(mixed(X, 400, float(place)), axis=1)
        # On a line of twins the eighth neighbour is two steps away.
        assert apart.max() <= rank / 2
        assert np.median(apart) == pytest.approx(rank / 4, abs=1)
    # Between two places some rows are at the one and some at the other.
    some = (np.ptp(mixed(X, 400, 0.25), axis=1) > 0.0).mean()
    assert 0.15 < some < 0.35


def test_a_sample_has_only_some_of_the_neighbours():
    X = np.repeat(np.arange(200.0), 2)[:, None] * np.ones((1, 8))
    apart = np.ptp(mixed(X, 400, 1.0, share=0.25), axis=1)
    assert np.median(apart) == 1.0


@pytest.mark.parametrize("rank", [1, 12, 100])
def test_neighbours_are_those_of_sorted_distances_whatever_the_threads(rank):
    X = np.random.default_rng(5).normal(size=(700, 6))
    asked = X + 0.1
    near = [
        Neighbourhood(X, np.random.default_rng(0), None, workers=Workers(threads))
        for threads in (1, 3)
    ]
    found = [each._find_neighbours(asked, rank) for each in near]
    np.testing.assert_array_equal(found[0], found[1])
    apart = (((asked[:, None] - X) / X.std(axis=0)) ** 2).sum(axis=2)
    # Neighbours are as far as the naive ones: jitter moves them by far less than 1e-2.
    np.testing.assert_allclose(
        apart[np.arange(len(X)), found[0]], np.sort(apart, axis=1)[:, rank], atol=1e-2
    )


def test_codes_are_alike_or_not():
    rng = np.random.default_rng(0)
    code = rng.integers(0, 5, 600)
    X = np.column_stack([code * 1000.0, code * 7.0, code * -3.0, rng.normal(size=600)])
    named = np.array([True, True, True, False])
    found = mixed(X, 600, 1.0, named)
    # Rows with the same codes are nearer than any other, however close the codes' numbers are.
    assert (found[:, 0] / 1000.0 == found[:, 1] / 7.0).mean() > 0.95


def test_the_shadow_tells_rows_that_are_like_training_rows_from_others():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 6))
    noise = rng.integers(0, 2, 3000)

    def found(train, held):
        parts = noise[train], noise[held]
        return find_unseen(X[train], X[held], parts, lambda rows: rows, None, 0).distance

    # Nothing can be learnt: what a model is sure of are the rows that it knows by heart.
    first, last = np.arange(2000), np.arange(2000, 3000)
    assert found(first, last) > 0.8
    # In a table with every row twice, unseen rows are training rows.
    assert found(first, first) < 0.3
    one_class = noise[first] * 0, noise[last] * 0
    found_one = find_unseen(X[first], X[last], one_class, lambda rows: rows, None, 0)
    assert (found_one.distance, found_one.slope) == (USUAL, 1.0)


def test_mixtures_are_as_hard_as_unseen_rows(shared):
    data = load_dataset("letter", shared)
    order = np.random.default_rng(0).permutation(len(data.y))[:6000]
    X, y = np.asarray(data.X, float)[order], np.asarray(data.y)[order]
    model = TimberClassifier(max_iter=20, random_state=1).fit(X[:3500], y[:3500])
    distance = find_unseen(
        X[:2500], X[2500:3500], (y[:2500], y[2500:3500]), lambda rows: rows, None, 0
    ).distance
    near = Neighbourhood(X[:3500], np.random.default_rng(0), None)

    def doubt(rows):
        return 1.0 - model.predict_proba(rows).max(axis=1).mean()

    unseen, training = doubt(X[3500:]), doubt(X[:3500])
    assert doubt(near.mix(X[:3500], 2500, distance)) == pytest.approx(unseen, rel=0.35)
    assert training < 0.8 * unseen


@given(st.integers(2, 5), st.floats(0.1, 1.0), st.integers(0, 99))
def test_estimated_labels_have_the_shares_of_the_classes(k, slope, seed):
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.full(k, 0.5), size=500)
    shares = rng.dirichlet(np.full(k, 5.0))
    found = estimate_labels(p, slope, shares)
    np.testing.assert_allclose(found.sum(axis=1), 1.0)
    np.testing.assert_allclose(found.mean(axis=0), shares, atol=0.02)
    np.testing.assert_allclose(estimate_labels(p, 1.0, None), p, atol=1e-9)


def test_the_slope_tells_how_overconfident_a_model_is_on_unseen_rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4000, 5))
    clear = (X[:, 0] > 0).astype(int)
    blurred = (X[:, 0] + 2.0 * rng.normal(size=4000) > 0).astype(int)
    slopes = [
        find_unseen(X[:2500], X[2500:], (y[:2500], y[2500:]), lambda rows: rows, None, 0).slope
        for y in (clear, blurred)
    ]
    assert slopes[1] < 0.6 < slopes[0]


def test_the_shadow_learns_a_rare_class():
    """Else labels would seem to follow from no score, and no mark to harm their order."""
    X, y = make_classification(
        15_000, 20, n_informative=8, weights=[0.99], flip_y=0.002, random_state=0
    )
    labels = y[:10_000], y[10_000:]
    found = find_unseen(X[:10_000], X[10_000:], labels, lambda rows: rows, None, 0)
    assert found.slope >= 0.4
