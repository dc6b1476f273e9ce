"""Training rows as the engine holds them: bin codes, answers and weights."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from timbermark.boosting.binning import Bins, encode
from timbermark.boosting.params import TrainParams
from timbermark.kernels.hashing import count_steps
from timbermark.kernels.layout import Binned, Draws
from timbermark.kernels.workers import Workers


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
    return TrainingData(
        like.bins,
        like.codes[:0],
        np.ascontiguousarray(like.columns[:, :0]),
        like.label[:0],
        like.weight[:0],
        like.n_classes,
    )


def join_data(first: TrainingData, second: TrainingData) -> TrainingData:
    """Return the rows of both, in this order; both must be in the same bins."""
    codes = np.concatenate([first.codes, second.codes])
    return TrainingData(
        first.bins,
        codes,
        np.ascontiguousarray(codes.T),
        np.concatenate([first.label, second.label]),
        np.concatenate([first.weight, second.weight]),
        first.n_classes,
    )
