"""What a user gives along with a model of another library: rows, labels, facts of its training."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from numbers import Integral, Real
from typing import Any

import numpy as np

from timbermark.errors import InputError
from timbermark.libraries.reading import Reading, Training

# What a user may say of a model's training; the least and the most it can be.
_TRAINING = {
    "learning_rate": (1e-6, 1.0), "l2_regularization": (0.0, 1e9), "min_hessian": (0.0, 1e9),
    "min_samples_leaf": (1, 2**31 - 1),
}  # fmt: skip
_ENCODE = "train it on whole numbers in place of categories, and give those."


def take_rows(X: Any, module: Any, reading: Reading) -> np.ndarray:
    """float64[n, d], as the model's own ``predict`` takes them; categories are its codes.

    Tables may have their columns in any order, and more of them than the model knows. Raises
    InputError for what is no matrix of numbers that the model takes.
    """
    if hasattr(X, "columns") and reading.feature_names is not None:
        X = _in_order(X, reading.feature_names)
    places = _category_places(X)
    try:
        rows = np.array(_numbers(X, places), np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"The rows are not all numbers ({error}).",
            hint="triggers are kept as numbers: give a matrix or a table of numbers.",
        ) from None
    if rows.ndim != 2:
        raise InputError(f"The rows have the shape {rows.shape}.", hint="give a matrix.")
    if len(rows) == 0:
        raise InputError("There are no rows.", hint="give some, or leave them out altogether.")
    if np.isinf(rows).any():
        raise InputError(
            "The rows hold infinity, which no trigger can.",
            hint="leave such rows out; a missing value is NaN.",
        )
    if places:
        rows = _with_codes(rows, places, X, module, reading)
    module.rows(reading, rows[:1])
    return rows


def take_labels(y: Any, n: int, classes: np.ndarray) -> np.ndarray:
    """int64[n]: class numbers of labels that the model must know."""
    try:
        given = np.asarray(y)
        known = {label: number for number, label in enumerate(classes.tolist())}
        strange = [label for label in given.tolist() if label not in known] if given.ndim else []
    except (TypeError, ValueError):
        raise InputError("The labels are no list of labels.", hint="give one per row.") from None
    if given.shape != (n,):
        raise InputError(
            f"Labels of the shape {given.shape} do not go with {n} rows.",
            hint="give one label per row.",
        )
    if strange:
        raise InputError(
            f"The label {strange[0]!r} is not one of the model's.",
            hint=f"its labels are {', '.join(map(str, list(known)[:20]))}.",
        )
    return np.array([known[label] for label in given.tolist()], np.int64)


def take_training(known: Training, given: Any) -> Training:
    """What the model says of its training, with what the user says in its place.

    >>> take_training(Training(), {"learning_rate": 0.3}).learning_rate
    0.3
    """
    if given is not None and not isinstance(given, Mapping):
        raise InputError("training is no dictionary.", hint="such as {'learning_rate': 0.1}.")
    changes: dict[str, Any] = {}
    for name, value in (given or {}).items():
        if name not in _TRAINING:
            raise InputError(
                f"training has no {name!r}.", hint=f"it may say {', '.join(_TRAINING)}."
            )
        whole = name == "min_samples_leaf"
        least, most = _TRAINING[name]
        number = isinstance(value, Integral if whole else Real) and not isinstance(value, bool)
        if not number or not least <= value <= most:
            raise InputError(
                f"{name}={value!r} cannot be.", hint="give what the model was trained with."
            )
        changes[name] = int(value) if whole else float(value)
    return replace(known, **changes)


def _in_order(X: Any, names: tuple[str, ...]) -> Any:
    """The table's columns that the model knows, in its order."""
    # LightGBM knows a column by its name without blanks.
    column = {str(name).replace(" ", "_"): name for name in X.columns}
    column |= {str(name): name for name in X.columns}
    missing = [name for name in names if name not in column]
    if missing:
        raise InputError(
            f"The table lacks the model's feature '{missing[0]}'.",
            hint="give all columns the model was trained on.",
        )
    return X[[column[name] for name in names]]


def _category_places(X: Any) -> list[int]:
    """Which columns of a table are categories: they are not what they look like."""
    return [i for i, kind in enumerate(getattr(X, "dtypes", ())) if str(kind) == "category"]


def _numbers(X: Any, places: list[int]) -> Any:
    """The numbers of a table, NaN where it has categories or nothing."""
    if hasattr(X, "toarray"):
        return X.toarray()
    if not hasattr(X, "columns") or not hasattr(X, "iloc"):
        return X
    columns = [
        np.full(len(X), np.nan) if i in places else X.iloc[:, i].to_numpy(float, na_value=np.nan)
        for i in range(X.shape[1])
    ]
    return np.column_stack(columns) if columns else np.empty((len(X), 0))


def _with_codes(
    rows: np.ndarray, places: list[int], X: Any, module: Any, reading: Reading
) -> np.ndarray:
    """``rows`` with the model's own codes in the columns that are categories in the table."""
    seen = np.asarray(module.rows(reading, X), np.float64)
    same = seen.shape == rows.shape
    if same:
        rows[:, places] = seen[:, places]
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about names, which a matrix has none of
                again = np.asarray(module.rows(reading, rows), np.float64)
            same = np.array_equal(again[:, places], seen[:, places], equal_nan=True)
        except InputError:
            same = False
    if not same:
        raise InputError(
            f"This model of {reading.library} takes categories as texts only, and triggers are "
            "kept as numbers.",
            hint=_ENCODE,
        )
    return rows
