"""The column of a table that says which rows a ranker ranks together (qid)."""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from timbermark.errors import InputError

_GZIP, _PARQUET = b"\x1f\x8b", b"PAR1"


def read_groups(path: Path, column: str) -> list[Any]:
    """Return the cells of one column of a CSV or Parquet file.

    Raises InputError if there is no such column, or if a cell of it is empty.
    """
    if _is_parquet(path):
        from pyarrow import parquet

        names = parquet.ParquetFile(path).schema_arrow.names
        _check(path, column, names)
        table = parquet.read_table(path, columns=[column])
        cells: list[Any] = table.column(column).to_pylist()
    else:
        with _lines(path) as lines:
            names = [name.strip() for name in next(lines, [])]
            _check(path, column, names)
            place = names.index(column)
            cells = [line[place].strip() for line in lines if len(line) == len(names)]
    if any(cell is None or cell == "" for cell in cells):
        raise InputError(
            f"The column '{column}' of {path} has empty cells.", hint="every row needs a group."
        )
    return cells


def list_features(path: Path, left_out: tuple[str | None, ...]) -> list[str]:
    """Return the names of a table's columns in their order, without those that are left out."""
    if _is_parquet(path):
        from pyarrow import parquet

        names = list(parquet.ParquetFile(path).schema_arrow.names)
    else:
        with _lines(path) as lines:
            names = [name.strip() for name in next(lines, [])]
    return [name for name in names if name not in left_out]


def _check(path: Path, column: str, names: list[str]) -> None:
    if column not in names:
        raise InputError(f"{path} has no column '{column}'.", hint="check the name after --group.")


def _is_parquet(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == _PARQUET


@contextmanager
def _lines(path: Path) -> Iterator[Iterator[list[str]]]:
    with path.open("rb") as raw:
        packed = raw.read(2) == _GZIP
        raw.seek(0)
        plain: Any = gzip.GzipFile(fileobj=raw) if packed else raw
        with io.TextIOWrapper(plain, encoding="utf-8-sig", newline="") as text:
            yield (line for line in csv.reader(text) if line)
