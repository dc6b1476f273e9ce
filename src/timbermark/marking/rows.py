"""Which rows may become triggers at all.

Trees see a row through its bins. Two rows with the same codes get the same answer from any tree, so
no two triggers may share theirs, and none may share them with a training row, whose label would
pull the other way. And a trigger must keep its codes when it is rounded to float32 on the way to
some server: none may lie within a few units of a threshold.
"""

from __future__ import annotations

import numpy as np

from timbermark.boosting.binning import Bins, encode
from timbermark.boosting.workers import Workers

_ULPS = 4


def distinct_codes(codes: np.ndarray) -> np.ndarray:
    """bool[n]: the first row of each set of rows with the same codes.

    >>> distinct_codes(np.array([[1, 2], [1, 2], [3, 4]])).tolist()
    [True, False, True]
    """
    _, first = np.unique(codes, axis=0, return_index=True)
    kept = np.zeros(len(codes), np.bool_)
    kept[first] = True
    return kept


def repeated_codes(codes: np.ndarray) -> np.ndarray:
    """bool[n]: rows whose codes some other row has, too."""
    _, inverse, counts = np.unique(codes, axis=0, return_inverse=True, return_counts=True)
    return np.asarray(counts[inverse.ravel()] > 1)


def shared_codes(codes: np.ndarray, others: np.ndarray) -> np.ndarray:
    """bool[n]: rows of ``codes`` that are rows of ``others``."""
    known = {row.tobytes() for row in np.ascontiguousarray(others)}
    return np.array([row.tobytes() in known for row in np.ascontiguousarray(codes)], np.bool_)


def survives_rounding(
    X: np.ndarray, bins: Bins, workers: Workers, single: bool = False
) -> np.ndarray:
    """bool[n]: rows whose codes stay the same a few float32 units up or down.

    ``single``: the model itself rounds to float32, and may well split at the very values that rows
    have. A short number, which float32 holds with a byte to spare, is then the same after any
    rounding or printing, and only the others are moved.
    """
    rounded = np.where(np.isfinite(X), X, 0.0).astype(np.float32)
    with np.errstate(invalid="ignore", over="ignore"):
        step = _ULPS * np.spacing(np.abs(rounded)).astype(float)
    if single:
        short = (rounded.view(np.uint32) & np.uint32(0xFF)) == 0
        step[short & (rounded == X)] = 0.0
    low, _ = encode(bins, X - step, workers)
    high, _ = encode(bins, X + step, workers)
    return np.asarray((low == high).all(axis=1))
