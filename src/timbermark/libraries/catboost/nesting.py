"""CatBoost's two forms of trees, and the flat arrays of an ensemble.

A symmetric tree asks one split per level; its leaf is the number that the answers make, the last
split being the highest bit. Nested trees say for each node how far ahead its children are, and 0
for a child that is a leaf without a node of its own: such a leaf's values are its parent's.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from timbermark.dtypes import AnyArray, Offsets
from timbermark.libraries.catboost.flatbuffer import Record


@dataclass(frozen=True, slots=True, eq=False)
class Nodes:
    """All trees' nodes, numbered as in an ensemble; ``leaf`` [N] is -1 at inner nodes."""

    tree_start: Offsets
    split: AnyArray  # [N] a split's number, -1 at leaves
    left: AnyArray
    right: AnyArray
    leaf: AnyArray  # [N] which of CatBoost's leaves


def read_nodes(trees: Record) -> Nodes:
    """Return the nodes of a sound model, parents before their children."""
    if len(trees["NonSymmetricStepNodes"]) == 0:
        return _unfold_symmetric(trees["TreeSplits"], trees["TreeSizes"])
    return _read_nested(trees)


def _unfold_symmetric(splits: AnyArray, sizes: AnyArray) -> Nodes:
    n_nodes = (2 << sizes.astype(np.int64)) - 1
    tree_start = np.concatenate([[0], np.cumsum(n_nodes)])
    split = np.full(tree_start[-1], -1, dtype=np.int64)
    leaf = np.full(tree_start[-1], -1, dtype=np.int64)
    local = np.arange(tree_start[-1]) - np.repeat(tree_start[:-1], n_nodes)
    ends = np.cumsum(sizes.astype(np.int64))
    n_leaves = 0
    for start, depth, end in zip(tree_start[:-1], sizes.tolist(), ends.tolist(), strict=True):
        # Level by level, node i has the children 2 i + 1 and 2 i + 2.
        inner = (1 << depth) - 1
        asked = splits[end - depth : end][::-1]
        split[start : start + inner] = np.repeat(asked, 1 << np.arange(depth))
        leaf[start + inner : start + 2 * inner + 1] = np.arange(n_leaves, n_leaves + inner + 1)
        n_leaves += inner + 1
    has_children = split >= 0
    left = np.where(has_children, 2 * local + 1, -1)
    return Nodes(tree_start, split, left, np.where(has_children, left + 1, -1), leaf)


def _read_nested(trees: Record) -> Nodes:
    steps, sizes = trees["NonSymmetricStepNodes"], trees["TreeSizes"].astype(np.int64)
    left, right = steps["left"].astype(np.int64), steps["right"].astype(np.int64)
    leaf_of = trees["NonSymmetricNodeIdToLeafId"].astype(np.int64) // trees["ApproxDimension"]
    tree = np.repeat(np.arange(len(sizes)), sizes)
    # Leaves without a node get one behind all others of their tree.
    hidden = np.flatnonzero((left == 0) != (right == 0))
    extra = np.bincount(tree[hidden], minlength=len(sizes))
    tree_start = np.concatenate([[0], np.cumsum(sizes + extra)])
    old_start = np.cumsum(sizes) - sizes
    place = np.arange(len(tree)) + (tree_start[:-1] - old_start)[tree]
    rank = np.arange(len(hidden)) - (np.cumsum(extra) - extra)[tree[hidden]]
    behind = (tree_start[:-1] + sizes)[tree[hidden]] + rank
    total = int(tree_start[-1])
    found = {
        name: np.full(total, -1, dtype=np.int64) for name in ("split", "left", "right", "leaf")
    }
    inner = (left > 0) | (right > 0)
    found["split"][place[inner]] = trees["TreeSplits"][inner]
    found["leaf"][place[~inner]] = leaf_of[~inner]
    found["leaf"][behind] = leaf_of[hidden]
    local = place - tree_start[:-1][tree]
    for name, step in (("left", left), ("right", right)):
        child = local + step
        child[hidden] = np.where(
            step[hidden] == 0, behind - tree_start[tree[hidden]], child[hidden]
        )
        found[name][place[inner]] = child[inner]
    return Nodes(tree_start, **found)
