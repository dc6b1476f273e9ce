"""Decoys: rows of the triggers' kind that carry no symbol, so that a server cannot tell triggers.

A trigger and its decoys are a family. A row in their middle, which is never asked, is the trigger
with a few values drawn anew; each decoy is that row with a few values drawn anew. Seen from the
middle all members of the family are made alike, so that none of them looks more like the trigger
than the others; and as few values differ, a model is about as sure of all of them.

New values come from the same column of other triggers, or of a table that the owner gives. Those
of triggers are moved towards a neighbour, in the same precision, where a column has many values:
copied, they would tell the rows that they were copied from. Everything follows from the secret of
the mark.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from timbermark.dtypes import AnyArray
from timbermark.errors import InputError
from timbermark.ownership.columns import Column
from timbermark.ownership.mark import Mark

_DOMAIN = b"timbermark/decoys/1"
_TRIES = 20
_SAMPLED = 20_000
"""Rows of a table in parts that values are taken from."""
_FEW_VALUES = 16
_MOST_DECIMALS = 8
_WHOLE = 2.0**64
# Share of the values that are drawn anew in each of the two steps, and at least how many of them.
# `./dev bench endpoint decoys` chose them: a forest tells triggers from decoys by their values no
# better than chance, and the model's own confidence hardly; it tells mixtures of two rows well.
_RENEWED = 0.06
_FEWEST_RENEWED = 2.0


def make_decoys(mark: Mark, each: int, table: Any = None) -> list[list[Any] | None]:
    """Return ``each`` decoys for every trigger: first one for each, then a second one, and so on.

    ``table``: rows [m, d] to take values from instead of the triggers, a matrix in the mark's order
    of features or a data frame with their names; of a table of Dask, and of Parquet files that are
    named, 20,000 rows are taken. Values are Python numbers, texts, or None if missing. All decoys
    are distinct, and none is a trigger; None stands for a decoy that could not be made because
    there are too few such rows.

    Raises InputError if the table has other columns than the mark.

    >>> from timbermark.ownership import OwnerKey
    >>> mark = Mark.make(
    ...     OwnerKey.generate(), owner="Ann", model_digest="0" * 64, classes=[0, 1],
    ...     triggers=[[0.5, "red"], [2.0, "blue"]], alphabets=[[0, 1]] * 2,
    ...     reference=[[0.9, 0.1]] * 2,
    ... )
    >>> sorted(row for row in make_decoys(mark, 3) if row)
    [[0.5, 'blue'], [2.0, 'red']]
    """
    if each <= 0:
        return []
    columns = mark.columns if table is None else _read_table(mark, table)
    sources = [_Source(column, moves=table is None) for column in columns]
    triggers = list_rows(mark.columns)
    taken = {tuple(row) for row in triggers}
    share = min(1.0, max(_RENEWED, _FEWEST_RENEWED / len(sources)))
    middles = [_renew(mark, b"m", i, row, sources, share) for i, row in enumerate(triggers)]
    decoys: list[list[Any] | None] = []
    for number in range(each * len(triggers)):
        found = None
        for attempt in range(_TRIES):
            middle = middles[number % len(triggers)]
            more = min(1.0, share * (1 + attempt))
            row = _renew(mark, b"d%d" % attempt, number, middle, sources, more)
            if tuple(row) not in taken:
                taken.add(tuple(row))
                found = row
                break
        decoys.append(found)
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


def sample_rows(table: Any, feature_names: Sequence[str] | None) -> Any:
    """Return some rows of a table in parts, float64 [m, d]; any other table as it is.

    ``feature_names``: the columns to take of files. Which rows they are does not depend on the
    parts. Raises InputError for a table that cannot be read.

    >>> sample_rows([[1.0, 2.0]], None)
    [[1.0, 2.0]]
    """
    if not _is_in_parts(table):
        return table
    from timbermark.partitions import open_parts, pick_rows

    return pick_rows(open_parts(table, None, feature_names, "rows for decoys"), _SAMPLED, seed=0)


def _is_in_parts(table: Any) -> bool:
    """Return whether rows are in files or of Dask, without importing Numba."""
    names = table if isinstance(table, list) else [table]
    if names and all(isinstance(name, str | os.PathLike) for name in names):
        return True
    dask = sys.modules.get("dask")
    return dask is not None and bool(dask.is_dask_collection(table))


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

    def draw(self, number: int, share: float) -> Any:
        """Return a value that ``number`` selects; ``share`` of the way to the next one."""
        value = self.values[number % len(self.values)]
        if self.grid is None or value is None:
            return value
        at = int(np.searchsorted(self.grid, value))
        neighbour = self.grid[at + 1 if at + 1 < len(self.grid) else at - 1]
        moved = value + share * (float(neighbour) - value)
        if self.decimals is not None:
            return round(moved, self.decimals) + 0.0
        return float(np.float32(moved)) if self.single else float(moved)


def _renew(
    mark: Mark, kind: bytes, number: int, row: list[Any], sources: list[_Source], share: float
) -> list[Any]:
    """Return a row in which a share of the values is drawn anew."""
    start = _DOMAIN + mark.secret + mark.digest + kind + number.to_bytes(8)
    draws = np.frombuffer(hashlib.shake_256(start).digest(24 * len(sources)), "<u8")
    return [
        source.draw(which, along / _WHOLE) if chance / _WHOLE < share else value
        for value, source, (chance, which, along) in zip(
            row, sources, draws.reshape(-1, 3).tolist(), strict=True
        )
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
    table = sample_rows(table, mark.feature_names)
    cells = np.asarray(table) if hasattr(table, "__array__") else np.array(table, dtype=object)
    if cells.ndim != 2 or cells.shape[1] != mark.n_features or not len(cells):
        raise InputError(
            f"The table for decoys has the shape {cells.shape}, the mark has {mark.n_features} "
            "features.",
            hint="give rows with the features of the mark, in its order.",
        )
    # The model ignores columns that the mark has no value of: decoys have none, either.
    return [
        own if _is_missing(own) else _read_column(cells[:, j], isinstance(own, tuple))
        for j, own in enumerate(mark.columns)
    ]


def _is_missing(column: Column) -> bool:
    return all(value is None or value != value for value in column)


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
