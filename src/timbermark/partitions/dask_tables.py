"""Data frames and arrays of Dask as tables in parts."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from timbermark.errors import InputError
from timbermark.partitions.parts import BLOCK_ROWS, Block, Parts


def is_dask(table: Any) -> bool:
    """Return whether an object is a collection of Dask, which is not imported to tell."""
    dask = sys.modules.get("dask")
    return dask is not None and bool(dask.is_dask_collection(table))


def open_collection(X: Any, y: Any, what: str) -> Parts:
    """Return a data frame or an array of Dask, with labels of Dask or in memory, in parts.

    Raises InputError if it has not two dimensions, or if labels do not go with it.
    """
    if len(getattr(X, "shape", ())) != 2:
        raise InputError(f"The {what} are no table of Dask.", hint="give a data frame or a matrix.")
    if not hasattr(X, "columns") and len(X.chunks[1]) > 1:
        X = X.rechunk({1: -1})
    pieces = np.ravel(np.asarray(X.to_delayed(), dtype=object)).tolist()
    lengths = _lengths(X, what)
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(int).tolist()
    labels: list[Any]
    if y is None:
        labels = [None] * len(pieces)
    elif is_dask(y):
        labels = _label_pieces(X, y, len(pieces), what)
    else:
        given = np.asarray(y)
        if given.shape != (starts[-1],):
            raise InputError(
                f"Labels of the shape {given.shape} do not go with {starts[-1]} {what}.",
                hint="give one label per row.",
            )
        labels = [given[a:b] for a, b in pairwise(starts)]
    parts = tuple(
        _DaskPart(f"partition {i} of the {what}", starts[i], lengths[i], (piece, own))
        for i, (piece, own) in enumerate(zip(pieces, labels, strict=True))
    )
    return Parts(parts, in_memory=False, labelled=y is not None)


@dataclass(frozen=True, slots=True, eq=False)
class _DaskPart:
    """One partition; its pieces are the rows and the labels."""

    name: str
    start: int
    n_rows: int
    pieces: tuple[Any, ...] = ()

    def read(self, *pieces: Any) -> Iterator[Block]:
        """Yield slices of what Dask has computed."""
        rows, labels = pieces
        if len(rows) != self.n_rows:
            raise InputError(
                f"There were {self.n_rows} rows before, and now there are {len(rows)}.",
                hint="give tables that are the same each time they are computed, or persist them.",
            )
        if labels is not None and len(labels) != len(rows):
            raise InputError(
                f"There are {len(rows)} rows and {len(labels)} labels.",
                hint="give rows and labels in the same partitions.",
            )
        for first in range(0, len(rows), BLOCK_ROWS):
            last = first + BLOCK_ROWS
            own = None if labels is None else np.asarray(labels[first:last])
            block = rows.iloc[first:last] if hasattr(rows, "iloc") else rows[first:last]
            yield Block(block, own, self.start + first)


def _lengths(X: Any, what: str) -> list[int]:
    if not hasattr(X, "columns"):
        known = [float(size) for size in X.chunks[0]]
        if not np.isnan(known).any():
            return [int(size) for size in known]
        X = X.to_dask_dataframe()
    return [int(n) for n in X.map_partitions(len, meta=(None, "i8")).compute()]


def _label_pieces(X: Any, y: Any, n: int, what: str) -> list[Any]:
    if len(getattr(y, "shape", ())) == 2:
        y = y[:, 0] if not hasattr(y, "columns") else y[y.columns[0]]
    arrays = not hasattr(X, "columns") and hasattr(y, "chunks")
    if arrays and y.chunks[0] != X.chunks[0] and not np.isnan([*X.chunks[0], *y.chunks[0]]).any():
        if y.shape[0] != X.shape[0]:
            raise InputError(
                f"{y.shape[0]} labels do not go with {X.shape[0]} {what}.",
                hint="give one label per row.",
            )
        y = y.rechunk((X.chunks[0],))
    pieces: list[Any] = np.ravel(np.asarray(y.to_delayed(), dtype=object)).tolist()
    if len(pieces) != n:
        raise InputError(
            f"The labels are in {len(pieces)} partitions, and the {what} in {n}.",
            hint="give both in the same partitions.",
        )
    return pieces
