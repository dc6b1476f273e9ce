"""What a mark costs on every row of a large table where answers are numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from scipy.stats import norm

from timbermark.marking.budget import Budget
from timbermark.marking.costs import use_share
from timbermark.marking.defaults import CONFIDENCE
from timbermark.marking.number_costs import NumberCost, NumberQuality
from timbermark.marking.tallies import whole_sum

_UNIT = 2.0**-20
"""The resolution of sums, in units of the model's error."""


@dataclass(frozen=True, slots=True)
class NumberTally:
    """Sums over rows, in whole parts of the model's error or its square; None without targets.

    ``was`` and ``now``: sums of errors before and after, absolute, squared, and of squares of what
    the square grew by.
    """

    error: float
    n: int
    mean: tuple[int, int]  # of the answers before and after
    moves: tuple[int, int]  # and their squares
    largest: float
    missed: tuple[int, ...] | None  # |before|, |after|, before², after², (after² − before²)²
    target: tuple[int, int] | None  # and its square

    @classmethod
    def count(
        cls, before: np.ndarray, after: np.ndarray, target: np.ndarray | None, error: float
    ) -> NumberTally:
        """Compare numbers [n] before and after on rows with ``target`` [n]."""
        moved = np.abs(after - before) / error
        missed = known = None
        if target is not None:
            was, now = np.abs(target - before) / error, np.abs(target - after) / error
            grown = now**2 - was**2
            missed = tuple(whole_sum(v, _UNIT) for v in (was, now, was**2, now**2, grown**2))
            known = (whole_sum(target / error, _UNIT), whole_sum((target / error) ** 2, _UNIT))
        return cls(
            error, len(before),
            (whole_sum(before / error, _UNIT), whole_sum(after / error, _UNIT)),
            (whole_sum(moved, _UNIT), whole_sum(moved**2, _UNIT)), float(moved.max()), missed,
            known,
        )  # fmt: skip

    @classmethod
    def merge(cls, tallies: Sequence[NumberTally]) -> NumberTally:
        """Return the tally of all rows together."""
        error, largest = tallies[0].error, max(tally.largest for tally in tallies)
        sums: dict[str, Any] = {"n": sum(tally.n for tally in tallies)}
        for name in (field.name for field in fields(cls)):
            if name in ("mean", "moves", "missed", "target"):
                parts = [getattr(tally, name) for tally in tallies]
                whole = None if parts[0] is None else tuple(map(sum, zip(*parts, strict=True)))
                sums[name] = whole
        return cls(error=error, largest=largest, **sums)

    def _mean(self, total: int) -> float:
        return total * _UNIT / self.n

    @property
    def _spread(self) -> float:
        """Return the variance of the targets, in units of the squared error."""
        assert self.target is not None
        return max(self._mean(self.target[1]) - self._mean(self.target[0]) ** 2, 0.0)

    def _quality(self, side: int) -> NumberQuality:
        mean = self._mean(self.mean[side]) * self.error
        if self.missed is None:
            return NumberQuality(mean)
        square = self._mean(self.missed[2 + side])
        return NumberQuality(
            mean=mean,
            rmse=float(np.sqrt(square)) * self.error,
            mae=self._mean(self.missed[side]) * self.error,
            r2=None if self._spread == 0.0 else 1.0 - square / self._spread,
        )

    def cost(self, measured_on: str, known_error: bool, order: float) -> NumberCost:
        """Return the cost on all rows; ``order``: the rank correlation, of fewer rows."""
        return NumberCost(
            measured_on, self.n, self._quality(0), self._quality(1), self.error, known_error,
            self._mean(self.moves[0]), self.largest, order, ranks=False,
        )  # fmt: skip

    def use_of_budget(self, budget: Budget) -> dict[str, float]:
        """Return how much of the limits on numbers is used up, by upper confidence bounds."""
        used: dict[str, float] = {}
        move = self._mean(self.moves[0])
        if budget.move is not None:
            bound = move + self._chance(self._mean(self.moves[1]) - move**2)
            used["move"] = use_share(bound, budget.move)
        if budget.largest is not None:
            used["largest"] = use_share(self.largest, budget.largest)
        if self.missed is None:
            return used
        was, now, was_square, now_square, grown_square = map(self._mean, self.missed)
        grown = now_square - was_square
        grown = max(grown + self._chance(grown_square - grown**2), 0.0)
        if budget.rmse is not None:
            share = np.sqrt(1.0 + grown / was_square) - 1.0 if was_square > 0.0 else grown > 0.0
            used["rmse"] = use_share(float(share), budget.rmse)
        if budget.mae is not None:
            worse = max(now - was, 0.0)
            used["mae"] = use_share(worse / was if was > 0.0 else float(worse > 0.0), budget.mae)
        if budget.r2 is not None and self._spread > 0.0:
            used["r2"] = use_share(grown / self._spread, budget.r2)
        return used

    def _chance(self, variance: float) -> float:
        return float(norm.ppf(CONFIDENCE) * np.sqrt(max(variance, 0.0) / self.n))
