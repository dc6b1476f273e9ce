"""Statistics of inner nodes that follow from the leaves: sums, weights and gains.

Second-order boosting gives a node with the gradient sum G and the hessian sum H the weight w = G /
(H + l2), up to the sign; a leaf has its weight times the learning rate. G of an inner node is the
sum over its leaves, and the gain of a split is G²/(H + l2) of both children minus that of the
parent. All trees are computed together, level by level.

The branch around a leaf says something about it, too: parents, means below nodes, odd leaves.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from timbermark.dtypes import AnyArray, Flags, Offsets, Reals
from timbermark.trees.ensemble import Ensemble


@dataclass(frozen=True, slots=True, eq=False)
class NodeStatistics:
    """What the leaves say of every node; see the module for the formulas."""

    weight: Reals  # [N] before the learning rate
    gain: Reals  # [N] 0 at leaves


def find_children(ensemble: Ensemble) -> tuple[Offsets, Offsets]:
    """Return the left and the right child of every node, counted over all trees, int64 [N].

    The entries of leaves have no meaning.

    >>> from timbermark.trees.construction import constant_ensemble
    >>> [len(side) for side in find_children(constant_ensemble(n_features=1, value=1.0))]
    [1, 1]
    """
    base = np.repeat(ensemble.tree_start[:-1], np.diff(ensemble.tree_start))
    return base + ensemble.left, base + ensemble.right


def inner_levels(ensemble: Ensemble) -> list[Offsets]:
    """Return the inner nodes of all trees by their distance from the root, roots first.

    >>> from timbermark.trees.construction import constant_ensemble
    >>> inner_levels(constant_ensemble(n_features=1, value=1.0))
    []
    """
    left, right = find_children(ensemble)
    levels: list[Offsets] = []
    level = ensemble.tree_start[:-1]
    while (level := level[ensemble.left[level] >= 0]).size:
        levels.append(level)
        level = np.concatenate([left[level], right[level]])
    return levels


def sum_leaves(ensemble: Ensemble, at_leaves: Reals) -> Reals:
    """Return the sum over the leaves below each node, leaves as they are, [N] as ``at_leaves``.

    >>> from timbermark.trees.construction import make_ensemble
    >>> stump = make_ensemble(
    ...     n_features=1, tree_start=[0, 3], feature=[0, -1, -1], threshold=[0.5, 0, 0],
    ...     left=[1, -1, -1], right=[2, -1, -1], value=[0, -1, 1],
    ... )
    >>> sum_leaves(stump, np.array([0.0, 2.0, 5.0]))
    array([7., 2., 5.])
    """
    left, right = find_children(ensemble)
    total = at_leaves.copy()
    for level in reversed(inner_levels(ensemble)):
        total[level] = total[left[level]] + total[right[level]]
    return total


def node_statistics(
    ensemble: Ensemble,
    values: Reals,
    *,
    hessian: Reals,
    l2: float,
    l1: float = 0.0,
    learning_rate: ArrayLike = 1.0,
    bias: ArrayLike = 0.0,
    l2_of_node: Reals | None = None,
) -> NodeStatistics:
    """Return the weight and the gain of every node as they follow from leaf values.

    ``values`` and ``hessian`` are [N]; only leaves count in ``values``. ``learning_rate`` and
    ``bias`` are numbers or [T]: a leaf's value is learning_rate · weight + bias. ``l2_of_node`` [N]
    is what each node's own weight was regularized with, ``l2`` everywhere if it is None. ``l1``
    takes that much off every G; of a weight of 0 it hides G, which then counts as 0.

    >>> from timbermark.trees.construction import make_ensemble
    >>> stump = make_ensemble(
    ...     n_features=1, tree_start=[0, 3], feature=[0, -1, -1], threshold=[0.5, 0, 0],
    ...     left=[1, -1, -1], right=[2, -1, -1], value=[0, -1, 1],
    ... )
    >>> found = node_statistics(stump, stump.value[:, 0], hessian=np.array([4.0, 1, 3]), l2=0.0)
    >>> found.weight, found.gain
    (array([ 0.5, -1. ,  1. ]), array([3., 0., 0.]))
    """
    sizes = np.diff(ensemble.tree_start)
    rate, start = (np.broadcast_to(np.asarray(x, float), len(sizes)) for x in (learning_rate, bias))
    leaf = ensemble.left < 0
    own = np.full(ensemble.n_nodes, l2) if l2_of_node is None else l2_of_node
    damped, plain = hessian + own, hessian + l2
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        weight = (values - np.repeat(start, sizes)) / np.repeat(rate, sizes)
        gradient = weight * damped + np.sign(weight) * l1
        gradient = sum_leaves(ensemble, np.where(leaf, gradient, 0.0))
        gradient = np.sign(gradient) * np.maximum(np.abs(gradient) - l1, 0.0)
        weight = np.where(leaf, weight, gradient / damped)
        score = gradient**2 / damped
        left, right = find_children(ensemble)
        gain = score[np.where(leaf, 0, left)] + score[np.where(leaf, 0, right)]
        gain = np.where(leaf, 0.0, gain - gradient**2 / plain)
    return NodeStatistics(np.nan_to_num(weight, posinf=0.0, neginf=0.0), _finite(gain))


def shift_gains(old: Reals, before: Reals, after: Reals) -> Reals:
    """Return gains moved by the difference of two computed ones, still positive where they were.

    A gain that would not stay positive, which regularization makes possible, becomes the smallest
    positive one of all.

    >>> shift_gains(np.array([5.0, 2.0, 1.5]), np.array([4.0, 2.0, 1.0]), np.array([6.0, 0.0, 1.0]))
    array([7. , 1.5, 1.5])
    """
    moved = old + (after - before)
    positive = old > 0
    floor = old[positive].min(initial=np.inf)
    return np.where(positive & (moved <= 0), floor, moved)


def _finite(values: Reals) -> Reals:
    return np.where(np.isfinite(values), values, 0.0)


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
