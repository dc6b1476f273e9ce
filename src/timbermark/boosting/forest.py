"""The engine's own trees: a rectangle of nodes per tree, splits in bin codes.

This is what grows and is updated; an :class:`~timbermark.trees.ensemble.Ensemble` is made of it
for everything else.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from timbermark.boosting.binning import Bins
from timbermark.boosting.data import Scale
from timbermark.kernels.layout import NODE
from timbermark.trees.ensemble import Ensemble
from timbermark.trees.making import make_ensemble


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
        """Number of trees."""
        return len(self.n_nodes)


def empty_forest(n_trees: int, max_leaves: int, n_outputs: int) -> Forest:
    """Room for ``n_trees`` trees of ``max_leaves`` leaves."""
    nodes = np.zeros((n_trees, 2 * max_leaves - 1), NODE)
    return Forest(nodes, np.zeros(n_trees, np.int64), n_outputs)


def to_ensemble(forest: Forest, bins: Bins, n_classes: int, scale: Scale) -> Ensemble:
    """Codes become thresholds, rectangles become flat arrays; nothing else changes."""
    used = np.arange(forest.nodes.shape[1]) < forest.n_nodes[:, None]
    nodes = forest.nodes[used]
    feature, code, left = nodes["feature"], nodes["code"], nodes["left"]
    inner = left >= 0
    # A split of missing values against all others: every number is below the largest one.
    threshold = np.where(inner, np.finfo(np.float64).max, 0.0)
    listed = inner & (code < bins.n_thresholds[feature])
    threshold[listed] = bins.values[bins.starts[feature[listed]] + code[listed]]
    return make_ensemble(
        n_features=bins.n_features,
        n_outputs=forest.n_outputs,
        objective="logistic" if n_classes == 2 else "softmax",
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
        gain=np.where(inner, nodes["gain"] / scale.unit, 0.0),
    )
