import numpy as np
import pytest

from tests.boosting.ensembles import random_ensemble, random_rows
from timbermark.boosting.predicting import make_predictor
from timbermark.kernels.predicting import (
    LEFT,
    RIGHT,
    STEP,
    ZERO,
    add_margins,
    lowest_bit,
    walk_margins,
)
from timbermark.kernels.workers import Workers
from timbermark.trees.reference import margins


def test_lowest_bit():
    for bit in range(31):
        assert lowest_bit(np.int32(1 << bit)) == bit
        above = np.int32((0x7FFFFFFF >> bit) << bit)
        assert lowest_bit(above) == bit


# The tree of the module's picture: split 1 parts a from b and c, split 2 parts b from c.
CODES = np.array([[0, 1, 1, 0], [0, 0, 1, 1]], np.uint8)
EXPECTED = [10.0, 20.0, 30.0, 10.0]


def test_leaves_that_remain():
    out = np.array([[0.5] * 4, [0.25] * 4])
    add_margins(
        CODES, 0, 4, np.array([0, 2]), np.array([0, 1], np.int32), np.zeros(2, np.int32),
        np.array([0b110, 0b101], np.int32), np.array([0, 3]), np.array([10.0, 20.0, 30.0]),
        np.array([1]), out,
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


@pytest.mark.parametrize("n_leaves", [1, 2, 5, 31, 33])
@pytest.mark.parametrize("n_rows", [1, 3, 130, 300])
def test_margins_are_those_of_the_reference(n_leaves, n_rows):
    ensemble = random_ensemble(n_leaves, 2, n_leaves)
    X = random_rows(ensemble, n_rows)
    with Workers(1) as workers:
        found = make_predictor(ensemble).margins(X, workers)
    assert found.tobytes() == margins(ensemble, X).tobytes()
