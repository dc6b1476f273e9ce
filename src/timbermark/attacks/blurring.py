"""Blurring: noise on leaves, coarse leaves, moved thresholds, coarse or noisy input and answers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from timbermark.attacks.stolen import LeafValues, NotOfferedError, Stolen, Thief, serve_trees
from timbermark.marking.mixing import row_keys

_VOTERS = 9


def add_leaf_noise(stolen: Stolen, thief: Thief, size: float) -> Stolen:
    """Add noise to every leaf, with a standard deviation of ``size`` times that of the leaves.

    Needs: file.
    """
    rng = thief.rng("leaf noise")
    leaves = LeafValues.of(stolen, thief.X[:1])
    return leaves.put([v + size * v.std() * rng.standard_normal(len(v)) for v in leaves.value])


def round_leaves(stolen: Stolen, thief: Thief, bits: float) -> Stolen:
    """Round every leaf to one of 2^``bits`` evenly spaced values; 16 stands for float16.

    Needs: file.
    """
    leaves = LeafValues.of(stolen, thief.X[:1])

    def coarse(value: np.ndarray) -> np.ndarray:
        if bits == 16:
            return value.astype(np.float16).astype(np.float64)
        low, high = float(value.min()), float(value.max())
        unit = (high - low) / (2.0**bits - 1.0)
        return low + unit * np.rint((value - low) / unit) if unit > 0.0 else value

    return leaves.put([coarse(value) for value in leaves.value])


def move_thresholds(stolen: Stolen, thief: Thief, size: float) -> Stolen:
    """Move every threshold by noise of ``size`` times its feature's standard deviation.

    Needs: file, rows. The thief serves the trees without the library, which other thresholds need
    not concern.
    """
    e = stolen.trees().ensemble
    if len(e.category_values) or e.n_features != thief.X.shape[1]:
        raise NotOfferedError("some splits are of categories and have no threshold.")
    spread = np.append(np.nanstd(thief.X, axis=0), 0.0)
    noise = thief.rng("thresholds").standard_normal(e.n_nodes)
    return serve_trees(stolen, replace(e, threshold=e.threshold + size * spread[e.feature] * noise))


def round_input(stolen: Stolen, thief: Thief, levels: float) -> Stolen:
    """Round each feature to one of ``levels`` quantiles of the thief's rows before answering.

    Needs: answers, rows.
    """
    grids = [np.unique(column[~np.isnan(column)]) for column in thief.X.T]
    grids = [
        np.unique(np.quantile(g, np.linspace(0, 1, int(levels)), method="nearest")) if len(g) else g
        for g in grids
    ]

    def answer(X: np.ndarray) -> np.ndarray:
        coarse = X.copy()
        for j, grid in enumerate(grids):
            if len(grid) > 1:
                middle = (grid[1:] + grid[:-1]) / 2.0
                nearest = grid[np.searchsorted(middle, X[:, j])]
                coarse[:, j] = np.where(np.isnan(X[:, j]), np.nan, nearest)
        return stolen.answer(coarse)

    return stolen.served(answer)


def add_input_noise(stolen: Stolen, thief: Thief, size: float) -> Stolen:
    """Add noise of ``size`` standard deviations to every feature before answering.

    Needs: answers, rows. The noise follows from the row, so that a question asked twice is answered
    alike.
    """
    return _vote(stolen, thief, size, 1)


def vote_on_noisy_input(stolen: Stolen, thief: Thief, size: float) -> Stolen:
    """Answer with the mean over nine noisy copies of the row.

    Needs: answers, rows.
    """
    return _vote(stolen, thief, size, _VOTERS)


def round_answers(stolen: Stolen, thief: Thief, digits: float) -> Stolen:
    """Round the probabilities that are given away to so many ``digits``; 0 leaves labels alone.

    Needs: answers.
    """

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
