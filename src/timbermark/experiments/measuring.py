"""One group of cells: train the base model, mark it in every way, measure each."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from timbermark.attacks.tuning import tune_model_only, tune_regrown, tune_with_state
from timbermark.errors import InputError
from timbermark.estimator import TimberClassifier
from timbermark.experiments import metrics
from timbermark.experiments.datasets import Dataset
from timbermark.experiments.grid import Cell, trigger_counts
from timbermark.experiments.splits import Split, cut
from timbermark.marking.in_place import Flipped, flip_in_place, make_pool
from timbermark.marking.strategies import Pool, Proposal, propose_rows

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
        found = _Finder(base, max(cell.ratio for cell in cells))
        for cell in cells:
            start = time.perf_counter()
            n, k = trigger_counts(len(base.split.train), cell.ratio)
            try:
                mark = base.mark(cell, found.candidates(cell))
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
        right = metrics.accuracy(model.predict(split.test.X), split.test.y)
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

    def find(self, cell: Cell, ratio: float) -> Proposal:
        """Return the candidates of a cell's method."""
        n, _ = trigger_counts(len(self.split.train), ratio)
        return propose_rows(cell.method, self.pool, n, self.seed)

    def mark(self, cell: Cell, found: Proposal) -> Flipped:
        """Mark the model as a cell says."""
        train = self.split.train
        return flip_in_place(
            self.model, train.X, train.y, strategy=cell.method, selection=cell.selection,
            ratio=cell.ratio, candidates=self.separate, random_state=self.seed, proposal=found,
        )  # fmt: skip


class _Finder:
    """Candidates, found once for all cells that share them."""

    def __init__(self, base: Base, highest: float) -> None:
        self._base = base
        self._highest = highest
        self._known: dict[tuple[str, float], Proposal] = {}

    def candidates(self, cell: Cell) -> Proposal:
        """Return the candidates of the cell. Raises InputError where there are too few."""
        ratio = self._highest if cell.method in _PREFIX else cell.ratio
        key = (cell.method, ratio)
        if key not in self._known:
            self._known[key] = self._base.find(cell, ratio)
        found = self._known[key]
        n, _ = trigger_counts(len(self._base.split.train), cell.ratio)
        return replace(found, order=found.order[:n], neighbours=found.neighbours[:n])


def measure(base: Base, mark: Flipped) -> Measures:
    """Return all measures of one mark."""
    test, fine = base.split.test, base.split.fine
    triggers = base.split.pool.X[mark.triggers]
    rest = np.setdiff1d(mark.candidates, mark.triggers)
    answers = mark.model.predict(triggers)
    took = metrics.effectiveness(answers, mark.target)
    right = metrics.accuracy(mark.model.predict(test.X), test.y)
    stayed = metrics.resilience(
        base.predicted[rest], mark.model.predict(base.split.pool.X[rest]) if len(rest) else rest
    )
    tuned = [
        tune(mark.model, fine.X, fine.y)
        for tune in (tune_with_state, tune_model_only, tune_regrown)
    ]
    kept = [metrics.robustness(answers, model.predict(triggers), mark.target) for model in tuned]
    after = [metrics.accuracy(model.predict(test.X), test.y) for model in tuned]
    return Measures(
        accuracy_before=base.accuracy,
        effectiveness=took,
        accuracy=right,
        adjusted_accuracy=metrics.adjusted_accuracy(right, took),
        robustness=kept[0],
        robustness_model_only=kept[1],
        robustness_regrown=kept[2],
        resilience=stayed,
        adjusted_resilience=metrics.adjusted_resilience(stayed, took),
        accuracy_tuned=after[0],
        accuracy_model_only=after[1],
        accuracy_regrown=after[2],
    )
