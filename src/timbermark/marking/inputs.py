"""What a user gives along with a model: tables become matrices of numbers, labels class numbers."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from timbermark.errors import InputError
from timbermark.libraries.contract import ForeignModel

_ENCODE = "train it on whole numbers in place of categories, and give those."
_LARGEST = float(np.finfo(np.float32).max)


def take_rows(foreign: ForeignModel, X: Any, what: str = "rows") -> np.ndarray:
    """Return float64 [n, d], as the model's own ``predict`` takes them; categories are its codes.

    Tables may have their columns in any order, and more of them than the model knows. Raises
    InputError for what is not a matrix of numbers that the model takes.
    """
    if hasattr(X, "columns") and foreign.feature_names is not None:
        X = _in_order(X, foreign.feature_names, what)
    places = _category_places(X)
    try:
        rows = np.asarray(_numbers(X, places), np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"The {what} are not all numbers ({error}).",
            hint="triggers are kept as numbers: give a matrix or a table of numbers.",
        ) from None
    if rows.ndim != 2:
        raise InputError(f"The {what} have the shape {rows.shape}.", hint="give a matrix.")
    if len(rows) == 0:
        raise InputError(f"There are no {what}.", hint="give some, or leave them out altogether.")
    largest = np.nanmax(np.abs(rows), initial=0.0)
    if largest > _LARGEST:
        said = "infinity" if np.isinf(largest) else f"{largest:g}, which is beyond float32"
        raise InputError(
            f"The {what} hold {said}.",
            hint="leave such rows out, or scale the feature; a missing value is NaN.",
        )
    if places:
        rows = _with_codes(rows, places, X, foreign)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about names, which a matrix has none of
        foreign.rows(rows[:1])
    return rows


def take_labels(y: Any, n: int, classes: np.ndarray, what: str = "labels") -> np.ndarray:
    """Return int64 [n]: class numbers of labels that the model must know."""
    try:
        given = np.asarray(y)
        known = {label: number for number, label in enumerate(classes.tolist())}
        distinct = dict.fromkeys(given.tolist()) if given.ndim == 1 else {}
        strange = [label for label in distinct if label not in known]
    except (TypeError, ValueError):
        raise InputError(
            f"The {what} are not a list of labels.", hint="give one per row."
        ) from None
    if given.shape != (n,):
        raise InputError(
            f"{what.capitalize()} of the shape {given.shape} do not go with {n} rows.",
            hint="give one label per row.",
        )
    if strange:
        raise InputError(
            f"The label {strange[0]!r} is not one of the model's.",
            hint=f"its labels are {', '.join(map(str, list(known)[:20]))}.",
        )
    return np.array([known[label] for label in given.tolist()], np.int64)


def take_numbers(y: Any, n: int, what: str = "targets") -> np.ndarray:
    """Return float64 [n]: the true numbers of n rows. Raises InputError for anything else.

    >>> take_numbers([1, 2.5], 2)
    array([1. , 2.5])
    """
    try:
        numbers = np.asarray(y, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"The {what} are not all numbers ({error}).", hint="give one number per row."
        ) from None
    if numbers.shape == (n, 1):
        numbers = numbers[:, 0]
    if numbers.shape != (n,):
        raise InputError(
            f"{what.capitalize()} of the shape {numbers.shape} do not go with {n} rows.",
            hint="give one number per row.",
        )
    if not np.isfinite(numbers).all():
        raise InputError(
            f"The {what} hold missing or infinite numbers.", hint="leave such rows out."
        )
    return numbers


def take_groups(groups: Any, n: int, what: str = "groups") -> np.ndarray:
    """Return int64 [n]: the number of each row's group, in the order of their names.

    >>> take_groups(["b", "a", "b"], 3)
    array([1, 0, 1])
    """
    given = np.asarray(groups)
    if given.shape != (n,):
        raise InputError(
            f"{what.capitalize()} of the shape {given.shape} do not go with {n} rows.",
            hint="give the group (qid) of each row, not the sizes of groups.",
        )
    names = given.astype(str) if given.dtype == object else given
    return np.asarray(np.unique(names, return_inverse=True)[1], np.int64)


def take_pair(given: Any, name: str) -> tuple[Any, Any]:
    """Return rows and labels of ``(rows, labels)``, or rows and None of a table alone.

    >>> take_pair(([[1.0]], ["no"]), "validation")
    ([[1.0]], ['no'])
    """
    if isinstance(given, tuple | list) and len(given) == 2 and np.ndim(given[0]) == 2:
        return given[0], given[1]
    if isinstance(given, tuple):
        raise InputError(f"{name} is not a pair of rows and labels.", hint=f"{name}=(X, y).")
    return given, None


def take_parts(given: Any, name: str) -> tuple[Any, Any, Any]:
    """Return rows, labels and groups; as `take_pair`, or of ``(rows, labels, groups)``.

    >>> take_parts(([[1.0]], [2.0], ["a"]), "validation")
    ([[1.0]], [2.0], ['a'])
    """
    if isinstance(given, tuple) and len(given) == 3 and np.ndim(given[0]) == 2:
        return given
    return (*take_pair(given, name), None)


def _in_order(X: Any, names: tuple[str, ...], what: str) -> Any:
    """Return the table's columns that the model knows, in its order."""
    # LightGBM knows a column by its name without blanks.
    column = {str(name).replace(" ", "_"): name for name in X.columns}
    column |= {str(name): name for name in X.columns}
    missing = [name for name in names if name not in column]
    if missing:
        raise InputError(
            f"The {what} lack the model's feature '{missing[0]}'.",
            hint="give all columns the model was trained on.",
        )
    return X[[column[name] for name in names]]


def _category_places(X: Any) -> list[int]:
    """Return which columns of a table are categories: they are not what they look like."""
    return [i for i, kind in enumerate(getattr(X, "dtypes", ())) if str(kind) == "category"]


def _numbers(X: Any, places: list[int]) -> Any:
    """Return the numbers of a table, NaN where it has categories or nothing."""
    if hasattr(X, "toarray"):
        return X.toarray()
    if not hasattr(X, "columns") or not hasattr(X, "iloc"):
        return X
    columns = [
        np.full(len(X), np.nan) if i in places else X.iloc[:, i].to_numpy(float, na_value=np.nan)
        for i in range(X.shape[1])
    ]
    return np.column_stack(columns) if columns else np.empty((len(X), 0))


def _with_codes(rows: np.ndarray, places: list[int], X: Any, foreign: ForeignModel) -> np.ndarray:
    """Return ``rows`` with the model's own codes where the table has categories."""
    seen = np.asarray(foreign.rows(X), np.float64)
    same = seen.shape == rows.shape
    if same:
        rows = rows.copy()
        rows[:, places] = seen[:, places]
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about names, which a matrix has none of
                again = np.asarray(foreign.rows(rows), np.float64)
            same = np.array_equal(again[:, places], seen[:, places], equal_nan=True)
        except InputError:
            same = False
    if not same:
        raise InputError(
            f"This model of {foreign.library} takes categories as texts only, and triggers are "
            "kept as numbers.",
            hint=_ENCODE,
        )
    return rows
