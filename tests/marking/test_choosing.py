"""Rows a few units off: wider than what transport does, and still where transport is exact."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from timbermark.marking.choosing import roundings

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
