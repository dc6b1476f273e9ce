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
from timbermark.kernels.routing import (
    BYTES,
    LEFT,
    MOST_LEAVES,
    RIGHT,
    STEP,
    ZERO,
    add_margins,
    assign_codes,
    walk_margins,
)
from timbermark.kernels.workers import Workers
from timbermark.trees import reference
from timbermark.trees.ensemble import MISSING_NAN, MISSING_NONE, Ensemble

_MOST_CODES = 65_534
_FEW, _FEW_BY_FEATURES, _FEW_BY_COMPARISONS = 2, 64, 1 / 16
"""Rows up to which walking takes less time than codes do: so many, and more for each feature and
each comparison that there are for a tree (`./dev bench predict`)."""
_LANES = 32
"""Rows that the comparisons of masks take at a time; a few more cost less than one by one."""


@dataclass(frozen=True, slots=True)
class Predictor:
    """An ensemble, prepared. Build one with :func:`make_predictor`."""

    ensemble: Ensemble
    roots: np.ndarray  # int64[T]
    steps: np.ndarray  # STEP[nodes], what a row walks along
    missing: np.ndarray  # int8[nodes]: LEFT, RIGHT or ZERO
    output: np.ndarray  # int64[T]
    masks: Masks | None  # None where a tree has too many leaves, or a feature too many thresholds

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
        by_walking = self.masks is None or len(X) <= self.masks.few(e)
        out = np.empty((e.n_outputs, len(X) if by_walking else -(-len(X) // _LANES) * _LANES))
        out[:] = 0.0 if e.init_last else e.init[:, None]
        if self.masks is None or by_walking:
            self._walk(np.ascontiguousarray(X), out, workers)
        else:
            self._mask(self.masks, X, out, workers)
            out = out[:, : len(X)]
        if e.init_last:
            with np.errstate(over="ignore", invalid="ignore"):
                out = out * e.scale + e.init[:, None]
        return np.ascontiguousarray(out.T)

    def _walk(self, X: np.ndarray, out: np.ndarray, workers: Workers) -> None:
        def block(thread: int, first: int, last: int) -> None:
            walk_margins(X, first, last, self.roots, self.steps, self.missing, self.output, out)

        workers.split(block, len(X))

    def _mask(self, m: Masks, X: np.ndarray, out: np.ndarray, workers: Workers) -> None:
        missing = bool(np.isnan(X).any())
        codes = m.encode(X, out.shape[1], missing, workers)
        # Where a missing value goes decides which of a feature's columns a split looks at.
        column = m.column if missing else m.feature

        def block(thread: int, first: int, last: int) -> None:
            add_margins(
                codes, first, last, m.words, m.cut, column, m.code, m.rest, m.leaf_start,
                m.value, self.output, out,
            )  # fmt: skip

        workers.split(block, out.shape[1])


@dataclass(frozen=True, slots=True)
class Masks:
    """Trees of at most `MOST_LEAVES` leaves as :func:`add_margins` takes them."""

    values: np.ndarray  # float64: thresholds, one feature after the other
    starts: np.ndarray  # int64[d + 1]
    words: np.ndarray  # int64[T + 1]
    cut: np.ndarray  # int64[BYTES * words + 1]
    feature: np.ndarray  # int32[c], of a comparison
    column: np.ndarray  # int32[c], where codes of missing values are of three kinds
    code: np.ndarray  # int32[c]: the threshold's number within its feature
    rest: np.ndarray  # uint8[c]
    leaf_start: np.ndarray  # int64[T + 1]
    value: np.ndarray  # of the leaves, from left to right; to predict, float64 and weighted

    def few(self, e: Ensemble) -> int:
        """Return the number of rows up to which walking takes less time."""
        sizes = _FEW_BY_FEATURES * e.n_features + _FEW_BY_COMPARISONS * len(self.code)
        return _FEW + int(sizes / max(e.n_trees, 1))

    def encode(self, X: np.ndarray, room: int, missing: bool, workers: Workers) -> np.ndarray:
        """Return the codes of all rows by column, ``room`` in each, and zeros where rows end.

        Where values are ``missing``, there are three columns for each feature.
        """
        n, d = X.shape
        wide = np.diff(self.starts).max(initial=0) > 254
        codes = np.zeros((3 * d if missing else d, room), np.uint16 if wide else np.uint8)

        def one(feature: int) -> None:
            thresholds = self.values[self.starts[feature] : self.starts[feature + 1]]
            values = np.ascontiguousarray(X[:, feature])
            assign_codes(values, thresholds, 0, codes[LEFT * d + feature, :n])
            if missing:
                beyond = len(thresholds) + 1
                assign_codes(values, thresholds, beyond, codes[RIGHT * d + feature, :n])
                filled = np.where(np.isnan(values), 0.0, values)
                assign_codes(filled, thresholds, 0, codes[ZERO * d + feature, :n])

        workers.map(one, range(d))
        return codes


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
    sizes = np.diff(e.tree_start)
    # x < t is x <= (the number before t); -0.0 and 0.0 are equal and must stay one threshold.
    threshold = e.threshold + 0.0
    if e.strict:
        with np.errstate(over="ignore"):
            threshold = np.nextafter(threshold, -np.inf)
    with np.errstate(over="ignore"):
        value = e.value[:, 0] * np.repeat(e.tree_weight, sizes)
    missing = np.where(e.missing_left, LEFT, RIGHT).astype(np.int8)
    missing[e.missing_kind == MISSING_NONE] = ZERO
    steps = np.zeros(e.n_nodes, STEP)
    steps["threshold"] = np.where(inner, threshold, value)
    steps["feature"] = np.where(inner, e.feature, 0)
    steps["left"] = np.where(inner, e.left + np.repeat(e.tree_start[:-1], sizes), -1)
    masks = None
    if (sizes < 2 * MOST_LEAVES).all():
        masks = make_masks(e, threshold, value, missing)
    output = e.tree_output.astype(np.int64)
    return Predictor(e, e.tree_start[:-1].astype(np.int64), steps, missing, output, masks)


def make_masks(
    e: Ensemble, threshold: np.ndarray, value: np.ndarray, missing: np.ndarray
) -> Masks | None:
    """Return the masks of all splits; None where a feature has too many thresholds.

    ``threshold`` float64 [nodes]: rows up to it go left; ``value`` [nodes]: of leaves, what
    ``Masks.value`` holds; ``missing`` int8 [nodes]: LEFT, RIGHT or ZERO. No tree may have more than
    `MOST_LEAVES` leaves or splits by category.
    """
    split, leaf = np.flatnonzero(e.left >= 0), np.flatnonzero(e.left < 0)
    feature = e.feature[split]
    order = np.lexsort((threshold[split], feature))
    sorted_feature, sorted_threshold = feature[order], threshold[split][order]
    fresh = np.ones(len(order), np.bool_)
    fresh[1:] = (sorted_feature[1:] != sorted_feature[:-1]) | (
        sorted_threshold[1:] != sorted_threshold[:-1]
    )
    counts = np.bincount(sorted_feature[fresh], minlength=e.n_features)
    if counts.max(initial=0) > _MOST_CODES:
        return None
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    code = np.zeros(len(split), np.int32)
    code[order] = np.cumsum(fresh) - 1 - starts[sorted_feature]
    n_left, lowest = _number_leaves(e)
    tree = np.repeat(np.arange(e.n_trees), np.diff(e.tree_start))
    in_order = leaf[np.lexsort((lowest[leaf], tree[leaf]))]
    leaf_start = np.searchsorted(leaf, e.tree_start).astype(np.int64)
    words = np.append(0, np.cumsum(-(-np.diff(leaf_start) // (8 * BYTES))))
    # Those on the left, n_left from the lowest on, are taken away from a row that goes right: in
    # every byte from the first one that has some of them to the last.
    first, last = lowest[split] // 8, (lowest[split] + n_left[split] - 1) // 8
    one = np.repeat(np.arange(len(split)), last - first + 1)  # the split of each comparison
    byte = np.arange(len(one)) - np.repeat(np.cumsum(last - first + 1) - last - 1, last - first + 1)
    begin = np.clip(lowest[split][one] - 8 * byte, 0, 8)
    end = np.clip((lowest + n_left)[split][one] - 8 * byte, 0, 8)
    place = BYTES * words[tree[split][one]] + byte
    order = np.argsort(place, kind="stable")
    one = one[order]
    return Masks(
        values=sorted_threshold[fresh],
        starts=starts,
        words=words,
        cut=np.searchsorted(place[order], np.arange(BYTES * words[-1] + 1)),
        feature=feature[one].astype(np.int32),
        column=(feature + missing[split].astype(np.int64) * e.n_features)[one].astype(np.int32),
        code=code[one],
        rest=(0xFF & ~((1 << end) - (1 << begin)))[order].astype(np.uint8),
        leaf_start=leaf_start,
        value=value[in_order],
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
