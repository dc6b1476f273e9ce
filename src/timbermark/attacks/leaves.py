"""Attacks on leaf values: the splits stay, and leaves are refitted, flattened, blurred or rounded.

Leaves are Newton steps of the loss, and the length of these steps can be estimated from the leaves
that are there, so a thief can refit the file of any library. LightGBM offers the same as ``refit``
and XGBoost as the updater ``refresh``. Leaves that look edited can be flattened: they take the
value that the rest of their branch, or the thief's own rows, suggest.
"""

from __future__ import annotations

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
from timbermark.libraries.contract import ForeignModel
from timbermark.marking.models import open_model
from timbermark.trees.branches import flatten_leaves

_L2 = 1e-3
"""What keeps a leaf with hardly any row from leaping."""
_LARGEST_STEP = 3.0
"""No leaf of a log-loss is refitted to more than this, before the learning rate."""


def refit(stolen: Stolen, thief: Thief, decay: float) -> Stolen:
    """Refit all leaves on the thief's rows and keep a share of ``decay`` of what they were.

    Needs: file, rows, labels. Leaves that no row of the thief's reaches stay as they are.
    """
    leaves = LeafValues.of(stolen, thief.X)
    new = refitted_values(leaves, thief)
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
    raise NotOfferedError("no-refit")


def flatten_by_file(stolen: Stolen, thief: Thief, share: float) -> Stolen:
    """Give the ``share`` of leaves that look most edited the mean of their siblings' subtree.

    Needs: file. Edits are cheapest in leaves with little weight, and make them differ from the rest
    of their branch by more than their weight explains.
    """
    return stolen.put(flatten_leaves(stolen.trees().ensemble, share))


def flatten_by_rows(stolen: Stolen, thief: Thief, share: float) -> Stolen:
    """Give the ``share`` of leaves that the thief's rows contradict most the value these suggest.

    Needs: file, rows, labels.
    """
    leaves = LeafValues.of(stolen, thief.X)
    new = refitted_values(leaves, thief)
    odd = []
    for c, (old, to) in enumerate(zip(leaves.value, new, strict=True)):
        first = leaves.router.first[c]
        count = np.zeros(len(old))
        for t in range(len(first) - 1):
            size = int(first[t + 1] - first[t])
            count[first[t] : first[t + 1]] = np.bincount(leaves.routes.leaf[c][t], minlength=size)
        odd.append(np.abs(old - to) * np.sqrt(count))
    level = np.quantile(np.concatenate(odd), 1.0 - share)
    return leaves.put(
        [
            np.where((o >= level) & (o > 0.0), to, old)
            for o, old, to in zip(odd, leaves.value, new, strict=True)
        ]
    )


def add_leaf_noise(stolen: Stolen, thief: Thief, size: float) -> Stolen:
    """Add noise to every leaf, with a standard deviation of ``size`` times that of the leaves.

    Needs: file.
    """
    rng = thief.rng("leaf noise")
    leaves = LeafValues.of(stolen, thief.X[:1])
    return leaves.put(
        [
            v + size * (v - start).std() * rng.standard_normal(len(v))
            for v, start in zip(leaves.value, _starts(leaves), strict=True)
        ]
    )


def round_leaves(stolen: Stolen, thief: Thief, bits: float) -> Stolen:
    """Round every leaf to one of 2^``bits`` evenly spaced values; 16 stands for float16.

    Needs: file.
    """
    leaves = LeafValues.of(stolen, thief.X[:1])

    def coarse(value: np.ndarray) -> np.ndarray:
        if bits == 16:
            return value.astype(np.float16).astype(np.float64)
        low, high = float(value.min()), float(value.max())
        unit = (high - low) / (2.0**bits - 1.0)
        return low + unit * np.rint((value - low) / unit) if unit > 0.0 else value

    return leaves.put(
        [
            start + coarse(value - start)
            for value, start in zip(leaves.value, _starts(leaves), strict=True)
        ]
    )


def _starts(leaves: LeafValues) -> list[np.ndarray]:
    """Return what boosting starts from at the leaves of first trees, else 0, [K] of [leaves].

    LightGBM adds the mean that boosting starts from to the leaves of the first tree. It is no part
    of the spread of leaf values, where it lies outside of all others.
    """
    found = []
    for c, value in enumerate(leaves.value):
        last = int(leaves.router.first[c][1])
        start = np.zeros(len(value))
        mean, others = float(value[:last].mean()), value[last:]
        if len(others) and not others.min() <= mean <= others.max():
            start[:last] = mean
        found.append(start)
    return found


def refitted_values(leaves: LeafValues, thief: Thief) -> list[np.ndarray]:
    """Return each leaf's Newton step on the thief's rows, [K] of float64 [leaves].

    Round after round as in training, each from the margins of the refitted rounds before it. A leaf
    that no row reaches keeps its value.
    """
    return _walk(leaves, thief, step_length(leaves, thief))[0]


def step_length(leaves: LeafValues, thief: Thief) -> float:
    """Return the learning rate that explains the leaf values best, by least squares."""
    _, (both, square) = _walk(leaves, thief, None)
    return float(np.clip(both / square, 1e-3, 1.0)) if square > 0.0 else 0.1


def _walk(
    leaves: LeafValues, thief: Thief, rate: float | None
) -> tuple[list[np.ndarray], tuple[float, float]]:
    """Compute all Newton steps; without a rate the margins follow the leaves as they are.

    Returns new values, and Σ w·old·step and Σ w·step² over leaves, w being their hessians.
    """
    foreign, router = leaves.foreign, leaves.router
    outputs = foreign.ensemble.n_outputs
    margins = np.tile(foreign.ensemble.init, (len(thief.X), 1))
    # No learning rate applies to the mean that boosting starts from; see `_starts`.
    start = [float(leaves.given(c, 0).mean()) for c in range(outputs)]
    margins += start
    squared = foreign.task == "regression" and foreign.ensemble.objective == "identity"
    limit = np.inf if squared else _LARGEST_STEP / foreign.margin_scale
    new = [value.copy() for value in leaves.value]
    both = square = 0.0
    for t in range(max(len(trees) for trees in router.trees)):
        gradient, hessian = _gradients(foreign, margins, thief)
        for c in range(outputs):
            if t >= len(router.trees[c]):
                continue
            part = slice(int(router.first[c][t]), int(router.first[c][t + 1]))
            here, size = leaves.routes.leaf[c][t], int(part.stop - part.start)
            h = np.bincount(here, hessian[:, c], size)
            step = np.bincount(here, gradient[:, c], size) / (h + _L2)
            step = np.clip(step, -limit, limit)
            offset = start[c] if t == 0 else 0.0
            old = leaves.value[c][part] - offset
            both += float((h * old * step).sum())
            square += float((h * step**2).sum())
            moved = old
            if rate is not None:
                reached = np.bincount(here, minlength=size) > 0
                moved = np.where(reached, rate * step, old)
                new[c][part] = moved + offset
            margins[:, c] += moved[here]
    return new, (both, square)


def _gradients(
    foreign: ForeignModel, margins: np.ndarray, thief: Thief
) -> tuple[np.ndarray, np.ndarray]:
    """Return negative gradients and hessians of the loss in the margins, float64 [n, outputs].

    Log-loss for labels; for numbers squared error, Poisson deviance or log-loss by what the margin
    becomes; for rankers the logistic loss of pairs within a list.
    """
    scale, outputs = foreign.margin_scale, foreign.ensemble.n_outputs
    if foreign.task == "classification":
        p = foreign.confidence(margins)[:, -outputs:]
        truth = thief.target[:, None] == np.arange(len(foreign.classes))[-outputs:]
        return scale * (truth - p), scale**2 * p * (1.0 - p)
    if foreign.task == "ranking":
        return _pair_gradients(margins[:, 0], thief)
    found = foreign.answers(margins)
    slope = {"identity": np.ones(found.shape), "exponential": found}.get(
        foreign.ensemble.objective, found * (1.0 - found)
    )
    return scale * (thief.target[:, None] - found), scale**2 * np.maximum(slope, 1e-9)


def _pair_gradients(margins: np.ndarray, thief: Thief) -> tuple[np.ndarray, np.ndarray]:
    gradient, hessian = np.zeros(len(margins)), np.zeros(len(margins))
    groups = np.zeros(len(margins), np.int64) if thief.groups is None else thief.groups
    starts = np.flatnonzero(np.append(True, groups[1:] != groups[:-1]))
    for first, last in zip(starts, np.append(starts[1:], len(margins)), strict=True):
        f, y = margins[first:last], thief.target[first:last]
        better = np.sign(y[:, None] - y[None, :])
        wrong = 1.0 / (1.0 + np.exp(np.clip(better * (f[:, None] - f[None, :]), -50.0, 50.0)))
        gradient[first:last] = (better * wrong).sum(axis=1)
        hessian[first:last] = (np.abs(better) * wrong * (1.0 - wrong)).sum(axis=1)
    return gradient[:, None], hessian[:, None]


def _refit_lightgbm(foreign: ForeignModel, thief: Thief, decay: float) -> Stolen:
    from lightgbm import Booster
    from lightgbm.basic import LightGBMError

    native = foreign.native
    booster = native if isinstance(native, Booster) else native.booster_
    lists = None if thief.groups is None else np.unique(thief.groups, return_counts=True)[1]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made = booster.refit(
                thief.X, thief.target.astype(float), decay_rate=decay, group=lists, num_threads=1,
                verbosity=-1,
            )  # fmt: skip
    except LightGBMError:
        raise NotOfferedError("refit-refused") from None
    refitted = open_model(made).ensemble.value
    if refitted.shape != foreign.ensemble.value.shape:  # trees that predict does not use
        raise NotOfferedError("refit-refused")
    # The trees are the same, so that the wrapper around them can stay what it is.
    return steal(foreign).put(refitted)


def _refresh_xgboost(foreign: ForeignModel, thief: Thief) -> np.ndarray:
    import xgboost

    booster, matrix = xgboost_inputs(foreign, thief)
    update = {"process_type": "update", "updater": "refresh", "refresh_leaf": True}
    params = {**xgboost_params(foreign, booster), **update}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = xgboost.train(
            params, matrix, num_boost_round=booster.num_boosted_rounds(), xgb_model=booster
        )
    refreshed = open_model(made).ensemble.value
    return np.asarray(refreshed[: foreign.ensemble.n_nodes])


def xgboost_inputs(foreign: ForeignModel, thief: Thief) -> tuple[Any, Any]:
    """Return the booster of an XGBoost model, and the thief's rows as its training takes them."""
    import xgboost

    native = foreign.native
    booster = native if isinstance(native, xgboost.Booster) else native.get_booster()
    matrix = xgboost.DMatrix(
        thief.X, thief.target.astype(float), missing=foreign.extra.missing, qid=thief.groups
    )
    matrix.feature_names = booster.feature_names
    matrix.feature_types = booster.feature_types
    return booster, matrix


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
