"""From cells to the numbers of the tables: means over seeds, averages over data sets.

What the paper printed stands beside them. Every finished cell is added to a CSV file at once, so
that a killed run can go on. A line is written in one piece and synced; one that was cut off is
thrown away when the file is opened again.
"""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Self, TypeVar

import numpy as np

from timbermark.errors import FileFormatError
from timbermark.experiments.datasets import SCENARIOS
from timbermark.experiments.measuring import MEASURES, METHODS, NAN, Cell, Measured, Measures, Plan
from timbermark.files import will_write
from timbermark.files.tables import csv_bytes
from timbermark.marking.strategies import SELECTIONS

_KEY = ("dataset", "candidates", "seed", "method", "ratio", "selection")
CELL_COLUMNS = (*_KEY, "n", "k", "n_wrong", *MEASURES, "seconds")
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
        will_write(path)
        self._file = path.open("ab")
        self._file.truncate(whole)
        if whole == 0:
            self._append(CELL_COLUMNS)

    def add(self, measured: Measured) -> None:
        """Add a cell; on return it is on disk."""
        self._append(_to_fields(measured))
        self.finished[measured.cell] = measured

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _append(self, cells: Sequence[object]) -> None:
        self._file.write(csv_bytes(cells, ()))
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
        header = ",".join(CELL_COLUMNS)
        if not rows and header.startswith(content[whole:].decode("latin1")):
            return 0
        if not rows or tuple(rows[0]) != CELL_COLUMNS:
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
    if len(fields) != len(CELL_COLUMNS):
        raise ValueError(f"{len(fields)} cells, expected {len(CELL_COLUMNS)}")
    row = dict(zip(CELL_COLUMNS, fields, strict=True))
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


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Where in the tables a number stands. ``dataset`` may be ``average``."""

    metric: str
    candidates: str
    method: str
    selection: str
    dataset: str
    ratio: float


@cache
def published() -> dict[Place, float | None]:
    """Return the numbers of the paper's eight tables; None where it prints a dash.

    >>> published()[Place("robustness", "holdout", "wrong", "distance", "letter", 0.01)]
    0.95
    """
    text = (resources.files(__package__) / "published.csv").read_text(encoding="ascii")
    rows = csv.reader(text.splitlines())
    header = next(rows)
    found: dict[Place, float | None] = {}
    for row in rows:
        for title, value in zip(header[4:], row[4:], strict=True):
            dataset, _, ratio = title.partition(":")
            place = Place(row[0], row[1], row[2], row[3], dataset, float(ratio))
            found[place] = float(value) if value else None
    return found


AVERAGE = "average"
COLUMNS = (*(field.name for field in fields(Place)), "value", "sd", "seeds")


@dataclass(frozen=True, slots=True)
class Value:
    """A number of the tables: mean and sample standard deviation over ``seeds`` seeds.

    ``mean`` is NaN where no seed has a value (a dash), ``sd`` where fewer than two have. ``k``:
    triggers of a data set, or their mean over the data sets of an average.
    """

    mean: float
    sd: float
    seeds: int
    k: float

    @property
    def is_dash(self) -> bool:
        """Return whether there is no number."""
        return self.seeds == 0


Results = dict[Place, Value]


def collect(plan: Plan, finished: Mapping[Cell, Measured]) -> Results:
    """Return the numbers of all finished cells of a plan, for every measure.

    An average is that of the means of the data sets that have one, as in the paper; its standard
    deviation is that of the averages of the single seeds.
    """
    found: Results = {}
    for metric in MEASURES:
        for scenario, method, selection, ratio in plan.ways:
            cells = {
                name: [
                    finished.get(Cell(name, scenario, seed, method, ratio, selection))
                    for seed in plan.seeds
                ]
                for name in plan.datasets
            }
            for name, value in _values(metric, cells).items():
                found[Place(metric, scenario, method, selection, name, ratio)] = value
    return found


def _values(metric: str, cells: Mapping[str, list[Measured | None]]) -> dict[str, Value]:
    table = np.array(
        [[NAN if c is None else getattr(c.measures, metric) for c in row] for row in cells.values()]
    )
    found = {}
    for dataset, row in zip(cells, table, strict=True):
        counts = [c.k for c in cells[dataset] if c is not None]
        found[dataset] = _over_seeds(row, float(counts[0]) if counts else NAN)
    single = np.array([_mean(column) for column in table.T])
    spread = _over_seeds(single, _mean(v.k for v in found.values() if not v.is_dash))
    mean = _mean(value.mean for value in found.values())
    found[AVERAGE] = Value(mean, spread.sd, spread.seeds, spread.k)
    return found


def _over_seeds(numbers: np.ndarray, k: float) -> Value:
    there = numbers[~np.isnan(numbers)]
    sd = float(np.std(there, ddof=1)) if len(there) > 1 else NAN
    return Value(_mean(there), sd, len(there), k)


def _mean(numbers: Iterable[float]) -> float:
    there = [number for number in numbers if not np.isnan(number)]
    return float(np.mean(there)) if there else NAN


def to_csv(results: Results) -> str:
    """Return the results as CSV with the columns of the paper's numbers, ``sd`` and ``seeds``.

    An empty value is a dash.
    """
    lines = (
        [*astuple(place), show_number(value.mean), show_number(value.sd), value.seeds]
        for place, value in results.items()
    )
    return csv_bytes(COLUMNS, lines).decode()
