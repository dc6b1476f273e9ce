"""What a user gives along with a model: tables become matrices of numbers, labels class numbers."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from timbermark.errors import InputError
from timbermark.files.tables import plain_name
from timbermark.libraries.contract import ForeignModel
from timbermark.ownership.columns import write_times
from timbermark.partitions import is_in_parts

_LARGEST = float(np.finfo(np.float32).max)
_POOLS = {
    ("catboost", "Pool"), ("xgboost", "DMatrix"), ("xgboost", "QuantileDMatrix"),
    ("lightgbm", "Dataset"),
}  # fmt: skip


_UNITS = (("ms", 1), ("us", 1), ("ns", 1))
Column: TypeAlias = np.ndarray | tuple[str | None, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """A table in the columns that a model takes: ``values`` float64 [n] or n texts for each.

    ``table``: what was given, in the same columns.
    """

    table: Any
    values: tuple[Column, ...]
    names: tuple[str, ...] | None

    @property
    def n_rows(self) -> int:
        """Return the number of rows."""
        return len(self.values[0])

    def name(self, place: int) -> str:
        """Return the name of a column in messages."""
        return str(place) if self.names is None else f"'{self.names[place]}'"

    def head(self, n: int) -> Any:
        """Return the first rows as they were given."""
        return self.table.iloc[:n] if hasattr(self.table, "iloc") else self.table[:n]


def check_seed(seed: object) -> None:
    """Raise InputError for what no random numbers can be drawn from.

    >>> check_seed(0)
    """
    whole = isinstance(seed, int | np.integer) and not isinstance(seed, bool)
    if not whole or int(seed) < 0:  # type: ignore[call-overload]
        raise InputError(
            f"random_state={seed!r:.60} must be a whole number, 0 or more.",
            hint="leave it out for 0; one number gives one result.",
            code="random_state",
            parameter="random_state",
        )


def take_rows(foreign: ForeignModel, X: Any, what: str = "rows") -> np.ndarray:
    """Return float64 [n, d], as the predict of a model that takes only numbers takes them.

    Tables may have their columns in any order, and more of them than the model knows. Raises
    InputError for what is not a matrix of numbers that the model takes, and for a deployed model
    around others, whose rows `timbermark.marking.text_codes` takes.
    """
    if foreign.inside:
        raise InputError(
            f"The {foreign.kind} is a deployed model around a boosted one, and the {what} must be "
            "the columns of its trees.",
            hint="mark the boosted model inside by itself, with rows as that one takes them, and "
            "give that one with that mark; a mark of the whole is verified, not attacked.",
        )
    if foreign.text_columns and None in foreign.known_texts.values():
        raise InputError(
            f"This model of {foreign.library} takes texts, and the {what} must be numbers.",
            hint="train and mark a model on codes of these categories, and give that one; a mark "
            "of this one is verified, not attacked.",
        )
    _refuse_pool(X, what)
    _refuse_flat(X, what)
    if hasattr(X, "columns") and foreign.feature_names is not None:
        X = _in_order(X, foreign.feature_names, what)
    places = _category_places(X, foreign.text_columns or frozenset())
    try:
        rows = np.asarray(_numbers(X, places), np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"The {what} are not all numbers ({error}).",
            hint="give a matrix or a table of numbers; texts are taken only where the model has "
            "categories of texts.",
        ) from None
    if rows.ndim != 2:
        raise _no_table(rows.shape, what)
    if len(rows) == 0:
        raise InputError(f"There are no {what}.", hint="give some, or leave them out altogether.")
    _check_range(rows, what)
    if places:
        rows = _with_codes(rows, places, X, foreign)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about names, which a matrix has none of
        foreign.rows(rows[:1])
    return rows


def read_columns(
    foreign: ForeignModel,
    X: Any,
    what: str = "rows",
    is_ignored: Callable[[Any, int], bool] = lambda table, place: False,
) -> Columns:
    """Return the columns of a table of numbers and texts that the model takes.

    Whole numbers and truth values are texts where the model takes only these. Columns that can be
    neither are missing values if ``is_ignored`` says that the model does not look at that place of
    the table. Raises InputError for what is no table, and for a column that is neither.
    """
    _refuse_pool(X, what)
    _refuse_flat(X, what)
    if hasattr(X, "columns") and foreign.feature_names is not None:
        X = _in_order(X, foreign.feature_names, what)
    if hasattr(X, "toarray"):
        X = X.toarray()
    if not hasattr(X, "iloc"):
        try:
            X = X if isinstance(X, np.ndarray) else np.array(X, dtype=object)
        except ValueError:
            X = np.empty(0)
    if len(X.shape) != 2 or X.shape[1] == 0:
        raise _no_table(X.shape, what)
    if len(X) == 0:
        raise InputError(f"There are no {what}.", hint="give some, or leave them out altogether.")
    names = tuple(str(name) for name in X.columns) if hasattr(X, "iloc") else None
    known = Columns(X, (), names)

    def read(place: int) -> Column:
        given = X.iloc[:, place] if hasattr(X, "iloc") else X[:, place]
        called = f"Column {known.name(place)} of the {what}"
        try:
            return _read_column(given, foreign.text_columns, place, called)
        except InputError:
            if is_ignored(X, place):
                return np.full(len(X), np.nan)
            raise

    values = tuple(read(place) for place in range(X.shape[1]))
    for column in values:
        if isinstance(column, np.ndarray):
            _check_range(column, what)
    return Columns(X, values, names)


def _read_column(given: Any, textual: frozenset[int] | None, place: int, what: str) -> Column:
    kind = getattr(given.dtype, "kind", "O")
    named = textual is not None and place in textual
    if kind in "biuf" and not named:
        if isinstance(given, np.ndarray):
            return np.asarray(given, np.float64)
        return np.asarray(given.to_numpy(float, na_value=np.nan))
    if textual is None and (times := _times(given)) is not None:
        return write_times(times)
    if kind not in "biufOUST":
        raise InputError(
            f"{what} holds {given.dtype}, which a mark cannot keep.",
            hint="give numbers, texts and times without a time zone.",
        )
    values = [_plain(value) for value in given]
    numbers = [isinstance(value, bool | int | float) for value in values if value is not None]
    if not any(numbers) and (numbers or named):
        found = tuple(values)
        if all(value is None or isinstance(value, str) for value in found):
            if textual is not None and not named:
                raise InputError(
                    f"{what} holds texts, and the model takes numbers there.",
                    hint="give the column as the model was trained on it.",
                )
            return found
    elif all(numbers) and not named:
        return np.array([np.nan if value is None else float(value) for value in values])
    elif named and all(value is None or isinstance(value, str | bool | int) for value in values):
        return tuple(None if value is None else str(value) for value in values)
    raise InputError(
        f"{what} is neither all numbers nor all texts.",
        hint="give every value of a column the same type; a missing one is NaN or None.",
    )


def _times(given: Any) -> np.ndarray | None:
    """Return a column of times as an array; None for others, and for what would be rounded."""
    if not (hasattr(given, "dt") and getattr(given.dtype, "kind", "") == "M"):
        return None
    times = given.to_numpy()
    known = times.dtype.kind == "M" and np.datetime_data(times.dtype) in _UNITS
    return times if known else None


def _plain(value: Any) -> Any:
    """Return a value of a table as Python's own; None if it is missing."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return None
    return None if isinstance(value, float) and value != value else value


def _check_range(rows: np.ndarray, what: str) -> None:
    largest = np.nanmax(np.abs(rows), initial=0.0)
    if largest > _LARGEST:
        said = "infinity" if np.isinf(largest) else f"{largest:g}, which is beyond float32"
        raise InputError(
            f"The {what} hold {said}.",
            hint="leave such rows out, or scale the feature; a missing value is NaN.",
        )


def take_labels(
    y: Any,
    n: int,
    classes: np.ndarray,
    what: str = "labels",
    label_map: Mapping[Any, Any] | None = None,
) -> np.ndarray:
    """Return int64 [n]: class numbers of labels that the model must know.

    ``label_map``: from the labels of rows to those of the model, where rows have other names.
    """
    known = {label: number for number, label in enumerate(classes.tolist())}
    if label_map is not None:
        known = _follow_map(label_map, known)
    try:
        given = np.asarray(y)
        if label_map is not None and given.ndim == 1 and all(isinstance(k, str) for k in label_map):
            given = np.array([str(label) for label in given.tolist()], object)
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
    missing = sum(label is None or label != label for label in given.tolist()) if strange else 0
    if missing:
        raise InputError(
            f"{missing} of the {what} are missing (NaN or None).",
            hint="leave these rows out, or label them.",
            code="labels.missing",
        )
    if strange:
        raise InputError(
            f"The label {strange[0]!r} is not one of the model's.",
            hint=f"its labels are {', '.join(map(str, list(known)[:20]))}; where rows name them "
            "otherwise, give label_map={theirs: yours}.",
            code="labels.unknown",
            parameter="label_map",
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


def _follow_map(label_map: Any, known: Mapping[Any, int]) -> dict[Any, int]:
    """Return the class number of every label of rows. Raises InputError for what is no such map.

    Labels are compared as they are, and by their texts where a map was written down.
    """
    if not isinstance(label_map, Mapping) or not label_map:
        raise InputError(
            "label_map is no dictionary of labels.",
            hint="as in label_map={'no': 0, 'yes': 1}.",
            code="label-map.type",
            parameter="label_map",
        )
    texts = {str(label): number for label, number in known.items()}
    found = {theirs: known.get(ours, texts.get(str(ours))) for theirs, ours in label_map.items()}
    strange = [label_map[theirs] for theirs, number in found.items() if number is None]
    if strange and all(key in known or str(key) in texts for key in label_map):
        turned = ", ".join(f"{ours!r}: {theirs!r}" for theirs, ours in label_map.items())
        raise InputError(
            "label_map goes from the model's labels to those of the rows.",
            hint=f"turn it round: label_map={{{turned}}}.",
            code="label-map.reversed",
            parameter="label_map",
        )
    if strange or len(set(found.values())) < len(found):
        said = f"{strange[0]!r} is none of them" if strange else "two labels go to one of them"
        raise InputError(
            f"label_map must lead to the model's own labels, and {said}.",
            hint=f"the model's are {', '.join(map(str, list(known)[:20]))}.",
            code="label-map.targets",
            parameter="label_map",
        )
    return {theirs: number for theirs, number in found.items() if number is not None}


def as_frame(table: Any) -> Any:
    """Return tables of Arrow, polars and their like as pandas' tables, others as they are.

    >>> import pyarrow
    >>> as_frame(pyarrow.table({"age": [31, 44]})).shape
    (2, 1)
    """
    is_other = hasattr(table, "to_pandas") and not hasattr(table, "iloc")
    return table.to_pandas() if is_other else table


def take_pair(given: Any, name: str) -> tuple[Any, Any]:
    """Return rows and labels of ``(rows, labels)``, or rows and None of a table alone.

    >>> take_pair(([[1.0]], ["no"]), "validation")
    ([[1.0]], ['no'])
    """
    if isinstance(given, tuple) and len(given) == 2 and is_in_parts(given[0]):
        return given[0], given[1]
    if isinstance(given, tuple | list) and len(given) == 2 and np.ndim(given[0]) == 2:
        return given[0], given[1]
    if isinstance(given, tuple):
        raise InputError(
            f"{name} is not a pair of rows and labels.",
            hint=f"{name}=(X, y), where X is a table of columns.",
            code="rows.pair",
            parameter=name,
        )
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
    column = {plain_name(name): name for name in X.columns}
    column |= {str(name): name for name in X.columns}
    missing = [name for name in names if name not in column]
    if missing:
        raise InputError(
            f"The {what} lack the model's feature '{missing[0]}'.",
            hint="give all columns the model was trained on.",
        )
    return X[[column[name] for name in names]]


def _refuse_flat(X: Any, what: str) -> None:
    """Raise InputError for a single column, such as labels in place of rows."""
    if getattr(X, "ndim", 2) == 1:
        raise _no_table(X.shape, what)


def _no_table(shape: tuple[int, ...], what: str) -> InputError:
    word = what.partition(" ")[0]
    return InputError(
        f"The {what} have the shape {shape}, and a table of columns is needed.",
        hint="give rows first, then labels: a table or a matrix with a column for each feature.",
        code="rows.shape",
        parameter=word if word in ("candidates", "validation") else "X",
    )


def _refuse_pool(X: Any, what: str) -> None:
    """Raise InputError for the data set objects of libraries (Pool, DMatrix, Dataset)."""
    kind = type(X)
    library, name = kind.__module__.partition(".")[0], kind.__name__
    if (library, name) in _POOLS:
        raise InputError(
            f"The {what} are a {name} of {library}, from which rows cannot be read.",
            hint="give the matrix or the table that it was made of, and its labels as y.",
        )


def _category_places(X: Any, texts: frozenset[int]) -> list[int]:
    """Return which columns of a table are categories, whatever type their values have.

    ``texts``: columns in which the model takes texts; they are categories unless they are numbers.
    """
    if hasattr(X, "dtypes"):
        kinds = [getattr(kind, "kind", "O") for kind in X.dtypes]
        named = [str(kind) == "category" for kind in X.dtypes]
        return [
            i for i, kind in enumerate(kinds) if named[i] or (i in texts and kind not in "biuf")
        ]
    matrix = isinstance(X, np.ndarray) and X.ndim == 2 and X.dtype == object
    return sorted(place for place in texts if place < X.shape[1]) if matrix else []


def _numbers(X: Any, places: list[int]) -> Any:
    """Return the numbers of a table, NaN where it has categories or nothing."""
    if hasattr(X, "toarray"):
        return X.toarray()
    if not hasattr(X, "columns") or not hasattr(X, "iloc"):
        if places:
            X = X.copy()
            X[:, places] = np.nan
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
            f"This model of {foreign.library} does not keep the names of its categories.",
            hint="train it on whole numbers in place of categories, and give those.",
        )
    return rows
