"""Which tables are in parts, and how they are opened."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from timbermark.errors import InputError, MissingLibraryError
from timbermark.partitions.dask_tables import is_dask, open_collection
from timbermark.partitions.parquet import open_files
from timbermark.partitions.parts import Parts


def is_in_parts(table: Any) -> bool:
    """Return whether a table is one of Dask, or the names of Parquet files.

    >>> is_in_parts("rows/*.parquet"), is_in_parts([[1.0, 2.0]])
    (True, False)
    """
    if isinstance(table, Parts | str | os.PathLike):
        return True
    listed = isinstance(table, list) and len(table) > 0
    return is_dask(table) or (listed and all(isinstance(t, str | os.PathLike) for t in table))


def open_parts(table: Any, y: Any, features: Sequence[str] | None, what: str) -> Parts:
    """Return a table in parts.

    ``y``: its labels, or the name of the label column of Parquet files. ``features``: the names of
    the columns that a model takes, if it has any. ``what``: what the rows are called in messages.

    Raises InputError for tables that cannot be used, MissingLibraryError without Dask.
    """
    if isinstance(table, Parts):
        return table
    need_dask("to read tables that do not fit in memory")
    if is_dask(table):
        return open_collection(table, y, features, what)
    if y is not None and not isinstance(y, str):
        raise InputError(
            f"The labels of {what} in files are not a column of these.",
            hint="give the name of their label column.",
        )
    return open_files(table, features, y)[0]


def need_dask(purpose: str) -> None:
    """Raise MissingLibraryError where Dask is not installed."""
    try:
        import dask  # noqa: F401
        import distributed  # noqa: F401
    except ImportError:
        raise MissingLibraryError.for_extra("dask", purpose) from None
