"""Rows as triggers: those that strategies propose, and rows that stay the same when rounded."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import timbermark as tm
from tests.marking.models import KEY, data, fitted
from timbermark.errors import InputError
from timbermark.kernels.workers import Workers
from timbermark.marking.choosing import find_candidates, roundings
from timbermark.marking.in_place import in_both
from timbermark.marking.preparing import prepare

SINGLE = st.floats(width=32, allow_nan=False, allow_infinity=False, allow_subnormal=False)
DOUBLE = st.floats(-1e30, 1e30)


@given(st.lists(SINGLE | DOUBLE, min_size=1, max_size=20))
def test_the_moved_rows_lie_around_the_row(values):
    X = np.array([values])
    low, high = roundings(X)
    assert (low <= X).all()
    assert (high >= X).all()


@given(st.lists(SINGLE | st.floats(1e-30, 1e30), min_size=1, max_size=20))
def test_long_numbers_move_farther_than_transport_moves_them(values):
    X = np.array([values])
    low, high = roundings(X)
    still = low == high
    for sent in (X.astype(np.float32).astype(float), [[float(f"{v:.8g}") for v in values]]):
        assert (still | ((low <= sent) & (sent <= high))).all()


@given(st.lists(st.floats(2.0**-50, 2.0**80, width=32), min_size=1, max_size=20))
def test_only_short_numbers_stand_still(values):
    X = np.array([values])
    low, high = roundings(X)
    single = X.astype(np.float32)
    spare = single.view(np.uint32) & 0xFF == 0
    printed = np.array([[float(f"{v:.6g}") for v in values]])
    near = np.abs(printed - X) <= np.spacing(np.abs(single))
    assert (spare | near)[low == high].all()


@given(st.lists(st.integers(-999_999, 999_999), min_size=1), st.integers(0, 6))
def test_short_decimals_in_single_precision_do_not_move(numbers, places):
    X = np.array([numbers], float) / 10.0**places
    single = X.astype(np.float32).astype(float)
    low, high = roundings(single)
    np.testing.assert_array_equal(low, single)
    np.testing.assert_array_equal(high, single)


@given(st.lists(st.integers(-65_535, 65_535), min_size=1))
def test_values_with_a_byte_to_spare_do_not_move(numbers):
    X = np.array([numbers], float) / 256.0
    for moved in roundings(X):
        np.testing.assert_array_equal(moved, X)


def test_long_numbers_move_both_ways_and_missing_values_stay():
    X = np.array([[0.123456789, 1 / 3, np.nan, 0.0, -7.0]])
    low, high = roundings(X)
    assert (low[0, :2] < X[0, :2]).all()
    assert (high[0, :2] > X[0, :2]).all()
    assert np.isnan([low[0, 2], high[0, 2]]).all()
    np.testing.assert_array_equal(low[0, 3:], X[0, 3:])
    np.testing.assert_array_equal(high[0, 3:], X[0, 3:])


@pytest.fixture(scope="module")
def chosen():
    """Triggers of each kind, from labelled rows that the model has not seen."""
    X, y, more, labels = data("five")
    model = fitted("xgboost", "five")
    with Workers(1) as workers:
        prepared = prepare(model, X, y, (more[:1500], labels[:1500]), None, 0, workers)
        found = {
            kind: find_candidates(prepared, kind, 60, 40, 2, workers).X
            for kind in ("rows", "outlier", "cluster", "confidence", "wrong")
        }
    right = model.predict(more[:1500]) == labels[:1500]
    return prepared, found, (more[:1500], right)


def test_strategies_choose_rows_of_their_kind(chosen):
    _, found, (rows, right) = chosen
    assert in_both(found["wrong"], rows[~right]).all()
    for kind in ("outlier", "cluster", "confidence"):
        assert in_both(found[kind], rows[right]).all()
        assert not in_both(found[kind], found["rows"]).all()
    far = {kind: np.linalg.norm(taken, axis=1).mean() for kind, taken in found.items()}
    assert far["outlier"] > max(far["cluster"], far["confidence"])


def test_wrong_predictions_need_labels_and_enough_of_them(chosen):
    prepared, *_ = chosen
    with Workers(1) as workers:
        with pytest.raises(InputError) as caught:
            find_candidates(replace(prepared, source_target=None), "wrong", 60, 40, 2, workers)
        assert caught.value.code == "triggers.labels"
        with pytest.raises(InputError) as caught:
            find_candidates(prepared, "wrong", 5000, 2000, 2, workers)
        assert caught.value.code == "triggers.too-few"
        bare = replace(prepared, source_target=None)
        assert len(find_candidates(bare, "cluster", 60, 40, 2, workers)) == 60


def test_a_mark_with_triggers_of_a_strategy_proves():
    X, y, more, labels = data("five")
    given = {
        "key": KEY,
        "owner": "Ann",
        "seals": "leaves",
        "candidates": (more[:1500], labels[:1500]),
    }
    made = tm.embed(
        fitted("xgboost", "five"), X, y, **given, triggers="cluster", n_triggers=96, lead=0.3,
        budget=tm.Budget.only(changed=0.2),
    )  # fmt: skip
    assert tm.verify(made.model, made.mark).level == "conclusive"
    assert in_both(np.column_stack(made.mark.leaves.rows()), more[:1500]).all()
    with pytest.raises(InputError) as caught:
        tm.embed(fitted("xgboost", "five"), X, y, **given, triggers="random")
    assert caught.value.code == "triggers.unknown"
