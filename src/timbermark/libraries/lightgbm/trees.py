"""LightGBM's arrays as an ensemble, and with other leaf values and thresholds.

Node j of a tree with L leaves is its split j, then come the leaves: leaf l is node L - 1 + l.

Statistics and numbers follow the leaves. ``internal_value`` is what a split would predict as a
leaf, learning rate included, and ``split_gain`` what the split gained. The trees of the first
iteration, and all of a random forest, have a start added to their leaves and to ``internal_value``;
such a tree states a shrinkage of 1, whatever its learning rate was. LightGBM prints both statistics
with six digits.

LightGBM splits the leaf with the highest gain next. Split i of a tree is its i-th; the left child
keeps the leaf's number and the right child becomes leaf i + 1. When gains have changed, a tree that
was numbered so is numbered so again, as if it had been grown with these gains.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from timbermark.dtypes import AnyArray, Flags, Offsets, Reals
from timbermark.errors import InputError
from timbermark.libraries.closing import Steps, changed_leaves, gains_fall, grow_best_first
from timbermark.libraries.lightgbm import text
from timbermark.libraries.lightgbm.text import Blocks, Frame, damaged, starts, tree_of
from timbermark.trees.construction import make_ensemble
from timbermark.trees.ensemble import MISSING_NAN, Ensemble
from timbermark.trees.statistics import find_children, inner_levels, shift_gains, sum_leaves

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
    by_category = (decision & text.BY_CATEGORY) > 0
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
            objective=text.OBJECTIVES[frame.objective][1],
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


_DIGITS = 5e-6  # the relative error of a number with six digits, at most
# The library's defaults, for texts without parameters.
_DEFAULTS = {"lambda_l1": 0.0, "lambda_l2": 0.0, "cat_l2": 10.0, "learning_rate": 0.1}


@dataclass(frozen=True, slots=True, eq=False)
class StepsWithStart(Steps):
    """How leaves were made, where some trees have a start added to them."""

    roots_follow: bool = True  # early versions print the start alone as the value of a root


def edit_trees(frame: Frame, blocks: Blocks, old: Ensemble, new: Ensemble) -> Blocks:
    """Return the trees with another ensemble's leaf values, statistics that follow, and thresholds.

    ``old`` and ``new`` hold the first of the trees and differ in these only. Statistics move by
    what the formula says of the new leaves minus what it says of the old ones, so that what it
    does not explain stays as it was. What printing explains is rounded once, as the library does.
    """
    leaf = old.left < 0
    inner = ~leaf
    n_leaves, n_splits = int(leaf.sum()), int(inner.sum())
    value = blocks.leaf_value.copy()
    value[:n_leaves] = new.value[leaf, 0]
    # At splits by category stands which set they ask for.
    threshold = blocks.threshold.copy()
    numeric = new.category_set[inner] < 0
    threshold[:n_splits][numeric] = new.threshold[inner][numeric]
    if not changed_leaves(old, new).any():
        return replace(blocks, threshold=threshold)
    steps = find_steps(frame, blocks, old)
    before, after = steps.statistics(old), steps.statistics(new)
    rate, bias = (np.repeat(part, np.diff(old.tree_start)) for part in (steps.rate, steps.bias))
    moved = np.flatnonzero(((after.weight != before.weight) | (after.gain != before.gain))[inner])
    mean, gain = blocks.internal_value.copy(), blocks.split_gain.copy()
    change = (after.weight - before.weight) * rate
    if not steps.roots_follow:
        change[old.tree_start[:-1]] = 0.0
    exact = _unrounded(mean[:n_splits], (before.weight * rate + bias)[inner])
    mean[moved] = _printed((exact + change[inner])[moved])
    exact = _unrounded(gain[:n_splits], before.gain[inner])
    shifted = shift_gains(exact, before.gain[inner], after.gain[inner])[moved]
    gain[moved] = _printed(np.clip(shifted, -_MOST_GAIN, _MOST_GAIN).astype(np.float32))
    return replace(
        blocks, leaf_value=value, threshold=threshold, internal_value=mean, split_gain=gain
    )


def regularization(frame: Frame) -> float:
    """Return what LightGBM added to sums of hessians."""
    return _parameter(frame, "lambda_l2")


def find_steps(frame: Frame, blocks: Blocks, e: Ensemble) -> StepsWithStart:
    """Return how the leaves of an ensemble were made, from parameters and by what fits the gains.

    The ensemble holds the first trees of the blocks.
    """
    known = {name: _parameter(frame, name) for name in _DEFAULTS}
    inner = e.left >= 0
    mean, gain = np.zeros(e.n_nodes), np.zeros(e.n_nodes)
    mean[inner] = blocks.internal_value[: int(inner.sum())]
    gain[inner] = blocks.split_gain[: int(inner.sum())]
    shrinkage = blocks.shrinkage[: e.n_trees]
    rate = np.where(shrinkage == 0, 1.0, shrinkage)
    biased = (shrinkage == 1) | (np.arange(e.n_trees) < e.n_outputs)
    roots = mean[e.tree_start[:-1][inner[e.tree_start[:-1]]]]
    starts = e.n_outputs + 1  # how many different ones there can be, 0 among them
    steps = StepsWithStart(
        rate,
        known["lambda_l2"],
        known["lambda_l1"],
        roots_follow=len(roots) <= starts or len(np.unique(roots)) > starts,
    )
    steps = _fit_start(steps, e, biased, mean, gain, known["learning_rate"])
    if known["cat_l2"] > 0 and (e.category_set >= 0).any():
        damped = replace(steps, l2_of_node=_damped(e, steps.l2, known["cat_l2"], e.feature >= 0))
        damped = _fit_start(damped, e, biased, mean, gain, known["learning_rate"])
        # LightGBM asks for categories one by one, without this, where a feature has few of them.
        errors = [np.abs(s.statistics(e).gain - gain) for s in (steps, damped)]
        few = [
            feature
            for feature in np.unique(e.feature[e.category_set >= 0])
            if np.median(errors[0][at := (e.feature == feature) & (e.category_set >= 0)])
            <= np.median(errors[1][at])
        ]
        many = ~np.isin(e.feature, np.array(few, dtype=np.int64))
        steps = replace(steps, l2_of_node=_damped(e, steps.l2, known["cat_l2"], many))
        steps = _fit_start(steps, e, biased, mean, gain, known["learning_rate"])
    return steps


def _damped(e: Ensemble, l2: float, more: float, chosen: Flags) -> Reals:
    """Return each node's own regularization: more below category splits of many categories."""
    found = np.full(e.n_nodes, l2)
    splits = np.flatnonzero((e.category_set >= 0) & chosen)
    for side in find_children(e):
        found[side[splits]] += more
    return found


def _fit_start(
    steps: StepsWithStart, e: Ensemble, biased: Flags, mean: Reals, gain: Reals,
    learning_rate: float,
) -> StepsWithStart:  # fmt: skip
    """Return the steps with the bias and the learning rate of trees that may have a start."""
    bias = np.where(biased, _find_bias(steps, e, mean), 0.0)
    found = replace(steps, bias=bias, rate=np.ones(e.n_trees)).statistics(e).gain
    tree = np.repeat(np.arange(e.n_trees), np.diff(e.tree_start))
    with np.errstate(divide="ignore", invalid="ignore"):
        square = np.bincount(tree, found * gain) / np.bincount(tree, gain**2)
        # By least squares: gains follow from weights, which are values over the rate.
        fitted = np.log(square) / 2
        candidates = np.stack(
            [np.full(e.n_trees, learning_rate), steps.rate, steps.rate * learning_rate]
        )
        distance = np.abs(np.log(candidates) - fitted)
    nearest = np.argmin(np.where(np.isfinite(distance), distance, np.inf), axis=0)
    chosen = candidates[nearest, np.arange(e.n_trees)]
    return replace(steps, bias=bias, rate=np.where(biased, chosen, steps.rate))


def _find_bias(steps: StepsWithStart, e: Ensemble, mean: Reals) -> Reals:
    """Return the best-fitting start of each tree, [T]; undetermined without regularization.

    Times H + l2, weights of two children add up to the parent's, and values do so without the
    start. Each split is an equation for it, as exact as its printed numbers are. With l1 they do
    not add up; there the root tells, whose weight is 0 if training started from the average.
    """
    if steps.l1 > 0 or not steps.roots_follow:
        return mean[e.tree_start[:-1]]
    inner = e.left >= 0
    splits = np.flatnonzero(inner)
    left, right = (side[splits] for side in find_children(e))
    value = np.where(inner, mean, e.value[:, 0])
    own = np.full(e.n_nodes, steps.l2) if steps.l2_of_node is None else steps.l2_of_node
    part = value * (e.hessian + own)
    error = _DIGITS * np.where(inner, np.abs(part), 0.0) + 1e-12 * np.abs(part)
    rest = part[splits] - part[left] - part[right]
    # H adds up, so that this is what regularization leaves.
    factor = own[splits] - own[left] - own[right]
    size = np.maximum(error[splits] ** 2 + error[left] ** 2 + error[right] ** 2, 1e-300)
    tree = np.searchsorted(e.tree_start, splits, side="right") - 1
    below = np.bincount(tree, factor**2 / size, minlength=e.n_trees)
    above = np.bincount(tree, factor * rest / size, minlength=e.n_trees)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(below > 0, above / below, 0.0)


def _parameter(frame: Frame, name: str) -> float:
    try:
        found = float(frame.parameters.get(name, ""))
    except ValueError:
        found = _DEFAULTS.get(name, 0.0)
    return found if np.isfinite(found) else 0.0


def _unrounded(printed: Reals, computed: Reals) -> Reals:
    """Return numbers as before printing, taken from the computed ones where these agree."""
    return np.where(np.abs(printed - computed) <= _DIGITS * np.abs(printed), computed, printed)


def _printed(numbers: AnyArray) -> Reals:
    """Return numbers as they come back from LightGBM's text."""
    return np.array([float(f"{number:g}") for number in numbers.tolist()])


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
    for tree in np.unique(tree_of(split, changed)).tolist():
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
    by_split = {name: getattr(new, name)[split_order] for name in text.OF_SPLITS}
    by_leaf = {name: getattr(new, name)[leaf_order] for name in text.OF_LEAVES}
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
            blocks.decision_type[split[tree] : split[tree + 1]] & text.BY_CATEGORY
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
