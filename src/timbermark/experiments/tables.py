"""The eight tables in the paper's layout: our number, the paper's and the difference in a cell.

Also: how our numbers compare with the paper's, against the bounds that a reproduction must keep,
and which of our model's errors other libraries make, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from timbermark.estimator import TimberClassifier
from timbermark.experiments.datasets import NAMES, TITLES, Split
from timbermark.experiments.measuring import METHODS, METRICS, NAN, TABLES, Cell, Measured, Plan
from timbermark.experiments.results import AVERAGE, Place, Results, Value, published
from timbermark.marking.strategies import SELECTIONS

BOUNDS = {
    "effectiveness": 0.02,
    "adjusted_accuracy": 0.02,
    "robustness": 0.03,
    "adjusted_resilience": 0.05,
}
"""How far below the paper's number ours may be."""
_FEW, _FEW_BOUND = 10, 0.05
"""With fewer triggers than these, effectiveness comes in steps of a tenth or more."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """An average over the data sets for which both have a number; ``k``: the mean of triggers."""

    place: Place
    ours: float
    paper: float
    k: float
    datasets: int

    @property
    def is_low(self) -> bool:
        """Return whether ours is further below than it may be."""
        return is_low(self.place.metric, self.ours, self.paper, self.k)


@dataclass(frozen=True, slots=True)
class Overall:
    """All cells of one metric and scenario. ``low``: how many averages are too low."""

    metric: str
    candidates: str
    ours: float
    paper: float
    cells: int
    averages: int
    low: int

    @property
    def is_higher(self) -> bool:
        """Return whether ours is the higher on average."""
        return self.ours >= self.paper


def is_low(metric: str, ours: float, paper: float, k: float) -> bool:
    """Return whether a number of ours is further below the paper's than k triggers explain.

    >>> is_low("effectiveness", 0.96, 1.0, k=40), is_low("effectiveness", 0.96, 1.0, k=4)
    (True, False)
    """
    bound = BOUNDS[metric]
    if metric == "effectiveness" and k < _FEW:
        bound = _FEW_BOUND
    # The paper prints three digits, so half of the last one is no difference.
    return bool(ours < paper - bound - 0.0005)


def compare(plan: Plan, results: Results) -> list[Comparison]:
    """Return the averages over data sets, by metric, scenario, method, selection and ratio.

    Only data sets count for which both we and the paper have a number: Wrong Prediction Flip
    exists for some only, and not for the same.
    """
    found = []
    for metric, (scenario, method, selection, ratio) in product(METRICS, plan.ways):
        place = Place(metric, scenario, method, selection, AVERAGE, ratio)
        pairs = _pairs([place], plan.datasets, results)
        found.append(Comparison(place, *_means(pairs), len(pairs)))
    return found


def overall(plan: Plan, results: Results) -> list[Overall]:
    """Return one line for each metric and scenario."""
    averages = compare(plan, results)
    found = []
    for metric, scenario in product(METRICS, plan.scenarios):
        some = [c for c in averages if (c.place.metric, c.place.candidates) == (metric, scenario)]
        pairs = _pairs([c.place for c in some], plan.datasets, results)
        ours, paper, _ = _means(pairs)
        there, low = sum(c.datasets > 0 for c in some), sum(c.is_low for c in some)
        found.append(Overall(metric, scenario, ours, paper, len(pairs), there, low))
    return found


def _pairs(
    places: Iterable[Place], datasets: Iterable[str], results: Results
) -> list[tuple[float, float, float]]:
    """Return ours, the paper's and k, for every data set where both have a number."""
    found = []
    for average in places:
        for dataset in datasets:
            place = replace(average, dataset=dataset)
            ours, paper = results.get(place), published().get(place)
            if ours is not None and not ours.is_dash and paper is not None:
                found.append((ours.mean, paper, ours.k))
    return found


def _means(pairs: list[tuple[float, float, float]]) -> tuple[float, float, float]:
    if not pairs:
        return NAN, NAN, NAN
    ours, paper, k = np.mean(pairs, axis=0)
    return float(ours), float(paper), float(k)


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
    """Our number, the paper's and the difference as texts; ``is_best``: ours is the highest."""

    number_text: str
    spread_text: str
    paper_text: str
    difference_text: str
    is_low: bool
    is_best: bool

    @property
    def is_dash(self) -> bool:
        """Return whether neither we nor the paper have a number."""
        return self.number_text == self.paper_text == DASH


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


def show_number(value: float) -> str:
    """Return the text of a number; a dash for NaN.

    >>> show_number(0.5), show_number(float("nan"))
    ('0.500', '—')
    """
    return DASH if np.isnan(value) else f"{value:.3f}"


def show_difference(ours: float, paper: float) -> str:
    """Return a difference with its sign, a true minus; nothing if a number is NaN.

    >>> show_difference(0.5, 0.51), show_difference(0.5, 0.5001)
    ('−0.010', '+0.000')
    """
    difference = ours - paper
    if np.isnan(difference):
        return ""
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
    ways = list(product(METHODS, SELECTIONS))
    places = [
        [Place(metric, scenario, *way, *column) for column in product(datasets, plan.ratios)]
        for way in ways
    ]
    means = np.array([[results[place].mean for place in row] for row in places])
    best = np.where(np.isnan(means), -np.inf, means).max(axis=0)
    rows = []
    for way, row in zip(ways, places, strict=True):
        cells = (
            _make_cell(place, plan, results[place], highest)
            for place, highest in zip(row, best.tolist(), strict=True)
        )
        rows.append((method_title(*way), tuple(cells)))
    title = f"{METRIC_TITLES[metric]}, {SCENARIO_TITLES[scenario]}"
    return Table(number, title, datasets, plan.ratios, tuple(rows))


def _make_cell(place: Place, plan: Plan, ours: Value, best: float) -> TableCell:
    mean, paper = ours.mean, _paper_number(place, plan)
    return TableCell(
        show_number(mean),
        "" if np.isnan(ours.sd) else f" ± {ours.sd:.3f}",
        show_number(paper),
        show_difference(mean, paper),
        is_low(place.metric, mean, paper, ours.k),
        round(mean, 3) == round(best, 3),
    )


def _paper_number(place: Place, plan: Plan) -> float:
    """Return the number as printed; for some data sets, the average of what is printed for them."""
    numbers = published()
    names = [place.dataset]
    if place.dataset == AVERAGE and plan.datasets != NAMES:
        names = list(plan.datasets)
    some = (numbers[replace(place, dataset=name)] for name in names)
    there = [number for number in some if number is not None]
    return float(np.mean(there)) if there else NAN


def count_wrong(
    plan: Plan, finished: Mapping[Cell, Measured]
) -> dict[tuple[str, str], tuple[list[int], list[int]]]:
    """Return what Wrong Prediction Flip has to choose from, by scenario and data set.

    That is how many wrong predictions the pool has, seed by seed, and how many candidates are
    wanted, ratio by ratio.
    """
    found: dict[tuple[str, str], tuple[list[int], list[int]]] = {}
    for scenario, dataset in product(plan.scenarios, plan.datasets):
        cells = [
            [
                finished.get(Cell(dataset, scenario, seed, "wrong", ratio, "confidence"))
                for ratio in plan.ratios
            ]
            for seed in plan.seeds
        ]
        there = [row[0].n_wrong for row in cells if row[0] is not None]
        wanted = [cell.n for cell in cells[0] if cell is not None]
        found[scenario, dataset] = there, wanted
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
    if cell.is_dash:
        return DASH
    low = " ▼" if cell.is_low else ""
    return f"{ours}{cell.spread_text}<br>{cell.paper_text}<br>{cell.difference_text}{low}"


_ITERATIONS, _RATE, _LEAVES = 200, 0.1, 20


@dataclass(frozen=True, slots=True)
class SharedErrors:
    """Of ``n_errors`` errors of ours, the share that a library makes (``shared``) and that to
    which it gives the same wrong answer (``same``). A library that is not installed is missing."""

    n_errors: int
    n_rows: int
    shared: dict[str, float]
    same: dict[str, float]
    missing: tuple[str, ...]


def find_shared_errors(split: Split, seed: int = 0) -> SharedErrors:
    """Train our model and each library's on D_train, as alike as can be; compare on all test rows.

    The rows of D_test and D_fine: neither was seen in training, and errors are few. One thread
    throughout, since some libraries' sums depend on the number of threads.
    """
    X = np.concatenate([split.test.X, split.fine.X])
    y = np.concatenate([split.test.y, split.fine.y])
    ours = TimberClassifier(preset="paper", random_state=seed, n_jobs=1)
    answers = ours.fit(split.train.X, split.train.y).predict(X)
    wrong = answers != y
    shared: dict[str, float] = {}
    same: dict[str, float] = {}
    missing = []
    for name, make in _MAKERS.items():
        try:
            model = make(seed)
        except ImportError:
            missing.append(name)
            continue
        with threadpool_limits(limits=1):
            model.fit(split.train.X, split.train.y)
            theirs = np.asarray(model.predict(X)).reshape(-1)
        if wrong.any():
            shared[name] = float(np.mean(theirs[wrong] != y[wrong]))
            same[name] = float(np.mean(theirs[wrong] == answers[wrong]))
    return SharedErrors(int(wrong.sum()), len(y), shared, same, tuple(missing))


def _lightgbm(seed: int) -> Any:
    from lightgbm import LGBMClassifier

    return LGBMClassifier(
        n_estimators=_ITERATIONS, learning_rate=_RATE, num_leaves=_LEAVES, random_state=seed,
        n_jobs=1, verbose=-1,
    )  # fmt: skip


def _xgboost(seed: int) -> Any:
    from xgboost import XGBClassifier

    return XGBClassifier(
        n_estimators=_ITERATIONS, learning_rate=_RATE, max_leaves=_LEAVES, max_depth=0,
        grow_policy="lossguide", tree_method="hist", random_state=seed, n_jobs=1,
    )  # fmt: skip


def _catboost(seed: int) -> Any:
    from catboost import CatBoostClassifier

    # Its usual symmetric trees: with trees of 20 leaves it takes minutes.
    return CatBoostClassifier(
        iterations=_ITERATIONS, learning_rate=_RATE, random_seed=seed, thread_count=1,
        verbose=False, allow_writing_files=False,
    )  # fmt: skip


def _hist_gradient_boosting(seed: int) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier

    return HistGradientBoostingClassifier(
        max_iter=_ITERATIONS, learning_rate=_RATE, max_leaf_nodes=_LEAVES, early_stopping=False,
        random_state=seed,
    )  # fmt: skip


_MAKERS: dict[str, Callable[[int], Any]] = {
    "LightGBM": _lightgbm,
    "XGBoost": _xgboost,
    "CatBoost": _catboost,
    "HistGradientBoosting": _hist_gradient_boosting,
}
