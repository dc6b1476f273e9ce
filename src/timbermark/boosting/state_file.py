"""A training state as a file of its own. The format is described in docs/state-format.md.

Sums are written as three plain integers in the narrowest type that holds them, and only where
there is something: a fifth of the size they have in memory.

Kernels trust what they are given: they follow a child, a leaf number or a bin code wherever it
points. The container's checksum finds accidents, not intent, for whoever changes a state can repair
it. So everything is checked by itself on reading: types, shapes and bounds of all that is used as
an index, that trees are trees, and that sums add up.

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
| ``gone`` | rows of the base | ascending, below their number; not all rows |
| ``row_numbers`` | nothing, but rows are found by it | ascending, below ``n_learnt`` |
"""

from __future__ import annotations

import math
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np

from timbermark.boosting.data import (
    WHOLE_RANGES,
    Bins,
    TrainingData,
    TrainParams,
    label_dtype,
    real_problem,
)
from timbermark.boosting.fitting import Trained, leaf_dtype
from timbermark.boosting.forest import Forest, empty_forest
from timbermark.boosting.objective import Residuals, Scale, check_scale, fits_scale
from timbermark.boosting.state import History, State, fits_in_memory
from timbermark.errors import FileFormatError, InputError
from timbermark.files import read_container, write_container
from timbermark.kernels.layout import (
    NODE,
    UNKNOWN,
    count_leaves,
    find_counted,
    pack_sums,
    unpack_sums,
)

KIND = "state"
FORMAT_VERSION = 3
"""Raised whenever a file written by the new code cannot be read by the old. 1: classes only; 2: no
row can be forgotten."""

_NODE_FIELDS = [name for name in NODE.names or () if name != "unused"]
_HINT = "save the state again, or rebuild it from the training data."
_MOST_NODE_BYTES = 2 << 30
"""The nodes of a state take at most this much memory, most of which is never touched."""

_WORD_BITS = 64
"""A hessian is at most a quarter of a row's weight, which leaves a bit for the sign, and one."""
_WHOLE = {**WHOLE_RANGES, "seed": (0, 2**64 - 1)}
_REAL = tuple(field.name for field in fields(TrainParams) if field.name not in _WHOLE)


def save_state(path: str | Path, state: State) -> None:
    """Write ``state`` to ``path``; the old file stays whole until the new one is."""
    forest, shift = state.trained.forest, state.scale.shift
    used = np.arange(forest.nodes.shape[1]) < forest.n_nodes[:, None]
    nodes = forest.nodes[used]
    arrays = {f"node_{name}": nodes[name] for name in _NODE_FIELDS}
    arrays |= {
        "n_nodes": forest.n_nodes,
        "bin_values": state.data.bins.values,
        "bin_starts": state.data.bins.starts,
        "leaf": state.trained.leaf,
        **_data_arrays("data", state.data),
        **_data_arrays("added", state.added),
        "row_numbers": _narrow(state.history.numbers),
        "gone": np.flatnonzero(state.history.gone),
    }
    if state.has_sums:
        arrays |= _sum_arrays(state.trained.record, forest.n_nodes // 2, shift)
    meta = {
        "params": asdict(state.params),
        "scale": asdict(state.scale),
        "first_scale": asdict(state.history.scale),
        "n_learnt": state.history.n_learnt,
        "n_classes": state.data.n_classes,
        "n_candidates": state.trained.record.shape[2] // 2,
        "has_sums": state.has_sums,
        "model": state.model,
    }
    write_container(path, KIND, FORMAT_VERSION, meta, arrays, compress=False, mode=0o600)


def _sum_arrays(record: np.ndarray, n_splits: np.ndarray, shift: int) -> dict[str, np.ndarray]:
    counted = np.zeros(record.shape[2] // 2, np.bool_)
    # Most features have no missing values, and then nothing is ever counted there.
    find_counted(record, n_splits, shift, counted)
    kept = np.flatnonzero(counted)
    for kind in (np.int32, np.int64):
        g, h, c = (np.empty((int(n_splits.sum()), len(kept)), kind) for _ in range(3))
        if pack_sums(record, n_splits, kept, shift, g, h, c):
            break
    return {"sum_kept": kept, "sum_g": _narrow(g), "sum_h": _narrow(h), "sum_c": _narrow(c)}


def load_state(path: str | Path) -> State:
    """Read what :func:`save_state` wrote. Raises FileFormatError for anything else."""
    try:
        version, meta, arrays = read_container(path, KIND, FORMAT_VERSION)
        return _build(version, meta, arrays)
    except MemoryError:
        raise FileFormatError(
            f"{path} needs more memory than there is.", hint="end other programs and try again."
        ) from None
    except (KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
        if isinstance(error, FileFormatError):
            raise
        raise FileFormatError(f"The state is not complete ({error}).", hint=_HINT) from error


def _build(version: int, meta: dict[str, Any], arrays: dict[str, np.ndarray]) -> State:
    params, scale = _read_params(meta["params"]), _read_scale(meta["scale"])
    n_classes = _read_count(meta["n_classes"], 0, "its number of classes")
    _expect(n_classes != 1, "its number of classes")
    _expect((n_classes == 0) == (scale.residuals is not None), "its scale")
    values = _read_array(arrays, "bin_values", np.float64, (None,))
    bins = Bins(values, _read_array(arrays, "bin_starts", np.int64, (None,)))
    _check_bins(bins)
    data = _read_data("data", arrays, bins, n_classes, scale)
    added = _read_data("added", arrays, bins, n_classes, scale)
    _check_total(scale, data, added)
    candidates = int(data.binned(params).firsts[-1])
    expected = _read_count(meta["n_candidates"], 1, "its number of split candidates")
    _expect(candidates == expected, "its number of split candidates")
    forest = _read_forest(arrays, params, data.n_outputs)
    counted = int(data.count.sum(dtype=np.int64))
    _check_forest(forest, bins, candidates, counted)
    has_sums, model = meta["has_sums"], meta["model"]
    _expect(type(has_sums) is bool and type(model) is str, "its metadata")
    trained = _read_sums(has_sums, arrays, params, scale, data, forest, candidates)
    history = _read_history(version, meta, arrays, scale, data.n_rows, added.n_rows)
    return State(params, scale, data, trained, added, history, model)


def _read_history(
    version: int,
    meta: dict[str, Any],
    arrays: dict[str, np.ndarray],
    scale: Scale,
    n: int,
    n_added: int,
) -> History:
    if version < 3:
        return History(np.arange(n + n_added), np.zeros(n, np.bool_), n + n_added, scale)
    first = _read_scale(meta["first_scale"])
    _expect((first.residuals is None) == (scale.residuals is None), "its first scale")
    n_learnt = _read_count(meta["n_learnt"], 1, "its number of rows")
    _expect(n_learnt < 2**62, "its number of rows")
    numbers = _read_integers(arrays, "row_numbers", (n + n_added,)).astype(np.int64)
    _expect(
        (np.diff(numbers) > 0).all() and numbers[0] >= 0 and numbers[-1] < n_learnt, "its numbers"
    )
    gone = _read_array(arrays, "gone", np.int64, (None,))
    _expect((np.diff(gone) > 0).all() and ((gone >= 0) & (gone < n)).all(), "its forgotten rows")
    _expect(len(gone) < n + n_added, "its forgotten rows")
    flags = np.zeros(n, np.bool_)
    flags[gone] = True
    return History(numbers, flags, n_learnt, first)


def _read_forest(arrays: dict[str, np.ndarray], params: TrainParams, n_outputs: int) -> Forest:
    n_nodes = _read_array(arrays, "n_nodes", np.int64, (None,))
    _check_sizes(n_nodes, params, n_outputs)
    forest = empty_forest(len(n_nodes), params.max_leaf_nodes, n_outputs)
    forest.n_nodes[:] = n_nodes
    used = np.arange(forest.nodes.shape[1]) < n_nodes[:, None]
    for name in _NODE_FIELDS:
        shape = (int(n_nodes.sum()),)
        forest.nodes[name][used] = _read_array(arrays, f"node_{name}", NODE[name].type, shape)
    return forest


def _read_sums(
    has_sums: bool,
    arrays: dict[str, np.ndarray],
    params: TrainParams,
    scale: Scale,
    data: TrainingData,
    forest: Forest,
    candidates: int,
) -> Trained:
    shape = (forest.n_trees, data.n_rows if has_sums else 0)
    leaf = _read_array(arrays, "leaf", leaf_dtype(params.max_leaf_nodes), shape)
    if not has_sums:
        record = np.zeros((forest.n_trees, 0, 2 * candidates), np.int64)
        return Trained(forest, leaf, record, np.zeros((forest.n_outputs, 0)))
    _expect(fits_in_memory(data, params), "its size")
    _check_leaves(leaf, forest, data.count)
    kept = _read_array(arrays, "sum_kept", np.int64, (None,))
    _expect(
        (np.diff(kept) > 0).all() and ((kept >= 0) & (kept < candidates)).all(),
        "its split candidates",
    )
    n_splits = forest.n_nodes // 2
    shape = (int(n_splits.sum()), len(kept))
    g, h, c = (_read_integers(arrays, f"sum_{name}", shape) for name in "ghc")
    _expect(h.min(initial=0) >= 0 and int(h.max(initial=0)) < 2 ** (63 - scale.shift), "its sums")
    _expect(c.min(initial=0) >= 0 and int(c.max(initial=0)) < 2**scale.shift, "its sums")
    # Most of the record is zero and then takes no memory.
    record = np.zeros((forest.n_trees, params.max_leaf_nodes - 1, 2 * candidates), np.int64)
    wide = np.int64 if any(array.dtype == np.int64 for array in (g, h, c)) else np.int32
    # Two types, because a kernel is compiled for each.
    g, h, c = (array.astype(wide, copy=False) for array in (g, h, c))
    unpack_sums(g, h, c, n_splits, kept, scale.shift, record)
    return Trained(forest, leaf, record, np.zeros((forest.n_outputs, 0)))


def _read_integers(arrays: dict[str, np.ndarray], name: str, shape: tuple[int, ...]) -> np.ndarray:
    array = arrays[name]
    narrow = array.dtype in (np.uint8, np.uint16, np.int32, np.int64)
    _expect(narrow and array.shape == shape, f"its {name}")
    return np.require(array, requirements=["C", "W"])


def _data_arrays(prefix: str, data: TrainingData) -> dict[str, np.ndarray]:
    return {
        f"{prefix}_codes": data.codes,
        f"{prefix}_label": data.label,
        f"{prefix}_weight": data.weight,
    }


def _read_data(
    prefix: str, arrays: dict[str, np.ndarray], bins: Bins, n_classes: int, scale: Scale
) -> TrainingData:
    shape = (None, bins.n_features)
    codes = _read_array(arrays, f"{prefix}_codes", bins.code_dtype, shape)
    label = _read_array(arrays, f"{prefix}_label", label_dtype(n_classes), (len(codes),))
    weight = _read_array(arrays, f"{prefix}_weight", np.float32, (len(codes),))
    columns = np.ascontiguousarray(codes.T)
    data = TrainingData(bins, codes, columns, label, weight, n_classes)
    _check_rows(data, scale)
    return data


def _narrow(values: np.ndarray) -> np.ndarray:
    """Return the integers in the smallest type that holds them."""
    low, high = int(values.min(initial=0)), int(values.max(initial=0))
    for kind in (np.uint8, np.uint16, np.int32):
        if np.iinfo(kind).min <= low and high <= np.iinfo(kind).max:
            return values.astype(kind)
    return values


def _expect(sound: Any, what: str) -> None:
    """Raise FileFormatError unless ``sound``."""
    if not sound:
        raise FileFormatError(f"The state is damaged: {what} cannot be right.", hint=_HINT)


def _read_params(given: Any) -> TrainParams:
    """Return training parameters from plain values. Raises FileFormatError.

    >>> _read_params(asdict(TrainParams())).seed
    0
    """
    _expect(isinstance(given, dict) and set(given) == {*_REAL, *_WHOLE}, "its parameters")
    for name, (least, most) in _WHOLE.items():
        _expect(type(given[name]) is int and least <= given[name] <= most, f"its {name}")
    for name in _REAL:
        value = given[name]
        _expect(type(value) in (int, float) and math.isfinite(value), f"its {name}")
        _expect(not real_problem(name, value), f"its {name}")
    values: dict[str, Any] = {name: given[name] for name in _WHOLE}
    values |= {name: float(given[name]) for name in _REAL}
    return TrainParams(**values)


def _read_scale(given: Any) -> Scale:
    """Return the scale of sums from plain values. Raises FileFormatError."""
    # Version 1 knew no regression.
    names = {"bits", "shift"}
    _expect(isinstance(given, dict) and set(given) in (names, names | {"residuals"}), "its scale")
    bits, shift = given["bits"], given["shift"]
    _expect(type(bits) is int and type(shift) is int, "its scale")
    _expect(0 < bits <= 20 and 0 < shift <= 54, "its scale")
    return Scale(bits, shift, _read_residuals(given.get("residuals")))


def _read_residuals(given: Any) -> Residuals | None:
    if given is None:
        return None
    _expect(isinstance(given, dict) and set(given) == {"start", "bits", "top"}, "its residuals")
    start, bits, top = given["start"], given["bits"], given["top"]
    _expect(type(bits) is int and type(top) is int, "its residuals")
    _expect(abs(bits) <= 1000 and 0 < top <= 24, "its residuals")
    _expect(type(start) in (int, float) and math.isfinite(start), "its start")
    return Residuals(float(start), bits, top)


def _read_count(given: Any, least: int, what: str) -> int:
    """Return a whole number of at least ``least``. Raises FileFormatError."""
    _expect(type(given) is int and given >= least, what)
    return int(given)


def _read_array(
    arrays: dict[str, np.ndarray], name: str, kind: Any, shape: tuple[int | None, ...]
) -> np.ndarray:
    """Return an array of this type and shape (None: any length). Raises FileFormatError."""
    array = arrays[name]
    _expect(array.dtype == np.dtype(kind) and array.ndim == len(shape), f"its {name}")
    for found, wanted in zip(array.shape, shape, strict=True):
        _expect(wanted is None or found == wanted, f"its {name}")
    # Writeable, because kernels are compiled once more for arrays that are not.
    return np.require(array, requirements=["C", "W"])


def _check_bins(bins: Bins) -> None:
    """Check that thresholds are numbers in ascending order, feature by feature."""
    starts = bins.starts
    _expect(len(starts) >= 2 and starts[0] == 0 and starts[-1] == len(bins.values), "its bins")
    _expect((np.diff(starts) >= 0).all() and (bins.n_thresholds <= 65_000).all(), "its bins")
    _expect(not np.isnan(bins.values).any(), "its thresholds")
    within = np.ones(max(len(bins.values) - 1, 0), np.bool_)
    borders = starts[1:-1]
    within[borders[(borders > 0) & (borders < len(bins.values))] - 1] = False
    with np.errstate(invalid="ignore"):
        _expect((bins.values[1:] > bins.values[:-1])[within].all(), "its thresholds")


def _check_rows(data: TrainingData, scale: Scale) -> None:
    """Check codes, labels and weights of rows, and that their sums fit the scale."""
    _expect((data.codes <= data.bins.n_thresholds + 1).all(), "its codes")
    if data.n_classes:
        _expect(((data.label >= 0) & (data.label < data.n_classes)).all(), "its labels")
    _expect(np.isfinite(data.label).all(), "its labels")
    _expect((np.isfinite(data.weight) & (data.weight > 0)).all(), "its weights")
    try:
        check_scale(scale, data)
    except InputError:
        _expect(False, "its weights")


def _check_total(scale: Scale, data: TrainingData, added: TrainingData) -> None:
    """Check that no sum over the rows can overflow."""
    _expect(data.n_rows > 0 and fits_scale(scale, data, added), "its number of rows")
    total = int(np.ceil(data.weight.sum(dtype=np.float64))).bit_length()
    # The hessians of regression are one.
    room = _WORD_BITS if data.n_classes else _WORD_BITS - 2
    _expect(scale.bits + scale.shift + total <= room, "its weights")


def _check_sizes(n_nodes: np.ndarray, params: TrainParams, n_outputs: int) -> None:
    """Check the numbers of trees and nodes before room is made for them."""
    most = 2 * params.max_leaf_nodes - 1
    _expect(len(n_nodes) == params.max_iter * n_outputs, "its number of trees")
    _expect(((n_nodes >= 1) & (n_nodes <= most) & (n_nodes % 2 == 1)).all(), "its trees")
    if len(n_nodes) * most * NODE.itemsize > _MOST_NODE_BYTES:
        raise FileFormatError(
            f"A state with room for {len(n_nodes)} trees of {params.max_leaf_nodes} leaves takes "
            "more memory than is allowed.",
            hint="rebuild it from the training data with fewer leaves.",
        )


def _check_forest(forest: Forest, bins: Bins, n_candidates: int, n_counted: int) -> None:
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
    _expect((per_tree == forest.n_nodes // 2).all(), "its trees")
    _expect(
        (left > number[inner]).all() and (left == 2 * split.astype(np.int64) + 1).all(), "its trees"
    )
    _expect((left.astype(np.int64) + 1 < forest.n_nodes[tree[inner]]).all(), "its trees")
    # As many splits as pairs of children, and no pair twice: every node has one parent.
    _expect(len(np.unique(tree[inner] * most + left)) == len(left), "its trees")
    for name in ("left", "split", "feature"):
        _expect((nodes[name][~inner] == -1).all(), f"its leaves' {name}")
    _expect(((feature >= 0) & (feature < bins.n_features)).all(), "its features")
    _expect((nodes["code"][inner] >= -1).all(), "its splits")
    _expect((nodes["code"][inner] <= bins.n_thresholds[feature]).all(), "its splits")
    _expect(((nodes["missing_left"] == 0) | (nodes["missing_left"] == 1)).all(), "its splits")
    choice = nodes["choice"]
    _expect((choice >= UNKNOWN).all() and (choice < 2 * n_candidates).all(), "its choices")
    _expect(np.isfinite(nodes["value"]).all(), "its leaf values")
    _expect(np.isfinite(nodes["gain"]).all(), "its gains")
    _expect((nodes["c"] >= 0).all() and (nodes["h"] >= 0).all(), "its sums")
    _expect((forest.nodes["c"][:, 0] == n_counted).all(), "its sums")
    parent = tree[inner]
    for name in ("g", "h", "c"):
        both = forest.nodes[name][parent, left] + forest.nodes[name][parent, left + 1]
        _expect((both == nodes[name][inner]).all(), "its sums")


def _check_leaves(leaf: np.ndarray, forest: Forest, count: np.ndarray) -> None:
    """Check that every row ends in a leaf, and that leaves hold as many rows as they say."""
    held = np.zeros(forest.nodes.shape, np.int64)
    _expect(count_leaves(leaf, count, forest.n_nodes, held), "its leaves")
    used = np.arange(forest.nodes.shape[1]) < forest.n_nodes[:, None]
    ends = np.where(used & (forest.nodes["left"] < 0), forest.nodes["c"], 0)
    _expect((held == ends).all(), "its leaves")
