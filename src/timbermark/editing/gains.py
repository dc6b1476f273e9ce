"""The gains of splits, which an edit must keep so that a file does not reveal it.

A library splits only where the gain is positive, and its file states the gain. Splits that gain
next to nothing would reveal an edit. So a leaf is held the more firmly, the less it differs from
the other side of its split, and the gain of a split may neither fall below a part of what it was
nor grow much above it. Where a file holds no gains, there is nothing to check, and leaves may move
freely.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from timbermark.editing.routing import Router
from timbermark.kernels.editing import SPLIT
from timbermark.trees.ensemble import Ensemble
from timbermark.trees.statistics import find_children, inner_levels

SHYNESS = 0.1
"""The penalty on a leaf, in rows of weight 1, for a change as large as the distance between the
sides of its split."""
_LOWEST, _PART = 0.95, 1.0 / 3.0
"""A split must keep the first share of the gain of its tree's weakest split, and the second of its
own gain: the smallest gains of a tree reveal an edit first (benchmarks/hiding.py)."""
_MOST = 1.7
"""The factor by which a gain may grow: larger gains change the order in which a tree was grown.
Edited LightGBM trees are told with .67 without this limit, .63 with 3, .60 with 1.7 (nine
models)."""
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class Gains:
    """The splits of one output's trees, children before their parents, and its leaves.

    ``splits`` SPLIT [s]; ``first`` int64 [T + 1]: where each tree's splits begin; ``value``,
    ``firm``, ``hold`` float64 [leaves]: what each leaf adds to the margin, its hessian plus ``l2``,
    and what holds it at its value.
    """

    splits: np.ndarray
    first: np.ndarray
    value: np.ndarray
    firm: np.ndarray
    hold: np.ndarray


def limit_gains(router: Router, l2: float | None, unit: float = 1.0) -> list[Gains]:
    """Return for each output what its splits must gain and what holds its leaves.

    ``l2``: what regularizes hessians; None: the file shows no gains, and nothing is limited.
    ``unit``: a change of the margin that matters.
    """
    if l2 is None:
        return [_no_limits(router, c) for c in range(len(router.trees))]
    e = router.ensemble
    nodes = _Nodes.count(e, l2)
    left, right, firm, owner = nodes.left, nodes.right, nodes.firm, nodes.owner
    found: list[Gains] = []
    for c, trees in enumerate(router.trees):
        leaves, value = router.nodes[c], router.values(c)
        g = np.zeros(e.n_nodes)
        g[leaves] = value * firm[leaves]
        for level in reversed(nodes.levels):
            g[level] = g[left[level]] + g[right[level]]
        mine = nodes.inner[np.isin(owner[nodes.inner], trees)]
        a, b = left[mine], right[mine]
        gain = g[a] ** 2 / firm[a] + g[b] ** 2 / firm[b] - g[mine] ** 2 / firm[mine]
        # If the formula does not reproduce the file's gains, these cannot be used against the edit.
        sound = gain > 0.0
        lowest = np.full(e.n_trees, np.inf)
        np.minimum.at(lowest, owner[mine[sound]], gain[sound])
        floor = np.minimum(np.maximum(_LOWEST * lowest[owner[mine]], _PART * gain), gain)
        splits = np.zeros(len(mine), SPLIT)
        splits["left"], splits["right"] = nodes.place[a], nodes.place[b]
        splits["firm"] = firm[mine]
        splits["floor"] = np.where(sound, (1.0 - _ROUNDING) * floor, -np.inf)
        splits["ceiling"] = np.where(sound, np.maximum(_MOST * gain, floor), np.inf)
        first = np.concatenate([[0], np.cumsum(nodes.n_splits[trees])])
        apart = np.zeros(e.n_nodes)
        apart[a] = apart[b] = np.abs(g[a] / firm[a] - g[b] / firm[b])
        hold = SHYNESS * unit**2 / _square_apart(apart[leaves], router.first[c])
        found.append(Gains(splits, first, value, firm[leaves], hold))
    return found


@dataclass(frozen=True, slots=True, eq=False)
class _Nodes:
    """Every node of an ensemble: its children, its tree, its hessian, its place in the tree."""

    left: np.ndarray
    right: np.ndarray
    levels: list[np.ndarray]
    owner: np.ndarray
    firm: np.ndarray
    inner: np.ndarray  # within a tree the deepest first, so that children come before parents
    place: np.ndarray  # a leaf's number within its tree, ~ the number of a split
    n_splits: np.ndarray

    @classmethod
    def count(cls, e: Ensemble, l2: float) -> _Nodes:
        leaf = e.left < 0
        weights = (w for w in (e.hessian, e.count) if (w[leaf] > 0.0).all())
        weight = next(weights, leaf.astype(np.float64))
        left, right = find_children(e)
        firm = np.where(leaf, weight, 0.0)
        levels = inner_levels(e)
        depth = np.zeros(e.n_nodes, np.int64)
        for number, level in enumerate(levels):
            depth[level] = number
        for level in reversed(levels):
            firm[level] = firm[left[level]] + firm[right[level]]
        owner = np.repeat(np.arange(e.n_trees), np.diff(e.tree_start))
        inner = np.flatnonzero(~leaf)
        inner = inner[np.lexsort((-depth[inner], owner[inner]))]
        before = np.searchsorted(owner[inner], np.arange(e.n_trees + 1))
        place = np.zeros(e.n_nodes, np.int64)
        place[inner] = ~(np.arange(len(inner)) - before[owner[inner]])
        leaves = np.concatenate([[0], np.cumsum(leaf)])
        place[leaf] = (leaves[:-1] - leaves[e.tree_start[owner]])[leaf]
        return cls(left, right, levels, owner, firm + l2, inner, place, np.diff(before))


def _square_apart(apart: np.ndarray, first: np.ndarray) -> np.ndarray:
    """Return the squared distance of each leaf from the other side of its split, above 0."""
    sizes = np.diff(first)
    tree = np.repeat(np.arange(len(sizes)), sizes)
    mean = np.bincount(tree, apart**2, len(sizes)) / np.maximum(sizes, 1)
    return np.asarray(np.maximum(apart**2 + 0.01 * mean[tree], np.finfo(np.float64).tiny))


def _no_limits(router: Router, c: int) -> Gains:
    """Return an output's leaves without any splits that could limit them."""
    value = router.values(c)
    first = np.zeros(len(router.trees[c]) + 1, np.int64)
    return Gains(np.zeros(0, SPLIT), first, value, np.ones(len(value)), np.zeros(len(value)))
