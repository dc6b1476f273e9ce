import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.boosting.ensembles import random_ensemble, random_rows
from timbermark.boosting.predicting import make_predictor
from timbermark.kernels.routing import (
    LEFT,
    RIGHT,
    STEP,
    ZERO,
    add_margins,
    assign_codes,
    lowest_bit,
    walk_margins,
)
from timbermark.kernels.workers import Workers
from timbermark.trees.reference import margins


def test_lowest_bit():
    for bit in range(32):
        alone, above = np.uint32(1 << bit), np.uint32(0xFFFFFFFF >> bit << bit)
        assert lowest_bit(alone.view(np.int32)) == bit
        assert lowest_bit(above.view(np.int32)) == bit


# The tree of the module's picture: split 1 parts a from b and c, split 2 parts b from c.
CODES = np.array([[0, 1, 1, 0], [0, 0, 1, 1]], np.uint8)
EXPECTED = [10.0, 20.0, 30.0, 10.0]


def test_leaves_that_remain():
    out = np.array([[0.5] * 4, [0.25] * 4])
    add_margins(
        CODES, 0, 4, np.array([0, 1]), np.array([0, 2, 2, 2, 2]), np.array([0, 1], np.int32),
        np.zeros(2, np.int32), np.array([0b11111110, 0b11111101], np.uint8), np.array([0, 3]),
        np.array([10.0, 20.0, 30.0]), np.array([1]), out,
    )  # fmt: skip
    assert out.tolist() == [[0.5] * 4, [x + 0.25 for x in EXPECTED]]


def walk(X, start, stop, missing, thresholds=(0.5, 0.5)):
    """Send rows down the tree of the picture, behind a tree that is a leaf of value zero."""
    one, two = thresholds
    steps = np.array(
        [(0.0, 0, -1), (one, 0, 2), (10.0, 0, -1), (two, 1, 4), (20.0, 0, -1), (30.0, 0, -1)], STEP
    )
    missing = np.full(len(steps), missing, np.int8)
    out = np.zeros((2, len(X)))
    walk_margins(
        np.array(X, float), start, stop, np.array([0, 1]), steps, missing, np.array([1, 0]), out
    )
    assert not out[1].any()
    return out[0].tolist()


def test_paths():
    # The first row and the last belong to other threads.
    assert walk(CODES.T, 1, 3, LEFT) == [0.0, *EXPECTED[1:3], 0.0]


@pytest.mark.parametrize(
    ("missing", "thresholds", "expected"),
    [
        (LEFT, (0.5, 0.5), 10.0),
        (LEFT, (-np.inf, 0.5), 10.0),
        (RIGHT, (0.5, 0.5), 30.0),
        (RIGHT, (np.inf, np.inf), 30.0),
        (ZERO, (0.5, 0.5), 10.0),
        (ZERO, (-0.5, 0.0), 20.0),
        (ZERO, (-0.5, -0.5), 30.0),
    ],
)
def test_missing_values_on_paths(missing, thresholds, expected):
    assert walk([[np.nan, np.nan]], 0, 1, missing, thresholds) == [expected]


@pytest.mark.parametrize("n_leaves", [1, 2, 5, 31, 33, 70])
@pytest.mark.parametrize("n_rows", [1, 3, 130, 300])
def test_margins_are_those_of_the_reference(n_leaves, n_rows):
    ensemble = random_ensemble(n_leaves, 2, n_leaves)
    X = random_rows(ensemble, n_rows)
    with Workers(1) as workers:
        found = make_predictor(ensemble).margins(X, workers)
    assert found.tobytes() == margins(ensemble, X).tobytes()


numbers = st.sampled_from([-np.inf, -1e308, -1.0, -0.0, 0.0, 5e-324, 0.1, 1.0, 2.0, 1e308, np.inf])


@given(
    st.lists(numbers | st.just(float("nan")), max_size=12),
    st.sets(numbers, max_size=9),
    st.sampled_from([np.uint8, np.uint16]),
)
def test_codes_are_those_of_searchsorted(values, thresholds, dtype):
    values, thresholds = np.array(values, float), np.array(sorted(thresholds), float)
    out = np.full(len(values), 77, dtype)
    assign_codes(values, thresholds, 99, out)
    expected = np.searchsorted(thresholds, values, side="left")
    expected[np.isnan(values)] = 99
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("n_thresholds", [1, 2, 3, 31, 32, 33, 254])
def test_every_place_is_found(n_thresholds):
    thresholds = np.arange(n_thresholds, dtype=float)
    out = np.zeros(2 * n_thresholds + 1, np.uint8)
    # On, between, below and above the thresholds.
    assign_codes(np.arange(2 * n_thresholds + 1) / 2 - 0.5, thresholds, 255, out)
    np.testing.assert_array_equal(out, (np.arange(2 * n_thresholds + 1)) // 2)


def test_codes_beyond_a_byte():
    out = np.zeros(3, np.uint16)
    assign_codes(np.array([298.5, 1e9, np.nan]), np.arange(300.0), 301, out)
    assert out.tolist() == [299, 300, 301]
