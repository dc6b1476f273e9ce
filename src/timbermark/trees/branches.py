"""What the branch around a leaf says about it: parents, means below nodes, odd leaves."""

from __future__ import annotations

import numpy as np

from timbermark.dtypes import AnyArray, Flags, Offsets, Reals
from timbermark.trees.ensemble import Ensemble
from timbermark.trees.statistics import find_children, sum_leaves


def find_parents(e: Ensemble) -> Offsets:
    """Return each node's parent, counted over all trees, -1 for roots, int64 [N].

    >>> from timbermark.trees.construction import constant_ensemble
    >>> find_parents(constant_ensemble(n_features=1, value=1.0))
    array([-1])
    """
    left, right = find_children(e)
    parent = np.full(e.n_nodes, -1, np.int64)
    inner = np.flatnonzero(e.left >= 0)
    parent[left[inner]] = inner
    parent[right[inner]] = inner
    return parent


def node_means(e: Ensemble) -> tuple[Reals, Reals]:
    """Return the weight of each node [N] and the mean leaf value below it [N, 1 or K].

    Weights are hessians where the file has them, else rows, else leaves.

    >>> from timbermark.trees.construction import constant_ensemble
    >>> node_means(constant_ensemble(n_features=1, value=2.0))[1]
    array([[2.]])
    """
    leaf = e.left < 0
    known = (w for w in (e.hessian, e.count) if (w[leaf] > 0.0).all())
    weight = np.where(leaf, next(known, np.ones(e.n_nodes)), 0.0)
    mass = np.maximum(sum_leaves(e, weight), 1e-12)
    sums = [sum_leaves(e, weight * np.where(leaf, v, 0.0)) for v in e.value.T]
    return mass, np.stack(sums, axis=1) / mass[:, None]


def flatten_leaves(e: Ensemble, share: float) -> Reals:
    """Return values [N, 1 or K] in which the ``share`` of leaves that stand out most do not.

    A leaf stands out if it differs from the mean below its parent by more than its weight explains;
    it takes that mean.

    >>> from timbermark.trees.construction import make_ensemble
    >>> stump = make_ensemble(
    ...     n_features=1, tree_start=[0, 3], feature=[0, -1, -1], threshold=[0.5, 0, 0],
    ...     left=[1, -1, -1], right=[2, -1, -1], value=[0, -1, 3],
    ... )
    >>> flatten_leaves(stump, 1.0)[:, 0]
    array([0., 1., 1.])
    """
    mass, mean = node_means(e)
    parent = find_parents(e)
    away = np.abs(e.value - mean[parent]).sum(axis=1)
    # A leaf of n rows differs from its parent by chance as 1/√n does.
    odd = away / (np.sqrt(mass) + 1.0)
    return replace_oddest(e.value, mean[parent], odd, (e.left < 0) & (parent >= 0), share)


def replace_oddest(value: Reals, by: Reals, odd: Reals, able: Flags, share: float) -> Reals:
    """Return values [N, m] with the ``share`` of able nodes [N] that are oddest replaced.

    >>> some = np.arange(2.0)[:, None]
    >>> replace_oddest(some, some + 5.0, np.array([1.0, 2.0]), np.array([True, True]), 0.5)[:, 0]
    array([0., 6.])
    """
    if not able.any():
        return value
    level = np.quantile(odd[able], 1.0 - share)
    chosen: AnyArray = able & (odd >= level) & (odd > 0.0)
    return np.where(chosen[:, None], by, value)
