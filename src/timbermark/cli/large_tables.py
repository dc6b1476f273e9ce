"""Tables in many Parquet files, or in one with very many rows: they are passed over, not read."""

from __future__ import annotations

import glob
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from timbermark.errors import InputError

if TYPE_CHECKING:
    from timbermark.libraries.contract import ForeignModel

LOCAL = "local"


@dataclass(frozen=True, slots=True)
class FileTable:
    """Parquet files: a pattern, a folder or one file. ``labels``: the label column, or None."""

    path: Path
    labels: str | None

    @property
    def X(self) -> str:  # noqa: N802 - as the rows of other tables
        """Return the rows as `timbermark.embed` takes them."""
        return str(self.path)


def open_files(
    model: ForeignModel, path: Path, label: str | None, scheduler: str
) -> FileTable | None:
    """Return a table that is passed over, None for one that is read into memory.

    Passed over are patterns, folders, every Parquet file where there is a cluster, and one with
    very many rows if the model takes numbers.
    """
    from timbermark.partitions.parquet import has_column

    if not _is_passed_over(model, path, scheduler):
        return None
    has_label = label is not None and has_column(str(path), label)
    return FileTable(path, label if has_label else None)


def is_pattern(path: Path) -> bool:
    """Return whether a path stands for several files.

    >>> is_pattern(Path("rows/*.parquet")), is_pattern(Path("rows.parquet"))
    (True, False)
    """
    return path.is_dir() or (glob.has_magic(str(path)) and not path.exists())


@contextmanager
def on_scheduler(scheduler: str, tables: Iterable[object]) -> Iterator[None]:
    """Run passes on --scheduler. Raises InputError if it is not there, or there is no table."""
    if scheduler == LOCAL:
        yield
        return
    if not any(isinstance(table, str) for table in tables):
        raise InputError(
            "--scheduler is for Parquet files, and there are none.",
            hint="leave it out, or give the rows as Parquet.",
        )
    from timbermark.partitions.running import connect

    with connect(scheduler):
        yield


def _is_passed_over(model: ForeignModel, path: Path, scheduler: str) -> bool:
    if is_pattern(path):
        return True
    from timbermark.files.tables import is_parquet, open_parquet

    if not is_parquet(path):
        return False
    if scheduler != LOCAL:
        return True
    if model.inside or model.takes_frames or model.text_columns != frozenset():
        return False
    from timbermark.marking.large_tables import LARGE

    with open_parquet(path) as (file, _):
        return bool(file.metadata.num_rows > LARGE)
