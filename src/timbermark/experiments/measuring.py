"""One group of cells: train the base model, mark it in every way, measure each.

The grid says which cells there are, and which share a base model; the paper's six metrics are one
function each.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from itertools import product
from math import ceil

import numpy as np
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from timbermark.attacks.tuning import tune_model_only, tune_regrown, tune_with_state
from timbermark.errors import InputError
from timbermark.estimator import TimberClassifier
from timbermark.experiments.datasets import NAMES, SCENARIOS, Dataset, Scenario, Split, cut
from timbermark.marking.in_place import Flipped, flip_in_place, make_pool
from timbermark.marking.strategies import (
    SELECTIONS,
    Pool,
    Proposal,
    Selection,
    Strategy,
    propose_rows,
)

METHODS: tuple[Strategy, ...] = ("cluster", "outlier", "wrong", "confidence", "random")
RATIOS = (0.001, 0.01, 0.1)
METRICS = ("effectiveness", "adjusted_accuracy", "robustness", "adjusted_resilience")
"""Those the paper has tables of, in its order."""
TABLES: tuple[tuple[str, Scenario], ...] = tuple(
    (metric, scenario) for metric in METRICS for scenario in SCENARIOS
)
"""Metric and scenario of the tables 1 to 8."""

_QUICK_NAMES = ("image_segmentation", "wine_quality")
_QUICK_RATIOS = (0.01, 0.1)


@dataclass(frozen=True, slots=True, order=True)
class Group:
    """What shares a base model and its clusterings."""

    dataset: str
    candidates: Scenario
    seed: int


@dataclass(frozen=True, slots=True, order=True)
class Cell:
    """One cell of the tables, for one seed."""

    dataset: str
    candidates: Scenario
    seed: int
    method: Strategy
    ratio: float
    selection: Selection

    @property
    def group(self) -> Group:
        """Return the group of cells that share its base model."""
        return Group(self.dataset, self.candidates, self.seed)


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be reproduced. ``tables``: their numbers, from 1 to 8."""

    tables: tuple[int, ...]
    datasets: tuple[str, ...]
    ratios: tuple[float, ...]
    seeds: tuple[int, ...]

    @property
    def scenarios(self) -> tuple[Scenario, ...]:
        """Return the scenarios that the tables need."""
        needed = {TABLES[number - 1][1] for number in self.tables}
        return tuple(scenario for scenario in SCENARIOS if scenario in needed)

    @property
    def ways(self) -> tuple[tuple[Scenario, Strategy, Selection, float], ...]:
        """Return scenario, method, selection and ratio of every cell, in the tables' order."""
        return tuple(product(self.scenarios, METHODS, SELECTIONS, self.ratios))

    @property
    def cells(self) -> tuple[Cell, ...]:
        """Return all cells, seed by seed."""
        return tuple(
            Cell(dataset, scenario, seed, method, ratio, selection)
            for seed, dataset in product(self.seeds, self.datasets)
            for scenario, method, selection, ratio in self.ways
        )


def make_plan(
    table: int | None = None,
    datasets: Sequence[str] = (),
    seeds: int | None = None,
    quick: bool = False,
) -> Plan:
    """Return the plan of a run: one table or all; some data sets or all; that many seeds from 0.

    ``quick`` takes a part of the same cells: two data sets, two ratios and one seed, where nothing
    else is said. Raises InputError for an unknown table or data set, or a bad number.

    >>> len(make_plan(seeds=1).cells)
    360
    """
    if table is not None and not 1 <= table <= len(TABLES):
        raise InputError(f"There is no table {table}.", hint=f"use 1 to {len(TABLES)}.")
    for name in datasets:
        if name not in NAMES:
            raise InputError(
                f"There is no data set '{name}' in the paper.",
                hint=f"use one of {', '.join(NAMES)}.",
            )
    if seeds is not None and seeds < 1:
        raise InputError(f"seeds={seeds} must be at least 1.", hint="3 is a good start.")
    wanted = tuple(datasets) or (_QUICK_NAMES if quick else NAMES)
    return Plan(
        tables=tuple(range(1, len(TABLES) + 1)) if table is None else (table,),
        datasets=tuple(name for name in NAMES if name in wanted),
        ratios=_QUICK_RATIOS if quick else RATIOS,
        seeds=tuple(range(seeds or (1 if quick else 3))),
    )


def grouped(cells: Iterable[Cell]) -> dict[Group, list[Cell]]:
    """Return the cells of each group, both in the order in which they come."""
    groups: dict[Group, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(cell.group, []).append(cell)
    return groups


def trigger_counts(n_rows: int, ratio: float) -> tuple[int, int]:
    """Return n = |C| and k = |W| for ``n_rows`` training rows.

    >>> trigger_counts(8344, 0.01)
    (84, 42)
    """
    n = ceil(ratio * n_rows)
    return n, ceil(n / 2)


def effectiveness(answers: np.ndarray, wanted: np.ndarray) -> float:
    """Return the share of triggers that are answered as wanted (Eq. 7).

    >>> effectiveness(np.array([1, 2, 3, 4]), np.array([1, 2, 3, 0]))
    0.75
    """
    return _share(np.asarray(answers) == np.asarray(wanted))


def accuracy(answers: np.ndarray, truth: np.ndarray) -> float:
    """Return the share of test rows that are answered correctly (Eq. 8)."""
    return _share(np.asarray(answers) == np.asarray(truth))


def adjusted_accuracy(accuracy: float, effectiveness: float) -> float:
    """Return accuracy times effectiveness, which is 0 for an unmarked model."""
    return accuracy * effectiveness


def robustness(before: np.ndarray, after: np.ndarray, wanted: np.ndarray) -> float:
    """Return the share of embedded triggers that survive fine-tuning (Eq. 9).

    A trigger is embedded if the marked model, before fine-tuning, answers it as wanted. NaN if none
    is.

    >>> robustness(np.array([1, 2, 9]), np.array([1, 5, 7]), np.array([1, 2, 7]))
    0.5
    """
    embedded = np.asarray(before) == np.asarray(wanted)
    return _share(np.asarray(after)[embedded] == np.asarray(wanted)[embedded])


def resilience(before: np.ndarray, after: np.ndarray) -> float:
    """Return the share of the candidates without triggers that keep their label (Eq. 10).

    NaN if every candidate is a trigger.

    >>> resilience(np.array([1, 2]), np.array([1, 3]))
    0.5
    """
    return _share(np.asarray(before) == np.asarray(after))


def adjusted_resilience(resilience: float, effectiveness: float) -> float:
    """Return resilience times effectiveness."""
    return resilience * effectiveness


def _share(hits: np.ndarray) -> float:
    return float(np.mean(hits)) if len(hits) else float("nan")


NAN = float("nan")
_PREFIX = ("outlier",)
"""Methods whose candidates cost much to find and are, at a lower ratio, the first of a higher."""


@dataclass(frozen=True, slots=True)
class Measures:
    """All that is measured of a cell, shares from 0 to 1; NaN is the dash of the paper's tables.

    ``robustness`` is that of the paper (the owner's state is at hand), the others are a thief's;
    see :mod:`timbermark.attacks.tuning`. The accuracies that end in the same words are those
    of the models after fine-tuning.
    """

    accuracy_before: float = NAN
    effectiveness: float = NAN
    accuracy: float = NAN
    adjusted_accuracy: float = NAN
    robustness: float = NAN
    robustness_model_only: float = NAN
    robustness_regrown: float = NAN
    resilience: float = NAN
    adjusted_resilience: float = NAN
    accuracy_tuned: float = NAN
    accuracy_model_only: float = NAN
    accuracy_regrown: float = NAN


MEASURES: tuple[str, ...] = tuple(field.name for field in fields(Measures))


@dataclass(frozen=True, slots=True)
class Measured:
    """A finished cell. ``n`` = |C|, ``k`` = |W|; ``n_wrong``: how many rows of the pool the base
    model predicts wrongly; ``seconds``: what the cell took, without what its group shares."""

    cell: Cell
    n: int
    k: int
    n_wrong: int
    measures: Measures
    seconds: float


def measure_cells(data: Dataset, cells: Sequence[Cell]) -> Iterator[Measured]:
    """Measure cells of one group, in order; each is given out as soon as it is done.

    One thread throughout, also in k-means, whose sums would else depend on the number of threads:
    a cell's numbers are the same wherever it is run.
    """
    if not cells:
        return
    group = cells[0].group
    with threadpool_limits(limits=1):
        base = Base.train(cut(data, group.candidates, group.seed), group.seed)
        highest, find = max(cell.ratio for cell in cells), cache(base.find)
        for cell in cells:
            start = time.perf_counter()
            n, k = trigger_counts(len(base.split.train), cell.ratio)
            try:
                found = find(cell.method, highest if cell.method in _PREFIX else cell.ratio)
                chosen = replace(found, order=found.order[:n], neighbours=found.neighbours[:n])
                mark = base.mark(cell, chosen)
            except InputError as error:
                if cell.method != "wrong" or error.code != "strategy.too-few":
                    raise
                measures = Measures(accuracy_before=base.accuracy)
            else:
                measures = measure(base, mark)
            seconds = time.perf_counter() - start
            yield Measured(cell, n, k, base.n_wrong, measures, seconds)


@dataclass(frozen=True, slots=True)
class Base:
    """The unmarked model of a group. ``predicted`` int64[pool]: its answers to the pool."""

    split: Split
    seed: int
    model: TimberClassifier
    predicted: np.ndarray
    accuracy: float

    @classmethod
    def train(cls, split: Split, seed: int) -> Base:
        """Train with the paper's engine on D_train."""
        model = TimberClassifier(preset="paper", random_state=seed, n_jobs=1)
        model.fit(split.train.X, split.train.y)
        right = accuracy(model.predict(split.test.X), split.test.y)
        return cls(split, seed, model, model.predict(split.pool.X), right)

    @property
    def separate(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Return the candidates that are no training rows, None where triggers come from these."""
        rows = self.split.candidates
        return None if rows is None else (rows.X, rows.y)

    @property
    def pool(self) -> Pool:
        """Return the rows that triggers are taken from, with the model's answers."""
        return make_pool(self.model, self.split.train.X, self.split.train.y, self.separate)

    @property
    def n_wrong(self) -> int:
        """Return how many rows of the pool, training rows apart, are predicted wrongly."""
        pool = self.pool
        return int((pool.allowed & (pool.predicted != pool.label)).sum())

    def find(self, method: Strategy, ratio: float) -> Proposal:
        """Return the candidates of a method. Raises InputError where there are too few."""
        n, _ = trigger_counts(len(self.split.train), ratio)
        return propose_rows(method, self.pool, n, self.seed)

    def mark(self, cell: Cell, found: Proposal) -> Flipped:
        """Mark the model as a cell says."""
        train = self.split.train
        return flip_in_place(
            self.model, train.X, train.y, strategy=cell.method, selection=cell.selection,
            ratio=cell.ratio, candidates=self.separate, random_state=self.seed, proposal=found,
        )  # fmt: skip


def measure(base: Base, mark: Flipped) -> Measures:
    """Return all measures of one mark."""
    test, fine = base.split.test, base.split.fine
    triggers = base.split.pool.X[mark.triggers]
    rest = np.setdiff1d(mark.candidates, mark.triggers)
    answers = mark.model.predict(triggers)
    took = effectiveness(answers, mark.target)
    right = accuracy(mark.model.predict(test.X), test.y)
    stayed = resilience(
        base.predicted[rest], mark.model.predict(base.split.pool.X[rest]) if len(rest) else rest
    )
    tuned = [
        tune(mark.model, fine.X, fine.y)
        for tune in (tune_with_state, tune_model_only, tune_regrown)
    ]
    kept = [robustness(answers, model.predict(triggers), mark.target) for model in tuned]
    after = [accuracy(model.predict(test.X), test.y) for model in tuned]
    return Measures(
        accuracy_before=base.accuracy,
        effectiveness=took,
        accuracy=right,
        adjusted_accuracy=adjusted_accuracy(right, took),
        robustness=kept[0],
        robustness_model_only=kept[1],
        robustness_regrown=kept[2],
        resilience=stayed,
        adjusted_resilience=adjusted_resilience(stayed, took),
        accuracy_tuned=after[0],
        accuracy_model_only=after[1],
        accuracy_regrown=after[2],
    )
