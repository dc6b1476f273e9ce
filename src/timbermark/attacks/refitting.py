"""Refitting leaves: the splits stay, and every leaf learns from the thief's own rows.

Leaves are Newton steps of the log-loss, and how long these steps were can be told from the leaves
that are there, so that a thief can refit the file of any library. LightGBM offers the same as
``refit`` and XGBoost as the updater ``refresh``.
"""

from __future__ import annotations

import copy
import json
import warnings
from typing import Any

import numpy as np

from timbermark.attacks.stolen import (
    LeafValues,
    NotOfferedError,
    Stolen,
    Thief,
    library_of,
    steal,
)
from timbermark.attacks.tuning import tune_model_only, tune_regrown
from timbermark.libraries.contract import ForeignModel
from timbermark.marking.models import open_model

_L2 = 1e-3
"""What keeps a leaf with hardly any row from leaping."""
_LARGEST_STEP = 3.0
"""No leaf is refitted to more than this, before the learning rate."""


def refit(stolen: Stolen, thief: Thief, decay: float) -> Stolen:
    """Refit all leaves on the thief's rows and keep a share of ``decay`` of what they were.

    Needs: file, rows, labels. Leaves that no row of the thief's reaches stay as they are.
    """
    leaves = LeafValues.of(stolen, thief.X)
    new = refitted_values(leaves, thief.label)
    return leaves.put(
        [decay * old + (1.0 - decay) * to for old, to in zip(leaves.value, new, strict=True)]
    )


def refit_by_library(stolen: Stolen, thief: Thief, decay: float) -> Stolen:
    """Refit with LightGBM's ``refit`` or XGBoost's ``refresh``; ``decay`` as in `refit`.

    Needs: file, rows, labels.
    """
    library = library_of(stolen.trees())
    if library == "lightgbm":
        return _refit_lightgbm(stolen.file(), thief, decay)
    if library == "xgboost":
        foreign = stolen.file()
        return _blend(foreign, _refresh_xgboost(foreign, thief), decay)
    raise NotOfferedError("only LightGBM and XGBoost refit leaves themselves.")


def update_leaves(stolen: Stolen, thief: Thief, strength: float) -> Stolen:
    """Add the thief's rows, ``strength`` times, to what the leaves of our own model were made from.

    Needs: file, rows, labels. This is the in-place update as far as the model alone allows it.
    """
    model = _our_model(stolen)
    times = max(round(strength), 1)
    X, y = np.tile(thief.X, (times, 1)), np.tile(model.classes_[thief.label], times)
    return steal(tune_model_only(model, X, y))


def update_regrown(stolen: Stolen, thief: Thief, strength: float) -> Stolen:
    """Rebuild the state of our own model from the thief's rows and let them regrow its trees.

    Needs: file, rows, labels. ``strength`` is the share of the rows that are used.
    """
    model = _our_model(stolen)
    some = thief.rng("regrow").permutation(len(thief.X))[: max(int(strength * len(thief.X)), 2)]
    return steal(tune_regrown(model, thief.X[some], model.classes_[thief.label[some]]))


def refitted_values(leaves: LeafValues, label: np.ndarray) -> list[np.ndarray]:
    """Return each leaf's Newton step on the thief's rows, [K] of float64 [leaves].

    Round after round as in training, each from the margins of the refitted rounds before it. A leaf
    that no row reaches keeps its value.
    """
    rate = step_length(leaves, label)
    return _walk(leaves, label, rate)[0]


def step_length(leaves: LeafValues, label: np.ndarray) -> float:
    """Return the learning rate that explains the leaf values best, by least squares."""
    _, (both, square) = _walk(leaves, label, None)
    return float(np.clip(both / square, 1e-3, 1.0)) if square > 0.0 else 0.1


def _walk(
    leaves: LeafValues, label: np.ndarray, rate: float | None
) -> tuple[list[np.ndarray], tuple[float, float]]:
    """Compute all Newton steps; without a rate the margins follow the leaves as they are.

    Returns new values, and Σ w·old·step and Σ w·step² over leaves, w being their hessians.
    """
    foreign, router = leaves.foreign, leaves.router
    scale, outputs = foreign.margin_scale, foreign.ensemble.n_outputs
    margins = np.tile(foreign.ensemble.init, (len(label), 1))
    truth = (label[:, None] == np.arange(len(foreign.classes)))[:, -outputs:].astype(np.float64)
    new = [value.copy() for value in leaves.value]
    both = square = 0.0
    for t in range(max(len(trees) for trees in router.trees)):
        p = foreign.confidence(margins)[:, -outputs:]
        gradient, hessian = scale * (truth - p), scale**2 * p * (1.0 - p)
        for c in range(outputs):
            if t >= len(router.trees[c]):
                continue
            part = slice(int(router.first[c][t]), int(router.first[c][t + 1]))
            here, size = leaves.routes.leaf[c][t], int(part.stop - part.start)
            h = np.bincount(here, hessian[:, c], size)
            step = np.bincount(here, gradient[:, c], size) / (h + _L2)
            step = np.clip(step, -_LARGEST_STEP / scale, _LARGEST_STEP / scale)
            old = leaves.value[c][part]
            both += float((h * old * step).sum())
            square += float((h * step**2).sum())
            if rate is not None:
                reached = np.bincount(here, minlength=size) > 0
                new[c][part] = np.where(reached, rate * step, old)
            margins[:, c] += new[c][part][here]
    return new, (both, square)


def _refit_lightgbm(foreign: ForeignModel, thief: Thief, decay: float) -> Stolen:
    from lightgbm import Booster
    from lightgbm.basic import LightGBMError

    native = foreign.native
    booster = native if isinstance(native, Booster) else native.booster_
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made = booster.refit(
                thief.X, thief.label.astype(float), decay_rate=decay, num_threads=1, verbosity=-1
            )
    except LightGBMError as error:
        raise NotOfferedError(f"LightGBM does not refit this model ({error}).") from None
    refitted = open_model(made).ensemble.value
    if refitted.shape != foreign.ensemble.value.shape:
        raise NotOfferedError("LightGBM refits only models that use all of their trees.")
    # The trees are the same, so that the wrapper around them can stay what it is.
    return steal(foreign).put(refitted)


def _refresh_xgboost(foreign: ForeignModel, thief: Thief) -> np.ndarray:
    import xgboost

    native = foreign.native
    booster = native if isinstance(native, xgboost.Booster) else native.get_booster()
    matrix = xgboost.DMatrix(thief.X, thief.label.astype(float), missing=foreign.extra.missing)
    matrix.feature_names = booster.feature_names
    matrix.feature_types = booster.feature_types
    update = {"process_type": "update", "updater": "refresh", "refresh_leaf": True}
    params = {**xgboost_params(foreign, booster), **update}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = xgboost.train(
            params, matrix, num_boost_round=booster.num_boosted_rounds(), xgb_model=booster
        )
    refreshed = open_model(made).ensemble.value
    return np.asarray(refreshed[: foreign.ensemble.n_nodes])


def xgboost_params(foreign: ForeignModel, booster: Any) -> dict[str, Any]:
    """Return the parameters that an XGBoost model was trained with, as far as it tells."""
    learner = json.loads(booster.save_config())["learner"]
    steps = foreign.extra.steps
    found: dict[str, Any] = {
        "objective": learner["objective"]["name"], "nthread": 1, "lambda": float(steps.l2),
        "eta": float(np.median(steps.eta)),
    }  # fmt: skip
    n_classes = int(learner["learner_model_param"]["num_class"])
    return {**found, "num_class": n_classes} if n_classes else found


def _blend(foreign: ForeignModel, refitted: np.ndarray, decay: float) -> Stolen:
    return steal(foreign).put(decay * foreign.ensemble.value + (1.0 - decay) * refitted)


def _our_model(stolen: Stolen) -> Any:
    foreign = stolen.file()
    if library_of(foreign) != "timbermark":
        raise NotOfferedError("only timbermark's own models are updated in place.")
    return copy.copy(foreign.native)
