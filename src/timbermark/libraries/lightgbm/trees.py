"""LightGBM's arrays as an ensemble, and an ensemble as LightGBM's arrays.

Node j of a tree with L leaves is its split j, then come the leaves: leaf l is node L - 1 + l. Going
back, splits and leaves are numbered in the order of their nodes, so that nothing moves.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NoReturn

import numpy as np

from timbermark.dtypes import AnyArray, Flags, Offsets, Reals
from timbermark.errors import InputError
from timbermark.libraries.lightgbm.blocks import Blocks, damaged
from timbermark.libraries.lightgbm.text import Frame
from timbermark.trees.ensemble import MISSING_NAN, Ensemble, Objective
from timbermark.trees.making import make_ensemble
from timbermark.trees.validation import validate_ensemble

_OBJECTIVES: dict[str, Objective] = {
    "binary": "logistic",
    "multiclass": "softmax",
    "multiclassova": "sigmoid",
}
# The bits of decision_type: a category split, missing values go left, what is missing.
_BY_CATEGORY = 1
_MISSING_LEFT = 2
_KIND_SHIFT = 2
# Categories per number of a category set.
_WORD = 32

# For SHAP values and dumps the library goes down by recursion, and far deeper trees overflow its
# stack, which is the end of the process.
MOST_DEPTH = 1024
# Written in place of a statistic of zero: the library divides by counts, and takes a split that
# gained nothing for no split when it counts how often a feature is used.
_LEAST_WEIGHT = 1e-15
_LEAST_GAIN = 1e-30
_MOST_GAIN = 1e38  # gains are float32 there
_MOST_COUNT = 2**31 - 1


def to_ensemble(frame: Frame, blocks: Blocks) -> Ensemble:
    """Return the trees as a sound ensemble with the library's margins.

    The statistics of splits are summed up from the leaves, because the text rounds its own; values
    of splits are 0.

    Raises FileFormatError if the arrays make no trees.
    """
    leaves, splits = blocks.num_leaves, blocks.num_leaves - 1
    start = _starts(2 * leaves - 1)
    at_split = _ranges(start[:-1], splits)
    at_leaf = _ranges(start[:-1] + splits, leaves)
    tree = np.repeat(np.arange(len(leaves)), splits)
    decision = blocks.decision_type
    if ((decision < 0) | (decision >> _KIND_SHIFT > MISSING_NAN)).any():
        damaged("the decision_type of a split is not known")
    by_category = (decision & _BY_CATEGORY) > 0
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
        sums = _Sums(ensemble)
    except InputError as error:
        wrong = error.message
    if wrong:
        damaged(wrong[0].lower() + wrong[1:].rstrip("."))
    return replace(ensemble, count=sums.of(ensemble.count), hessian=sums.of(ensemble.hessian))


def from_ensemble(ensemble: Ensemble, shrinkage: Reals) -> Blocks:
    """Return an ensemble's trees as LightGBM's arrays.

    ``shrinkage`` [T] is the learning rate of each tree, which the library keeps but does not use.
    Leaves take the ensemble's counts and hessians, at least 1 and a little more than 0; splits get
    the sums, and the mean of their leaves as value.

    Raises InputError if the ensemble is not sound, or predicts in a way that LightGBM does not.
    """
    e = ensemble
    validate_ensemble(e)
    _check_expressible(e)
    sums = _Sums(e)
    leaf: Flags = e.left < 0
    split = ~leaf
    owner = np.repeat(np.arange(e.n_trees), np.diff(e.tree_start))
    number = np.where(leaf, ~_numbered(leaf, e.tree_start), _numbered(split, e.tree_start))
    count = np.clip(np.rint(e.count), 1, _MOST_COUNT)
    weight = np.maximum(e.hessian, _LEAST_WEIGHT)
    # One rounding, the same as in the reference predictor.
    with np.errstate(over="ignore"):
        value = e.value[:, 0] * e.tree_weight[owner]
    if not np.isfinite(value[leaf]).all():
        _refuse("leaves that are infinite times their weight")
    total_weight = sums.of(weight)
    with np.errstate(over="ignore", invalid="ignore"):
        mean = np.nan_to_num(sums.of(value * weight) / total_weight, posinf=0.0, neginf=0.0)
    by_category: Flags = e.category_set >= 0
    boundaries, words, n_words = _write_categories(e, by_category, owner)
    n_cat = np.bincount(owner[by_category], minlength=e.n_trees)
    threshold = np.where(by_category, _numbered(by_category, e.tree_start), e.threshold)
    gain = np.clip(np.where(e.gain == 0, _LEAST_GAIN, e.gain), -_MOST_GAIN, _MOST_GAIN)
    decision = (
        by_category * _BY_CATEGORY
        + e.missing_left * _MISSING_LEFT
        + (e.missing_kind.astype(np.int64) << _KIND_SHIFT)
    )
    return Blocks(
        num_leaves=np.bincount(owner[leaf], minlength=e.n_trees),
        num_cat=n_cat,
        shrinkage=shrinkage,
        split_feature=e.feature[split].astype(np.int64),
        split_gain=gain[split],
        threshold=threshold[split],
        decision_type=decision[split],
        left_child=number[sums.left[split]],
        right_child=number[sums.right[split]],
        leaf_value=value[leaf],
        leaf_weight=weight[leaf],
        leaf_count=count[leaf].astype(np.int64),
        internal_value=mean[split],
        internal_weight=total_weight[split],
        internal_count=np.minimum(sums.of(count)[split], _MOST_COUNT).astype(np.int64),
        cat_boundaries=boundaries,
        cat_threshold=words,
        n_words=n_words,
    )


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


class _Sums:
    """Adds up over the leaves below each node, level by level for all trees together."""

    def __init__(self, e: Ensemble) -> None:
        base = np.repeat(e.tree_start[:-1], np.diff(e.tree_start))
        self.left: Offsets = base + e.left
        self.right: Offsets = base + e.right
        self._levels: list[Offsets] = []
        level = e.tree_start[:-1]
        while (level := level[e.left[level] >= 0]).size:
            if len(self._levels) == MOST_DEPTH:
                raise InputError(
                    f"A tree has more than {MOST_DEPTH} splits one below the other.",
                    hint="train with max_depth.",
                )
            self._levels.append(level)
            level = np.concatenate([self.left[level], self.right[level]])

    def of(self, at_leaves: Reals) -> Reals:
        """Return [N] the sum of each node's leaves, leaves as they are."""
        total = at_leaves.copy()
        for level in reversed(self._levels):
            total[level] = total[self.left[level]] + total[self.right[level]]
        return total


def _check_expressible(e: Ensemble) -> None:
    expected: dict[str, Any] = {
        "init_last": False,
        "strict": False,
        "input_dtype": "f8",
        "sum_dtype": "f8",
        "zero_is_positive": False,
    }
    if (e.category_set >= 0).any():
        expected["categories_go"] = "left"
    for name, value in expected.items():
        if getattr(e, name) != value:
            _refuse(f"{name}={getattr(e, name)!r}, not {value!r}")
    if e.init.any():
        _refuse("sums that do not start from 0")
    if e.value.shape[1] != 1 or (e.tree_output != np.arange(e.n_trees) % e.n_outputs).any():
        _refuse("trees that do not take turns over the classes")
    if e.n_trees % e.n_outputs:
        _refuse(f"{e.n_trees} trees for {e.n_outputs} classes")
    if (e.missing_left & (e.category_set >= 0)).any():
        _refuse("missing categories that go left")


def _refuse(what: str) -> NoReturn:
    raise InputError(
        f"The ensemble has {what}, which no LightGBM model can have.",
        hint="change only the trees of an ensemble that was read from LightGBM.",
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
    sets[by_category] = _starts(n_cat)[tree[by_category]] + asked.astype(np.int64)

    with_sets = n_cat > 0
    n_bounds = np.where(with_sets, n_cat + 1, 0)
    first = _starts(n_bounds)[:-1][with_sets]
    last = _starts(n_bounds)[1:][with_sets] - 1
    bounds, words = blocks.cat_boundaries, blocks.cat_threshold
    opens = np.ones(len(bounds), dtype=np.bool_)
    opens[last] = False
    starts = bounds[opens]
    sizes = bounds[1:][opens[:-1]] - bounds[:-1][opens[:-1]]
    whole = (bounds[first] == 0).all() and (bounds[last] == blocks.n_words[with_sets]).all()
    if not whole or (sizes < 0).any() or ((words < 0) | (words >= 1 << _WORD)).any():
        damaged("its category sets are not as long as they should be")
    set_tree = np.repeat(np.arange(len(n_cat)), n_cat)
    starts = starts + _starts(blocks.n_words)[set_tree]

    used = np.flatnonzero(words)
    bits = np.unpackbits(words[used].astype("<u4").view(np.uint8), bitorder="little")
    word, bit = np.divmod(np.flatnonzero(bits), _WORD)
    # Sets follow each other without gaps, so that a word's set is the last one that begins there.
    owner = np.searchsorted(starts + sizes, used[word], side="right")
    values = (used[word] - starts[owner]) * _WORD + bit
    return sets, _starts(np.bincount(owner, minlength=len(starts))), values


def _write_categories(
    e: Ensemble, by_category: Flags, owner: Offsets
) -> tuple[Offsets, Offsets, Offsets]:
    """Return the boundaries, words and number of words per tree; a set per category split."""
    values = e.category_values.astype(np.int64)
    of_set = np.repeat(np.arange(len(e.category_offsets) - 1), np.diff(e.category_offsets))
    # An empty set has a word as well, so that no line of the text is empty.
    sizes = np.ones(len(e.category_offsets) - 1, dtype=np.int64)
    np.maximum.at(sizes, of_set, values // _WORD + 1)
    starts = _starts(sizes)
    words = np.zeros(starts[-1], dtype=np.int64)
    np.add.at(words, starts[of_set] + values // _WORD, 1 << values % _WORD)

    asked = e.category_set[by_category]
    taken = sizes[asked]
    tree = owner[by_category]
    n_words = np.bincount(tree, weights=taken, minlength=e.n_trees).astype(np.int64)
    ends = np.cumsum(taken) - _starts(n_words)[tree]
    # Before the end of each tree's first set comes its beginning, 0.
    firsts = np.flatnonzero(np.diff(tree, prepend=-1))
    return np.insert(ends, firsts, 0), words[_ranges(starts[asked], taken)], n_words


def _statistic(array: AnyArray, most: float = np.finfo(np.float64).max) -> Reals:
    numbers = array.astype(np.float64)
    return np.where((numbers >= 0) & (numbers <= most), numbers, 0.0)


def _placed(array: AnyArray, at: Offsets, size: int, elsewhere: float) -> AnyArray:
    placed = np.full(size, elsewhere, dtype=array.dtype)
    placed[at] = array
    return placed


def _numbered(chosen: Flags, tree_start: Offsets) -> Offsets:
    """Return [N] how many nodes of the same tree before this one are chosen."""
    before = _starts(chosen.astype(np.int64))
    return before[:-1] - np.repeat(before[tree_start[:-1]], np.diff(tree_start))


def _starts(sizes: Offsets) -> Offsets:
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def _ranges(first: Offsets, sizes: Offsets) -> Offsets:
    """Return first[0], first[0] + 1, … for sizes[0] numbers, then the same for the others."""
    starts = _starts(sizes)
    return np.arange(starts[-1]) + np.repeat(first - starts[:-1], sizes)
