"""Rows that stand in for training rows nobody has.

A buyer has a model and some rows of its kind. What marking must not disturb is then shown by
mixtures of these rows: each takes most of its values from one row and the rest from another that
the model puts into the same class, and the model itself says what they are.
"""

from __future__ import annotations

import numpy as np

STAND_INS_PER_ROW, _LEAST = 20, 2_000
MOST_ROWS = 30_000
_SHARES = (0.1, 0.2, 0.4)
"""How much of a mixture comes from the second row, in turn."""


def mix_rows(X: np.ndarray, predicted: np.ndarray, seed: int, most: int = MOST_ROWS) -> np.ndarray:
    """Mixtures of the rows of ``X``, none of them a row of it; ``predicted`` int64[n], classes.

    There are twenty for each row and 2,000 at least, but at most ``most``; in measurement eight
    cost twice as much accuracy.

    >>> X = np.arange(12.0).reshape(4, 3)
    >>> mixed = mix_rows(X, np.array([0, 0, 1, 1]), seed=0)
    >>> set(mixed[:, 0]) <= set(X[:, 0])
    True
    """
    rng = np.random.default_rng(seed)
    if len(X) == 0:
        return X
    n = min(max(STAND_INS_PER_ROW * len(X), _LEAST), most)
    # In no order, for there may be more rows than mixtures.
    first = rng.permutation(len(X))[np.arange(n) % len(X)]
    second = np.empty(n, np.int64)
    for number in np.unique(predicted):
        kind = np.flatnonzero(predicted == number)
        where = predicted[first] == number
        second[where] = kind[rng.integers(len(kind), size=int(where.sum()))]
    share = np.asarray(_SHARES)[np.arange(n) % len(_SHARES)]
    mixed = np.where(rng.random((n, X.shape[1])) < share[:, None], X[second], X[first])
    known = {row.tobytes() for row in np.ascontiguousarray(X)}
    new = np.array([row.tobytes() not in known for row in mixed], np.bool_)
    return np.asarray(np.unique(mixed[new], axis=0))
