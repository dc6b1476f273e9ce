"""From cells to the numbers of the tables: means over seeds, averages over data sets."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from timbermark.experiments.cells_file import show_number
from timbermark.experiments.grid import Cell, Plan
from timbermark.experiments.measuring import MEASURES, NAN, Measured
from timbermark.experiments.published import Place

AVERAGE = "average"
COLUMNS = (
    "metric", "candidates", "method", "selection", "dataset", "ratio", "value", "sd", "seeds",
)  # fmt: skip


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
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for place, value in results.items():
        writer.writerow(
            [
                place.metric, place.candidates, place.method, place.selection, place.dataset,
                place.ratio, show_number(value.mean), show_number(value.sd), value.seeds,
            ]
        )  # fmt: skip
    return text.getvalue()
