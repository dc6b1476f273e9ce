"""Training parameters, and rows as the engine holds them: quantile bins, codes, answers, weights.

Bins say which thresholds a feature may be split at. A value's code is the number of thresholds
below it. Missing values have a code of their own, behind all others, whether or not the training
data has any: rows that come later may. Bins are frozen once found: a value beyond the outermost
threshold shares the outermost bin.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from timbermark.kernels.hashing import count_steps
from timbermark.kernels.layout import Binned, Draws
from timbermark.kernels.routing import assign_codes
from timbermark.kernels.workers import Workers

_SAMPLE = 200_000


@dataclass(frozen=True, slots=True)
class Bins:
    """Thresholds of every feature.

    ``values`` float64[t] holds them one feature after the other, ``starts`` int64[d + 1] says
    where each begins.
    """

    values: np.ndarray
    starts: np.ndarray

    @property
    def n_features(self) -> int:
        """Return the number of features."""
        return len(self.starts) - 1

    @property
    def n_thresholds(self) -> np.ndarray:
        """Return int64[d]: the number of thresholds of each feature."""
        return np.diff(self.starts)

    @property
    def offsets(self) -> np.ndarray:
        """Return uint64[d + 1]: first slot of each feature (thresholds + 1 bins + missing)."""
        slots = self.n_thresholds + 2
        return np.concatenate([[0], np.cumsum(slots)]).astype(np.uint64)

    @property
    def code_dtype(self) -> type[np.unsignedinteger]:
        """Return uint8 where every code fits, else uint16."""
        return np.uint8 if self.n_thresholds.max(initial=0) + 1 <= 255 else np.uint16

    def thresholds(self, feature: int) -> np.ndarray:
        """Return the thresholds of one feature, ascending."""
        return self.values[self.starts[feature] : self.starts[feature + 1]]


def thresholds_of(
    values: np.ndarray, weight: np.ndarray | None, max_bins: int, heavy_apart: bool = False
) -> np.ndarray:
    """Return at most ``max_bins - 1`` thresholds that cut ``values`` (no NaN) into like weights.

    Every threshold lies between two neighbouring distinct values. ``heavy_apart``: a value that
    weighs more than a bin gets one of its own, and the others share what is left; without it, bins
    that a heavy value fills are lost.
    """
    if weight is None:
        distinct, mass = np.unique(values, return_counts=True)
    else:
        distinct, inverse = np.unique(values, return_inverse=True)
        mass = np.bincount(inverse, weights=weight, minlength=len(distinct))
    if len(distinct) > max_bins:
        heavy = find_heavy(mass, max_bins) if heavy_apart else np.zeros(0, np.bool_)
        cut = cut_around(heavy, mass, max_bins) if heavy.any() else cut_evenly(mass, max_bins)
    else:
        cut = np.arange(len(distinct) - 1)
    low, high = distinct[cut], distinct[cut + 1]
    with np.errstate(invalid="ignore"):
        middle = low / 2 + high / 2
    thresholds: np.ndarray = np.where((middle >= low) & (middle < high), middle, low)
    return thresholds


def cut_evenly(mass: np.ndarray, max_bins: int) -> np.ndarray:
    """Return after which of the distinct values to cut, so that bins weigh about the same."""
    below = np.cumsum(mass)
    wanted = below[-1] * np.arange(1, max_bins) / max_bins
    cut = np.unique(np.searchsorted(below, wanted, side="left"))
    return np.asarray(cut[cut < len(mass) - 1])


def find_heavy(mass: np.ndarray, max_bins: int) -> np.ndarray:
    """Return which of over ``max_bins`` values weigh as much as a bin of those that do not.

    >>> find_heavy(np.array([1, 90, 1, 1, 5]), 3).tolist()
    [False, True, False, False, True]
    """
    heavy = np.zeros(len(mass), np.bool_)
    while True:
        # Bins are left for as long as not all values are heavy, and they are more than the bins.
        size = mass[~heavy].sum() / (max_bins - heavy.sum())
        fresh = ~heavy & (mass >= size)
        if not fresh.any():
            return heavy
        heavy |= fresh


def cut_around(heavy: np.ndarray, mass: np.ndarray, max_bins: int) -> np.ndarray:
    """Return after which of the distinct values to cut, so that heavy ones have their own bins.

    The light values between two heavy ones are cut evenly; few of them join the heavy one above.
    """
    light = np.where(heavy, 0, mass).astype(np.float64)
    # The mass of the light values in a row up to the middle of each, and of all of them.
    run = np.cumsum(heavy)
    total = np.bincount(run, weights=light)
    middle = np.cumsum(light) - light / 2 - (np.cumsum(total) - total)[run]
    n_parts = max_bins - int(heavy.sum())
    while True:
        size = light.sum() / n_parts if n_parts > 0 else np.inf
        part = np.floor(middle / size)
        new_part = ~heavy[1:] & (part[1:] != part[:-1])
        apart = heavy[1:] & ~heavy[:-1] & (total[run[:-1]] >= size / 2)
        cut = np.flatnonzero(heavy[:-1] | new_part | apart)
        if len(cut) < max_bins:
            return cut
        n_parts -= 1 + n_parts // 16


def find_bins(
    X: np.ndarray,
    weight: np.ndarray | None,
    max_bins: int,
    seed: int,
    workers: Workers,
    heavy_apart: bool = False,
) -> Bins:
    """Return bins for the float64 matrix ``X``; rows of weight zero do not exist.

    Beyond 200,000 rows a seeded sample of that size decides. ``heavy_apart`` as in
    :func:`thresholds_of`.
    """
    if weight is not None and not weight.all():
        X, weight = X[weight > 0], weight[weight > 0]
    if len(X) > _SAMPLE:
        chosen = np.random.default_rng(seed).choice(len(X), _SAMPLE, replace=False, shuffle=False)
        chosen.sort()
        X = X[chosen]
        weight = weight[chosen] if weight is not None else None

    def one(feature: int) -> np.ndarray:
        column = X[:, feature]
        known = ~np.isnan(column)
        if not known.any():
            return np.empty(0)
        if known.all():
            return thresholds_of(column, weight, max_bins, heavy_apart)
        mass = weight[known] if weight is not None else None
        return thresholds_of(column[known], mass, max_bins, heavy_apart)

    found = workers.map(one, range(X.shape[1]))
    starts = np.concatenate([[0], np.cumsum([len(t) for t in found])]).astype(np.int64)
    return Bins(np.concatenate(found) if found else np.empty(0), starts)


def encode(bins: Bins, X: np.ndarray, workers: Workers) -> tuple[np.ndarray, np.ndarray]:
    """Return the codes of the float64 matrix ``X``: by row [n, d] and by column [d, n]."""
    columns = np.empty((X.shape[1], X.shape[0]), dtype=bins.code_dtype)

    def one(feature: int) -> None:
        thresholds = bins.thresholds(feature)
        values = np.ascontiguousarray(X[:, feature])
        assign_codes(values, thresholds, len(thresholds) + 1, columns[feature])

    workers.map(one, range(X.shape[1]))
    return np.ascontiguousarray(columns.T), columns


@dataclass(frozen=True, slots=True)
class TrainParams:
    """Everything but the data that decides which trees come out.

    ``min_hessian`` is the least Σh of a child and ``leaf_limit`` the largest |Σg / Σh| of a leaf
    before the learning rate; both keep a leaf of confident rows from exploding.
    """

    max_iter: int = 200
    learning_rate: float = 0.1
    max_leaf_nodes: int = 20
    min_samples_leaf: int = 10
    l2_regularization: float = 0.0
    max_bins: int = 255
    split_sampling: float = 0.1
    min_hessian: float = 1e-3
    leaf_limit: float = 50.0
    seed: int = 0


WHOLE_RANGES = {
    "max_iter": (1, 1_000_000),
    "max_leaf_nodes": (2, 32_768),
    "min_samples_leaf": (1, 2**31 - 1),
    "max_bins": (2, 65_000),
}
"""The least and the most of parameters that are whole numbers."""


def real_problem(name: str, value: float) -> str:
    """Return what a parameter that is a finite number must be, or nothing if it is so.

    >>> real_problem("learning_rate", 0.0), real_problem("l2_regularization", 0.0)
    ('> 0', '')
    """
    if name in ("l2_regularization", "min_hessian"):
        return "" if 0 <= value < np.inf else ">= 0"
    if name == "split_sampling":
        return "" if 0 < value <= 1 else "> 0 and at most 1"
    return "" if 0 < value < np.inf else "> 0"


PAPER = TrainParams(min_hessian=0.0)
"""The engine of the paper: robust LogitBoost, 200 iterations, shrinkage 0.1, 20 leaves of at
least 10 rows, a tenth of the thresholds as split candidates in each node and feature."""


@dataclass(frozen=True, slots=True)
class TrainingData:
    """Rows in codes. ``codes`` [n, d] and ``columns`` [d, n] hold the same numbers.

    ``label`` is int32[n], classes counted from 0, or in regression, where ``n_classes`` is 0,
    float64[n]; ``weight`` float32[n] is never negative. A row of weight w counts as ceil(w) rows,
    so that weights of 1 to 5 act like as many copies.
    """

    bins: Bins
    codes: np.ndarray
    columns: np.ndarray
    label: np.ndarray
    weight: np.ndarray
    n_classes: int

    @property
    def n_rows(self) -> int:
        """Return the number of rows."""
        return len(self.label)

    @property
    def n_outputs(self) -> int:
        """Return the trees per iteration: one per class, but one for two classes and regression."""
        return count_outputs(self.n_classes)

    @property
    def count(self) -> np.ndarray:
        """Return int32[n]: how many rows each row stands for."""
        count: np.ndarray = np.ceil(self.weight).astype(np.int32)
        return count

    def binned(self, params: TrainParams, shift: int = 0, hessian_bits: int = -1) -> Binned:
        """Return the view the kernels take; the last two are needed only where they sum rows."""
        strata = count_strata(self.bins, params.split_sampling)
        return Binned(
            self.codes,
            self.columns,
            self.bins.offsets[:-1].copy(),
            self.bins.n_thresholds,
            strata,
            np.concatenate([[0], np.cumsum(strata + 1)]).astype(np.int64),
            make_draws(self.bins.n_thresholds, strata),
            self.count,
            shift,
            hessian_bits,
        )


def count_outputs(n_classes: int) -> int:
    """Return the number of trees per iteration.

    >>> [count_outputs(n) for n in (0, 2, 3)]
    [1, 1, 3]
    """
    return n_classes if n_classes > 2 else 1


def label_dtype(n_classes: int) -> type[np.number]:
    """Return the type of labels: class numbers, or in regression numbers.

    >>> label_dtype(0).__name__, label_dtype(3).__name__
    ('float64', 'int32')
    """
    return np.int32 if n_classes else np.float64


def count_strata(bins: Bins, split_sampling: float) -> np.ndarray:
    """Return int64[d]: split candidates per node, at least one where there is a threshold."""
    wanted = np.ceil(bins.n_thresholds * split_sampling - 1e-9).astype(np.int64)
    return np.where(bins.n_thresholds > 0, np.maximum(wanted, 1), 0)


def make_draws(n_thresholds: np.ndarray, n_strata: np.ndarray) -> Draws:
    """Return what the candidates of every feature, and its missing values, are drawn from."""
    feature = np.repeat(np.arange(len(n_strata)), n_strata + 1)
    stratum = np.arange(len(feature)) - np.repeat(
        np.cumsum(n_strata + 1) - n_strata - 1, n_strata + 1
    )
    thresholds, strata = n_thresholds[feature], np.maximum(n_strata[feature], 1)
    low = stratum * thresholds // strata
    width = np.where(stratum < n_strata[feature], (stratum + 1) * thresholds // strata - low, 1)
    bits = np.array([int(w - 1).bit_length() for w in width], np.uint64)
    shift = bits + np.uint64(31)
    wide = width.astype(np.uint64)
    return Draws(
        step=count_steps((feature.astype(np.uint64) << np.uint64(20)) + stratum.astype(np.uint64)),
        low=low.astype(np.int64),
        width=wide,
        inverse=((np.uint64(1) << shift) + wide - np.uint64(1)) // wide,
        shift=shift,
    )


def make_data(
    bins: Bins,
    X: np.ndarray,
    label: np.ndarray,
    weight: np.ndarray | None,
    n_classes: int,
    workers: Workers,
) -> TrainingData:
    """Encode float64 rows; rows of weight zero are left out."""
    weight = np.ones(len(X), np.float32) if weight is None else weight.astype(np.float32)
    if not weight.all():
        X, label, weight = X[weight > 0], label[weight > 0], weight[weight > 0]
    codes, columns = encode(bins, X, workers)
    return TrainingData(
        bins, codes, columns, label.astype(label_dtype(n_classes)), weight, n_classes
    )


def empty_data(like: TrainingData) -> TrainingData:
    """Return data without rows, in the same bins."""
    return take_rows(like, np.zeros(0, np.int64))


def take_rows(data: TrainingData, rows: np.ndarray) -> TrainingData:
    """Return the rows at some places, or where a mask is true, in the same bins."""
    return TrainingData(
        data.bins,
        data.codes[rows],
        np.ascontiguousarray(data.columns[:, rows]),
        data.label[rows],
        data.weight[rows],
        data.n_classes,
    )


def join_data(first: TrainingData, second: TrainingData) -> TrainingData:
    """Return the rows of both, in this order; both must be in the same bins."""
    return TrainingData(
        first.bins,
        np.concatenate([first.codes, second.codes]),
        np.concatenate([first.columns, second.columns], axis=1),
        np.concatenate([first.label, second.label]),
        np.concatenate([first.weight, second.weight]),
        first.n_classes,
    )
