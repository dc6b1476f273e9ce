"""A training state as a file of its own. The format is described in docs/state-format.md.

Sums are written as three plain integers in the narrowest type that holds them, and only where
there is something: a fifth of the size they have in memory. Everything is checked on reading,
because kernels trust what they are given.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from timbermark.boosting.binning import Bins
from timbermark.boosting.data import TrainingData, count_outputs, label_dtype
from timbermark.boosting.fitting import Trained, leaf_dtype
from timbermark.boosting.forest import Forest, empty_forest
from timbermark.boosting.params import TrainParams
from timbermark.boosting.scale import Residuals, Scale
from timbermark.boosting.state import State
from timbermark.errors import FileFormatError
from timbermark.files import read_container, write_container
from timbermark.kernels.layout import NODE

KIND = "state"
FORMAT_VERSION = 2
"""Raised whenever a file written by the new code cannot be read by the old. 1: classes only."""

_NODE_FIELDS = [name for name in NODE.names or () if name != "unused"]
_HINT = "save the state again, or rebuild it from the training data."


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
    }
    if state.has_sums:
        record = state.trained.record[_used_splits(forest)]
        rows = record[:, 1::2] & (2**shift - 1)
        # Most features have no missing values, and then nothing is ever counted there.
        kept = np.flatnonzero(rows.any(axis=0))
        arrays |= {
            "sum_kept": kept,
            "sum_g": _narrow(record[:, 2 * kept]),
            "sum_h": _narrow(record[:, 2 * kept + 1] >> shift),
            "sum_c": _narrow(rows[:, kept]),
        }
    meta = {
        "params": asdict(state.params),
        "scale": asdict(state.scale),
        "n_classes": state.data.n_classes,
        "n_candidates": state.trained.record.shape[2] // 2,
        "has_sums": state.has_sums,
        "model": state.model,
    }
    write_container(path, KIND, FORMAT_VERSION, meta, arrays, compress=False, mode=0o600)


def load_state(path: str | Path) -> State:
    """Read what :func:`save_state` wrote. Raises FileFormatError for anything else."""
    _, meta, arrays = read_container(path, KIND, FORMAT_VERSION)
    try:
        return _build(meta, arrays)
    except (KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
        if isinstance(error, FileFormatError):
            raise
        raise FileFormatError(f"The state is not complete ({error}).", hint=_HINT) from error


def _build(meta: dict[str, Any], arrays: dict[str, np.ndarray]) -> State:
    params, scale = TrainParams(**meta["params"]), _read_scale(meta["scale"])
    n_classes = int(meta["n_classes"])
    n_outputs = count_outputs(n_classes)
    _expect(n_classes == 0 or n_classes >= 2, "its number of classes")
    _expect((n_classes == 0) == (scale.residuals is not None), "its scale")
    _expect(2 <= params.max_leaf_nodes <= 65_536 and params.max_iter >= 1, "its parameters")
    bins = Bins(_array(arrays, "bin_values", np.float64), _array(arrays, "bin_starts", np.int64))
    _expect(
        len(bins.starts) >= 2
        and bins.starts[0] == 0
        and bins.starts[-1] == len(bins.values)
        and bool((np.diff(bins.starts) >= 0).all())
        and bool((bins.n_thresholds <= 65_000).all()),
        "its bins",
    )
    data = _read_data("data", arrays, bins, n_classes)
    added = _read_data("added", arrays, bins, n_classes)
    forest = _read_forest(arrays, params, n_outputs, bins)
    trained = _read_sums(meta, arrays, params, scale, data, forest)
    return State(params, scale, data, trained, added, str(meta["model"]))


def _read_scale(meta: dict[str, Any]) -> Scale:
    given = meta.get("residuals")
    residuals = None if given is None else Residuals(**given)
    scale = Scale(int(meta["bits"]), int(meta["shift"]), residuals)
    _expect(0 < scale.bits <= 20 and 0 < scale.shift <= 54, "its scale")
    if residuals is not None:
        _expect(abs(residuals.bits) <= 1000 and 0 < residuals.top <= 24, "its scale")
        _expect(bool(np.isfinite(residuals.start)), "its start")
    return scale


def _read_forest(
    arrays: dict[str, np.ndarray], params: TrainParams, n_outputs: int, bins: Bins
) -> Forest:
    n_nodes = _array(arrays, "n_nodes", np.int64)
    most = 2 * params.max_leaf_nodes - 1
    _expect(len(n_nodes) == params.max_iter * n_outputs, "its number of trees")
    _expect(bool(((n_nodes >= 1) & (n_nodes <= most) & (n_nodes % 2 == 1)).all()), "its trees")
    forest = empty_forest(len(n_nodes), params.max_leaf_nodes, n_outputs)
    forest.n_nodes[:] = n_nodes
    used = np.arange(most) < n_nodes[:, None]
    for name in _NODE_FIELDS:
        column = _array(arrays, f"node_{name}", NODE[name].type)
        _expect(column.shape == (int(n_nodes.sum()),), f"its nodes' {name}")
        forest.nodes[name][used] = column
    nodes = forest.nodes[used]
    number = np.broadcast_to(np.arange(most), used.shape)[used]
    size = np.repeat(n_nodes, n_nodes)
    inner = nodes["left"] >= 0
    feature = nodes["feature"][inner]
    _expect(
        bool((nodes["left"][inner] > number[inner]).all())
        and bool((nodes["left"][inner] + 1 < size[inner]).all())
        and bool((nodes["left"][inner] == 2 * nodes["split"][inner] + 1).all())
        and bool((nodes["split"][~inner] == -1).all())
        and bool((inner.sum() * 2 + len(n_nodes)) == len(nodes)),
        "its trees",
    )
    _expect(bool(((feature >= 0) & (feature < bins.n_features)).all()), "its features")
    _expect(bool((nodes["code"] >= -1).all()), "its splits")
    _expect(bool(np.isfinite(nodes["value"]).all()), "its leaf values")
    return forest


def _read_sums(
    meta: dict[str, Any],
    arrays: dict[str, np.ndarray],
    params: TrainParams,
    scale: Scale,
    data: TrainingData,
    forest: Forest,
) -> Trained:
    candidates = int(data.binned(params).firsts[-1])
    _expect(candidates == meta["n_candidates"], "its split candidates")
    choice = forest.nodes["choice"]
    _expect(bool((choice >= -3).all() and (choice < 2 * candidates).all()), "its choices")
    has_sums = bool(meta["has_sums"])
    leaf = _array(arrays, "leaf", leaf_dtype(params.max_leaf_nodes))
    _expect(leaf.shape == (forest.n_trees, data.n_rows if has_sums else 0), "its leaf numbers")
    splits = params.max_leaf_nodes - 1 if has_sums else 0
    record = np.zeros((forest.n_trees, splits, 2 * candidates), np.int64)
    if has_sums:
        kept = _array(arrays, "sum_kept", np.int64)
        _expect(bool(((kept >= 0) & (kept < candidates)).all()), "its split candidates")
        ends_in = np.take_along_axis(forest.nodes["left"], leaf.astype(np.int64), axis=1)
        _expect(bool((leaf < forest.n_nodes[:, None]).all() and (ends_in < 0).all()), "its leaves")
        used = _used_splits(forest)
        shape = (int(used.sum()), len(kept))
        g, h, c = (arrays[f"sum_{name}"] for name in "ghc")
        _expect(g.shape == h.shape == c.shape == shape, "its sums")
        rows = np.zeros((shape[0], 2 * candidates), np.int64)
        rows[:, 2 * kept] = g
        rows[:, 2 * kept + 1] = (h.astype(np.int64) << scale.shift) + c.astype(np.int64)
        record[used] = rows
    return Trained(forest, leaf, record, np.zeros((forest.n_outputs, 0)))


def _data_arrays(prefix: str, data: TrainingData) -> dict[str, np.ndarray]:
    return {
        f"{prefix}_codes": data.codes,
        f"{prefix}_label": data.label,
        f"{prefix}_weight": data.weight,
    }


def _read_data(
    prefix: str, arrays: dict[str, np.ndarray], bins: Bins, n_classes: int
) -> TrainingData:
    codes = _array(arrays, f"{prefix}_codes", bins.code_dtype)
    label = _array(arrays, f"{prefix}_label", label_dtype(n_classes))
    weight = _array(arrays, f"{prefix}_weight", np.float32)
    _expect(codes.shape == (len(label), bins.n_features) and len(weight) == len(label), "its rows")
    _expect(bool((codes <= bins.n_thresholds + 1).all()), "its codes")
    known = (label >= 0) & (label < n_classes) if n_classes else np.isfinite(label)
    _expect(bool(known.all()), "its labels")
    _expect(bool((np.isfinite(weight) & (weight > 0)).all()), "its weights")
    return TrainingData(bins, codes, np.ascontiguousarray(codes.T), label, weight, n_classes)


def _array(arrays: dict[str, np.ndarray], name: str, kind: type[np.generic]) -> np.ndarray:
    array = arrays[name]
    _expect(array.dtype == np.dtype(kind), f"its {name}")
    # Writeable, because kernels are compiled once more for arrays that are not.
    return np.require(array, requirements=["C", "W"])


def _expect(sound: bool, what: str) -> None:
    if not sound:
        raise FileFormatError(f"The state is damaged: {what} cannot be right.", hint=_HINT)


def _used_splits(forest: Forest) -> np.ndarray:
    """bool[T, L - 1]: which splits each tree has."""
    most = forest.nodes.shape[1] // 2
    used: np.ndarray = np.arange(most) < (forest.n_nodes // 2)[:, None]
    return used


def _narrow(values: np.ndarray) -> np.ndarray:
    """The same integers in the smallest type that holds them."""
    low, high = int(values.min(initial=0)), int(values.max(initial=0))
    for kind in (np.uint8, np.uint16, np.int32):
        if np.iinfo(kind).min <= low and high <= np.iinfo(kind).max:
            return values.astype(kind)
    return values
