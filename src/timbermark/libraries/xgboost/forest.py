"""XGBoost's trees as an `Ensemble` and back, and with other leaf values and thresholds.

XGBoost numbers nodes as they came about and leaves gaps where it pruned. It takes the node after
the left child for the right one, whatever the document says. So nodes are renumbered: breadth
first, siblings side by side, without gaps.

Statistics and order follow the leaves. ``base_weights`` of inner nodes are weights before the
learning rate. Those of leaves are the leaf values, but weights as well where the exact updater
wrote them. ``loss_changes`` are gains.

The k-th split of a tree has nodes 2 k + 1 and 2 k + 2 as children. Trees grown level by level have
their splits in the order of node numbers; with grow_policy="lossguide" the highest gain is split
next, and a tree that was numbered so is numbered so again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from timbermark.dtypes import AnyArray, Flags, Offsets, Reals
from timbermark.errors import FileFormatError, InputError
from timbermark.libraries.closing import (
    Steps,
    changed_leaves,
    changed_thresholds,
    gains_fall,
    grow_best_first,
)
from timbermark.libraries.xgboost.document import (
    ARRAY_TYPES,
    HINT,
    OBJECTIVES,
    Outline,
    numbers,
    whole_number,
)
from timbermark.trees.construction import make_ensemble
from timbermark.trees.ensemble import Ensemble
from timbermark.trees.statistics import find_children, shift_gains

MOST_CATEGORIES = 1 << 24  # beyond, a float32 does not know one from the next
_MOST_CATEGORY_BYTES = 1 << 30
_DEEPEST = 4096  # XGBoost walks some trees by recursion
_WHOLE_FIELDS = ("left_children", "right_children", "split_indices", "split_type", "default_left")
_REAL_FIELDS = ("split_conditions", "base_weights", "sum_hessian", "loss_changes")
_CATEGORY_FIELDS = ("categories_nodes", "categories_sizes", "categories_segments", "categories")
_TREE_PARTS = {*_WHOLE_FIELDS, *_REAL_FIELDS, *_CATEGORY_FIELDS, "parents", "id", "tree_param"}
_NO_PARENT = 2147483647


@dataclass(frozen=True, slots=True, eq=False)
class Walk:
    """The nodes of trees in breadth-first order; the right child is always the one after the left.

    ``order``: [M] where each was before, counted over all trees. ``start``: [T + 1] where trees
    begin now. ``left``: [M] within the tree, -1 at leaves.
    """

    order: Offsets
    start: Offsets
    left: Offsets

    @property
    def tree(self) -> Offsets:
        """Return the number of each node's tree, [M]."""
        return np.repeat(np.arange(len(self.start) - 1), np.diff(self.start))


def breadth_first(start: Offsets, left: AnyArray, right: AnyArray) -> Walk:
    """Return the nodes that are reached from the roots, in breadth-first order.

    ``start`` is [T + 1]; ``left`` and ``right`` are [N], numbered within the tree, -1 at leaves.

    Raises FileFormatError if some tree is none: children out of range, shared, or going round.

    >>> left, right = np.array([3, -1, -1, -1, 1]), np.array([4, -1, -1, -1, 2])
    >>> walk = breadth_first(np.array([0, 5]), left, right)
    >>> walk.order, walk.left
    (array([0, 3, 4, 1, 2]), array([ 1, -1,  3, -1, -1]))
    """
    sizes = np.diff(start)
    base, size = np.repeat(start[:-1], sizes), np.repeat(sizes, sizes)
    inner = left != -1
    in_range = (left > 0) & (left < size) & (right > 0) & (right < size)
    sound = np.where(inner, in_range, right == -1)
    place = np.full(len(left), -1)
    levels: list[Offsets] = []
    here: Offsets = np.asarray(start[:-1], dtype=np.int64)
    while here.size:
        wrong = ~sound[here] | (place[here] >= 0)
        place[here] = np.arange(len(here))
        wrong |= place[here] != np.arange(len(here))
        if wrong.any() or len(levels) > _DEEPEST:
            first = int(np.searchsorted(start, here[np.argmax(wrong)], side="right")) - 1
            raise FileFormatError(f"The nodes of tree {first} do not form a tree.", HINT)
        levels.append(here)
        here = here[inner[here]]
        here = np.column_stack([base[here] + left[here], base[here] + right[here]]).ravel()
    order = np.concatenate(levels)
    tree = np.searchsorted(start, order, side="right") - 1
    order = order[np.argsort(tree, kind="stable")]
    new_start = np.append(0, np.cumsum(np.bincount(tree, minlength=len(sizes))))
    splits = inner[order]
    before = np.append(0, np.cumsum(splits))
    # The k-th split of a tree has the k-th pair of its nodes below it.
    rank = before[:-1] - np.repeat(before[new_start[:-1]], np.diff(new_start))
    return Walk(order, new_start, np.where(splits, 1 + 2 * rank, -1))


@dataclass(frozen=True, slots=True, eq=False)
class Forest:
    """All trees of a document as an ensemble that starts from 0, and where they came from.

    ``weight``: [N] XGBoost's ``base_weights``. ``order``: [N] the place of each node in the
    document, counted over all trees, which begin at ``document_start`` [T + 1] there.
    """

    ensemble: Ensemble
    weight: AnyArray
    order: Offsets
    document_start: Offsets

    def in_order(self) -> Forest:
        """Return the forest of a document that has the nodes as the ensemble has them."""
        e = self.ensemble
        return Forest(e, self.weight, np.arange(e.n_nodes), e.tree_start)


def to_forest(known: Outline) -> Forest:
    """Return the trees of a document, sound.

    Inner nodes have their ``base_weights`` as values, and ``count`` is 0: XGBoost counts hessians
    only. Statistics that are no numbers count as 0.

    Raises FileFormatError if the trees are damaged, of unknown layout or with leaf vectors.
    """
    trees = known.model["trees"]
    sizes = _check_trees(trees, known.n_features)
    start = np.append(0, np.cumsum(sizes))
    field: dict[str, AnyArray] = {}
    for name in _WHOLE_FIELDS + _REAL_FIELDS:
        field[name] = _flat(trees, name, sizes, whole=name in _WHOLE_FIELDS)
    walk = breadth_first(start, field["left_children"], field["right_children"])
    node_set, offsets, values = _read_categories(trees, start)
    field = {name: array[walk.order] for name, array in field.items()}
    inner = walk.left >= 0
    by_category = inner & (field["split_type"] == 1)
    node_set = np.where(by_category, node_set[walk.order], -1)
    lost = by_category & (node_set < 0) | inner & ~np.isin(field["split_type"], (0, 1))
    if lost.any():
        tree = int(walk.tree[np.argmax(lost)])
        raise FileFormatError(f"Tree {tree} has a split of an unknown type.", HINT)
    node_set, offsets, values = _in_order(node_set, offsets, values)
    condition = field["split_conditions"]
    weights = np.nan_to_num(field["base_weights"], nan=0.0, posinf=0.0, neginf=0.0)
    hessian = np.nan_to_num(field["sum_hessian"], nan=0.0, posinf=0.0, neginf=0.0)
    try:
        ensemble = make_ensemble(
            n_features=known.n_features,
            n_outputs=known.n_outputs,
            objective=OBJECTIVES[known.objective][1],
            tree_start=walk.start,
            tree_output=known.tree_output,
            tree_weight=known.tree_weight,
            feature=np.where(inner, field["split_indices"], -1),
            threshold=np.where(inner & ~by_category, condition, np.float32(0.0)),
            left=walk.left,
            right=np.where(inner, walk.left + 1, -1),
            missing_left=inner & (field["default_left"] != 0),
            category_set=node_set,
            category_offsets=offsets,
            category_values=values,
            categories_go="right",
            value=np.where(inner, weights, condition),
            hessian=np.maximum(hessian, 0.0),
            gain=np.where(inner, np.nan_to_num(field["loss_changes"], nan=0.0), 0.0),
            strict=True,
            input_dtype="f4",
            sum_dtype="f4",
        )
    except InputError as error:
        raise FileFormatError(error.message, HINT) from None
    return Forest(ensemble, weights, walk.order, start)


def _in_order(
    node_set: AnyArray, offsets: AnyArray, values: AnyArray
) -> tuple[AnyArray, AnyArray, AnyArray]:
    """Return category sets in the order of the nodes that ask for them, without others."""
    asked = node_set[node_set >= 0]
    begin, size = offsets[asked], np.diff(offsets)[asked]
    start = np.append(0, np.cumsum(size))
    place = np.repeat(begin - start[:-1], size) + np.arange(start[-1])
    numbered = np.full(len(node_set), -1, dtype=np.int64)
    numbered[node_set >= 0] = np.arange(len(asked))
    return numbered, start, values[place]


def _check_trees(trees: list[Any], n_features: int) -> Offsets:
    """Return the number of nodes of each tree, [T]."""
    sizes = np.empty(len(trees), dtype=np.int64)
    for number, tree in enumerate(trees):
        params = tree.get("tree_param") if isinstance(tree, dict) else None
        if not isinstance(params, dict):
            raise FileFormatError(f"Tree {number} has no tree_param.", HINT)
        if whole_number({"size_leaf_vector": "0", **params}, "size_leaf_vector", 0) > 1:
            raise FileFormatError(
                "The model's leaves hold one value per class (multi_output_tree).",
                hint="train it with multi_strategy='one_output_per_tree', which is the default.",
            )
        if tree.keys() != _TREE_PARTS:
            raise FileFormatError(
                f"The layout of tree {number} is not known: {sorted(tree.keys() ^ _TREE_PARTS)} "
                "are foreign or missing.",
                hint="a newer timbermark may know it.",
            )
        sizes[number] = whole_number(params, "num_nodes", 1)
        whole_number(params, "num_feature", n_features, n_features)
        if tree["id"] != number:
            raise FileFormatError(f"Tree {number} has the id {tree['id']!r:.20}.", HINT)
    return sizes


def _flat(trees: list[Any], name: str, sizes: Offsets, *, whole: bool) -> AnyArray:
    """Return a field of all trees in one array, int64 or float32 [N]."""
    pieces = [tree[name] for tree in trees]
    if all(isinstance(piece, np.ndarray) for piece in pieces):
        flat: Any = np.concatenate(pieces)
    elif all(isinstance(piece, list) for piece in pieces):
        flat = list(chain.from_iterable(pieces))
    else:
        raise FileFormatError(f"The trees' {name} is no list.", HINT)
    lengths = np.fromiter(map(len, pieces), np.int64, len(pieces))
    if (lengths != sizes).any():
        tree = int(np.argmax(lengths != sizes))
        raise FileFormatError(
            f"Tree {tree} has {sizes[tree]} nodes but {lengths[tree]} {name}.", HINT
        )
    array = numbers(flat, name, whole=whole)
    with np.errstate(over="ignore"):
        return array if whole else array.astype(np.float32)


def _read_categories(trees: list[Any], start: Offsets) -> tuple[AnyArray, AnyArray, AnyArray]:
    """Return the category set of each node [N], or -1, and all sets as offsets and values."""
    node_set = np.full(start[-1], -1, dtype=np.int64)
    sizes: list[AnyArray] = []
    values: list[AnyArray] = []
    n_sets = 0
    for number, tree in enumerate(trees):
        if isinstance(tree["categories_nodes"], list | np.ndarray) and not len(
            tree["categories_nodes"]
        ):
            continue
        nodes, counts, begin, members = (
            numbers(tree[name], name, whole=True) for name in _CATEGORY_FIELDS
        )
        sound = (
            len(nodes) == len(counts) == len(begin)
            and ((nodes >= 0) & (nodes < start[number + 1] - start[number])).all()
            and len(np.unique(nodes)) == len(nodes)
            and ((counts >= 0) & (counts <= len(members))).all()
            and np.array_equal(np.append(begin, len(members)), np.append(0, np.cumsum(counts)))
            and ((members >= 0) & (members < MOST_CATEGORIES)).all()
        )
        if not sound:
            raise FileFormatError(f"The categories of tree {number} are damaged.", HINT)
        node_set[start[number] + nodes] = n_sets + np.arange(len(nodes))
        n_sets += len(nodes)
        sizes.append(counts)
        values.append(members)
    if not n_sets:
        return node_set, np.zeros(1, dtype=np.int64), np.empty(0, dtype=np.int64)
    owner, member = np.repeat(np.arange(n_sets), np.concatenate(sizes)), np.concatenate(values)
    # Each set takes one bit per category up to its largest.
    largest = np.zeros(n_sets, dtype=np.int64)
    np.maximum.at(largest, owner, member)
    if largest.sum() // 8 > _MOST_CATEGORY_BYTES:
        raise FileFormatError("The categories of the trees take too much memory.", HINT)
    once = np.unique(owner * MOST_CATEGORIES + member)
    owner, member = np.divmod(once, MOST_CATEGORIES)
    return node_set, np.searchsorted(owner, np.arange(n_sets + 1)), member


def write_trees(e: Ensemble, base_weights: Reals | None = None) -> list[dict[str, Any]]:
    """Return each tree as a part of a document.

    The ensemble must be of XGBoost's kind: float32, ``x < threshold``, NaN missing, categories go
    right. ``base_weights`` [N] are the values of all nodes if they are None.

    Raises InputError if a category is too large for XGBoost.
    """
    empty = _empty_sets(e)
    walk = breadth_first(
        e.tree_start, np.where(empty, e.right, e.left), np.where(empty, e.left, e.right)
    )
    order, tree, inner = walk.order, walk.tree, walk.left >= 0
    value = e.value[order, 0]
    weight = value if base_weights is None else base_weights[order]
    local = np.arange(len(order)) - walk.start[tree]
    node_set = np.where(inner & ~empty[order], e.category_set[order], -1)
    threshold = np.where(empty[order], -np.inf, e.threshold[order])
    threshold = np.where(inner & (node_set < 0), threshold, 0.0)
    fields = {
        "base_weights": ("d", weight),
        **_categories(e, walk, node_set),
        "default_left": ("U", inner & (e.missing_left[order] ^ empty[order])),
        "left_children": ("l", walk.left),
        "loss_changes": ("d", np.where(inner, e.gain[order], 0.0)),
        "parents": ("l", _parents(walk, local)),
        "right_children": ("l", np.where(inner, walk.left + 1, -1)),
        "split_conditions": ("d", np.where(inner, threshold, value)),
        "split_indices": ("l", np.where(inner, e.feature[order], 0)),
        "split_type": ("U", node_set >= 0),
        "sum_hessian": ("d", e.hessian[order]),
    }
    return _cut(fields, walk, node_set, e.n_features)


def has_empty_sets(e: Ensemble) -> bool:
    """Return whether a node asks for a category in an empty set, which XGBoost cannot express.

    >>> from timbermark.trees.construction import constant_ensemble
    >>> has_empty_sets(constant_ensemble(n_features=1, value=1.0))
    False
    """
    return bool(_empty_sets(e).any())


def _empty_sets(e: Ensemble) -> Flags:
    """Return which nodes ask for a category in an empty set, [N].

    XGBoost knows no such set. These nodes send left all that is not missing; nothing is below
    minus infinity, so with their children swapped they compare with that.
    """
    by_category = np.flatnonzero(e.category_set >= 0)
    empty: Flags = np.zeros(e.n_nodes, dtype=np.bool_)
    empty[by_category] = np.diff(e.category_offsets)[e.category_set[by_category]] == 0
    return empty


def _categories(e: Ensemble, walk: Walk, node_set: AnyArray) -> dict[str, tuple[str, AnyArray]]:
    """Return the four fields of category splits, for all trees one after the other."""
    sets = node_set[node_set >= 0]
    size = np.diff(e.category_offsets)[sets]
    begin = np.append(0, np.cumsum(size))
    place = np.repeat(e.category_offsets[sets] - begin[:-1], size) + np.arange(begin[-1])
    values = e.category_values[place]
    if values.max(initial=0) >= MOST_CATEGORIES:
        raise InputError(
            f"The category {values.max()} is too large for XGBoost.",
            hint=f"number categories below {MOST_CATEGORIES}.",
        )
    nodes = np.flatnonzero(node_set >= 0)
    tree = walk.tree[nodes]
    first = np.searchsorted(tree, tree)
    return {
        "categories": ("l", values),
        "categories_nodes": ("l", nodes - walk.start[tree]),
        "categories_segments": ("L", begin[:-1] - begin[first]),
        "categories_sizes": ("L", size),
    }


def _parents(walk: Walk, local: AnyArray) -> AnyArray:
    splits = np.flatnonzero(walk.left >= 0)
    before = np.searchsorted(splits, walk.start[:-1])[walk.tree]
    below = np.flatnonzero(local > 0)
    parents = np.full(len(local), _NO_PARENT)
    # The k-th split of a tree has the k-th pair of its nodes below it.
    parents[below] = local[splits[before[below] + (local[below] - 1) // 2]]
    return parents


def _cut(
    fields: dict[str, tuple[str, AnyArray]], walk: Walk, node_set: AnyArray, n_features: int
) -> list[dict[str, Any]]:
    """Return all fields cut into one document per tree."""
    with_set = np.searchsorted(np.flatnonzero(node_set >= 0), walk.start)
    members = np.append(0, np.cumsum(fields["categories_sizes"][1]))[with_set]
    bounds = dict.fromkeys(fields, walk.start) | dict.fromkeys(_CATEGORY_FIELDS, with_set)
    bounds["categories"] = members
    parts = [
        (name, array.astype(ARRAY_TYPES[mark]), bounds[name].tolist())
        for name, (mark, array) in fields.items()
    ]
    trees = []
    for number, size in enumerate(np.diff(walk.start).tolist()):
        tree: dict[str, Any] = {
            name: array[start[number] : start[number + 1]] for name, array, start in parts
        }
        tree["id"] = number
        tree["tree_param"] = {
            "num_deleted": "0",
            "num_feature": str(n_features),
            "num_nodes": str(size),
            "size_leaf_vector": "1",
        }
        trees.append(tree)
    return trees


_CLOSE = 1e-3
_FEWEST = 3
_DEFAULT_ETA, _DEFAULT_L2 = 0.3, 1.0
_SAMPLE = 100  # so many trees tell how a model was grown
_CHILDREN = ("left_children", "right_children")
_BY_NODE = (
    *("base_weights", "default_left", "loss_changes", "split_conditions", "split_indices"),
    *("split_type", "sum_hessian"),
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
    before = steps.statistics(old)
    after = steps.statistics(new) if changed.any() else before
    weight = forest.weight[: old.n_nodes].astype(np.float64)
    moved = weight + (after.weight - before.weight)
    value = new.value[:, 0]
    tree = np.repeat(np.arange(old.n_trees), np.diff(old.tree_start))
    # Whether a tree's leaves have their values as weights.
    differ = leaf & (weight != old.value[:, 0])
    plain = np.bincount(tree[differ], minlength=old.n_trees) == 0
    moved = np.where(leaf & plain[tree], value, moved)
    gain = np.where(leaf, old.gain, shift_gains(old.gain, before.gain, after.gain))
    edits = [
        ("split_conditions", np.where(leaf, value, new.threshold), leaf | moved_splits),
        ("base_weights", moved, np.full(old.n_nodes, True)),
        ("loss_changes", gain, ~leaf),
    ]
    largest = float(np.finfo(np.float32).max)
    edits = [
        (name, np.clip(values, -largest, largest).astype(np.float32), chosen)
        for name, values, chosen in edits
    ]
    with_leaves = set(tree[changed].tolist())
    found = list(trees)
    for number in np.unique(tree[changed | moved_splits]).tolist():
        nodes = slice(int(old.tree_start[number]), int(old.tree_start[number + 1]))
        place = forest.order[nodes] - forest.document_start[number]
        found[number] = dict(trees[number])
        for name, values, chosen in edits if number in with_leaves else edits[:1]:
            array = np.array(trees[number][name])
            array[place[chosen[nodes]]] = values[nodes][chosen[nodes]]
            found[number][name] = array
    return keep_best_first(trees, found) if with_leaves else found


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

    Quotients of small values are mostly rounding, and do not count.
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
    for name, values in (
        ("categories_nodes", nodes[turn]),
        ("categories_sizes", sizes[turn]),
        ("categories_segments", np.cumsum(sizes[turn]) - sizes[turn]),
        ("categories", np.concatenate([tree["categories"][:0], *members])),
    ):
        found[name] = values.astype(tree[name].dtype)
    return found
