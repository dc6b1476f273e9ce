"""Attacks by the service: it changes questions, answers, or who answers; the file stays as it is.

A service can round or blur what it is asked and what it answers, and it can dodge: questions that
look like triggers are answered by a model of the thief's own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from timbermark.attacks.own_models import own_model
from timbermark.attacks.stolen import NotOfferedError, Stolen, Thief
from timbermark.marking.mixing import mix_rows, row_keys

_VOTERS = 9
_FOLDS = 3
_MOST_DECIMALS = 8
_EXACT, _SINGLE = 1e-12, 1e-7
"""The relative error of numbers that were written with decimals, as float64 and as float32."""
_CLEAR = 0.01
"""The largest error, in steps of a grid, at which a number can be told to be on it or off it."""


@dataclass(frozen=True, slots=True)
class Grid:
    """The numbers on which a column lies: whole multiples of ``step``, up to relative errors."""

    step: float
    error: float

    def round(self, values: np.ndarray) -> np.ndarray:
        """Return the nearest numbers on the grid."""
        return np.asarray(np.rint(values / self.step) * self.step)

    def is_off(self, values: np.ndarray) -> np.ndarray:
        """Return bool: which finite numbers are not on the grid."""
        steps = values / self.step
        with np.errstate(invalid="ignore"):
            off = np.abs(steps - np.rint(steps)) > np.maximum(self.error * np.abs(steps), 1e-9)
        return np.asarray(np.isfinite(values) & off)


def find_grid(values: np.ndarray) -> Grid | None:
    """Return the grid of a column, None where its values lie on none.

    >>> find_grid(np.array([0.25, 1.5, 3.75])).step, find_grid(np.array([3.0, 9.0, 27.0])).step
    (0.25, 3.0)
    >>> find_grid(np.random.default_rng(0).normal(size=50)) is None
    True
    """
    known = np.unique(values[np.isfinite(values)])
    known = known[known != 0.0]
    if len(known) == 0:
        return None
    largest = float(np.abs(known).max())
    for error in (_EXACT, _SINGLE):
        for decimals in range(_MOST_DECIMALS + 1):
            scaled = known * 10.0**decimals
            if largest * 10.0**decimals * error > _CLEAR:
                break
            whole = np.rint(scaled)
            if (np.abs(scaled - whole) <= error * np.abs(scaled)).all() and (whole != 0.0).all():
                step = int(np.gcd.reduce(np.abs(whole).astype(np.int64)))
                # Of one or two values, what they have in common says little.
                return Grid((step if len(known) > 2 else 1) / 10.0**decimals, error)
    return None


def round_input(stolen: Stolen, thief: Thief, levels: float) -> Stolen:
    """Round each feature to one of ``levels`` quantiles of the thief's values before answering.

    Needs: answers, rows. With 0 each column is rounded to its own grid, such as whole numbers or
    two decimals, as the thief's rows show it.
    """
    if levels == 0:
        own = _grids(thief)
        if not any(own):
            raise NotOfferedError("no-grid")
        return _prepared(stolen, lambda X: _round_columns(X, own))
    grids = [np.unique(column[~np.isnan(column)]) for column in thief.X.T]
    grids = [
        np.unique(np.quantile(g, np.linspace(0, 1, int(levels)), method="nearest")) if len(g) else g
        for g in grids
    ]

    def prepare(X: np.ndarray) -> np.ndarray:
        coarse = X.copy()
        for j, grid in enumerate(grids):
            if len(grid) > 1:
                middle = (grid[1:] + grid[:-1]) / 2.0
                nearest = grid[np.searchsorted(middle, X[:, j])]
                coarse[:, j] = np.where(np.isnan(X[:, j]), np.nan, nearest)
        return coarse

    return _prepared(stolen, prepare)


def add_input_noise(stolen: Stolen, thief: Thief, size: float) -> Stolen:
    """Add noise of ``size`` standard deviations to every feature before answering.

    Needs: answers, rows. The noise follows from the row: a question asked twice is answered alike.
    """
    return _vote(stolen, thief, size, 1)


def vote_on_noisy_input(stolen: Stolen, thief: Thief, size: float) -> Stolen:
    """Answer with the mean over nine noisy copies of the row.

    Needs: answers, rows.
    """
    return _vote(stolen, thief, size, _VOTERS)


def round_answers(stolen: Stolen, thief: Thief, digits: float) -> Stolen:
    """Round the probabilities that are given away to so many ``digits``; 0 leaves labels alone.

    Needs: answers. Numbers are rounded to as many digits of the deviation of the model's answers.
    """
    if stolen.task != "classification":
        unit = float(stolen.answer(thief.X).std()) * 10.0**-digits or 1.0
        return stolen.served(lambda X: np.asarray(np.rint(stolen.answer(X) / unit) * unit))

    def answer(X: np.ndarray) -> np.ndarray:
        scores = stolen.answer(X)
        if digits > 0:
            coarse = np.round(scores, int(digits))
            # The label stays what it was, whatever the rounding says.
            best = scores.argmax(axis=1)
            coarse[np.arange(len(X)), best] += 1e-9
        else:
            coarse = np.eye(scores.shape[1])[scores.argmax(axis=1)]
        return np.asarray(coarse / coarse.sum(axis=1, keepdims=True))

    return stolen.served(answer)


def refuse_off_grid(stolen: Stolen, thief: Thief, values: float) -> Stolen:
    """Answer questions with so many ``values`` off their columns' grids with the thief's model.

    Needs: answers, rows, labels. The grids are those of the thief's rows, such as whole numbers.
    """
    grids = _grids(thief)
    if not any(grids):
        raise NotOfferedError("no-grid")

    def is_strange(X: np.ndarray) -> np.ndarray:
        off = [grid.is_off(X[:, j]) for j, grid in enumerate(grids) if grid is not None]
        return np.asarray(np.sum(off, axis=0) >= values)

    return _dodge(stolen, own_model(stolen, thief), lambda X, found: is_strange(X))


def dodge_mixtures(stolen: Stolen, thief: Thief, share: float) -> Stolen:
    """Answer questions that look mixed with the thief's model: at most a ``share`` of real rows.

    Needs: answers, rows, labels. Whoever has rows can mix them, and learn to tell mixtures from
    rows.
    """
    guard, level = thief.once("guard", lambda: _learn_mixtures(thief))
    limit = float(np.quantile(level, 1.0 - share))
    return _dodge(
        stolen, own_model(stolen, thief), lambda X, found: guard.predict_proba(X)[:, 1] >= limit
    )


def dodge_unsure(stolen: Stolen, thief: Thief, share: float) -> Stolen:
    """Answer the ``share`` of questions that the stolen model is least sure of with the thief's.

    Needs: answers (scores), rows, labels.
    """
    if stolen.task != "classification":
        raise NotOfferedError("no-sureness")

    def sureness(scores: np.ndarray) -> np.ndarray:
        ranked = np.sort(scores, axis=1)
        return np.asarray(ranked[:, -1] - ranked[:, -2])

    limit = float(np.quantile(sureness(stolen.answer(thief.X)), share))
    return _dodge(stolen, own_model(stolen, thief), lambda X, found: sureness(found) <= limit)


def dodge_repeats(stolen: Stolen, thief: Thief, strength: float) -> Stolen:
    """Answer questions that repeat another one but for one value with the thief's model.

    Needs: answers, rows, labels. The service compares the questions that it is asked together;
    ``strength`` is how many of the others must differ in one value only.
    """
    return _dodge(
        stolen, own_model(stolen, thief), lambda X, found: count_neighbours(X) >= strength
    )


def count_neighbours(X: np.ndarray) -> np.ndarray:
    """Return int64 [n]: how many other rows differ from each row in exactly one value.

    >>> count_neighbours(np.array([[1.0, 2.0], [1.0, 3.0], [1.0, 3.0], [4.0, 5.0]]))
    array([2, 1, 1, 0])
    """
    columns = np.column_stack([row_keys(X[:, [j]], j) for j in range(X.shape[1])])
    with np.errstate(over="ignore"):
        whole = columns.sum(axis=1, dtype=np.uint64)
        found = np.zeros(len(X), np.int64)
        _, same, equal = np.unique(whole, return_inverse=True, return_counts=True)
        for j in range(X.shape[1]):
            # Rows that agree in all other columns, less those that agree in this one as well.
            _, place, alike = np.unique(
                whole - columns[:, j], return_inverse=True, return_counts=True
            )
            found += alike[place] - equal[same]
    return found


def _dodge(
    stolen: Stolen, own: Stolen, suspects: Callable[[np.ndarray, np.ndarray], np.ndarray]
) -> Stolen:
    """Return a service that answers with ``own`` where ``suspects(rows, answers)`` says so."""

    def answer(X: np.ndarray) -> np.ndarray:
        found = stolen.answer(X)
        dodged = suspects(X, found)
        if dodged.any():
            found = found.copy()
            found[dodged] = own.answer(X[dodged])
        return found

    return stolen.served(answer)


def _prepared(stolen: Stolen, prepare: Callable[[np.ndarray], np.ndarray]) -> Stolen:
    return stolen.served(lambda X: stolen.answer(prepare(X)))


def _grids(thief: Thief) -> list[Grid | None]:
    grids: list[Grid | None] = thief.once("grids", lambda: [find_grid(c) for c in thief.X.T])
    return grids


def _round_columns(X: np.ndarray, grids: list[Grid | None]) -> np.ndarray:
    rounded = X.copy()
    for j, grid in enumerate(grids):
        if grid is not None:
            rounded[:, j] = grid.round(X[:, j])
    return rounded


def _vote(stolen: Stolen, thief: Thief, size: float, voters: int) -> Stolen:
    spread = np.nanstd(thief.X, axis=0)
    seed = int(thief.rng("input noise").integers(1 << 62))

    def answer(X: np.ndarray) -> np.ndarray:
        total: np.ndarray | None = None
        for voter in range(voters):
            found = stolen.answer(X + size * spread * _noise_of_rows(X, seed + voter))
            total = found if total is None else total + found
        return np.asarray(total) / voters

    return stolen.served(answer)


def _noise_of_rows(X: np.ndarray, seed: int) -> np.ndarray:
    """Return standard normal numbers [n, d] that depend on each row and the seed alone."""
    keys = row_keys(X, seed)
    noise = np.empty(X.shape)
    for i, key in enumerate(keys.tolist()):
        noise[i] = np.random.Generator(np.random.PCG64(key)).standard_normal(X.shape[1])
    return noise


def _learn_mixtures(thief: Thief) -> tuple[Any, np.ndarray]:
    """Return a classifier of mixtures, and its scores of real rows that it was not trained on."""
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.model_selection import KFold
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    rng = thief.rng("mixtures")

    def train(rows: np.ndarray) -> Any:
        mixed = mix_rows(rows, 2 * len(rows), rng).X
        X = np.concatenate([rows, mixed])
        y = np.repeat([0, 1], [len(rows), len(mixed)])
        # OpenMP waits in a loop: with more threads than free cores it is slower by far.
        with threadpool_limits(1, user_api="openmp"):
            return HistGradientBoostingClassifier(max_iter=100, random_state=thief.seed).fit(X, y)

    level = np.empty(len(thief.X))
    for seen, held in KFold(_FOLDS, shuffle=True, random_state=thief.seed).split(thief.X):
        level[held] = train(thief.X[seen]).predict_proba(thief.X[held])[:, 1]
    return train(thief.X), level
