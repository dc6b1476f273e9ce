"""The losses, and the units of their sums: softmax, logistic for two classes, squared error.

All give Newton leaves. For the softmax a leaf is (K - 1) / K · Σ(y − p) / Σp(1 − p), the robust
LogitBoost step; the factor enters the regularisation too, as if every hessian were K / (K − 1)
times as large. For the squared error it is the mean residual, Σ(y − p) / (Σw + l2).

This is all the rest of the engine knows of them: an `Objective`, and the units of its sums. The
number of classes says which loss it is; 0 means regression.

Gradients, hessians and counts become integers, in fixed point, so that their sums are exact. With
classes a gradient lies within ±1, and one unit of 2^-bits serves gradients and hessians. In
regression a gradient is a residual, in whatever unit the target is measured. Its unit is a power of
two chosen from the target: the largest distance from the *start* (the mean, where predictions
begin) is 2^22 to 2^23 units. So a residual is rounded by at most 2^-23 of that distance, as finely
as by a float32 of that size; the mean of a leaf is finer still, because roundings average out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from timbermark.boosting.data import TrainingData, TrainParams
from timbermark.errors import InputError
from timbermark.kernels.layout import Loss, Rule
from timbermark.trees import ensemble

_MOST_BITS = 20
_WORD_BITS = 62
_RESIDUAL_BITS = 24
"""Of the largest residual; weights below 2^6 still fit an int32 then."""
_LEAST_SPREAD = 12
"""Bits that the target's spread must keep for gradients and counts to share a word."""
_MOST_EXPONENT = 1000


@dataclass(frozen=True, slots=True)
class Residuals:
    """Regression: a residual is an integer times 2^-bits, of at most 2^top in size."""

    start: float
    bits: int
    top: int

    @property
    def unit(self) -> float:
        """Return 2^bits; the target's own unit may make that very small or very large."""
        return float(2.0**self.bits)


@dataclass(frozen=True, slots=True)
class Scale:
    """A gradient or hessian is an integer times 2^-bits; counts fit below ``shift`` bits.

    Hessians and counts share a 64-bit word in histograms, so more rows leave fewer bits.
    ``residuals`` is None where there are classes.
    """

    bits: int
    shift: int
    residuals: Residuals | None = None

    @property
    def unit(self) -> float:
        """Return 2^bits."""
        return float(2**self.bits)

    @property
    def gradient_unit(self) -> float:
        """Return what a gradient of one is as an integer."""
        return self.unit if self.residuals is None else self.residuals.unit

    @property
    def start(self) -> float:
        """Return the margin that training begins with."""
        return 0.0 if self.residuals is None else self.residuals.start

    @property
    def largest_weight(self) -> float:
        """Return the weight up to which a row's gradient and hessian fit an int32."""
        top = self.bits if self.residuals is None else max(self.bits, self.residuals.top)
        return float(2 ** (30 - top))


def choose_scale(data: TrainingData, start: float | None = None) -> Scale:
    """Return the finest scale at which no sum over these rows, or four times as many, overflows.

    ``start`` is where a regression's predictions begin, by default the mean of the target.
    """
    shift = int(4 * data.count.sum(dtype=np.int64)).bit_length()
    heaviest = int(np.ceil(data.weight.max(initial=1.0))).bit_length()
    total = int(np.ceil(data.weight.sum(dtype=np.float64))).bit_length()
    room = _WORD_BITS - shift - total
    # The hessians of classes are at most a quarter; those of regression are one.
    bits = min(_MOST_BITS, 30 - heaviest, room if data.n_classes else room - 2)
    if bits < 8:
        raise InputError(
            f"The sample weights add up to {data.weight.sum():.3g}, more than the engine can sum.",
            hint="divide all weights by the same number; only their ratios matter.",
            code="weights.heavy",
        )
    if data.n_classes:
        return Scale(bits, shift)
    return Scale(
        bits, shift, _choose_residuals(data, start, min(_RESIDUAL_BITS, 30 - heaviest), room)
    )


def _choose_residuals(data: TrainingData, start: float | None, top: int, room: int) -> Residuals:
    if start is None:
        start = mean_target(data.label, data.weight)
    largest = _largest(data, start)
    if not np.isfinite(largest):
        raise InputError(
            f"The targets reach from {data.label.min():.3g} to {data.label.max():.3g}, too far for "
            "their differences to be numbers.",
            hint="divide all targets by the same number.",
        )
    bits = top - 1 - _exponent(largest)
    spread = _exponent(largest * _relative_spread(data, start, largest))
    # Room for four times the rows and for rounding, see shares_word.
    together = room - 3 - spread
    if together + spread >= _LEAST_SPREAD:
        bits = min(bits, together)
    return Residuals(start, int(np.clip(bits, -_MOST_EXPONENT, _MOST_EXPONENT)), top)


def mean_target(target: np.ndarray, weight: np.ndarray) -> float:
    """Return the weighted mean, to 2^-30 of the range.

    Added up in integers, so that a whole weight is exactly as many copies.

    >>> mean_target(np.array([1.0, 5.0]), np.array([3.0, 1.0]))
    2.0
    """
    low, high = float(target.min()), float(target.max())
    middle = low / 2 + high / 2
    if low == high:
        return low
    half = max(high - middle, middle - low)
    steps = np.rint((target - middle) / half * 2.0**30)
    mean = float(np.rint(np.dot(steps, weight.astype(np.float64)) / weight.sum(dtype=np.float64)))
    return middle + mean * 2.0**-30 * half


def shares_word(scale: Scale, data: TrainingData, params: TrainParams) -> bool:
    """Return whether a histogram can hold gradients and counts in one word: hessians are equal.

    No sum can overflow: with unit weights a step of a learning rate up to 1 never raises the sum of
    the squared residuals (cut ones: their Huber loss), so that the sum of n residuals never exceeds
    n times the spread that the target had at the start. It cannot change a tree.
    """
    if scale.residuals is None or params.learning_rate > 1 or (data.weight != 1).any():
        return False
    start, unit = scale.start, scale.residuals.unit
    largest = _largest(data, start)
    spread = largest * _relative_spread(data, start, largest)
    return bool(2 * data.n_rows * (spread * unit + 1) < 2.0 ** (_WORD_BITS - scale.shift))


def fits_scale(scale: Scale, *parts: TrainingData) -> bool:
    """Return whether the rows of all parts can be counted below the shift, and none is cut."""
    total = sum(int(data.count.sum(dtype=np.int64)) for data in parts)
    if scale.residuals is None:
        return total < int(2**scale.shift)
    largest = max(_largest(data, scale.start) for data in parts)
    most = 2.0**scale.residuals.top
    return total < int(2**scale.shift) and largest * scale.residuals.unit <= most


def check_scale(scale: Scale, data: TrainingData) -> None:
    """Raise InputError where rows are too heavy for sums that are already scaled."""
    heaviest = float(data.weight.max(initial=0.0))
    if heaviest >= scale.largest_weight:
        raise InputError(
            f"A sample weight of {heaviest:g} is too heavy for this model's state "
            f"(less than {scale.largest_weight:g} fits).",
            hint="fit again with the weights divided by a common number.",
            code="weights.heavy",
        )


def _largest(data: TrainingData, start: float) -> float:
    """Return the largest distance of a target from ``start``; infinite beyond all numbers."""
    with np.errstate(over="ignore"):
        return float(np.abs(data.label - start).max(initial=0.0))


def _relative_spread(data: TrainingData, start: float, largest: float) -> float:
    """Return the weighted standard deviation from ``start``, as a share of the largest."""
    if largest == 0.0:
        return 0.0
    share = (data.label - start) / largest
    weight = data.weight.astype(np.float64)
    return float(np.sqrt(np.dot(share * share, weight) / weight.sum()))


def _exponent(value: float) -> int:
    """Return the least e with value < 2^e; for zero that of one."""
    return int(np.frexp(value)[1]) if value > 0 else 1


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
