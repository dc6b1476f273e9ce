"""The engine's own trees: a rectangle of nodes per tree, splits in bin codes.

This is what grows and is updated; an :class:`~timbermark.trees.ensemble.Ensemble` is made of it
for everything else.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from timbermark.boosting.binning import Bins
from timbermark.boosting.objective import measure_gains, name_objective
from timbermark.boosting.scale import Scale
from timbermark.errors import StateError
from timbermark.kernels.layout import NODE
from timbermark.trees.construction import make_ensemble
from timbermark.trees.ensemble import Ensemble


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
    # Field by field: gathering whole records first moves four times as much memory.
    used = np.flatnonzero(np.arange(forest.nodes.shape[1]) < forest.n_nodes[:, None])
    flat = forest.nodes.reshape(-1)
    nodes = {
        name: np.take(flat[name], used)
        for name in ("feature", "code", "left", "missing_left", "value", "c", "h", "gain")
    }
    feature, code, left = nodes["feature"], nodes["code"], nodes["left"]
    inner = left >= 0
    # A split of missing values against all others: nothing is above infinity.
    threshold = np.where(inner, np.inf, 0.0)
    listed = inner & (code < bins.n_thresholds[feature])
    threshold[listed] = bins.values[bins.starts[feature[listed]] + code[listed]]
    return make_ensemble(
        n_features=bins.n_features,
        n_outputs=forest.n_outputs,
        objective=name_objective(n_classes),
        tree_start=np.concatenate([[0], np.cumsum(forest.n_nodes)]),
        tree_output=np.arange(forest.n_trees) % forest.n_outputs,
        feature=np.where(inner, feature, -1),
        threshold=threshold,
        left=left,
        right=np.where(inner, left + 1, -1),
        missing_left=nodes["missing_left"] == 1,
        value=np.where(inner, 0.0, nodes["value"])[:, None],
        count=nodes["c"],
        hessian=nodes["h"] / scale.unit,
        gain=np.where(inner, measure_gains(nodes["gain"], scale), 0.0),
        init=np.full(forest.n_outputs, scale.start),
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
