"""A table in parts: what each part is called, where it begins, and how its rows are read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

BLOCK_ROWS = 65_536
"""So many rows are looked at together: what a worker needs does not grow with its partition."""
_MEMORY_ROWS = 131_072


class Block(NamedTuple):
    """Rows of a part as they were given, their labels or None, and the number of the first one.

    Rows are numbered through the whole table, whatever its parts are.
    """

    rows: Any
    labels: Any
    start: int


class Part(Protocol):
    """Some rows of a table, one after the other."""

    @property
    def name(self) -> str:
        """Return the name of the part in messages."""

    @property
    def start(self) -> int:
        """Return the number of the part's first row in the table."""

    @property
    def n_rows(self) -> int:
        """Return the number of rows of the part."""

    @property
    def pieces(self) -> tuple[Any, ...]:
        """Return the delayed Dask objects to compute before the part can be read."""

    def read(self, *pieces: Any) -> Iterator[Block]:
        """Yield the part's blocks. Raises InputError for rows that cannot be read."""


@dataclass(frozen=True, slots=True, eq=False)
class Parts:
    """A table in parts. ``in_memory``: its rows are here, and no scheduler is needed.

    ``labelled``: whether blocks have labels.
    """

    parts: tuple[Part, ...]
    in_memory: bool
    labelled: bool

    @property
    def n_rows(self) -> int:
        """Return the number of rows of all parts."""
        return sum(part.n_rows for part in self.parts)

    @property
    def n_empty(self) -> int:
        """Return the number of parts without rows."""
        return sum(part.n_rows == 0 for part in self.parts)

    def __repr__(self) -> str:
        return f"Parts({self.n_rows} rows in {len(self.parts)} parts)"


@dataclass(frozen=True, slots=True, eq=False)
class _MemoryPart:
    """A range of rows that are in memory."""

    rows: np.ndarray
    labels: np.ndarray | None
    start: int
    n_rows: int
    name = "rows"
    pieces: tuple[Any, ...] = ()

    def read(self, *pieces: Any) -> Iterator[Block]:
        """Yield slices."""
        for first in range(self.start, self.start + self.n_rows, BLOCK_ROWS):
            last = min(first + BLOCK_ROWS, self.start + self.n_rows)
            labels = None if self.labels is None else self.labels[first:last]
            yield Block(self.rows[first:last], labels, first)


def memory_parts(rows: np.ndarray, labels: np.ndarray | None) -> Parts:
    """Return rows [n, d] and labels [n] that are in memory as a table in parts.

    >>> memory_parts(np.zeros((300_000, 2)), None)
    Parts(300000 rows in 3 parts)
    """
    starts = range(0, len(rows), _MEMORY_ROWS)
    parts = (
        _MemoryPart(rows, labels, start, min(_MEMORY_ROWS, len(rows) - start)) for start in starts
    )
    return Parts(tuple(parts), in_memory=True, labelled=labels is not None)
