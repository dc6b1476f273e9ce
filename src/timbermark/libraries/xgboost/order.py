"""The order of XGBoost's nodes, which grow_policy="lossguide" makes that of gains.

The k-th split of a tree has nodes 2 k + 1 and 2 k + 2 as children. Trees grown level by level have
their splits in the order of node numbers; those grown by loss are split at the highest gain next.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from timbermark.dtypes import AnyArray
from timbermark.libraries.best_first import gains_fall, grow_best_first

_SAMPLE = 100  # so many trees tell how a model was grown
_CHILDREN = ("left_children", "right_children")
_BY_NODE = (
    *("base_weights", "default_left", "loss_changes", "split_conditions", "split_indices"),
    *("split_type", "sum_hessian"),
)
_NO_PARENT = 2147483647


def keep_best_first(old: list[dict[str, Any]], new: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a document's trees with nodes in the order of gains, if the model was grown so.

    ``new`` are the trees of ``old`` with other leaf values and statistics. Trees that are in order
    stay as they are; predictions are the same.
    """
    changed = [i for i, (mine, given) in enumerate(zip(old, new, strict=True)) if mine is not given]
    if not changed or not _grown_by_loss(old[:_SAMPLE]):
        return new
    found = list(new)
    for number in changed:
        splits, left, right = _splits(old[number])
        if len(splits) and follows_gains(old[number]) and not follows_gains(new[number]):
            gain = new[number]["loss_changes"][splits]
            _, node, leaf = grow_best_first(left, right, gain, _number_children)
            place = np.empty(2 * len(splits) + 1, dtype=np.int64)
            place[splits] = node
            place[_leaves(new[number])] = leaf
            found[number] = _renumbered(new[number], place)
    return found


def follows_gains(tree: dict[str, Any]) -> bool:
    """Return whether a tree's nodes are numbered as growing by loss would number them."""
    splits, left, right = _splits(tree)
    pairs = tree["left_children"][splits] == 1 + 2 * np.arange(len(splits))
    whole = len(tree["left_children"]) == 2 * len(splits) + 1
    return bool(pairs.all()) and whole and gains_fall(left, right, tree["loss_changes"][splits])


def _number_children(step: int, number: int) -> tuple[int, int]:
    return 2 * step + 1, 2 * step + 2


def _grown_by_loss(trees: list[dict[str, Any]]) -> bool:
    by_level = all((np.diff(_splits(tree)[0]) > 0).all() for tree in trees)
    return not by_level and all(follows_gains(tree) for tree in trees)


def _leaves(tree: dict[str, Any]) -> AnyArray:
    return np.flatnonzero(tree["left_children"] < 0)


def _splits(tree: dict[str, Any]) -> tuple[AnyArray, AnyArray, AnyArray]:
    """Return the nodes that are split, in the order of it, and their children as `gains_fall` does.

    Nodes that were pruned away are among neither.
    """
    child = np.asarray(tree["left_children"], dtype=np.int64)
    inner = np.flatnonzero(child >= 0)
    splits = inner[np.argsort(child[inner])]
    number = np.empty(len(child), dtype=np.int64)
    number[splits] = np.arange(len(splits))
    leaves = _leaves(tree)
    number[leaves] = ~np.arange(len(leaves))
    left, right = (number[np.asarray(tree[name], dtype=np.int64)[splits]] for name in _CHILDREN)
    return splits, left, right


def _renumbered(tree: dict[str, Any], place: AnyArray) -> dict[str, Any]:
    """Return a tree whose nodes have moved to other places, [N]."""
    order = np.argsort(place)
    found = dict(tree)
    for name in _BY_NODE:
        found[name] = tree[name][order]
    for name, none in (("left_children", -1), ("right_children", -1), ("parents", _NO_PARENT)):
        to = np.asarray(tree[name], dtype=np.int64)[order]
        known = to != none
        to[known] = place[to[known]]
        found[name] = to.astype(tree[name].dtype)
    nodes = place[np.asarray(tree["categories_nodes"], dtype=np.int64)]
    turn = np.argsort(nodes)
    sizes = np.asarray(tree["categories_sizes"], dtype=np.int64)
    segments = np.asarray(tree["categories_segments"], dtype=np.int64)
    members = [tree["categories"][segments[i] : segments[i] + sizes[i]] for i in turn]
    for name, numbers in (
        ("categories_nodes", nodes[turn]),
        ("categories_sizes", sizes[turn]),
        ("categories_segments", np.cumsum(sizes[turn]) - sizes[turn]),
        ("categories", np.concatenate([tree["categories"][:0], *members])),
    ):
        found[name] = numbers.astype(tree[name].dtype)
    return found
