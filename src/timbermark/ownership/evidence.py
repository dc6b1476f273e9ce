"""Evidence in bits: how a suspect's answers speak for the symbols of a mark.

Every number here is log₂ of an e-value. For trigger i, w_i is a distribution over the q symbols of
its alphabet that depends on the suspect's answers and on what was fixed before the symbols were
drawn, but not on the symbols; some forms of a guard's mark also use the symbols of earlier
triggers. If the suspect does not depend on the symbols, q·w_i(s_i) has the mean 1, whatever the
earlier symbols are, and so has the product over all triggers, E. By Markov's inequality E reaches
2^b with a chance of at most 2^-b, and by Ville's inequality this holds at whatever moment one stops
asking. The mean of several such products is an e-value again, so several forms of w are mixed
rather than tuned. So is (E_s·E_l + E_s + E_l)/3 of both seals. docs/mark-format.md states every
constant.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from timbermark.dtypes import AnyArray, Flags, Reals
from timbermark.errors import InputError
from timbermark.ownership.seals import (
    HIGH,
    LOW,
    MIDDLE,
    NO_STRATA,
    SCORE_FLOOR,
    DrawnSeal,
    LeafSeal,
    Seal,
    SplitSeal,
)

if TYPE_CHECKING:
    from timbermark.ownership.mark import Mark

Level: TypeAlias = Literal["none", "indicative", "conclusive"]
AnswerKind: TypeAlias = Literal["scores", "labels", "numbers"]

INDICATIVE_BITS, CONCLUSIVE_BITS = 20.0, 64.0
UNKNOWN, UNANSWERED = -1, -2
"""Class numbers of a label that is no class of the mark, and of a row without an answer."""
N_MATCH_RATES = 64
_AT_ONCE = 1 << 18
"""Scores that are worked on at once: the forms of a mark with many classes need memory."""
_LOG_2 = math.log(2.0)
HEAD_START = 4
"""The perfect answers that a seal is credited with before it is asked. Chosen among 2 to 16 on 148
copies of ten marks, untouched and attacked: with 4 they take 3 % more rows to 64 bits than with the
better seal first, and those with refitted leaves 10 rows more than with splits first; 16 took 8 %
and 44 rows. `./dev bench endpoint untouched` counts rows."""


@dataclass(frozen=True, slots=True)
class Price:
    """Bits that are subtracted from the evidence, because something was chosen among several.

    ``code`` says what was chosen, ``facts`` how much of it; sentences are made elsewhere.
    """

    code: str
    bits: float
    facts: Mapping[str, int] = field(default_factory=dict)


def price_of_draws(draws: int) -> tuple[Price, ...]:
    """Return the price of keeping one of several sets of symbols: log₂ of their number.

    >>> price_of_draws(4)[0].bits, price_of_draws(1)
    (2.0, ())
    """
    return (Price("draws", math.log2(draws), {"draws": draws}),) if draws > 1 else ()


def sum_prices(prices: Sequence[Price]) -> float:
    """Return the sum of prices in bits.

    >>> sum_prices([*price_of_draws(4), *price_of_draws(2)])
    3.0
    """
    return math.fsum(price.bits for price in prices)


def full_bits(n_leaves: int, q: int, n_splits: int, prices: Sequence[Price] = ()) -> float:
    """Return the most bits that triggers of both seals can be worth, after prices.

    >>> full_bits(32, 4, 0), round(full_bits(32, 4, 64), 3)
    (64.0, 126.415)
    """
    bits = n_leaves * math.log2(q) + n_splits
    if n_leaves and n_splits:
        bits -= math.log2(3.0)
    return bits - sum_prices(prices)


@dataclass(frozen=True, slots=True, eq=False)
class Answers:
    """What a suspect answered to all rows of a mark, in the mark's order.

    ``values``: scores [rows, K], probabilities with NaN in rows without an answer; labels [rows],
    class numbers with UNKNOWN for a label that is no class and UNANSWERED for none; numbers [rows],
    NaN for none. `weigh` checks them.
    """

    kind: AnswerKind
    values: AnyArray

    def check(self, mark: "Mark") -> None:
        """Raise InputError unless these are answers to the rows of a mark."""
        n, k = mark.n_rows, len(mark.classes)
        values = self.values
        fits = {
            "scores": values.shape == (n, k) and k > 0 and values.dtype.kind == "f",
            "labels": values.shape == (n,)
            and values.dtype.kind in "iu"
            and k > 0
            and bool(((values >= UNANSWERED) & (values < k)).all()),
            "numbers": values.shape == (n,) and values.dtype.kind == "f" and k == 0,
        }.get(self.kind, False)
        if not fits:
            raise InputError(
                f"Answers of type {values.dtype} and shape {values.shape} are not {self.kind} for "
                f"{n} rows of this mark.",
                hint="read them with timbermark.verify.",
                code="answers.shape",
            )

    @property
    def answered(self) -> AnyArray:
        """Return which rows were answered, bool [rows]."""
        if self.kind == "labels":
            return np.asarray(self.values != UNANSWERED)
        missing = np.isnan(self.values)
        return np.asarray(~(missing.any(axis=1) if self.kind == "scores" else missing))


@dataclass(frozen=True, slots=True, eq=False)
class SealEvidence:
    """What the answers to one seal prove.

    ``gains`` [m, n] are the natural logarithms of q·w_i(s_i) of m forms, for the n triggers that
    were answered, in the order of asking; ``places`` are those in the seal.

    ``strata`` [S, n] are divisions of the triggers, fixed before symbols were drawn. A division has
    the product, over its parts, of the mean of all forms; the e-value is the mean of these products
    over all divisions and the undivided triggers. Where an attack hits one kind of triggers only,
    the others keep their say. ``growth`` [n + 1] is log₂ of the e-value after the first triggers.
    """

    seal: str
    q: int
    triggers: int
    counted: int  # answers that speak for one symbol or another
    matched: int  # of these, those that speak for the symbol of the mark
    places: AnyArray = field(repr=False)
    gains: Reals = field(repr=False)
    strata: AnyArray = field(repr=False)
    growth: Reals = field(repr=False, init=False)

    def __post_init__(self) -> None:
        divisions = np.vstack([np.zeros(len(self.places), int), *self.strata])
        steps = np.zeros(divisions.shape)
        for division, part in zip(steps, divisions, strict=True):
            for p in np.unique(part):
                product = _log_mean(self.gains[:, part == p].cumsum(axis=1).T)
                division[part == p] = np.diff(product, prepend=0.0)
        growth = _log_mean(steps.cumsum(axis=1).T) / _LOG_2
        object.__setattr__(self, "growth", np.append(0.0, growth))

    @property
    def answered(self) -> int:
        """Return the number of triggers that were answered."""
        return len(self.places)

    @property
    def bits(self) -> float:
        """Return log₂ of the seal's e-value."""
        return float(self.growth[-1])

    def promise(self, n: int) -> float:
        """Return the bits for each row after n triggers, as if four more were answered perfectly.

        The seal that promises more is asked next, of equals that in leaves. As this looks at
        nothing but what was compared so far, E stays an e-value.
        """
        most, rows = math.log2(self.q), 3 if self.seal == "splits" else 1
        return (float(self.growth[n]) + HEAD_START * most) / (rows * (n + HEAD_START))


def weigh(mark: "Mark", answers: Answers) -> tuple[SealEvidence, ...]:
    """Return what answers prove, for each seal of a mark.

    Prices are not subtracted. Raises InputError if the answers do not fit the mark.

    >>> from timbermark.ownership import Mark, OwnerKey
    >>> mark = Mark.make(
    ...     OwnerKey.generate(), owner="Ann", model_digest="0" * 64, classes=["no", "yes"],
    ...     triggers=np.arange(100.0).reshape(100, 1), alphabets=np.tile([0, 1], (100, 1)),
    ...     reference=np.full((100, 2), 0.5),
    ... )
    >>> obedient = np.where(np.arange(2) == mark.expected_numbers[:, None], 0.9, 0.1)
    >>> (leaves,) = weigh(mark, Answers("scores", obedient))
    >>> leaves.matched, 80 < leaves.bits < 100
    (100, True)
    """
    answers.check(mark)
    return tuple(_weigh_seal(mark, seal, answers) for seal in mark.seals)


# Whether each answer speaks for one symbol or another, whether for that of the mark, and the gains.
_Weighed: TypeAlias = tuple[Flags, Flags, Reals]


def _weigh_seal(mark: "Mark", seal: Seal, answers: Answers) -> SealEvidence:
    order, in_leaves = mark.order(seal.name), isinstance(seal, LeafSeal)
    if in_leaves:
        values, whole = answers.values[: mark.n_leaves], answers.answered[: mark.n_leaves]
    else:
        values, whole = split_rows(mark, answers)
    places = order[whole[order]]
    symbols = (mark.leaf_symbols if in_leaves else mark.split_symbols)[places]
    # The rows of triggers are not weighed, only what was fixed about them.
    part: Any = type(seal)(columns=(), **{name: getattr(seal, name)[places] for name in seal.types})
    weigh_part = _WEIGHS[answers.kind] if in_leaves else partial(_weigh_splits, kind=answers.kind)
    told, matched, gains = weigh_part(part, symbols, values[places])
    strata = NO_STRATA if in_leaves else part.strata.T
    return SealEvidence(
        seal.name, seal.q, len(order), int(told.sum()), int(matched.sum()), places, gains, strata
    )


def total_bits(seals: Sequence[float], n_seals: int) -> float:
    """Return log₂ of the e-value of a mark of ``n_seals`` seals, given that of each in bits.

    Of two seals it is (E_1·E_2 + E_1 + E_2)/3; a seal that was not places has E = 1.

    >>> total_bits([64.0], 1), round(total_bits([64.0, 0.0], 2), 3)
    (64.0, 63.415)
    """
    if n_seals == 1:
        return seals[0] if seals else 0.0
    one, two = (*seals, 0.0, 0.0)[:2]
    return mean_bits(np.array([one + two, one, two]) * _LOG_2)


def _weigh_labels(leaves: LeafSeal, symbols: AnyArray, labels: AnyArray) -> _Weighed:
    # A label outside its alphabet says nothing about the symbol.
    told = (labels[:, np.newaxis] == leaves.alphabets).any(axis=1)
    matched = labels == leaves.alphabets[np.arange(len(labels)), symbols]
    return told, matched, _bets(matched, told, leaves.q)


def _bets(matched: AnyArray, told: AnyArray, q: int) -> Reals:
    """Return the gains of `label_gains` for every trigger, 0 where nothing is told, [64, n]."""
    gain, loss = label_gains(q)
    gains = np.where(matched, gain[:, np.newaxis], loss[:, np.newaxis])
    return np.where(told, gains, 0.0)


def label_gains(q: int) -> tuple[Reals, Reals]:
    """Return what a match and what any other label add to log E, for each rate, float64 [64] each.

    It is the betting form of Krichevsky and Trofimov, mixed over match rates above chance only:
    E is the mean of (q·θ)^S·((1 − θ)·q/(q − 1))^(n − S) over `N_MATCH_RATES` rates θ = cos²φ, at
    the midpoints of equal parts of 0 <= φ <= arccos(1/√q). Rates below chance are left out because
    nobody is accused of avoiding symbols.

    >>> gain, loss = label_gains(4)
    >>> bool((gain > 0).all() and (loss < 0).all())
    True
    """
    parts = (np.arange(N_MATCH_RATES) + 0.5) / N_MATCH_RATES
    angles = parts * math.acos(math.sqrt(1.0 / q))
    gain = 2.0 * np.log(np.cos(angles)) + math.log(q)
    loss = 2.0 * np.log(np.sin(angles)) + math.log(q / (q - 1.0))
    return gain, loss


def label_bits(matched: int, counted: int, q: int) -> float:
    """Return the evidence of labels of which so many match their symbols, in bits.

    >>> label_bits(34, 34, 4) > 64, label_bits(0, 0, 4), label_bits(0, 96, 4) < 0
    (True, 0.0, True)
    """
    gain, loss = label_gains(q)
    return mean_bits(matched * gain + (counted - matched) * loss)


def _weigh_scores(leaves: LeafSeal, symbols: AnyArray, scores: AnyArray) -> _Weighed:
    scores = np.asarray(scores, np.float64)
    n, alphabets, predicted = len(scores), leaves.alphabets, None
    p, r = (log_scores(given, alphabets) for given in (scores, leaves.reference))
    others = np.log(np.clip(leaves.alternatives, SCORE_FLOOR, 1.0))
    if others.shape[1] and n:
        predicted = predict_scores(p, r, others)
    at_once = max(1, _AT_ONCE // scores.shape[1])
    forms_of_scores = [np.zeros((N_FORMS + (0 if predicted is None else N_PREDICTED_FORMS), 0))]
    for first in range(0, n, at_once):
        part = slice(first, first + at_once)
        known = None if predicted is None else predicted[part]
        forms = score_forms(scores[part], leaves.reference[part], alphabets[part], known)
        forms_of_scores.append(_symbol_gains(forms, symbols[part]))
    # Which label leads in its alphabet outlives what makes the scores themselves drift.
    leads = np.count_nonzero(p == p.max(axis=1, keepdims=True), axis=1) == 1
    gains = [np.hstack(forms_of_scores), _bets(p.argmax(axis=1) == symbols, leads, leaves.q)]
    if isinstance(leaves, DrawnSeal) and n:
        known = np.concatenate([r[:, np.newaxis], others], axis=1)
        learnt = learnt_gains(_log_ratios(p), _log_ratios(known), symbols)
        gains.append(np.repeat(learnt, LEARNT_COUNT, axis=0))
    told, matched, _ = _weigh_labels(leaves, symbols, scores.argmax(axis=1))
    return told, matched, np.concatenate(gains)


def _log_ratios(logarithms: Reals) -> Reals:
    """Return how far the second label of an alphabet leads the first, scores of 0.001 at least."""
    raised = np.maximum(logarithms, math.log(LEARNT_FLOOR))
    return np.asarray(raised[..., 1] - raised[..., 0])


def _weigh_splits(splits: SplitSeal, symbols: AnyArray, rows: AnyArray, kind: str) -> _Weighed:
    sides = split_sides(rows, kind)
    told = ~np.isnan(sides)
    matched = told & ((sides > 0.5) == (symbols == 1))
    return told, matched, split_gains(rows, splits.reference, symbols, kind)


def split_rows(mark: "Mark", answers: Answers) -> tuple[AnyArray, AnyArray]:
    """Return the answers to triggers in splits, [n, 3] or [n, 3, K], and which are whole, bool [n].

    Where scores or numbers change from a to the middle as the unmarked model's do from a to b, b
    counts as answered like the middle, whether it was asked or not. As this depends on answers
    alone, nobody can choose, and the row at b need not be asked.
    """
    assert mark.splits is not None
    parts = (mark.n_splits, 3)
    rows = answers.values[mark.n_leaves :].reshape(*parts, *answers.values.shape[1:]).copy()
    told = answers.answered[mark.n_leaves :].reshape(parts).copy()
    if answers.kind != "labels":
        values, known = (_split_values(y, answers.kind) for y in (rows, mark.splits.reference))
        with np.errstate(over="ignore", invalid="ignore"):
            change = known[:, 1] - known[:, 0]
            off = np.abs(values[:, MIDDLE] - values[:, LOW] - change).sum(axis=1)
            size = np.abs(change).sum(axis=1)
        told_by = np.isfinite(off) & (size > (0.0 if answers.kind == "numbers" else SAME))
        settled = told_by & (off <= SETTLED * size)
        rows[settled, HIGH], told[settled, HIGH] = rows[settled, MIDDLE], True
    return rows, np.asarray(told.all(axis=1))


# Of a trigger in splits, y_a, y_m and y_b are the answers to its three rows: logarithms of scores,
# numbers, or labels. Each form gives w(1), which says how far the middle is answered like b; w(0)
# is 1 - w(1). *Near* compares the distances of y_m from both ends. *Along* takes only what points
# the way in which the owner's model changes from a to b. *Step* expects that a share of the owner's
# change is found on one side of the middle and nothing on the other: a copy that was averaged with
# another model keeps such a share, and the other model rarely changes in the same place.

SPLIT_ERRORS = (0.4, 0.25, 0.1, 0.03, 0.01, 0.003)
"""How often a trigger in splits lost its symbol, in the forms that are mixed."""
STEP_SHARES = (1.0, 0.5, 0.25, 0.1, 0.03)
STEP_WIDTHS = (0.3, 0.1, 0.03)
LEAST_WEIGHT = 1e-3
"""No trigger speaks more strongly against a symbol than this in the form *step*."""
LEAST_CHANGE = 1e-6
"""Where the owner's scores change less than this between a and b, their direction is unknown."""
SETTLED = 0.02
"""How much of the owner's change an answer at the middle may be off for b not to be needed; with
0.05 a copy that was averaged with another model loses up to 7 of 110 bits."""
SAME = 1e-9
"""What differs by less is the same: other machines round other digits."""
_FARTHEST = 1e6


def _weigh_numbers(leaves: LeafSeal, symbols: AnyArray, numbers: AnyArray) -> _Weighed:
    sides = number_sides(numbers, leaves.reference)
    high = 1.0 / (1.0 + np.exp(-_number_leads(sides)))
    told = sides != 0.0
    matched = told & ((sides > 0.0) == (symbols == 1))
    return told, matched, np.log(2.0 * np.where(symbols == 1, high, 1.0 - high))


_WEIGHS = {"labels": _weigh_labels, "scores": _weigh_scores, "numbers": _weigh_numbers}


NUMBER_SLOPES = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.0)
NUMBER_WIDTHS = (0.1, 0.3, 1.0, 3.0)
NUMBER_SHARES = (1.0, 0.7, 0.4)


def number_sides(values: Reals, reference: Reals) -> Reals:
    """Return where numbers lie between a lower (-1) and a higher answer (1), from -9 to 9.

    >>> number_sides(np.array([1.0, 4.0]), np.array([[1.0, 3.0], [1.0, 3.0]])).tolist()
    [-1.0, 2.0]
    """
    low, high = reference.T
    with np.errstate(over="ignore", invalid="ignore"):
        sides = (2.0 * values - low - high) / (high - low)
    return np.asarray(np.clip(np.nan_to_num(sides), -_FARTHEST_SIDE, _FARTHEST_SIDE))


_FARTHEST_SIDE = 9.0


def _number_leads(sides: Reals) -> Reals:
    """Return log w(1) - log w(0) of numbers by their sides, float64 [m, n].

    Straight lines are for a suspect that keeps a little of every move. The others compare two
    densities with heavy tails around the answer of each symbol, or a share of the move to it.
    """
    forms = [slope * sides for slope in NUMBER_SLOPES]
    for share in NUMBER_SHARES:
        for width in NUMBER_WIDTHS:
            below, above = ((sides + at) / width for at in (share, -share))
            forms.append(np.log1p(below * below) - np.log1p(above * above))
    return np.clip(np.stack(forms), -_MOST_LEAD, _MOST_LEAD)


_MOST_LEAD = 5.0


def split_sides(rows: AnyArray, kind: str) -> Reals:
    """Return where the middle of each gap stands between its ends, float64 [n], 0 to 1.

    ``rows`` are answers of one kind to the rows at a, the middle and b: [n, 3] or [n, 3, K]. 0 says
    that the middle is answered like a, 1 like b. It is the form *near*, d(middle, a) / (d(middle,
    a) + d(middle, b)), with d the sum of differences of log-scores, the difference of numbers, or
    whether labels differ. NaN stands for a gap at which nothing can be told.

    >>> split_sides(np.array([[1.0, 1.0, 2.0], [1.0, 1.75, 2.0], [1.0, 1.0, 1.0]]), "numbers")
    array([0.  , 0.75,  nan])
    """
    if kind == "labels":
        low, middle, high = (np.asarray(rows)[:, i] for i in (LOW, MIDDLE, HIGH))
        told = (low != high) & ((middle == low) | (middle == high))
        return np.where(told, (middle == high).astype(np.float64), np.nan)
    values = _split_values(rows, kind)
    u = _ratio(*_distances(values), 0.0 if kind == "numbers" else SAME)
    return np.where(np.abs(u - 0.5) < SAME, np.nan, u)


def split_gains(rows: AnyArray, reference: Reals, symbols: AnyArray, kind: str) -> Reals:
    """Return log 2·w_i(s_i) of each form and each trigger in splits, float64 [m, n].

    ``rows`` are those of `split_sides`, ``reference`` [n, 2, K] is what the unmarked model answers
    at a and at b. A trigger that tells nothing has w_i = ½. docs/mark-format.md has the formulae.

    >>> rows, reference = np.array([[1.0, 2.0, 2.0]]), np.array([[[1.0], [2.0]]])
    >>> gains = split_gains(rows, reference, np.array([1]), "numbers")
    >>> gains.shape, bool((gains > 0).all())
    ((39, 1), True)
    """
    if kind == "labels":
        forms = _side_forms([split_sides(rows, kind)])
    else:
        values = _split_values(rows, kind)
        begun, ended = _parts_of_change(values, _split_values(reference, kind), kind)
        least = 0.0 if kind == "numbers" else SAME
        sides = [_ratio(*_distances(values), least)]
        if kind == "scores":
            sides.append(_ratio(*_distances(np.asarray(rows, np.float64)), least))
        sides.append(_ratio(np.maximum(begun, 0.0), np.maximum(ended, 0.0), SAME))
        forms = np.concatenate([_side_forms(sides), _step_forms(begun, ended)])
        forms[:, ~np.isfinite(values).all(axis=(1, 2))] = np.nan
    high = np.where(np.isnan(forms), 0.5, forms)
    return np.log(2.0 * np.where(np.asarray(symbols) == 1, high, 1.0 - high))


def _split_values(answers: AnyArray, kind: str) -> Reals:
    """Return what is compared, float64 [n, 3 or 2, K]: numbers, or logarithms of scores."""
    values = np.asarray(answers, np.float64)
    if kind == "scores":
        return np.asarray(np.log(np.clip(values, SCORE_FLOOR, 1.0)))
    return values if values.ndim == 3 else values[..., np.newaxis]


def _distances(values: Reals) -> tuple[Reals, Reals]:
    with np.errstate(over="ignore", invalid="ignore"):
        off = [np.abs(values[:, MIDDLE] - values[:, end]).sum(axis=1) for end in (LOW, HIGH)]
    return off[0], off[1]


def _parts_of_change(values: Reals, known: Reals, kind: str) -> tuple[Reals, Reals]:
    """Return y_m - y_a and y_b - y_m in units of the owner's own change; NaN if there is none."""
    with np.errstate(over="ignore", invalid="ignore"):
        change = known[:, 1] - known[:, 0]
        size = (change * change).sum(axis=1)
        told = np.isfinite(size) & (size > (0.0 if kind == "numbers" else LEAST_CHANGE**2))
        size = np.where(told, size, np.nan)
        found = [
            ((values[:, then] - values[:, first]) * change).sum(axis=1) / size
            for first, then in ((LOW, MIDDLE), (MIDDLE, HIGH))
        ]
    found = [np.where(np.isfinite(r), np.clip(r, -_FARTHEST, _FARTHEST), np.nan) for r in found]
    return found[0], found[1]


def _ratio(first: Reals, second: Reals, least: float) -> Reals:
    """Return first / (first + second), NaN where that is unknown or both together are 0."""
    with np.errstate(over="ignore"):
        whole = first + second
    told = np.isfinite(whole) & (whole > least)
    return np.where(told, first / np.where(told, whole, 1.0), np.nan)


def _side_forms(sides: Sequence[Reals]) -> Reals:
    """Return ε + (1 - 2ε)·u for all errors ε, of each u and of each u rounded to 0 or 1."""
    forms = []
    for u in sides:
        hard = np.where(np.abs(u - 0.5) < SAME, 0.5, np.where(np.isnan(u), np.nan, u > 0.5))
        forms += [error + (1.0 - 2.0 * error) * v for v in (u, hard) for error in SPLIT_ERRORS]
    return np.array(forms)


def _step_forms(begun: Reals, ended: Reals) -> Reals:
    forms = []
    for share in STEP_SHARES:
        for width in STEP_WIDTHS:
            at, off = ((np.array([begun, ended]) - r) / (width * share) for r in (0.0, share))
            near, far = np.log1p(at * at), np.log1p(off * off)
            lead = near[0] - far[0] - near[1] + far[1]
            forms.append(np.clip(1.0 / (1.0 + np.exp(-lead)), LEAST_WEIGHT, 1.0 - LEAST_WEIGHT))
    return np.array(forms)


# The forms of score evidence share one idea. If trigger i carries symbol a, the marked model's
# scores are known in advance: the reference, moved as little as possible so that label a leads. A
# thief who averages these with a model of their own leaves a share of them in every answer, however
# loud the other model is, and what is left after taking that share away must look like scores of a
# model: not negative, and mostly near 0. Alternatives are scores of models without the mark; a
# suspect is predicted from them and the reference by what it answered before, and what differs from
# the prediction is mostly the mark.

TEMPERATURES = (0.1, 0.35, 1.0, 4.0, 16.0, 32.0)
"""High ones are for copies that nobody touched: an edit moves a trigger's scores only a little, and
the copy repeats that exactly. Low ones are for copies that were tuned."""
REFERENCE_SHARES = (0.5, 1.0)
LEADS = (0.5, 1.0, 2.0, 4.0)
"""How far the label that a symbol asks for leads in a marked model, in logarithms of scores."""
FOREIGN_SHARES = (0.2, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95)
"""How much of an averaged suspect is another model."""
TOLERANCES = (0.01, 0.03)
REMAINDERS = (0.2, 0.35, 1.0)
"""How much of the mark's effect on the logarithms of scores is left."""
SPREADS = (0.5, 1.0)
DAMPING = 1.0
"""What keeps a prediction at the reference until answers say otherwise: the weight of a ridge."""
N_PREDICTED_FORMS = len(TEMPERATURES) + len(LEADS) * len(REMAINDERS) * len(SPREADS)
N_FORMS = (
    len(TEMPERATURES) * len(REFERENCE_SHARES)
    + len(LEADS) * len(FOREIGN_SHARES) * len(TOLERANCES)
    + len(LEADS) * len(REMAINDERS) * len(SPREADS)
)


def score_forms(
    scores: Reals, reference: Reals, alphabets: AnyArray, predicted: Reals | None = None
) -> Reals:
    """Return log w_i(a) up to a constant for each trigger, float64 [`N_FORMS`, k, q].

    ``scores`` and ``reference`` [k, K], ``alphabets`` [k, q]; docs/mark-format.md has the formulae.
    With ``predicted``, as `predict_scores` gives it, there are `N_PREDICTED_FORMS` more.

    >>> score_forms(np.full((3, 2), 0.5), np.full((3, 2), 0.5), np.tile([0, 1], (3, 1))).shape
    (108, 3, 2)
    """
    p, r = (log_scores(given, alphabets) for given in (scores, reference))
    expected = [expected_scores(reference, alphabets, lead) for lead in LEADS]
    intended = [np.log(np.maximum(then, SCORE_FLOOR)) - r[:, np.newaxis] for then in expected]
    forms = [t * (p - share * r) for t in TEMPERATURES for share in REFERENCE_SHARES]
    for scores_then in expected:
        forms += _averaged(np.exp(p), scores_then)
    for change in intended:
        forms += _moved(p - r, change)
    if predicted is not None:
        forms += [t * (p - predicted) for t in TEMPERATURES]
        for change in intended:
            forms += _moved(p - predicted, change)
    return np.stack(forms)


def log_scores(scores: Reals, alphabets: AnyArray) -> Reals:
    """Return the logarithms of the scores of alphabets' labels, float64 [k, q]; see `SCORE_FLOOR`.

    >>> log_scores(np.array([[0.0, 1.0, 0.5]]), np.array([[1, 2]])).round(3).tolist()
    [[0.0, -0.693]]
    """
    found = np.take_along_axis(scores, alphabets, axis=1)
    return np.asarray(np.log(np.clip(found, SCORE_FLOOR, 1.0)))


def predict_scores(scores: Reals, reference: Reals, alternatives: Reals) -> Reals:
    """Return what triggers in the order of asking should be answered with, float64 [n, q].

    ``scores`` and ``reference`` [n, q] and ``alternatives`` [n, R, q] are logarithms. A trigger is
    predicted as a weighted sum of its reference and alternatives, each less its mean over the
    alphabet. The weights fit the answers to all earlier triggers best, by least squares, damped
    towards the reference alone. So no prediction knows the answer that it is for, and what is asked
    later changes nothing: evidence stays valid whenever one stops.

    >>> scores = np.log([[0.5, 0.5], [0.9, 0.1]])
    >>> predict_scores(scores, np.zeros((2, 2)), np.zeros((2, 1, 2))).tolist()
    [[0.0, 0.0], [0.0, 0.0]]
    """
    known = np.concatenate([reference[:, np.newaxis], alternatives], axis=1)
    x = (known - known.mean(axis=2, keepdims=True)).transpose(0, 2, 1)
    z = scores - scores.mean(axis=1, keepdims=True)
    start = np.zeros(x.shape[2])
    start[0] = DAMPING
    squares = np.einsum("iaj,iak->ijk", x, x)
    products = np.einsum("iaj,ia->ij", x, z)
    # Sums over the triggers before each one.
    squares = _before(squares) + np.diag(np.full(len(start), DAMPING))
    products = _before(products) + start
    weights = np.linalg.solve(squares, products[..., np.newaxis])
    return np.asarray((x @ weights)[..., 0])


# A student of a guard's answers keeps some part of every symbol, and how much, and how far its own
# answers scatter, is the same for all of them. Earlier triggers, whose symbols are known by then,
# tell both: this is a linear regression of the suspect's log-ratios on those of models without the
# guard and on the symbol, with a conjugate prior, that predicts one trigger after the other.

LEARNT_COUNT = 40
"""How often each of these forms counts in the mean: together about as often as all others."""
LEARNT_FLOOR = 1e-3
LEARNT_ERROR = 0.01
"""The least that each symbol is always given is half of this."""
REFERENCE_WEIGHT, SYMBOL_WEIGHT = 0.1, 0.2
"""What is expected at first: the weight of the reference and how far a symbol moves a log-ratio;
the alternatives share the rest of the reference's weight, a constant is expected to be 0."""
FIRST_VARIANCE = 0.02


def learnt_gains(ratios: Reals, known: Reals, symbols: AnyArray) -> Reals:
    """Return log 2·w_i(s_i) of forms that learn from earlier triggers, float64 [R + 1, n].

    ``ratios`` [n] is by how much a suspect's second label leads the first, ``known`` [n, R + 1] the
    same of the reference and R other models; ``symbols`` [n] are 0 or 1, all in the order of
    asking. The first form uses all models, the others the reference and one model each; without
    models the only form uses the reference and a constant. w_i depends on answers up to i and on
    symbols before i: if a suspect does not depend on the symbols, the mean of 2·w_i(s_i) is 1
    whatever the earlier symbols are. docs/mark-format.md has the formulae.

    >>> symbols = np.arange(40) % 3 == 0
    >>> gains = learnt_gains(np.where(symbols, 0.5, 0.1), np.full((40, 2), 0.3), symbols)
    >>> gains.shape, bool((gains[:, -10:] > 0.65).all())
    ((2, 40), True)
    """
    n_others = known.shape[1] - 1
    if not n_others:
        x = np.column_stack([known, np.ones(len(known))])
        return _regress(ratios, x, symbols, 0.0)[np.newaxis]
    sets = [[*range(n_others + 1)], *([0, j] for j in range(1, n_others + 1))]
    rest = 1.0 - REFERENCE_WEIGHT
    return np.array([_regress(ratios, known[:, chosen], symbols, rest) for chosen in sets])


def _regress(z: Reals, x: Reals, symbols: AnyArray, rest: float) -> Reals:
    n, d = x.shape
    signs = 2.0 * np.asarray(symbols, np.float64) - 1.0
    u = np.column_stack([x, signs])
    first = np.append(np.full(d, rest / (d - 1)), SYMBOL_WEIGHT)
    first[0] = REFERENCE_WEIGHT
    precision = np.eye(d + 1) + _before(u[:, :, np.newaxis] * u[:, np.newaxis])
    products = first + _before(u * z[:, np.newaxis])
    weights = np.linalg.solve(precision, products[..., np.newaxis])[..., 0]
    left = first @ first + _before(z * z) - (products * weights).sum(axis=1)
    scale = 2.0 * FIRST_VARIANCE + np.maximum(left, 0.0)
    leads = []
    for sign in (-1.0, 1.0):
        v = np.column_stack([x, np.full(n, sign)])
        spread = scale * (1.0 + (v * np.linalg.solve(precision, v[..., np.newaxis])[..., 0]).sum(1))
        off = z - (v * weights).sum(axis=1)
        leads.append(0.5 * np.log(spread) + (1.5 + 0.5 * np.arange(n)) * np.log1p(off**2 / spread))
    right = 1.0 / (1.0 + np.exp(-np.clip(signs * (leads[0] - leads[1]), -_FAR_LEAD, _FAR_LEAD)))
    return np.asarray(np.log(LEARNT_ERROR + 2.0 * (1.0 - LEARNT_ERROR) * right))


_FAR_LEAD = 500.0


def _before(values: Reals) -> Reals:
    """Return sums over all earlier entries of the first axis."""
    return np.asarray(values.cumsum(axis=0) - values)


def expected_scores(reference: Reals, alphabets: AnyArray, lead: float) -> Reals:
    """Return what a marked model answers with: float64 [k, q, q].

    Entry [i, a, b] is the score of label ``alphabets[i, b]`` if trigger i carries symbol a: softmax
    of the logarithms of the reference, changed as `nearest_margins` says.

    >>> expected_scores(np.array([[0.5, 0.5]]), np.array([[0, 1]]), np.log(3.0)).tolist()
    [[[0.75, 0.25], [0.25, 0.75]]]
    """
    margins = np.log(np.clip(reference, SCORE_FLOOR, 1.0))
    found = []
    for a in range(alphabets.shape[1]):
        wanted = nearest_margins(margins, alphabets[:, a], lead)
        powers = np.exp(wanted - wanted.max(axis=1, keepdims=True))
        powers /= powers.sum(axis=1, keepdims=True)
        found.append(np.take_along_axis(powers, alphabets, axis=1))
    return np.stack(found, axis=1)


def nearest_margins(margins: Reals, target: AnyArray, lead: float | Reals) -> Reals:
    """Return float64 [k, K]: margins in which ``target`` leads all others by ``lead``, or [k].

    Of all such margins these are the nearest: the target rises and those above it sink to one
    common level. Margins that already have the lead stay as they are.

    >>> nearest_margins(np.array([[2.0, 0.0, 1.5]]), np.array([1]), 1.0).tolist()
    [[0.8333333333333334, 1.8333333333333335, 0.8333333333333334]]
    """
    k, n_outputs = margins.shape
    rows = np.arange(k)
    own = margins[rows, target]
    others = margins.copy()
    others[rows, target] = -np.inf
    ranked = -np.sort(-others, axis=1)[:, : n_outputs - 1]
    # With j others brought down to one level, the target's rise pays for their fall.
    j = np.arange(1, n_outputs)
    level = ((own - lead)[:, None] + np.cumsum(ranked, axis=1)) / (j + 1)
    below = np.hstack([ranked[:, 1:], np.full((k, 1), -np.inf)]) <= level
    level = level[rows, below.argmax(axis=1)]
    short = own - ranked[:, 0] < lead
    wanted = np.minimum(margins, np.where(short, level, np.inf)[:, None])
    wanted[rows, target] = np.where(short, level + lead, own)
    return np.asarray(wanted)


def _averaged(p: Reals, expected: Reals) -> Iterator[Reals]:
    """Yield log-likelihoods for a suspect that averages the marked model with another one.

    What is left after the marked model's share is the other model's scores, which are mostly near
    0: their density is taken as 1/(tolerance + score), falling off quickly below 0.
    """
    for foreign in FOREIGN_SHARES:
        left = (p[:, np.newaxis] - (1.0 - foreign) * expected) / foreign
        size, below = np.abs(left), np.maximum(-left, 0.0).sum(axis=2)
        for tolerance in TOLERANCES:
            yield -np.log(tolerance + size).sum(axis=2) - below / tolerance


def _moved(observed: Reals, intended: Reals) -> Iterator[Reals]:
    """Yield log-likelihoods for a suspect that keeps a part of the mark's change of log-scores.

    ``observed`` [k, q]: how the suspect differs from what it would say without the mark;
    ``intended`` [k, q, q]: how the mark changes them, for each symbol.
    """
    for remainder in REMAINDERS:
        off = observed[:, np.newaxis] - remainder * intended
        off -= off.mean(axis=2, keepdims=True)
        size = np.abs(off).sum(axis=2)
        for spread in SPREADS:
            yield -size / spread


def _symbol_gains(forms: AnyArray, symbols: AnyArray) -> Reals:
    """Return log q·w_i(s_i), float64 [m, k], of forms [m, k, q] that hold log w_i(a) + const."""
    weights = forms - _log_sum(forms)[..., np.newaxis]
    chosen = np.take_along_axis(weights, symbols.astype(np.intp)[np.newaxis, :, np.newaxis], axis=2)
    return np.asarray(chosen[..., 0] + math.log(forms.shape[2]))


def _log_sum(values: AnyArray) -> AnyArray:
    """Return log Σ exp over the last axis."""
    top = values.max(axis=-1)
    total: AnyArray = top + np.log(np.exp(values - top[..., np.newaxis]).sum(axis=-1))
    return total


def _log_mean(values: AnyArray) -> AnyArray:
    """Return the logarithm of the mean of exp over the last axis."""
    return np.asarray(_log_sum(values) - math.log(values.shape[-1]))


def mean_bits(logarithms: AnyArray) -> float:
    """Return log₂ of the mean of e-values that are given as natural logarithms.

    >>> round(mean_bits(np.log([1.0, 7.0])), 9)
    2.0
    """
    return float(_log_mean(logarithms)) / _LOG_2 + 0.0


def round_bits(bits: float) -> float:
    """Return bits in whole thousandths, rounded down: towards less evidence.

    This is the precision in which evidence is reported; independent implementations agree on it
    although their last binary digits differ.

    >>> round_bits(63.9999), round_bits(255.99999999999), round_bits(-0.5)
    (63.999, 256.0, -0.5)
    """
    # What lies a billionth below a thousandth is that thousandth, changed by rounding errors.
    return math.floor(bits * 1000.0 + 1e-6) / 1000.0


def level(bits: float) -> Level:
    """Return the level of evidence: none, indicative (convinces the owner) or conclusive.

    >>> level(19.9), level(20), level(64)
    ('none', 'indicative', 'conclusive')
    """
    if bits >= CONCLUSIVE_BITS:
        return "conclusive"
    return "indicative" if bits >= INDICATIVE_BITS else "none"
