"""Distances between rows on raw feature values, as the paper measures them."""

from __future__ import annotations

import numpy as np


def fill_missing(X: np.ndarray) -> np.ndarray:
    """Return float64[n, d]: ``X`` with each missing value replaced by its feature's median.

    A feature that is missing throughout becomes 0.

    >>> fill_missing(np.array([[0.0, np.nan], [np.nan, np.nan], [4.0, np.nan]])).tolist()
    [[0.0, 0.0], [2.0, 0.0], [4.0, 0.0]]
    """
    X = np.asarray(X, np.float64)
    known = ~np.isnan(X)
    median = np.zeros(X.shape[1])
    for feature in np.flatnonzero(known.any(axis=0)):
        median[feature] = np.percentile(X[known[:, feature], feature], 50)
    return np.where(known, X, median)


def farthest_points(X: np.ndarray, k: int, first: int) -> np.ndarray:
    """Return int64[k]: indices of rows, each the farthest from those before it (Algorithm 2).

    Takes O(n k) distances.

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
