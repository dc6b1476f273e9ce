"""Prepare: everything that was given, checked, and every row in one role.

Rows that *hold* the model in place take part in the edit, rows that *judge* decide whether a mark
is within the budget, rows that *report* only say what the finished mark costs. Large tables are
thinned: who is in follows from a hash of the row, not from the order in which rows were given.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from timbermark.editing.routing import Router, Routes
from timbermark.errors import InputError
from timbermark.kernels.editing import weigh_leaves
from timbermark.kernels.workers import Workers
from timbermark.libraries.contract import ForeignModel
from timbermark.marking.inputs import take_parts
from timbermark.marking.mixing import mix_rows, resemble_rows
from timbermark.marking.models import open_model
from timbermark.marking.tables import Schema, take_tables
from timbermark.marking.tasks import Task, task_of

_HELD_SHARE = 0.3
"""Of the rows that there are, where no others are given to judge and report by."""
_LEAST_HELD, _MOST_HELD = 40, 5_000
_UNSEEN = 2_000
"""How many rows that resemble held ones stand for unseen rows, at least."""
_FEWEST_HOLDING, _MOST_HOLDING = 10_000, 50_000
_ROUTED_CELLS = 2_000_000
"""Rows times trees of one output that hold the model, beyond the fewest."""
_SURROGATES, _SURROGATE_WEIGHT = 6_000, 0.5
"""Fewer rows than this are joined by mixtures of them, which weigh less than they do."""


@dataclass(frozen=True, slots=True, eq=False)
class MeasuredRows:
    """Rows on which models are compared.

    ``margins`` and ``answers``: under the unmarked model, the latter probabilities [n, classes] or
    numbers [n, 1]. ``target``: the true answers as the task takes them, None if unknown.
    """

    routes: Routes
    margins: np.ndarray
    answers: np.ndarray
    target: np.ndarray | None

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        return self.routes.n_rows


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """A model and the rows in their roles.

    ``source`` float64 [m, d]: rows that candidates are made from; ``schema``: what they stand for.
    ``weight`` float64 [n, K]: how much it matters that the margins of holding rows stay.
    ``mass`` [K] of float64 [leaves]: the sums of these weights in each leaf. ``labelled``: the rows
    that accuracy is reported on, ``judging_labels`` those it is judged on. They are the reporting
    and the judging ones (None) where validation rows were given. Where not, they are held-out
    training rows, and the rows that judge and report are made to resemble those, because a model
    moves less on rows that it was trained on than on unseen ones.
    """

    foreign: ForeignModel
    task: Task
    schema: Schema
    router: Router
    source: np.ndarray
    holding: Routes
    margins: np.ndarray  # of the holding rows, float64 [n, K]
    weight: np.ndarray
    mass: tuple[np.ndarray, ...]
    judging: MeasuredRows
    reporting: MeasuredRows
    labelled: MeasuredRows
    judging_labels: MeasuredRows | None
    measured_on: str
    n_rows: int  # that were given to train or to choose from
    seed: int

    def __repr__(self) -> str:
        return (
            f"Prepared({self.foreign.kind} of {self.foreign.library}: {self.n_rows} rows, "
            f"{self.holding.n_rows} hold, {self.judging.n_rows} judge, "
            f"{self.reporting.n_rows} report on {self.measured_on} rows)"
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
) -> Prepared:
    """Check all that was given and give every row its role. Raises InputError for bad input."""
    foreign = open_model(model)
    task = task_of(foreign)
    given = _Given.take(foreign, task, X, y, candidates, validation, groups)
    rng = np.random.default_rng(seed)
    order = task.order_rows(given.rows, given.target, seed)
    if given.validation is None:
        n_held = int(np.clip(_HELD_SHARE * len(order), _LEAST_HELD, 2 * _MOST_HELD))
        if len(order) < 2 * n_held:
            raise InputError(
                f"{len(order)} rows are too few for a mark.",
                hint=f"give {2 * _LEAST_HELD} at least, to hold the model in place and to "
                "measure the cost.",
            )
        held, rest = order[:n_held], order[n_held:]
        tested = (given.rows[held], None if given.target is None else given.target[held])
        measured_on = "candidates" if X is None else "training"
    else:
        rest, tested, measured_on = order, given.validation, "validation"
    router = Router(foreign.ensemble)
    n_trees = max(len(trees) for trees in router.trees)
    most = int(np.clip(_ROUTED_CELLS // max(n_trees, 1), _FEWEST_HOLDING, _MOST_HOLDING))
    rest = rest[:most]
    holding = given.rows[rest]
    n_real = len(holding)
    if n_real < _SURROGATES:
        mixed = mix_rows(holding, _SURROGATES - n_real, rng).X
        holding = np.concatenate([holding, mixed])
    # Mixtures that transformers refuse do not hold anything.
    taken, takes = given.schema.try_columns(holding)
    n_real, seen = int(takes[:n_real].sum()), taken[takes]
    routes = router.route(seen, workers)
    margins = router.margins(routes, workers)
    importance = np.ones(len(margins))
    importance[n_real:] = _SURROGATE_WEIGHT if X is not None else 1.0
    weight = task.weigh_rows(margins) * importance[:, None]
    halves = _halves(given.schema, task, router, *tested, seed, measured_on, workers)
    judging, reporting, labelled, judging_labels = halves
    judged = judging if judging_labels is None else judging_labels
    return Prepared(
        foreign=foreign,
        task=task.calibrate(judged.margins, judged.target, seen[:n_real], margins[:n_real], seed),
        schema=given.schema,
        router=router,
        source=given.rows[rest] if given.source is None else given.source,
        holding=routes,
        margins=margins,
        weight=weight,
        mass=weigh(router, routes, weight, workers),
        judging=judging,
        reporting=reporting,
        labelled=labelled,
        judging_labels=judging_labels,
        measured_on=measured_on,
        n_rows=len(order),
        seed=seed,
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Given:
    """``rows`` hold the model; ``source``: other candidates; ``validation``: rows and targets."""

    schema: Schema
    rows: np.ndarray
    target: np.ndarray | None
    source: np.ndarray | None
    validation: tuple[np.ndarray, np.ndarray | None] | None

    @classmethod
    def take(
        cls,
        foreign: ForeignModel,
        task: Task,
        X: Any,
        y: Any,
        candidates: Any,
        validation: Any,
        groups: Any,
    ) -> _Given:
        if X is None and y is not None:
            raise InputError("There are labels y but no rows X.", hint="give both, or neither.")
        if y is None and groups is not None:
            raise InputError("There are groups but no y.", hint="give both, or neither.")
        if X is None and candidates is None:
            raise InputError(
                "There is nothing to choose triggers from.",
                hint="pass the training rows X, or rows of their kind as candidates.",
            )
        tables, targets = {}, {}
        if X is not None:
            tables["training rows"] = X
        for what, given in (("candidates", candidates), ("validation rows", validation)):
            if given is not None:
                tables[what], *targets[what] = take_parts(given, what.partition(" ")[0])
        schema, taken = take_tables(foreign, tables)
        rows, source, held = (
            taken.get(what) for what in ("training rows", "candidates", "validation rows")
        )
        target = None
        if source is not None and targets["candidates"][0] is not None:
            labels, own = targets["candidates"]
            target = task.take_targets(labels, len(source), "candidates'", own)
        if rows is not None:
            target = None
            if y is not None:
                target = task.take_targets(y, len(rows), "training", groups)
        else:
            rows, source = source, None
        assert rows is not None
        tested: tuple[np.ndarray, np.ndarray | None] | None = None
        if held is not None:
            if len(held) < _LEAST_HELD:
                raise InputError(
                    f"{len(held)} validation rows are too few to judge and report by.",
                    hint=f"give {_LEAST_HELD} at least, or leave them out.",
                )
            tested = (held, None)
            labels, own = targets["validation rows"]
            if labels is not None:
                tested = (held, task.take_targets(labels, len(held), "validation", own))
        return cls(schema, rows, target, source, tested)


def columns(foreign: ForeignModel, X: np.ndarray) -> np.ndarray:
    """Return rows of a model that takes numbers as columns of its ensemble, float64 [n, d]."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about names, which a matrix has none of
        return foreign.rows(X)


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


def _halves(
    schema: Schema,
    task: Task,
    router: Router,
    X: np.ndarray,
    target: np.ndarray | None,
    seed: int,
    measured_on: str,
    workers: Workers,
) -> tuple[MeasuredRows, MeasuredRows, MeasuredRows, MeasuredRows | None]:
    """Return rows that judge and report, and those that accuracy is reported and judged on."""

    def measured(rows: np.ndarray, target: np.ndarray | None) -> MeasuredRows:
        taken, takes = schema.try_columns(rows)
        routes = router.route(taken[takes], workers)
        margins = router.margins(routes, workers)
        known = None if target is None else target[takes]
        return MeasuredRows(routes, margins, schema.foreign.answers(margins), known)

    order = task.order_rows(X, target, seed + 1)[: 2 * _MOST_HELD]
    halves = task.halve(order, target)
    targets = [None if target is None else target[half] for half in halves]
    if measured_on != "training":
        judging, reporting = (measured(X[h], y) for h, y in zip(halves, targets, strict=True))
        return judging, reporting, reporting, None
    rng = np.random.default_rng(seed + 4)
    judging, reporting = (
        measured(resemble_rows(X[half], max(_UNSEEN, len(half)), rng, schema.named), None)
        for half in halves
    )
    seen = [measured(X[half], y) for half, y in zip(halves, targets, strict=True)]
    return judging, reporting, seen[1], seen[0]
