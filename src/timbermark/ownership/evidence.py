"""Evidence in bits from scores, from labels asked one by one, and from numbers.

Every function here computes log₂ of an e-value. For trigger i, w_i is a distribution over the q
values of its alphabet that depends on the suspect's response and on what was fixed before the
symbols were drawn, but not on the symbols. If the suspect does not depend on the symbols,
q·w_i(s_i) has the mean 1, and so has the product over all triggers, E. By Markov's inequality E
reaches 2^b with a chance of at most 2^-b, and by Ville's inequality this holds at whatever moment
one stops asking. The mean of several such products is an e-value again, so several forms of w are
mixed rather than tuned. docs/mark-format.md states every constant.
"""

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from timbermark.dtypes import AnyArray, Reals
from timbermark.errors import InputError
from timbermark.ownership.score_forms import (
    N_FORMS,
    N_PREDICTED_FORMS,
    SCORE_FLOOR,
    log_scores,
    predict_scores,
    score_forms,
)

if TYPE_CHECKING:
    from timbermark.ownership.mark import Mark

N_MATCH_RATES = 64
LEVEL_WIDTHS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
LEVEL_SHARES = (1.0, 0.7, 0.5, 0.3, 0.15)
"""How much of a level's distance is left: a copy that was averaged with another model keeps a
part."""
_FARTHEST = 1e6
_AT_ONCE = 1 << 18
"""Scores that are worked on at once: the forms of a mark with many classes need memory."""
_LOG_2 = math.log(2.0)


def scores_evidence(scores: ArrayLike, mark: "Mark") -> float:
    """Return the evidence in a suspect's scores, in bits; negative where they speak against it.

    ``scores`` is [k, K]: for each trigger in the mark's order the probability of each class in the
    mark's order. They need not add up to 1; what is below 1e-6 counts as 1e-6. A row with NaN was
    not answered and does not count. Draws and other prices are not subtracted here.

    E is the mean of the products Π q·w_i(s_i) over the forms of w in
    :mod:`timbermark.ownership.score_forms`.

    Raises InputError unless the scores are a matrix [k, K] of numbers.

    >>> from timbermark.ownership import Mark, OwnerKey
    >>> mark = Mark.make(
    ...     OwnerKey.generate(), owner="Ann", model_digest="0" * 64, classes=["no", "yes"],
    ...     triggers=np.arange(100.0).reshape(100, 1), alphabets=np.tile([0, 1], (100, 1)),
    ...     reference=np.full((100, 2), 0.5),
    ... )
    >>> obedient = np.where(np.arange(2) == mark.expected_numbers[:, None], 0.9, 0.1)
    >>> 80 < scores_evidence(obedient, mark) < 100
    True
    >>> scores_evidence(np.full((100, 2), np.nan), mark)
    0.0
    """
    gains = scores_gains(scores, mark)
    return mean_bits(gains.sum(axis=1)) if gains.shape[1] else 0.0


def scores_gains(scores: ArrayLike, mark: "Mark") -> Reals:
    """Return log q·w_i(s_i) of each form and each trigger that was answered, float64 [m, n].

    The arguments are those of `scores_evidence`; n counts the rows without NaN, in their order.
    There are m = 108 forms, 138 where the mark has alternatives.

    >>> from timbermark.ownership import Mark, OwnerKey
    >>> mark = Mark.make(
    ...     OwnerKey.generate(), owner="Ann", model_digest="0" * 64, classes=["no", "yes"],
    ...     triggers=[[0.5], [1.5]], alphabets=[[0, 1]] * 2, reference=[[0.5, 0.5]] * 2,
    ... )
    >>> scores_gains([[0.9, 0.1], [np.nan, 0.1]], mark).shape
    (108, 1)
    """
    given = _read_scores(scores, (mark.n_triggers, len(mark.classes)))
    answered = np.flatnonzero(~np.isnan(given).any(axis=1))
    rows = max(1, _AT_ONCE // len(mark.classes))
    parts = [answered[first : first + rows] for first in range(0, len(answered), rows)]
    alphabets = np.asarray(mark.alphabets, np.int32)
    predicted = _predict(given, answered, mark)
    gains = []
    for i in parts:
        known = None if predicted is None else predicted[i]
        forms = score_forms(given[i], mark.reference[i], alphabets[i], known)
        gains.append(_gains(forms, mark.symbols[i]))
    n_forms = N_FORMS + (0 if predicted is None else N_PREDICTED_FORMS)
    return np.hstack(gains) if gains else np.zeros((n_forms, 0))


def _predict(scores: Reals, answered: AnyArray, mark: "Mark") -> Reals | None:
    """Return what each answered trigger should be answered with; None without alternatives."""
    if not mark.alternatives.shape[1]:
        return None
    asked = mark.order[np.isin(mark.order, answered)]
    alphabets = np.asarray(mark.alphabets, np.int32)
    predicted = np.full(alphabets.shape, np.nan)
    predicted[asked] = predict_scores(
        log_scores(scores, alphabets)[asked],
        log_scores(mark.reference, alphabets)[asked],
        np.log(np.clip(mark.alternatives[asked], SCORE_FLOOR, 1.0)),
    )
    return predicted


def sequential_evidence(matched: int, answered: int, q: int) -> float:
    """Return the evidence of labels that were asked one by one, in bits, valid whenever one stops.

    ``matched`` of ``answered`` responses are the label that their symbol asks for. A question
    without an answer, or with a label outside its alphabet, is not counted.

    It is the betting form of Krichevsky and Trofimov, mixed over match rates above chance only:
    E is the mean of (q·θ)^S·((1 − θ)·q/(q − 1))^(n − S) over `N_MATCH_RATES` rates θ = cos²φ, at
    the midpoints of equal parts of 0 <= φ <= arccos(1/√q). Rates below chance are left out because
    nobody is accused of avoiding symbols.

    Raises InputError unless 0 <= matched <= answered and q >= 2.

    >>> sequential_evidence(34, 34, 4) > 64, sequential_evidence(0, 0, 4)
    (True, 0.0)
    >>> sequential_evidence(0, 96, 4) < 0
    True
    """
    if q < 2 or not 0 <= matched <= answered:
        raise InputError(
            f"matched={matched} of answered={answered} with q={q} is impossible.",
            hint="count the matches again; an alphabet has 2 or 4 labels.",
        )
    gain, loss = labels_gains(q)
    return mean_bits(matched * gain + (answered - matched) * loss)


def labels_gains(q: int) -> tuple[Reals, Reals]:
    """Return what a match and what any other label add to log E, for each rate, float64 [64] each.

    >>> gain, loss = labels_gains(4)
    >>> bool((gain > 0).all() and (loss < 0).all())
    True
    """
    parts = (np.arange(N_MATCH_RATES) + 0.5) / N_MATCH_RATES
    angles = parts * math.acos(math.sqrt(1.0 / q))
    gain = 2.0 * np.log(np.cos(angles)) + math.log(q)
    loss = 2.0 * np.log(np.sin(angles)) + math.log(q / (q - 1.0))
    return gain, loss


def numbers_evidence(values: ArrayLike, levels: ArrayLike, symbols: ArrayLike) -> float:
    """Return the evidence in a suspect's numbers, in bits, where symbols select levels.

    ``values`` [k] are what the suspect says, of pairs of rows the differences of its numbers, NaN
    where there is none; ``levels`` [k, q] the
    distinct values that the symbols, [k] from 0 to q - 1, select from. With c the mean of a
    trigger's levels, h the mean distance of neighbouring ones and z = (y − c)/h,
    w_i(a) ∝ exp(−d²) or (1 + d²)^(−3/2), d² = (z_i − f·(level_a − c)/h)²/2σ², mixed over both, over
    σ in `LEVEL_WIDTHS`, f in `LEVEL_SHARES`, and two readings of y: as it is, and on the scale
    of the levels, to which the line y = α + β·c takes it that fits all answers best. No reading
    knows a symbol. The second form is for copies that differ much on a few triggers. A value more
    than 10^6·h from c counts as at that distance.

    Raises InputError if the shapes do not fit or the levels of a trigger are not distinct numbers.

    >>> levels = levels_around([10.0, 20.0], 1.0, 4)
    >>> levels[0]
    array([ 8.5,  9.5, 10.5, 11.5])
    >>> levels = levels_around(np.arange(40.0), 1.0, 4)
    >>> 64 < numbers_evidence(levels[:, 3], levels, np.full(40, 3)) < 80
    True
    """
    y, grid = np.asarray(values, dtype=np.float64), np.asarray(levels, dtype=np.float64)
    chosen = np.asarray(symbols)
    if grid.ndim != 2 or grid.shape[1] < 2 or y.shape != grid.shape[:1] or chosen.shape != y.shape:
        raise InputError(
            f"Values of shape {y.shape}, levels of shape {grid.shape} and symbols of shape "
            f"{chosen.shape} do not fit together.",
            hint="give [k], [k, q] and [k].",
        )
    step = np.ptp(grid, axis=1, keepdims=True) / (grid.shape[1] - 1)
    if not (np.isfinite(grid).all() and (np.diff(np.sort(grid, axis=1)) > 0).all()):
        raise InputError("The levels of a trigger are not distinct numbers.", hint="see levels.")
    answered = ~np.isnan(y)
    if not answered.any():
        return 0.0
    y, grid, step = y[answered], grid[answered], step[answered]
    centre = grid.mean(axis=1)
    away = (grid - centre[:, np.newaxis]) / step
    forms = []
    for values in (y, rescale_numbers(y, centre, step[:, 0])):
        # Clipped before the division, which could overflow.
        farthest = _FARTHEST * step[:, 0]
        offset = np.clip(values - centre, -farthest, farthest) / step[:, 0]
        for share in LEVEL_SHARES:
            squares = (offset[:, np.newaxis] - share * away) ** 2
            for width in LEVEL_WIDTHS:
                distance = squares / (2.0 * width**2)
                forms += [-distance, -1.5 * np.log1p(distance)]
    return mixture_bits(np.stack(forms), chosen[answered])


def rescale_numbers(values: ArrayLike, centres: ArrayLike, steps: ArrayLike) -> Reals:
    """Return numbers on the scale of the levels' centres: (y − α)/β for the best line y = α + β·c.

    The line is that of least squares, where a trigger weighs 1/h². Numbers that fall where centres
    rise, or that tell no line, are all at the centre: they say nothing.

    >>> rescale_numbers([12.0, 14.0, 18.0], [1.0, 2.0, 4.0], [1.0, 1.0, 1.0])
    array([1., 2., 4.])
    """
    y, c = np.asarray(values, np.float64), np.asarray(centres, np.float64)
    weight = np.asarray(steps, np.float64) ** -2.0
    weight = weight / weight.sum()
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        mean_y, mean_c = (weight * y).sum(), (weight * c).sum()
        slope = (weight * (c - mean_c) * (y - mean_y)).sum() / (weight * (c - mean_c) ** 2).sum()
        moved = (y - mean_y) / slope + mean_c
    usable = np.isfinite(slope) and slope > 0.0 and bool(np.isfinite(moved).all())
    return np.asarray(moved if usable else c)


def levels_around(reference: ArrayLike, step: float, q: int) -> Reals:
    """Return q levels around each number of the unmarked model, ``step`` apart, float64 [k, q].

    >>> levels_around([1.0], 2.0, 2)
    array([[0., 2.]])
    """
    places = np.arange(q) - (q - 1) / 2.0
    return np.asarray(np.asarray(reference, np.float64)[:, np.newaxis] + step * places)


def mixture_bits(forms: AnyArray, symbols: AnyArray) -> float:
    """Return log₂ of the mean over all forms of Π q·w_i(s_i).

    ``forms`` [m, k, q] holds for m forms log w_i(a), up to a constant for each trigger; ``symbols``
    is [k]. Everything is added in logarithms, so that nothing overflows.

    >>> round(mixture_bits(np.log([[[0.75, 0.25], [0.75, 0.25]]]), np.array([0, 0])), 3)
    1.17
    """
    return mean_bits(_gains(forms, symbols).sum(axis=1))


def softmax(margins: ArrayLike) -> Reals:
    """Return raw scores [n, K] as probabilities; log-probabilities give back their own.

    A row with NaN, with positive infinity or without any finite score becomes NaN: no answer.

    >>> softmax([[0.0, 0.0], [-np.inf, 3.0], [np.nan, 1.0]])
    array([[0.5, 0.5],
           [0. , 1. ],
           [nan, nan]])
    """
    raw = np.array(margins, dtype=np.float64)
    top = raw.max(axis=1, keepdims=True)
    raw[~np.isfinite(top[:, 0])] = np.nan
    with np.errstate(invalid="ignore", over="ignore"):
        powers = np.exp(raw - top)
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def _read_scores(scores: ArrayLike, shape: tuple[int, int]) -> Reals:
    try:
        given = np.asarray(scores, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError("The scores are not numbers.", hint="give probabilities.") from None
    if given.shape != shape:
        raise InputError(
            f"The scores have the shape {given.shape}, expected {shape}.",
            hint="give one row for each trigger and one column for each class of the mark.",
        )
    return given


def _gains(forms: AnyArray, symbols: AnyArray) -> Reals:
    """Return log q·w_i(s_i), float64 [m, k], of what `mixture_bits` takes."""
    weights = forms - _log_sum(forms)[..., np.newaxis]
    chosen = np.take_along_axis(weights, symbols.astype(np.intp)[np.newaxis, :, np.newaxis], axis=2)
    return np.asarray(chosen[..., 0] + math.log(forms.shape[2]))


def _log_sum(values: AnyArray) -> AnyArray:
    """Return log Σ exp over the last axis."""
    top = values.max(axis=-1)
    total: AnyArray = top + np.log(np.exp(values - top[..., np.newaxis]).sum(axis=-1))
    return total


def mean_bits(logarithms: AnyArray) -> float:
    """Return log₂ of the mean of e-values that are given as natural logarithms.

    >>> round(mean_bits(np.log([1.0, 7.0])), 9)
    2.0
    """
    return float(_log_sum(logarithms) - math.log(len(logarithms))) / _LOG_2 + 0.0
