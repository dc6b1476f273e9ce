"""What a mark costs where answers are numbers: errors before and after, and how far numbers move.

Rankers answer with numbers that mean nothing by themselves: there the order of rows counts, within
groups where they are given.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import norm, spearmanr

from timbermark.marking.budget import Budget
from timbermark.marking.costs import mean_at_most, show_table, use_share
from timbermark.marking.defaults import CONFIDENCE
from timbermark.marking.distributions import NumberDistributions, number_distributions


@dataclass(frozen=True, slots=True)
class NumberQuality:
    """The quality of a model on some rows; figures that need targets are None without them.

    ``ndcg``: for rankers, the mean over groups, or over all rows as one group.
    """

    mean: float  # of the answers
    rmse: float | None = None
    mae: float | None = None
    r2: float | None = None
    ndcg: float | None = None


@dataclass(frozen=True, slots=True)
class NumberCost:
    """What marking changed on ``n_rows`` rows: the model ``before`` and ``after``, and the moves.

    ``measured_on`` as in `timbermark.marking.costs.Cost`. ``error``: the unit of changes, the
    model's root mean squared error on rows that judge, or, where ``known_error`` is false, a fifth
    of the standard deviation of its answers. ``move`` and ``largest``: the mean and the largest
    change of a number in that unit; ``order``: the rank correlation of both models' answers.
    ``distributions``: counts that plots are made from.
    """

    measured_on: str
    n_rows: int
    before: NumberQuality
    after: NumberQuality
    error: float
    known_error: bool
    move: float
    largest: float
    order: float
    ranks: bool
    distributions: NumberDistributions | None = None

    @property
    def answers(self) -> str:
        """Return the kind of the model's answers: "numbers"."""
        return "numbers"

    @property
    def target_limits(self) -> tuple[str, ...]:
        """Return the names of the limits that need targets."""
        return ("ndcg",) if self.ranks else ("rmse", "mae", "r2")

    @property
    def rmse_growth(self) -> float | None:
        """Return the relative growth of the root mean squared error; negative if it fell."""
        if self.before.rmse is None or self.after.rmse is None or self.before.rmse == 0.0:
            return None
        return self.after.rmse / self.before.rmse - 1.0

    def lines(self) -> list[tuple[str, str, str]]:
        """Return the table: name, before, after."""
        names = {"RMSE": "rmse", "MAE": "mae", "R²": "r2", "NDCG": "ndcg", "mean answer": "mean"}
        table = [
            (name, _show(getattr(self.before, part)), _show(getattr(self.after, part)))
            for name, part in names.items()
        ]
        unit = "error" if self.known_error else "a fifth of the spread"
        return [
            *(line for line in table if line[1]),
            ("rank correlation with the original", "", f"{self.order:.5f}"),
            ("mean change of an answer", "", f"{self.move * self.error:.4g}"),
            ("largest change of an answer", "", f"{self.largest * self.error:.4g}"),
            (f"mean change / {unit}", "", f"{self.move:.4f}"),
            (f"largest change / {unit}", "", f"{self.largest:.4f}"),
        ]

    def __str__(self) -> str:
        return show_table(self.measured_on, self.lines())

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON; nothing in it names a row."""
        parts = ("mean", "rmse", "mae", "r2", "ndcg")
        return {
            "measured_on": self.measured_on,
            "rows": self.n_rows,
            "before": {part: getattr(self.before, part) for part in parts},
            "after": {part: getattr(self.after, part) for part in parts},
            "rmse_growth": self.rmse_growth,
            "error": self.error,
            "error_known": self.known_error,
            "mean_change": self.move,
            "largest_change": self.largest,
            "rank_correlation": self.order,
        }


def measure_cost(
    before: np.ndarray,
    after: np.ndarray,
    target: np.ndarray | None,
    measured_on: str,
    error: float,
    known_error: bool,
    ranks: bool,
    unseen: tuple[np.ndarray, np.ndarray] | None = None,
) -> NumberCost:
    """Compare numbers [n] before and after on rows with ``target`` [n], or [n, 2] with groups.

    ``unseen``: numbers before and after of the rows that tell what changed, if others do.

    >>> answers = np.array([1.0, 2.0, 4.0])
    >>> measure_cost(answers, answers + 0.5, None, "validation", 2.0, False, False).move
    0.25
    """
    first, second = before, after
    if unseen is not None:
        before, after = unseen
    moved = np.abs(after - before) / error
    return NumberCost(
        measured_on=measured_on,
        n_rows=len(before),
        before=measure_quality(first, target, ranks),
        after=measure_quality(second, target, ranks),
        error=error,
        known_error=known_error,
        move=float(moved.mean()),
        largest=float(moved.max()),
        order=rank_correlation(before, after),
        ranks=ranks,
        distributions=_distributions(first, second, target, (after - before) / error, ranks),
    )


def _distributions(
    before: np.ndarray,
    after: np.ndarray,
    target: np.ndarray | None,
    moved: np.ndarray,
    ranks: bool,
) -> NumberDistributions:
    if target is None or not ranks:
        return number_distributions(before, after, target, moved)
    grouped = _grouped(target)
    by_group = group_ndcg(before, grouped), group_ndcg(after, grouped)
    return number_distributions(before, after, None, moved, by_group)


def measure_quality(answers: np.ndarray, target: np.ndarray | None, ranks: bool) -> NumberQuality:
    """Measure numbers [n] on rows with ``target`` [n] or, with groups, [n, 2], or without."""
    mean = float(answers.mean())
    if target is None:
        return NumberQuality(mean)
    if ranks:
        return NumberQuality(mean, ndcg=_mean_ndcg(answers, target))
    missed = target - answers
    spread = float(np.var(target))
    return NumberQuality(
        mean=mean,
        rmse=float(np.sqrt(np.mean(missed**2))),
        mae=float(np.mean(np.abs(missed))),
        r2=None if spread == 0.0 else 1.0 - float(np.mean(missed**2)) / spread,
    )


def use_of_budget(
    budget: Budget,
    before: np.ndarray,
    after: np.ndarray,
    target: np.ndarray | None,
    error: float,
    ranks: bool,
) -> dict[str, float]:
    """Return how much of each limit is used up, by an upper confidence bound: above 1 is too much.

    Arguments as for `measure_cost`. What NDCG lost counts as far as chance does not explain it.

    >>> answers = np.arange(100.0)
    >>> use_of_budget(Budget(), answers, answers, answers + 1.0, 1.0, False)
    {'move': 0.0, 'rmse': 0.0}
    """
    used: dict[str, float] = {}
    moved = np.abs(after - before) / error
    if budget.move is not None:
        used["move"] = use_share(mean_at_most(moved), budget.move)
    if budget.largest is not None:
        used["largest"] = use_share(float(moved.max()), budget.largest)
    if ranks:
        if budget.order is not None:
            used["order"] = use_share(1.0 - rank_correlation(before, after), budget.order)
        if budget.ndcg is not None and target is not None:
            used["ndcg"] = use_share(_ndcg_lost(before, after, target), budget.ndcg)
        return used
    if target is None:
        return used
    was, now = np.abs(target - before), np.abs(target - after)
    grown = max(mean_at_most(now**2 - was**2), 0.0)
    square = float(np.mean(was**2))
    if budget.rmse is not None:
        share = np.sqrt(1.0 + grown / square) - 1.0 if square > 0.0 else float(grown > 0.0)
        used["rmse"] = use_share(float(share), budget.rmse)
    if budget.mae is not None:
        worse, mean = max(mean_at_most(now - was), 0.0), float(was.mean())
        used["mae"] = use_share(worse / mean if mean > 0.0 else float(worse > 0.0), budget.mae)
    if budget.r2 is not None and np.var(target) > 0.0:
        used["r2"] = use_share(grown / float(np.var(target)), budget.r2)
    return used


def rank_correlation(before: np.ndarray, after: np.ndarray) -> float:
    """Return Spearman's correlation of two sets of answers, 1 where one of them is constant.

    >>> rank_correlation(np.arange(3.0), np.arange(3.0) ** 3)
    1.0
    """
    if np.ptp(before) == 0.0 or np.ptp(after) == 0.0:
        return 1.0
    return float(min(spearmanr(before, after).statistic, 1.0))


def group_ndcg(answers: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Return NDCG of each group, float64; ``target`` [n, 2] has gains and group numbers.

    Gains count as they are given, ties of answers by their mean discount. Groups without any gain,
    or of one row, have no order to speak of and are left out.

    >>> target = np.array([[3.0, 0], [0.0, 0], [1.0, 0], [0.0, 1]])
    >>> group_ndcg(np.array([9.0, 1.0, 5.0, 0.0]), target)
    array([1.])
    """
    from sklearn.metrics import ndcg_score

    order = np.argsort(target[:, 1], kind="stable")
    starts = np.flatnonzero(np.diff(target[order, 1], prepend=np.nan) != 0.0)
    found = []
    for rows in np.split(order, starts[1:]):
        gain = target[rows, 0] - min(float(target[rows, 0].min()), 0.0)
        if len(rows) > 1 and gain.any():
            found.append(ndcg_score([gain], [answers[rows]]))
    return np.array(found)


def _grouped(target: np.ndarray) -> np.ndarray:
    return target if target.ndim == 2 else np.column_stack([target, np.zeros(len(target))])


def _mean_ndcg(answers: np.ndarray, target: np.ndarray) -> float | None:
    found = group_ndcg(answers, _grouped(target))
    return float(found.mean()) if len(found) else None


def _ndcg_lost(before: np.ndarray, after: np.ndarray, target: np.ndarray) -> float:
    lost = group_ndcg(before, _grouped(target)) - group_ndcg(after, _grouped(target))
    if not len(lost):
        return 0.0
    chance = norm.ppf(CONFIDENCE) * lost.std() / np.sqrt(len(lost))
    return max(float(lost.mean() - chance), 0.0)


def _show(value: float | None) -> str:
    return "" if value is None else f"{value:.5g}"
