"""How our numbers compare with the paper's, against the bounds that a reproduction must keep."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from timbermark.experiments.grid import METRICS, Plan
from timbermark.experiments.measuring import NAN
from timbermark.experiments.published import Place, published
from timbermark.experiments.results import AVERAGE, Results

BOUNDS = {
    "effectiveness": 0.02,
    "adjusted_accuracy": 0.02,
    "robustness": 0.03,
    "adjusted_resilience": 0.05,
}
"""How far below the paper's number ours may be."""
_FEW, _FEW_BOUND = 10, 0.05
"""With fewer triggers than these, effectiveness comes in steps of a tenth or more."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """An average over the data sets for which both have a number; ``k``: the mean of triggers."""

    place: Place
    ours: float
    paper: float
    k: float
    datasets: int

    @property
    def difference(self) -> float:
        """Return ours minus the paper's."""
        return self.ours - self.paper

    @property
    def is_low(self) -> bool:
        """Return whether ours is further below than it may be."""
        return is_low(self.place.metric, self.ours, self.paper, self.k)


@dataclass(frozen=True, slots=True)
class Overall:
    """All cells of one metric and scenario. ``low``: how many averages are too low."""

    metric: str
    candidates: str
    ours: float
    paper: float
    cells: int
    averages: int
    low: int

    @property
    def difference(self) -> float:
        """Return ours minus the paper's."""
        return self.ours - self.paper

    @property
    def is_higher(self) -> bool:
        """Return whether ours is the higher on average."""
        return self.difference >= 0.0


def is_low(metric: str, ours: float, paper: float, k: float) -> bool:
    """Return whether a number of ours is further below the paper's than k triggers explain.

    >>> is_low("effectiveness", 0.96, 1.0, k=40), is_low("effectiveness", 0.96, 1.0, k=4)
    (True, False)
    """
    bound = BOUNDS[metric]
    if metric == "effectiveness" and k < _FEW:
        bound = _FEW_BOUND
    # The paper prints three digits, so half of the last one is no difference.
    return bool(ours < paper - bound - 0.0005)


def compare(plan: Plan, results: Results) -> list[Comparison]:
    """Return the averages over data sets, by metric, scenario, method, selection and ratio.

    Only data sets count for which both we and the paper have a number: Wrong Prediction Flip
    exists for some only, and not for the same.
    """
    found = []
    for metric in METRICS:
        for scenario, method, selection, ratio in plan.ways:
            place = Place(metric, scenario, method, selection, AVERAGE, ratio)
            found.append(_compare(place, _pairs([place], plan.datasets, results)))
    return found


def overall(plan: Plan, results: Results) -> list[Overall]:
    """Return one line for each metric and scenario."""
    averages = compare(plan, results)
    found = []
    for metric in METRICS:
        for scenario in plan.scenarios:
            some = [
                c for c in averages if (c.place.metric, c.place.candidates) == (metric, scenario)
            ]
            pairs = _pairs([c.place for c in some], plan.datasets, results)
            mean = _means(pairs)
            found.append(
                Overall(
                    metric, scenario, mean[0], mean[1], len(pairs),
                    averages=sum(c.datasets > 0 for c in some), low=sum(c.is_low for c in some),
                )
            )  # fmt: skip
    return found


def _pairs(
    places: Iterable[Place], datasets: Iterable[str], results: Results
) -> list[tuple[float, float, float]]:
    """Return ours, the paper's and k, for every data set where both have a number."""
    found = []
    for average in places:
        for dataset in datasets:
            place = Place(
                average.metric, average.candidates, average.method, average.selection, dataset,
                average.ratio,
            )  # fmt: skip
            ours, paper = results.get(place), published().get(place)
            if ours is not None and not ours.is_dash and paper is not None:
                found.append((ours.mean, paper, ours.k))
    return found


def _compare(place: Place, pairs: list[tuple[float, float, float]]) -> Comparison:
    ours, paper, k = _means(pairs)
    return Comparison(place, ours, paper, k, len(pairs))


def _means(pairs: list[tuple[float, float, float]]) -> tuple[float, float, float]:
    if not pairs:
        return NAN, NAN, NAN
    ours, paper, k = np.mean(pairs, axis=0)
    return float(ours), float(paper), float(k)
