"""Which rows could carry a symbol: the paper's four strategies and the random baseline.

Every strategy answers with an ordering of the rows it allows, best first. The first n are the
paper's candidates C; the rest are there to replace a candidate that cannot be used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from sklearn.cluster import KMeans, MiniBatchKMeans
from sklearn.metrics import silhouette_score
from sklearn.neighbors import NearestNeighbors

from timbermark.errors import InputError
from timbermark.marking.geometry import scale_rows

Strategy = Literal["wrong", "outlier", "cluster", "confidence", "random"]
STRATEGIES: tuple[Strategy, ...] = ("wrong", "outlier", "cluster", "confidence", "random")

_SILHOUETTE_ROWS = 2000
_MOST_CLUSTERS = 10
_FEW = 0.01
_EXACT_KMEANS = 64
"""Clusters up to which the exact k-means is fast; beyond, mini-batches are."""


@dataclass(frozen=True, slots=True)
class Pool:
    """Rows with their truth and what the unmarked model says of them.

    ``X`` float64[n, d]; ``label`` int64[n], class numbers; ``confidence`` float64[n, K],
    probabilities; ``allowed`` bool[n]: rows that may become triggers at all; ``others``
    float64[m, d]: rows that are no candidates but live among them.
    """

    X: np.ndarray
    label: np.ndarray
    confidence: np.ndarray
    allowed: np.ndarray
    others: np.ndarray | None = None

    @property
    def predicted(self) -> np.ndarray:
        """int64[n]."""
        return np.asarray(self.confidence.argmax(axis=1))

    @property
    def sureness(self) -> np.ndarray:
        """float64[n]: the probability of the predicted class."""
        return np.asarray(self.confidence.max(axis=1))


@dataclass(frozen=True, slots=True)
class Candidates:
    """``order`` int64[m]: rows of the pool, best first; ``neighbours`` int64[m, l]: rows that are
    to keep their labels when the row beside them is a trigger (Cluster Center Flip only)."""

    order: np.ndarray
    neighbours: np.ndarray


def find_candidates(
    strategy: Strategy, pool: Pool, n: int, seed: int = 0, raw: bool = False, n_neighbours: int = 2
) -> Candidates:
    """The candidates of ``strategy``; at least ``n`` of them, or an InputError that says why not.

    ``raw`` measures distances on raw values as the paper does, instead of scaled ones.
    """
    if strategy not in STRATEGIES:
        raise InputError(
            f"strategy={strategy!r} is not known.", hint=f"use one of {', '.join(STRATEGIES)}."
        )
    right = pool.allowed & (pool.predicted == pool.label)
    if strategy == "wrong":
        found = _wrong(pool)
    elif strategy == "confidence":
        found = _by_sureness(pool, np.flatnonzero(right))
    elif strategy == "random":
        found = np.random.default_rng(seed).permutation(np.flatnonzero(pool.allowed))
    elif strategy == "outlier":
        found = _outliers(pool, np.flatnonzero(right), seed, raw)
    else:
        return _cluster_centres(pool, np.flatnonzero(right), n, seed, raw, n_neighbours)
    _need(strategy, len(found), n)
    return Candidates(found, np.empty((len(found), 0), np.int64))


def _need(strategy: str, found: int, wanted: int) -> None:
    if found < wanted:
        kind = "wrong predictions" if strategy == "wrong" else "usable rows"
        raise InputError(
            f"The {strategy} strategy needs {wanted} candidates but finds only {found} {kind}.",
            hint=f"at most {found} fit; ask for fewer, give more candidate rows, or use another "
            "strategy.",
        )


def _by_sureness(pool: Pool, rows: np.ndarray) -> np.ndarray:
    return rows[np.argsort(pool.sureness[rows], kind="stable")]


def _wrong(pool: Pool) -> np.ndarray:
    """Eq. 3: rows the model gets wrong, least sure first."""
    if pool.confidence.shape[1] < 3:
        raise InputError(
            "Wrong Prediction Flip needs at least 3 classes: with 2, a wrong prediction leaves no "
            "third label.",
            hint="use strategy='confidence'.",
        )
    return _by_sureness(pool, np.flatnonzero(pool.allowed & (pool.predicted != pool.label)))


def _outliers(pool: Pool, rows: np.ndarray, seed: int, raw: bool) -> np.ndarray:
    """Eq. 4: right predictions, farthest from the nearest of m centroids first; m by silhouette."""
    if len(rows) < 3:
        return rows
    X = scale_rows(pool.X, raw)
    some = np.random.default_rng(seed).permutation(len(X))[:_SILHOUETTE_ROWS]
    best, centres = -2.0, X.mean(axis=0, keepdims=True)
    for m in range(2, min(_MOST_CLUSTERS, len(some) - 1) + 1):
        model = KMeans(m, n_init=1, random_state=seed).fit(X)
        there = model.labels_[some]
        if len(np.unique(there)) < 2:
            continue
        quality = silhouette_score(X[some], there)
        if quality > best:
            best, centres = quality, model.cluster_centers_
            if not raw:
                # A row far enough out is a cluster of its own, and then at no distance from it.
                sizes = np.bincount(model.labels_, minlength=m)
                centres = centres[sizes > _FEW * len(X)]
    distance = np.sqrt(((X[rows, None, :] - centres[None]) ** 2).sum(axis=2)).min(axis=1)
    return rows[np.argsort(-distance, kind="stable")]


def _cluster_centres(
    pool: Pool, rows: np.ndarray, n: int, seed: int, raw: bool, n_neighbours: int
) -> Candidates:
    """Eq. 5: the row nearest to each of n centroids, and its nearest neighbours as anchors."""
    _need("cluster", len(rows), n)
    X = scale_rows(pool.X, raw)[rows]
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
    # Two centroids may share their nearest rows: least sure rows fill up, then stand by.
    by_sureness = np.argsort(pool.sureness[rows], kind="stable")
    rest = [int(row) for row in by_sureness if int(row) not in taken]
    order = np.array(chosen + rest, np.int64)
    width = min(len(X), n_neighbours + 64)
    # Stand-ins have none: what they replace could not be set with its own.
    around = index.kneighbors(X[order[:n]], width, return_distance=False)
    centres = set(order[:n].tolist())
    neighbours = np.full((len(order), n_neighbours), -1, np.int64)
    for i, options in enumerate(around):
        free = [int(row) for row in options if int(row) not in centres and row != order[i]]
        neighbours[i, : len(free[:n_neighbours])] = free[:n_neighbours]
    neighbours = np.where(neighbours >= 0, rows[neighbours], -1)
    return Candidates(rows[order], neighbours)
