"""The paper's strategies for proposing rows as triggers, and its selections among them.

They rank real rows by what the unmarked model says of them and where they lie; distances are on raw
feature values. `timbermark.marking.in_place` marks with them as the paper does, and
`timbermark.marking.choosing` takes them as sources of triggers for the models of every library.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from timbermark.errors import InputError

Strategy = Literal["wrong", "outlier", "cluster", "confidence", "random"]
STRATEGIES: tuple[Strategy, ...] = ("wrong", "outlier", "cluster", "confidence", "random")
SOURCES: tuple[Strategy, ...] = ("outlier", "cluster", "confidence", "wrong")
"""Those that choose triggers in leaves of any library's classifier."""
Selection = Literal["confidence", "distance"]
SELECTIONS: tuple[Selection, ...] = ("confidence", "distance")

_SILHOUETTE_ROWS = 2000
_MOST_CLUSTERS = 10
_EXACT_KMEANS = 64
"""Clusters up to which the exact k-means is fast; beyond, mini-batches are."""
_NEIGHBOURS = 2
"""The paper's l: how many rows beside a cluster center keep their labels."""
_LARGEST = 1e100
"""Values beyond this count as this, because squares of distances must stay finite."""


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
class Proposal:
    """The candidates C of one strategy; both selections choose from them.

    ``order`` int64[n]: rows of the pool, best first. ``neighbours`` int64[n, l]: the rows beside
    each candidate that keep their labels if it becomes a trigger, -1 where there is none (Cluster
    Center Flip only, else l = 0).
    """

    pool: Pool
    order: np.ndarray
    neighbours: np.ndarray


def propose_rows(
    strategy: Strategy, pool: Pool, n: int, seed: int = 0, least: int | None = None
) -> Proposal:
    """Return the ``n`` best candidates of ``strategy``; fewer where ``least`` are enough.

    Raises InputError where the pool has fewer.
    """
    right = np.flatnonzero(pool.allowed & (pool.predicted == pool.label))
    least = n if least is None else least
    if strategy == "wrong":
        order = _wrong(pool)
    elif strategy == "confidence":
        order = _by_sureness(pool, right)
    elif strategy == "random":
        order = np.random.default_rng(seed).permutation(np.flatnonzero(pool.allowed))
    elif strategy == "outlier":
        order = _outliers(pool, right, seed)
    else:
        _need(strategy, len(right), least)
        return _cluster_centers(pool, right, min(n, len(right)), seed)
    _need(strategy, len(order), least)
    return Proposal(pool, order[:n], np.empty((len(order[:n]), 0), np.int64))


def select_rows(selection: Selection, proposal: Proposal, k: int, seed: int = 0) -> np.ndarray:
    """Return int64[k]: positions of the selected rows within ``proposal.order``.

    ``confidence``: the rows that the model is least sure of. ``distance``: a random row first, then
    always the one farthest from those chosen.
    """
    pool, order = proposal.pool, proposal.order
    if selection == "confidence":
        return np.argsort(pool.sureness[order], kind="stable")[:k]
    first = int(np.random.default_rng(seed).integers(len(order)))
    return farthest_points(fill_with_medians(pool.X)[order], k, first)


def flip_labels(confidence: np.ndarray, label: np.ndarray) -> np.ndarray:
    """Return int64[n]: the likeliest class that is neither the truth nor the prediction (Eq. 2).

    ``confidence`` float64[n, K], probabilities; ``label`` int64[n], the truth. Raises InputError
    where a row has no such class.

    >>> flip_labels(np.array([[0.5, 0.3, 0.2], [0.5, 0.3, 0.2]]), np.array([0, 1])).tolist()
    [1, 2]
    """
    predicted = confidence.argmax(axis=1)
    if confidence.shape[1] == 2 and (predicted != label).any():
        raise _two_classes()
    rest = confidence.copy()
    each = np.arange(len(rest))
    rest[each, predicted] = -np.inf
    rest[each, label] = -np.inf
    return np.asarray(rest.argmax(axis=1))


def _need(strategy: str, found: int, wanted: int) -> None:
    if found >= wanted:
        return
    kind = "wrong predictions" if strategy == "wrong" else "usable rows"
    others = ", ".join(name for name in STRATEGIES if name not in (strategy, "wrong"))
    raise InputError(
        f"The {strategy} strategy needs {wanted} candidates but finds only {found} {kind}.",
        hint=f"ask for fewer triggers, give more candidate rows, or take another strategy: "
        f"{others}.",
        code="strategy.too-few",
        parameter="strategy",
    )


def check_flips(strategy: Strategy, n_classes: int) -> None:
    """Raise InputError for Wrong Prediction Flip with two classes: no label is left to flip to."""
    if strategy == "wrong" and n_classes < 3:
        raise _two_classes()


def _two_classes() -> InputError:
    return InputError(
        "With 2 classes, a row that is predicted wrongly has no label to flip to.",
        hint="use another strategy: outlier, cluster or confidence.",
        code="strategy.two-classes",
        parameter="strategy",
    )


def _by_sureness(pool: Pool, rows: np.ndarray) -> np.ndarray:
    return rows[np.argsort(pool.sureness[rows], kind="stable")]


def _wrong(pool: Pool) -> np.ndarray:
    """Return the rows that are predicted wrongly, least sure first (Eq. 3)."""
    return _by_sureness(pool, np.flatnonzero(pool.allowed & (pool.predicted != pool.label)))


def _outliers(pool: Pool, rows: np.ndarray, seed: int) -> np.ndarray:
    """Return ``rows``, the farthest from the nearest of m centroids first (Eq. 4).

    The silhouette decides m.
    """
    from sklearn.cluster import KMeans
    from sklearn.metrics import silhouette_score

    if len(rows) < 3:
        return rows
    X = fill_with_medians(pool.X)
    some = np.random.default_rng(seed).permutation(len(X))[:_SILHOUETTE_ROWS]
    best, centers = -2.0, X.mean(axis=0, keepdims=True)
    for m in range(2, min(_MOST_CLUSTERS, len(some) - 1) + 1):
        model = _fit_quietly(KMeans(m, n_init=1, random_state=seed), X)
        cluster = model.labels_[some]
        if len(np.unique(cluster)) < 2:
            continue
        quality = silhouette_score(X[some], cluster)
        if quality > best:
            best, centers = quality, model.cluster_centers_
    distance = np.sqrt(((X[rows, None, :] - centers[None]) ** 2).sum(axis=2)).min(axis=1)
    return rows[np.argsort(-distance, kind="stable")]


def _fit_quietly(model: Any, X: np.ndarray) -> Any:
    """Fit a clustering without a warning that equal rows make fewer clusters."""
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(X)


def _cluster_centers(pool: Pool, rows: np.ndarray, n: int, seed: int) -> Proposal:
    """Return rows nearest to ``n`` centroids, and their neighbours: Cluster Center Flip (Eq. 5)."""
    from sklearn.cluster import KMeans, MiniBatchKMeans
    from sklearn.neighbors import NearestNeighbors

    X = fill_with_medians(pool.X)[rows]
    make = KMeans if n <= _EXACT_KMEANS else MiniBatchKMeans
    model = _fit_quietly(make(n, n_init=1, random_state=seed), X)
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
    return Proposal(pool, rows[order], neighbours)


def fill_with_medians(X: np.ndarray) -> np.ndarray:
    """Return float64[n, d]: ``X`` with each missing value replaced by its feature's median.

    Infinite values count as missing; a feature that is missing throughout becomes 0.

    >>> fill_with_medians(np.array([[0.0, np.nan], [np.nan, np.nan], [4.0, np.nan]])).tolist()
    [[0.0, 0.0], [2.0, 0.0], [4.0, 0.0]]
    """
    known = np.isfinite(X)
    X = np.clip(np.asarray(X, np.float64), -_LARGEST, _LARGEST)
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
