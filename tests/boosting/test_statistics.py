"""Counts and hessians of a model whose trees were changed without its training rows."""

import numpy as np
import pytest

from timbermark.boosting.statistics import carry_statistics
from timbermark.trees.making import make_ensemble


def tree(feature, threshold, left, right, count, hessian):
    return make_ensemble(
        n_features=3, n_outputs=1, objective="logistic", tree_start=[0, len(feature)],
        tree_output=[0], feature=feature, threshold=threshold, left=left, right=right,
        value=np.zeros((len(feature), 1)), count=count, hessian=hessian,
    )  # fmt: skip


OLD = tree(
    [0, 1, -1, -1, -1], [0.5, 2.0, 0, 0, 0], [1, 3, -1, -1, -1], [2, 4, -1, -1, -1],
    [100, 60, 40, 20, 40], [10.0, 6.0, 4.0, 2.0, 4.0],
)  # fmt: skip


def test_what_stayed_keeps_its_numbers():
    changed = tree(
        OLD.feature, OLD.threshold, OLD.left, OLD.right, [9, 9, 0, 4, 5], [1.0, 1.0, 0.0, 0.3, 0.7]
    )
    carried = carry_statistics(OLD, changed, [0])
    assert carried.count.tolist() == OLD.count.tolist()
    assert carried.hessian.tolist() == OLD.hessian.tolist()


def test_a_regrown_subtree_shares_what_the_old_one_had():
    # The same root; its left child now splits elsewhere, its right child is split as well.
    new = tree(
        [0, 2, 1, -1, -1, -1, -1], [0.5, 1.0, 7.0, 0, 0, 0, 0], [1, 3, 5, -1, -1, -1, -1],
        [2, 4, 6, -1, -1, -1, -1], [50, 40, 10, 30, 10, 10, 0],
        [5.0, 4.0, 1.0, 3.0, 1.0, 1.0, 0.0],
    )  # fmt: skip
    carried = carry_statistics(OLD, new, [0])
    assert carried.count[3:5].tolist() == [45, 15]
    assert carried.hessian[3:5] == pytest.approx([4.5, 1.5], rel=0.01)
    # Nothing is empty, and every split has what its two sides have.
    assert (carried.count > 0).all()
    assert (carried.hessian > 0).all()
    assert carried.count[0] == 100
    for node in (0, 1, 2):
        for sums in (carried.count, carried.hessian):
            assert sums[node] == sums[new.left[node]] + sums[new.right[node]]
    assert carried.hessian[0] == pytest.approx(10.0)


def test_a_model_without_counts_stays_without():
    bare = tree(OLD.feature, OLD.threshold, OLD.left, OLD.right, np.zeros(5, np.int64), np.zeros(5))
    assert not carry_statistics(bare, OLD, [0]).count.any()
    assert not carry_statistics(bare, OLD, [0]).hessian.any()
