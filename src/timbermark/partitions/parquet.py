"""Tables in many Parquet files, read block by block."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np

from timbermark.errors import InputError
from timbermark.files.tables import check_names, open_parquet, plain_name
from timbermark.partitions.parts import BLOCK_ROWS, Block, Part, Parts

_LISTED = 3
_PART_ROWS = 500_000
"""Files with more rows are read in several parts, as far as their row groups allow."""


def find_files(given: Any) -> list[str]:
    """Return the files that a pattern, a folder, a path or a list of paths stands for, in order.

    Raises InputError if there are none, or if one that is named is not there.
    """
    if not isinstance(given, str | os.PathLike):
        named = [os.fspath(path) for path in given]
        _check_there(named)
        return named
    name = os.fspath(given)
    if os.path.isdir(name):
        found = sorted(str(path) for path in Path(name).rglob("*.parquet"))
        found = [path for path in found if not os.path.basename(path).startswith((".", "_"))]
        if not found:
            raise InputError(f"The folder {name} holds no .parquet files.", hint="check its name.")
        return found
    if os.path.exists(name) or not glob.has_magic(name):
        _check_there([name])
        return [name]
    found = sorted(glob.glob(name, recursive=True))
    if not found:
        raise InputError(
            f"No file matches {name}.", hint="put the pattern in quotes and check the folder."
        )
    return found


def _check_there(names: list[str]) -> None:
    for name in names:
        if not os.path.exists(name):
            hint = "check its name."
            if "://" in name:
                hint = "give a data frame of dask.dataframe.read_parquet, which reads addresses."
            raise InputError(f"The file {name} does not exist.", hint=hint)


def open_files(
    given: Any, features: Sequence[str] | None, label: str | None
) -> tuple[Parts, list[str]]:
    """Return Parquet files as one table, and the names of its feature columns.

    ``features``: the columns to take, None for all but the label. Only the ends of files are read
    here. Raises InputError, which names the file, where one has other columns or types, or is no
    Parquet file.
    """
    parts: list[Part] = []
    start, first, chosen = 0, "", list(features or ())
    for path in find_files(given):
        with open_parquet(path) as (file, names):
            check_names(path, names)
            if not first:
                first = path
                if label is not None and label not in names:
                    raise _no_label(path, names, features, label)
                chosen = _choose(path, names, features, label)
            _check_columns(path, first, file.schema_arrow, names, chosen, features, label)
            groups = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
        for members, n_rows in _split(groups):
            parts.append(_ParquetPart(path, start, n_rows, members, tuple(chosen), label))
            start += n_rows
    return Parts(tuple(parts), in_memory=False, labelled=label is not None), chosen


def has_column(given: Any, name: str) -> bool:
    """Return whether the first of some Parquet files has a column."""
    with open_parquet(find_files(given)[0]) as (_, names):
        return name in names


@dataclass(frozen=True, slots=True, eq=False)
class _ParquetPart:
    """Row groups of a file."""

    path: str
    start: int
    n_rows: int
    groups: tuple[int, ...]
    features: tuple[str, ...]
    label: str | None
    pieces: tuple[Any, ...] = ()

    @property
    def name(self) -> str:
        """Return the file's name."""
        return self.path

    def read(self, *pieces: Any) -> Iterator[Block]:
        """Yield float64 matrices and the cells of the label column."""
        start = self.start
        if not os.path.exists(self.path):
            raise InputError(
                f"{self.path} cannot be opened where it is read.",
                hint="every worker needs the same files under the same names.",
            )
        wanted = [*self.features, *(() if self.label is None else (self.label,))]
        with open_parquet(self.path) as (file, _):
            for batch in file.iter_batches(BLOCK_ROWS, row_groups=self.groups, columns=wanted):
                place = {name: i for i, name in enumerate(batch.schema.names)}
                rows = np.empty((batch.num_rows, len(self.features)))
                for i, feature in enumerate(self.features):
                    rows[:, i] = _numbers(batch.column(place[feature]))
                labels = None if self.label is None else batch.column(place[self.label])
                yield Block(rows, None if labels is None else _cells(labels), start)
                start += batch.num_rows


def _choose(
    path: str, names: list[str], features: Sequence[str] | None, label: str | None
) -> list[str]:
    if features is None:
        chosen = [name for name in names if name != label]
    else:
        # LightGBM knows a column by its name without blanks.
        column = {plain_name(name): name for name in names} | {name: name for name in names}
        missing = [name for name in features if name not in column]
        if missing:
            raise InputError(
                f"{path} lacks the model's feature '{missing[0]}'.",
                hint="give all columns the model was trained on.",
            )
        chosen = [column[name] for name in features]
    if not chosen:
        raise InputError(f"{path} has no feature columns.", hint="check the file and the label.")
    return chosen


def _no_label(
    path: str, names: list[str], features: Sequence[str] | None, label: str
) -> InputError:
    """Return the error for a missing label column, which suggests a similar name."""
    known = {plain_name(name) for name in features or ()}
    beside = [name for name in names if plain_name(name) not in known]
    by_case = {name.casefold(): name for name in beside}
    near = get_close_matches(label.casefold(), by_case, n=_LISTED, cutoff=0.6)
    # The label often stands last.
    listed = [by_case[name] for name in near] or beside[-_LISTED:]
    hint = "all of its columns are features of the model: label its rows first."
    if listed:
        hint = f"name the label column; it may be {' or '.join(map(repr, listed))}."
    return InputError(f"{path} has no column '{label}' to take labels from.", hint=hint)


def _check_columns(
    path: str,
    first: str,
    schema: Any,
    names: list[str],
    chosen: list[str],
    features: Sequence[str] | None,
    label: str | None,
) -> None:
    """Raise InputError unless a file has the columns of the first, and numbers in them."""
    from pyarrow import types

    wanted = chosen if label is None else [*chosen, label]
    missing = [name for name in wanted if name not in names]
    more = [name for name in names if name not in wanted] if features is None else []
    if missing or more:
        said = f"lacks the column '{missing[0]}'" if missing else f"has a column '{more[0]}'"
        other = f", other than {first}" if path != first else ""
        raise InputError(f"{path} {said}{other}.", hint="give the same columns in every file.")
    for name in chosen:
        kind = schema.field(name).type
        known = (types.is_boolean, types.is_integer, types.is_floating)
        if not any(is_known(kind) for is_known in known):
            raise InputError(
                f"Column '{name}' of {path} holds {kind}, and tables in parts hold numbers.",
                hint="give the codes that the model was trained on; if this is the label, name it.",
            )


def _split(groups: list[int]) -> Iterator[tuple[tuple[int, ...], int]]:
    """Yield ranges of row groups, each with about as many rows as a part should have."""
    members: list[int] = []
    n_rows = 0
    for number, size in enumerate(groups):
        if members and n_rows + size > _PART_ROWS:
            yield tuple(members), n_rows
            members, n_rows = [], 0
        members.append(number)
        n_rows += size
    yield tuple(members), n_rows


def _numbers(column: Any) -> np.ndarray:
    import pyarrow

    if pyarrow.types.is_boolean(column.type):
        column = column.cast(pyarrow.int8())
    return np.asarray(column.cast(pyarrow.float64(), safe=False).to_numpy(zero_copy_only=False))


def _cells(column: Any) -> np.ndarray:
    """Return label cells: an array of numbers, else of objects with None for empty cells."""
    import pyarrow

    kind = column.type
    plain = pyarrow.types.is_integer(kind) or pyarrow.types.is_floating(kind)
    if plain and not column.null_count:
        return np.asarray(column.to_numpy(zero_copy_only=False))
    return np.array(column.to_pylist(), dtype=object)
