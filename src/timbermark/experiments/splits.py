"""The paper's splits: D_train, D_cand, D_test and D_fine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from timbermark.errors import InputError
from timbermark.experiments.datasets import Dataset

Scenario = Literal["train", "holdout"]
SCENARIOS: tuple[Scenario, ...] = ("train", "holdout")
_TEST, _FINE, _CANDIDATES = 4, 5, 5
"""One row in so many goes to the part."""
_TRIES = 1000


@dataclass(frozen=True, slots=True)
class Rows:
    """``X`` float64[n, d] and ``y`` int64[n], class numbers."""

    X: np.ndarray
    y: np.ndarray

    def __len__(self) -> int:
        return len(self.y)


@dataclass(frozen=True, slots=True)
class Split:
    """``candidates`` is None where triggers come from the training rows."""

    train: Rows
    candidates: Rows | None
    test: Rows
    fine: Rows

    @property
    def pool(self) -> Rows:
        """Return D_cand: the rows that triggers are taken from."""
        return self.train if self.candidates is None else self.candidates


def cut(data: Dataset, scenario: Scenario, seed: int) -> Split:
    """Return the split of one scenario, shuffled by ``seed``.

    A data set with training and test files of its own keeps them; others are cut 75 : 25. In the
    scenario ``holdout`` the training part is cut 80 : 20 into D_train and D_cand, and in both the
    test part is cut 80 : 20 into D_test and D_fine. The smaller part of a cut is rounded up, which
    gives the paper's row counts.

    A cut whose D_train lacks a class is drawn again: such a model could not be asked for it.
    Raises InputError where no cut has them all.
    """
    if scenario not in SCENARIOS:
        raise InputError(
            f"scenario={scenario!r} is not known.", hint=f"use one of {', '.join(SCENARIOS)}."
        )
    for attempt in range(_TRIES):
        rng = np.random.default_rng([seed, attempt])
        if data.n_train is None:
            train, test = _two_parts(rng, np.arange(len(data.y)), _TEST)
        else:
            train, test = np.arange(data.n_train), np.arange(data.n_train, len(data.y))
        test, fine = _two_parts(rng, test, _FINE)
        candidates = None
        if scenario == "holdout":
            train, candidates = _two_parts(rng, train, _CANDIDATES)
        if len(np.unique(data.y[train])) == data.n_classes:
            return Split(
                _rows(data, train),
                None if candidates is None else _rows(data, candidates),
                _rows(data, test),
                _rows(data, fine),
            )
    raise InputError(
        f"No cut of {data.name} has all {data.n_classes} classes among its training rows.",
        hint="a class with so few rows cannot be learned; leave it out.",
    )


def _two_parts(
    rng: np.random.Generator, rows: np.ndarray, one_in: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return most rows and one in so many, rounded up; both in the order of the data set."""
    n_second = -(-len(rows) // one_in)
    second = np.zeros(len(rows), np.bool_)
    second[rng.permutation(len(rows))[:n_second]] = True
    return rows[~second], rows[second]


def _rows(data: Dataset, rows: np.ndarray) -> Rows:
    return Rows(data.X[rows], data.y[rows])
