"""The eight tables in the paper's layout: our number, the paper's and the difference in a cell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from timbermark.experiments.datasets import NAMES, TITLES
from timbermark.experiments.grid import METHODS, TABLES, Cell, Plan
from timbermark.experiments.measuring import Measured
from timbermark.experiments.published import Place, published
from timbermark.experiments.results import AVERAGE, Results, Value
from timbermark.experiments.summary import is_low
from timbermark.marking.strategies import SELECTIONS

DASH = "—"
METHOD_TITLES = {
    "cluster": "Cluster",
    "outlier": "Outlier",
    "wrong": "Wrong",
    "confidence": "Conf.",
    "random": "Random",
}
SELECTION_TITLES = {"confidence": "Conf", "distance": "Dist"}
METRIC_TITLES = {
    "effectiveness": "Watermarking effectiveness",
    "adjusted_accuracy": "Adjusted model accuracy",
    "robustness": "Robustness",
    "adjusted_resilience": "Adjusted resilience",
}
SCENARIO_TITLES = {"train": "D_cand = D_train", "holdout": "D_cand ≠ D_train"}


@dataclass(frozen=True, slots=True)
class TableCell:
    """``ours`` and ``paper`` are None for a dash. ``is_best``: the highest of its column."""

    ours: Value | None
    paper: float | None
    is_low: bool
    is_best: bool

    @property
    def number_text(self) -> str:
        """Return the text of our number."""
        return DASH if self.ours is None else f"{self.ours.mean:.3f}"

    @property
    def spread_text(self) -> str:
        """Return the text of its standard deviation over seeds, where there is one."""
        return "" if self.ours is None else show_spread(self.ours.sd)

    @property
    def paper_text(self) -> str:
        """Return the text of the paper's number."""
        return DASH if self.paper is None else f"{self.paper:.3f}"

    @property
    def difference_text(self) -> str:
        """Return the text of ours minus the paper's, where both are."""
        if self.ours is None or self.paper is None:
            return ""
        return show_difference(self.ours.mean - self.paper)


@dataclass(frozen=True, slots=True)
class Table:
    """One of the eight. ``rows``: a method with its cells, data set by data set, ratio by ratio."""

    number: int
    title: str
    datasets: tuple[str, ...]
    ratios: tuple[float, ...]
    rows: tuple[tuple[str, tuple[TableCell, ...]], ...]

    @property
    def titles(self) -> list[str]:
        """Return the data sets as the paper calls them."""
        return [TITLES[name] for name in self.datasets]


def show_spread(sd: float) -> str:
    """Return the text of the standard deviation behind a number, or nothing.

    >>> show_spread(0.0104), show_spread(float("nan"))
    (' ± 0.010', '')
    """
    return "" if np.isnan(sd) else f" ± {sd:.3f}"


def show_difference(difference: float) -> str:
    """Return a difference with its sign; a true minus.

    >>> show_difference(-0.01), show_difference(-0.0001)
    ('−0.010', '+0.000')
    """
    shown = f"{abs(difference):.3f}"
    return ("−" if difference < 0 and float(shown) > 0 else "+") + shown


def method_title(method: str, selection: str) -> str:
    """Return a method's name as in the first column of the paper's tables.

    >>> method_title("confidence", "distance")
    'Conf. (Dist)'
    """
    return f"{METHOD_TITLES[method]} ({SELECTION_TITLES[selection]})"


def make_tables(plan: Plan, results: Results) -> list[Table]:
    """Return the tables of a plan."""
    return [_make_table(number, plan, results) for number in plan.tables]


def _make_table(number: int, plan: Plan, results: Results) -> Table:
    metric, scenario = TABLES[number - 1]
    datasets = (*plan.datasets, AVERAGE)
    best = {}
    for dataset in datasets:
        for ratio in plan.ratios:
            column = [
                results[Place(metric, scenario, method, selection, dataset, ratio)].mean
                for method in METHODS
                for selection in SELECTIONS
            ]
            best[dataset, ratio] = max((x for x in column if not np.isnan(x)), default=np.nan)
    rows = []
    for method in METHODS:
        for selection in SELECTIONS:
            cells = []
            for dataset in datasets:
                for ratio in plan.ratios:
                    place = Place(metric, scenario, method, selection, dataset, ratio)
                    cells.append(_make_cell(place, plan, results[place], best[dataset, ratio]))
            rows.append((method_title(method, selection), tuple(cells)))
    title = f"{METRIC_TITLES[metric]}, {SCENARIO_TITLES[scenario]}"
    return Table(number, title, datasets, plan.ratios, tuple(rows))


def _make_cell(place: Place, plan: Plan, ours: Value, best: float) -> TableCell:
    paper = _paper_number(place, plan)
    if ours.is_dash:
        return TableCell(None, paper, is_low=False, is_best=False)
    low = paper is not None and is_low(place.metric, ours.mean, paper, ours.k)
    return TableCell(ours, paper, low, round(ours.mean, 3) == round(best, 3))


def _paper_number(place: Place, plan: Plan) -> float | None:
    """Return the number as printed; for some data sets, the average of what is printed for them."""
    numbers = published()
    if place.dataset != AVERAGE or plan.datasets == NAMES:
        return numbers[place]
    some = [
        numbers[
            Place(place.metric, place.candidates, place.method, place.selection, name, place.ratio)
        ]
        for name in plan.datasets
    ]
    there = [number for number in some if number is not None]
    return float(np.mean(there)) if there else None


@dataclass(frozen=True, slots=True)
class WrongCount:
    """How many wrong predictions a pool has, for each seed, against the candidates wanted."""

    dataset: str
    candidates: str
    n_wrong: tuple[int, ...]
    wanted: tuple[int, ...]


def count_wrong(plan: Plan, finished: Mapping[Cell, Measured]) -> list[WrongCount]:
    """Count what Wrong Prediction Flip has to choose from; a dash where that is less than n."""
    found = []
    for scenario in plan.scenarios:
        for dataset in plan.datasets:
            cells = [
                [
                    finished.get(Cell(dataset, scenario, seed, "wrong", ratio, "confidence"))
                    for ratio in plan.ratios
                ]
                for seed in plan.seeds
            ]
            there = [row[0].n_wrong for row in cells if row[0] is not None]
            wanted = [cell.n for cell in cells[0] if cell is not None]
            found.append(WrongCount(dataset, scenario, tuple(there), tuple(wanted)))
    return found


def to_markdown(table: Table) -> str:
    """Return a table as Markdown; three lines in a cell: ours, the paper's, the difference."""
    groups = [title for title in table.titles for _ in table.ratios]
    header = [
        f"{group}<br>{ratio:g}"
        for group, ratio in zip(groups, table.ratios * len(table.datasets), strict=True)
    ]
    lines = [
        f"## Table {table.number}: {table.title}",
        "",
        "| Method | " + " | ".join(header) + " |",
        "|" + "---|" * (len(header) + 1),
    ]
    for name, cells in table.rows:
        lines.append(f"| {name} | " + " | ".join(map(_markdown_cell, cells)) + " |")
    return "\n".join(lines) + "\n"


def _markdown_cell(cell: TableCell) -> str:
    ours = f"**{cell.number_text}**" if cell.is_best else cell.number_text
    if cell.ours is None and cell.paper is None:
        return DASH
    low = " ▼" if cell.is_low else ""
    return f"{ours}{cell.spread_text}<br>{cell.paper_text}<br>{cell.difference_text}{low}"
