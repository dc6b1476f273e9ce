"""What makes an ensemble sound, and its file format, which docs/model-format.md describes.

The rule for FORMAT_VERSION: raise it by one whenever a reader of the present version would refuse
a new file or, worse, predict something else from it. A new version keeps reading all older ones,
and a file written by each released version stays among the tests.

A predictor that trusts a sound ensemble can neither crash nor loop forever.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from timbermark.dtypes import AnyArray, Flags, Offsets
from timbermark.errors import FileFormatError, InputError
from timbermark.files import read_container, write_container
from timbermark.files.reading import Arrays, Meta
from timbermark.trees.ensemble import (
    ARRAY_TYPES,
    FLOAT_TYPES,
    MISSING_NAN,
    OBJECTIVES,
    SIDES,
    SINGLE_OUTPUT,
    Ensemble,
    scalars,
)

_WRONG = "it was damaged, or put together wrongly."


def validate_ensemble(ensemble: Ensemble) -> None:
    """Check everything that prediction relies on; do nothing if the ensemble is sound.

    Sound means: every array has its type and shape; every tree is a tree, that is, each of its
    nodes is reached exactly once from its root; features, outputs and category sets exist; leaf
    values, weights, starts and statistics are finite. Thresholds may be infinite, because some
    libraries use such a split to part missing values from all others, but not NaN.

    Raises InputError that names the first thing found wrong, with tree and node.

    >>> from dataclasses import replace
    >>> from timbermark.trees.construction import constant_ensemble
    >>> leaf = constant_ensemble(n_features=1, value=2.0)
    >>> validate_ensemble(leaf)
    >>> validate_ensemble(replace(leaf, feature=np.array([3], dtype=np.int32)))
    Traceback (most recent call last):
    timbermark.errors.InputError: Tree 0, node 0: a leaf has feature 3, not -1. Hint: it was \
damaged, or put together wrongly.
    """
    _check_scalars(ensemble)
    _check_shapes(ensemble)
    _check_structure(ensemble)
    _check_splits(ensemble)
    _check_categories(ensemble)
    _check_numbers(ensemble)


def _require(sound: bool | np.bool_, message: str) -> None:
    if not sound:
        raise InputError(f"The ensemble is not sound: {message}.", hint=_WRONG)


def _require_nodes(ensemble: Ensemble, wrong: Flags, message: str, shown: AnyArray) -> None:
    """Raise for the first node that is wrong; ``{}`` in the message becomes its entry of shown."""
    if wrong.any():
        node = int(np.argmax(wrong))
        tree = int(np.searchsorted(ensemble.tree_start, node, side="right")) - 1
        local = node - int(ensemble.tree_start[tree])
        raise InputError(f"Tree {tree}, node {local}: {message.format(shown[node])}.", hint=_WRONG)


def _check_scalars(e: Ensemble) -> None:
    for name in ("n_features", "n_outputs"):
        number: Any = getattr(e, name)
        whole = isinstance(number, int) and not isinstance(number, bool)
        _require(whole and number >= 1, f"{name}={number!r} must be a whole number from 1")
    for name in ("init_last", "strict", "zero_is_positive"):
        _require(isinstance(getattr(e, name), bool), f"{name}={getattr(e, name)!r} must be a bool")
    for name, choices in (
        ("objective", OBJECTIVES),
        ("categories_go", SIDES),
        ("input_dtype", FLOAT_TYPES),
        ("sum_dtype", FLOAT_TYPES),
    ):
        _require(getattr(e, name) in choices, f"{name}={getattr(e, name)!r} is none of {choices}")
    _require(
        (e.n_outputs == 1) == (e.objective in SINGLE_OUTPUT),
        f"n_outputs={e.n_outputs} does not go with the objective {e.objective}, "
        f"only {' and '.join(SINGLE_OUTPUT)} have a single output",
    )
    _require(
        isinstance(e.scale, float) and math.isfinite(e.scale), f"scale={e.scale!r} must be finite"
    )
    _require(e.init_last or e.scale == 1.0, f"scale={e.scale} must be 1.0 unless init_last")


def _check_shapes(e: Ensemble) -> None:
    _require(e.tree_start.ndim == 1 and e.tree_start.size >= 1, "tree_start is empty")
    _require(e.feature.ndim == 1, "feature must have one dimension")
    _require(e.category_offsets.ndim == 1 and e.category_offsets.size >= 1, "no category_offsets")
    _require(e.category_values.ndim == 1, "category_values must have one dimension")
    nodes, trees = (e.n_nodes,), (e.n_trees,)
    shapes = {
        "tree_output": trees,
        "tree_weight": trees,
        "init": (e.n_outputs,),
        **dict.fromkeys(("threshold", "left", "right", "missing_left", "missing_kind"), nodes),
        **dict.fromkeys(("category_set", "count", "hessian", "gain"), nodes),
    }
    for name, dtype in ARRAY_TYPES.items():
        array: AnyArray = getattr(e, name)
        _require(array.dtype == dtype, f"{name} has the type {array.dtype}")
        expected = shapes.get(name, array.shape)
        _require(array.shape == expected, f"{name} has the shape {array.shape}, not {expected}")
    _require(
        e.value.shape in ((e.n_nodes, 1), (e.n_nodes, e.n_outputs)),
        f"value has the shape {e.value.shape}, not ({e.n_nodes}, 1) or "
        f"({e.n_nodes}, {e.n_outputs})",
    )


def _check_structure(e: Ensemble) -> None:
    start = e.tree_start
    _require(
        start[0] == 0 and start[-1] == e.n_nodes and (start[1:] > start[:-1]).all(),
        f"tree_start must rise from 0 to the number of nodes, {e.n_nodes}, without empty trees",
    )
    one_child = (e.left < 0) != (e.right < 0)
    _require_nodes(e, one_child, "only one of its two children exists", e.left)
    sizes = np.repeat(np.diff(start), np.diff(start))
    for name, child in (("left", e.left), ("right", e.right)):
        # 0 is the root, which is nobody's child.
        outside = (child < -1) | (child == 0) | (child >= sizes)
        _require_nodes(e, outside, f"its {name} child {{}} is not a node of the tree", child)
    reached = _count_visits(e)
    _require_nodes(e, reached > 1, "it is reached {} times from the root", reached)
    _require_nodes(e, reached < 1, "it is not reached from the root", reached)


def _count_visits(e: Ensemble) -> Offsets:
    """Count how often each node is reached from its root, for all trees together, [N] int64.

    Goes down level by level and does not go on from a node that was reached before, so that a loop
    ends the walk instead of keeping it busy.
    """
    base = np.repeat(e.tree_start[:-1], np.diff(e.tree_start))
    visits = np.zeros(e.n_nodes, dtype=np.int64)
    level = e.tree_start[:-1].copy()
    while level.size:
        np.add.at(visits, level, 1)
        level = level[visits[level] == 1]
        level = level[e.left[level] >= 0]
        level = np.concatenate([base[level] + e.left[level], base[level] + e.right[level]])
    return visits


def _check_splits(e: Ensemble) -> None:
    leaf = e.left < 0
    _require_nodes(e, leaf & (e.feature != -1), "a leaf has feature {}, not -1", e.feature)
    unknown = ~leaf & ((e.feature < 0) | (e.feature >= e.n_features))
    _require_nodes(e, unknown, f"feature {{}} is not among the {e.n_features} features", e.feature)
    _require_nodes(e, np.isnan(e.threshold), "its threshold is {}", e.threshold)
    kind = e.missing_kind
    _require_nodes(e, kind > MISSING_NAN, "missing_kind {} is not known", kind)


def _check_categories(e: Ensemble) -> None:
    offsets, values = e.category_offsets, e.category_values
    _require(
        offsets[0] == 0 and offsets[-1] == values.size and (offsets[1:] >= offsets[:-1]).all(),
        f"category_offsets must rise from 0 to the number of values, {values.size}",
    )
    _require((values >= 0).all(), "a category is negative")
    rises = np.diff(values.astype(np.int64)) > 0
    rises[offsets[(offsets > 0) & (offsets < values.size)] - 1] = True
    _require(rises.all(), "the categories of a set must rise")
    leaf = e.left < 0
    wrong = (e.category_set < -1) | (e.category_set >= offsets.size - 1)
    wrong |= leaf & (e.category_set != -1)
    _require_nodes(e, wrong, "category set {} does not exist or is not for a leaf", e.category_set)


def _check_numbers(e: Ensemble) -> None:
    output = e.tree_output
    vectors = e.value.shape[1] == e.n_outputs
    lowest = -1 if vectors else 0
    highest = -1 if vectors and e.n_outputs > 1 else e.n_outputs - 1
    _require(
        ((output >= lowest) & (output <= highest)).all(),
        f"tree_output must be from {lowest} to {highest} for values of width {e.value.shape[1]}",
    )
    for name in ("tree_weight", "init"):
        _require(np.isfinite(getattr(e, name)).all(), f"{name} is not finite")
    infinite: Flags = (~np.isfinite(e.value)).max(axis=1)
    _require_nodes(e, infinite, "its value {} is not finite", e.value)
    for name in ("count", "hessian"):
        statistic: AnyArray = getattr(e, name)
        wrong = ~(np.isfinite(statistic) & (statistic >= 0))
        _require_nodes(e, wrong, f"its {name} {{}} must be finite and not negative", statistic)
    _require_nodes(e, np.isnan(e.gain), "its gain is {}", e.gain)


KIND = "ensemble"
FORMAT_VERSION = 2
"""1: classes only. 2: also regression, the objective ``identity``."""

_SCALAR_TYPES: dict[str, type] = {
    "n_features": int,
    "n_outputs": int,
    "objective": str,
    "categories_go": str,
    "init_last": bool,
    "scale": float,
    "strict": bool,
    "input_dtype": str,
    "sum_dtype": str,
    "zero_is_positive": bool,
}
_HINT = "it was not written by timbermark, do not trust it."


def save_ensemble(path: str | os.PathLike[str], ensemble: Ensemble) -> None:
    """Write an ensemble to a file of its own, atomically.

    Raises InputError if the folder does not exist, OSError if the system refuses.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from timbermark.trees.construction import constant_ensemble
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_ensemble(Path(folder) / "trees", constant_ensemble(n_features=1, value=2.0))
    ...     load_ensemble(Path(folder) / "trees").n_leaves
    1
    """
    meta, arrays = ensemble_to_arrays(ensemble)
    write_container(path, KIND, FORMAT_VERSION, meta, arrays)


def load_ensemble(source: str | os.PathLike[str] | bytes) -> Ensemble:
    """Read what `save_ensemble` wrote, from a file or from its bytes.

    Raises FileFormatError if it is not such a file or not a sound ensemble, OSError if it cannot
    be opened. See `save_ensemble` for an example.

    >>> load_ensemble(b"")
    Traceback (most recent call last):
    timbermark.errors.FileFormatError: The data is empty. Hint: get the file again from where it \
came, it was damaged on the way.
    """
    _, meta, arrays = read_container(source, KIND, FORMAT_VERSION)
    return ensemble_from_arrays(meta, arrays)


def ensemble_to_arrays(ensemble: Ensemble, prefix: str = "") -> tuple[Meta, Arrays]:
    """Return an ensemble as metadata and arrays for a container.

    The names of the arrays begin with ``prefix``, so that a larger file can hold an ensemble among
    other things. The law: ``ensemble_from_arrays(*ensemble_to_arrays(e, p), p) == e``.

    >>> from timbermark.trees.construction import constant_ensemble
    >>> meta, arrays = ensemble_to_arrays(constant_ensemble(n_features=1, value=2.0), "trees.")
    >>> meta["objective"], arrays["trees.value"]
    ('logistic', array([[2.]]))
    """
    return scalars(ensemble), {prefix + name: getattr(ensemble, name) for name in ARRAY_TYPES}


def ensemble_from_arrays(
    meta: Mapping[str, Any], arrays: Mapping[str, AnyArray], prefix: str = ""
) -> Ensemble:
    """Return the ensemble that `ensemble_to_arrays` took apart.

    Arrays whose names do not begin with ``prefix`` are ignored; everything else must be exactly as
    written: every field there, no other, each of its type.

    Raises FileFormatError if anything is missing, foreign, of another type or not sound.

    >>> from timbermark.trees.construction import constant_ensemble
    >>> meta, arrays = ensemble_to_arrays(constant_ensemble(n_features=1, value=2.0))
    >>> ensemble_from_arrays(meta, arrays).n_trees
    1
    """
    found = {
        name.removeprefix(prefix): array
        for name, array in arrays.items()
        if name.startswith(prefix)
    }
    _check_names("metadata", set(meta), set(_SCALAR_TYPES))
    _check_names("arrays", set(found), set(ARRAY_TYPES))
    for name, expected in _SCALAR_TYPES.items():
        if type(meta[name]) is not expected:
            raise FileFormatError(
                f"The file's {name}={meta[name]!r} is not of the type {expected.__name__}.", _HINT
            )
    for name, dtype in ARRAY_TYPES.items():
        if found[name].dtype != dtype:
            raise FileFormatError(
                f"The file's array {name} has the type {found[name].dtype}, "
                f"not {np.dtype(dtype).name}.",
                _HINT,
            )
    content: dict[str, Any] = {**meta, **found}
    try:
        ensemble = Ensemble(**content)
        validate_ensemble(ensemble)
    except InputError as error:
        raise FileFormatError(f"The file holds no sound ensemble. {error.message}", _HINT) from None
    return ensemble


def _check_names(what: str, found: set[str], expected: set[str]) -> None:
    if found != expected:
        raise FileFormatError(
            f"The file's {what} are not those of an ensemble: missing "
            f"{sorted(expected - found)}, foreign {sorted(found - expected)}.",
            _HINT,
        )
