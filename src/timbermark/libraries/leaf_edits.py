"""The one kind of change that a foreign model takes: other leaf values."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np

from timbermark.dtypes import AnyArray, Reals
from timbermark.errors import InputError
from timbermark.libraries.contract import ForeignModel
from timbermark.trees.ensemble import ARRAY_TYPES, Ensemble

_PER_TREE = ("tree_output", "tree_weight")
_NOT_PER_NODE = {*_PER_TREE, "tree_start", "category_offsets", "category_values", "init"}


def check_edit(foreign: ForeignModel, ensemble: Ensemble) -> None:
    """Raise InputError unless an ensemble differs from a foreign model's in leaf values only.

    Leaf values must be finite and exact in the type that the library holds them in.
    """
    old = foreign.ensemble
    for name in (field.name for field in fields(Ensemble) if field.name != "value"):
        if not _same(getattr(old, name), getattr(ensemble, name)):
            raise InputError(
                f"{name} of the ensemble is not that of the {foreign.kind}.",
                hint="change nothing but leaf values of the ensemble that was opened.",
            )
    if ensemble.value.shape != old.value.shape:
        raise InputError(
            f"The leaf values have the shape {ensemble.value.shape}, not {old.value.shape}.",
            hint="change nothing but leaf values of the ensemble that was opened.",
        )
    values = ensemble.value[ensemble.left < 0]
    if not np.isfinite(values).all():
        raise InputError("A leaf value is not finite.", hint="check the new leaf values.")
    dtype = np.dtype(foreign.leaf_dtype)
    with np.errstate(over="ignore"):
        held = values.astype(dtype).astype(np.float64)
    if not np.array_equal(held, values):
        raise InputError(
            f"A leaf value is not exact in {foreign.library}'s {dtype.name}.",
            hint=f"round the values with astype({foreign.leaf_dtype!r}) first.",
        )


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
