"""Triggers as frozen columns: each holds numbers, or texts for a feature with named categories."""

import hashlib
import re
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from timbermark.dtypes import FEATURE_VALUE, AnyArray, Rows
from timbermark.errors import InputError
from timbermark.ownership.encoding import is_unicode

Numbers: TypeAlias = NDArray[np.float64]
Texts: TypeAlias = tuple[str | None, ...]
Column: TypeAlias = Numbers | Texts

MAX_TRIGGERS = 1 << 14
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.(\d{3}){1,3}")
_HINT = "give one row for each trigger and one column for each feature, of numbers or of texts."


def split_columns(triggers: Any) -> tuple[Column, ...]:
    """Return rows of triggers as frozen columns.

    ``triggers`` is a matrix of numbers [k, d], an object matrix, a list of rows or a data frame.

    Raises InputError as `freeze_columns` does, and for rows of different lengths.

    >>> split_columns([[0.5, "red"], [np.nan, None]])
    (array([0.5, nan]), ('red', None))
    """
    matrix = _matrix(triggers)
    if matrix.ndim != 2 or matrix.dtype.kind not in "biufUO":
        raise InputError(
            f"The triggers have the type {matrix.dtype} and the shape {matrix.shape}, not those of "
            "a matrix.",
            hint=_HINT,
            code="triggers.shape",
        )
    _check_counts(*matrix.shape)
    return freeze_columns([matrix[:, column] for column in range(matrix.shape[1])])


def freeze_columns(columns: Sequence[Any]) -> tuple[Column, ...]:
    """Return d columns of k values each, checked and unchangeable.

    A column of numbers becomes a read-only float64 array in which -0.0 is 0.0 and every NaN the
    same one, because no tree tells them apart; a column of texts a tuple of str, None if missing.

    Raises InputError unless there are 1 to 16384 rows, and each column is all finite numbers or
    NaN, or all texts or missing.

    >>> freeze_columns([[1, 2], ["a", None]])
    (array([1., 2.]), ('a', None))
    """
    if not isinstance(columns, list | tuple) or not columns:
        raise InputError("The triggers have 0 features.", hint=_HINT, code="triggers.shape")
    frozen = tuple(_freeze(column, place) for place, column in enumerate(columns))
    lengths = {len(column) for column in frozen}
    if len(lengths) != 1:
        raise InputError(
            "The columns of the triggers have different lengths.", hint=_HINT, code="triggers.shape"
        )
    _check_counts(lengths.pop(), len(frozen))
    return frozen


def check_distinct(columns: Sequence[Column]) -> None:
    """Raise InputError if two rows of frozen columns are the same.

    >>> check_distinct(freeze_columns([[1, 2], ["a", None]]))
    """
    numbers = numeric_matrix(columns)
    texts = [column for column in columns if not isinstance(column, np.ndarray)]
    # Digests, because wide rows would be kept a second time.
    rows = {
        (hashlib.sha256(row.tobytes()).digest(), *(column[place] for column in texts))
        for place, row in enumerate(numbers)
    }
    if len(rows) < len(numbers):
        raise InputError(
            "Two triggers are the same row.",
            hint="two contradicting copies cannot both be obeyed; give distinct rows.",
            code="triggers.same",
        )


def take_rows(columns: Sequence[Column], rows: Sequence[int]) -> tuple[Column, ...]:
    """Return some rows of columns, in the given order.

    >>> take_rows([np.array([1.0, 2.0]), ("a", None)], [1])
    (array([2.]), (None,))
    """
    places = np.asarray(rows, dtype=np.intp)
    return tuple(
        np.asarray(column[places])
        if isinstance(column, np.ndarray)
        else tuple(column[i] for i in places)
        for column in columns
    )


def join_columns(columns: Sequence[Column]) -> AnyArray:
    """Return columns as a matrix [k, d]: float64 if all hold numbers, otherwise of objects.

    >>> join_columns(freeze_columns([[1, 2], ["a", None]]))
    array([[1.0, 'a'],
           [2.0, None]], dtype=object)
    """
    numeric = all(isinstance(column, np.ndarray) for column in columns)
    rows = np.empty((len(columns[0]), len(columns)), dtype=FEATURE_VALUE if numeric else object)
    for place, column in enumerate(columns):
        rows[:, place] = column
    return rows


def plain_rows(columns: Sequence[Column], names: Sequence[str] | None) -> Any:
    """Return rows as a suspect is asked: a frame if there are names, else `join_columns`.

    In a frame a missing text is NaN, as pandas reads it from a file, and a column of texts that
    `write_times` wrote is one of times. Without pandas it is a matrix.

    >>> plain_rows(freeze_columns([[1, 2], ["a", None]]), ["x", "y"]).to_dict("list")
    {'x': [1.0, 2.0], 'y': ['a', nan]}
    """
    if names is None:
        return join_columns(columns)
    try:
        import pandas as pd
    except ImportError:
        return join_columns(columns)
    filled = [
        column
        if isinstance(column, np.ndarray)
        else pd.Series(times)
        if (times := read_times(column)) is not None
        else pd.Series([np.nan if text is None else text for text in column], dtype=object)
        for column in columns
    ]
    frame = pd.DataFrame(dict(enumerate(filled)))
    frame.columns = pd.Index(names)
    return frame


def write_times(times: AnyArray) -> Texts:
    """Return times (datetime64 of ms, µs or ns) as texts: a mark holds numbers and texts only.

    >>> write_times(np.array(["2030-01-02", "NaT"], "datetime64[ms]"))
    ('2030-01-02T00:00:00.000', None)
    """
    texts = np.datetime_as_string(times).tolist()
    return tuple(None if text == "NaT" else text for text in texts)


def read_times(texts: Sequence[str | None]) -> AnyArray | None:
    """Return the times that `write_times` wrote; None for a column of other texts.

    >>> read_times(("2030-01-02T00:00:00.000", None))
    array(['2030-01-02T00:00:00.000',                     'NaT'],
          dtype='datetime64[ms]')
    >>> read_times(("2030-01-02", "later")) is None
    True
    """
    given = [text for text in texts if text is not None]
    if not given or not all(map(_TIME.fullmatch, given)):
        return None
    try:
        times = np.array(["NaT" if text is None else text for text in texts], "datetime64")
    except ValueError:
        return None  # such as the 45th of a month
    return times if write_times(times) == tuple(texts) else None


def kinds_of_columns(columns: Sequence[Column]) -> tuple[str, ...]:
    """Return "numbers" or "texts" for each column.

    >>> kinds_of_columns(freeze_columns([[0.0, 2.0], ["a", None]]))
    ('numbers', 'texts')
    """
    return tuple("numbers" if isinstance(column, np.ndarray) else "texts" for column in columns)


def numeric_matrix(columns: Sequence[Column]) -> Rows:
    """Return the columns of numbers alone, in their order, float64 [k, number of them].

    >>> numeric_matrix(freeze_columns([[1, 2], ["a", "b"], [3, 4]]))
    array([[1., 3.],
           [2., 4.]])
    """
    numbers = [column for column in columns if isinstance(column, np.ndarray)]
    if not numbers:
        return np.empty((len(columns[0]), 0), dtype=FEATURE_VALUE)
    return np.column_stack(numbers)


def _matrix(given: Any) -> AnyArray:
    if isinstance(given, np.ndarray):
        return given
    try:
        if hasattr(given, "isetitem"):
            given = given.copy()
            for place in range(given.shape[1]):
                values = given.iloc[:, place].to_numpy()
                if values.dtype.kind == "M":
                    texts = np.array(write_times(values), dtype=object)
                    given.isetitem(place, texts)
        if isinstance(given, list | tuple):
            # As objects, or else a text among numbers would turn all of them into texts.
            return np.array(given, dtype=object)
        return np.asarray(given)
    except ValueError:
        raise InputError(
            "The triggers are rows of different lengths.",
            hint="give a matrix.",
            code="triggers.shape",
        ) from None


def _check_counts(k: int, d: int) -> None:
    if not (1 <= k <= MAX_TRIGGERS and d >= 1):
        raise InputError(
            f"{k} triggers of {d} features are out of bounds.",
            hint=f"a mark has 1 to {MAX_TRIGGERS} triggers of at least one feature.",
            code="triggers.shape",
        )


def _freeze(given: Any, place: int) -> Column:
    if isinstance(given, np.ndarray) and given.dtype.kind in "biuf":
        return _freeze_numbers(given, place)
    values = [_plain(value) for value in given]
    # A tuple is a column that was frozen before; of some triggers all texts may be missing.
    missing_texts = isinstance(given, tuple) and all(value is None for value in values)
    if missing_texts or any(isinstance(value, str) for value in values):
        return _freeze_texts(values, place)
    try:
        numbers = np.array([np.nan if value is None else value for value in values])
    except (TypeError, ValueError, OverflowError):
        numbers = np.empty(0, dtype=object)
    if numbers.dtype.kind not in "biuf" or numbers.ndim != 1:
        raise InputError(
            f"Column {place} of the triggers is neither numbers nor texts.",
            hint=_HINT,
            code="triggers.values",
        )
    return _freeze_numbers(numbers, place)


def _freeze_numbers(given: AnyArray, place: int) -> Numbers:
    if given.ndim != 1:
        raise InputError(
            f"Column {place} of the triggers is not a column.", hint=_HINT, code="triggers.shape"
        )
    with np.errstate(invalid="ignore", over="ignore"):
        column = np.array(given, dtype=FEATURE_VALUE)
        exact = given.dtype.kind not in "iu" or (column.astype(given.dtype) == given).all()
    if not exact or np.isinf(column).any():
        raise InputError(
            f"Column {place} of the triggers holds infinity or whole numbers beyond 2^53.",
            hint="use rows that every suspect can be asked.",
            code="triggers.values",
        )
    column += 0.0  # turns -0.0 into 0.0
    column[np.isnan(column)] = np.nan
    column.flags.writeable = False
    return column


def _freeze_texts(values: list[Any], place: int) -> Texts:
    texts = [None if isinstance(value, float) and value != value else value for value in values]
    if not all(value is None or (type(value) is str and is_unicode(value)) for value in texts):
        raise InputError(
            f"Column {place} of the triggers mixes texts with other values.",
            hint="a column is all numbers or all texts; missing values may stand in both.",
            code="triggers.values",
        )
    return tuple(texts)


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    # The missing value of pandas has no type of its own to import.
    return None if type(value).__name__ in ("NAType", "NaTType") else value
