"""What LightGBM's ``predict`` makes of a table before the trees see it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from timbermark.dtypes import AnyArray, Rows
from timbermark.errors import InputError
from timbermark.trees.ensemble import ZERO_RANGE


def to_numbers(X: Any, categories: list[list[Any]] | None, objects: DTypeLike) -> Rows:
    """Return a table as float64 in C order, with zero for what the library makes zero.

    ``X`` is an array, a list of lists, a sparse matrix, or a table of pandas, pyarrow or polars.
    ``categories`` are those of pandas at training, for each column that had any; None if the model
    does not know. ``objects`` is the type that an array of objects is converted to.

    Raises InputError if ``X`` is not numeric or has other columns of categories.

    >>> to_numbers([[1, 2**24 + 1]], None, np.float32)  # whole numbers go through float32
    array([[1.0000000e+00, 1.6777216e+07]])
    """
    module = type(X).__module__.partition(".")[0]
    kept = False  # whether numbers next to zero stay as they are
    try:
        if module == "pandas" and hasattr(X, "dtypes"):
            numbers = _from_pandas(X, categories)
        elif module == "scipy":
            numbers, kept = X.toarray(), X.format != "csc"
        elif module == "pyarrow":
            columns = [column.cast("float64", safe=False) for column in X.itercolumns()]
            numbers = _side_by_side([column.to_numpy() for column in columns], len(X))
            kept = True
        elif module == "polars":
            numbers, kept = X.to_numpy(), True
        else:
            numbers = _from_array(np.asarray(X), objects)
        if not kept:
            numbers = np.where(np.abs(numbers) <= ZERO_RANGE, 0.0, numbers)
        return np.ascontiguousarray(numbers, dtype=np.float64)
    except InputError:
        raise
    except (TypeError, ValueError) as error:
        raise InputError(
            f"X is not a table of numbers ({error}).", hint="encode text as numbers first."
        ) from None


def _from_array(array: AnyArray, objects: DTypeLike) -> AnyArray:
    if array.dtype in (np.float32, np.float64):
        return array
    if array.dtype.kind not in "biufO":
        raise TypeError(f"its type is {array.dtype}")
    return array.astype(objects if array.dtype.kind == "O" else np.float32)


def _from_pandas(frame: Any, categories: list[list[Any]] | None) -> AnyArray:
    import pandas

    by_category = [isinstance(dtype, pandas.CategoricalDtype) for dtype in frame.dtypes]
    if categories is not None and len(categories) != sum(by_category):
        raise InputError(
            f"X has {sum(by_category)} columns of categories, the model {len(categories)}.",
            hint="give the columns the types that they had in training.",
        )
    trained = iter(categories or [])
    columns = []
    for place, is_category in enumerate(by_category):
        column = frame.iloc[:, place]
        if is_category:
            names = next(trained, None)
            if names is not None and list(column.cat.categories) != names:
                column = column.cat.set_categories(names)
            codes = column.cat.codes.to_numpy(dtype=np.float64)
            columns.append(np.where(codes < 0, np.nan, codes))
        else:
            columns.append(column.to_numpy(dtype=np.float64, na_value=np.nan))
    return _side_by_side(columns, len(frame))


def _side_by_side(columns: list[AnyArray], n_rows: int) -> AnyArray:
    return np.column_stack(columns) if columns else np.empty((n_rows, 0))
