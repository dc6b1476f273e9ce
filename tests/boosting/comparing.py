"""Bit for bit: what tests mean when they say that two forests are the same."""

import numpy as np

from timbermark.kernels.layout import NODE


def used_nodes(forest, tree):
    """The nodes of one tree, without the room that it did not need."""
    return forest.nodes[tree, : forest.n_nodes[tree]]


def n_leaves(forest):
    """int64[T]."""
    return (forest.n_nodes + 1) // 2


def assert_same_forest(found, expected):
    np.testing.assert_array_equal(found.n_nodes, expected.n_nodes)
    assert found.n_outputs == expected.n_outputs
    for tree in range(expected.n_trees):
        a, b = used_nodes(found, tree), used_nodes(expected, tree)
        for name in NODE.names:
            np.testing.assert_array_equal(a[name], b[name], err_msg=f"tree {tree}, {name}")
        assert a.tobytes() == b.tobytes()  # signs of zeros


def assert_same_training(found, expected):
    assert_same_forest(found.forest, expected.forest)
    np.testing.assert_array_equal(found.leaf, expected.leaf)
    assert found.leaf.dtype == expected.leaf.dtype
    assert found.margins.tobytes() == expected.margins.tobytes()
    assert found.record.shape == expected.record.shape
    if expected.record.shape[1] > 0:
        for tree, leaves in enumerate(n_leaves(expected.forest)):
            np.testing.assert_array_equal(
                found.record[tree, : leaves - 1], expected.record[tree, : leaves - 1]
            )


def assert_same_as_naive(found, expected, shift):
    """``found`` Trained, with its record; ``expected`` NaiveTrained."""
    assert found.forest.n_nodes.tolist() == [len(nodes) for nodes in expected.trees]
    for tree, nodes in enumerate(expected.trees):
        a = used_nodes(found.forest, tree)
        for name in ("g", "h", "c"):
            assert a[name].tolist() == [getattr(node.sums, name) for node in nodes], (tree, name)
        for name in (
            "gain", "choice", "key", "value", "left", "split", "feature", "code", "missing_left",
        ):  # fmt: skip
            assert a[name].tolist() == [getattr(node, name) for node in nodes], (tree, name)
        for node in nodes:
            if node.split >= 0:
                packed = [x for sums in node.candidate_sums for x in sums.packed(shift)]
                assert found.record[tree, node.split].tolist() == packed, (tree, node.split)
    np.testing.assert_array_equal(found.leaf, expected.leaf)
    assert found.margins.tobytes() == expected.margins.tobytes()
