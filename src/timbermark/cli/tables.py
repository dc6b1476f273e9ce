"""Rows from CSV (also compressed) or Parquet files, in the columns that a model takes.

Tables in many Parquet files, or in one with very many rows, are passed over, not read. One column
may say which rows a ranker ranks together.
"""

from __future__ import annotations

import glob
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from timbermark.errors import InputError
from timbermark.files.tables import (
    WORDS,
    check_names,
    check_separator,
    is_parquet,
    open_csv,
    open_parquet,
    plain_name,
    read_labels,
)

if TYPE_CHECKING:
    from timbermark.libraries.contract import ForeignModel


_MISSING = frozenset({"", "NA", "N/A", "<NA>", "NaN", "nan", "NULL", "null", "None"})
_ROWS_AT_ONCE = 10_000
LOCAL = "local"
_NONE_KNOWN: Mapping[int, frozenset[str] | None] = MappingProxyType({})

__all__ = ["Table", "check_width", "read_labels", "read_table"]


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """Rows of a file: ``X`` [n, d], float64 with NaN for missing values, or numbers and texts.

    ``labels``: cells, or None.
    """

    path: Path
    X: np.ndarray
    labels: list[Any] | None


def read_table(
    path: Path,
    features: Sequence[str] | None,
    label: str | None,
    texts: frozenset[int] | None = frozenset(),
    known: Mapping[int, frozenset[str] | None] = _NONE_KNOWN,
) -> Table:
    """Return the columns that a model takes, in its order, and the label column if there is one.

    ``features``: the model's names; all other columns are ignored. None takes every column but
    the label, by place. Cells may be numbers, booleans or empty; ``texts``: places of features that
    the model takes as texts, None where any may be: those are that have a cell that is no number.
    ``known``: texts that are categories of the model, None for all, by the place of the feature,
    which then is one of texts; these are never missing values.

    Raises InputError for a table that cannot be used as it is, OSError if it cannot be opened.
    """
    if is_parquet(path):
        with open_parquet(path) as (file, names):
            columns = _Columns(path, names, *_choose(path, names, features, label), texts, known)
            target = [] if columns.label is None else [names[columns.label]]
            table = file.read(columns=[*(names[i] for i in columns.features), *target])
        if table.num_rows == 0:
            raise InputError(f"{path} has no rows.", hint="give a table with rows.")
        found = [columns.arrow(p, table.column(names[i])) for p, i in enumerate(columns.features)]
        return columns.table(found, table.column(target[0]).to_pylist() if target else [])
    with open_csv(path) as lines:
        header = [name.strip() for name in next(lines, [])]
        if not header:
            raise InputError(f"{path} has no rows.", hint="the first line names the columns.")
        chosen = _choose(path, header, features, label)
        return _parse_csv(lines, _Columns(path, header, *chosen, texts, known))


def check_width(model: ForeignModel, path: Path, X: Any) -> None:
    """Raise InputError if a model without feature names does not take the columns of a table."""
    if isinstance(X, str):
        return  # which is passed over later
    try:
        model.rows(X[:1])
    except InputError as error:
        raise InputError(
            f"{path} does not fit the model. {error.message}",
            hint="the model has no feature names: give its features in their order, and name the "
            "label column with --label.",
        ) from None


@dataclass(frozen=True, slots=True)
class _Columns:
    """Which columns of a file are used, by place, and which of these are texts (`read_table`)."""

    path: Path
    names: list[str]
    features: list[int]
    label: int | None
    texts: frozenset[int] | None
    known: Mapping[int, frozenset[str] | None]

    def are_texts(self, place: int) -> bool:
        """Return whether a feature is one that the model takes as texts."""
        return place in self.known or (self.texts is not None and place in self.texts)

    def numbers(self, place: int, cells: list[str], first: int) -> np.ndarray:
        """Return a feature's cells as numbers; ``first``: the row of the first, for errors."""
        try:
            return np.array(cells).astype(np.float64)
        except ValueError:
            pass  # there are cells that are empty or something else
        name = self.names[self.features[place]]
        return np.fromiter(_parse_cells(self.path, name, cells, first), np.float64, len(cells))

    def cells(self, place: int, cells: list[str]) -> np.ndarray:
        """Return a feature's cells as numbers, or as texts with None where they are missing.

        A text that is a category of the model is not missing, whatever it says.
        """
        if not self.are_texts(place):
            try:
                return self.numbers(place, cells, 2)
            except InputError:
                if self.texts is not None:
                    raise
        categories = self.known.get(place, frozenset())
        missing = frozenset() if categories is None else _MISSING - categories
        return np.array([None if cell in missing else cell for cell in cells], dtype=object)

    def arrow(self, place: int, column: Any) -> np.ndarray:
        """Return a feature's cells from a column of pyarrow."""
        from pyarrow import float64, int8, types

        kind = column.type
        if types.is_boolean(kind) and not self.are_texts(place):
            column, kind = column.cast(int8()), int8()
        inner = kind.value_type if types.is_dictionary(kind) else kind
        if self.are_texts(place) or (self.texts is None and types.is_temporal(kind)):
            # A pipeline may leave dates out.
            found = [None if cell is None else str(cell) for cell in column.to_pylist()]
            return np.array(found, dtype=object)
        if types.is_integer(kind) or types.is_floating(kind):
            return np.asarray(column.cast(float64(), safe=False).to_numpy())
        if self.texts is None and (types.is_string(inner) or types.is_large_string(inner)):
            # What a table says is text stays text, digits or not.
            return np.array(column.to_pylist(), dtype=object)
        cells = ["" if cell is None else str(cell).strip() for cell in column.to_pylist()]
        return self.numbers(place, cells, 1)

    def table(self, columns: list[np.ndarray], labels: list[Any]) -> Table:
        """Return columns side by side: float64 if all are numbers, else objects; and labels."""
        if all(column.dtype != object for column in columns):
            X = np.column_stack(columns)
        else:
            X = np.empty((len(columns[0]), len(columns)), dtype=object)
            for place, column in enumerate(columns):
                X[:, place] = column
        if self.label is None:
            return Table(self.path, X, None)
        empty = sum(cell is None or cell == "" or cell != cell for cell in labels)
        if empty:
            raise InputError(
                f"The column '{self.names[self.label]}' of {self.path} has {empty} empty cells.",
                hint="label these rows, or leave them out.",
            )
        return Table(self.path, X, labels)


def _choose(
    path: Path, names: list[str], features: Sequence[str] | None, label: str | None
) -> tuple[list[int], int | None]:
    """Return the places of the features and of the label column among the names of a file."""
    if features is None or not {*features} <= {*names}:
        check_separator(path, names)
        _check_header(path, names, features)
    place = check_names(path, names)
    target = None if label is None else place.get(label)
    if features is None:
        chosen = [i for i in range(len(names)) if i != target]
    else:
        # LightGBM knows a column by its name without blanks.
        place = {plain_name(name): i for name, i in place.items()} | place
        missing = [name for name in features if name not in place]
        if missing:
            raise InputError(
                f"{path} lacks the model's feature '{missing[0]}'.",
                hint=f"the model takes {', '.join(features[:20])}"
                f"{', …' if len(features) > 20 else ''}.",
            )
        chosen = [place[name] for name in features]
    if not chosen:
        raise InputError(f"{path} has no feature columns.", hint="check the file and --label.")
    return chosen, target


def _check_header(path: Path, names: list[str], features: Sequence[str] | None) -> None:
    """Raise InputError if the first line of a table holds values in place of names.

    Whole numbers may be names, as pandas gives them to columns without.
    """
    values = [name for name in names if _is_number(name)]
    if len(values) < len(names):
        return
    if features is None and len({*names}) == len(names) and all(map(str.isdigit, names)):
        return
    raise InputError(
        f"The first line of {path} holds numbers ({', '.join(names[:3])}), not names of columns.",
        hint="write a first line that names the columns.",
        code="csv.header",
    )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _parse_csv(lines: Iterator[list[str]], columns: _Columns) -> Table:
    found: list[list[Any]] = [[] for _ in columns.features]
    labels: list[str] = []
    number, width, plain = 2, len(columns.names), columns.texts == frozenset()
    while rows := list(islice(lines, _ROWS_AT_ONCE)):
        for i, row in enumerate(rows, start=number):
            if len(row) != width:
                raise InputError(
                    f"{columns.path} has {len(row)} cells in row {i}, expected {width}.",
                    hint="cells are separated by commas.",
                )
        cells = [[cell.strip() for cell in column] for column in zip(*rows, strict=True)]
        for place, i in enumerate(columns.features):
            # Numbers take less memory than texts do.
            found[place] += [columns.numbers(place, cells[i], number)] if plain else cells[i]
        labels += [] if columns.label is None else cells[columns.label]
        number += len(rows)
    if number == 2:
        raise InputError(f"{columns.path} has no rows.", hint="the first line names the columns.")
    made = [
        np.concatenate(parts) if plain else columns.cells(place, parts)
        for place, parts in enumerate(found)
    ]
    return columns.table(made, labels)


def _parse_cells(path: Path, name: str, cells: Iterable[str], first: int) -> Iterator[float]:
    for number, cell in enumerate(cells, start=first):
        if cell in _MISSING:
            yield np.nan
        elif cell in WORDS:
            yield WORDS[cell]
        else:
            try:
                yield float(cell)
            except ValueError:
                raise InputError(
                    f"Column '{name}' of {path} holds the text '{cell[:40]}' in row {number}, and "
                    "the model takes numbers.",
                    hint="give the codes that the model was trained on; if this is the label, name "
                    "it with --label.",
                ) from None


def read_given(
    model: ForeignModel,
    path: Path,
    label: str | None,
    *,
    names: Sequence[str] | None = None,
    group: str | None = None,
    scheduler: str = LOCAL,
    classes: np.ndarray | None = None,
    mapped: bool = False,
) -> tuple[Any, Any, Any]:
    """Return rows, labels and groups of a file as `timbermark.embed` takes them, None for none.

    Passed over, and not read, are patterns, folders, every Parquet file where there is a cluster,
    and one with very many rows if the model takes numbers. ``names``: of the features, where the
    model has none; ``classes``: the labels, where they are not the model's; ``mapped``: labels stay
    as they are written.
    """
    if _is_passed_over(model, path, scheduler):
        from timbermark.partitions.parquet import has_column

        if group is not None:
            raise InputError(
                "--group goes with rows that fit in memory, in one file.",
                hint="give such a file, or leave the groups out.",
            )
        has_label = label is not None and has_column(str(path), label)
        return str(path), label if has_label else None, None
    chosen = names if model.feature_names is None else model.feature_names
    table = read_table(path, chosen, label, model.text_columns, model.known_texts)
    if table.labels is None:
        return table.X, None, None
    known = model.classes if classes is None else classes
    labels = table.labels if mapped else read_labels(table.labels, known)
    return table.X, labels, None if group is None else _read_groups(path, group)


def is_pattern(path: Path) -> bool:
    """Return whether a path stands for several files.

    >>> is_pattern(Path("rows/*.parquet")), is_pattern(Path("rows.parquet"))
    (True, False)
    """
    return path.is_dir() or (glob.has_magic(str(path)) and not path.exists())


@contextmanager
def on_scheduler(scheduler: str, tables: Iterable[object]) -> Iterator[None]:
    """Run passes on --scheduler. Raises InputError if it is not there, or there is no table."""
    if scheduler == LOCAL:
        yield
        return
    if not any(isinstance(table, str) for table in tables):
        raise InputError(
            "--scheduler is for Parquet files, and there are none.",
            hint="leave it out, or give the rows as Parquet.",
        )
    from timbermark.partitions.passes import connect

    with connect(scheduler):
        yield


def _is_passed_over(model: ForeignModel, path: Path, scheduler: str) -> bool:
    if is_pattern(path):
        return True
    if not is_parquet(path):
        return False
    if scheduler != LOCAL:
        return True
    if model.inside or model.takes_frames or model.text_columns != frozenset():
        return False
    from timbermark.marking.large_tables import LARGE

    with open_parquet(path) as (file, _):
        return bool(file.metadata.num_rows > LARGE)


def _read_groups(path: Path, column: str) -> list[Any] | None:
    """Return the cells of one column. Raises InputError for none, or an empty cell."""
    if column not in list_features(path):
        raise InputError(f"{path} has no column '{column}'.", hint="check the name after --group.")
    return read_table(path, [column], column, frozenset({0})).labels


def list_features(path: Path, left_out: tuple[str | None, ...] = ()) -> list[str]:
    """Return the names of a table's columns in their order, without those that are left out."""
    if is_parquet(path):
        with open_parquet(path) as (_, names):
            pass
    else:
        with open_csv(path) as lines:
            names = [name.strip() for name in next(lines, [])]
    return [name for name in names if name not in left_out]
