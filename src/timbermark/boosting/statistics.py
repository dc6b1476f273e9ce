"""What a model's file says of its nodes, carried over to trees that were changed without its rows.

An update on rows that only stand in for the training rows sets counts and hessians that are not the
model's. A library uses them: for importances, and to weigh the two sides of a split in SHAP values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from timbermark.trees.ensemble import Ensemble

_LEAST_SHARE = 1e-3
"""Of a subtree: what a new leaf gets at least, so that no side of a split is empty."""
_SPLIT = ("feature", "threshold", "missing_left", "category_set")


def carry_statistics(old: Ensemble, new: Ensemble, source: Sequence[int]) -> Ensemble:
    """``new`` with the counts and hessians of ``old``, whose update it is.

    ``source``: the tree of ``old`` that each tree of ``new`` comes from. A node that both have
    keeps what it had. Where a subtree was regrown, its new leaves share what the old one had, as
    the rows of the update were shared among them.
    """
    sums = {"count": new.count.astype(np.float64), "hessian": new.hessian.copy()}
    given = {"count": old.count.astype(np.float64), "hessian": old.hessian}
    for tree, origin in enumerate(source):
        mine = slice(int(new.tree_start[tree]), int(new.tree_start[tree + 1]))
        theirs = slice(int(old.tree_start[origin]), int(old.tree_start[origin + 1]))
        _carry(old, theirs, new, mine, given, sums)
    count = np.rint(sums["count"]).astype(new.count.dtype)
    return replace(new, count=count, hessian=sums["hessian"])


def _carry(
    old: Ensemble,
    theirs: slice,
    new: Ensemble,
    mine: slice,
    given: dict[str, np.ndarray],
    sums: dict[str, np.ndarray],
) -> None:
    """The same for one tree; ``sums`` is written."""
    left, right = new.left[mine].tolist(), new.right[mine].tolist()
    old_left, old_right = old.left[theirs].tolist(), old.right[theirs].tolist()
    split = list(zip(*(getattr(new, name)[mine].tolist() for name in _SPLIT), strict=True))
    old_split = list(zip(*(getattr(old, name)[theirs].tolist() for name in _SPLIT), strict=True))
    pairs = [(0, 0)]
    for here, there in pairs:
        inner = left[here] >= 0 and old_left[there] >= 0 and split[here] == old_split[there]
        if inner:
            for name, values in sums.items():
                values[mine][here] = given[name][theirs][there]
            pairs += [(left[here], old_left[there]), (right[here], old_right[there])]
            continue
        below = [here]
        for node in below:
            if left[node] >= 0:
                below += [left[node], right[node]]
        leaves = [node for node in below if left[node] < 0]
        for name, values in sums.items():
            whole = given[name][theirs][there]
            share = np.maximum(values[mine][leaves], 0.0)
            share += max(_LEAST_SHARE * share.sum(), 1e-12)
            values[mine][leaves] = _divide(whole, share / share.sum(), name == "count")
        # Parents come before their children.
        for node in reversed([node for node in below if left[node] >= 0]):
            for values in sums.values():
                tree = values[mine]
                tree[node] = tree[left[node]] + tree[right[node]]


def _divide(whole: float, share: np.ndarray, counts: bool) -> np.ndarray:
    """``whole`` in these shares; counts are whole numbers, none of them 0 if it can be."""
    if not counts or whole <= 0.0:
        return np.asarray(whole * share)
    parts = np.maximum(np.rint(whole * share), 1.0)
    # What rounding gave or took, the largest part gives back, as far as it can.
    largest = int(parts.argmax())
    parts[largest] = max(parts[largest] + whole - parts.sum(), 1.0)
    return np.asarray(parts)
