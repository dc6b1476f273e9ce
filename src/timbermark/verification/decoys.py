"""Decoys: rows of the triggers' kind that carry no symbol, so that a server cannot tell triggers.

A decoy takes each value from one of two rows. Made from a table that the owner gives, all its
values occur there, as those of a mixed trigger do. Made from the triggers themselves, values of
columns with many values are moved towards a neighbour, in the same precision, or else every value
of a decoy would stand in a trigger too. Everything follows from the secret of the mark.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from timbermark.dtypes import AnyArray
from timbermark.errors import InputError
from timbermark.ownership.columns import Column
from timbermark.ownership.mark import Mark

_DOMAIN = b"timbermark/decoys/1"
_TRIES = 20
_FEW_VALUES = 16
_MOST_DECIMALS = 8
_WHOLE = 2.0**64


def make_decoys(mark: Mark, n: int, table: Any = None) -> list[list[Any]]:
    """Return up to ``n`` rows of the triggers' kind, none of them a trigger, all distinct.

    ``table``: rows [m, d] to mix instead of the triggers, a matrix in the mark's order of features
    or a data frame with their names. Values are Python numbers, texts, or None if missing. There
    are fewer than ``n`` where so few rows differ from each other.

    Raises InputError if the table has other columns than the mark.

    >>> from timbermark.ownership import OwnerKey
    >>> mark = Mark.make(
    ...     OwnerKey.generate(), owner="Ann", model_digest="0" * 64, classes=[0, 1],
    ...     triggers=[[0.5, "red"], [2.0, "blue"]], alphabets=[[0, 1]] * 2,
    ...     reference=[[0.9, 0.1]] * 2,
    ... )
    >>> sorted(make_decoys(mark, 9)) == [[0.5, "blue"], [2.0, "red"]]
    True
    """
    if n <= 0:
        return []
    columns = mark.columns if table is None else _read_table(mark, table)
    sources = [_Source(column, moves=table is None) for column in columns]
    taken = {_key(row) for row in list_rows(mark.columns)}
    decoys: list[list[Any]] = []
    for number in range(n):
        for attempt in range(_TRIES):
            row = _mix(mark, sources, number, attempt)
            if _key(row) not in taken:
                taken.add(_key(row))
                decoys.append(row)
                break
        else:
            break
    return decoys


def list_rows(columns: Sequence[Column]) -> list[list[Any]]:
    """Return columns as rows of Python values, None for a missing one.

    >>> list_rows([np.array([1.0, np.nan]), ("a", None)])
    [[1.0, 'a'], [None, None]]
    """
    plain = [
        [None if x is None or x != x else x for x in column]
        if isinstance(column, tuple)
        else [None if x != x else x for x in column.tolist()]
        for column in columns
    ]
    return [list(row) for row in zip(*plain, strict=True)]


class _Source:
    """Where the values of one column come from."""

    def __init__(self, column: Column, moves: bool) -> None:
        self.values = [row[0] for row in list_rows([column])]
        self.grid: AnyArray | None = None
        if not moves or isinstance(column, tuple):
            return
        distinct = np.unique(column[np.isfinite(column)])
        # Few values are codes or grades, and nothing lies between two of them.
        if len(distinct) > max(_FEW_VALUES, len(column) // 4):
            self.grid, self.decimals = distinct, _decimals(distinct)
            self.single = bool((distinct.astype(np.float32) == distinct).all())

    def draw(self, place: int, share: float) -> Any:
        value = self.values[place]
        if self.grid is None or value is None:
            return value
        at = int(np.searchsorted(self.grid, value))
        neighbour = self.grid[at + 1 if at + 1 < len(self.grid) else at - 1]
        moved = value + share * (float(neighbour) - value)
        if self.decimals is not None:
            return round(moved, self.decimals) + 0.0
        return float(np.float32(moved)) if self.single else float(moved)


def _mix(mark: Mark, sources: list[_Source], number: int, attempt: int) -> list[Any]:
    n_rows = len(sources[0].values)
    start = _DOMAIN + mark.secret + mark.digest + number.to_bytes(8) + attempt.to_bytes(8)
    draws = np.frombuffer(hashlib.shake_256(start).digest(16 + 16 * len(sources)), "<u8").tolist()
    first = draws[0] % n_rows
    second = (first + 1 + draws[1] % max(1, n_rows - 1)) % n_rows
    return [
        source.draw(second if draws[2 + 2 * j] & 1 else first, draws[3 + 2 * j] / _WHOLE)
        for j, source in enumerate(sources)
    ]


def _decimals(values: AnyArray) -> int | None:
    for decimals in range(_MOST_DECIMALS + 1):
        if np.array_equal(np.round(values, decimals), values):
            return decimals
    return None


def _read_table(mark: Mark, table: Any) -> list[Column]:
    names = getattr(table, "columns", None)
    if names is not None and mark.feature_names is not None:
        missing = [name for name in mark.feature_names if name not in set(names)]
        if missing:
            raise InputError(
                f"The table for decoys lacks the feature '{missing[0]}'.",
                hint="give rows with all features of the mark.",
            )
        table = table[list(mark.feature_names)]
    cells = np.asarray(table) if hasattr(table, "__array__") else np.array(table, dtype=object)
    if cells.ndim != 2 or cells.shape[1] != mark.n_features or not len(cells):
        raise InputError(
            f"The table for decoys has the shape {cells.shape}, the mark has {mark.n_features} "
            "features.",
            hint="give rows with the features of the mark, in its order.",
        )
    return [_read_column(cells[:, j], isinstance(own, tuple)) for j, own in enumerate(mark.columns)]


def _read_column(cells: AnyArray, texts: bool) -> Column:
    if texts:
        return tuple(None if x is None or x != x else str(x) for x in cells.tolist())
    try:
        column = cells.astype(np.float64)
    except (TypeError, ValueError):
        raise InputError(
            "The table for decoys holds texts where the mark has numbers.",
            hint="give the codes that the model was trained on.",
        ) from None
    column[~np.isfinite(column)] = np.nan
    return np.asarray(column)


def _key(row: list[Any]) -> tuple[Any, ...]:
    return tuple(row)
