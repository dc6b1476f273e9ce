"""Which leaves an edit leaves alone, so that a model stays monotone where it is.

Libraries can be told that a margin shall never fall, or never rise, as a feature grows, and for
some owners that is a promise to a regulator. Files do not always say so. It shows in the trees: two
leaves that differ in the feature alone are always in the same order. So every feature of which that
is true is taken for a promise. The order of two leaves matters only below a split of the feature.
Leaves below such splits stay as they are, all others may move.

Few splits can be in order by accident, which small models would pay for with their leaf seal. So
unless the library is known to have been told, only features count that a tenth of the trees split.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from timbermark.trees.ensemble import Ensemble
from timbermark.trees.statistics import find_children, inner_levels

if TYPE_CHECKING:
    from timbermark.editing.routing import Router

_ROUNDING = 1e-9
"""What leaf values may differ by, relative to the largest, and be equal: libraries round."""


_LEAST_SHARE = 0.1
"""The share of an output's trees that split a feature which is not in order by accident. (XGBoost,
cancer, three models of 200 trees: 12 to 17 features are, in up to 17 trees each; without this, one
of the models lost its leaf seal.)"""


def promised_leaves(router: Router, told: bool = True) -> list[np.ndarray]:
    """Return for each output which leaves must not move, bool [leaves].

    ``told``: whether it is known that the library was told to keep some feature monotone.

    >>> from timbermark.editing.routing import Router
    >>> from timbermark.trees.construction import make_ensemble
    >>> def stumps(*steps):
    ...     n = len(steps)
    ...     return Router(make_ensemble(
    ...         n_features=1, tree_start=np.arange(n + 1) * 3, feature=[0, -1, -1] * n,
    ...         threshold=np.repeat(np.arange(n), 3), left=[1, -1, -1] * n, right=[2, -1, -1] * n,
    ...         value=np.ravel([[0, 0, step] for step in steps]),
    ...     ))
    >>> [leaves.tolist() for leaves in promised_leaves(stumps(1.0, 2.0))]
    [[True, True, True, True]]
    >>> [leaves.tolist() for leaves in promised_leaves(stumps(1.0, -2.0))]
    [[False, False, False, False]]
    """
    e = router.ensemble
    levels, left, right = inner_levels(e), *find_children(e)
    owner = np.repeat(np.arange(e.n_trees), np.diff(e.tree_start))
    found = []
    for c, trees in enumerate(router.trees):
        value = np.zeros(e.n_nodes)
        value[router.nodes[c]] = router.values(c)
        monotone = find_monotone(e, trees, value)
        if not told:
            monotone &= _share_of_trees(e, trees) >= _LEAST_SHARE
        below = np.zeros(e.n_nodes, np.bool_)
        for level in levels:
            here = below[level] | (monotone[e.feature[level]] & np.isin(owner[level], trees))
            below[left[level]] = below[right[level]] = here
        found.append(below[router.nodes[c]])
    return found


def _share_of_trees(e: Ensemble, trees: np.ndarray) -> np.ndarray:
    """Return float64 [features]: the share of some trees that split each feature."""
    owner = np.repeat(np.arange(e.n_trees), np.diff(e.tree_start))
    inner = np.flatnonzero((e.left >= 0) & np.isin(owner, trees))
    pairs = np.unique(np.stack([owner[inner], e.feature[inner]]), axis=1)
    return np.asarray(np.bincount(pairs[1], minlength=e.n_features) / max(len(trees), 1))


def find_monotone(e: Ensemble, trees: np.ndarray, value: np.ndarray) -> np.ndarray:
    """Return bool [features]: in which features the sum of some trees only rises, or only falls.

    ``value`` float64 [nodes]: what each leaf adds. Features that no tree splits are left out, and
    so are features of categories.
    """
    owner = np.repeat(np.arange(e.n_trees), np.diff(e.tree_start))
    inner = np.flatnonzero((e.left >= 0) & np.isin(owner, trees))
    of_numbers = e.category_set[inner] < 0
    least = _ROUNDING * float(np.abs(value).max(initial=0.0))
    ways = np.zeros((2, e.n_features), np.bool_)  # rises, falls
    left_to_tell = np.zeros(e.n_features, np.bool_)
    left_to_tell[e.feature[inner[of_numbers]]] = True
    left_to_tell[e.feature[inner[~of_numbers]]] = False
    for t in trees:
        # The first trees tell nearly all features that are not monotone.
        if not left_to_tell.any():
            break
        _compare_leaves(e, t, value, left_to_tell, least, ways)
        left_to_tell &= ~ways.all(axis=0)
    return left_to_tell


def _compare_leaves(
    e: Ensemble, t: int, value: np.ndarray, wanted: np.ndarray, least: float, ways: np.ndarray
) -> None:
    """Add to ``ways`` how leaves of a tree are ordered that differ in a wanted feature only."""
    start, stop = e.tree_start[t], e.tree_start[t + 1]
    axes = np.unique(e.feature[start:stop][e.left[start:stop] >= 0])
    if not wanted[axes].any():
        return
    sets = np.flatnonzero(e.category_set[start:stop] >= 0)
    # The sides of a split of categories differ in an axis of their own.
    n_axes = len(axes) + len(sets)
    boxes: dict[int, tuple[np.ndarray, np.ndarray]] = {
        0: (np.full(n_axes, -np.inf), np.full(n_axes, np.inf))
    }
    leaves, walk = [], [0]
    while walk:
        node = walk.pop()
        low, high = boxes[node]
        place = start + node
        if (low >= high).any():
            continue  # no row comes here
        if e.left[place] < 0:
            leaves.append(node)
            continue
        if e.category_set[place] >= 0:
            axis, cut = len(axes) + int(np.searchsorted(sets, node)), 0.0
        else:
            axis = int(np.searchsorted(axes, e.feature[place]))
            cut = float(np.clip(e.threshold[place], low[axis], high[axis]))
        below, above = high.copy(), low.copy()
        below[axis] = above[axis] = cut
        for child, box in ((e.left[place], (low, below)), (e.right[place], (above, high))):
            boxes[int(child)] = box
            walk.append(int(child))
    low, high = (np.array([boxes[leaf][side] for leaf in leaves]) for side in (0, 1))
    apart = (low[:, None] >= high[None]) | (high[:, None] <= low[None])  # [L, L, axes]
    n_apart = apart.sum(axis=2)
    v = value[start + np.array(leaves)]
    rise = v[None] - v[:, None]  # from the first leaf to the second
    for axis, feature in enumerate(axes):
        if not wanted[feature]:
            continue
        next_to = (n_apart == 1) & (high[:, None, axis] <= low[None, :, axis])
        ways[0, feature] |= bool((rise[next_to] > least).any())
        ways[1, feature] |= bool((rise[next_to] < -least).any())
