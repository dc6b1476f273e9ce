"""Tables of other programs: CSV, also compressed, and Parquet; and what labels in them mean.

Tables from strangers are read whole, and their size is bounded while reading: a few hundred
kilobytes of either can hold billions of cells.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from timbermark.errors import InputError, MissingLibraryError

_GZIP, _PARQUET = b"\x1f\x8b", b"PAR1"
WORDS = {"True": 1.0, "true": 1.0, "TRUE": 1.0, "False": 0.0, "false": 0.0, "FALSE": 0.0}
"""Truth values as cells."""
_LONGEST_LINE = 1 << 23
_PANDAS_INDEX = re.compile(r"__index_level_\d+__")


def plain_name(name: object) -> str:
    """Return the name of a column with underscores for blanks, as some libraries write it.

    >>> plain_name("net income")
    'net_income'
    """
    return str(name).replace(" ", "_")


def is_parquet(path: str | os.PathLike[str]) -> bool:
    """Return whether a file begins as Parquet files do. Raises OSError if it cannot be opened."""
    with open(path, "rb") as file:
        return file.read(len(_PARQUET)) == _PARQUET


@contextmanager
def open_csv(
    path: str | os.PathLike[str], max_bytes: int | None = None
) -> Iterator[Iterator[list[str]]]:
    """Yield the rows of a CSV file, also of a compressed one, that are not empty.

    Raises InputError, also while the rows are read, if it is no text or no sound file, or larger
    than ``max_bytes`` without compression.
    """
    try:
        with open(path, "rb") as raw:
            compressed = raw.read(len(_GZIP)) == _GZIP
            raw.seek(0)
            plain: Any = gzip.GzipFile(fileobj=raw) if compressed else raw
            if max_bytes is not None:
                plain = io.BufferedReader(_Bounded(plain, os.fspath(path), max_bytes))
            with io.TextIOWrapper(plain, encoding="utf-8-sig", newline="") as text:
                lines = text if max_bytes is None else _bound_lines(text, os.fspath(path))
                yield (line for line in csv.reader(lines) if line)
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise InputError(f"{path} is not a sound gzip file.", hint="write it again.") from None
    except UnicodeDecodeError as error:
        wide = error.object[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
        raise InputError(
            f"{path} is text in UTF-16, not in UTF-8." if wide else f"{path} is not text in UTF-8.",
            hint="write it as CSV in UTF-8, or as Parquet.",
            code="csv.encoding",
        ) from None
    except csv.Error as error:
        raise InputError(
            f"{path} is not a sound CSV file ({error}).", hint="write it again."
        ) from (None)


class _Bounded(io.RawIOBase):
    """A file of bytes that refuses to give more than a number of them."""

    def __init__(self, inner: Any, name: str, limit: int) -> None:
        self._inner, self._name, self._limit, self._left = inner, name, limit, limit

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        piece = self._inner.read(len(buffer))
        self._left -= len(piece)
        if self._left < 0:
            raise InputError(
                f"{self._name} holds more than {self._limit >> 20} MiB, which is too much.",
                hint="leave out what is not needed.",
            )
        buffer[: len(piece)] = piece
        return len(piece)


def _bound_lines(lines: Iterable[str], name: str) -> Iterator[str]:
    """Yield lines that are not too long: of one with commas only, every byte is a cell."""
    for line in lines:
        if len(line) > _LONGEST_LINE:
            raise InputError(
                f"{name} has a line of {len(line):,} characters.", hint="is it a table?"
            )
        yield line


@contextmanager
def open_parquet(
    path: str | os.PathLike[str], read_dictionary: list[str] | None = None
) -> Iterator[tuple[Any, list[str]]]:
    """Yield a file of pyarrow and the names of its columns, without the index of pandas.

    Texts of the columns ``read_dictionary`` are read as dictionaries: each of them once.

    Raises MissingLibraryError without pyarrow; InputError, also while it is read, if the file is
    not sound.
    """
    try:
        from pyarrow import ArrowException, parquet
    except ImportError:
        raise MissingLibraryError.for_extra("parquet", "to read Parquet files") from None
    try:
        with parquet.ParquetFile(path, read_dictionary=read_dictionary) as file:
            yield file, [n for n in file.schema_arrow.names if not _PANDAS_INDEX.fullmatch(n)]
    except (ArrowException, OSError) as error:
        said = " ".join(str(error).split())[:200]
        raise InputError(
            f"{path} is not a sound Parquet file ({said}).", hint="write it again."
        ) from error


def check_names(path: str | os.PathLike[str], names: list[str]) -> dict[str, int]:
    """Return the place of each column. Raises InputError if a name stands twice.

    >>> check_names("a.csv", ["x", "y"])
    {'x': 0, 'y': 1}
    """
    place: dict[str, int] = {}
    for i, name in enumerate(names):
        if name and name in place:
            raise InputError(
                f"{path} names the column '{name}' twice.", hint="give each column its own name."
            )
        place[name] = i
    return place


def check_separator(path: str | os.PathLike[str], names: Sequence[str]) -> None:
    """Raise InputError if the only name of a header is several that no comma separates.

    >>> check_separator("a.csv", ["age;income"])
    Traceback (most recent call last):
    timbermark.errors.InputError: a.csv separates its cells by semicolons, not by commas. Hint: \
write it again with commas, and with points in its numbers.
    """
    for separator, called in ((";", "semicolons"), ("\t", "tabs")):
        if len(names) == 1 and separator in names[0]:
            raise InputError(
                f"{path} separates its cells by {called}, not by commas.",
                hint="write it again with commas, and with points in its numbers.",
                code="csv.separator",
            )


def read_labels(cells: Sequence[Any], classes: np.ndarray) -> np.ndarray:
    """Return label cells [n] in the type of a model's classes: texts, or numbers and booleans.

    >>> read_labels(["True", "False"], np.array([0, 1])).tolist()
    [1, 0]
    >>> read_labels([1, 2], np.array(["1", "2"])).tolist()
    ['1', '2']
    """
    texts = [str(cell) for cell in cells]
    if classes.dtype.kind in "UO":
        return np.array(texts)
    try:
        numbers = np.array([WORDS[t] if t in WORDS else float(t) for t in texts])
    except ValueError:
        return np.array(texts)  # whose labels the model does not know
    whole = numbers.astype(np.int64) if np.isfinite(numbers).all() else numbers
    return whole if np.array_equal(whole, numbers) else numbers


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
        check_separator(path, header)
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


def csv_bytes(header: Sequence[object], lines: Iterable[Sequence[Any]]) -> bytes:
    """Return a table as CSV; None is an empty cell.

    >>> csv_bytes(["a", "b"], [[1, None]])
    b'a,b\\n1,\\n'
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows([["" if cell is None else cell for cell in line] for line in lines])
    return text.getvalue().encode()


def parquet_bytes(header: Sequence[str], lines: Iterable[Sequence[Any]]) -> bytes:
    """Return a table as Parquet. Raises MissingLibraryError without pyarrow."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise MissingLibraryError.for_extra("parquet", "to write Parquet files") from None
    columns = [list(column) for column in zip(*lines, strict=True)]
    file = io.BytesIO()
    parquet.write_table(pyarrow.table(dict(zip(header, columns, strict=True))), file)
    return file.getvalue()
