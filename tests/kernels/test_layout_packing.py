import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba import config

from timbermark.kernels.layout import (
    NODE,
    Flat,
    count_leaves,
    find_counted,
    flatten_trees,
    pack_sums,
    unpack_sums,
)

SHIFT = 10


def records(draw, g_limit):
    """Sums of three trees with 2, 0 and 1 of 2 possible splits at 4 candidates."""
    n_splits = np.array([2, 0, 1])
    record = np.zeros((3, 2, 8), np.int64)
    for t, s in ((0, 0), (0, 1), (2, 0)):
        for j in range(4):
            record[t, s, 2 * j] = draw(st.integers(-g_limit, g_limit))
            counted = draw(st.integers(0, 2**SHIFT - 1)) if j != 1 else 0
            record[t, s, 2 * j + 1] = (draw(st.integers(0, 2**20)) << SHIFT) + counted
    return record, n_splits


@given(st.data())
def test_sums_come_back(data):
    record, n_splits = records(data.draw, 2**31 - 1)
    counted = np.zeros(4, np.bool_)
    find_counted(record, n_splits, SHIFT, counted)
    rows = record[[0, 0, 2], [0, 1, 0]]
    assert counted.tolist() == ((rows[:, 1::2] % 2**SHIFT) > 0).any(axis=0).tolist()
    kept = np.arange(4)
    g, h, c = (np.zeros((3, 4), np.int32) for _ in range(3))
    assert pack_sums(record, n_splits, kept, SHIFT, g, h, c)
    np.testing.assert_array_equal(g, rows[:, ::2])
    np.testing.assert_array_equal(h, rows[:, 1::2] >> SHIFT)
    np.testing.assert_array_equal(c, rows[:, 1::2] % 2**SHIFT)
    again = np.zeros_like(record)
    unpack_sums(g, h, c, n_splits, kept, SHIFT, again)
    np.testing.assert_array_equal(again, record)


@pytest.mark.skipif(
    bool(config.DISABLE_JIT), reason="NumPy refuses what compiled code wraps around"
)
@pytest.mark.parametrize(("word", "value"), [(0, 2**31), (0, -(2**31) - 1), (1, 2**31 << SHIFT)])
def test_sums_that_do_not_fit_are_noticed(word, value):
    record = np.zeros((1, 1, 4), np.int64)
    record[0, 0, 2 + word] = value
    g, h, c = (np.zeros((1, 2), np.int32) for _ in range(3))
    given = record, np.array([1]), np.arange(2), SHIFT
    assert not pack_sums(*given, g, h, c)
    g, h, c = (np.zeros((1, 2), np.int64) for _ in range(3))
    assert pack_sums(*given, g, h, c)


def test_rows_are_counted_by_leaf():
    leaf = np.array([[1, 2, 1], [0, 0, 0]], np.uint8)
    out = np.zeros((2, 3), np.int64)
    assert count_leaves(leaf, np.array([1, 2, 4], np.int32), np.array([3, 1]), out)
    assert out.tolist() == [[0, 5, 2], [7, 0, 0]]
    assert not count_leaves(leaf, np.ones(3, np.int32), np.array([2, 1]), out)


def test_codes_become_thresholds():
    nodes = np.zeros((2, 5), NODE)
    nodes["left"] = [[1, 3, -1, -1, -1], [1, -1, -1, -1, -1]]
    nodes["feature"] = [[1, 0, -1, -1, -1], [1, -1, -1, -1, -1]]
    nodes["code"] = [[0, -1, 0, 0, 0], [2, 0, 0, 0, 0]]
    nodes["value"], nodes["gain"], nodes["c"], nodes["h"] = 5.0, 3.0, 7, 8
    n = 8
    whole, real = np.zeros(n, np.int32), np.zeros(n)
    flat = Flat(
        whole, real, whole.copy(), whole.copy(), np.zeros(n, np.bool_), np.zeros((n, 1)),
        real.copy(), real.copy(), real.copy(),
    )  # fmt: skip
    values, starts = np.array([0.5, 1.5, 2.5]), np.array([0, 1, 3])
    flatten_trees(nodes, np.array([5, 3]), values, starts, 4.0, flat)
    inf = np.inf
    assert flat.feature.tolist() == [1, 0, -1, -1, -1, 1, -1, -1]
    # The last of feature 1 is a split of missing values against all others.
    assert flat.threshold.tolist() == [1.5, -inf, 0, 0, 0, inf, 0, 0]
    assert flat.left.tolist() == [1, 3, -1, -1, -1, 1, -1, -1]
    assert flat.right.tolist() == [2, 4, -1, -1, -1, 2, -1, -1]
    assert flat.value[:, 0].tolist() == [0, 0, 5, 5, 5, 0, 5, 5]
    assert flat.gain.tolist() == [3, 3, 0, 0, 0, 3, 0, 0]
    assert (flat.count == 7).all()
    assert (flat.hessian == 2).all()
