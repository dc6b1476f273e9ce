"""Every check of a state that was read from a file, before a kernel sees any of it.

Kernels trust what they are given: they follow a child, a leaf number or a bin code wherever it
points. The container's checksum finds accidents, not intent, for whoever changes a state can repair
it. So everything here is checked by itself: types, shapes and bounds of all that is used as an
index, that trees are trees, and that sums add up.

| array | what a kernel indexes with it | bound here |
|---|---|---|
| ``codes`` | histogram slots, strata | number of thresholds + 1 of its feature |
| ``label`` | rows of the gradients | number of classes |
| ``left``, ``split`` | nodes, rows of the record | each node but the root is a child once |
| ``feature``, ``code`` | columns, thresholds | features; -1 to the feature's thresholds |
| ``missing_left`` | steps of a partition | 0 or 1 |
| ``choice`` | candidates | -3 to twice the candidates |
| ``leaf`` | nodes | leaves of its tree |
| ``sum_kept`` | candidates | ascending, below their number |
| ``bin_starts`` | thresholds | ascending, from 0 to their number |
"""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any

import numpy as np

from timbermark.boosting.binning import Bins
from timbermark.boosting.data import TrainingData
from timbermark.boosting.forest import Forest
from timbermark.boosting.params import TrainParams
from timbermark.boosting.scale import Residuals, Scale, check_scale, fits_scale
from timbermark.errors import FileFormatError, InputError
from timbermark.kernels.layout import NODE, UNKNOWN

MOST_NODE_BYTES = 2 << 30
"""The nodes of a state take at most this much memory, most of which is never touched."""

_HINT = "save the state again, or rebuild it from the training data."
_WORD_BITS = 64
"""A hessian is at most a quarter of a row's weight, which leaves a bit for the sign, and one."""
# Least and most; of the others, more than the least and at most the most.
_WHOLE = {
    "max_iter": (1, 1_000_000),
    "max_leaf_nodes": (2, 32_768),
    "min_samples_leaf": (1, 2**31 - 1),
    "max_bins": (2, 65_000),
    "seed": (0, 2**64 - 1),
}
_REAL = {
    "learning_rate": (0.0, math.inf, False),
    "l2_regularization": (0.0, math.inf, True),
    "split_sampling": (0.0, 1.0, False),
    "min_hessian": (0.0, math.inf, True),
    "leaf_limit": (0.0, math.inf, False),
}


def expect(sound: Any, what: str) -> None:
    """Raise FileFormatError unless ``sound``."""
    if not sound:
        raise FileFormatError(f"The state is damaged: {what} cannot be right.", hint=_HINT)


def read_params(given: Any) -> TrainParams:
    """Return training parameters from plain values. Raises FileFormatError.

    >>> read_params({**{f.name: getattr(TrainParams(), f.name) for f in fields(TrainParams)}}).seed
    0
    """
    names = {field.name for field in fields(TrainParams)}
    expect(isinstance(given, dict) and set(given) == names, "its parameters")
    for name, (least, most) in _WHOLE.items():
        expect(type(given[name]) is int and least <= given[name] <= most, f"its {name}")
    for name, (low, high, with_low) in _REAL.items():
        value = given[name]
        expect(type(value) in (int, float) and math.isfinite(value), f"its {name}")
        expect((low < value or (with_low and low == value)) and value <= high, f"its {name}")
    values: dict[str, Any] = {name: given[name] for name in _WHOLE}
    values |= {name: float(given[name]) for name in _REAL}
    return TrainParams(**values)


def read_scale(given: Any) -> Scale:
    """Return the scale of sums from plain values. Raises FileFormatError."""
    # Version 1 knew no regression.
    names = {"bits", "shift"}
    expect(isinstance(given, dict) and set(given) in (names, names | {"residuals"}), "its scale")
    bits, shift = given["bits"], given["shift"]
    expect(type(bits) is int and type(shift) is int, "its scale")
    expect(0 < bits <= 20 and 0 < shift <= 54, "its scale")
    return Scale(bits, shift, _read_residuals(given.get("residuals")))


def _read_residuals(given: Any) -> Residuals | None:
    if given is None:
        return None
    expect(isinstance(given, dict) and set(given) == {"start", "bits", "top"}, "its residuals")
    start, bits, top = given["start"], given["bits"], given["top"]
    expect(type(bits) is int and type(top) is int, "its residuals")
    expect(abs(bits) <= 1000 and 0 < top <= 24, "its residuals")
    expect(type(start) in (int, float) and math.isfinite(start), "its start")
    return Residuals(float(start), bits, top)


def read_count(given: Any, least: int, what: str) -> int:
    """Return a whole number of at least ``least``. Raises FileFormatError."""
    expect(type(given) is int and given >= least, what)
    return int(given)


def read_array(
    arrays: dict[str, np.ndarray], name: str, kind: Any, shape: tuple[int | None, ...]
) -> np.ndarray:
    """Return an array of this type and shape (None: any length). Raises FileFormatError."""
    array = arrays[name]
    expect(array.dtype == np.dtype(kind) and array.ndim == len(shape), f"its {name}")
    for found, wanted in zip(array.shape, shape, strict=True):
        expect(wanted is None or found == wanted, f"its {name}")
    # Writeable, because kernels are compiled once more for arrays that are not.
    return np.require(array, requirements=["C", "W"])


def check_bins(bins: Bins) -> None:
    """Check that thresholds are numbers in ascending order, feature by feature."""
    starts = bins.starts
    expect(len(starts) >= 2 and starts[0] == 0 and starts[-1] == len(bins.values), "its bins")
    expect((np.diff(starts) >= 0).all() and (bins.n_thresholds <= 65_000).all(), "its bins")
    expect(not np.isnan(bins.values).any(), "its thresholds")
    within = np.ones(max(len(bins.values) - 1, 0), np.bool_)
    borders = starts[1:-1]
    within[borders[(borders > 0) & (borders < len(bins.values))] - 1] = False
    with np.errstate(invalid="ignore"):
        expect((bins.values[1:] > bins.values[:-1])[within].all(), "its thresholds")


def check_rows(data: TrainingData, scale: Scale) -> None:
    """Check codes, labels and weights of rows, and that their sums fit the scale."""
    expect((data.codes <= data.bins.n_thresholds + 1).all(), "its codes")
    if data.n_classes:
        expect(((data.label >= 0) & (data.label < data.n_classes)).all(), "its labels")
    expect(np.isfinite(data.label).all(), "its labels")
    expect((np.isfinite(data.weight) & (data.weight > 0)).all(), "its weights")
    try:
        check_scale(scale, data)
    except InputError:
        expect(False, "its weights")


def check_total(scale: Scale, data: TrainingData, added: TrainingData) -> None:
    """Check that no sum over the rows can overflow."""
    expect(data.n_rows > 0 and fits_scale(scale, data, added), "its number of rows")
    total = int(np.ceil(data.weight.sum(dtype=np.float64))).bit_length()
    # The hessians of regression are one.
    room = _WORD_BITS if data.n_classes else _WORD_BITS - 2
    expect(scale.bits + scale.shift + total <= room, "its weights")


def check_sizes(n_nodes: np.ndarray, params: TrainParams, n_outputs: int) -> None:
    """Check the numbers of trees and nodes before room is made for them."""
    most = 2 * params.max_leaf_nodes - 1
    expect(len(n_nodes) == params.max_iter * n_outputs, "its number of trees")
    expect(((n_nodes >= 1) & (n_nodes <= most) & (n_nodes % 2 == 1)).all(), "its trees")
    if len(n_nodes) * most * NODE.itemsize > MOST_NODE_BYTES:
        raise FileFormatError(
            f"A state with room for {len(n_nodes)} trees of {params.max_leaf_nodes} leaves takes "
            "more memory than is allowed.",
            hint="rebuild it from the training data with fewer leaves.",
        )


def check_forest(forest: Forest, bins: Bins, n_candidates: int, n_counted: int) -> None:
    """Check that trees are trees, that splits are possible, and that sums add up.

    ``n_counted``: how many rows the training had, heavy ones counted several times.
    """
    most = forest.nodes.shape[1]
    used = np.arange(most) < forest.n_nodes[:, None]
    tree, number = np.nonzero(used)
    nodes = forest.nodes[used]
    inner = nodes["left"] >= 0
    left, split = (nodes[name][inner].astype(np.int64) for name in ("left", "split"))
    feature = nodes["feature"][inner]
    per_tree = np.bincount(tree[inner], minlength=forest.n_trees)
    expect((per_tree == forest.n_nodes // 2).all(), "its trees")
    expect(
        (left > number[inner]).all() and (left == 2 * split.astype(np.int64) + 1).all(), "its trees"
    )
    expect((left.astype(np.int64) + 1 < forest.n_nodes[tree[inner]]).all(), "its trees")
    # As many splits as pairs of children, and no pair twice: every node has one parent.
    expect(len(np.unique(tree[inner] * most + left)) == len(left), "its trees")
    for name in ("left", "split", "feature"):
        expect((nodes[name][~inner] == -1).all(), f"its leaves' {name}")
    expect(((feature >= 0) & (feature < bins.n_features)).all(), "its features")
    expect((nodes["code"][inner] >= -1).all(), "its splits")
    expect((nodes["code"][inner] <= bins.n_thresholds[feature]).all(), "its splits")
    expect(((nodes["missing_left"] == 0) | (nodes["missing_left"] == 1)).all(), "its splits")
    choice = nodes["choice"]
    expect((choice >= UNKNOWN).all() and (choice < 2 * n_candidates).all(), "its choices")
    expect(np.isfinite(nodes["value"]).all(), "its leaf values")
    expect(np.isfinite(nodes["gain"]).all(), "its gains")
    expect((nodes["c"] >= 0).all() and (nodes["h"] >= 0).all(), "its sums")
    expect((forest.nodes["c"][:, 0] == n_counted).all(), "its sums")
    parent = tree[inner]
    for name in ("g", "h", "c"):
        both = forest.nodes[name][parent, left] + forest.nodes[name][parent, left + 1]
        expect((both == nodes[name][inner]).all(), "its sums")


def check_leaves(leaf: np.ndarray, forest: Forest, count: np.ndarray) -> None:
    """Check that every row ends in a leaf, and that leaves hold as many rows as they say."""
    for tree, ends in enumerate(leaf):
        nodes = forest.nodes[tree, : forest.n_nodes[tree]]
        expect(ends.max(initial=0) < len(nodes), "its leaves")
        held = np.bincount(ends, weights=count, minlength=len(nodes))
        expect((held == np.where(nodes["left"] < 0, nodes["c"], 0)).all(), "its leaves")
