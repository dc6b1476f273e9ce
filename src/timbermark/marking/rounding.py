"""Rows a few float32 units off: what a trigger may become on its way to a server."""

from __future__ import annotations

import numpy as np

_ULPS = 4


def roundings(X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return ``X`` a few float32 units down and up: what rounding and printing may make of it.

    A short number, of six digits or with a byte of float32 to spare, is the same after rounding to
    float32 and printing, so that only the others are moved. Models often split at the very values
    that rows have.

    >>> low, high = roundings(np.array([[0.25, 0.1234567]]))
    >>> low[0] < [0.25, 0.1234567], high[0] > [0.25, 0.1234567]
    (array([False,  True]), array([False,  True]))
    """
    rounded = np.where(np.isfinite(X), X, 0.0).astype(np.float32)
    with np.errstate(invalid="ignore", over="ignore"):
        step = _ULPS * np.spacing(np.abs(rounded)).astype(float)
    spare = ((rounded.view(np.uint32) & np.uint32(0xFF)) == 0) & (rounded == X)
    step[spare | (_to_six_digits(rounded) == rounded)] = 0.0
    return X - step, X + step


def _to_six_digits(x: np.ndarray) -> np.ndarray:
    """Return float32 values as read back from a text with six digits."""
    size = np.abs(x.astype(np.float64))
    with np.errstate(divide="ignore"):
        power = 5.0 - np.floor(np.log10(size))
    # Dividing by a power of ten is exact to the last bit of float64 up to 10^22.
    power = np.clip(power, -22, 22)
    up, down = 10.0 ** np.maximum(power, 0), 10.0 ** np.maximum(-power, 0)
    return np.asarray((np.rint(x * up / down) / up * down).astype(np.float32))
