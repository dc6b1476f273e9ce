"""The nodes of one tree: where they stand, and what inner ones are worth by their leaves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from timbermark.dtypes import AnyArray, Reals
from timbermark.trees.ensemble import Ensemble


def span(ensemble: Ensemble, tree: int) -> slice:
    """Return where the nodes of a tree are in the ensemble's arrays per node.

    >>> from timbermark.trees.making import constant_ensemble
    >>> span(constant_ensemble(n_features=1, value=1.0), 0)
    slice(0, 1, None)
    """
    return slice(int(ensemble.tree_start[tree]), int(ensemble.tree_start[tree + 1]))


def same_nodes(old: Ensemble, new: Ensemble, tree: int, names: Iterable[str]) -> bool:
    """Return whether the named arrays per node say the same of a tree in two ensembles.

    >>> from timbermark.trees.making import constant_ensemble
    >>> one, two = (constant_ensemble(n_features=1, value=v) for v in (1.0, 2.0))
    >>> same_nodes(one, two, 0, ["left", "right"]), same_nodes(one, two, 0, ["value"])
    (True, False)
    """
    mine, given = span(old, tree), span(new, tree)
    return all(np.array_equal(getattr(old, n)[mine], getattr(new, n)[given]) for n in names)


def order_nodes(left: AnyArray, right: AnyArray) -> tuple[list[int], AnyArray]:
    """Return a tree's nodes with parents before children, and the depth of each, int64 [N].

    Children are numbered within the tree, -1 at leaves.

    >>> order_nodes(np.array([2, -1, -1]), np.array([1, -1, -1]))
    ([0, 2, 1], array([0, 1, 1]))
    """
    order, depth = [0], np.zeros(len(left), dtype=np.int64)
    for node in order:
        if left[node] >= 0:
            children = [int(left[node]), int(right[node])]
            depth[children] = depth[node] + 1
            order += children
    return order, depth


def count_and_average(
    order: Sequence[int], left: AnyArray, right: AnyArray, count: Reals, value: Reals
) -> tuple[Reals, Reals]:
    """Return counts and values, float64 [N], in which inner nodes have those of their leaves.

    ``order`` has parents before children. Counts are whole; no leaf counts less than 1, so that
    every share is defined. Counts add up, and values are means by count; leaves keep theirs.

    >>> tree = np.array([1, -1, -1]), np.array([2, -1, -1])
    >>> count_and_average([0, 1, 2], *tree, np.array([9.0, 3.0, 0.2]), np.array([0.0, 4.0, 8.0]))
    (array([4., 3., 1.]), array([5., 4., 8.]))
    """
    count, value = np.maximum(np.rint(count), 1.0), value.copy()
    for node in reversed(order):
        if left[node] >= 0:
            both = [left[node], right[node]]
            count[node] = count[both].sum()
            value[node] = np.average(value[both], weights=count[both])
    return count, value
