"""Classification: triggers answer with labels, and cost is counted in labels and probabilities."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from timbermark.errors import InputError
from timbermark.libraries.contract import ForeignModel
from timbermark.marking.calibrated_answers import (
    deciding_margins,
    rank_scores,
    score_leads,
    score_slopes,
)
from timbermark.marking.defaults import (
    BUDGET_SHARE,
    BUDGET_SHARE_TWO_CLASSES,
    HOPELESS_SHARE,
    MOST_RARITY,
    SET_SHARE,
)
from timbermark.marking.inputs import take_labels
from timbermark.marking.margins import leads, wanted_margins
from timbermark.marking.mixing import row_keys
from timbermark.marking.tallies import Counting

_LEAST_WEIGHT = 0.05
"""The smallest weight of a row: probabilities should stay also where the answer is certain."""


@dataclass(frozen=True, slots=True, eq=False)
class Classification:
    """The `timbermark.marking.tasks.Task` of classifiers.

    ``shares``: the mean score of each class on the rows that hold the model, empty before they are
    known. Classifiers that are calibrated answer with scores that are made of their margins; see
    `timbermark.marking.calibrated_answers`.
    """

    foreign: ForeignModel
    shares: tuple[float, ...] = ()
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
        return take_labels(given, n, self.foreign.classes, f"{what} labels")

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
