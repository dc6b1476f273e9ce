"""What a mark costs on every row of a large table: counts and sums that parts merge exactly.

Sums are of whole numbers, parts of a small unit, so that they do not depend on the order in which
rows come. The AUC comes from histograms of log-odds that are so fine that what they hide is far
below what is printed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
from scipy.stats import norm

from timbermark.marking.budget import Budget
from timbermark.marking.costs import Cost, Quality, share_at_most, use_share
from timbermark.marking.defaults import CONFIDENCE

UNIT = 2.0**-32
_BINS, _WIDEST = 1 << 15, 30.0
"""The number of bins for log-odds, each 0.002 wide, and the largest log-odds on either side."""
_LEAST = float(np.finfo(np.float64).eps)
"""The distance from 0 and 1 to which the log-loss clips probabilities, as scikit-learn's does."""


def whole_sum(values: np.ndarray, unit: float = UNIT) -> int:
    """Return the sum of values as a whole number of units, the same in whatever order.

    >>> whole_sum(np.array([0.5, 0.25]), 0.25)
    3
    """
    return int(np.rint(np.clip(values / unit, -(2.0**46), 2.0**46)).astype(np.int64).sum())


@dataclass(frozen=True, slots=True, eq=False)
class Side:
    """A model's answers: sums of scores [K], and with labels counts, log-loss and histograms.

    ``right`` int64 [K]: rows of each class with the right answer; ``odds`` int64 [2, bins]: rows
    of two classes by their log-odds.
    """

    scores: np.ndarray
    right: np.ndarray
    loss: int
    odds: np.ndarray

    @classmethod
    def count(cls, confidence: np.ndarray, label: np.ndarray | None) -> Side:
        """Count probabilities [n, K]."""
        n_classes = confidence.shape[1]
        scores = np.array([whole_sum(p) for p in confidence.T], dtype=object)
        right, odds, loss = np.zeros(n_classes, np.int64), np.zeros((2, 0), np.int64), 0
        if label is not None:
            right = np.bincount(label[confidence.argmax(axis=1) == label], minlength=n_classes)
            own = confidence[np.arange(len(label)), label] / confidence.sum(axis=1)
            loss = whole_sum(-np.log(np.clip(own, _LEAST, 1.0 - _LEAST)))
            if n_classes == 2:
                odds = _count_odds(confidence[:, 1], label)
        return cls(scores, right, loss, odds)

    def __add__(self, other: Side) -> Side:
        return Side(
            self.scores + other.scores, self.right + other.right, self.loss + other.loss,
            self.odds + other.odds,
        )  # fmt: skip

    def quality(self, n: int, labels: np.ndarray | None) -> Quality:
        """Return the figures of n rows; ``labels`` int64 [K]: how many there are of each."""
        mean_score = tuple(float(total) * UNIT / n for total in self.scores)
        if labels is None:
            return Quality(mean_score)
        recall = tuple(
            None if of == 0 else float(right / of)
            for right, of in zip(self.right, labels, strict=True)
        )
        return Quality(
            mean_score, float(self.right.sum() / n), self.loss * UNIT / n, area(self.odds), recall
        )


@dataclass(frozen=True, slots=True, eq=False)
class Tally:
    """What an edit changed on rows: a table of counts and sums that can be added up.

    ``labels`` int64 [K]: how many rows there are of each class, None where none are known;
    ``worse`` and ``better``: right answers lost and won; ``moves`` and ``squares``: sums of the
    largest change of a probability in each row, and of its square.
    """

    n: int
    labels: np.ndarray | None
    before: Side
    after: Side
    changed: int
    worse: int
    better: int
    moves: int
    squares: int
    largest: float

    @classmethod
    def count(cls, before: np.ndarray, after: np.ndarray, label: np.ndarray | None) -> Tally:
        """Compare probabilities [n, K] before and after on rows with class numbers ``label``."""
        was, now = before.argmax(axis=1), after.argmax(axis=1)
        moved = np.abs(after - before).max(axis=1)
        labels, worse, better = None, 0, 0
        if label is not None:
            labels = np.bincount(label, minlength=before.shape[1])
            worse = int(((was == label) & (now != label)).sum())
            better = int(((was != label) & (now == label)).sum())
        return cls(
            len(before), labels, Side.count(before, label), Side.count(after, label),
            int((was != now).sum()), worse, better, whole_sum(moved), whole_sum(moved**2),
            float(moved.max()),
        )  # fmt: skip

    @classmethod
    def merge(cls, tallies: Sequence[Tally]) -> Tally:
        """Return the tally of all rows together."""
        return reduce(cls.__add__, tallies)

    def __add__(self, other: Tally) -> Tally:
        labels = None
        if self.labels is not None and other.labels is not None:
            labels = self.labels + other.labels
        return Tally(
            self.n + other.n, labels, self.before + other.before, self.after + other.after,
            self.changed + other.changed, self.worse + other.worse, self.better + other.better,
            self.moves + other.moves, self.squares + other.squares,
            max(self.largest, other.largest),
        )  # fmt: skip

    @property
    def drift(self) -> float:
        """Return the mean over rows of the largest change of a probability."""
        return self.moves * UNIT / self.n

    def cost(self, classes: Any, measured_on: str) -> Cost:
        """Return the cost on all rows."""
        return Cost(
            measured_on=measured_on,
            n_rows=self.n,
            classes=tuple(np.asarray(classes).tolist()),
            before=self.before.quality(self.n, self.labels),
            after=self.after.quality(self.n, self.labels),
            changed=self.changed,
            drift=self.drift,
            largest_drift=self.largest,
        )

    def use_of_budget(self, budget: Budget, seen: bool) -> dict[str, float]:
        """Return how much of each limit is used up; see `timbermark.marking.costs`.

        With so many rows chance explains next to nothing, so that the AUC lost counts whole.
        """
        n, used = self.n, {}
        error = 1.0
        if self.labels is not None and not seen:
            error = share_at_most(n - int(self.before.right.sum()), n)
        changed, nothing = share_at_most(self.changed, n), share_at_most(0, n)
        if budget.changed is not None:
            used["changed"] = use_share(changed, max(min(budget.changed, error), nothing))
        if budget.drift is not None:
            variance = max(self.squares * UNIT / n - self.drift**2, 0.0)
            bound = self.drift + norm.ppf(CONFIDENCE) * np.sqrt(variance / n)
            used["drift"] = use_share(float(bound), budget.drift)
        if self.labels is None:
            return used
        if budget.accuracy is not None:
            chance = norm.ppf(CONFIDENCE) * np.sqrt(self.worse + self.better)
            lost = max(float(self.worse - self.better + chance) / n, 0.0)
            limit = max(min(budget.accuracy, error / 2), nothing)
            used["accuracy"] = use_share(min(lost, changed), limit)
        first, second = area(self.before.odds), area(self.after.odds)
        if budget.auc is not None and first is not None and second is not None:
            used["auc"] = use_share(max(first - second, 0.0), budget.auc)
        return used


def area(odds: np.ndarray) -> float | None:
    """Return the area under the ROC curve of a histogram of log-odds, int64 [2, bins].

    None where one of the two classes has no rows.

    >>> area(np.array([[2, 0, 0], [0, 1, 1]]))
    1.0
    """
    negative, positive = (row.astype(np.float64) for row in odds)
    pairs = negative.sum() * positive.sum()
    if pairs == 0.0:
        return None
    below = np.cumsum(negative) - 0.5 * negative
    return float((positive * below).sum() / pairs)


def _count_odds(score: np.ndarray, label: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore"):
        odds = np.log(score) - np.log1p(-score)
    place = np.clip((odds + _WIDEST) * (_BINS / (2.0 * _WIDEST)), 0, _BINS - 1).astype(np.int64)
    return np.bincount(label * _BINS + place, minlength=2 * _BINS).reshape(2, _BINS)
