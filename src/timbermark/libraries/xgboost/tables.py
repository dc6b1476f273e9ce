"""Rows as XGBoost takes them: arrays, sparse matrices, data frames, its own matrices."""

from __future__ import annotations

import re
from types import ModuleType
from typing import Any

import numpy as np

from timbermark.dtypes import AnyArray, Rows
from timbermark.errors import InputError
from timbermark.libraries.xgboost.document import Outline, equal_rounds, with_trees
from timbermark.libraries.xgboost.forest import encode_trees
from timbermark.trees.construction import make_ensemble
from timbermark.trees.ensemble import Ensemble

_MANY_ROWS = 4096
_PREFIX = re.compile(r"^\[[0-9:]+\] \S+: (Check failed: )?")


def to_rows(xgb: ModuleType, known: Outline, X: Any, missing: float) -> Rows:
    """Return what a model predicts from as numbers, float64 [n, d]; NaN is missing.

    Categories become the numbers that the model knows them by.

    Raises InputError if it is no table of numbers and categories of the model's width and names.
    """
    if isinstance(X, np.ndarray | list | tuple):
        found = _from_array(X, missing)
    else:
        matrix = as_matrix(xgb, known.feature_names, X, missing)
        found = _from_matrix(xgb, known, matrix)
    if found.ndim != 2 or found.shape[1] != known.n_features:
        raise InputError(
            f"The rows have the shape {found.shape}, expected (n, {known.n_features}).",
            hint="give one row per sample and one column per feature.",
        )
    return found


def as_matrix(xgb: ModuleType, expected: tuple[str, ...] | None, X: Any, missing: float) -> Any:
    """Return rows as XGBoost's own matrix; columns without names get the model's.

    Raises InputError if XGBoost refuses them, or if the columns have other names.
    """
    matrix = X
    try:
        if not isinstance(X, xgb.DMatrix):
            # For few rows, threads take longer to start than to work.
            threads = 1 if getattr(X, "shape", (_MANY_ROWS,))[0] < _MANY_ROWS else None
            matrix = xgb.DMatrix(X, missing=missing, enable_categorical=True, nthread=threads)
            if matrix.feature_names is None and expected is not None:
                matrix.feature_names = list(expected)
        names = matrix.feature_names
    except (ValueError, TypeError) as error:
        raise refused(error) from error
    if expected is not None and tuple(names or ()) != expected:
        raise InputError(
            f"The columns are {list(names or ())!r:.200}, the model's are {list(expected)!r:.200}.",
            hint="give the columns that the model was trained with, in the same order.",
        )
    return matrix


def refused(error: Exception) -> InputError:
    """Return the error for rows that XGBoost does not take, with what it says about them.

    >>> print(refused(ValueError("[00:11:13] a/b.cc:12: Check failed: Bad.\\nStack trace:")))
    XGBoost does not take these rows: Bad. Hint: give what the model's own predict takes.
    """
    lines = str(error).strip().splitlines() or [type(error).__name__]
    said = _PREFIX.sub("", lines[0])[:300].rstrip(".")
    return InputError(
        f"XGBoost does not take these rows: {said}.",
        hint="give what the model's own predict takes.",
    )


def _from_array(X: Any, missing: float) -> Rows:
    try:
        given = np.asarray(X)
        if given.dtype.kind not in "biufO":
            raise TypeError(f"their type is {given.dtype}")
        # XGBoost rounds a whole number to float32 at once, not by way of float64.
        narrow = np.float32 if given.dtype.kind in "iu" else np.float64
        found = given.astype(narrow).astype(np.float64, copy=False)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"The rows are not a matrix of numbers ({error}).", hint="encode text as numbers first."
        ) from None
    if not np.isnan(missing):
        with np.errstate(over="ignore"):
            found[found.astype(np.float32) == np.float32(missing)] = np.nan
    return found


def _from_matrix(xgb: ModuleType, known: Outline, matrix: Any) -> Rows:
    try:
        sparse = matrix.get_data()
    except (ValueError, TypeError) as error:
        raise refused(error) from error
    found = np.full(sparse.shape, np.nan)
    row = np.repeat(np.arange(sparse.shape[0]), np.diff(sparse.indptr))
    found[row, sparse.indices] = sparse.data
    types = matrix.feature_types
    if known.most_categories and types is not None and sparse.shape[1] == known.n_features:
        columns = [number for number, kind in enumerate(types) if kind == "c"]
        if columns and len(found):
            found[:, columns] = _category_numbers(xgb, known, matrix, found, columns)
    return found


def _category_numbers(
    xgb: ModuleType, known: Outline, matrix: Any, found: Rows, columns: list[int]
) -> AnyArray:
    """Return the numbers that the model knows the categories of a frame by, [n, len(columns)].

    A frame numbers its categories in an order of its own, and XGBoost translates by name when it
    predicts. It says the result to nobody, but a tree can ask: one tree per binary digit, with a
    set of all the numbers that have it.
    """
    highest = known.most_categories
    digits = max(int(highest - 1).bit_length(), 1)
    every = np.arange(highest)
    # The last tree of a column asks for any number at all: a name not known has none.
    sets = [every[every >> digit & 1 == 1] for digit in range(digits)] + [every]
    asked = np.repeat(columns, len(sets))
    ensemble = _asking(known, asked, np.tile(np.arange(len(sets)), len(columns)), sets)
    trees = encode_trees(ensemble)
    raw = with_trees(known, trees, ensemble.tree_output, equal_rounds(known, len(trees)))
    booster = xgb.Booster({"nthread": 1})
    booster.load_model(bytearray(raw))
    try:
        leaves = booster.predict(matrix, pred_leaf=True, validate_features=False)
    except (ValueError, TypeError) as error:
        raise refused(error) from error
    answers = leaves.reshape(len(found), -1)[:, : len(asked)] == 2
    answers = answers.reshape(len(found), len(columns), len(sets))
    number = answers[:, :, :-1] @ (1 << np.arange(digits))
    number = np.where(answers[:, :, -1], number, -1.0)
    return np.where(np.isnan(found[:, columns]), np.nan, number)


def _asking(known: Outline, columns: AnyArray, chosen: AnyArray, sets: list[AnyArray]) -> Ensemble:
    """Return one tree per question, which goes right if the column's category is in the set.

    Trees without a split fill the last round.
    """
    n_questions = len(columns)
    fill = -n_questions % (known.n_outputs * known.n_parallel)
    n_trees = n_questions + fill
    nodes = 3 * n_questions + fill
    root = 3 * np.arange(n_questions)
    feature, left, right, category_set = (np.full(nodes, -1) for _ in range(4))
    feature[root], category_set[root] = columns, chosen
    left[root], right[root] = 1, 2
    return make_ensemble(
        n_features=known.n_features,
        n_outputs=known.n_outputs,
        tree_start=np.append(3 * np.arange(n_questions + 1), 3 * n_questions + 1 + np.arange(fill)),
        tree_output=np.arange(n_trees) // known.n_parallel % known.n_outputs,
        feature=feature,
        threshold=np.zeros(nodes),
        left=left,
        right=right,
        value=np.zeros(nodes),
        category_set=category_set,
        category_offsets=np.cumsum([0, *map(len, sets)]),
        category_values=np.concatenate(sets),
        categories_go="right",
        strict=True,
        input_dtype="f4",
        sum_dtype="f4",
    )
