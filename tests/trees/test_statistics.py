import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import heavy
from tests.trees.strategies import ensembles
from timbermark.trees.statistics import (
    find_children,
    inner_levels,
    node_statistics,
    shift_gains,
    sum_leaves,
)


def leaves_below(e, tree, node):
    """The leaves below a node by recursion, counted over all trees."""
    at = e.tree_start[tree] + node
    if e.left[at] < 0:
        return [at]
    return leaves_below(e, tree, e.left[at]) + leaves_below(e, tree, e.right[at])


def nodes_of(e):
    for tree in range(e.n_trees):
        for node in range(e.tree_start[tree + 1] - e.tree_start[tree]):
            yield tree, node, int(e.tree_start[tree]) + node


@given(ensembles(), st.integers(0, 999))
@heavy
def test_sums_are_those_over_the_leaves(e, seed):
    numbers = np.random.default_rng(seed).integers(0, 9, e.n_nodes).astype(float)
    total = sum_leaves(e, numbers)
    for tree, node, at in nodes_of(e):
        assert total[at] == numbers[leaves_below(e, tree, node)].sum()


@given(ensembles())
@heavy
def test_levels_hold_every_inner_node_once_and_parents_first(e):
    levels = inner_levels(e)
    found = np.concatenate([np.empty(0, dtype=np.int64), *levels])
    np.testing.assert_array_equal(np.sort(found), np.flatnonzero(e.left >= 0))
    depth = {int(node): i for i, level in enumerate(levels) for node in level}
    left, right = find_children(e)
    for node, level in depth.items():
        for child in (left[node], right[node]):
            assert e.left[child] < 0 or depth[int(child)] == level + 1


@given(
    ensembles(),
    st.integers(0, 999),
    st.sampled_from([0.0, 1.0, 3.5]),
    st.sampled_from([0.0, 0.2]),
    st.booleans(),
)
@heavy
def test_weights_and_gains_are_those_of_the_formula(e, seed, l2, l1, own):
    rng = np.random.default_rng(seed)
    hessian = sum_leaves(e, rng.uniform(0.5, 9.0, e.n_nodes))
    rate, bias = rng.uniform(0.1, 1.0, e.n_trees), rng.normal(size=e.n_trees)
    values = rng.normal(size=e.n_nodes)
    damping = rng.uniform(0.0, 5.0, e.n_nodes) if own else np.full(e.n_nodes, l2)
    found = node_statistics(
        e,
        values,
        hessian=hessian,
        l2=l2,
        l1=l1,
        learning_rate=rate,
        bias=bias,
        l2_of_node=damping if own else None,
    )
    left, right = find_children(e)

    def gradient(tree, node):
        weights = {i: (values[i] - bias[tree]) / rate[tree] for i in leaves_below(e, tree, node)}
        parts = [w * (hessian[i] + damping[i]) + np.sign(w) * l1 for i, w in weights.items()]
        total = sum(parts)
        return np.sign(total) * max(abs(total) - l1, 0.0)

    for tree, node, at in nodes_of(e):
        G = gradient(tree, node)
        np.testing.assert_allclose(found.weight[at], G / (hessian[at] + damping[at]), atol=1e-9)
        if e.left[at] < 0:
            assert found.gain[at] == 0
            continue
        below = [(gradient(tree, e.left[at]), left[at]), (gradient(tree, e.right[at]), right[at])]
        gain = sum(g**2 / (hessian[i] + damping[i]) for g, i in below) - G**2 / (hessian[at] + l2)
        np.testing.assert_allclose(found.gain[at], gain, rtol=1e-9, atol=1e-6)


@given(ensembles(), st.integers(0, 999))
@heavy
def test_a_start_does_not_matter_without_regularization(e, seed):
    rng = np.random.default_rng(seed)
    hessian = sum_leaves(e, rng.uniform(0.5, 9.0, e.n_nodes))
    values = rng.normal(size=e.n_nodes)
    one, two = (node_statistics(e, values + b, hessian=hessian, l2=0.0) for b in (0.0, 3.0))
    np.testing.assert_allclose(one.gain, two.gain, atol=1e-6)


def test_leaves_without_hessians_do_no_harm():
    from timbermark.trees.construction import make_ensemble

    stump = make_ensemble(
        n_features=1,
        tree_start=[0, 3],
        feature=[0, -1, -1],
        threshold=[0.5, 0, 0],
        left=[1, -1, -1],
        right=[2, -1, -1],
        value=[0, -1, 1],
    )
    found = node_statistics(stump, stump.value[:, 0], hessian=np.zeros(3), l2=0.0)
    assert np.isfinite(found.weight).all()
    assert found.gain.tolist() == [0, 0, 0]


def test_gains_stay_positive():
    old, before = np.array([5.0, 2.0, 0.5, 0.0]), np.array([5.0, 2.0, 0.4, 0.0])
    found = shift_gains(old, before, np.array([4.0, -1.0, 0.4, 0.0]))
    np.testing.assert_array_equal(found, [4.0, 0.5, 0.5, 0.0])
