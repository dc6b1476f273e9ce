"""A fast predictor for any numeric ensemble: values become codes once, trees compare codes.

Every threshold of a feature gets a number; a value's code says how many of them it exceeds. That
is exact: no comparison can come out differently. What the fast predictor cannot do (category
splits, zeros that count as missing, single-precision sums) it declines, and the reference
predictor does it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from timbermark.errors import InputError
from timbermark.kernels.binning import assign_codes
from timbermark.kernels.predicting import MOST_LEAVES, add_margins, add_margins_by_path
from timbermark.kernels.workers import Workers
from timbermark.trees import reference
from timbermark.trees.ensemble import MISSING_NAN, MISSING_NONE, Ensemble

# Where a missing value goes decides which of a feature's columns a split looks at.
_LEFT, _RIGHT, _ZERO = 0, 1, 2
_MOST_CODES = 65_534


@dataclass(frozen=True, slots=True)
class Predictor:
    """An ensemble, prepared. Build one with :func:`make_predictor`."""

    ensemble: Ensemble
    values: np.ndarray  # float64: thresholds, one feature after the other
    starts: np.ndarray  # int64[d + 1]
    mode: np.ndarray  # int64[nodes]: _LEFT, _RIGHT or _ZERO
    code: np.ndarray  # int32[nodes]: the threshold's number within its feature
    masks: Masks | None  # None where a tree has too many leaves

    def margins(self, X: np.ndarray, workers: Workers) -> np.ndarray:
        """Return float64[n, K] for the float64 matrix ``X``, bit for bit as the reference does."""
        e = self.ensemble
        if X.ndim != 2 or X.shape[1] != e.n_features:
            raise InputError(
                f"The rows have the shape {X.shape}, the model takes {e.n_features} features.",
                hint="pass a matrix with one column per feature.",
            )
        if e.input_dtype == "f4":
            with np.errstate(over="ignore"):
                X = X.astype(np.float32).astype(np.float64)
        missing = bool(np.isnan(X).any())
        codes = self._encode(X, missing, workers)
        inner = e.left >= 0
        feature = np.where(inner, e.feature, 0)
        column = (feature + (self.mode * e.n_features if missing else 0)).astype(np.int32)
        start = np.zeros(e.n_outputs) if e.init_last else e.init
        out = np.repeat(start[:, None], len(X), axis=1)
        output = e.tree_output.astype(np.int64)

        with np.errstate(over="ignore"):
            weighted = e.value[:, 0] * np.repeat(e.tree_weight, np.diff(e.tree_start))

        def block(thread: int, first: int, last: int) -> None:
            if self.masks is not None:
                m = self.masks
                add_margins(
                    codes, first, last, m.split_start, column[m.split], self.code[m.split],
                    m.mask, m.leaf_start, m.value, output, out,
                )  # fmt: skip
            else:
                add_margins_by_path(
                    codes, first, last, e.tree_start, column, self.code, e.left,
                    weighted, output, out,
                )  # fmt: skip

        workers.split(block, len(X))
        if e.init_last:
            with np.errstate(over="ignore", invalid="ignore"):
                out = out * e.scale + e.init[:, None]
        return np.ascontiguousarray(out.T)

    def _encode(self, X: np.ndarray, missing: bool, workers: Workers) -> np.ndarray:
        d = X.shape[1]
        wide = np.diff(self.starts).max(initial=0) > 254
        kind = np.uint16 if wide else np.uint8
        codes = np.empty((3 * d if missing else d, len(X)), kind)

        def one(feature: int) -> None:
            thresholds = self.values[self.starts[feature] : self.starts[feature + 1]]
            values = np.ascontiguousarray(X[:, feature])
            assign_codes(values, thresholds, 0, codes[feature])
            if missing:
                beyond = len(thresholds) + 1
                assign_codes(values, thresholds, beyond, codes[_RIGHT * d + feature])
                filled = np.where(np.isnan(values), 0.0, values)
                assign_codes(filled, thresholds, 0, codes[_ZERO * d + feature])

        workers.map(one, range(d))
        return codes


@dataclass(frozen=True, slots=True)
class Masks:
    """Trees of at most 31 leaves as :func:`add_margins` takes them."""

    split_start: np.ndarray  # int64[T + 1]
    split: np.ndarray  # int64[s], node numbers over all trees
    mask: np.ndarray  # int32[s]
    leaf_start: np.ndarray  # int64[T + 1]
    value: np.ndarray  # float64[leaves], from left to right, weighted


def make_predictor(ensemble: Ensemble) -> Predictor | None:
    """Prepare ``ensemble``; None where only the reference predictor can do it."""
    e = ensemble
    inner = e.left >= 0
    kinds = e.missing_kind[inner]
    if (
        (e.category_set[inner] >= 0).any()
        or not np.isin(kinds, (MISSING_NONE, MISSING_NAN)).all()
        or e.sum_dtype != "f8"
        or (e.tree_output < 0).any()
        or not (e.right[inner] == e.left[inner] + 1).all()
        or (e.strict and (e.threshold[inner] == -np.inf).any())
    ):
        return None
    node = np.flatnonzero(inner)
    # x < t is x <= (the number before t); -0.0 and 0.0 are equal and must stay one threshold.
    threshold = e.threshold[node] + 0.0
    if e.strict:
        with np.errstate(over="ignore"):
            threshold = np.nextafter(threshold, -np.inf)
    order = np.lexsort((threshold, e.feature[node]))
    sorted_feature, sorted_threshold = e.feature[node][order], threshold[order]
    fresh = np.ones(len(order), np.bool_)
    fresh[1:] = (sorted_feature[1:] != sorted_feature[:-1]) | (
        sorted_threshold[1:] != sorted_threshold[:-1]
    )
    counts = np.bincount(sorted_feature[fresh], minlength=e.n_features)
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    if counts.max(initial=0) > _MOST_CODES:
        return None
    code = np.zeros(e.n_nodes, np.int32)
    code[node[order]] = np.cumsum(fresh) - 1 - starts[sorted_feature]
    mode = np.where(e.missing_left, _LEFT, _RIGHT).astype(np.int64)
    mode[e.missing_kind == MISSING_NONE] = _ZERO
    return Predictor(e, sorted_threshold[fresh], starts, mode, code, _make_masks(e))


def _make_masks(e: Ensemble) -> Masks | None:
    """Return the masks of all splits; None where a tree has too many leaves."""
    sizes = np.diff(e.tree_start)
    if (sizes > 2 * MOST_LEAVES - 1).any():
        return None
    n_left, lowest = _number_leaves(e)
    split, leaf = np.flatnonzero(e.left >= 0), np.flatnonzero(e.left < 0)
    # Those on the left are taken away from a row that goes right.
    taken = ((1 << n_left[split]) - 1) << lowest[split]
    tree = np.repeat(np.arange(e.n_trees), sizes)
    in_order = leaf[np.lexsort((lowest[leaf], tree[leaf]))]
    with np.errstate(over="ignore"):
        value = e.value[in_order, 0] * e.tree_weight[tree[in_order]]
    return Masks(
        split_start=np.searchsorted(split, e.tree_start).astype(np.int64),
        split=split,
        mask=(np.int64(2**MOST_LEAVES - 1) & ~taken).astype(np.int32),
        leaf_start=np.searchsorted(leaf, e.tree_start).astype(np.int64),
        value=value,
    )


def _number_leaves(e: Ensemble) -> tuple[np.ndarray, np.ndarray]:
    """Number the leaves of every tree from left to right; all trees at once, level by level.

    Returns int64[nodes] twice: how many leaves are on a split's left side, and the lowest number
    among the leaves under a node.
    """
    first = np.repeat(e.tree_start[:-1], np.diff(e.tree_start))
    left, right = e.left + first, e.right + first
    levels = []  # of splits, the roots first
    here = e.tree_start[:-1]
    while len(here):
        splits = here[e.left[here] >= 0]
        levels.append(splits)
        here = np.concatenate([left[splits], right[splits]])
    under = np.ones(e.n_nodes, np.int64)
    for splits in reversed(levels):
        under[splits] = under[left[splits]] + under[right[splits]]
    n_left, lowest = np.zeros(e.n_nodes, np.int64), np.zeros(e.n_nodes, np.int64)
    for splits in levels:
        n_left[splits] = under[left[splits]]
        lowest[left[splits]] = lowest[splits]
        lowest[right[splits]] = lowest[splits] + n_left[splits]
    return n_left, lowest


class LazyPredictor:
    """Margins of one ensemble; the fast predictor is prepared when it is first needed.

    Lost on pickling, because it can be made again.
    """

    def __init__(self, ensemble: Ensemble) -> None:
        self.ensemble = ensemble
        self._made: tuple[Predictor | None] | None = None

    def margins(self, X: np.ndarray, workers: Workers) -> np.ndarray:
        """Return float64[n, K], bit for bit as the reference predictor does."""
        if self._made is None:
            self._made = (make_predictor(self.ensemble),)
        fast = self._made[0]
        if fast is None:
            return np.asarray(reference.margins(self.ensemble, X), np.float64)
        return fast.margins(X, workers)

    def __reduce__(self) -> tuple[type[LazyPredictor], tuple[Ensemble]]:
        return LazyPredictor, (self.ensemble,)
