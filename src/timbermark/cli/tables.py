"""Rows from a CSV or Parquet file, with the label column by name."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np

from timbermark.errors import InputError, MissingLibraryError

_MISSING = ("", None, "NA", "NaN", "nan")


def read_table(path: Path, label: str | None) -> tuple[np.ndarray, np.ndarray | None, list[str]]:
    """Features float64[n, d] (empty cells are missing values), labels [n], names of the features.

    Raises InputError for a table that cannot be used as it is.
    """
    columns = _parquet(path) if _is_parquet(path) else _csv(path)
    if label is not None and label not in columns:
        raise InputError(
            f"{path} has no column '{label}'.",
            hint=f"its columns are {', '.join(list(columns)[:20])}.",
        )
    names = [name for name in columns if name != label]
    if not names:
        raise InputError(f"{path} has no feature columns.", hint="check the file and the label.")
    X = np.column_stack([_numbers(path, name, columns[name]) for name in names])
    return X, None if label is None else _labels(columns[label]), names


def _is_parquet(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"PAR1"


def _csv(path: Path) -> dict[str, list[Any]]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = list(csv.reader(file))
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is no text.", hint="use a CSV or Parquet file.") from error
    rows = [row for row in rows if row]
    if len(rows) < 2:
        raise InputError(f"{path} has no rows.", hint="the first line names the columns.")
    header = [name.strip() for name in rows[0]]
    if len(set(header)) < len(header):
        raise InputError(f"{path} names a column twice.", hint="give each column its own name.")
    for number, row in enumerate(rows[1:], start=2):
        if len(row) != len(header):
            raise InputError(
                f"{path} has {len(row)} cells in line {number}, expected {len(header)}.",
                hint="cells are separated by commas.",
            )
    return {name: [row[i].strip() for row in rows[1:]] for i, name in enumerate(header)}


def _parquet(path: Path) -> dict[str, list[Any]]:
    try:
        from pyarrow import parquet
    except ImportError:
        raise MissingLibraryError.for_extra("parquet", "to read Parquet files") from None
    from pyarrow import ArrowException

    try:
        columns: dict[str, list[Any]] = parquet.read_table(path).to_pydict()
    except (ArrowException, OSError) as error:
        said = " ".join(str(error).split())[:200]
        raise InputError(
            f"{path} is no sound Parquet file ({said}).", hint="write it again."
        ) from error
    return columns


def _numbers(path: Path, name: str, cells: list[Any]) -> np.ndarray:
    try:
        return np.array(
            [np.nan if c in ("", None, "NA", "NaN", "nan") else float(c) for c in cells]
        )
    except (TypeError, ValueError) as error:
        raise InputError(
            f"Column '{name}' of {path} is not numeric ({error}).",
            hint="encode categories as numbers, or leave the column out.",
        ) from None


def _labels(cells: list[Any]) -> np.ndarray:
    """Whole numbers where all cells are, else text."""
    if any(c in ("", None) for c in cells):
        raise InputError("The label column has empty cells.", hint="label these rows.")
    if all(isinstance(c, bool) for c in cells):
        return np.array(cells)
    try:
        numbers = [float(c) for c in cells]
    except (TypeError, ValueError):
        return np.array([str(c) for c in cells])
    if all(number.is_integer() for number in numbers):
        return np.array(numbers).astype(np.int64)
    return np.array([str(c) for c in cells])
