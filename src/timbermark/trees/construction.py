"""Making sound ensembles without spelling out every field."""

import numpy as np
from numpy.typing import ArrayLike

from timbermark.dtypes import AnyArray
from timbermark.trees.ensemble import MISSING_NAN, Ensemble, FloatType, Objective, Side
from timbermark.trees.validation import validate_ensemble


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
