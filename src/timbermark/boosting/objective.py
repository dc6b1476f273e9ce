"""The losses: softmax over K >= 3 classes, logistic for two, squared error for numbers.

All give Newton leaves. For the softmax a leaf is (K - 1) / K · Σ(y − p) / Σp(1 − p), the robust
LogitBoost step; the factor enters the regularisation too, as if every hessian were K / (K − 1)
times as large. For the squared error it is the mean residual, Σ(y − p) / (Σw + l2).

This is all the rest of the engine knows of them: an `Objective`, and the units of its sums. The
number of classes says which loss it is; 0 means regression.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from timbermark.boosting.data import TrainingData
from timbermark.boosting.params import TrainParams
from timbermark.boosting.scale import Scale
from timbermark.kernels.layout import Loss, Rule
from timbermark.trees import ensemble

_LEAST_GAIN = 1.0
"""In units of the fixed-point scale: below this a gain is rounding."""


@dataclass(frozen=True, slots=True)
class Objective:
    """What kernels need: how to derive gradients, and how sums become splits and leaves."""

    loss: Loss
    rule: Rule


def make_objective(data: TrainingData, params: TrainParams, scale: Scale) -> Objective:
    """Return the objective of training on ``data``."""
    residuals = scale.residuals
    no_label, no_target = np.empty(0, np.int32), np.empty(0, np.float64)
    loss = Loss(
        label=no_label if residuals else data.label,
        target=data.label if residuals else no_target,
        weight=data.weight,
        unit=np.float32(scale.unit),
        residual_unit=residuals.unit if residuals else 1.0,
        most=2.0**residuals.top if residuals else 0.0,
    )
    return Objective(loss, make_rule(params, data.n_classes, scale))


def factor(n_classes: int) -> float:
    """Return (K − 1) / K, or 1 for two classes and for regression.

    >>> factor(4), factor(2), factor(0)
    (0.75, 1.0, 1.0)
    """
    return (n_classes - 1) / n_classes if n_classes > 2 else 1.0


def make_rule(params: TrainParams, n_classes: int, scale: Scale) -> Rule:
    """Return the rule of splits and leaves in the units of ``scale``."""
    unit = factor(n_classes) * scale.unit
    return Rule(
        l2=float(params.l2_regularization * unit),
        least_hessian=float(params.min_hessian * unit),
        least_rows=float(params.min_samples_leaf),
        # A gain is Σg² / Σh: where hessians have a unit of their own, it is theirs.
        least_gain=float(_LEAST_GAIN if n_classes else _LEAST_GAIN / scale.unit),
        step=float(params.learning_rate * factor(n_classes) * (scale.unit / scale.gradient_unit)),
        # Only hessians that vanish need a limit.
        limit=float(params.leaf_limit) if n_classes else np.inf,
        max_leaves=int(params.max_leaf_nodes),
    )


def measure_gains(gains: np.ndarray, scale: Scale) -> np.ndarray:
    """Return gains, Σg² / Σh in integers, in the unit of the loss; at most the largest number."""
    with np.errstate(over="ignore", under="ignore"):
        # One after the other: the square of a target's unit may be out of range.
        measured = gains * (scale.unit / scale.gradient_unit) / scale.gradient_unit
    return np.minimum(measured, np.finfo(np.float64).max)


def name_objective(n_classes: int) -> ensemble.Objective:
    """Return what an ensemble calls the loss.

    >>> [name_objective(n) for n in (0, 2, 3)]
    ['identity', 'logistic', 'softmax']
    """
    return "identity" if n_classes == 0 else "logistic" if n_classes == 2 else "softmax"
