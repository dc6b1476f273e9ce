"""Prepare: everything that was given, checked, and every row in one role.

Rows that *hold* the model in place take part in the edit, rows that *judge* decide whether a mark
is within the budget, rows that *report* only say what the finished mark costs. Large tables are
thinned: which rows are kept depends on a hash of the row, not on the order of the rows. Of
tables with more than 200,000 rows, or of Dask, only these rows are in memory; all others are seen
in passes (`timbermark.marking.large_tables`).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from timbermark.editing.routing import Router, Routes
from timbermark.errors import InputError
from timbermark.kernels.editing import weigh_leaves
from timbermark.kernels.workers import Workers
from timbermark.libraries.contract import ForeignModel
from timbermark.marking.boundaries import Boundaries
from timbermark.marking.defaults import (
    CERTAIN_ROWS_KEPT,
    CERTAIN_WEIGHT,
    HELD_SHARE,
    LEAST_OF_CLASS,
    MOST_HELD,
    MOST_HELD_OF_TWO,
    MOST_UNSEEN_ROWS,
    RARE_SHARE,
    SURROGATE_WEIGHT,
    SURROGATES,
    UNSEEN_ROWS,
)
from timbermark.marking.inputs import check_seed
from timbermark.marking.large_tables import (
    LEAST_HELD,
    InputTable,
    InputTables,
    LargeTable,
    Say,
    take_input_tables,
)
from timbermark.marking.mixing import (
    CAUTIOUS_SLOPE,
    Neighbourhood,
    Unseen,
    estimate_labels,
    find_unseen,
    mix_rows,
    row_keys,
)
from timbermark.marking.models import open_model
from timbermark.marking.tasks import Classification, Task, task_of
from timbermark.marking.text_codes import Schema

Mix = Callable[[np.ndarray], np.ndarray]
"""A function that makes surrogates of unseen rows out of training rows."""
Estimate = Callable[[np.ndarray], np.ndarray | None]
"""A function that estimates the labels of such rows from the model's answers."""
Reports = Callable[[], "tuple[MeasuredRows, MeasuredRows | None]"]
"""A function that returns rows to compare models on, and those that true answers are known of."""
_FEWEST_HOLDING, _MOST_HOLDING = 10_000, 50_000
_ROUTED_CELLS = 2_000_000
"""The limit on rows that hold the model times trees of one output, above the fewest rows."""


@dataclass(frozen=True, slots=True, eq=False)
class MeasuredRows:
    """Rows on which models are compared.

    ``margins`` and ``answers``: under the unmarked model, the latter probabilities [n, classes] or
    numbers [n, 1]. ``target``: the true answers as the task takes them, None if unknown, or
    estimates of how likely each class is [n, classes]. ``code``: what the rows are, as
    `timbermark.marking.cost.RowSet` says.
    """

    code: str
    columns: np.ndarray  # of the ensemble, float64 [n, d]
    routes: Routes
    margins: np.ndarray
    answers: np.ndarray
    target: np.ndarray | None

    @property
    def n_rows(self) -> int:
        """Return the number of rows."""
        return self.routes.n_rows


@dataclass(frozen=True, slots=True, eq=False)
class LargeTables:
    """Tables with so many rows that they are sampled and measured in passes.

    ``holding``: rows that the edit samples from, but for those with the numbers ``held``, which
    judge and report; ``candidates``: rows that triggers are made of; None where they are not many;
    ``cost``: rows that tell what an edit costs; ``reports``: what they are called in the cost,
    empty where others report; ``is_validation``: the model was not trained on them.
    """

    holding: LargeTable | None
    held: np.ndarray
    candidates: LargeTable | None
    cost: LargeTable
    reports: str
    is_validation: bool


@dataclass(frozen=True, slots=True, eq=False)
class TrainingRows:
    """Rows between which thresholds lie.

    ``X`` float64 [n, D]: as the model takes them, encoded; ``Z`` [n, d]: as columns of the
    ensemble. ``table``: the whole table where these are only some of its rows. ``known``: whether
    the model was trained on them, and they are not just of their kind.
    """

    X: np.ndarray
    Z: np.ndarray
    table: LargeTable | None
    known: bool


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """A model and the rows in their roles.

    ``source`` float64 [m, d]: rows that candidates are made from; ``source_target``: their true
    answers, None if unknown; ``schema``: what the rows stand for.
    ``weight`` float64 [n, K]: how much it matters that the margins of holding rows stay.
    ``mass`` [K] of float64 [leaves]: the sums of these weights in each leaf. ``reports``: returns
    what `reporting` and `labelled` are, and makes them when they are first wanted.
    ``judging_labels``: as ``labelled``, beside the judging rows, of numbers alone: for every limit
    of a classifier estimated labels tell.
    ``few_of_class``: the class of two of which too few rows judge, and how many. ``large``: tables
    that only passes see whole, None where all rows are here. ``unmarked``: the router of the
    unmarked model, where thresholds were moved; ``boundaries``: those of the split seal, which
    triggers in leaves stay out of.
    """

    foreign: ForeignModel
    task: Task
    schema: Schema
    router: Router
    training: TrainingRows
    source: np.ndarray
    source_target: np.ndarray | None
    holding: Routes
    columns: np.ndarray  # of the ensemble, for the holding rows, float64 [n, d]
    margins: np.ndarray  # of the holding rows, float64 [n, K]
    weight: np.ndarray
    mass: tuple[np.ndarray, ...]
    judging: MeasuredRows
    judging_labels: MeasuredRows | None
    reports: Reports
    n_rows: int  # that were given to train or to choose from
    seed: int
    large: LargeTables | None = None
    notes: tuple[str, ...] = ()
    few_of_class: tuple[Any, int] | None = None
    unmarked: Router | None = None
    boundaries: Boundaries | None = None

    @property
    def labels(self) -> Classification:
        """Return the task of a classifier, which alone has a leaf seal."""
        assert isinstance(self.task, Classification)
        return self.task

    @property
    def reporting(self) -> MeasuredRows:
        """Return the rows that report the cost."""
        return self.reports()[0]

    @property
    def labelled(self) -> MeasuredRows | None:
        """Return the rows that true answers are known of beside the reporting ones.

        They are training rows, where no validation rows were given, because then the rows that
        judge and report are made to resemble unseen ones. A model moves less on rows that it was
        trained on.
        """
        return self.reports()[1]

    def __repr__(self) -> str:
        return (
            f"Prepared({self.foreign.kind} of {self.foreign.library}: {self.n_rows} rows, "
            f"{self.holding.n_rows} hold, {self.judging.n_rows} judge on {self.judging.code} rows)"
        )


def prepare(
    model: Any,
    X: Any,
    y: Any,
    candidates: Any,
    validation: Any,
    seed: int,
    workers: Workers,
    groups: Any = None,
    say: Say = lambda said: None,
    leaves: bool = True,
    label_map: Mapping[Any, Any] | None = None,
) -> Prepared:
    """Check all that was given and give every row its role. Raises InputError for bad input.

    ``leaves``: whether there will be a leaf seal, for which rows must hold the model in place.
    ``label_map``: from the labels of rows to the model's own.
    """
    check_seed(seed)
    foreign = model if isinstance(model, ForeignModel) else open_model(model)
    task = task_of(foreign, label_map)
    router = Router(foreign.ensemble)
    n_trees = max(len(trees) for trees in router.trees)
    most = int(np.clip(_ROUTED_CELLS // max(n_trees, 1), _FEWEST_HOLDING, _MOST_HOLDING))
    most_held = MOST_HELD_OF_TWO if len(foreign.classes) == 2 else MOST_HELD
    held_rows = 2 * most_held
    given = take_input_tables(
        foreign, task, X, y, candidates, validation, groups,
        (held_rows + most, most, held_rows), seed, say,
    )  # fmt: skip
    rows, target = given.holding.rows, given.holding.target
    rng = np.random.default_rng(seed)
    order = task.order_rows(rows, target, seed)
    n_rows, held = given.holding.n_rows, order[:0]
    if given.validation is None:
        if n_rows < 2 * LEAST_HELD:
            raise InputError(
                f"{n_rows} rows are too few for a mark.",
                hint=f"give {2 * LEAST_HELD} at least, to hold the model in place and to "
                "measure the cost.",
            )
        n_held = int(np.clip(HELD_SHARE * n_rows, LEAST_HELD, held_rows))
        if _has_rare_class(foreign, target):
            # Few of the rows tell what it loses, so that all judge and report that need not hold.
            n_held = int(np.clip(len(rows) - most, n_held, held_rows))
        held, rest = order[:n_held], order[n_held:]
        tested = (rows[held], None if target is None else target[held])
        measured_on = "candidates" if X is None else "training"
    else:
        rest, measured_on = order, "validation"
        tested = (given.validation.rows, given.validation.target)
    rest = rest[: most if leaves else 0]
    holding = rows[rest]
    n_real = len(holding)
    if leaves and n_real < SURROGATES:
        mixed = mix_rows(holding, SURROGATES - n_real, rng).X
        holding = np.concatenate([holding, mixed])
    # Mixtures that transformers refuse cannot hold the model.
    taken, takes = given.schema.try_columns(holding) if leaves else _no_columns(foreign)
    n_real, seen = int(takes[:n_real].sum()), taken[takes]
    routes = router.route(seen, workers)
    margins = router.margins(routes, workers)
    importance = np.ones(len(margins))
    importance[n_real:] = SURROGATE_WEIGHT if X is not None else 1.0
    unseen: tuple[Mix, Estimate] | None = None
    if measured_on == "training":
        others = order[len(held) :][:most]
        unseen = _resemble_unseen(
            foreign, router, given, order, (held, others), seed, workers, leaves
        )
    tested = _order_tested(task, *tested, seed, 2 * most_held)
    halves = _halves(given.schema, task, router, *tested, measured_on, unseen, workers)
    (judging, judging_labels), reports = halves[0](), halves[1]
    judged = judging if judging_labels is None else judging_labels
    task = task.calibrate(
        judged.margins, judged.target, margins[:n_real] if leaves else judged.margins
    )
    weight = np.zeros(margins.shape)
    if isinstance(task, Classification) and leaves:
        weight = task.weigh_rows(margins) * importance[:, None]
        weight = thin_certain_rows(weight, row_keys(holding[takes], seed + 5))
    trained, fits = given.schema.try_columns(rows)
    source = given.source
    if source is None:
        source = InputTable(rows[rest], None if target is None else target[rest], len(rest))
    if not fits.all():
        rows, trained = rows[fits], trained[fits]
    few = _few_of_class(foreign, judging)
    if few is not None:
        judging = replace(judging, target=None)
    return Prepared(
        foreign=foreign,
        task=task,
        schema=given.schema,
        router=router,
        training=TrainingRows(rows, trained, given.holding.passed, X is not None),
        source=source.rows,
        source_target=source.target,
        holding=routes,
        columns=seen,
        margins=margins,
        weight=weight,
        mass=weigh(router, routes, weight, workers),
        judging=judging,
        judging_labels=judging_labels,
        reports=reports,
        n_rows=n_rows,
        seed=seed,
        large=_find_large(given, held, measured_on),
        notes=given.notes,
        few_of_class=few,
    )


def _no_columns(foreign: ForeignModel) -> tuple[np.ndarray, np.ndarray]:
    return np.zeros((0, foreign.ensemble.n_features)), np.zeros(0, np.bool_)


def _has_rare_class(foreign: ForeignModel, target: np.ndarray | None) -> bool:
    """Return whether the smaller of two classes is rare, so that few rows tell what it loses."""
    if len(foreign.classes) != 2 or target is None:
        return False
    return bool(np.bincount(target, minlength=2).min() <= RARE_SHARE * len(target))


def _few_of_class(foreign: ForeignModel, judging: MeasuredRows) -> tuple[Any, int] | None:
    """Return the class of two of which too few labelled rows judge, and how many, if there is."""
    target = judging.target
    if len(foreign.classes) != 2 or target is None or target.ndim == 2:
        return None
    counts = np.bincount(target, minlength=2)
    c = int(counts.argmin())
    return None if counts[c] >= LEAST_OF_CLASS else (foreign.classes[c], int(counts[c]))


def _resemble_unseen(
    foreign: ForeignModel,
    router: Router,
    given: InputTables,
    order: np.ndarray,
    parts: tuple[np.ndarray, np.ndarray],
    seed: int,
    workers: Workers,
    leaves: bool,
) -> tuple[Mix, Estimate]:
    """Return functions that make surrogates of unseen rows, and that estimate their labels.

    ``order``: of all rows; ``parts``: the places of held-out rows and of others, in that order;
    ``leaves``: whether leaf values change, which moves a model the less the surer it is. A moved
    threshold does not, so that no shadow model is asked how sure it is of unseen rows.
    """
    schema, rows, target = given.schema, given.holding.rows, given.holding.target
    held, rest = parts

    def columns(mixed: np.ndarray) -> np.ndarray:
        taken, takes = schema.try_columns(mixed)
        return np.asarray(taken[takes])

    found, shares = Unseen(slope=CAUTIOUS_SLOPE), None
    if foreign.task == "classification" and target is not None:
        shares = np.bincount(target, minlength=len(foreign.classes)) / len(target)
    if foreign.task == "classification" and leaves:
        if target is None:
            margins = router.margins(router.route(columns(rows), workers), workers)
            target = np.asarray(foreign.answers(margins).argmax(axis=1))
        labels = target[rest], target[held]
        found = find_unseen(rows[rest], rows[held], labels, columns, schema.named, seed)
    share = min(len(rows) / given.holding.n_rows, 1.0)
    near = Neighbourhood(rows[order], np.random.default_rng(seed + 4), schema.named, share, workers)

    def estimate(answers: np.ndarray) -> np.ndarray | None:
        if foreign.task != "classification":
            return None
        return estimate_labels(answers, found.slope, shares)

    most = MOST_HELD_OF_TWO if _has_rare_class(foreign, target) else MOST_UNSEEN_ROWS

    def mix(base: np.ndarray) -> np.ndarray:
        return near.mix(base, int(np.clip(len(base), UNSEEN_ROWS, most)), found.distance)

    return mix, estimate


def _find_large(given: InputTables, held: np.ndarray, measured_on: str) -> LargeTables | None:
    """Return the tables that are passed over, None if all rows are in memory."""
    holding, source, tested = (
        None if table is None else table.passed
        for table in (given.holding, given.source, given.validation)
    )
    cost = holding if tested is None else tested
    if cost is None:
        return None
    reports = tested is not None or given.validation is None
    place = given.holding.place
    return LargeTables(
        holding=holding,
        held=np.sort(held if place is None else place[held]),
        candidates=holding if given.source is None else source,
        cost=cost,
        reports=f"all {measured_on}" if reports else "",
        is_validation=tested is not None,
    )


def columns(foreign: ForeignModel, X: np.ndarray) -> np.ndarray:
    """Return rows of a model that takes numbers as columns of its ensemble, float64 [n, d]."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about names, which a matrix has none of
        return foreign.rows(X)


def thin_certain_rows(weight: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """Return weights [n, K] in which one of several certain rows stands for all of them.

    Of most outputs a classifier is certain for most rows, and these weigh little one by one. Which
    of them stay follows from the rows' ``keys`` and the output.

    >>> keys = np.array([0, 1, 1], np.uint64)
    >>> thin_certain_rows(np.array([[0.05], [0.05], [1.0]]), keys).tolist()
    [[0.2], [0.0], [1.0]]
    """
    turn = keys[:, None] + np.arange(weight.shape[1], dtype=np.uint64)
    kept = np.where(turn % np.uint64(CERTAIN_ROWS_KEPT) == 0, CERTAIN_ROWS_KEPT * weight, 0.0)
    return np.where(weight < CERTAIN_WEIGHT, kept, weight)


def weigh(
    router: Router, routes: Routes, weight: np.ndarray, workers: Workers
) -> tuple[np.ndarray, ...]:
    """Return for each output the sum of the rows' weights in each leaf, float64 [leaves]."""
    mass = tuple(np.empty(first[-1]) for first in router.first)

    def weigh_output(thread: int, c: int) -> None:
        own = np.ascontiguousarray(weight[:, c])
        weigh_leaves(routes.leaf[c], router.first[c], own, mass[c])

    workers.drain(weigh_output, len(mass))
    return mass


def _order_tested(
    task: Task, X: np.ndarray, target: np.ndarray | None, seed: int, most: int
) -> tuple[np.ndarray, np.ndarray | None]:
    """Return at most so many rows that judge and report, in an order that follows from them."""
    order = task.order_rows(X, target, seed + 1)[:most]
    return X[order], None if target is None else target[order]


def _halves(
    schema: Schema,
    task: Task,
    router: Router,
    X: np.ndarray,
    target: np.ndarray | None,
    measured_on: str,
    unseen: tuple[Mix, Estimate] | None,
    workers: Workers,
) -> tuple[Reports, Reports]:
    """Return what makes the rows that judge, and those that report, with true answers beside them.

    ``unseen``: makes rows that stand for unseen ones, where those given are training rows, and
    estimates their labels. Rows that judge are made first.
    """

    def measured(
        code: str, rows: np.ndarray, target: np.ndarray | None, estimate: Estimate | None = None
    ) -> MeasuredRows:
        taken, takes = schema.try_columns(rows)
        routes = router.route(taken[takes], workers)
        margins = router.margins(routes, workers)
        answers = schema.foreign.answers(margins)
        known = None if target is None else target[takes]
        if estimate is not None:
            known = estimate(answers)
        return MeasuredRows(code, taken[takes], routes, margins, answers, known)

    def make(half: np.ndarray, judges: bool) -> tuple[MeasuredRows, MeasuredRows | None]:
        own = None if target is None else target[half]
        if unseen is None:
            return measured(measured_on, X[half], own), None
        mix, estimate = unseen
        made = measured("unseen", mix(X[half]), None, estimate)
        if judges and isinstance(task, Classification):
            return made, None
        return made, measured(measured_on, X[half], own)

    first, second = task.halve(np.arange(len(X)), target)
    return cache(lambda: make(first, True)), cache(lambda: make(second, False))
