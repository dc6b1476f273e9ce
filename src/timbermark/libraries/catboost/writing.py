"""Writing an ensemble back into a CatBoost model."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from timbermark.dtypes import Reals
from timbermark.errors import InputError
from timbermark.libraries.catboost.cbm import Contents
from timbermark.libraries.catboost.nesting import Nodes, write_nested, write_symmetric
from timbermark.libraries.catboost.reading import revive
from timbermark.libraries.catboost.soundness import check_contents
from timbermark.libraries.catboost.splits import conform_splits, place_splits
from timbermark.libraries.reading import Reading
from timbermark.trees.ensemble import MISSING_NAN, Ensemble
from timbermark.trees.validation import validate_ensemble

_SAME = ("n_features", "n_outputs", "objective", "input_dtype", "sum_dtype", "zero_is_positive")


def write(reading: Reading, ensemble: Ensemble) -> Any:
    """Return a new model of the type that was read, with an ensemble's trees in it.

    Trees stay symmetric if the model's were and the ensemble's all are. Splits of categories stay
    as they were. Borders are those that the trees ask for. Leaf weights are the ensemble's counts,
    or if a tree has none its hessians, or if it has neither 1 each.

    Raises InputError if the ensemble is not sound or asks what CatBoost cannot hold, see
    `conform`.
    """
    validate_ensemble(ensemble)
    _check_meaning(reading.ensemble, ensemble)
    contents: Contents = reading.extra["contents"]
    trees, split = place_splits(ensemble, contents.trees, reading.extra["n_columns"])
    nodes = Nodes(ensemble.tree_start, split, ensemble.left, ensemble.right, split)
    shape = None
    if len(trees["NonSymmetricStepNodes"]) == 0:
        shape = write_symmetric(nodes)
    record, leaves = shape or write_nested(nodes, ensemble.n_outputs)
    values = _leaf_vectors(ensemble)[leaves]
    written = Contents(
        {
            **trees,
            **record,
            "LeafValues": values.ravel(),
            "LeafWeights": _leaf_weights(ensemble)[leaves],
            "Scale": ensemble.scale,
            "Bias": 0.0,
            "MultiBias": ensemble.init,
            "RepackedBins": np.empty(0),
        },
        contents.info,
        contents.tables,
    )
    check_contents(written)
    return revive(reading.native, written)


def conform(reading: Reading, ensemble: Ensemble) -> Ensemble:
    """Return the ensemble nearest to a given one that CatBoost can hold exactly.

    Thresholds are rounded down to single precision, which moves no row. Missing values go where
    CatBoost sends them in that column: this can move rows with missing values at splits that did
    not come from CatBoost. Everything else stays.
    """
    threshold, missing_left = conform_splits(
        ensemble, reading.extra["contents"].trees, reading.extra["n_columns"]
    )
    return replace(
        ensemble,
        threshold=threshold,
        missing_left=missing_left,
        missing_kind=np.full(ensemble.n_nodes, MISSING_NAN),
    )


def _check_meaning(read: Ensemble, given: Ensemble) -> None:
    for name in _SAME:
        if getattr(read, name) != getattr(given, name):
            raise InputError(
                f"The ensemble has {name}={getattr(given, name)!r}, the CatBoost model "
                f"{getattr(read, name)!r}.",
                hint="write an ensemble that was made from this reading's.",
            )
    if given.strict or not (given.init_last or not given.init.any()):
        raise InputError(
            "CatBoost compares with <= and adds where it starts from last, the ensemble does not.",
            hint="write an ensemble that was made from this reading's.",
        )


def _leaf_vectors(ensemble: Ensemble) -> Reals:
    """Return [N, K]: what each leaf adds to each output."""
    sizes = np.diff(ensemble.tree_start)
    weighed = ensemble.value * np.repeat(ensemble.tree_weight, sizes)[:, np.newaxis]
    output = np.repeat(ensemble.tree_output, sizes)
    if ensemble.n_outputs == 1 or (output < 0).all():
        return weighed
    spread = np.zeros((ensemble.n_nodes, ensemble.n_outputs))
    spread[np.arange(ensemble.n_nodes), output] = weighed[:, 0]
    return spread


def _leaf_weights(ensemble: Ensemble) -> Reals:
    weights = np.zeros(ensemble.n_nodes)
    sizes = np.diff(ensemble.tree_start)
    leaf = ensemble.left < 0
    for statistic in (ensemble.count, ensemble.hessian, np.ones(ensemble.n_nodes)):
        own = np.where(leaf, statistic, 0.0)
        tree = np.repeat(np.arange(len(sizes)), sizes)
        empty = np.bincount(tree, weights, minlength=len(sizes)) == 0
        weights = np.where(empty[tree], own, weights)
    return weights
