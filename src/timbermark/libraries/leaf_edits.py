"""The two kinds of change that a foreign model takes: other leaf values, other thresholds."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import NoReturn

import numpy as np

from timbermark.dtypes import AnyArray, Flags, Reals
from timbermark.errors import InputError
from timbermark.libraries.contract import ForeignModel
from timbermark.trees.ensemble import ARRAY_TYPES, Ensemble, FloatType

_EDITABLE = ("value", "threshold")
_PER_TREE = ("tree_output", "tree_weight")
_NOT_PER_NODE = {*_PER_TREE, "tree_start", "category_offsets", "category_values", "init"}


def check_edit(foreign: ForeignModel, ensemble: Ensemble) -> None:
    """Raise InputError unless an ensemble differs in leaf values and movable thresholds only.

    Both must be finite and exact in the type that the library holds them in. Where the library
    shares thresholds, equal ones of a column must stay equal.
    """
    old = foreign.ensemble
    for name in (field.name for field in fields(Ensemble) if field.name not in _EDITABLE):
        if not _same(getattr(old, name), getattr(ensemble, name)):
            _refuse(f"{name} of the ensemble is not that of the {foreign.kind}.")
    for name in _EDITABLE:
        shape, expected = getattr(ensemble, name).shape, getattr(old, name).shape
        if shape != expected:
            _refuse(f"{name} of the ensemble has the shape {shape}, not {expected}.")
    values = ensemble.value[ensemble.left < 0]
    _check_numbers("leaf value", values, foreign.leaf_dtype, foreign.library)
    moved = changed_thresholds(old, ensemble)
    if not moved.any():
        return
    stuck = np.flatnonzero(moved & ~foreign.movable)
    if len(stuck):
        raise InputError(
            f"Node {stuck[0]} of the {foreign.kind} has no threshold that can be moved.",
            hint="move thresholds where the opened model's movable says so; leaves, splits by "
            "category and splits of missing values stay as they are.",
        )
    _check_numbers("threshold", ensemble.threshold[moved], foreign.threshold_dtype, foreign.library)
    if foreign.shared_thresholds:
        _check_shared(foreign, ensemble)


def _refuse(message: str) -> NoReturn:
    raise InputError(
        message,
        hint="change nothing but leaf values and thresholds of the ensemble that was opened.",
    )


def _check_numbers(what: str, numbers: Reals, dtype: FloatType, library: str) -> None:
    if not np.isfinite(numbers).all():
        raise InputError(f"A {what} is not finite.", hint=f"check the new {what}s.")
    with np.errstate(over="ignore"):
        held = numbers.astype(dtype).astype(np.float64)
    if not np.array_equal(held, numbers):
        raise InputError(
            f"A {what} is not exact in {library}'s {np.dtype(dtype).name}.",
            hint=f"round the {what}s with astype({dtype!r}) first.",
        )


def _check_shared(foreign: ForeignModel, ensemble: Ensemble) -> None:
    """Raise InputError if splits with one threshold, which all trees share, got different ones."""
    old = foreign.ensemble
    nodes = np.flatnonzero(foreign.movable)
    order = nodes[np.lexsort((old.threshold[nodes], old.feature[nodes]))]
    here, there = order[:-1], order[1:]
    together = (old.feature[here] == old.feature[there]) & (
        old.threshold[here] == old.threshold[there]
    )
    bits = ensemble.threshold.view(np.int64)
    apart = np.flatnonzero(together & (bits[here] != bits[there]))
    if len(apart):
        node = here[apart[0]]
        raise InputError(
            f"Splits of column {old.feature[node]} at {old.threshold[node]:.9g} got different "
            f"thresholds, but {foreign.library} has one border for all of them.",
            hint="move all splits of a column that have one threshold to the same new one.",
        )


def changed_thresholds(old: Ensemble, new: Ensemble) -> Flags:
    """Return which nodes have another threshold, bool [N].

    >>> from timbermark.trees.construction import constant_ensemble
    >>> one = constant_ensemble(n_features=1, value=1.0)
    >>> changed_thresholds(one, one)
    array([False])
    """
    differ: Flags = old.threshold.view(np.int64) != new.threshold.view(np.int64)
    return differ


def changed_leaves(old: Ensemble, new: Ensemble) -> AnyArray:
    """Return which nodes are leaves with another value, bool [N].

    >>> from timbermark.trees.construction import constant_ensemble
    >>> one, two = (constant_ensemble(n_features=1, value=v) for v in (1.0, 2.0))
    >>> changed_leaves(one, one), changed_leaves(one, two)
    (array([False]), array([ True]))
    """
    differ: AnyArray = (old.value.view(np.int64) != new.value.view(np.int64)).any(axis=1)
    return differ & (new.left < 0)


def leaf_values(ensemble: Ensemble) -> Reals:
    """Return the values of leaves and 0 at inner nodes, [N], of trees with one output each.

    >>> from timbermark.trees.construction import constant_ensemble
    >>> leaf_values(constant_ensemble(n_features=1, value=1.0))
    array([1.])
    """
    return np.where(ensemble.left < 0, ensemble.value[:, 0], 0.0)


def first_trees(ensemble: Ensemble, n_trees: int) -> Ensemble:
    """Return the ensemble of the first trees, which is the whole one if it has no more.

    >>> from timbermark.trees.construction import constant_ensemble
    >>> first_trees(constant_ensemble(n_features=1, value=1.0), 1).n_trees
    1
    """
    if n_trees >= ensemble.n_trees:
        return ensemble
    n_nodes = int(ensemble.tree_start[n_trees])
    kept = {name: getattr(ensemble, name)[:n_trees] for name in _PER_TREE}
    kept["tree_start"] = ensemble.tree_start[: n_trees + 1]
    for name in ARRAY_TYPES.keys() - _NOT_PER_NODE:
        kept[name] = getattr(ensemble, name)[:n_nodes]
    return replace(ensemble, **kept)


def _same(old: object, new: object) -> bool:
    if isinstance(old, np.ndarray) and isinstance(new, np.ndarray):
        return old.shape == new.shape and old.tobytes() == new.tobytes()
    return old == new
