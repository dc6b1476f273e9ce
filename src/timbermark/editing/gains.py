"""What every split gains by its leaves: what an edit must not change much.

A library splits only where there is something to gain, and its file says how much. A thief who
finds splits that gain next to nothing has found an edit. Where a file holds no gains, nobody can
tell, and leaves may move freely.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from timbermark.editing.routing import Router
from timbermark.kernels.editing import SPLIT
from timbermark.trees.statistics import find_children, inner_levels

_FLOOR = 0.95
"""Of a tree's smallest gain: no split may fall below it. Where trees grow best first, the gains of
a tree are close to each other."""
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class Gains:
    """The splits of one output's trees, children before their parents, and its leaves.

    ``splits`` SPLIT [s]; ``first`` int64 [T + 1]: where each tree's splits begin; ``value``,
    ``firm`` float64 [leaves]: what each leaf adds to the margin, and its hessian plus ``l2``.
    """

    splits: np.ndarray
    first: np.ndarray
    value: np.ndarray
    firm: np.ndarray


def limit_gains(router: Router, l2: float | None, stride: float) -> list[Gains]:
    """Return for each output what its splits may gain: (1 ± stride)² of what they gain now.

    ``l2``: what regularizes hessians; None, or a ``stride`` of 1 or more, sets no limits.
    """
    if l2 is None or stride >= 1.0:
        return [_no_limits(router, c) for c in range(len(router.trees))]
    e = router.ensemble
    leaf = e.left < 0
    weights = (w for w in (e.hessian, e.count) if (w[leaf] > 0.0).all())
    weight = next(weights, leaf.astype(np.float64))
    left, right = find_children(e)
    firm = np.where(leaf, weight, 0.0)
    levels = inner_levels(e)
    for level in reversed(levels):
        firm[level] = firm[left[level]] + firm[right[level]]
    firm = firm + l2
    depth = np.zeros(e.n_nodes, np.int64)
    for number, level in enumerate(levels):
        depth[level] = number
    owner = np.repeat(np.arange(e.n_trees), np.diff(e.tree_start))
    inner = np.flatnonzero(~leaf)
    # Within a tree the deepest first, so that children come before their parents.
    inner = inner[np.lexsort((-depth[inner], owner[inner]))]
    before = np.searchsorted(owner[inner], np.arange(e.n_trees + 1))
    place = np.zeros(e.n_nodes, np.int64)
    place[inner] = ~(np.arange(len(inner)) - before[owner[inner]])
    leaves = np.concatenate([[0], np.cumsum(leaf)])
    place[leaf] = (leaves[:-1] - leaves[e.tree_start[owner]])[leaf]
    sizes = np.diff(before)
    found: list[Gains] = []
    for c, trees in enumerate(router.trees):
        nodes = router.nodes[c]
        value = router.values(c)
        g = np.zeros(e.n_nodes)
        g[nodes] = value * firm[nodes]
        for level in reversed(levels):
            g[level] = g[left[level]] + g[right[level]]
        mine = inner[np.isin(owner[inner], trees)]
        a, b = left[mine], right[mine]
        gain = g[a] ** 2 / firm[a] + g[b] ** 2 / firm[b] - g[mine] ** 2 / firm[mine]
        splits = np.zeros(len(mine), SPLIT)
        splits["left"], splits["right"] = place[a], place[b]
        splits["firm"] = firm[mine]
        # Where the formula does not give what the file says, nobody can hold the edit to it.
        sound = gain > 0.0
        lowest = np.full(e.n_trees, np.inf)
        np.minimum.at(lowest, owner[mine[sound]], gain[sound])
        floor = np.minimum(_FLOOR * lowest[owner[mine]], gain)
        least = np.maximum((1.0 - stride) ** 2 * gain, floor)
        most = (1.0 + stride) ** 2 * gain
        splits["least"] = np.where(sound, (1.0 - _ROUNDING) * least, -np.inf)
        splits["most"] = np.where(sound, (1.0 + _ROUNDING) * most, np.inf)
        splits["share"] = firm[a] / (firm[a] + firm[b])
        apart = g[a] / firm[a] - g[b] / firm[b]
        with np.errstate(divide="ignore", invalid="ignore"):
            inner_most = (np.sqrt(least / gain) - 1.0) * apart
            outer_most = (np.sqrt(most / gain) - 1.0) * apart
        splits["low"] = np.where(sound, np.minimum(inner_most, outer_most), -np.inf)
        splits["high"] = np.where(sound, np.maximum(inner_most, outer_most), np.inf)
        starts = np.concatenate([[0], np.cumsum(sizes[trees])])
        found.append(Gains(splits, starts, value, firm[nodes]))
    return found


def _no_limits(router: Router, c: int) -> Gains:
    """Return an output's leaves without any splits that could limit them."""
    value = router.values(c)
    first = np.zeros(len(router.trees[c]) + 1, np.int64)
    return Gains(np.zeros(0, SPLIT), first, value, np.ones(len(value)))
