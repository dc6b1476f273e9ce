"""Making sound ensembles without spelling out every field, and joining or cutting them.

Deployed models may have several boosted ones inside. The joined ensemble has the columns and the
outputs of all of them, one after the other. Trees with leaf vectors become one tree per output,
because each of the models has outputs of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from timbermark.dtypes import AnyArray
from timbermark.errors import InputError
from timbermark.trees.ensemble import (
    ARRAY_TYPES,
    MISSING_NAN,
    Ensemble,
    FloatType,
    Objective,
    Side,
    scalars,
)
from timbermark.trees.ensemble_file import validate_ensemble


def make_ensemble(
    *,
    n_features: int,
    tree_start: ArrayLike,
    feature: ArrayLike,
    threshold: ArrayLike,
    left: ArrayLike,
    right: ArrayLike,
    value: ArrayLike,
    n_outputs: int = 1,
    objective: Objective | None = None,
    tree_output: ArrayLike | None = None,
    tree_weight: ArrayLike | None = None,
    missing_left: ArrayLike | None = None,
    missing_kind: ArrayLike | None = None,
    category_set: ArrayLike | None = None,
    category_offsets: ArrayLike = (0,),
    category_values: ArrayLike = (),
    categories_go: Side = "left",
    count: ArrayLike | None = None,
    hessian: ArrayLike | None = None,
    gain: ArrayLike | None = None,
    init: ArrayLike | None = None,
    init_last: bool = False,
    scale: float = 1.0,
    strict: bool = False,
    input_dtype: FloatType = "f8",
    sum_dtype: FloatType = "f8",
    zero_is_positive: bool = False,
) -> Ensemble:
    """Return a sound ensemble; what is left out is that of plain numeric float64 trees.

    By default trees take turns over the outputs (leaf vectors: all of them), weigh 1, compare with
    ``<=``, send NaN right as a missing value, start from 0 and carry statistics of 0. The objective
    is logistic for one output and softmax for more; name ``identity`` for regression. ``value`` may
    be [N] instead of [N, 1].

    Raises InputError if the result is not sound, see `validate_ensemble`.

    >>> stump = make_ensemble(
    ...     n_features=1, tree_start=[0, 3], feature=[0, -1, -1], threshold=[0.5, 0, 0],
    ...     left=[1, -1, -1], right=[2, -1, -1], value=[0, -1, 1],
    ... )
    >>> stump.n_trees, stump.n_leaves, stump.objective
    (1, 2, 'logistic')
    """
    n_trees, n_nodes = max(np.size(tree_start) - 1, 0), np.size(feature)
    values = np.asarray(value)
    if values.ndim == 1:
        values = values[:, np.newaxis]
    if tree_output is None:
        vectors = values.ndim == 2 and values.shape[1] == n_outputs > 1
        tree_output = np.full(n_trees, -1) if vectors else np.arange(n_trees) % max(n_outputs, 1)
    ensemble = Ensemble(
        n_features=int(n_features),
        n_outputs=int(n_outputs),
        objective=objective or ("logistic" if n_outputs == 1 else "softmax"),
        tree_start=_given(tree_start),
        tree_output=_given(tree_output),
        tree_weight=_given(tree_weight, n_trees, 1.0),
        feature=_given(feature),
        threshold=_given(threshold),
        left=_given(left),
        right=_given(right),
        missing_left=_given(missing_left, n_nodes, False),
        missing_kind=_given(missing_kind, n_nodes, MISSING_NAN),
        category_set=_given(category_set, n_nodes, -1),
        category_offsets=_given(category_offsets),
        category_values=_given(category_values),
        categories_go=categories_go,
        value=values,
        count=_given(count, n_nodes, 0.0),
        hessian=_given(hessian, n_nodes, 0.0),
        gain=_given(gain, n_nodes, 0.0),
        init=_given(init, max(n_outputs, 0), 0.0),
        init_last=bool(init_last),
        scale=float(scale),
        strict=bool(strict),
        input_dtype=input_dtype,
        sum_dtype=sum_dtype,
        zero_is_positive=bool(zero_is_positive),
    )
    validate_ensemble(ensemble)
    return ensemble


def constant_ensemble(*, n_features: int, value: float) -> Ensemble:
    """Return the smallest ensemble: one tree of one leaf, two classes, the same margin everywhere.

    Raises InputError if ``value`` is not finite or there is no feature.

    >>> constant_ensemble(n_features=3, value=2.0).n_leaves
    1
    """
    return make_ensemble(
        n_features=n_features,
        tree_start=[0, 1],
        feature=[-1],
        threshold=[0.0],
        left=[-1],
        right=[-1],
        value=[value],
    )


def _given(array: ArrayLike | None, size: int = 0, default: float = 0.0) -> AnyArray:
    return np.full(size, default) if array is None else np.asarray(array)


_PER_TREE = ("tree_output", "tree_weight")
_PER_NODE = (
    *("feature", "threshold", "left", "right", "missing_left", "missing_kind", "category_set"),
    *("count", "hessian", "gain"),
)


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
    for name in (*_PER_NODE, "value"):
        kept[name] = getattr(ensemble, name)[:n_nodes]
    return replace(ensemble, **kept)


def join(parts: Sequence[Ensemble]) -> Ensemble:
    """Return one ensemble whose margins are those of all parts, side by side.

    A single one is given back as it is. Raises InputError if they compare or add up differently.

    >>> from timbermark.trees.construction import constant_ensemble
    >>> join([constant_ensemble(n_features=2, value=v) for v in (1.0, 2.0)]).n_outputs
    2
    """
    if len(parts) == 1:
        return parts[0]
    kinds = [{**scalars(part), "n_features": 0, "n_outputs": 0} for part in parts]
    if any(kind != kinds[0] for kind in kinds):
        raise InputError(
            "The boosted models inside are of different kinds.",
            hint="models inside one calibration must come from one library and one setting.",
        )
    plain = [_without_vectors(part) for part in parts]
    columns = np.cumsum([0, *(part.n_features for part in plain)])
    outputs = np.cumsum([0, *(part.n_outputs for part in plain)])
    nodes = np.cumsum([0, *(part.n_nodes for part in plain)])
    sets = np.cumsum([0, *(len(part.category_offsets) - 1 for part in plain)])
    values = np.cumsum([0, *(len(part.category_values) for part in plain)])
    arrays: dict[str, Any] = {
        name: np.concatenate([getattr(part, name) for part in plain]) for name in ARRAY_TYPES
    }
    arrays["tree_start"] = _shifted([part.tree_start for part in plain], nodes)
    arrays["category_offsets"] = _shifted([part.category_offsets for part in plain], values)
    arrays["tree_output"] = np.concatenate(
        [part.tree_output + first for part, first in zip(plain, outputs, strict=False)]
    )
    for name, first in (("feature", columns), ("category_set", sets)):
        arrays[name] = np.concatenate(
            [
                np.where(getattr(part, name) >= 0, getattr(part, name) + start, -1)
                for part, start in zip(plain, first, strict=False)
            ]
        )
    return replace(plain[0], n_features=int(columns[-1]), n_outputs=int(outputs[-1]), **arrays)


def split(joined: Ensemble, parts: Sequence[Ensemble]) -> tuple[Ensemble, ...]:
    """Return the parts that were joined, with the joined ensemble's leaf values and thresholds.

    Of a tree with leaf vectors, all copies must have the same thresholds.

    >>> from timbermark.trees.construction import constant_ensemble
    >>> parts = [constant_ensemble(n_features=2, value=v) for v in (1.0, 2.0)]
    >>> split(join(parts), parts) == tuple(parts)
    True
    """
    if len(parts) == 1:
        return (replace(parts[0], value=joined.value, threshold=joined.threshold),)
    found, first = [], 0
    for part in parts:
        last = first + part.n_nodes * part.value.shape[1]
        value = _with_vectors(part, joined.value[first:last, 0])
        threshold = np.empty(part.n_nodes)
        threshold[_node_order(part)] = joined.threshold[first:last]
        found.append(replace(part, value=value, threshold=threshold))
        first = last
    return tuple(found)


def _shifted(starts: Sequence[AnyArray], first: AnyArray) -> AnyArray:
    """Return starts within each part as starts within the whole, with one end for all."""
    moved = [start[:-1] + offset for start, offset in zip(starts, first, strict=False)]
    return np.concatenate([*moved, first[-1:]])


def _without_vectors(e: Ensemble) -> Ensemble:
    """Return the ensemble with one tree per output in place of each tree with leaf vectors."""
    copies = e.value.shape[1]
    if copies == 1:
        return replace(e, tree_output=np.maximum(e.tree_output, 0))
    order = _node_order(e)
    sizes = np.repeat(np.diff(e.tree_start), copies)
    return replace(
        e,
        tree_start=np.concatenate([[0], np.cumsum(sizes)]),
        tree_output=np.tile(np.arange(copies), e.n_trees),
        tree_weight=np.repeat(e.tree_weight, copies),
        value=e.value[order, _output_order(e)][:, None],
        **{name: getattr(e, name)[order] for name in _PER_NODE},
    )


def _with_vectors(e: Ensemble, values: AnyArray) -> AnyArray:
    """Return the values of a part's trees as vectors again, the inverse of `_without_vectors`."""
    if e.value.shape[1] == 1:
        return values[:, None]
    found = np.empty(e.value.shape)
    found[_node_order(e), _output_order(e)] = values
    return found


def _node_order(e: Ensemble) -> AnyArray:
    """Return which node each node of the copies is: every tree once for each output."""
    starts, ends, copies = e.tree_start[:-1], e.tree_start[1:], e.value.shape[1]
    trees = [np.tile(np.arange(a, b), copies) for a, b in zip(starts, ends, strict=True)]
    return np.concatenate([*trees, np.empty(0, np.int64)])


def _output_order(e: Ensemble) -> AnyArray:
    sizes = np.diff(e.tree_start)
    outputs = [np.repeat(np.arange(e.value.shape[1]), size) for size in sizes]
    return np.concatenate([*outputs, np.empty(0, np.int64)])
