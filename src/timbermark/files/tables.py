"""Tables of other programs: CSV, also compressed, and Parquet; and what labels in them mean."""

from __future__ import annotations

import csv
import gzip
import io
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from timbermark.errors import InputError, MissingLibraryError

_GZIP, _PARQUET = b"\x1f\x8b", b"PAR1"
WORDS = {"True": 1.0, "true": 1.0, "TRUE": 1.0, "False": 0.0, "false": 0.0, "FALSE": 0.0}
"""Truth values as cells."""
_LONGEST_LINE = 1 << 23
_PANDAS_INDEX = re.compile(r"__index_level_\d+__")


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
    except UnicodeDecodeError:
        raise InputError(f"{path} is not text.", hint="use a CSV or Parquet file.") from None
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
