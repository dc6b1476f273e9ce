"""Mixed rows: most values from one row, the rest from another.

They serve twice: as candidates, so that no real row (no real customer) has to be a trigger, and as
surrogates where there are no training rows. A mixture is a plausible row that the model has never
seen, so that the model has little to say against another answer.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from timbermark.kernels.hashing import hash_rows

SHARES = (0.1, 0.2, 0.4)
"""Shares of values that mixtures take from the second row; they alternate."""


class Mixtures(NamedTuple):
    """``X`` float64 [m, d]: mixed rows; ``base`` int64 [m]: the row that most of each is from."""

    X: np.ndarray
    base: np.ndarray


def row_keys(X: np.ndarray, seed: int) -> np.ndarray:
    """Return uint64 [n]: a hash of each row and the seed.

    Sorting by it gives an order that depends on the rows alone, not on how they were given.

    >>> keys = row_keys(np.array([[1.0, 2.0], [3.0, 4.0], [1.0, 2.0]]), seed=0)
    >>> bool(keys[0] == keys[2]), bool(keys[0] == keys[1])
    (True, False)
    """
    keys = np.empty(len(X), np.uint64)
    # -0.0 and 0.0 are one value, and so are all NaN.
    plain = np.where(np.isnan(X), np.nan, X + 0.0)
    bits = np.ascontiguousarray(plain, np.float64).view(np.uint64)
    hash_rows(bits, np.uint64(seed & 0xFFFFFFFFFFFFFFFF), keys)
    return keys


def mix_rows(X: np.ndarray, n: int, rng: np.random.Generator) -> Mixtures:
    """Return up to ``n`` distinct mixtures of the rows of ``X``, none of them a row of it.

    >>> X = np.arange(12.0).reshape(4, 3)
    >>> mixed = mix_rows(X, 50, np.random.default_rng(0))
    >>> set(mixed.X[:, 0]) <= set(X[:, 0])
    True
    """
    if len(X) == 0 or n == 0:
        return Mixtures(X[:0], np.zeros(0, np.int64))
    first = rng.permutation(len(X))[np.arange(n) % len(X)]
    second = rng.integers(len(X), size=n)
    share = np.asarray(SHARES)[np.arange(n) % len(SHARES)]
    mixed = np.where(rng.random((n, X.shape[1])) < share[:, None], X[second], X[first])
    known = row_keys(X, 0)
    keys = row_keys(mixed, 0)
    _, once = np.unique(keys, return_index=True)
    fresh = np.zeros(n, np.bool_)
    fresh[once] = True
    fresh &= ~np.isin(keys, known)
    return Mixtures(mixed[fresh], first[fresh])
