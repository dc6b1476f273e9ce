"""Tables from strangers, read whole: CSV and Parquet files whose size is bounded while reading.

A few hundred kilobytes of either can hold billions of cells.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from timbermark.errors import InputError
from timbermark.files.tables import check_names, is_parquet, open_csv, open_parquet


@dataclass(frozen=True, slots=True)
class TableLimits:
    """How large a table may be."""

    rows: int = 1 << 21
    cells: int = 1 << 23
    bytes: int = 1 << 28  # of a CSV file that is not compressed, or of all values of a Parquet file


def read_columns(
    path: str | os.PathLike[str], limits: TableLimits | None = None
) -> dict[str, Sequence[Any]]:
    """Return the cells of each column by name: texts of a CSV file, values of a Parquet file.

    Raises InputError if the file is no sound table or larger than ``limits``, before it needs more
    memory than those allow; MissingLibraryError without pyarrow for Parquet.

    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "answers.csv")
    ...     _ = file.write_text("question,label\\na,1\\nb,2\\n")
    ...     read_columns(file)
    {'question': ['a', 'b'], 'label': ['1', '2']}
    """
    limits = limits or TableLimits()
    return _read_parquet(path, limits) if is_parquet(path) else _read_csv(path, limits)


def _read_csv(path: str | os.PathLike[str], limits: TableLimits) -> dict[str, Sequence[Any]]:
    with open_csv(path, max_bytes=limits.bytes) as lines:
        header = [cell.strip() for cell in next(lines, [])]
        check_names(path, header)
        columns: list[list[str]] = [[] for _ in header]
        for number, row in enumerate(lines, start=2):
            if len(row) != len(header):
                raise InputError(
                    f"{os.fspath(path)} has {len(row)} cells in row {number}, expected "
                    f"{len(header)}.",
                    hint="cells are separated by commas.",
                )
            _check_counts(path, number - 1, (number - 1) * len(header), limits, "more than ")
            for column, cell in zip(columns, row, strict=True):
                column.append(cell)
    return dict(zip(header, columns, strict=True))


def _read_parquet(path: str | os.PathLike[str], limits: TableLimits) -> dict[str, Sequence[Any]]:
    with open_parquet(path) as (file, names):
        meta = file.metadata
        groups = [meta.row_group(i) for i in range(meta.num_row_groups)]
        rows = max(meta.num_rows, sum(group.num_rows for group in groups))
        # Lists in cells have more values than rows.
        values = sum(
            group.column(i).num_values for group in groups for i in range(group.num_columns)
        )
        _check_counts(path, rows, max(values, rows * meta.num_columns), limits)
        _check_bytes(path, sum(group.total_byte_size for group in groups), limits)
    # As dictionaries, or else one long text in many rows would be copied for each of them.
    with open_parquet(path, read_dictionary=names) as (file, _):
        return {name: _list_values(path, file, name, limits) for name in names}


def _list_values(
    path: str | os.PathLike[str], file: Any, name: str, limits: TableLimits
) -> list[Any]:
    import pyarrow

    found: list[Any] = []
    for chunk in file.read(columns=[name]).column(name).chunks:
        if not pyarrow.types.is_dictionary(chunk.type):
            _check_bytes(path, chunk.nbytes, limits)
            found += chunk.to_pylist()
            continue
        _check_bytes(path, chunk.dictionary.nbytes, limits)
        texts = chunk.dictionary.to_pylist()
        found += [None if i is None else texts[i] for i in chunk.indices.to_pylist()]
    return found


def _check_counts(
    path: str | os.PathLike[str], rows: int, cells: int, limits: TableLimits, more: str = ""
) -> None:
    for count, limit, what in ((rows, limits.rows, "rows"), (cells, limits.cells, "cells")):
        if count > limit:
            shown = limit if more else count
            raise InputError(
                f"{os.fspath(path)} has {more}{shown:,} {what}, and {limit:,} are allowed.",
                hint="leave out what is not needed.",
            )


def _check_bytes(path: str | os.PathLike[str], size: int, limits: TableLimits) -> None:
    if size > limits.bytes:
        raise InputError(
            f"{os.fspath(path)} holds more than {limits.bytes >> 20} MiB, which is too much.",
            hint="leave out what is not needed.",
        )
