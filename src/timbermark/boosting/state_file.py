"""A training state as a file of its own. The format is described in docs/state-format.md.

Sums are written as three plain integers in the narrowest type that holds them, and only where
there is something: a fifth of the size they have in memory. Everything is checked on reading, see
:mod:`timbermark.boosting.state_checks`, because kernels trust what they are given.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from timbermark.boosting import state_checks as checks
from timbermark.boosting.binning import Bins
from timbermark.boosting.data import TrainingData, label_dtype
from timbermark.boosting.fitting import Trained, leaf_dtype
from timbermark.boosting.forest import Forest, empty_forest
from timbermark.boosting.params import TrainParams
from timbermark.boosting.scale import Scale
from timbermark.boosting.state import State, fits_in_memory
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
    try:
        _, meta, arrays = read_container(path, KIND, FORMAT_VERSION)
        return _build(meta, arrays)
    except MemoryError:
        raise FileFormatError(
            f"{path} needs more memory than there is.", hint="end other programs and try again."
        ) from None
    except (KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
        if isinstance(error, FileFormatError):
            raise
        raise FileFormatError(f"The state is not complete ({error}).", hint=_HINT) from error


def _build(meta: dict[str, Any], arrays: dict[str, np.ndarray]) -> State:
    params, scale = checks.read_params(meta["params"]), checks.read_scale(meta["scale"])
    n_classes = checks.read_count(meta["n_classes"], 0, "its number of classes")
    checks.expect(n_classes != 1, "its number of classes")
    checks.expect((n_classes == 0) == (scale.residuals is not None), "its scale")
    values = checks.read_array(arrays, "bin_values", np.float64, (None,))
    bins = Bins(values, checks.read_array(arrays, "bin_starts", np.int64, (None,)))
    checks.check_bins(bins)
    data = _read_data("data", arrays, bins, n_classes, scale)
    added = _read_data("added", arrays, bins, n_classes, scale)
    checks.check_total(scale, data, added)
    candidates = int(data.binned(params).firsts[-1])
    expected = checks.read_count(meta["n_candidates"], 1, "its number of split candidates")
    checks.expect(candidates == expected, "its number of split candidates")
    forest = _read_forest(arrays, params, data.n_outputs)
    counted = int(data.count.sum(dtype=np.int64))
    checks.check_forest(forest, bins, candidates, counted)
    has_sums, model = meta["has_sums"], meta["model"]
    checks.expect(type(has_sums) is bool and type(model) is str, "its metadata")
    trained = _read_sums(has_sums, arrays, params, scale, data, forest, candidates)
    return State(params, scale, data, trained, added, model)


def _read_forest(arrays: dict[str, np.ndarray], params: TrainParams, n_outputs: int) -> Forest:
    n_nodes = checks.read_array(arrays, "n_nodes", np.int64, (None,))
    checks.check_sizes(n_nodes, params, n_outputs)
    forest = empty_forest(len(n_nodes), params.max_leaf_nodes, n_outputs)
    forest.n_nodes[:] = n_nodes
    used = np.arange(forest.nodes.shape[1]) < n_nodes[:, None]
    for name in _NODE_FIELDS:
        shape = (int(n_nodes.sum()),)
        forest.nodes[name][used] = checks.read_array(arrays, f"node_{name}", NODE[name].type, shape)
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
    leaf = checks.read_array(arrays, "leaf", leaf_dtype(params.max_leaf_nodes), shape)
    if not has_sums:
        record = np.zeros((forest.n_trees, 0, 2 * candidates), np.int64)
        return Trained(forest, leaf, record, np.zeros((forest.n_outputs, 0)))
    checks.expect(fits_in_memory(data, params), "its size")
    checks.check_leaves(leaf, forest, data.count)
    kept = checks.read_array(arrays, "sum_kept", np.int64, (None,))
    checks.expect(
        (np.diff(kept) > 0).all() and ((kept >= 0) & (kept < candidates)).all(),
        "its split candidates",
    )
    tree, split = np.nonzero(_used_splits(forest))
    g, h, c = (_read_integers(arrays, f"sum_{name}", (len(tree), len(kept))) for name in "ghc")
    checks.expect(((h >= 0) & (h < 2 ** (63 - scale.shift))).all(), "its sums")
    checks.expect(((c >= 0) & (c < 2**scale.shift)).all(), "its sums")
    record = np.zeros((forest.n_trees, params.max_leaf_nodes - 1, 2 * candidates), np.int64)
    # In place: most of the record is zero and then takes no memory.
    record[tree[:, None], split[:, None], 2 * kept] = g
    record[tree[:, None], split[:, None], 2 * kept + 1] = (h << scale.shift) + c
    return Trained(forest, leaf, record, np.zeros((forest.n_outputs, 0)))


def _read_integers(arrays: dict[str, np.ndarray], name: str, shape: tuple[int, int]) -> np.ndarray:
    array = arrays[name]
    narrow = array.dtype in (np.uint8, np.uint16, np.int32, np.int64)
    checks.expect(narrow and array.shape == shape, f"its {name}")
    return array.astype(np.int64)


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
    codes = checks.read_array(arrays, f"{prefix}_codes", bins.code_dtype, shape)
    label = checks.read_array(arrays, f"{prefix}_label", label_dtype(n_classes), (len(codes),))
    weight = checks.read_array(arrays, f"{prefix}_weight", np.float32, (len(codes),))
    columns = np.ascontiguousarray(codes.T)
    data = TrainingData(bins, codes, columns, label, weight, n_classes)
    checks.check_rows(data, scale)
    return data


def _used_splits(forest: Forest) -> np.ndarray:
    """Return bool[T, L - 1]: which splits each tree has."""
    most = forest.nodes.shape[1] // 2
    used: np.ndarray = np.arange(most) < (forest.n_nodes // 2)[:, None]
    return used


def _narrow(values: np.ndarray) -> np.ndarray:
    """Return the integers in the smallest type that holds them."""
    low, high = int(values.min(initial=0)), int(values.max(initial=0))
    for kind in (np.uint8, np.uint16, np.int32):
        if np.iinfo(kind).min <= low and high <= np.iinfo(kind).max:
            return values.astype(kind)
    return values
