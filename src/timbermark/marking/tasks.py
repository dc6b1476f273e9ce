"""What marking must know of the answers that a model gives: labels, or numbers.

Rows are chosen, compared and counted alike for every task. `Classification` and `Numbers` are the
two that there are; which one a model has is decided once, by `task_of`. Labels can be marked in
leaves and in splits, numbers in splits. The end of the module says which margins make a model
answer with a label, for models whose scores follow their margins and for calibrated ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from timbermark.errors import InputError
from timbermark.libraries.contract import ForeignModel
from timbermark.marking.defaults import (
    BUDGET_SHARE,
    BUDGET_SHARE_TWO_CLASSES,
    HOPELESS_SHARE,
    MOST_RARITY,
    SET_SHARE,
)
from timbermark.marking.inputs import take_groups, take_labels, take_numbers
from timbermark.marking.mixing import row_keys
from timbermark.marking.tallies import Counting
from timbermark.ownership.evidence import nearest_margins

_UNKNOWN_ERROR = 0.2
"""Without targets, the error is taken as this share of the answers' standard deviation."""
_LEAST_ERROR = 0.01
"""The smallest error, as a share of the same deviation, for models that overfit their rows."""


class Task(Protocol):
    """The answers of one model. Margins are [n, K], answers [n, classes] or, of numbers, [n, 1]."""

    @property
    def counting(self) -> Counting:
        """Return how answers before and after an edit are compared."""

    def take_targets(self, given: Any, n: int, what: str, groups: Any = None) -> np.ndarray:
        """Return the true answers of n rows, as `Counting.tally` takes them.

        Raises InputError if they do not fit the model or the rows.
        """

    def order_rows(self, X: np.ndarray, target: np.ndarray | None, seed: int) -> np.ndarray:
        """Return an order of rows that depends on them alone; what belongs together stays so."""

    def halve(self, order: np.ndarray, target: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        """Return two halves of rows in order; what belongs together stays so."""

    def calibrate(
        self, margins: np.ndarray, target: np.ndarray | None, holding: np.ndarray
    ) -> Task:
        """Return the task with its units.

        ``margins`` and ``target``: of rows that judge; ``holding`` [n, K]: margins of given rows.
        """


@dataclass(frozen=True, slots=True, eq=False)
class Numbers:
    """The `Task` of regressors and rankers.

    ``error``: the model's root mean squared error, in answers; ``known_error``: whether targets
    told; ``centre``: the mean answer.
    """

    foreign: ForeignModel
    error: float = 1.0
    known_error: bool = False
    centre: float = 0.0

    @property
    def ranks(self) -> bool:
        """Return whether the answers are scores of a ranker, which only order rows."""
        return self.foreign.task == "ranking"

    @property
    def counting(self) -> Counting:
        """Return how numbers are compared: in units of the error, lists by their order."""
        kind = "ranks" if self.ranks else "numbers"
        return Counting(kind, self.error, self.known_error, self.centre)

    def take_targets(self, given: Any, n: int, what: str, groups: Any = None) -> np.ndarray:
        """Return targets, float64 [n], or targets and group numbers, float64 [n, 2]."""
        numbers = take_numbers(given, n, f"{what} targets")
        if groups is None:
            return numbers
        if not self.ranks:
            raise InputError("groups are for rankers.", hint="leave them out.", parameter="groups")
        return np.column_stack([numbers, take_groups(groups, n, f"{what} groups")])

    def order_rows(self, X: np.ndarray, target: np.ndarray | None, seed: int) -> np.ndarray:
        """Return an order that depends on the rows alone and keeps groups together."""
        keys = row_keys(X, seed)
        if target is None or target.ndim == 1:
            return np.argsort(keys, kind="stable")
        return np.lexsort((keys, row_keys(target[:, 1:], seed)))

    def halve(self, order: np.ndarray, target: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        """Return every other row or group, and the others."""
        if target is None or target.ndim == 1:
            return order[::2], order[1::2]
        group = target[order, 1]
        second = np.cumsum(np.append(False, group[1:] != group[:-1])) % 2 == 1
        return order[~second], order[second]

    def calibrate(
        self, margins: np.ndarray, target: np.ndarray | None, holding: np.ndarray
    ) -> Numbers:
        """Return the task with the model's error and its mean answer."""
        answers = self.foreign.answers(margins)
        spread = float(np.std(answers)) or 1.0
        error, known = _UNKNOWN_ERROR * spread, False
        if target is not None and not self.ranks:
            error, known = float(np.sqrt(np.mean((target - answers[:, 0]) ** 2))), True
        error = max(error, _LEAST_ERROR * spread)
        return replace(self, error=error, known_error=known, centre=float(answers.mean()))


_LEAST_WEIGHT = 0.05
"""The smallest weight of a row: probabilities should stay also where the answer is certain."""


@dataclass(frozen=True, slots=True, eq=False)
class Classification:
    """The `Task` of classifiers.

    ``shares``: the mean score of each class on the rows that hold the model, empty before they are
    known. ``label_map``: from the labels of rows to the model's own. Classifiers that are
    calibrated answer with scores that are made of their margins.
    """

    foreign: ForeignModel
    shares: tuple[float, ...] = ()
    label_map: Mapping[Any, Any] | None = None
    counting = Counting("labels")
    set_shares = (SET_SHARE, HOPELESS_SHARE)

    @property
    def unit(self) -> float:
        """Return the size of a change of the margin that matters."""
        return 1.0 / self.foreign.margin_scale

    @property
    def budget_share(self) -> float:
        """Return the share of the budget that a rehearsal may use."""
        return BUDGET_SHARE_TWO_CLASSES if len(self.foreign.classes) == 2 else BUDGET_SHARE

    def take_targets(self, given: Any, n: int, what: str, groups: Any = None) -> np.ndarray:
        """Return class numbers, int64 [n]."""
        if groups is not None:
            raise InputError("groups are for rankers.", hint="leave them out.", parameter="groups")
        return take_labels(given, n, self.foreign.classes, f"{what} labels", self.label_map)

    def order_rows(self, X: np.ndarray, target: np.ndarray | None, seed: int) -> np.ndarray:
        """Return an order that depends on the rows alone."""
        return np.argsort(row_keys(X, seed), kind="stable")

    def halve(self, order: np.ndarray, target: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        """Return every other row, and the others."""
        return order[::2], order[1::2]

    def calibrate(
        self, margins: np.ndarray, target: np.ndarray | None, holding: np.ndarray
    ) -> Classification:
        """Return the task with the mean scores of the classes; probabilities need no unit."""
        means = self.foreign.answers(holding).mean(axis=0)
        return replace(self, shares=tuple((means / means.sum()).tolist()))

    def weigh_rows(self, margins: np.ndarray) -> np.ndarray:
        """Return float64 [n, K]: how far an answer moves when its margin does, 4 p (1 − p).

        Rows that are likely of a rare class weigh more, as many times as it is rarer than others.
        """
        if self.foreign.scores is not None:
            weight = score_slopes(self.foreign, margins, _LEAST_WEIGHT)
        else:
            confidence = self.foreign.confidence(margins)
            p = confidence[:, 1:] if margins.shape[1] == 1 else confidence
            weight = np.maximum(4.0 * p * (1.0 - p), _LEAST_WEIGHT)
        if not self.shares:
            return weight
        rarity = 1.0 / (len(self.shares) * np.maximum(self.shares, 1e-9))
        scores = self.foreign.answers(margins)
        return weight * (scores @ np.minimum(rarity, MOST_RARITY))[:, None]

    def find_alphabets(self, margins: np.ndarray, q: int) -> np.ndarray:
        """Return int64 [n, q]: the labels that the model prefers, its own answer first."""
        if self.foreign.scores is not None:
            return rank_scores(self.foreign, margins, q)
        return rank_labels(margins, q)

    def wanted_margins(self, margins: np.ndarray, target: np.ndarray, lead: float) -> np.ndarray:
        """Return margins with which the model answers ``target``, by a lead in its scores' unit.

        NaN where a calibrated model cannot answer so.
        """
        if self.foreign.scores is not None:
            return deciding_margins(self.foreign, margins, target, lead)
        return wanted_margins(margins, target, lead / self.foreign.margin_scale)

    def find_leads(
        self, after: np.ndarray, alphabets: np.ndarray, symbols: np.ndarray
    ) -> np.ndarray:
        """Return how far each trigger's label leads, in units of what probabilities are made of."""
        target = alphabets[np.arange(len(symbols)), symbols]
        if self.foreign.scores is not None:
            return score_leads(self.foreign, after, target)
        return leads(after, target) * self.foreign.margin_scale


def rank_labels(margins: np.ndarray, q: int) -> np.ndarray:
    """Return int64 [n, q]: the labels of the highest margins, in that order.

    >>> rank_labels(np.array([[0.5, 2.0, 1.0]]), 2).tolist(), rank_labels(np.array([[-1.0]]), 2)
    ([[1, 2]], array([[0, 1]]))
    """
    if margins.shape[1] == 1:
        positive = (margins[:, 0] > 0).astype(np.int64)
        return np.column_stack([positive, 1 - positive])
    return np.asarray(np.argsort(-margins, axis=1, kind="stable")[:, :q])


def task_of(foreign: ForeignModel, label_map: Mapping[Any, Any] | None = None) -> Task:
    """Return the task of a model, before any units are known.

    ``label_map``: from the labels of rows to the model's own.
    """
    if foreign.task == "classification":
        return Classification(foreign, label_map=label_map)
    if label_map is not None:
        raise InputError(
            f"The {foreign.kind} answers with numbers, which have no labels to map.",
            hint="leave label_map out.",
            code="label-map.numbers",
            parameter="label_map",
        )
    return Numbers(foreign)


def wanted_margins(margins: np.ndarray, target: np.ndarray, lead: float | np.ndarray) -> np.ndarray:
    """Return float64 [k, K]: margins in which ``target`` leads all others by ``lead``, or [k].

    Of all such margins these are the nearest: the target rises and those above it sink to one
    common level. Margins that already have the lead stay as they are.

    >>> wanted_margins(np.array([[2.0, 0.0, 1.5]]), np.array([1]), 1.0).tolist()
    [[0.8333333333333334, 1.8333333333333335, 0.8333333333333334]]
    >>> wanted_margins(np.array([[2.0], [-0.25]]), np.array([0, 0]), 1.0).tolist()
    [[-1.0], [-1.0]]
    """
    if margins.shape[1] == 1:
        m = margins[:, 0]
        rise, fall = np.maximum(m, lead), np.minimum(m, -lead)
        return np.asarray(np.where(target == 1, rise, fall)[:, None])
    return nearest_margins(margins, target, lead)


def leads(margins: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Return float64 [k]: how far the target's margin is above the highest other one.

    >>> leads(np.array([[3.0, 1.0, 0.5], [0.0, 2.0, 5.0]]), np.array([0, 1])).tolist()
    [2.0, -3.0]
    """
    if margins.shape[1] == 1:
        return np.asarray(np.where(target == 1, margins[:, 0], -margins[:, 0]))
    rows = np.arange(len(margins))
    others = margins.copy()
    others[rows, target] = -np.inf
    return np.asarray(margins[rows, target] - others.max(axis=1))


_LEAST_SCORE = 1e-6
_LEADS = np.arange(-8.0, 8.5, 0.5)
"""Leads of a class inside the calibrated model that are tried, to find the leads of its scores."""
_HALVINGS = 5
_ATTAINABLE, _LEAST_LEAD = 0.9, 0.05
"""Scores of calibrated models are bounded: this share of the longest possible lead is enough, and a
label whose lead stays below the second number is out of reach."""
_SHORT = 0.85
"""The share of the way after which the target must already win, because edits may fall a little
short and calibrated scores have steps."""
_TIE = 1e-9
_NUDGE, _STEEPEST = 0.5, 4.0


# Calibrated models decide by scores that are computed from the margins of one or several boosted
# models inside. Scores rise with the margin of a class by an unknown function, so that the margins
# with which a label wins are found by search.


def rank_scores(foreign: ForeignModel, margins: np.ndarray, q: int) -> np.ndarray:
    """Return int64 [n, q]: the labels of the highest scores, in that order."""
    return np.asarray(np.argsort(-foreign.confidence(margins), axis=1, kind="stable")[:, :q])


def score_leads(foreign: ForeignModel, margins: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Return float64 [n]: how far the target's log-score is above the highest other one."""
    scores = np.log(np.maximum(foreign.confidence(margins), _LEAST_SCORE))
    rows = np.arange(len(scores))
    # Among equal scores, the first class is the answer.
    scores[rows, scores.argmax(axis=1)] += _TIE
    own = scores[rows, target]
    scores[rows, target] = -np.inf
    return np.asarray(own - scores.max(axis=1))


def deciding_margins(
    foreign: ForeignModel, margins: np.ndarray, target: np.ndarray, lead: float
) -> np.ndarray:
    """Return margins [k, K] with which the target's log-score leads all others by ``lead``.

    Every model inside takes the same lead, the shortest that is enough. Where scores never differ
    so much, almost the largest difference is taken; NaN where the target cannot win.
    """
    reached = np.array([_lead_at(foreign, margins, target, inner) for inner in _LEADS])
    enough = np.minimum(lead, _ATTAINABLE * reached.max(axis=0))
    first = (reached >= enough).argmax(axis=0)
    high = _LEADS[first]
    low = _LEADS[np.maximum(first - 1, 0)]
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        holds = _lead_at(foreign, margins, target, middle) >= enough
        low, high = np.where(holds, low, middle), np.where(holds, middle, high)
    wanted = _move(foreign, margins, target, high)
    wanted[~(enough >= min(_LEAST_LEAD, lead))] = np.nan
    return np.asarray(wanted)


def score_slopes(foreign: ForeignModel, margins: np.ndarray, least: float) -> np.ndarray:
    """Return float64 [n, K]: how far a score moves when a margin does, 4 p (1 − p) if logistic."""
    step = _NUDGE / foreign.margin_scale
    found = np.empty(margins.shape)
    for output in range(margins.shape[1]):
        up, down = margins.copy(), margins.copy()
        up[:, output] += step
        down[:, output] -= step
        moved = np.abs(foreign.confidence(up) - foreign.confidence(down)).max(axis=1)
        found[:, output] = 4.0 * moved / (2.0 * _NUDGE)
    # The score is the mean over the models inside, so that each contributes a part.
    return np.asarray(np.clip(found * max(len(foreign.inside), 1), least, _STEEPEST))


def _lead_at(
    foreign: ForeignModel, margins: np.ndarray, target: np.ndarray, inner: float | np.ndarray
) -> np.ndarray:
    leads = np.broadcast_to(np.asarray(inner, np.float64), len(margins))
    there = _move(foreign, margins, target, leads)
    short = margins + _SHORT * (there - margins)
    wins = score_leads(foreign, short, target) > 0.0
    return np.where(wins, score_leads(foreign, there, target), -np.inf)


def _move(
    foreign: ForeignModel, margins: np.ndarray, target: np.ndarray, leads: np.ndarray
) -> np.ndarray:
    """Return margins in which the target leads by ``leads`` [n] in every model inside."""
    parts = np.split(margins, max(len(foreign.inside), 1), axis=1)
    scaled = leads / foreign.margin_scale
    return np.hstack([wanted_margins(part, target, scaled) for part in parts])
