import numpy as np
import pytest

from tests.boosting.ensembles import random_ensemble, random_rows
from timbermark.boosting.predicting import make_predictor
from timbermark.kernels.predicting import add_margins, add_margins_by_path, lowest_bit
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


def test_paths():
    out = np.zeros((1, 4))
    add_margins_by_path(
        CODES, 1, 3, np.array([0, 5]), np.array([0, 0, 1, 0, 0], np.int32), np.zeros(5, np.int32),
        np.array([1, -1, 3, -1, -1], np.int32), np.array([0.0, 10.0, 0.0, 20.0, 30.0]),
        np.array([0]), out,
    )  # fmt: skip
    # The first row and the last belong to other threads.
    assert out.tolist() == [[0.0, *EXPECTED[1:3], 0.0]]


@pytest.mark.parametrize("n_leaves", [1, 2, 5, 31, 33])
@pytest.mark.parametrize("n_rows", [3, 130])
def test_margins_are_those_of_the_reference(n_leaves, n_rows):
    ensemble = random_ensemble(n_leaves, 2, n_leaves)
    X = random_rows(ensemble, n_rows)
    with Workers(1) as workers:
        found = make_predictor(ensemble).margins(X, workers)
    assert found.tobytes() == margins(ensemble, X).tobytes()
