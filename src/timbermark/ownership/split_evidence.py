"""Evidence of the split seal: is the middle of each boundary answered like b or like a?

A trigger is three rows that differ in one value: a, a middle, b. Its symbol is 1 if the middle
shall be answered like b, 0 if like a. For trigger i, w_i(1) is a number between 0 and 1 that
follows from the suspect's answers and from what was fixed before the symbols were drawn, and w_i(0)
is 1 − w_i(1). If the suspect does not depend on the symbols, 2·w_i(s_i) has the mean 1, and so has
the product over any triggers, whatever the rule by which one stops asking. Several forms of w are
mixed rather than tuned, and the mean of e-values is an e-value again.

Let y_a, y_m, y_b be the answers to the three rows: logarithms of scores, or numbers. The forms are

- *near*: u = |y_m − y_a| / (|y_m − y_a| + |y_m − y_b|), in sums of absolute differences, once of
  the logarithms of scores and once of the scores themselves;
- *along*: the same of the parts of y_m − y_a and y_b − y_m that point the way in which the owner's
  model changes from a to b; what points the other way counts as 0;
- *step*: with r_1 and r_2 these parts in units of the owner's own change, w(1) ∝ f(r_1 − α)·f(r_2)
  and w(0) ∝ f(r_1)·f(r_2 − α), f(r) = 1 / (1 + (r/σα)²), for several α and σ: a copy that was
  averaged with another model keeps the share α of the change, and the other model rarely changes
  in the same place.

From u, w(1) = ε + (1 − 2ε)·u or ε + (1 − 2ε)·[u > ½] (½ where u = ½), for several ε.
"""

import math
from collections.abc import Sequence
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from timbermark.dtypes import AnyArray, Reals
from timbermark.errors import InputError

AnswerKind: TypeAlias = Literal["scores", "numbers", "labels"]

ERRORS = (0.4, 0.25, 0.1, 0.03, 0.01, 0.003)
"""ε: the share of triggers that are taken to be answered at random."""
STEP_SHARES = (1.0, 0.5, 0.25, 0.1, 0.03)
STEP_WIDTHS = (0.3, 0.1, 0.03)
SPLIT_SCORE_FLOOR = 1e-6
_LEAST_WEIGHT = 1e-3
"""No single trigger says more against or for a symbol than this, in any form."""
_FARTHEST = 1e6
"""No change of a suspect's counts as more than this many times the owner's."""
_LOG_2 = math.log(2.0)


def split_gains(
    answers: ArrayLike, reference: ArrayLike, symbols: ArrayLike, kind: AnswerKind
) -> Reals:
    """Return log 2·w_i(s_i) of each form and each trigger, float64 [m, k].

    ``answers``: of scores [k, 3, K], of numbers or of class numbers [k, 3]; NaN where a row was not
    answered or not asked. A missing answer at a or at b is taken from ``reference`` [k, 2, K],
    [k, 2, 1] for numbers: the unmarked model's answers at a and at b. A trigger whose middle was
    not answered, or with nothing to compare it with, adds 0. ``symbols`` [k]: 0 or 1.

    Raises InputError if the shapes do not fit together.

    >>> answers = [[[0.2, 0.8], [0.7, 0.3], [0.7, 0.3]]]
    >>> gains = split_gains(answers, [[[0.2, 0.8], [0.7, 0.3]]], [1], "scores")
    >>> bool((gains > 0).all())
    True
    """
    said, known, chosen = _check(answers, reference, symbols, kind)
    by_labels = kind == "labels"
    forms = _forms_of_u([_label_u(said)]) if by_labels else _number_forms(said, known, kind)
    weight = np.where(np.isnan(forms), 0.5, forms)
    return np.asarray(np.log(2.0 * np.where(chosen == 1, weight, 1.0 - weight)))


def split_evidence(
    answers: ArrayLike,
    reference: ArrayLike,
    symbols: ArrayLike,
    kind: AnswerKind,
    strata: Sequence[ArrayLike] = (),
) -> float:
    """Return the evidence of the split seal in a suspect's answers, in bits.

    The arguments are those of `split_gains`. ``strata``: divisions of the triggers, each an array
    [k] of whole numbers that does not depend on symbols or answers. A division has the product,
    over its parts, of the mean of all forms; E is the mean of these products over all divisions and
    the undivided triggers. Where an attack hits one kind of boundaries only, the others keep their
    say.

    >>> reference = np.tile([[0.2, 0.8], [0.7, 0.3]], (100, 1, 1))
    >>> symbols = np.arange(100) % 2
    >>> answers = np.stack([reference[:, 0], reference[range(100), symbols], reference[:, 1]], 1)
    >>> 90 < split_evidence(answers, reference, symbols, "scores") < 100
    True
    """
    gains = split_gains(answers, reference, symbols, kind)
    return mixed_bits(gains, strata)


def split_strata(
    base: ArrayLike, column: ArrayLike, width: ArrayLike, reference: ArrayLike, wide: ArrayLike
) -> tuple[AnyArray, ...]:
    """Return divisions of k triggers by what is known before symbols are, int64 [k] each.

    By quarters of how sure the unmarked model is at a and b, by quarters of how wide boundaries are
    against the range of their column in the base rows, and by whether training rows are inside:
    attacks hit these differently. ``base`` float64 [k, D]: rows; ``column`` and ``width`` [k]: the
    column of each boundary and b − a; ``reference`` as in `split_gains`; ``wide`` bool [k].

    >>> parts = split_strata(np.eye(4), range(4), [1, 2, 3, 4], np.zeros((4, 2, 1)), [0, 0, 1, 1])
    >>> [part.tolist() for part in parts]
    [[0, 1, 2, 3], [0, 1, 2, 3], [0, 0, 1, 1]]
    """
    rows, known = np.asarray(base, np.float64), np.asarray(reference, np.float64)
    if not len(rows):
        return ()
    filled = np.where(np.isnan(rows), np.inf, rows), np.where(np.isnan(rows), -np.inf, rows)
    span = np.maximum(filled[1].max(axis=0) - filled[0].min(axis=0), 1e-300)
    relative = np.asarray(width, np.float64) / span[np.asarray(column)]
    sure = relative
    if known.shape[2] > 1:
        top = np.sort(known, axis=2)
        sure = (top[..., -1] - top[..., -2]).min(axis=1)
    return _quarter(sure), _quarter(relative), np.asarray(wide).astype(np.int64)


def _quarter(values: Reals) -> AnyArray:
    """Return the number of the quarter that each value is in, from 0 to 3."""
    rank = np.argsort(np.argsort(values, kind="stable"), kind="stable")
    return np.asarray(4 * rank // len(rank))


def mixed_bits(gains: Reals, strata: Sequence[ArrayLike] = ()) -> float:
    """Return log₂ of the mixed e-value of gains [m, k]; see `split_evidence`.

    >>> round(mixed_bits(np.log([[2.0, 2.0], [1.0, 1.0]])), 3)
    1.322
    """
    if gains.shape[1] == 0:
        return 0.0
    products = []
    for stratum in (np.zeros(gains.shape[1]), *strata):
        part = np.asarray(stratum)
        products.append(sum(_log_mean(gains[:, part == p].sum(axis=1)) for p in np.unique(part)))
    return _log_mean(np.array(products)) / _LOG_2 + 0.0


def combine_seals(split_bits: float, leaf_bits: float) -> float:
    """Return the evidence of both seals together, in bits: that of (E_s·E_l + E_s + E_l) / 3.

    Their symbols are drawn apart from each other, so that the product is an e-value too.

    >>> combine_seals(0.0, 0.0), round(combine_seals(100.0, -10.0), 3)
    (0.0, 98.416)
    """
    logs = np.array([split_bits + leaf_bits, split_bits, leaf_bits]) * _LOG_2
    return _log_mean(logs) / _LOG_2 + 0.0


def _check(
    answers: ArrayLike, reference: ArrayLike, symbols: ArrayLike, kind: AnswerKind
) -> tuple[Reals, Reals, AnyArray]:
    try:
        said, known = np.asarray(answers, np.float64), np.asarray(reference, np.float64)
    except (TypeError, ValueError):
        raise InputError("The answers are not numbers.", hint="give scores or numbers.") from None
    chosen = np.asarray(symbols)
    k = len(chosen)
    if kind != "scores" and said.ndim == 2:
        said = said[..., np.newaxis]
    fits = said.shape[:2] == (k, 3) and known.shape[:2] == (k, 2) and known.ndim == said.ndim == 3
    if not fits or (kind != "labels" and said.shape[2] != known.shape[2]):
        raise InputError(
            f"Answers of shape {said.shape}, references of shape {known.shape} and {k} symbols do "
            "not fit together.",
            hint="give [k, 3, K], [k, 2, K] and [k].",
        )
    return said, known, chosen


def _label_u(said: Reals) -> Reals:
    """Return 1 where the middle has the label of b, 0 where that of a; ½ for any other."""
    first, middle, last = said[:, 0, 0], said[:, 1, 0], said[:, 2, 0]
    told = (first != last) & ~np.isnan(said[..., 0]).any(axis=1)
    u = np.where(middle == last, 1.0, np.where(middle == first, 0.0, 0.5))
    return np.where(told, u, 0.5)


def _number_forms(said: Reals, known: Reals, kind: AnswerKind) -> Reals:
    """Return w(1) of every form and trigger, [m, k]; NaN where nothing is told."""
    said = np.where(np.isinf(said), np.nan, said)
    ends = said[:, ::2]
    missing = np.isnan(ends).any(axis=2, keepdims=True)
    ends = np.where(missing, known, ends)
    middle = said[:, 1]
    if kind == "numbers":
        first, last = ends[:, 0], ends[:, 1]
        with np.errstate(over="ignore"):
            change = known[:, 1] - known[:, 0]
            distances = [(np.abs(middle - first).sum(axis=1), np.abs(middle - last).sum(axis=1))]
    else:
        plain = [(np.abs(middle - ends[:, i])).sum(axis=1) for i in (0, 1)]
        middle, first, last = (_logs(y) for y in (middle, ends[:, 0], ends[:, 1]))
        change = _logs(known[:, 1]) - _logs(known[:, 0])
        logs = [np.abs(middle - end).sum(axis=1) for end in (first, last)]
        distances = [(logs[0], logs[1]), (plain[0], plain[1])]
    # Answers of any size: what overflows says nothing, or counts as the farthest.
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        size = (change**2).sum(axis=1)
        begun = ((middle - first) * change).sum(axis=1) / size
        ended = ((last - middle) * change).sum(axis=1) / size
    begun, ended = (
        np.clip(np.where(np.isfinite(r), r, np.nan), -_FARTHEST, _FARTHEST) for r in (begun, ended)
    )
    distances.append((np.maximum(begun, 0.0), np.maximum(ended, 0.0)))
    forms = [_forms_of_u([_ratio(*pair) for pair in distances])]
    for share in STEP_SHARES:
        for width in STEP_WIDTHS:
            scale = width * share
            # log w(1) − log w(0)
            lead = (
                np.log1p((begun / scale) ** 2) - np.log1p(((begun - share) / scale) ** 2)
                - np.log1p((ended / scale) ** 2) + np.log1p(((ended - share) / scale) ** 2)
            )  # fmt: skip
            w = 1.0 / (1.0 + np.exp(-np.clip(lead, -30.0, 30.0)))
            forms.append(np.clip(w, _LEAST_WEIGHT, 1.0 - _LEAST_WEIGHT)[np.newaxis])
    told = ~np.isnan(middle).any(axis=1)
    return np.where(told, np.concatenate(forms), np.nan)


def _logs(scores: Reals) -> Reals:
    return np.asarray(np.log(np.clip(scores, SPLIT_SCORE_FLOOR, 1.0)))


def _ratio(first: Reals, second: Reals) -> Reals:
    """Return first / (first + second), ½ where both are 0."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        total = first + second
        ratio = np.where(total > 0.0, first / total, np.where(np.isnan(total), np.nan, 0.5))
    return np.where(np.isinf(total), 0.5, ratio)


def _forms_of_u(ratios: Sequence[Reals]) -> Reals:
    """Return w(1) of the soft and the hard form of each u [k] and each error, [m, k]."""
    forms = []
    for u in ratios:
        hard = np.where(np.isnan(u), np.nan, (np.sign(u - 0.5) + 1.0) / 2.0)
        forms += [error + (1.0 - 2.0 * error) * v for v in (u, hard) for error in ERRORS]
    return np.array(forms)


def _log_mean(logs: Reals) -> float:
    top = float(logs.max())
    return top + math.log(float(np.exp(logs - top).mean()))
