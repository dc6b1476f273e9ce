"""The statistics in LightGBM's trees, which follow the leaves when these change.

``internal_value`` is what a split would predict as a leaf, learning rate included, and
``split_gain`` what the split gained. The trees of the first iteration, and all of a random forest,
have a start added to their leaves and to ``internal_value``; such a tree states a shrinkage of 1,
whatever its learning rate was. LightGBM prints both statistics with six digits.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from timbermark.dtypes import AnyArray, Flags, Reals
from timbermark.libraries.leaf_edits import leaf_values
from timbermark.libraries.lightgbm.blocks import Blocks
from timbermark.libraries.lightgbm.text import Frame
from timbermark.trees.ensemble import Ensemble
from timbermark.trees.statistics import (
    NodeStatistics,
    find_children,
    node_statistics,
    shift_gains,
)

_DIGITS = 5e-6  # the relative error of a number with six digits, at most
_MOST_GAIN = 1e38  # gains are float32 in LightGBM
# The library's defaults, for texts without parameters.
_DEFAULTS = {"lambda_l1": 0.0, "lambda_l2": 0.0, "cat_l2": 10.0, "learning_rate": 0.1}


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """How leaves were made: a leaf's value is its weight times ``rate`` plus ``bias``, [T] each."""

    l1: float
    l2: float
    l2_of_node: Reals  # [N]
    rate: Reals
    bias: Reals
    roots_follow: bool  # early versions print the start alone as the value of a root

    def statistics(self, ensemble: Ensemble) -> NodeStatistics:
        """Return what the leaves say of every node."""
        return node_statistics(
            ensemble,
            leaf_values(ensemble),
            hessian=ensemble.hessian,
            l1=self.l1,
            l2=self.l2,
            l2_of_node=self.l2_of_node,
            learning_rate=self.rate,
            bias=self.bias,
        )


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


def find_steps(frame: Frame, blocks: Blocks, e: Ensemble) -> Steps:
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
    steps = Steps(
        known["lambda_l1"],
        known["lambda_l2"],
        np.full(e.n_nodes, known["lambda_l2"]),
        rate,
        np.zeros(e.n_trees),
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
    steps: Steps, e: Ensemble, biased: Flags, mean: Reals, gain: Reals, learning_rate: float
) -> Steps:
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


def _find_bias(steps: Steps, e: Ensemble, mean: Reals) -> Reals:
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
    damped = e.hessian + steps.l2_of_node
    part = value * damped
    error = _DIGITS * np.where(inner, np.abs(part), 0.0) + 1e-12 * np.abs(part)
    rest = part[splits] - part[left] - part[right]
    # H adds up, so that this is what regularization leaves.
    factor = steps.l2_of_node[splits] - steps.l2_of_node[left] - steps.l2_of_node[right]
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
