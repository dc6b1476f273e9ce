"""The grid of the paper's tables: which cells there are, and which share a base model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from math import ceil

from timbermark.errors import InputError
from timbermark.experiments.datasets import NAMES
from timbermark.experiments.splits import SCENARIOS, Scenario
from timbermark.marking.strategies import SELECTIONS, Selection, Strategy

METHODS: tuple[Strategy, ...] = ("cluster", "outlier", "wrong", "confidence", "random")
RATIOS = (0.001, 0.01, 0.1)
METRICS = ("effectiveness", "adjusted_accuracy", "robustness", "adjusted_resilience")
"""Those the paper has tables of, in its order."""
TABLES: tuple[tuple[str, Scenario], ...] = tuple(
    (metric, scenario) for metric in METRICS for scenario in SCENARIOS
)
"""Metric and scenario of the tables 1 to 8."""

_QUICK_NAMES = ("image_segmentation", "wine_quality")
_QUICK_RATIOS = (0.01, 0.1)


@dataclass(frozen=True, slots=True, order=True)
class Group:
    """What shares a base model and its clusterings."""

    dataset: str
    candidates: Scenario
    seed: int


@dataclass(frozen=True, slots=True, order=True)
class Cell:
    """One cell of the tables, for one seed."""

    dataset: str
    candidates: Scenario
    seed: int
    method: Strategy
    ratio: float
    selection: Selection

    @property
    def group(self) -> Group:
        """Return the group of cells that share its base model."""
        return Group(self.dataset, self.candidates, self.seed)


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be reproduced. ``tables``: their numbers, from 1 to 8."""

    tables: tuple[int, ...]
    datasets: tuple[str, ...]
    ratios: tuple[float, ...]
    seeds: tuple[int, ...]

    @property
    def scenarios(self) -> tuple[Scenario, ...]:
        """Return the scenarios that the tables need."""
        needed = {TABLES[number - 1][1] for number in self.tables}
        return tuple(scenario for scenario in SCENARIOS if scenario in needed)

    @property
    def ways(self) -> tuple[tuple[Scenario, Strategy, Selection, float], ...]:
        """Return scenario, method, selection and ratio of every cell, in the tables' order."""
        return tuple(product(self.scenarios, METHODS, SELECTIONS, self.ratios))

    @property
    def cells(self) -> tuple[Cell, ...]:
        """Return all cells, seed by seed."""
        return tuple(
            Cell(dataset, scenario, seed, method, ratio, selection)
            for seed, dataset in product(self.seeds, self.datasets)
            for scenario, method, selection, ratio in self.ways
        )


def make_plan(
    table: int | None = None,
    datasets: Sequence[str] = (),
    seeds: int | None = None,
    quick: bool = False,
) -> Plan:
    """Return the plan of a run: one table or all; some data sets or all; that many seeds from 0.

    ``quick`` takes a part of the same cells: two data sets, two ratios and one seed, where nothing
    else is said. Raises InputError for an unknown table or data set, or a bad number.

    >>> len(make_plan(seeds=1).cells)
    360
    """
    if table is not None and not 1 <= table <= len(TABLES):
        raise InputError(f"There is no table {table}.", hint=f"use 1 to {len(TABLES)}.")
    for name in datasets:
        if name not in NAMES:
            raise InputError(
                f"There is no data set '{name}' in the paper.",
                hint=f"use one of {', '.join(NAMES)}.",
            )
    if seeds is not None and seeds < 1:
        raise InputError(f"seeds={seeds} must be at least 1.", hint="3 is a good start.")
    wanted = tuple(datasets) or (_QUICK_NAMES if quick else NAMES)
    return Plan(
        tables=tuple(range(1, len(TABLES) + 1)) if table is None else (table,),
        datasets=tuple(name for name in NAMES if name in wanted),
        ratios=_QUICK_RATIOS if quick else RATIOS,
        seeds=tuple(range(seeds or (1 if quick else 3))),
    )


def grouped(cells: Iterable[Cell]) -> dict[Group, list[Cell]]:
    """Return the cells of each group, both in the order in which they come."""
    groups: dict[Group, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(cell.group, []).append(cell)
    return groups


def trigger_counts(n_rows: int, ratio: float) -> tuple[int, int]:
    """Return n = |C| and k = |W| for ``n_rows`` training rows.

    >>> trigger_counts(8344, 0.01)
    (84, 42)
    """
    n = ceil(ratio * n_rows)
    return n, ceil(n / 2)
