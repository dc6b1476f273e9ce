"""Leaf numbers and sums of leaf values, against the naive predictor and plain loops."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.trees.oracle import naive_leaves
from tests.trees.strategies import VALUES, ensembles_and_rows
from timbermark.editing.routing import Router
from timbermark.kernels.routing import ROUTE, add_leaf_values, is_member, route_rows
from timbermark.trees.ensemble import ZERO_RANGE


@given(st.lists(st.sets(st.integers(0, 6)), min_size=1, max_size=4), st.data())
def test_members_of_a_set_are_found_by_their_whole_part(sets, data):
    values = np.array([value for members in sets for value in sorted(members)], np.float64)
    offsets = np.cumsum([0, *map(len, sets)])
    number = data.draw(st.integers(0, len(sets) - 1))
    x = data.draw(st.sampled_from([value for value in VALUES if value == value] + [5.0, 6.9]))
    expected = np.isfinite(x) and int(x) in sets[number]
    last = offsets[number + 1]
    assert bool(is_member(values[:last], offsets[number], last, x)) == expected


@given(ensembles_and_rows(), st.sampled_from([np.uint8, np.uint16, np.int32]))
def test_rows_end_where_the_naive_predictor_says(case, kind):
    e, X = case
    with np.errstate(over="ignore"):
        rows = X.astype(e.input_dtype).astype(np.float64)
    out = np.full((e.n_trees, len(rows)), 77, kind)
    route_rows(
        rows, 0, len(rows), e.tree_start[:-1], Router(e)._records, e.category_offsets,
        e.category_values.astype(np.float64), e.categories_go == "left", ZERO_RANGE, out,
    )  # fmt: skip
    expected = np.array(naive_leaves(e, X)).reshape(len(X), e.n_trees).T
    # The kernel counts leaves, the naive predictor nodes.
    for tree in range(e.n_trees):
        start, stop = e.tree_start[tree : tree + 2]
        leaves = np.flatnonzero(e.left[start:stop] < 0)
        assert leaves[out[tree]].tolist() == expected[tree].tolist()


def test_only_the_rows_asked_for_are_written():
    nodes = np.zeros(3, ROUTE)
    nodes["feature"], nodes["left"], nodes["right"] = [0, -1, -1], [1, -1, -1], [2, -1, -1]
    nodes["category_set"], nodes["leaf"], nodes["threshold"] = -1, [0, 0, 1], 0.5
    X = np.linspace(0, 1, 200)[:, None]
    out = np.full((1, 200), 9, np.uint8)
    nothing = np.zeros(1, np.int64), np.empty(0)
    route_rows(X, 50, 130, np.zeros(1, np.int64), nodes, *nothing, True, ZERO_RANGE, out)
    assert (out[0, 50:130] == (X[50:130, 0] > 0.5)).all()
    assert (out[0, :50] == 9).all()
    assert (out[0, 130:] == 9).all()


@pytest.mark.parametrize("n", [0, 1, 1023, 1024, 1025, 3000])
@pytest.mark.parametrize("kind", [np.uint8, np.uint16, np.int32])
def test_leaf_values_are_added_tree_after_tree(n, kind):
    rng = np.random.default_rng(n)
    sizes = [1, 5, 3]
    first = np.cumsum([0, *sizes])
    leaf = np.array([rng.integers(0, size, n) for size in sizes]).reshape(3, n).astype(kind)
    value = rng.normal(size=first[-1])
    begin = rng.normal(size=n)
    out = begin.copy()
    start, stop = n // 4, n - n // 5
    add_leaf_values(leaf, start, stop, first, value, out)
    for i in range(n):
        total = begin[i]
        for tree in range(3):
            total += value[first[tree] + leaf[tree, i]] if start <= i < stop else 0.0
        assert out[i] == total
