"""The reference predictor: what an ensemble means, in NumPy, clear before fast.

Everything that predicts must agree with this module bit for bit, and an auditor needs to read no
other. A margin is made in four steps:

1. Rows are cast to ``input_dtype``.
2. Each row walks down each tree. At a numeric split it goes left if x <= threshold (``strict``:
   x < threshold), compared in float64. A missing value goes where ``missing_left`` says; what is
   missing depends on the node's ``missing_kind``. At a category split the whole part of x is looked
   up in the node's set; NaN goes where ``missing_left`` says whatever the kind.
3. Leaf values times ``tree_weight``, rounded to ``sum_dtype``, are added up in that type, tree
   after tree, starting from ``init``.
4. With ``init_last`` the sum starts from 0 instead and becomes sum * scale + init.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from timbermark.dtypes import AnyArray, Flags, NodeIndices, Offsets, Reals
from timbermark.errors import InputError
from timbermark.trees.ensemble import (
    MISSING_NAN,
    MISSING_NONE,
    MISSING_ZERO,
    NUMBERS,
    OBJECTIVES,
    ZERO_RANGE,
    Ensemble,
    Objective,
)

# Rows times trees that walk down together: few trees at a time is slow, many need memory.
_BLOCK = 1 << 15


def leaf_indices(ensemble: Ensemble, X: ArrayLike) -> NodeIndices:
    """Return the leaf that each row ends in, in each tree, numbered within the tree.

    ``X`` is [n, n_features] of numbers; NaN is allowed and so is infinity. Returns int32 [n, T].

    Raises InputError if ``X`` has another shape or is not numeric. The ensemble must be sound.

    >>> from timbermark.trees.construction import constant_ensemble
    >>> leaf_indices(constant_ensemble(n_features=1, value=2.0), [[0.5], [7.0]])
    array([[0],
           [0]], dtype=int32)
    """
    rows = _cast_rows(ensemble, X)
    leaves = np.empty((len(rows), ensemble.n_trees), dtype=np.int32)
    for first, last in _blocks(ensemble, len(rows)):
        nodes = _walk(ensemble, first, last, rows) - ensemble.tree_start[first:last, np.newaxis]
        leaves[:, first:last] = nodes.T
    return leaves


def margins(ensemble: Ensemble, X: ArrayLike) -> NDArray[np.floating[Any]]:
    """Return the raw scores of each row.

    ``X`` is as for `leaf_indices`. Returns [n, n_outputs] of the ensemble's ``sum_dtype``.

    Raises InputError as `leaf_indices` does.

    >>> from timbermark.trees.construction import constant_ensemble
    >>> margins(constant_ensemble(n_features=1, value=2.0), [[0.5], [7.0]])
    array([[2.],
           [2.]])
    """
    rows = _cast_rows(ensemble, X)
    # Sums beyond the type's range become infinite, silently as in every library.
    with np.errstate(over="ignore", invalid="ignore"):
        return _add_up(ensemble, rows)


def probabilities(margins: AnyArray, objective: Objective) -> Reals:
    """Return the probability of each class, computed in float64.

    ``margins`` is [n, K]. Returns [n, K], or [n, 2] for ``"logistic"`` (K = 1). The rows of
    ``"sigmoid"`` do not add up to 1: each class is judged by itself.

    Raises InputError if the objective is not known, or is that of regression: no classes.

    >>> probabilities(np.array([[0.0]]), "logistic")
    array([[0.5, 0.5]])
    """
    _require_classes(objective)
    exact = np.asarray(margins, dtype=np.float64)
    if objective == "softmax":
        # Subtracting the largest changes nothing but keeps the exponentials in range.
        powers = np.exp(exact - exact.max(axis=1, keepdims=True))
        shares: Reals = powers / powers.sum(axis=1, keepdims=True)
        return shares
    if objective == "logistic":
        return np.hstack([_sigmoid(-exact), _sigmoid(exact)])
    if objective == "sigmoid":
        return _sigmoid(exact)
    raise InputError(f"objective={objective!r} is not known.", hint=f"use one of {OBJECTIVES}.")


def numbers(margins: AnyArray, objective: Objective) -> Reals:
    """Return the numbers that margins stand for where the answer is a number, in float64.

    ``margins`` may have any shape. Raises InputError if the objective is one of classes.

    >>> numbers(np.array([0.0]), "exponential"), numbers(np.array([0.0]), "expit")
    (array([1.]), array([0.5]))
    """
    exact = np.asarray(margins, dtype=np.float64)
    if objective == "identity":
        return exact
    if objective == "exponential":
        # Beyond the range they become infinite, silently as in every library.
        with np.errstate(over="ignore"):
            return np.asarray(np.exp(exact))
    if objective == "expit":
        return _sigmoid(exact)
    raise InputError(f"objective={objective!r} gives no numbers.", hint=f"use one of {NUMBERS}.")


def labels(margins: AnyArray, ensemble: Ensemble) -> NDArray[np.int64]:
    """Return the index of the most likely class of each row, int64 [n].

    ``margins`` is [n, K] as given by `margins`. Of several equal margins the first class wins; with
    one logistic margin of exactly 0 it is class 1 if ``zero_is_positive``, else class 0.

    Raises InputError for regression, where there are no classes.

    >>> from timbermark.trees.construction import constant_ensemble
    >>> labels(np.array([[-1.0], [0.0], [1.0]]), constant_ensemble(n_features=1, value=2.0))
    array([0, 0, 1])
    """
    _require_classes(ensemble.objective)
    if ensemble.objective == "logistic":
        positive: Flags = margins[:, 0] >= 0 if ensemble.zero_is_positive else margins[:, 0] > 0
        return positive.astype(np.int64)
    best: NDArray[np.int64] = np.argmax(margins, axis=1).astype(np.int64)
    return best


def _require_classes(objective: Objective) -> None:
    if objective in NUMBERS:
        raise InputError("A regression model has no classes.", hint="its answers are numbers.")


def _cast_rows(ensemble: Ensemble, X: ArrayLike) -> AnyArray:
    given = np.asarray(X)
    try:
        if given.dtype.kind not in "biufO":
            raise TypeError(f"its type is {given.dtype}")
        # A number beyond float32 becomes infinite there, as it does in the libraries that use it.
        with np.errstate(over="ignore"):
            rows = given.astype(ensemble.input_dtype, copy=False)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"X is not a matrix of numbers ({error}).", hint="encode text as numbers first."
        ) from None
    check_width(rows.shape, ensemble.n_features)
    return rows


def check_width(shape: Sequence[int], n_columns: int, *, wider: bool = False) -> None:
    """Raise InputError unless a table has this many columns, or more if it may be ``wider``.

    >>> check_width((5, 3), 2, wider=True)
    >>> check_width((5, 3), 2)
    Traceback (most recent call last):
    timbermark.errors.InputError: X has the shape (5, 3), expected (n, 2). Hint: give one row per \
sample and one column per feature.
    """
    if len(shape) != 2 or shape[1] < n_columns or (shape[1] > n_columns and not wider):
        raise InputError(
            f"X has the shape {tuple(shape)}, expected (n, {n_columns}).",
            hint="give one row per sample and one column per feature.",
        )


def _add_up(e: Ensemble, rows: AnyArray) -> NDArray[np.floating[Any]]:
    init = e.init.astype(e.sum_dtype)
    total: NDArray[np.floating[Any]] = np.zeros((len(rows), e.n_outputs), dtype=e.sum_dtype)
    if not e.init_last:
        total[:] = init
    for first, last in _blocks(e, len(rows)):
        nodes = _walk(e, first, last, rows)
        # The product of two float32 numbers is exact in float64: this rounds once, as they do.
        weight = e.tree_weight[first:last, np.newaxis, np.newaxis]
        added = (e.value[nodes] * weight).astype(e.sum_dtype)
        for output, values in zip(e.tree_output[first:last], added, strict=True):
            if output < 0:
                total += values
            else:
                total[:, output] += values[:, 0]
    if e.init_last:
        total = total * total.dtype.type(e.scale) + init
    return total


def _blocks(e: Ensemble, n_rows: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of trees that are walked together: few enough steps, little enough memory."""
    step = max(1, _BLOCK // max(n_rows, 1))
    for first in range(0, e.n_trees, step):
        yield first, min(first + step, e.n_trees)


def _walk(e: Ensemble, first: int, last: int, rows: AnyArray) -> Offsets:
    """Return the leaf of each row in each tree, [last - first, n], counted over all trees."""
    start = np.repeat(e.tree_start[first:last], len(rows))
    row = np.tile(np.arange(len(rows)), last - first)
    place = start.copy()
    walking = np.flatnonzero(e.left[place] >= 0)
    while walking.size:
        here = place[walking]
        x = rows[row[walking], e.feature[here]].astype(np.float64)
        there = start[walking] + np.where(_goes_left(e, here, x), e.left[here], e.right[here])
        place[walking] = there
        walking = walking[e.left[there] >= 0]
    return place.reshape(last - first, len(rows))


def _goes_left(e: Ensemble, node: AnyArray, x: Reals) -> Flags:
    """Return whether each value goes left at its node, [m]; ``node`` [m] counts over all trees."""
    kind = e.missing_kind[node]
    empty = np.isnan(x)
    by_category = e.category_set[node] >= 0
    missing = empty & (by_category | (kind != MISSING_NONE))
    missing |= ~by_category & (kind == MISSING_ZERO) & (np.abs(x) <= ZERO_RANGE)
    number = np.where(empty & (kind != MISSING_NAN), 0.0, x)
    threshold = e.threshold[node]
    goes_left: Flags = number < threshold if e.strict else number <= threshold
    if by_category.any():
        in_set = _in_category_set(e, e.category_set[node], x)
        goes_left = np.where(by_category, in_set == (e.categories_go == "left"), goes_left)
    return np.where(missing, e.missing_left[node], goes_left)


def _in_category_set(e: Ensemble, category_set: NodeIndices, x: Reals) -> Flags:
    """Return whether the whole part of each value is in its set, [m]; set -1 is empty."""
    # Compared as float64, which holds every int32: values out of range are simply not found.
    whole = np.trunc(x)
    found = np.zeros(len(x), dtype=np.bool_)
    for number in np.unique(category_set[category_set >= 0]):
        asked = category_set == number
        members = e.category_values[e.category_offsets[number] : e.category_offsets[number + 1]]
        found[asked] = np.isin(whole[asked], members.astype(np.float64))
    return found


def _sigmoid(x: Reals) -> Reals:
    # Only exponentials of negative numbers: they may vanish but never overflow.
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1.0 / (1.0 + small), small / (1.0 + small))
