import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kernels.making import SHIFT, Tiny, grow_tiny, make_binned, make_rule, new_nodes, tinies
from timbermark.kernels.growing import best_leaf, leaf_value
from timbermark.kernels.layout import NONE, UNKNOWN

leaves = st.integers(2, 6)


@given(tinies(min_rows=2, max_rows=14), leaves)
def test_the_tree_is_that_of_the_naive_grower(tiny, max_leaves):
    found = grow_tiny(tiny, max_leaves)
    expected = tiny.grower().grow(int(tiny.key), max_leaves)
    assert len(found.nodes) == len(expected)
    for name in ("g", "h", "c"):
        assert found.nodes[name].tolist() == [getattr(node.sums, name) for node in expected]
    for name in ("gain", "choice", "key", "left", "split", "feature", "code", "missing_left"):
        assert found.nodes[name].tolist() == [getattr(node, name) for node in expected], name
    for i, node in enumerate(expected):
        if node.split < 0:
            assert (found.leaf[node.rows] == i).all()
            assert (found.margin[node.rows] == found.nodes[i]["value"]).all()
        else:
            packed = [x for sums in node.candidate_sums for x in sums.packed(SHIFT)]
            assert found.record[node.split].tolist() == packed


@given(tinies(min_rows=2, max_rows=14), leaves)
def test_histograms_of_one_word_give_the_same_tree(tiny, max_leaves):
    counted = tiny.counted()
    two = Tiny(
        counted.binned._replace(hessian_bits=-1),
        counted.grad, counted.hess, counted.rule, counted.key,
    )  # fmt: skip
    found, expected = grow_tiny(counted, max_leaves), grow_tiny(two, max_leaves)
    assert found.nodes.tobytes() == expected.nodes.tobytes()
    splits = len(expected.nodes) // 2
    np.testing.assert_array_equal(found.record[:splits], expected.record[:splits])
    np.testing.assert_array_equal(found.leaf, expected.leaf)


def step_data(grad, codes, least_rows=1.0, n_thresholds=3):
    """One feature, every threshold a candidate, hessians of one hundred."""
    n = len(grad)
    binned = make_binned(
        np.array(codes)[:, None], [n_thresholds], [n_thresholds], np.ones(n, np.int32)
    )
    return Tiny(
        binned,
        np.array(grad, np.int32),
        np.full(n, 100, np.int32),
        make_rule(least_rows=least_rows),
        np.uint64(1),
    )


def test_a_step_is_found():
    tiny = step_data([-50, -50, 50, 50], [0, 1, 2, 3])
    grown = grow_tiny(tiny, 2)
    root = grown.nodes[0]
    assert (root["feature"], root["code"], root["left"], root["split"]) == (0, 1, 1, 0)
    assert root["gain"] == 2 * 100 * 100 / 200
    assert grown.nodes["c"].tolist() == [4, 2, 2]
    assert grown.nodes["g"].tolist() == [0, -100, 100]
    # Half a Newton step.
    assert grown.nodes["value"].tolist() == [0.0, -0.25, 0.25]
    assert grown.margin.tolist() == [-0.25, -0.25, 0.25, 0.25]
    assert grown.leaf.tolist() == [1, 1, 2, 2]
    # Nobody asks for the splits of the last children.
    assert grown.nodes["choice"][1:].tolist() == [UNKNOWN, UNKNOWN]


def test_nothing_to_gain_is_a_single_leaf():
    tiny = step_data([-50, -50, -50, -50], [0, 1, 2, 3])
    grown = grow_tiny(tiny, 4)
    assert len(grown.nodes) == 1
    assert grown.nodes[0]["choice"] == NONE
    assert grown.nodes[0]["gain"] == -1.0
    assert grown.nodes[0]["left"] == grown.nodes[0]["feature"] == -1
    assert grown.margin.tolist() == [-0.25] * 4


@pytest.mark.parametrize(
    ("codes", "missing_left"),
    [([0, 1, 1, 1], 0), ([0, 0, 1, 1], 1), ([0, 0, 0, 1], 1)],
)
def test_unseen_missing_values_follow_the_larger_child(codes, missing_left):
    grad = [-50 if code == 0 else 50 for code in codes]
    root = grow_tiny(step_data(grad, codes), 2).nodes[0]
    assert root["code"] == 0
    assert root["missing_left"] == missing_left


@pytest.mark.parametrize(("missing_grad", "missing_left"), [(-50, 1), (50, 0)])
def test_missing_values_go_where_they_gain_most(missing_grad, missing_left):
    tiny = step_data([-50, -50, 50, 50, missing_grad], [0, 0, 3, 3, 4])
    root = grow_tiny(tiny, 2).nodes[0]
    assert (root["feature"], root["missing_left"]) == (0, missing_left)
    assert root["choice"] & 1 == missing_left


def test_missing_values_can_stand_alone():
    tiny = step_data([-50, -50, -50, 50, 50], [0, 1, 3, 4, 4])
    grown = grow_tiny(tiny, 2)
    root = grown.nodes[0]
    # The others, all bins up to the last, go left.
    assert (root["code"], root["missing_left"], root["choice"]) == (3, 0, 6)
    assert grown.leaf.tolist() == [1, 1, 1, 2, 2]
    assert grown.nodes["g"].tolist() == [-50, -150, 100]


def test_the_most_profitable_leaf_comes_first():
    # Left of the first split there is a small step, right of it a large one.
    tiny = step_data([-110, -70, 40, 120], [0, 1, 2, 3])
    nodes = grow_tiny(tiny, 4).nodes
    assert nodes["split"].tolist() == [0, 2, 1, -1, -1, -1, -1]
    assert nodes["left"].tolist() == [1, 5, 3, -1, -1, -1, -1]
    assert nodes[2]["gain"] > nodes[1]["gain"] > 0


def test_children_have_enough_rows():
    tiny = step_data([-50, 50, 50, 50], [0, 1, 2, 3], least_rows=2.0)
    nodes = grow_tiny(tiny, 4).nodes
    assert nodes["c"].tolist() == [4, 2, 2]


def test_best_leaf_is_the_first_of_equals():
    nodes = new_nodes(3)
    nodes["gain"] = [9.0, 2.0, 5.0, 5.0, -1.0]
    nodes["split"] = [0, -1, -1, -1, -1]
    assert best_leaf(nodes, 5) == 2
    assert best_leaf(nodes, 2) == 1
    nodes["gain"] = -1.0
    assert best_leaf(nodes, 5) == -1


@pytest.mark.parametrize(
    ("g", "h", "l2", "limit", "expected"),
    [
        (30, 10, 0.0, 50.0, 1.5),
        (30, 10, 5.0, 50.0, 1.0),
        (-1000, 10, 0.0, 50.0, -25.0),
        (1000, 10, 0.0, 50.0, 25.0),
        (7, 0, 1.0, 50.0, 0.0),
    ],
)
def test_leaf_values(g, h, l2, limit, expected):
    rule = make_rule(l2)._replace(limit=limit)
    assert leaf_value(np.int64(g), np.int64(h), rule) == expected
