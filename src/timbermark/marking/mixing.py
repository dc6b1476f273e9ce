"""Mixed rows: most values from one row, the rest from another.

They serve twice: as candidates, so that no real row (no real customer) has to be a trigger, and as
surrogates where there are no training rows. A mixture is a plausible row that the model has never
seen, so that the model has little to say against another answer.

Mixtures also stand for unseen rows where the cost is judged. A model is surer of the rows that it
was trained on than of others, and an edit moves it less there: a tenth of what it does on unseen
rows. Mixtures of near neighbours are as unseen rows are, if they are as far from the training rows
as those; how far that is differs from table to table. A shadow model, trained on a part of the
rows, tells it: the mixtures to take are those of which it is as sure as of rows that it did not
see. A value that only one training row has becomes another one nearby, because thresholds move
between training values, where unseen rows are and training rows are not.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from timbermark.kernels.hashing import hash_rows, mix_cells
from timbermark.kernels.workers import Workers
from timbermark.marking.boundaries import count_decimals
from timbermark.marking.defaults import NEIGHBOUR_RANKS

_SHARES = (0.1, 0.2, 0.4)
"""Shares of values that mixtures take from the second row, one of them each."""
_BLOCK = 2048
"""Rows that are worked on at a time, so that arrays on the way stay small: writing one as large as
a whole table takes longer than what is computed."""


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
    for start in range(0, len(X), _BLOCK):
        own = X[start : start + _BLOCK]
        # -0.0 and 0.0 are one value, and so are all NaN.
        plain = np.where(np.isnan(own), np.nan, own + 0.0)
        bits = np.ascontiguousarray(plain, np.float64).view(np.uint64)
        hash_rows(bits, np.uint64(seed & 0xFFFFFFFFFFFFFFFF), keys[start : start + _BLOCK])
    return keys


def share_parts() -> np.ndarray:
    """Return the shares of values that mixtures take from the second row, as parts of 2^64."""
    return (np.asarray(_SHARES) * 2.0**64).astype(np.uint64)


def mix_rows(X: np.ndarray, n: int, rng: np.random.Generator) -> Mixtures:
    """Return up to ``n`` distinct mixtures of the rows of ``X``, none of them a row of it.

    >>> X = np.arange(12.0).reshape(4, 3)
    >>> mixed = mix_rows(X, 50, np.random.default_rng(0))
    >>> set(mixed.X[:, 0]) <= set(X[:, 0])
    True
    """
    if len(X) == 0 or n == 0:
        return Mixtures(X[:0], np.zeros(0, np.int64))
    X = np.ascontiguousarray(X, np.float64)
    first = rng.permutation(len(X))[np.arange(n) % len(X)]
    drawn = rng.integers(np.iinfo(np.uint64).max, size=n, dtype=np.uint64, endpoint=True)
    mixed, differs = np.empty((n, X.shape[1])), np.empty(n, np.bool_)
    for start in range(0, n, _BLOCK):
        own = slice(start, start + _BLOCK)
        mix_cells(X[first[own]], drawn[own], X, share_parts(), mixed[own], differs[own])
    keys = row_keys(mixed, 0)
    _, once = np.unique(keys, return_index=True)
    fresh = np.zeros(n, np.bool_)
    fresh[once] = True
    fresh &= differs & ~np.isin(keys, row_keys(X, 0))
    return Mixtures(mixed[fresh], first[fresh])


USUAL = 1.0
"""The distance, as a place among the ranks, if it cannot be estimated."""
CAUTIOUS_SLOPE = 0.5
"""The slope if no shadow model is asked: small, which trusts the model little."""
_NEAREST = 0.15
_HALF = 0.5
_ALL_NEIGHBOURS, _MOST_NEIGHBOURS = 10_000, 4_000
"""The number of rows from which on only some of them, the second number, are neighbours."""
_ASKED_AT_A_TIME, _FEW_RANKS = 256, 32
"""Rows whose distances from all neighbours are in the cache at a time, and the rank up to which
finding the nearest one again and again is quicker than dividing them."""
_NEXT = 2
"""Values on either side between which an unseen row's value is drawn, so that a gap between two
training values gets the more rows the wider it is, up to four times as many as there are on
average. (Friedman's regressions, 1,500 and 2,000 rows: answers moved by 0.010 to 0.027 of the error
on unseen rows, and by 0.0000 to 0.0033 on values of training rows.)"""
_SIGNS, _JITTER = 4, 1e-4
_SHADOW_ROWS, _ASKED = 10_000, 3_000
_SLOPES = tuple(float(slope) for slope in np.round(np.arange(0.1, 1.01, 0.05), 2))
_RULED_OUT = 2.0
"""Less in the logarithm of the likelihood, by which labels rule out a slope."""
_NOISE = 0.05
"""The part of labels that are assumed to follow from nothing. Without it, all positives of a model
that tells them well have the highest scores, where no mark changes their order. (`./dev bench
fidelity --part rare`: 0.3 % positives, AUC lost stated as 0.000002 at most, and 0.00007 lost.)"""
_BALANCED = 12
"""Rounds that bring estimated labels to the shares of the classes."""
_SHADOW_ROUNDS, _SHADOW_TREES, _SHADOW_RATE, _SHADOW_L2 = 30, 600, 0.3, 1.0
"""Without the last, leaves of a rare class have no bound, and the shadow model learns nothing, so
that labels seem to follow from no score, and no mark seems to harm their order. (`./dev bench
fidelity --part rare`, synthetic rows with 1 % of positives: an average precision of 0.04, with it
0.49, and 0.7 of the models that are marked.)"""


class Neighbourhood:
    """Training rows ``X`` [n, d], of which mixtures are made; ``named`` columns hold codes.

    ``share``: of all training rows, if these are a sample. What comes out follows from the rows,
    their order and the ``rng``.
    """

    def __init__(
        self,
        X: np.ndarray,
        rng: np.random.Generator,
        named: np.ndarray | None,
        share: float = 1.0,
        workers: Workers | None = None,
    ) -> None:
        self._workers = Workers(1) if workers is None else workers
        most = len(X) if len(X) < _ALL_NEIGHBOURS else _MOST_NEIGHBOURS
        kept = np.sort(rng.permutation(len(X))[:most])
        self._rows, self._rng = X[kept], rng
        self._share = share * len(kept) / max(len(X), 1)
        self._named = np.zeros(X.shape[1], np.bool_) if named is None else named
        self._all, self._values = X, dict[int, tuple[np.ndarray, np.ndarray, int]]()
        known = np.where(np.isfinite(self._rows), self._rows, 0.0)[:, ~self._named]
        spread = known.std(axis=0)
        self._spread = np.where(spread > 0.0, spread, 1.0)
        # Codes are equal or not; the difference of two codes means nothing. So each code gets
        # random signs, with a mean squared distance of 1 between two codes.
        self._seeds = rng.integers(1 << 32, size=(int(self._named.sum()), _SIGNS), dtype=np.uint64)
        places = self._place(self._rows)
        # Jitter draws among equal rows.
        places += rng.normal(scale=_JITTER, size=places.shape)
        self._centre = places.mean(axis=0)
        places = (places - self._centre).astype(np.float32)
        # With a column of ones, one product gives |r|² - 2 q·r, which orders rows as distances do.
        self._doubled = np.hstack([-2.0 * places, (places**2).sum(axis=1, keepdims=True)]).T.copy()

    def mix(self, base: np.ndarray, n: int, distance: float) -> np.ndarray:
        """Return ``n`` rows that are at a ``distance`` from those of ``base``, in turn.

        The distance is a place among `NEIGHBOUR_RANKS`: between two of them, some rows are mixed
        with the one neighbour and some with the other. Half of the values are the neighbour's.

        >>> X = np.arange(40.0).reshape(10, 4)
        >>> Neighbourhood(X, np.random.default_rng(0), None).mix(X, 3, 1.0).shape
        (3, 4)
        """
        rng = self._rng
        first = base[rng.permutation(len(base))[np.arange(n) % len(base)]]
        lower = int(min(distance, len(NEIGHBOUR_RANKS) - 2))
        ranks = np.where(
            rng.random(n) < distance - lower, NEIGHBOUR_RANKS[lower + 1], NEIGHBOUR_RANKS[lower]
        )
        # A sample has only some of the neighbours. It may hold the row itself, which is not one.
        scaled = np.maximum(np.rint(ranks * self._share).astype(np.int64), 1)
        other = first.copy()
        for rank in np.unique(scaled[ranks > 0]).tolist():
            own = np.flatnonzero((scaled == rank) & (ranks > 0))
            other[own] = self._rows[self._find_neighbours(first[own], rank)]
        swapped = (rng.random(first.shape) < _HALF) & (ranks > 0)[:, None]
        return self._renew(np.where(swapped, other, first))

    def _renew(self, mixed: np.ndarray) -> np.ndarray:
        """Replace values that one row alone has by others between these and the next ones.

        So many values of unseen rows are in no training row, and a threshold that moves between two
        training values moves unseen rows alone.
        """
        drawn = self._rng.random(mixed.shape)

        def renew(j: int) -> None:
            if j not in self._values:
                self._values[j] = _read_values(self._all[:, j])
            values, count, decimals = self._values[j]
            at = np.searchsorted(values, mixed[:, j])
            own = np.flatnonzero(at < len(values))
            own = own[(values[at[own]] == mixed[own, j]) & (count[at[own]] == 1)]
            lower = values[np.maximum(at[own] - _NEXT, 0)]
            upper = values[np.minimum(at[own] + _NEXT, len(values) - 1)]
            fresh = lower + drawn[own, j] * (upper - lower)
            mixed[own, j] = fresh if decimals < 0 else np.round(fresh, decimals)

        self._workers.map(renew, np.flatnonzero(~self._named).tolist())
        return mixed

    def _find_neighbours(self, X: np.ndarray, rank: int) -> np.ndarray:
        """Return the numbers of the neighbours of a rank, 0 for the nearest, int64 [n]."""
        rank = min(rank, len(self._rows) - 1)
        found = np.empty(len(X), np.int64)

        def ask(thread: int, item: int) -> None:
            own = slice(item * _ASKED_AT_A_TIME, (item + 1) * _ASKED_AT_A_TIME)
            places = (self._place(X[own]) - self._centre).astype(np.float32)
            asked = np.hstack([places, np.ones((len(places), 1), np.float32)])
            distance = asked @ self._doubled
            if rank > _FEW_RANKS:
                found[own] = np.argpartition(distance, rank, axis=1)[:, rank]
                return
            for _ in range(rank):
                distance[np.arange(len(asked)), distance.argmin(axis=1)] = np.inf
            found[own] = distance.argmin(axis=1)

        # Products on one thread each: sums over several may be rounded in other ways.
        with threadpool_limits(1, user_api="blas"):
            self._workers.drain(ask, -(-len(X) // _ASKED_AT_A_TIME))
        return found

    def _place(self, X: np.ndarray) -> np.ndarray:
        """Return points whose distances measure how similar rows are."""
        numbers = np.where(np.isfinite(X), X, 0.0)
        parts = [numbers[:, ~self._named] / self._spread]
        for column, seeds in zip(numbers[:, self._named].T, self._seeds, strict=True):
            codes = column.astype(np.int64).astype(np.uint64)[:, None]
            mixed = (codes + seeds) * np.uint64(0x9E3779B97F4A7C15)
            signs = (mixed >> np.uint64(40) & np.uint64(1)).astype(np.float64)
            parts.append((2.0 * signs - 1.0) / np.sqrt(2.0 * _SIGNS))
        return np.hstack(parts)


def _read_values(column: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    """Return a column's finite values, rising, how many rows have each, and their decimals."""
    values, count = np.unique(column[np.isfinite(column)], return_counts=True)
    return values, count, count_decimals(values)


@dataclass(frozen=True, slots=True)
class Unseen:
    """What tells unseen rows from training rows.

    ``distance``: how far they are, as a place among `NEIGHBOUR_RANKS`; ``slope``: the factor on
    log-probabilities with which those of unseen rows are calibrated.
    """

    distance: float = USUAL
    slope: float = 1.0


def estimate_labels(p: np.ndarray, slope: float, shares: np.ndarray | None) -> np.ndarray:
    """Return how likely each row is of each class, float64 [n, K], by the model's probabilities.

    A model is too sure of itself on rows that it was not trained on, the more so the smaller the
    ``slope``, and a part of the labels follows from nothing. ``shares`` [K]: of the classes, which
    the estimates then have on average; without them, and with a slope of 1, the probabilities are
    taken as they are.

    >>> p = np.array([[0.9, 0.1], [0.5, 0.5]])
    >>> estimate_labels(p, 1.0, np.array([0.5, 0.5])).mean(axis=0).round(6).tolist()
    [0.5, 0.5]
    """
    # By class rather than by row: sums over few classes of many rows are far quicker so.
    by_class = np.ascontiguousarray(p.T)
    log_p = np.log(np.maximum(by_class / by_class.sum(axis=0), 1e-12))
    wanted = np.maximum(p.mean(axis=0) if shares is None else shares, 1e-9)
    wanted = wanted / wanted.sum()
    bias = np.zeros((p.shape[1], 1))
    if slope == 1.0 and shares is None:
        return np.ascontiguousarray(np.exp(log_p).T)
    log_p *= slope
    for _ in range(_BALANCED):
        mean = _softmax(log_p + bias).mean(axis=1)
        bias[:, 0] += np.log(wanted) - np.log(np.maximum(mean, 1e-300))
    member = (1.0 - _NOISE) * _softmax(log_p + bias) + _NOISE * wanted[:, None]
    return np.ascontiguousarray(member.T)


def _softmax(x: np.ndarray) -> np.ndarray:
    """Return the softmax over the first axis."""
    powers = np.exp(x - x.max(axis=0))
    return np.asarray(powers / powers.sum(axis=0))


def find_unseen(
    train: np.ndarray,
    held: np.ndarray,
    labels: tuple[np.ndarray, np.ndarray],
    columns: Callable[[np.ndarray], np.ndarray],
    named: np.ndarray | None,
    seed: int,
) -> Unseen:
    """Return how unseen rows differ from training rows, as a shadow model tells.

    ``train`` and ``held``: rows as `Neighbourhood` takes them, with class numbers ``labels``;
    ``columns``: makes of them what a model is trained on.

    >>> X = np.random.default_rng(0).normal(size=(600, 3))
    >>> y = (X[:, 0] > 0).astype(int)
    >>> found = find_unseen(X[:400], X[400:], (y[:400], y[400:]), lambda rows: rows, None, 0)
    >>> 0.0 < found.distance <= 2.0
    True
    """
    train, label = train[:_SHADOW_ROWS], labels[0][:_SHADOW_ROWS]
    kinds = np.unique(label)
    if len(kinds) < 2:
        return Unseen()
    rounds = int(np.clip(_SHADOW_TREES // len(kinds), 5, _SHADOW_ROUNDS))

    def mix() -> list[np.ndarray]:
        near = Neighbourhood(train, np.random.default_rng(seed), named)
        return [near.mix(train, _ASKED, place) for place in (1.0, 2.0)]

    # On one thread: sums over several are rounded in other ways. Another thread can meanwhile make
    # what the shadow model is asked. OpenMP must be loaded before it can be limited.
    import sklearn.ensemble  # noqa: F401

    with threadpool_limits(1, user_api="openmp"), ThreadPoolExecutor(1) as other:
        making = other.submit(mix)
        shadow = _Shadow(columns(train), label, rounds, seed)
        mixed = making.result()

        def doubt(rows: np.ndarray) -> tuple[float, float]:
            """Return the shadow model's mean uncertainty about rows, and the mean's variance."""
            unsure = 1.0 - shadow.ask(columns(rows)).max(axis=1)
            return float(unsure.mean()), float(unsure.var() / len(unsure))

        unseen, variance = doubt(held[:_ASKED])
        seen = doubt(train[:_ASKED])[0]
        usual, far = (doubt(rows)[0] for rows in mixed)
        slope = _find_slope(shadow, columns, held, labels[1])
    # Where the figures hardly differ, the usual distance is as good as any.
    noise = 2.0 * float(np.sqrt(variance))
    if unseen <= usual:
        near_by = (unseen - seen + noise) / (usual - seen + noise)
        return Unseen(float(np.clip(near_by, _NEAREST, USUAL)), slope)
    return Unseen(
        float(min(USUAL + (unseen - usual) / max(max(far - usual, 0.0) + noise, 1e-12), 2.0)), slope
    )


class _Shadow:
    """A model of scikit-learn: timbermark's own would have to be compiled first."""

    def __init__(self, X: np.ndarray, label: np.ndarray, rounds: int, seed: int) -> None:
        from sklearn.ensemble import HistGradientBoostingClassifier

        model = HistGradientBoostingClassifier(
            max_iter=rounds, learning_rate=_SHADOW_RATE, l2_regularization=_SHADOW_L2,
            early_stopping=False, random_state=seed % 2**32,
        )  # fmt: skip
        # Columns of missing values alone have no bins.
        known = np.where(np.isnan(X).all(axis=0), 0.0, X)
        self._model = model.fit(known, label)
        self.classes = self._model.classes_

    def ask(self, X: np.ndarray) -> np.ndarray:
        """Return probabilities [n, classes]."""
        return np.asarray(self._model.predict_proba(X))


def _find_slope(
    shadow: _Shadow,
    columns: Callable[[np.ndarray], np.ndarray],
    held: np.ndarray,
    label: np.ndarray,
) -> float:
    """Return a slope with which the shadow model is calibrated on unseen rows.

    Of the slopes that labels do not rule out it is the smallest, which trusts the model least.
    """
    kinds = shadow.classes
    known = np.isin(label, kinds)
    held, label = held[known][:_SHADOW_ROWS], np.searchsorted(kinds, label[known][:_SHADOW_ROWS])
    seen = columns(held)
    if len(seen) != len(label) or len(np.unique(label)) < 2:
        return 1.0  # transformers refused some rows
    p = shadow.ask(seen)
    shares = np.bincount(label, minlength=len(kinds)) / len(label)
    rows = np.arange(len(label))
    likely = [np.log(estimate_labels(p, a, shares)[rows, label] + 1e-12).sum() for a in _SLOPES]
    return float(_SLOPES[int(np.argmax(np.array(likely) >= max(likely) - _RULED_OUT))])
