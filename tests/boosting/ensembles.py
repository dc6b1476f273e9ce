"""Ensembles that the fast predictor takes, and rows for them."""

from dataclasses import replace

import numpy as np

from timbermark.trees.construction import make_ensemble
from timbermark.trees.ensemble import MISSING_NAN, MISSING_NONE, MISSING_ZERO

NAN = float("nan")


def side_by_side(ensemble):
    """The same trees with every right child next to its left one, as the fast predictor wants."""
    e = ensemble
    order, left = [], np.full(e.n_nodes, -1)
    for tree in range(e.n_trees):
        start = int(e.tree_start[tree])
        numbers = [0]
        for place, node in enumerate(numbers):
            if e.left[start + node] >= 0:
                left[start + place] = len(numbers)
                numbers += [int(e.left[start + node]), int(e.right[start + node])]
        order += [start + node for node in numbers]
    per_node = {
        name: getattr(e, name)[order]
        for name in ("feature", "threshold", "missing_left", "missing_kind", "value", "count")
    }
    return replace(
        e, **per_node, left=left, right=np.where(left >= 0, left + 1, -1),
        category_set=np.full(e.n_nodes, -1),
    )  # fmt: skip


def numeric(ensemble):
    """What is left of a random ensemble when all that the fast predictor declines is taken out."""
    kind = np.where(ensemble.missing_kind == MISSING_ZERO, MISSING_NAN, ensemble.missing_kind)
    one_value = replace(
        ensemble,
        missing_kind=kind,
        sum_dtype="f8",
        value=ensemble.value[:, :1],
        tree_output=np.maximum(ensemble.tree_output, 0),
    )
    return side_by_side(one_value)


def random_ensemble(seed, n_trees, n_leaves, n_thresholds=10_000, **options):
    """Trees of exactly ``n_leaves`` leaves, children side by side, three outputs."""
    rng = np.random.default_rng(seed)
    n_nodes = 2 * n_leaves - 1
    left = np.full((n_trees, n_nodes), -1)
    for tree in left:
        leaves = [0]
        for child in range(1, n_nodes, 2):
            tree[leaves.pop(rng.integers(len(leaves)))] = child
            leaves += [child, child + 1]
    inner = left.ravel() >= 0
    size = n_trees * n_nodes
    numbers = rng.normal(size=n_thresholds).round(3) + 0.0
    return make_ensemble(
        **{
            "n_features": 3,
            "n_outputs": 3,
            "tree_start": np.arange(n_trees + 1) * n_nodes,
            "feature": np.where(inner, rng.integers(0, 3, size), -1),
            "threshold": np.where(inner, rng.choice(numbers, size), 0.0),
            "left": left.ravel(),
            "right": np.where(inner, left.ravel() + 1, -1),
            "value": rng.normal(size=size),
            "missing_left": rng.random(size) < 0.5,
            "missing_kind": rng.choice([MISSING_NONE, MISSING_NAN], size),
            "tree_weight": rng.choice([1.0, 0.5, 0.1], n_trees),
            "init": rng.normal(size=3),
            **options,
        }
    )


def random_rows(ensemble, n, seed=1, missing=0.2):
    """Half of the values are thresholds themselves."""
    rng = np.random.default_rng(seed)
    shape = (n, ensemble.n_features)
    X = np.where(
        rng.random(shape) < 0.5, rng.choice(ensemble.threshold, shape), rng.normal(size=shape)
    )
    X[rng.random(shape) < missing] = NAN
    return X
