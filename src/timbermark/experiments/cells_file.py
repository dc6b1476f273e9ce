"""The file that every finished cell is added to at once, so that a killed run can go on.

A CSV file with one line per cell. A line is written in one piece and synced; one that was cut off
is thrown away when the file is opened again.
"""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from timbermark.errors import FileFormatError
from timbermark.experiments.grid import METHODS, Cell
from timbermark.experiments.measuring import MEASURES, Measured, Measures
from timbermark.experiments.splits import SCENARIOS
from timbermark.marking.strategies import SELECTIONS

_KEY = ("dataset", "candidates", "seed", "method", "ratio", "selection")
COLUMNS = (*_KEY, "n", "k", "n_wrong", *MEASURES, "seconds")
_HINT = "give another folder with --out, or delete the file."
_Name = TypeVar("_Name", bound=str)


class CellsFile:
    """A cells file that is open for more; use it with ``with``.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, CellsFile(Path(folder) / "x") as file:
    ...     len(file.finished)
    0
    """

    def __init__(self, path: Path) -> None:
        """Open ``path``, which is made if it is not there. Raises FileFormatError."""
        self._path = path
        self.finished: dict[Cell, Measured] = {}
        whole = self._read() if path.exists() else 0
        self._file = path.open("ab")
        self._file.truncate(whole)
        if whole == 0:
            self._append(COLUMNS)

    def add(self, measured: Measured) -> None:
        """Add a cell; on return it is on disk."""
        self._append(_to_fields(measured))
        self.finished[measured.cell] = measured

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _append(self, fields: Iterable[object]) -> None:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerow(fields)
        self._file.write(text.getvalue().encode())
        self._file.flush()
        os.fsync(self._file.fileno())

    def _read(self) -> int:
        """Take up all finished cells; gives the length of the file without a cut line."""
        content = self._path.read_bytes()
        whole = content.rfind(b"\n") + 1
        try:
            rows = list(csv.reader(content[:whole].decode().splitlines()))
        except (UnicodeDecodeError, csv.Error):
            rows = [[]]
        header = ",".join(COLUMNS)
        if not rows and header.startswith(content[whole:].decode("latin1")):
            return 0
        if not rows or tuple(rows[0]) != COLUMNS:
            raise FileFormatError(f"{self._path} does not hold cells of this version.", hint=_HINT)
        for number, row in enumerate(rows[1:], start=2):
            try:
                measured = _from_fields(row)
            except (ValueError, KeyError) as error:
                raise FileFormatError(
                    f"{self._path} cannot be read in line {number} ({error}).", hint=_HINT
                ) from None
            self.finished[measured.cell] = measured
        return whole


def _to_fields(measured: Measured) -> list[object]:
    numbers = [show_number(getattr(measured.measures, name)) for name in MEASURES]
    return [
        *(getattr(measured.cell, name) for name in _KEY),
        measured.n, measured.k, measured.n_wrong, *numbers, f"{measured.seconds:.3f}",
    ]  # fmt: skip


def _from_fields(fields: list[str]) -> Measured:
    if len(fields) != len(COLUMNS):
        raise ValueError(f"{len(fields)} cells, expected {len(COLUMNS)}")
    row = dict(zip(COLUMNS, fields, strict=True))
    cell = Cell(
        row["dataset"], _one_of(row["candidates"], SCENARIOS), int(row["seed"]),
        _one_of(row["method"], METHODS), float(row["ratio"]),
        _one_of(row["selection"], SELECTIONS),
    )  # fmt: skip
    measures = Measures(**{name: float(row[name] or "nan") for name in MEASURES})
    n, k, n_wrong = (int(row[name]) for name in ("n", "k", "n_wrong"))
    return Measured(cell, n, k, n_wrong, measures, float(row["seconds"]))


def _one_of(text: str, known: tuple[_Name, ...]) -> _Name:
    for name in known:
        if name == text:
            return name
    raise ValueError(f"'{text}' is not known")


def show_number(value: float) -> str:
    """Return the shortest text that gives the number back; nothing for NaN.

    >>> show_number(0.1), show_number(float("nan"))
    ('0.1', '')
    """
    return "" if math.isnan(value) else repr(float(value))
