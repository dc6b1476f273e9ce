"""The order of LightGBM's splits: from the best one down.

LightGBM splits the leaf with the highest gain next. Split i of a tree is its i-th; the left child
keeps the leaf's number and the right child becomes leaf i + 1. When gains have changed, a tree that
was numbered so is numbered so again, as if it had been grown with these gains.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from timbermark.dtypes import AnyArray, Offsets
from timbermark.libraries.best_first import gains_fall, grow_best_first
from timbermark.libraries.lightgbm.blocks import BY_CATEGORY, OF_LEAVES, OF_SPLITS, Blocks, starts


def keep_best_first(old: Blocks, new: Blocks) -> Blocks:
    """Return trees whose splits are in the order of their gains, where they were before.

    ``new`` are the trees of ``old`` with other leaf values and statistics. Only trees that ``old``
    has in order and ``new`` has not are numbered anew; predictions are the same.
    """
    split, leaf = starts(new.num_leaves - 1), starts(new.num_leaves)
    changed = np.flatnonzero(old.split_gain != new.split_gain)
    split_order, leaf_order = np.arange(split[-1]), np.arange(leaf[-1])
    left, right = new.left_child.copy(), new.right_child.copy()
    renumbered = []
    for tree in np.unique(np.searchsorted(split, changed, side="right") - 1).tolist():
        at = slice(int(split[tree]), int(split[tree + 1]))
        children = left[at].copy(), right[at].copy()
        if follows_gains(*children, new.split_gain[at]):
            continue
        if not follows_gains(*children, old.split_gain[at]):
            continue
        renumbered.append(tree)
        splits, _, leaf_place = grow_best_first(*children, new.split_gain[at], _number_children)
        split_order[at] = split[tree] + splits
        leaf_order[leaf[tree] + leaf_place] = leaf[tree] + np.arange(len(leaf_place))
        place = np.argsort(splits)
        for side, child in ((left, children[0]), (right, children[1])):
            moved = child.copy()
            moved[child >= 0] = place[child[child >= 0]]
            moved[child < 0] = ~leaf_place[~child[child < 0]]
            side[at] = moved[splits]
    if not renumbered:
        return new
    by_split = {name: getattr(new, name)[split_order] for name in OF_SPLITS}
    by_leaf = {name: getattr(new, name)[leaf_order] for name in OF_LEAVES}
    by_split |= {"left_child": left, "right_child": right}
    return _order_sets(replace(new, **by_split, **by_leaf), renumbered)


def follows_gains(left: Offsets, right: Offsets, gain: AnyArray) -> bool:
    """Return whether a tree's splits and leaves are numbered by LightGBM's rule.

    >>> follows_gains(np.array([1, -1]), np.array([-2, -3]), np.array([3.0, 2.0]))
    True
    >>> follows_gains(np.array([2, -1, -2]), np.array([1, -3, -4]), np.array([3.0, 1.0, 2.0]))
    False
    """
    if not len(left):
        return True
    if not gains_fall(left, right, gain):
        return False
    slot = [0] * len(left)
    for i, children in enumerate(zip(left.tolist(), right.tolist(), strict=True)):
        for child, number in zip(children, _number_children(i, slot[i]), strict=True):
            if child >= 0:
                slot[child] = number
            elif ~child != number:
                return False
    return True


def _number_children(step: int, number: int) -> tuple[int, int]:
    return number, step + 1


def _order_sets(blocks: Blocks, trees: list[int]) -> Blocks:
    """Return the same trees with category sets in the order of the splits that ask for them."""
    split, word = starts(blocks.num_leaves - 1), starts(blocks.n_words)
    bound = starts(np.where(blocks.num_cat > 0, blocks.num_cat + 1, 0))
    threshold = blocks.threshold.copy()
    boundaries, words = blocks.cat_boundaries.copy(), blocks.cat_threshold.copy()
    for tree in trees:
        asks = split[tree] + np.flatnonzero(
            blocks.decision_type[split[tree] : split[tree + 1]] & BY_CATEGORY
        )
        asked = threshold[asks].astype(np.int64)
        if not np.array_equal(np.sort(asked), np.arange(blocks.num_cat[tree])) or not len(asked):
            continue  # no set, or one that is shared or not used
        ends = blocks.cat_boundaries[bound[tree] : bound[tree + 1]]
        pieces = [blocks.cat_threshold[word[tree] :][ends[i] : ends[i + 1]] for i in asked]
        threshold[asks] = np.arange(len(asked))
        boundaries[bound[tree] : bound[tree + 1]] = starts(np.array([len(p) for p in pieces]))
        words[word[tree] : word[tree + 1]] = np.concatenate(pieces)
    return replace(blocks, threshold=threshold, cat_boundaries=boundaries, cat_threshold=words)
