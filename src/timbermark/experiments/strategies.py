"""The paper's four strategies for finding candidates, and its random baseline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from sklearn.cluster import KMeans, MiniBatchKMeans
from sklearn.metrics import silhouette_score
from sklearn.neighbors import NearestNeighbors

from timbermark.errors import InputError
from timbermark.experiments.geometry import fill_missing

Strategy = Literal["wrong", "outlier", "cluster", "confidence", "random"]
STRATEGIES: tuple[Strategy, ...] = ("wrong", "outlier", "cluster", "confidence", "random")

_SILHOUETTE_ROWS = 2000
_MOST_CLUSTERS = 10
_EXACT_KMEANS = 64
"""Clusters up to which the exact k-means is fast; beyond, mini-batches are."""
_NEIGHBOURS = 2
"""The paper's l: how many rows beside a cluster center keep their labels."""


@dataclass(frozen=True, slots=True)
class Pool:
    """Rows with their true labels and the unmarked model's probabilities for them.

    ``X`` float64[n, d]; ``label`` int64[n], class numbers; ``confidence`` float64[n, K],
    probabilities; ``allowed`` bool[n]: rows that may become candidates.
    """

    X: np.ndarray
    label: np.ndarray
    confidence: np.ndarray
    allowed: np.ndarray

    @property
    def predicted(self) -> np.ndarray:
        """Return int64[n]: the predicted class numbers."""
        return np.asarray(self.confidence.argmax(axis=1))

    @property
    def sureness(self) -> np.ndarray:
        """Return float64[n]: the probability of the predicted class."""
        return np.asarray(self.confidence.max(axis=1))


@dataclass(frozen=True, slots=True)
class Candidates:
    """The candidates C of one strategy and ratio; both selections choose from them.

    ``order`` int64[n]: rows of the pool, best first. ``neighbours`` int64[n, l]: the rows beside
    each candidate that keep their labels if it becomes a trigger, -1 where there is none (Cluster
    Center Flip only, else l = 0).
    """

    pool: Pool
    order: np.ndarray
    neighbours: np.ndarray


def find_candidates(strategy: Strategy, pool: Pool, n: int, seed: int = 0) -> Candidates:
    """Return the ``n`` best candidates of ``strategy``, by distances on raw values.

    Raises InputError where the pool has fewer.
    """
    right = np.flatnonzero(pool.allowed & (pool.predicted == pool.label))
    if strategy == "wrong":
        order = _wrong(pool)
    elif strategy == "confidence":
        order = _by_sureness(pool, right)
    elif strategy == "random":
        order = np.random.default_rng(seed).permutation(np.flatnonzero(pool.allowed))
    elif strategy == "outlier":
        order = _outliers(pool, right, seed)
    else:
        return _cluster_centers(pool, right, n, seed)
    _need(strategy, len(order), n)
    return Candidates(pool, order[:n], np.empty((n, 0), np.int64))


def _need(strategy: str, found: int, wanted: int) -> None:
    if found < wanted:
        kind = "wrong predictions" if strategy == "wrong" else "usable rows"
        raise InputError(
            f"The {strategy} strategy needs {wanted} candidates but finds only {found} {kind}.",
            hint="use a lower ratio, more candidate rows, or another strategy.",
        )


def _by_sureness(pool: Pool, rows: np.ndarray) -> np.ndarray:
    return rows[np.argsort(pool.sureness[rows], kind="stable")]


def _wrong(pool: Pool) -> np.ndarray:
    """Return the rows that are predicted wrongly, least sure first (Eq. 3)."""
    if pool.confidence.shape[1] < 3:
        raise InputError(
            "Wrong Prediction Flip needs at least 3 classes: with 2, a wrong prediction leaves no "
            "third label.",
            hint="use strategy='confidence'.",
        )
    return _by_sureness(pool, np.flatnonzero(pool.allowed & (pool.predicted != pool.label)))


def _outliers(pool: Pool, rows: np.ndarray, seed: int) -> np.ndarray:
    """Return ``rows``, the farthest from the nearest of m centroids first (Eq. 4).

    The silhouette decides m.
    """
    if len(rows) < 3:
        return rows
    X = fill_missing(pool.X)
    some = np.random.default_rng(seed).permutation(len(X))[:_SILHOUETTE_ROWS]
    best, centers = -2.0, X.mean(axis=0, keepdims=True)
    for m in range(2, min(_MOST_CLUSTERS, len(some) - 1) + 1):
        model = KMeans(m, n_init=1, random_state=seed).fit(X)
        cluster = model.labels_[some]
        if len(np.unique(cluster)) < 2:
            continue
        quality = silhouette_score(X[some], cluster)
        if quality > best:
            best, centers = quality, model.cluster_centers_
    distance = np.sqrt(((X[rows, None, :] - centers[None]) ** 2).sum(axis=2)).min(axis=1)
    return rows[np.argsort(-distance, kind="stable")]


def _cluster_centers(pool: Pool, rows: np.ndarray, n: int, seed: int) -> Candidates:
    """Return the row nearest to each of ``n`` centroids, with its nearest neighbours (Eq. 5)."""
    _need("cluster", len(rows), n)
    X = fill_missing(pool.X)[rows]
    make = KMeans if n <= _EXACT_KMEANS else MiniBatchKMeans
    model = make(n, n_init=1, random_state=seed).fit(X)
    index = NearestNeighbors().fit(X)
    chosen: list[int] = []
    taken: set[int] = set()
    nearest = index.kneighbors(model.cluster_centers_, min(len(X), 16), return_distance=False)
    for options in nearest:
        free = [int(row) for row in options if int(row) not in taken]
        if free:
            chosen.append(free[0])
            taken.add(free[0])
    # Where centroids share all their nearest rows, the least sure rows fill up.
    by_sureness = np.argsort(pool.sureness[rows], kind="stable")
    rest = [int(row) for row in by_sureness if int(row) not in taken]
    order = np.array((chosen + rest)[:n], np.int64)
    centers = set(order.tolist())
    around = index.kneighbors(X[order], min(len(X), _NEIGHBOURS + 64), return_distance=False)
    neighbours = np.full((n, _NEIGHBOURS), -1, np.int64)
    for i, options in enumerate(around):
        free = [int(row) for row in options if int(row) not in centers][:_NEIGHBOURS]
        neighbours[i, : len(free)] = rows[free]
    return Candidates(pool, rows[order], neighbours)
