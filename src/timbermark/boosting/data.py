"""Training rows as the engine holds them: bin codes, labels, weights, and how sums are scaled."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from timbermark.boosting.binning import Bins, encode
from timbermark.boosting.params import TrainParams
from timbermark.errors import InputError
from timbermark.kernels.layout import Binned
from timbermark.kernels.workers import Workers

_MOST_BITS = 20
_WORD_BITS = 62


@dataclass(frozen=True, slots=True)
class Scale:
    """Fixed point: a gradient is an integer times 2^-bits; counts fit below ``shift`` bits.

    The two share a 64-bit word in histograms, so more rows leave fewer bits.
    """

    bits: int
    shift: int

    @property
    def unit(self) -> float:
        """2^bits."""
        return float(2**self.bits)

    @property
    def largest_weight(self) -> float:
        """A row's gradient must fit an int32."""
        return float(2 ** (30 - self.bits))


@dataclass(frozen=True, slots=True)
class TrainingData:
    """Rows in codes. ``codes`` [n, d] and ``columns`` [d, n] hold the same numbers.

    ``label`` int32[n] counts classes from 0; ``weight`` float32[n] is never negative. A row of
    weight w counts as ceil(w) rows, so that weights of 1 to 5 act like as many copies.
    """

    bins: Bins
    codes: np.ndarray
    columns: np.ndarray
    label: np.ndarray
    weight: np.ndarray
    n_classes: int

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.label)

    @property
    def n_outputs(self) -> int:
        """Trees per iteration: one for two classes, else one per class."""
        return 1 if self.n_classes == 2 else self.n_classes

    @property
    def count(self) -> np.ndarray:
        """int32[n]: how many rows each row stands for."""
        count: np.ndarray = np.ceil(self.weight).astype(np.int32)
        return count

    def binned(self, params: TrainParams) -> Binned:
        """The view the kernels take."""
        strata = count_strata(self.bins, params.split_sampling)
        return Binned(
            self.codes,
            self.columns,
            self.bins.offsets[:-1].copy(),
            self.bins.n_thresholds,
            strata,
            np.concatenate([[0], np.cumsum(strata + 1)]).astype(np.int64),
            self.count,
        )


def count_strata(bins: Bins, split_sampling: float) -> np.ndarray:
    """int64[d]: split candidates per node and feature, at least one where there is a threshold."""
    wanted = np.ceil(bins.n_thresholds * split_sampling - 1e-9).astype(np.int64)
    return np.where(bins.n_thresholds > 0, np.maximum(wanted, 1), 0)


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
    return TrainingData(bins, codes, columns, label.astype(np.int32), weight, n_classes)


def empty_data(like: TrainingData) -> TrainingData:
    """No rows, in the same bins."""
    return TrainingData(
        like.bins,
        like.codes[:0],
        np.ascontiguousarray(like.columns[:, :0]),
        like.label[:0],
        like.weight[:0],
        like.n_classes,
    )


def join_data(first: TrainingData, second: TrainingData) -> TrainingData:
    """The rows of both, in this order; both must be in the same bins."""
    codes = np.concatenate([first.codes, second.codes])
    return TrainingData(
        first.bins,
        codes,
        np.ascontiguousarray(codes.T),
        np.concatenate([first.label, second.label]),
        np.concatenate([first.weight, second.weight]),
        first.n_classes,
    )


def choose_scale(data: TrainingData) -> Scale:
    """The finest scale at which no sum over these rows, or four times as many, can overflow."""
    shift = int(4 * data.count.sum(dtype=np.int64)).bit_length()
    heaviest = int(np.ceil(data.weight.max(initial=1.0))).bit_length()
    total = int(np.ceil(data.weight.sum(dtype=np.float64))).bit_length()
    bits = min(_MOST_BITS, 30 - heaviest, _WORD_BITS - shift - total)
    if bits < 8:
        raise InputError(
            f"The sample weights add up to {data.weight.sum():.3g}, more than the engine can sum.",
            hint="Divide all weights by the same number; only their ratios matter.",
        )
    return Scale(bits, shift)


def check_scale(scale: Scale, data: TrainingData) -> None:
    """Raise InputError where rows are too heavy for sums that are already scaled."""
    heaviest = float(data.weight.max(initial=0.0))
    if heaviest >= scale.largest_weight:
        raise InputError(
            f"A sample weight of {heaviest:g} is too heavy for this model's state "
            f"(less than {scale.largest_weight:g} fits).",
            hint="Fit again with the weights divided by a common number.",
        )


def count_fits(scale: Scale, *parts: TrainingData) -> bool:
    """Whether the rows of all parts can be counted below the shift."""
    total = sum(int(data.count.sum(dtype=np.int64)) for data in parts)
    return total < int(2**scale.shift)
