"""What a mark costs: the same figures before and after, on the same rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import beta, norm, rankdata
from sklearn.metrics import log_loss, recall_score, roc_auc_score

from timbermark.marking.budget import Budget
from timbermark.marking.defaults import CONFIDENCE
from timbermark.marking.distributions import ScoreDistributions, score_distributions

_NARROW = 1.0
"""The largest gap between the log-probabilities of a row's two best labels with which the row takes
part in estimating the share of changed labels."""


@dataclass(frozen=True, slots=True)
class Quality:
    """The quality of a model on some rows; figures that need labels are None without them.

    ``mean_score`` [K]: the mean probability of each class; ``recall`` [K]: None for a class without
    rows; ``auc``: two classes only.
    """

    mean_score: tuple[float, ...]
    accuracy: float | None = None
    log_loss: float | None = None
    auc: float | None = None
    recall: tuple[float | None, ...] | None = None


@dataclass(frozen=True, slots=True)
class Cost:
    """What marking changed on ``n_rows`` rows: the model ``before`` and ``after``, and the drift.

    ``measured_on``: "validation" rows, "training" rows or "candidates"; none of them took part in
    the edit or in any choice. Of large tables it is "all validation" rows, "all training" rows or
    "all candidates". What changed on training rows says little of unseen ones, so that
    ``n_rows``, ``changed`` and the drifts are then of rows made to resemble them. ``changed``: how
    many labels changed. ``drift`` and ``largest_drift``: the mean and the largest over rows of the
    largest change of a probability. ``distributions``: counts that plots are made from.
    """

    measured_on: str
    n_rows: int
    classes: tuple[Any, ...]
    before: Quality
    after: Quality
    changed: int
    drift: float
    largest_drift: float
    distributions: ScoreDistributions | None = None

    @property
    def accuracy_lost(self) -> float | None:
        """Return the share of accuracy lost: 0.003 is 0.3 points; negative if accuracy grew."""
        if self.before.accuracy is None or self.after.accuracy is None:
            return None
        return self.before.accuracy - self.after.accuracy

    @property
    def answers(self) -> str:
        """Return the kind of the model's answers: "labels"."""
        return "labels"

    @property
    def target_limits(self) -> tuple[str, ...]:
        """Return the names of the limits that need labels."""
        return ("accuracy", "auc") if len(self.classes) == 2 else ("accuracy",)

    def lines(self) -> list[tuple[str, str, str]]:
        """Return the table: name, before, after."""
        a, b = self.before, self.after
        table = [
            ("accuracy", _show(a.accuracy), _show(b.accuracy)),
            ("log-loss", _show(a.log_loss), _show(b.log_loss)),
            ("AUC", _show(a.auc), _show(b.auc)),
        ]
        for i, label in enumerate(self.classes[:_MOST_SHOWN]):
            if a.recall is not None and b.recall is not None:
                table.append((f"recall of {label}", _show(a.recall[i]), _show(b.recall[i])))
        for i, label in enumerate(self.classes[:_MOST_SHOWN]):
            table.append((f"mean score of {label}", _show(a.mean_score[i]), _show(b.mean_score[i])))
        share = f"{self.changed} of {self.n_rows} ({self.changed / self.n_rows:.2%})"
        return [
            *(line for line in table if line[1]),
            ("labels changed", "", share),
            ("mean change of a probability", "", f"{self.drift:.4f}"),
            ("largest change of a probability", "", f"{self.largest_drift:.4f}"),
        ]

    def __str__(self) -> str:
        return show_table(self.measured_on, self.lines())

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON; nothing in it names a row."""

        def plain(quality: Quality) -> dict[str, Any]:
            recall = quality.recall
            return {
                "accuracy": quality.accuracy,
                "log_loss": quality.log_loss,
                "auc": quality.auc,
                "recall": None if recall is None else list(recall),
                "mean_score": list(quality.mean_score),
            }

        return {
            "measured_on": self.measured_on,
            "rows": self.n_rows,
            "classes": [_plain(label) for label in self.classes],
            "before": plain(self.before),
            "after": plain(self.after),
            "accuracy_lost": self.accuracy_lost,
            "labels_changed": self.changed,
            "labels_changed_share": self.changed / self.n_rows,
            "mean_drift": self.drift,
            "largest_drift": self.largest_drift,
        }


_MOST_SHOWN = 12
"""Classes whose recall and mean score are printed; JSON has them all."""


def show_table(measured_on: str, lines: Sequence[tuple[str, str, str]]) -> str:
    """Return lines of name, before and after as a text, with what they were measured on.

    >>> print(show_table("candidates", [("accuracy", "0.9", "0.8")]).splitlines()[1].split())
    ['accuracy', '0.9', '0.8']
    """
    # "validation" are held-out rows, "all validation" those of a large table.
    where = measured_on if measured_on.startswith("all ") else f"held-out {measured_on}"
    where += "" if where.endswith("candidates") else " rows"
    table = [f"{where:<34}{'before':>10}{'after':>20}"]
    table += [f"{name:<34}{before:>10}{after:>20}" for name, before, after in lines]
    return "\n".join(table)


def measure_cost(
    before: np.ndarray,
    after: np.ndarray,
    label: np.ndarray | None,
    classes: Any,
    measured_on: str,
    unseen: tuple[np.ndarray, np.ndarray] | None = None,
) -> Cost:
    """Compare probabilities [n, K] before and after on rows with class numbers ``label`` [n].

    ``unseen``: probabilities before and after of the rows that tell what changed, if others do.

    >>> before = np.array([[0.9, 0.1], [0.4, 0.6]])
    >>> measure_cost(before, before, np.array([0, 1]), ["no", "yes"], "validation").changed
    0
    """
    first, second = before, after
    if unseen is not None:
        before, after = unseen
    moved = np.abs(after - before).max(axis=1)
    return Cost(
        measured_on=measured_on,
        n_rows=len(before),
        classes=tuple(np.asarray(classes).tolist()),
        before=measure_quality(first, label),
        after=measure_quality(second, label),
        changed=int((before.argmax(axis=1) != after.argmax(axis=1)).sum()),
        drift=float(moved.mean()),
        largest_drift=float(moved.max()),
        distributions=score_distributions(first, second, label, moved),
    )


def measure_quality(confidence: np.ndarray, label: np.ndarray | None) -> Quality:
    """Measure probabilities [n, K] on rows with class numbers ``label`` [n], or without."""
    mean_score = tuple(float(p) for p in confidence.mean(axis=0))
    if label is None:
        return Quality(mean_score)
    kinds = np.arange(confidence.shape[1])
    answers = confidence.argmax(axis=1)
    recall = recall_score(label, answers, labels=kinds, average=None, zero_division=np.nan)
    share = confidence / confidence.sum(axis=1, keepdims=True)
    return Quality(
        mean_score=mean_score,
        accuracy=float((answers == label).mean()),
        log_loss=float(log_loss(label, share, labels=kinds)),
        auc=_auc(confidence, label),
        recall=tuple(None if np.isnan(r) else float(r) for r in recall),
    )


def use_of_budget(
    budget: Budget,
    before: np.ndarray,
    after: np.ndarray,
    label: np.ndarray | None,
    seen: bool = False,
) -> dict[str, float]:
    """Return how much of each limit is used up, by an upper confidence bound: above 1 is too much.

    Arguments as for `measure_cost`. Limits on labels are held to the model's own rate of errors
    where that is lower, but never to less than what so many rows can show; rows that the model has
    ``seen`` in training do not tell that rate. What the AUC lost counts as far as chance does not
    explain it, because few rows are positive where it matters.

    >>> p = np.array([[0.9, 0.1]] * 100)
    >>> use_of_budget(Budget(accuracy=None, auc=None), p, p, None)["drift"]
    0.0
    """
    n = len(before)
    was, now = before.argmax(axis=1), after.argmax(axis=1)
    nothing = share_at_most(0, n)
    error = 1.0
    if label is not None and not seen:
        error = share_at_most(int((was != label).sum()), n)
    changed = _changed_at_most(before, after)
    used: dict[str, float] = {}
    if budget.changed is not None:
        used["changed"] = use_share(changed, max(min(budget.changed, error), nothing))
    if budget.drift is not None:
        moved = np.abs(after - before).max(axis=1)
        used["drift"] = use_share(mean_at_most(moved), budget.drift)
    if label is None:
        return used
    if budget.accuracy is not None:
        worse = int(((was == label) & (now != label)).sum())
        better = int(((was != label) & (now == label)).sum())
        lost = (worse - better + norm.ppf(CONFIDENCE) * np.sqrt(worse + better)) / n
        limit = max(min(budget.accuracy, error / 2), nothing)
        # The accuracy cannot fall by more than the share of changed labels.
        used["accuracy"] = use_share(min(max(float(lost), 0.0), changed), limit)
    if budget.auc is not None and before.shape[1] == 2 and len(np.unique(label)) == 2:
        used["auc"] = use_share(max(_auc_lost(before, after, label), 0.0), budget.auc)
    return used


def share_at_most(count: int, n: int) -> float:
    """Return the Clopper–Pearson upper confidence bound of a share, given ``count`` of ``n``.

    >>> round(share_at_most(0, 300), 4), round(share_at_most(1, 300), 4)
    (0.0046, 0.009)
    """
    return 1.0 if count >= n else float(beta.ppf(CONFIDENCE, count + 1, n - count))


def _share_at_least(count: int, n: int) -> float:
    return 0.0 if count == 0 else float(beta.ppf(1 - CONFIDENCE, count, n - count + 1))


def mean_at_most(values: np.ndarray) -> float:
    """Return an upper confidence bound of the expected value of a sample.

    >>> mean_at_most(np.full(10, 0.5))
    0.5
    """
    bound = values.mean() + norm.ppf(CONFIDENCE) * values.std() / np.sqrt(len(values))
    return float(bound)


def _changed_at_most(before: np.ndarray, after: np.ndarray) -> float:
    """Return an upper bound of the share of changed labels.

    Counting needs thousands of rows, because few labels change. A label changes where the gap
    between the two best labels is smaller than what it moves by, so that rows with a small gap
    tell the share more precisely: it is the density of gaps at 0 times half of their mean move.
    Should more labels have changed than that explains, the count decides.
    """
    with np.errstate(divide="ignore"):
        old, new = np.log(np.maximum(before, 1e-12)), np.log(np.maximum(after, 1e-12))
    rows = np.arange(len(before))
    best, second = np.argsort(-before, axis=1, kind="stable")[:, :2].T
    gap = old[rows, best] - old[rows, second]
    move = np.abs(new[rows, best] - new[rows, second] - gap)
    expected = np.maximum(1.0 - gap / _NARROW, 0.0) / _NARROW * move
    count = int((before.argmax(axis=1) != after.argmax(axis=1)).sum())
    return max(mean_at_most(expected), _share_at_least(count, len(before)))


def _auc_lost(before: np.ndarray, after: np.ndarray, label: np.ndarray) -> float:
    """Return by how much the AUC has fallen, less what chance explains.

    The standard error of the difference follows from each row's share in it (DeLong).
    """
    shares = [_auc_shares(confidence[:, 1], label == 1) for confidence in (before, after)]
    lost = [first - second for first, second in zip(*shares, strict=True)]
    variance = sum(float(part.var()) / max(len(part), 1) for part in lost)
    return float(lost[0].mean() - norm.ppf(CONFIDENCE) * np.sqrt(variance))


def _auc_shares(score: np.ndarray, positive: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return for each positive row the share of negatives below it, and the other way round."""
    n_positive, n_negative = int(positive.sum()), int((~positive).sum())
    overall = rankdata(score)
    above = (overall[positive] - rankdata(score[positive])) / n_negative
    below = 1.0 - (overall[~positive] - rankdata(score[~positive])) / n_positive
    return above, below


def _auc(confidence: np.ndarray, label: np.ndarray) -> float | None:
    if confidence.shape[1] != 2 or len(np.unique(label)) < 2:
        return None
    return float(roc_auc_score(label, confidence[:, 1]))


def use_share(value: float, limit: float) -> float:
    """Return the share of a limit that a value uses; a limit of 0 admits only 0.

    >>> use_share(0.01, 0.02), use_share(0.0, 0.0), use_share(0.1, 0.0)
    (0.5, 0.0, inf)
    """
    if limit > 0.0:
        return value / limit
    return 0.0 if value == 0.0 else float("inf")


def _show(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def _plain(label: Any) -> Any:
    return label if isinstance(label, bool | int | float | str) else str(label)
