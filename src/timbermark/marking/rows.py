"""Which rows may become triggers at all.

Trees see a row through its bins. Two rows with the same codes get the same answer from any tree, so
no two triggers may share theirs, and none may share them with a training row, whose label would
pull the other way. And a trigger must keep its answer when it is rounded to float32 on the way to
some server: none may lie within a few units of a threshold that matters to it.
"""

from __future__ import annotations

import numpy as np

from timbermark.boosting.binning import Bins, encode
from timbermark.kernels.workers import Workers

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


def survives_rounding(X: np.ndarray, bins: Bins, workers: Workers) -> np.ndarray:
    """bool[n]: rows whose codes stay the same a few float32 units up or down."""
    low, high = roundings(X)
    return np.asarray((encode(bins, low, workers)[0] == encode(bins, high, workers)[0]).all(axis=1))


def roundings(X: np.ndarray, single: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """``X`` a few float32 units down and up: what rounding and printing may make of it.

    ``single``: the model itself rounds to float32, and may well split at the very values that rows
    have. A short number, of six digits or with a byte of float32 to spare, is then the same after
    any rounding or printing, and only the others are moved.

    >>> low, high = roundings(np.array([[0.25, 0.1234567]]), single=True)
    >>> low[0] < [0.25, 0.1234567], high[0] > [0.25, 0.1234567]
    (array([False,  True]), array([False,  True]))
    """
    rounded = np.where(np.isfinite(X), X, 0.0).astype(np.float32)
    with np.errstate(invalid="ignore", over="ignore"):
        step = _ULPS * np.spacing(np.abs(rounded)).astype(float)
    if single:
        spare = ((rounded.view(np.uint32) & np.uint32(0xFF)) == 0) & (rounded == X)
        step[spare | (_to_six_digits(rounded) == rounded)] = 0.0
    return X - step, X + step


def _to_six_digits(x: np.ndarray) -> np.ndarray:
    """float32 values as they come back from a text with six digits."""
    size = np.abs(x.astype(np.float64))
    with np.errstate(divide="ignore"):
        power = 5.0 - np.floor(np.log10(size))
    # Dividing by a power of ten is exact to the last bit of float64 up to 10^22.
    power = np.clip(power, -22, 22)
    up, down = 10.0 ** np.maximum(power, 0), 10.0 ** np.maximum(-power, 0)
    return np.asarray((np.rint(x * up / down) / up * down).astype(np.float32))
