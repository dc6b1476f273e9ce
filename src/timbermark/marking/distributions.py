"""How answers are distributed before and after marking: small counts, from which plots are made.

They are taken where the cost is measured, so that a result carries no row and no answer.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

N_BINS = 20
N_RELIABILITY_BINS = 10
CHANGE_EDGES = (0.0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
"""Edges of the bins for changes of a probability, finer near 0, where most changes are."""
_TAIL = 0.005
"""The share of numbers on either side that the outer bins collect."""


@dataclass(frozen=True, slots=True)
class Histogram:
    """How many rows lie in each bin, ``before`` and ``after``; ``edges`` has one number more.

    The outer bins collect what lies beyond them.
    """

    edges: tuple[float, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ReliabilityBin:
    """Rows with similar scores: how many, the mean of their scores, and how often they hold."""

    n: int
    score: float
    share: float


@dataclass(frozen=True, slots=True)
class ClassCalibration:
    """One class: its share of the rows and the calibration errors before and after.

    A calibration error is the mean distance of scores and shares over bins of 0.1, weighted by the
    number of rows.
    """

    share: float
    before: float
    after: float


@dataclass(frozen=True, slots=True)
class ScoreDistributions:
    """The scores of a classifier.

    ``scores``: of two classes, those of the second; of more, those of the most likely class of each
    row. ``changes``: how many rows' largest change of a probability lies in each bin. What needs
    labels is empty without them. ``mean_before`` and ``mean_after``: the mean score of each class.
    """

    scores: Histogram
    changes: tuple[int, ...]
    reliability_before: tuple[ReliabilityBin, ...] = ()
    reliability_after: tuple[ReliabilityBin, ...] = ()
    by_class: tuple[ClassCalibration, ...] = ()
    mean_before: tuple[float, ...] = ()
    mean_after: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class NumberDistributions:
    """The numbers of a regressor or a ranker; what needs targets is None without them.

    ``changes``: answers after minus before, in units of the model's error; ``errors``: answers
    minus targets of a regressor; ``ndcg``: of each group of a ranker.
    """

    answers: Histogram
    changes: Histogram
    errors: Histogram | None = None
    ndcg: Histogram | None = None


def score_distributions(
    before: np.ndarray, after: np.ndarray, label: np.ndarray | None, moved: np.ndarray
) -> ScoreDistributions:
    """Count probabilities [n, K] before and after; ``moved``: the largest change of each row.

    >>> p = np.array([[0.9, 0.1], [0.2, 0.8]])
    >>> found = score_distributions(p, p, np.array([0, 1]), np.zeros(2))
    >>> found.scores.after[2], found.scores.after[16], found.changes[0]
    (1, 1, 2)
    >>> found.by_class[1].share
    0.5
    """
    scores = Histogram(
        _edges(0.0, 1.0),
        *(_count(_top(given), _edges(0.0, 1.0)) for given in (before, after)),
    )
    changes = _count(moved, CHANGE_EDGES)
    means = [tuple(given.mean(axis=0).tolist()) for given in (before, after)]
    if label is None:
        return ScoreDistributions(scores, changes, mean_before=means[0], mean_after=means[1])
    bins = [_reliability(_top(given), _holds(given, label)) for given in (before, after)]
    by_class = tuple(
        ClassCalibration(
            share=float((label == kind).mean()),
            before=_calibration_error(before[:, kind], label == kind),
            after=_calibration_error(after[:, kind], label == kind),
        )
        for kind in range(before.shape[1])
    )
    return ScoreDistributions(scores, changes, bins[0], bins[1], by_class, *means)


def number_distributions(
    before: np.ndarray,
    after: np.ndarray,
    target: np.ndarray | None,
    moved: np.ndarray,
    ndcg: tuple[np.ndarray, np.ndarray] | None = None,
) -> NumberDistributions:
    """Count numbers [n] before and after on rows with ``target`` [n], or without.

    ``moved``: the change of each number, in units of the error; ``ndcg``: of each group.

    >>> answers = np.arange(20.0)
    >>> found = number_distributions(answers, answers, answers + 1.0, np.zeros(20))
    >>> sum(found.answers.before), max(found.errors.after)
    (20, 20)
    """
    return NumberDistributions(
        answers=_histogram(before, after),
        changes=_histogram(np.zeros(0), moved, around_zero=True),
        errors=None if target is None
        else _histogram(before - target, after - target, around_zero=True),
        ndcg=None if ndcg is None or not len(ndcg[0])
        else Histogram(_edges(0.0, 1.0), *(_count(part, _edges(0.0, 1.0)) for part in ndcg)),
    )  # fmt: skip


def _histogram(before: np.ndarray, after: np.ndarray, around_zero: bool = False) -> Histogram:
    low, high = np.quantile(np.concatenate([before, after]), [_TAIL, 1.0 - _TAIL])
    if around_zero:
        high = max(abs(low), abs(high))
        low = -high
    if high <= low:
        low, high = low - 0.5, high + 0.5
    edges = _edges(float(low), float(high))
    return Histogram(edges, _count(before, edges), _count(after, edges))


def _edges(low: float, high: float) -> tuple[float, ...]:
    return tuple(float(edge) for edge in np.linspace(low, high, N_BINS + 1))


def _count(values: np.ndarray, edges: tuple[float, ...]) -> tuple[int, ...]:
    inside = np.clip(values, edges[0], edges[-1])
    return tuple(int(n) for n in np.histogram(inside, np.asarray(edges))[0])


def _top(confidence: np.ndarray) -> np.ndarray:
    found: np.ndarray = confidence[:, 1] if confidence.shape[1] == 2 else confidence.max(axis=1)
    return found


def _holds(confidence: np.ndarray, label: np.ndarray) -> np.ndarray:
    if confidence.shape[1] == 2:
        return np.asarray(label == 1)
    return np.asarray(confidence.argmax(axis=1) == label)


def _reliability(score: np.ndarray, holds: np.ndarray) -> tuple[ReliabilityBin, ...]:
    places = np.clip((score * N_RELIABILITY_BINS).astype(int), 0, N_RELIABILITY_BINS - 1)
    return tuple(
        ReliabilityBin(int(rows.sum()), float(score[rows].mean()), float(holds[rows].mean()))
        for rows in (places == place for place in range(N_RELIABILITY_BINS))
        if rows.any()
    )


def _calibration_error(score: np.ndarray, holds: np.ndarray) -> float:
    bins = _reliability(score, holds)
    return sum(b.n * abs(b.score - b.share) for b in bins) / len(score)
