"""CatBoost's two forms of trees, and the flat arrays of an ensemble.

A symmetric tree asks one split per level; its leaf is the number that the answers make, the last
split being the highest bit. Nested trees say for each node how far ahead its children are, and 0
for a child that is a leaf without a node of its own: such a leaf's values are its parent's.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from timbermark.dtypes import AnyArray, NodeIndices, Offsets, Reals
from timbermark.errors import InputError
from timbermark.libraries.catboost.cbm import STEP
from timbermark.libraries.catboost.flatbuffer import Record

_NO_LEAF = 0xFFFFFFFF
_FARTHEST = 0xFFFF
_DEEPEST = 16


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


def sum_up(nodes: Nodes, of_leaves: Reals) -> Reals:
    """Return [N]: at a leaf its own entry of ``of_leaves``, at an inner node the sum below it."""
    total = np.where(nodes.leaf >= 0, of_leaves[nodes.leaf], 0.0)
    base = np.repeat(nodes.tree_start[:-1], np.diff(nodes.tree_start))
    levels = [nodes.tree_start[:-1]]
    while levels[-1].size:
        inner = levels[-1][nodes.split[levels[-1]] >= 0]
        children = [base[inner] + side[inner] for side in (nodes.left, nodes.right)]
        levels.append(np.concatenate(children))
    for level in reversed(levels):
        inner = level[nodes.split[level] >= 0]
        total[inner] = total[base[inner] + nodes.left[inner]]
        total[inner] += total[base[inner] + nodes.right[inner]]
    return total


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


def write_symmetric(nodes: Nodes) -> tuple[Record, NodeIndices] | None:
    """Return the symmetric form of all trees, or None if one of them is not symmetric.

    The record has what describes shapes; the array says which node each of CatBoost's leaves is.
    """
    base = np.repeat(nodes.tree_start[:-1], np.diff(nodes.tree_start))
    n_trees = len(nodes.tree_start) - 1
    level, tree, depth = nodes.tree_start[:-1], np.arange(n_trees), 0
    asked: list[tuple[AnyArray, AnyArray]] = []
    leaves: list[AnyArray] = [np.empty(0, dtype=np.int64)]
    while level.size:
        split = nodes.split[level]
        first = np.flatnonzero(np.diff(tree, prepend=-1))
        counts = np.diff(first, append=len(level))
        if depth > _DEEPEST or (split != np.repeat(split[first], counts)).any():
            return None
        inner = split >= 0
        leaves.append(level[~inner])
        goes_on = first[inner[first]]
        asked.append((tree[goes_on], split[goes_on]))
        level, tree, depth = level[inner], np.repeat(tree[inner], 2), depth + 1
        pairs = [base[level] + side[level] for side in (nodes.left, nodes.right)]
        level = np.stack(pairs, axis=1).ravel()
    # The root's split is the last one.
    asked.append((np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)))
    trees = np.concatenate([trees for trees, _ in reversed(asked)])
    splits = np.concatenate([splits for _, splits in reversed(asked)])
    sizes = np.bincount(trees, minlength=n_trees)
    leaf_nodes = np.concatenate(leaves)
    owner = np.searchsorted(nodes.tree_start, leaf_nodes, side="right")
    record: Record = {
        "TreeSplits": splits[np.argsort(trees, kind="stable")],
        "TreeSizes": sizes,
        "TreeStartOffsets": np.cumsum(sizes) - sizes,
        "NonSymmetricStepNodes": np.empty(0, STEP),
        "NonSymmetricNodeIdToLeafId": np.empty(0, np.uint32),
    }
    return record, leaf_nodes[np.argsort(owner, kind="stable")].astype(np.int32)


def write_nested(nodes: Nodes, dimension: int) -> tuple[Record, NodeIndices]:
    """Return the nested form of all trees; the result is as that of `write_symmetric`.

    Every leaf has a node of its own. CatBoost itself saves some, but then its SHAP values no longer
    add up to the margin.

    Raises InputError if a tree is too large for CatBoost.
    """
    nodes, order = _parents_first(nodes)
    sizes = np.diff(nodes.tree_start)
    inner = nodes.split >= 0
    local = np.arange(len(inner)) - np.repeat(nodes.tree_start[:-1], sizes)
    steps = np.zeros(len(inner), dtype=STEP)
    for name, child in (("left", nodes.left), ("right", nodes.right)):
        distance = (child - local)[inner]
        if distance.max(initial=0) > _FARTHEST:
            raise InputError(
                f"A tree has a node {distance.max()} nodes ahead of its parent, CatBoost holds at "
                f"most {_FARTHEST}.",
                hint="leave trees of depth 16 symmetric.",
            )
        steps[name][inner] = distance
    leaf_of = np.full(len(inner), _NO_LEAF, dtype=np.int64)
    leaf_of[~inner] = np.arange(int((~inner).sum())) * dimension
    record: Record = {
        "TreeSplits": np.maximum(nodes.split, 0),
        "TreeSizes": sizes,
        "TreeStartOffsets": nodes.tree_start[:-1],
        "NonSymmetricStepNodes": steps,
        "NonSymmetricNodeIdToLeafId": leaf_of,
    }
    return record, order[~inner].astype(np.int32)


def _parents_first(nodes: Nodes) -> tuple[Nodes, AnyArray]:
    """Return nodes in an order that has parents before children, and where each stood before."""
    start = nodes.tree_start
    base = np.repeat(start[:-1], np.diff(start))
    local = np.arange(len(base)) - base
    inner = nodes.split >= 0
    if (nodes.left[inner] > local[inner]).all() and (nodes.right[inner] > local[inner]).all():
        return nodes, np.arange(len(base))
    depth = np.zeros(len(base), dtype=np.int64)
    level, below = start[:-1], 0
    while level.size:
        depth[level] = below
        level = level[inner[level]]
        level = np.concatenate([base[level] + nodes.left[level], base[level] + nodes.right[level]])
        below += 1
    order = np.lexsort((depth, base))
    place = np.empty(len(base), dtype=np.int64)
    place[order] = np.arange(len(base)) - base
    left, right = (
        np.where(inner, place[base + np.where(inner, side, 0)], -1)[order]
        for side in (nodes.left, nodes.right)
    )
    return Nodes(start, nodes.split[order], left, right, nodes.leaf[order]), order
