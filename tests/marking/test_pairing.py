"""Pairs of rows: what they are made of, and how easily they move."""

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from timbermark.marking.pairing import find_pairs, pair_room, step_rows

from timbermark.errors import InputError
from timbermark.kernels.workers import Workers
from timbermark.marking.preparing import columns, prepare

RNG = np.random.default_rng(0)
X = np.round(RNG.normal(size=(1500, 5)), 2)
Y = X[:, 0] + X[:, 1] * X[:, 2] + 0.3 * RNG.normal(size=1500)


@pytest.fixture(scope="module")
def workers():
    with Workers(1) as some:
        yield some


@pytest.fixture(scope="module")
def prepared(workers):
    model = HistGradientBoostingRegressor(max_iter=20, random_state=0).fit(X, Y)
    return prepare(model, X, Y, None, None, 0, workers)


def test_the_second_row_steps_over_a_threshold_to_the_next_value(prepared):
    pool = prepared.source[:300]
    pairs, source = step_rows(pool, prepared, np.random.default_rng(1))
    first, second = pairs[::2], pairs[1::2]
    np.testing.assert_array_equal(first, pool[source])
    changed = first != second
    assert (changed.sum(axis=1) == 1).all()
    e = prepared.foreign.ensemble
    inner = e.left >= 0
    for i in range(len(first)):
        j = int(np.flatnonzero(changed[i])[0])
        low, high = sorted((first[i, j], second[i, j]))
        cuts = e.threshold[inner & (e.feature == j)]
        crossed = np.unique(cuts[(cuts >= low) & (cuts < high)])
        assert len(crossed) >= 1
        # No value of the data on the way is beyond the nearest threshold.
        nearest = crossed.min() if second[i, j] > first[i, j] else crossed.max()
        between = prepared.source[:, j]
        between = between[(between > low) & (between < high)]
        beyond = between > nearest if second[i, j] > first[i, j] else between <= nearest
        assert not beyond.any()


def test_pairs_before_transformers_are_those_of_the_bare_model(prepared, workers):
    model = make_pipeline(FunctionTransformer(), prepared.foreign.native)
    deployed = prepare(model, X, Y, None, None, 0, workers)
    assert deployed.foreign.inside
    pool = prepared.source[:300]
    ours, theirs = (
        step_rows(pool, either, np.random.default_rng(1)) for either in (prepared, deployed)
    )
    np.testing.assert_array_equal(ours[0], theirs[0])
    np.testing.assert_array_equal(ours[1], theirs[1])


def test_values_step_over_thresholds_that_lie_behind_a_transformer(workers):
    scaler = StandardScaler().fit(X)
    inner = HistGradientBoostingRegressor(max_iter=20, random_state=0).fit(scaler.transform(X), Y)
    prepared = prepare(make_pipeline(scaler, inner), X, Y, None, None, 0, workers)
    pairs, _ = step_rows(prepared.source[:300], prepared, np.random.default_rng(1))
    first, second = scaler.transform(pairs[::2]), scaler.transform(pairs[1::2])
    assert (pairs[::2] != pairs[1::2]).sum(axis=1).tolist() == [1] * len(first)
    e = prepared.foreign.ensemble
    for a, b in zip(first, second, strict=True):
        j = int(np.flatnonzero(a != b)[0])
        cuts = np.unique(e.threshold[(e.left >= 0) & (e.feature == j)])
        low, high = sorted((a[j], b[j]))
        assert ((cuts >= low) & (cuts < high)).any()


def test_room_is_that_of_leaves_which_differ(prepared, workers):
    pairs, _ = step_rows(prepared.source[:50], prepared, np.random.default_rng(1))
    routes = prepared.router.route(columns(prepared.foreign, pairs), workers)
    room, first = pair_room(prepared, routes), prepared.router.first[0]
    for i in range(len(room)):
        expected = 0.0
        for t, leaf in enumerate(routes.leaf[0]):
            a, b = int(leaf[2 * i]), int(leaf[2 * i + 1])
            if a != b:
                mass = prepared.mass[0][[first[t] + a, first[t] + b]]
                expected += (1.0 / (mass + 1.0)).sum()
        assert room[i] == pytest.approx(expected)


@pytest.mark.parametrize("kind", ["mixed", "rows"])
def test_the_cheapest_pair_comes_first_and_pairs_share_no_row(prepared, workers, kind):
    found = find_pairs(prepared, kind, 60, 20, 4, workers)
    assert 20 <= len(found) <= 60
    assert len(found.X) == 2 * len(found)
    assert len(np.unique(found.X, axis=0)) == len(found.X)
    room = pair_room(prepared, found.routes)
    price = found.alphabets[:, -1] ** 2 / room
    # The others are in the order in which they are cheap together.
    assert price.argmin() == 0
    some = found.take(np.array([3, 1]))
    np.testing.assert_array_equal(some.X, found.X[[6, 7, 2, 3]])
    np.testing.assert_array_equal(some.margins, found.margins[[6, 7, 2, 3]])


def test_too_few_pairs_are_refused(prepared, workers):
    with pytest.raises(InputError, match="pairs of rows"):
        find_pairs(prepared, "mixed", 10**6, 10**6, 4, workers)
