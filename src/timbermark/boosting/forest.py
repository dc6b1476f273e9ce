"""The engine's own trees: a rectangle of nodes per tree, splits in bin codes.

This is what grows and is updated; an :class:`~timbermark.trees.ensemble.Ensemble` is made of it
for everything else.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from timbermark.boosting.data import Bins
from timbermark.boosting.objective import Scale, measure_gains, name_objective
from timbermark.errors import StateError
from timbermark.kernels.layout import NODE, Flat, flatten_trees
from timbermark.trees.ensemble import MISSING_NAN, Ensemble


@dataclass(frozen=True, slots=True)
class Forest:
    """T trees of up to M nodes each; tree t belongs to output t mod ``n_outputs``.

    ``nodes`` NODE[T, M] (see :mod:`timbermark.kernels.layout`); ``n_nodes`` int64[T].
    """

    nodes: np.ndarray
    n_nodes: np.ndarray
    n_outputs: int

    @property
    def n_trees(self) -> int:
        """Return the number of trees."""
        return len(self.n_nodes)


def empty_forest(n_trees: int, max_leaves: int, n_outputs: int) -> Forest:
    """Return room for ``n_trees`` trees of ``max_leaves`` leaves."""
    nodes = np.zeros((n_trees, 2 * max_leaves - 1), NODE)
    return Forest(nodes, np.zeros(n_trees, np.int64), n_outputs)


def to_ensemble(forest: Forest, bins: Bins, n_classes: int, scale: Scale) -> Ensemble:
    """Return the forest as an ensemble: codes become thresholds, rectangles flat arrays."""
    total, outputs = int(forest.n_nodes.sum()), forest.n_outputs
    flat = Flat(
        feature=np.empty(total, np.int32),
        threshold=np.empty(total),
        left=np.empty(total, np.int32),
        right=np.empty(total, np.int32),
        missing_left=np.empty(total, np.bool_),
        value=np.empty((total, 1)),
        count=np.empty(total),
        hessian=np.empty(total),
        gain=np.empty(total),
    )
    flatten_trees(forest.nodes, forest.n_nodes, bins.values, bins.starts, scale.unit, flat)
    flat.gain[:] = measure_gains(flat.gain, scale)
    arrays: dict[str, np.ndarray] = {
        **flat._asdict(),
        "tree_start": np.concatenate([[0], np.cumsum(forest.n_nodes)]),
        "tree_output": (np.arange(forest.n_trees) % outputs).astype(np.int32),
        "tree_weight": np.ones(forest.n_trees),
        "missing_kind": np.full(total, MISSING_NAN, np.uint8),
        "category_set": np.full(total, -1, np.int32),
        "category_offsets": np.zeros(1, np.int64),
        "category_values": np.zeros(0, np.int32),
        "init": np.full(outputs, scale.start),
    }
    for array in arrays.values():
        array.flags.writeable = False
    # Not validated as others are: what grows here is sound, and 200,000 nodes take a while.
    return Ensemble(
        n_features=bins.n_features,
        n_outputs=outputs,
        objective=name_objective(n_classes),
        categories_go="left",
        init_last=False,
        scale=1.0,
        strict=False,
        input_dtype="f8",
        sum_dtype="f8",
        zero_is_positive=False,
        **arrays,
    )


def joined_bins(bins: Bins, ensemble: Ensemble) -> Bins:
    """Return ``bins`` with the thresholds of ``ensemble`` among them."""
    inner = (ensemble.left >= 0) & (ensemble.category_set < 0)
    found = []
    for f in range(bins.n_features):
        own = ensemble.threshold[inner & (ensemble.feature == f)]
        if ensemble.strict:
            own = np.nextafter(own, -np.inf)
        found.append(np.union1d(bins.thresholds(f), own[np.isfinite(own)] + 0.0))
    starts = np.concatenate([[0], np.cumsum([len(t) for t in found])]).astype(np.int64)
    return Bins(np.concatenate(found), starts)


def from_ensemble(ensemble: Ensemble, bins: Bins, max_leaves: int) -> Forest:
    """Return the splits and leaf values of ``ensemble``, whose thresholds ``bins`` must hold.

    Nodes are renumbered, parents first, where a right child does not follow its left one. Raises
    StateError for what codes cannot express: categories, leaf vectors, larger trees than
    ``max_leaves``.
    """
    e = ensemble
    sizes = np.diff(e.tree_start)
    if (e.category_set >= 0).any() or (e.tree_output < 0).any():
        raise StateError(
            "A model with category splits or leaf vectors cannot be updated in place.",
            hint="only numeric splits and one output per tree are supported so far.",
        )
    if sizes.max(initial=1) > 2 * max_leaves - 1:
        raise StateError(
            f"The model has a tree of {int(sizes.max() + 1) // 2} leaves, max_leaf_nodes is "
            f"{max_leaves}.",
            hint="give max_leaf_nodes at least that number.",
        )
    if e.n_trees % e.n_outputs or (e.tree_output != np.arange(e.n_trees) % e.n_outputs).any():
        raise StateError(
            "The model's trees do not take turns over its classes.",
            hint="only models with one tree per class and iteration can be updated.",
        )
    forest = empty_forest(e.n_trees, max_leaves, e.n_outputs)
    forest.n_nodes[:] = sizes
    threshold = np.nextafter(e.threshold, -np.inf) if e.strict else e.threshold
    for t in range(e.n_trees):
        start, stop = e.tree_start[t], e.tree_start[t + 1]
        left, right = e.left[start:stop], e.right[start:stop]
        order = parents_first(left, right)
        place = np.empty(len(order), np.int32)
        place[order] = np.arange(len(order))
        nodes = forest.nodes[t, : len(order)]
        inner = left[order] >= 0
        nodes["left"] = np.where(inner, place[left[order]], -1)
        nodes["split"] = np.where(inner, (nodes["left"] - 1) // 2, -1)
        nodes["feature"] = e.feature[start:stop][order]
        nodes["missing_left"] = e.missing_left[start:stop][order]
        nodes["value"] = e.value[start:stop, 0][order] * e.tree_weight[t]
        cut = threshold[start:stop][order]
        for node in np.flatnonzero(inner):
            known = bins.thresholds(nodes["feature"][node])
            # Nothing but a row that is itself minus infinity is at most that.
            below = cut[node] == -np.inf
            nodes["code"][node] = -1 if below else np.searchsorted(known, cut[node])
    return forest


def parents_first(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return node numbers such that the children of a node follow it and each other.

    >>> parents_first(np.array([2, -1, -1]), np.array([1, -1, -1])).tolist()
    [0, 2, 1]
    """
    inner = left >= 0
    if (right[inner] == left[inner] + 1).all() and (left[inner] > np.flatnonzero(inner)).all():
        return np.arange(len(left))
    order = [0]
    for node in order:
        if left[node] >= 0:
            order += [int(left[node]), int(right[node])]
    return np.array(order)
