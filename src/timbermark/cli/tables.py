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
    is_parquet,
    open_csv,
    open_parquet,
    read_labels,
)

if TYPE_CHECKING:
    from timbermark.libraries.contract import ForeignModel


_MISSING = frozenset({"", "NA", "N/A", "<NA>", "NaN", "nan", "NULL", "null", "None"})
_ROWS_AT_ONCE = 10_000
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
        return _read_parquet(path, features, label, texts, known)
    with open_csv(path) as lines:
        return _parse_csv(path, lines, features, label, texts, known)


def check_width(model: ForeignModel, table: Table) -> None:
    """Raise InputError if a model without feature names does not take a table's columns."""
    try:
        model.rows(table.X[:1])
    except InputError as error:
        raise InputError(
            f"{table.path} does not fit the model. {error.message}",
            hint="the model has no feature names: give its features in their order, and name the "
            "label column with --label.",
        ) from None


@dataclass(frozen=True, slots=True)
class _Choice:
    """Which columns of a file are used, by place."""

    names: list[str]
    features: list[int]
    label: int | None


def _choose(
    path: Path, names: list[str], features: Sequence[str] | None, label: str | None
) -> _Choice:
    place = check_names(path, names)
    target = None if label is None else place.get(label)
    if features is None:
        chosen = [i for i in range(len(names)) if i != target]
    else:
        # LightGBM knows a column by its name without blanks.
        place = {name.replace(" ", "_"): i for name, i in place.items()} | place
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
    return _Choice(names, chosen, target)


def _parse_csv(
    path: Path,
    lines: Iterator[list[str]],
    features: Sequence[str] | None,
    label: str | None,
    texts: frozenset[int] | None,
    known: Mapping[int, frozenset[str] | None],
) -> Table:
    choice = _choose_header(path, next(lines, []), features, label)
    found: list[list[Any]] = [[] for _ in choice.features]
    labels: list[str] = []
    number = 2
    while rows := list(islice(lines, _ROWS_AT_ONCE)):
        for i, row in enumerate(rows, start=number):
            if len(row) != len(choice.names):
                raise InputError(
                    f"{path} has {len(row)} cells in row {i}, expected {len(choice.names)}.",
                    hint="cells are separated by commas.",
                )
        columns = [[cell.strip() for cell in column] for column in zip(*rows, strict=True)]
        for place, i in enumerate(choice.features):
            cells = columns[i]
            if texts == frozenset():
                found[place].append(_numbers(path, choice, i, cells, number))
            else:
                found[place] += cells
        if choice.label is not None:
            labels += columns[choice.label]
        number += len(rows)
    if number == 2:
        raise InputError(f"{path} has no rows.", hint="the first line names the columns.")
    if texts == frozenset():
        X = np.column_stack([np.concatenate(blocks) for blocks in found])
    else:
        X = _join_columns(
            [_read_cells(path, choice, p, c, texts, known) for p, c in enumerate(found)]
        )
    return Table(path, X, _checked_labels(path, choice, labels))


def _read_cells(
    path: Path,
    choice: _Choice,
    place: int,
    cells: list[str],
    texts: frozenset[int] | None,
    known: Mapping[int, frozenset[str] | None],
) -> np.ndarray:
    """Return one feature's cells as numbers, or as texts with None where they are missing.

    A text that is a category of the model is not missing, whatever it says.
    """
    if not _is_named(place, texts, known):
        try:
            return _numbers(path, choice, choice.features[place], cells, 2)
        except InputError:
            if texts is not None:
                raise
    categories = known.get(place, frozenset())
    missing = frozenset() if categories is None else _MISSING - categories
    return np.array([None if cell in missing else cell for cell in cells], dtype=object)


def _is_named(
    place: int, texts: frozenset[int] | None, known: Mapping[int, frozenset[str] | None]
) -> bool:
    return place in known or (texts is not None and place in texts)


def _join_columns(columns: list[np.ndarray]) -> np.ndarray:
    """Return columns side by side: float64 if all are numbers, else objects."""
    if all(column.dtype != object for column in columns):
        return np.column_stack(columns)
    X = np.empty((len(columns[0]), len(columns)), dtype=object)
    for place, column in enumerate(columns):
        X[:, place] = column
    return X


def _choose_header(
    path: Path, header: list[str], features: Sequence[str] | None, label: str | None
) -> _Choice:
    if not header:
        raise InputError(f"{path} has no rows.", hint="the first line names the columns.")
    return _choose(path, [name.strip() for name in header], features, label)


def _read_parquet(
    path: Path,
    features: Sequence[str] | None,
    label: str | None,
    texts: frozenset[int] | None,
    known: Mapping[int, frozenset[str] | None],
) -> Table:
    with open_parquet(path) as (file, names):
        choice = _choose(path, names, features, label)
        target = [] if choice.label is None else [names[choice.label]]
        table = file.read(columns=[*(names[i] for i in choice.features), *target])
    if table.num_rows == 0:
        raise InputError(f"{path} has no rows.", hint="give a table with rows.")
    X = _join_columns(
        [
            _arrow_column(path, choice, place, table.column(names[i]), texts, known)
            for place, i in enumerate(choice.features)
        ]
    )
    labels = table.column(target[0]).to_pylist() if target else []
    return Table(path, X, _checked_labels(path, choice, labels))


def _arrow_column(
    path: Path,
    choice: _Choice,
    place: int,
    column: Any,
    texts: frozenset[int] | None,
    known: Mapping[int, frozenset[str] | None],
) -> np.ndarray:
    import pyarrow

    kind = column.type
    if _is_named(place, texts, known):
        texts_or_none = [None if cell is None else str(cell) for cell in column.to_pylist()]
        return np.array(texts_or_none, dtype=object)
    if pyarrow.types.is_boolean(kind):
        column, kind = column.cast(pyarrow.int8()), pyarrow.int8()
    if pyarrow.types.is_integer(kind) or pyarrow.types.is_floating(kind):
        return np.asarray(column.cast(pyarrow.float64(), safe=False).to_numpy())
    if texts is None and _holds_texts(kind):
        # What a table says is text stays text, digits or not.
        return np.array(column.to_pylist(), dtype=object)
    if texts is None and pyarrow.types.is_temporal(kind):
        # A pipeline may leave dates out.
        dates = [None if cell is None else str(cell) for cell in column.to_pylist()]
        return np.array(dates, dtype=object)
    cells = ["" if cell is None else str(cell).strip() for cell in column.to_pylist()]
    return _numbers(path, choice, choice.features[place], cells, 1)


def _holds_texts(kind: Any) -> bool:
    import pyarrow

    inner = kind.value_type if pyarrow.types.is_dictionary(kind) else kind
    return bool(pyarrow.types.is_string(inner) or pyarrow.types.is_large_string(inner))


def _numbers(path: Path, choice: _Choice, i: int, cells: list[str], first: int) -> np.ndarray:
    try:
        return np.array(cells).astype(np.float64)
    except ValueError:
        pass  # there are cells that are empty or something else
    return np.fromiter(_parse_cells(path, choice.names[i], cells, first), np.float64, len(cells))


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


def _checked_labels(path: Path, choice: _Choice, cells: list[Any]) -> list[Any] | None:
    if choice.label is None:
        return None
    empty = [i for i, cell in enumerate(cells) if cell is None or cell == "" or cell != cell]
    if empty:
        raise InputError(
            f"The label column '{choice.names[choice.label]}' of {path} has {len(empty)} empty "
            "cells.",
            hint="label these rows, or leave them out.",
        )
    return cells


LOCAL = "local"


@dataclass(frozen=True, slots=True)
class FileTable:
    """Parquet files: a pattern, a folder or one file. ``labels``: the label column, or None."""

    path: Path
    labels: str | None

    @property
    def X(self) -> str:  # noqa: N802 - as the rows of other tables
        """Return the rows as `timbermark.embed` takes them."""
        return str(self.path)


def open_files(
    model: ForeignModel, path: Path, label: str | None, scheduler: str
) -> FileTable | None:
    """Return a table that is passed over, None for one that is read into memory.

    Passed over are patterns, folders, every Parquet file where there is a cluster, and one with
    very many rows if the model takes numbers.
    """
    from timbermark.partitions.parquet import has_column

    if not _is_passed_over(model, path, scheduler):
        return None
    has_label = label is not None and has_column(str(path), label)
    return FileTable(path, label if has_label else None)


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
    from timbermark.files.tables import open_parquet

    if not is_parquet(path):
        return False
    if scheduler != LOCAL:
        return True
    if model.inside or model.takes_frames or model.text_columns != frozenset():
        return False
    from timbermark.marking.large_tables import LARGE

    with open_parquet(path) as (file, _):
        return bool(file.metadata.num_rows > LARGE)


def read_groups(path: Path, column: str) -> list[Any]:
    """Return the cells of one column of a CSV or Parquet file.

    Raises InputError if there is no such column, or if a cell of it is empty.
    """
    if is_parquet(path):
        from pyarrow import parquet

        names = parquet.ParquetFile(path).schema_arrow.names
        _check_group(path, column, names)
        table = parquet.read_table(path, columns=[column])
        cells: list[Any] = table.column(column).to_pylist()
    else:
        with open_csv(path) as lines:
            names = [name.strip() for name in next(lines, [])]
            _check_group(path, column, names)
            place = names.index(column)
            cells = [line[place].strip() for line in lines if len(line) == len(names)]
    if any(cell is None or cell == "" for cell in cells):
        raise InputError(
            f"The column '{column}' of {path} has empty cells.", hint="every row needs a group."
        )
    return cells


def list_features(path: Path, left_out: tuple[str | None, ...]) -> list[str]:
    """Return the names of a table's columns in their order, without those that are left out."""
    if is_parquet(path):
        from pyarrow import parquet

        names = list(parquet.ParquetFile(path).schema_arrow.names)
    else:
        with open_csv(path) as lines:
            names = [name.strip() for name in next(lines, [])]
    return [name for name in names if name not in left_out]


def _check_group(path: Path, column: str, names: list[str]) -> None:
    if column not in names:
        raise InputError(f"{path} has no column '{column}'.", hint="check the name after --group.")
