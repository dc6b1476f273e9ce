"""LightGBM's arrays as an ensemble.

Node j of a tree with L leaves is its split j, then come the leaves: leaf l is node L - 1 + l.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from timbermark.dtypes import AnyArray, Flags, Offsets, Reals
from timbermark.errors import InputError
from timbermark.libraries.lightgbm.text import (
    BY_CATEGORY,
    RANKING,
    REGRESSION,
    Blocks,
    Frame,
    damaged,
    starts,
)
from timbermark.trees.construction import make_ensemble
from timbermark.trees.ensemble import MISSING_NAN, Ensemble, Objective
from timbermark.trees.statistics import inner_levels, sum_leaves

_OBJECTIVES: dict[str, Objective] = {
    "binary": "logistic",
    "multiclass": "softmax",
    "multiclassova": "sigmoid",
    **dict.fromkeys((*REGRESSION, *RANKING), "identity"),
    **dict.fromkeys(("poisson", "gamma", "tweedie"), "exponential"),
    "cross_entropy": "expit",
}
# The bits of decision_type: a category split, missing values go left, what is missing.
_MISSING_LEFT = 2
_KIND_SHIFT = 2
# Categories per number of a category set.
_WORD = 32

# For SHAP values and dumps the library goes down by recursion, and far deeper trees overflow its
# stack, which is the end of the process.
MOST_DEPTH = 1024
_MOST_GAIN = 1e38  # gains are float32 there
_MOST_COUNT = 2**31 - 1


def to_ensemble(frame: Frame, blocks: Blocks) -> Ensemble:
    """Return the trees as a sound ensemble with the library's margins.

    The statistics of splits are summed up from the leaves, because the text rounds its own; values
    of splits are 0.

    Raises FileFormatError if the arrays make no trees.
    """
    leaves, splits = blocks.num_leaves, blocks.num_leaves - 1
    start = starts(2 * leaves - 1)
    at_split = _ranges(start[:-1], splits)
    at_leaf = _ranges(start[:-1] + splits, leaves)
    tree = np.repeat(np.arange(len(leaves)), splits)
    decision = blocks.decision_type
    if ((decision < 0) | (decision >> _KIND_SHIFT > MISSING_NAN)).any():
        damaged("the decision_type of a split is not known")
    by_category = (decision & BY_CATEGORY) > 0
    sets, offsets, values = _read_categories(blocks, tree, by_category)

    def at_splits(array: AnyArray, elsewhere: float) -> AnyArray:
        return _placed(array, at_split, int(start[-1]), elsewhere)

    def at_leaves(array: AnyArray) -> AnyArray:
        return _placed(array, at_leaf, int(start[-1]), 0)

    wrong = ""
    try:
        ensemble = make_ensemble(
            n_features=len(frame.feature_names),
            n_outputs=frame.n_outputs,
            objective=_OBJECTIVES[frame.objective],
            tree_start=start,
            tree_output=np.arange(len(leaves)) % frame.n_outputs,
            feature=at_splits(blocks.split_feature, -1),
            threshold=at_splits(np.where(by_category, 0.0, blocks.threshold), 0.0),
            left=at_splits(_read_children(blocks.left_child, leaves[tree]), -1),
            right=at_splits(_read_children(blocks.right_child, leaves[tree]), -1),
            # Whatever the bit says, a missing category goes right.
            missing_left=at_splits((decision & _MISSING_LEFT > 0) & ~by_category, False),
            missing_kind=at_splits(decision >> _KIND_SHIFT, MISSING_NAN),
            category_set=at_splits(sets, -1),
            category_offsets=offsets,
            category_values=values,
            categories_go="left",
            value=at_leaves(blocks.leaf_value),
            count=at_leaves(_statistic(blocks.leaf_count)),
            hessian=at_leaves(_statistic(blocks.leaf_weight)),
            gain=at_splits(np.nan_to_num(blocks.split_gain), 0.0),
        )
        if len(inner_levels(ensemble)) > MOST_DEPTH:
            wrong = f"a tree has more than {MOST_DEPTH} splits one below the other"
    except InputError as error:
        wrong = error.message
    if wrong:
        damaged(wrong[0].lower() + wrong[1:].rstrip("."))
    count, hessian = (sum_leaves(ensemble, sums) for sums in (ensemble.count, ensemble.hessian))
    return replace(ensemble, count=count, hessian=hessian)


def with_finite_statistics(blocks: Blocks) -> Blocks:
    """Return the same trees, with zeros for statistics that are out of range.

    The library would not mind them before somebody asks it for the model as JSON.
    """
    return replace(
        blocks,
        leaf_weight=_statistic(blocks.leaf_weight),
        leaf_count=_statistic(blocks.leaf_count, _MOST_COUNT).astype(np.int64),
        internal_weight=_statistic(blocks.internal_weight),
        internal_count=_statistic(blocks.internal_count, _MOST_COUNT).astype(np.int64),
        internal_value=np.nan_to_num(blocks.internal_value, posinf=0.0, neginf=0.0),
        split_gain=np.clip(np.nan_to_num(blocks.split_gain), -_MOST_GAIN, _MOST_GAIN),
    )


def _read_children(child: Offsets, leaves: Offsets) -> Offsets:
    if ((child >= leaves - 1) | (~child >= leaves)).any():
        damaged("a split has a child that does not exist")
    return np.where(child >= 0, child, leaves - 1 + ~child)


def _read_categories(
    blocks: Blocks, tree: Offsets, by_category: Flags
) -> tuple[Offsets, Offsets, Offsets]:
    """Return each split's set, -1 for none, and the offsets and values of all sets."""
    n_cat, asked = blocks.num_cat, blocks.threshold[by_category]
    if not ((asked >= 0) & (asked < n_cat[tree[by_category]]) & (asked % 1 == 0)).all():
        damaged("a split asks for a category set that does not exist")
    sets = np.full(len(by_category), -1, dtype=np.int64)
    sets[by_category] = starts(n_cat)[tree[by_category]] + asked.astype(np.int64)

    with_sets = n_cat > 0
    n_bounds = np.where(with_sets, n_cat + 1, 0)
    first = starts(n_bounds)[:-1][with_sets]
    last = starts(n_bounds)[1:][with_sets] - 1
    bounds, words = blocks.cat_boundaries, blocks.cat_threshold
    opens = np.ones(len(bounds), dtype=np.bool_)
    opens[last] = False
    begin = bounds[opens]
    sizes = bounds[1:][opens[:-1]] - bounds[:-1][opens[:-1]]
    whole = (bounds[first] == 0).all() and (bounds[last] == blocks.n_words[with_sets]).all()
    if not whole or (sizes < 0).any() or ((words < 0) | (words >= 1 << _WORD)).any():
        damaged("its category sets are not as long as they should be")
    set_tree = np.repeat(np.arange(len(n_cat)), n_cat)
    begin = begin + starts(blocks.n_words)[set_tree]

    used = np.flatnonzero(words)
    bits = np.unpackbits(words[used].astype("<u4").view(np.uint8), bitorder="little")
    word, bit = np.divmod(np.flatnonzero(bits), _WORD)
    # Sets follow each other without gaps, so that a word's set is the last one that begins there.
    owner = np.searchsorted(begin + sizes, used[word], side="right")
    values = (used[word] - begin[owner]) * _WORD + bit
    return sets, starts(np.bincount(owner, minlength=len(begin))), values


def _statistic(array: AnyArray, most: float = np.finfo(np.float64).max) -> Reals:
    numbers = array.astype(np.float64)
    return np.where((numbers >= 0) & (numbers <= most), numbers, 0.0)


def _placed(array: AnyArray, at: Offsets, size: int, elsewhere: float) -> AnyArray:
    placed = np.full(size, elsewhere, dtype=array.dtype)
    placed[at] = array
    return placed


def _ranges(first: Offsets, sizes: Offsets) -> Offsets:
    """Return first[0], first[0] + 1, … for sizes[0] numbers, then the same for the others."""
    start = starts(sizes)
    return np.arange(start[-1]) + np.repeat(first - start[:-1], sizes)
