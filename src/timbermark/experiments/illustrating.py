"""The strategies in two dimensions: a small data set that can be drawn, really marked."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from timbermark.estimator import TimberClassifier
from timbermark.experiments.splits import Rows
from timbermark.marking.in_place import Flipped, flip_in_place
from timbermark.marking.strategies import Strategy

STRATEGIES: tuple[Strategy, ...] = ("wrong", "outlier", "cluster", "confidence")
_N_TRAIN, _N_CANDIDATES = 400, 120
_RATIO = 6 / _N_TRAIN
"""Six candidates, three triggers: few enough to be told apart in a figure."""
_CENTRES = np.array([[-1.1, -0.6], [1.1, -0.5], [0.0, 1.1]])
_SPREAD = 0.62


@dataclass(frozen=True, slots=True)
class Illustration:
    """A model of points in the plane, the rows it may be marked with, and a mark per strategy."""

    model: TimberClassifier
    pool: Rows
    marks: dict[str, Flipped]


def illustrate(seed: int = 0) -> Illustration:
    """Train on three overlapping clouds and mark the model with each of the four strategies."""
    train, pool = _clouds(_N_TRAIN, seed), _clouds(_N_CANDIDATES, seed + 1)
    model = TimberClassifier(preset="paper", random_state=seed, n_jobs=1).fit(train.X, train.y)
    marks: dict[str, Flipped] = {
        strategy: flip_in_place(
            model, train.X, train.y, strategy=strategy, selection="confidence", ratio=_RATIO,
            candidates=(pool.X, pool.y), random_state=seed,
        )
        for strategy in STRATEGIES
    }  # fmt: skip
    return Illustration(model, pool, marks)


def _clouds(n: int, seed: int) -> Rows:
    rng = np.random.default_rng(seed)
    y = np.arange(n) % len(_CENTRES)
    return Rows(_CENTRES[y] + rng.normal(scale=_SPREAD, size=(n, 2)), y)
