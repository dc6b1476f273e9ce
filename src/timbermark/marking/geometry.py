"""Distances between rows whose features differ in scale and may be missing."""

from __future__ import annotations

import numpy as np
from sklearn.neighbors import NearestNeighbors

_NEAREST = 10
_MOST_ASKED, _MOST_NAMED = 5_000, 50_000


def scale_rows(X: np.ndarray, raw: bool = False) -> np.ndarray:
    """Rows that a Euclidean distance makes sense on: float64, no NaN.

    Missing values become the feature's median; each feature is centred there and divided by its
    interquartile range (by its standard deviation where that is 0, by 1 where that is, too). A
    constant or all-missing feature becomes 0. ``raw`` only fills in missing values: the paper's
    way.

    >>> scale_rows(np.array([[0.0, 5.0], [2.0, np.nan], [4.0, 5.0]])).tolist()
    [[-1.0, 0.0], [0.0, 0.0], [1.0, 0.0]]
    """
    X = np.asarray(X, np.float64)
    known = ~np.isnan(X)
    some = known.any(axis=0)
    middle = np.zeros(X.shape[1])
    spread = np.ones(X.shape[1])
    for f in np.flatnonzero(some):
        values = X[known[:, f], f]
        low, middle[f], high = np.percentile(values, [25, 50, 75])
        spread[f] = high - low or values.std() or 1.0
    filled = np.where(known, X, middle)
    return filled if raw else (filled - middle) / spread


def farthest_points(X: np.ndarray, k: int, first: int) -> np.ndarray:
    """Indices of ``k`` rows, each the farthest from those before it; O(n k) (Algorithm 2).

    >>> farthest_points(np.array([[0.0], [1.0], [5.0], [9.0]]), 3, first=0).tolist()
    [0, 3, 2]
    """
    chosen = np.empty(k, np.int64)
    nearest = np.full(len(X), np.inf)
    norms = np.einsum("ij,ij->i", X, X)
    here = first
    for i in range(k):
        chosen[i] = here
        distance = norms - 2.0 * (X @ X[here]) + norms[here]
        np.minimum(nearest, np.maximum(distance, 0.0), out=nearest)
        nearest[here] = -1.0
        here = int(nearest.argmax())
    return chosen


def count_admirers(X: np.ndarray, rows: np.ndarray, seed: int = 0) -> np.ndarray:
    """int64[m]: for each of ``rows``, how many rows of ``X`` have it among their ten nearest.

    What a model is taught about a row that nobody counts among its nearest disturbs nobody. Beyond
    5,000 rows a sample of that size is asked, and beyond 50,000 only so many can be named.

    >>> count_admirers(np.array([[0.0], [1.0], [2.0], [50.0]]), np.array([1, 3])).tolist()
    [3, 3]
    """
    rng = np.random.default_rng(seed)
    if len(X) > _MOST_NAMED:
        kept = np.union1d(rng.permutation(len(X))[:_MOST_NAMED], rows)
        X, rows = X[kept], np.searchsorted(kept, rows)
    n = len(X)
    if n < 2:
        return np.zeros(len(rows), np.int64)
    asked = np.sort(rng.permutation(n)[:_MOST_ASKED])
    single = np.ascontiguousarray(X, np.float32)
    index = NearestNeighbors(n_neighbors=min(_NEAREST + 1, n), algorithm="brute").fit(single)
    nearest = index.kneighbors(single[asked], return_distance=False)
    itself = nearest == asked[:, None]
    # A row with many copies may not find itself: then its farthest is one too many.
    itself[~itself.any(axis=1), -1] = True
    return np.asarray(np.bincount(nearest[~itself], minlength=n)[rows])
