"""XGBoost's trees with other leaf values and thresholds: statistics and order that follow.

``base_weights`` of inner nodes are weights before the learning rate. Those of leaves are the leaf
values, but weights as well where the exact updater wrote them. ``loss_changes`` are gains.

The k-th split of a tree has nodes 2 k + 1 and 2 k + 2 as children. Trees grown level by level have
their splits in the order of node numbers; with grow_policy="lossguide" the highest gain is split
next, and a tree that was numbered so is numbered so again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from timbermark.dtypes import AnyArray, Reals
from timbermark.libraries.best_first import gains_fall, grow_best_first
from timbermark.libraries.closing import changed_leaves, changed_thresholds
from timbermark.libraries.xgboost.forest import Forest
from timbermark.trees.ensemble import Ensemble
from timbermark.trees.statistics import (
    NodeStatistics,
    find_children,
    node_statistics,
    shift_gains,
)

_CLOSE = 1e-3
_FEWEST = 3
_DEFAULT_ETA, _DEFAULT_L2 = 0.3, 1.0
_SAMPLE = 100  # so many trees tell how a model was grown
_CHILDREN = ("left_children", "right_children")
_BY_NODE = (
    *("base_weights", "default_left", "loss_changes", "split_conditions", "split_indices"),
    *("split_type", "sum_hessian"),
)
_NO_PARENT = 2147483647


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """How leaves were made: learning rate of each tree [T], and regularization."""

    eta: Reals
    l2: float
    l1: float = 0.0

    def statistics(self, ensemble: Ensemble) -> NodeStatistics:
        """Return what the leaves of the first trees say of every node."""
        return node_statistics(
            ensemble,
            ensemble.value[:, 0],
            hessian=ensemble.hessian,
            l1=self.l1,
            l2=self.l2,
            learning_rate=self.eta[: ensemble.n_trees],
        )


def edited_trees(
    trees: list[dict[str, Any]], forest: Forest, steps: Steps, old: Ensemble, new: Ensemble
) -> list[dict[str, Any]]:
    """Return a document's trees with the leaf values and thresholds of another ensemble.

    ``old`` and ``new`` hold the first of the forest's trees and differ in these only. Trees that
    stay are the given ones. Statistics move by what the formula says of the new leaves
    minus what it says of the old ones, so that what it does not explain stays as it was.
    """
    changed, moved_splits = changed_leaves(old, new), changed_thresholds(old, new)
    leaf = old.left < 0
    before, after = steps.statistics(old), steps.statistics(new)
    weight = forest.weight[: old.n_nodes].astype(np.float64)
    moved = weight + (after.weight - before.weight)
    value = new.value[:, 0]
    tree = np.repeat(np.arange(old.n_trees), np.diff(old.tree_start))
    # Whether a tree's leaves have their values as weights.
    differ = leaf & (weight != old.value[:, 0])
    plain = np.bincount(tree[differ], minlength=old.n_trees) == 0
    moved = np.where(leaf & plain[tree], value, moved)
    gain = np.where(leaf, old.gain, shift_gains(old.gain, before.gain, after.gain))
    condition = np.where(leaf, value, new.threshold)
    with_leaves = set(tree[changed].tolist())
    found = list(trees)
    for number in np.unique(tree[changed | moved_splits]).tolist():
        nodes = slice(int(old.tree_start[number]), int(old.tree_start[number + 1]))
        place = forest.order[nodes] - forest.document_start[number]
        at_leaf = leaf[nodes]
        document = dict(trees[number])
        edits = [("split_conditions", condition[nodes], at_leaf | moved_splits[nodes])]
        if number in with_leaves:
            edits.append(("base_weights", moved[nodes], np.full(len(at_leaf), True)))
            edits.append(("loss_changes", gain[nodes], ~at_leaf))
        for name, numbers, chosen in edits:
            document[name] = _replaced(document[name], place[chosen], numbers[chosen])
        found[number] = document
    return keep_best_first(trees, found)


def _replaced(given: AnyArray, place: AnyArray, numbers: Reals) -> AnyArray:
    copy = np.array(given)
    largest = float(np.finfo(np.float32).max)
    copy[place] = np.clip(numbers, -largest, largest).astype(np.float32)
    return copy


def find_steps(e: Ensemble, config: str, n_parallel: int) -> Steps:
    """Return how the leaves of an ensemble were made, as far as that can be told.

    ``config`` is what ``save_config`` gives. A model file does not hold it: after ``load_model`` a
    model states the default values, whatever it was trained with. So learning rate and
    regularization are worked out from the weights and hessians of the trees as well; where these
    contradict the configuration, it is not used.
    """
    found_l2 = _regularization(e)
    l2 = _DEFAULT_L2 if found_l2 is None else found_l2
    found_eta = _learning_rate(e, l2)
    try:
        stated = _stated(config)
        stated_eta, stated_l2 = float(stated["eta"]) / n_parallel, float(stated["lambda"])
        # No default: a model that states these was trained in this process, and with them the
        # trees do not tell learning rate and regularization.
        l1 = float(stated["alpha"])
        is_own = l1 != 0 or float(stated["max_delta_step"]) != 0
    except (KeyError, ValueError):
        stated_eta, stated_l2, l1, is_own = _DEFAULT_ETA / n_parallel, _DEFAULT_L2, 0.0, False
    if found_eta is not None:
        l2_agrees = found_l2 is None or abs(found_l2 - stated_l2) <= _CLOSE * (1 + stated_l2)
        is_own |= l2_agrees and abs(found_eta - stated_eta) <= _CLOSE * stated_eta
    if is_own:
        return Steps(np.full(e.n_trees, stated_eta), stated_l2, l1)
    if found_eta is not None:
        return Steps(np.full(e.n_trees, found_eta), l2)
    return Steps(_rate_of_each(e, l2, stated_eta), l2)


def _stated(config: str) -> dict[str, Any]:
    booster = json.loads(config).get("learner", {}).get("gradient_booster", {})
    found: dict[str, Any] = booster.get("gbtree", booster).get("tree_train_param", {})
    return found


# A node's weight is w = G / (H + l2), and the gradients G of two children add up to the parent's.
# Leaves are the weights times the learning rate, inner nodes the weights themselves.


def _regularization(e: Ensemble) -> float | None:
    """Estimate l2 from splits whose children are both split."""
    _, (w, h), (w_left, h_left), (w_right, h_right) = _families(e, leaves=False)
    rest = w - w_left - w_right
    found = _agreed((w_left * h_left + w_right * h_right - w * h), rest, least=1.0)
    return None if found is None else max(found, 0.0)


def _learning_rate(e: Ensemble, l2: float) -> float | None:
    """Estimate the learning rate from splits whose children are both leaves."""
    _, above, below = _leaf_families(e, l2)
    found = _agreed(above, below, least=0.0)
    return found if found is not None and found > 0 else None


def _rate_of_each(e: Ensemble, l2: float, default: float) -> Reals:
    """Return the learning rate of each tree by least squares, [T]; it may have changed."""
    tree, above, below = _leaf_families(e, l2)
    size = np.bincount(tree, below**2, minlength=e.n_trees)
    with np.errstate(divide="ignore", invalid="ignore"):
        rate = np.bincount(tree, above * below, minlength=e.n_trees) / size
    return np.where(np.isfinite(rate) & (rate > 0), rate, default)


def _leaf_families(e: Ensemble, l2: float) -> tuple[AnyArray, Reals, Reals]:
    tree, (w, h), (v_left, h_left), (v_right, h_right) = _families(e, leaves=True)
    return tree, v_left * (h_left + l2) + v_right * (h_right + l2), w * (h + l2)


def _families(e: Ensemble, *, leaves: bool) -> Iterator[Any]:
    """Yield the trees of splits, then value and hessian of them, their left and right children."""
    left, right = find_children(e)
    split = np.flatnonzero(e.left >= 0)
    split = split[((e.left[left[split]] < 0) == leaves) & ((e.left[right[split]] < 0) == leaves)]
    yield np.searchsorted(e.tree_start, split, side="right") - 1
    for at in (split, left[split], right[split]):
        yield e.value[at, 0], e.hessian[at]


def _agreed(above: Reals, below: Reals, least: float) -> float | None:
    """Return the quotient that most agree on to a thousandth of ``least`` plus it, or None.

    Quotients of small numbers are mostly rounding, and do not count.
    """
    size = np.abs(below)
    large = size > 0.1 * size.max(initial=0.0)
    if np.count_nonzero(large) < _FEWEST:
        return None
    low, middle, high = np.quantile(above[large] / below[large], [0.25, 0.5, 0.75])
    if high - low > 2 * _CLOSE * (least + abs(middle)):
        return None
    return float(f"{middle:.4g}") if abs(middle) > 1e-6 else 0.0


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
