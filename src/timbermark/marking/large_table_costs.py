"""The cost of an edit on every row of a large table, measured in one pass with both models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from timbermark.editing.leaves import Edit
from timbermark.editing.routing import Router
from timbermark.kernels.workers import Workers
from timbermark.marking.budget import Budget
from timbermark.marking.large_tables import LargeTable, Say
from timbermark.marking.number_costs import rank_correlation
from timbermark.marking.number_tallies import NumberTally
from timbermark.marking.preparing import Prepared
from timbermark.marking.regression import Numbers
from timbermark.marking.rehearsing import Attempt, judge
from timbermark.marking.setting_symbols import Setting, answers_after, report_cost
from timbermark.marking.strengths import Strength
from timbermark.marking.tallies import Tally
from timbermark.marking.tasks import Cost
from timbermark.partitions import Block, run_pass


@dataclass(frozen=True, slots=True, eq=False)
class WholeCost:
    """What an edit costs on all rows: how much of each limit it uses, and the figures.

    ``cost`` is None where other rows report, or where rows are only ranked.
    """

    use: dict[str, float]
    cost: Cost | None


def judge_whole(
    prepared: Prepared,
    budget: Budget,
    strength: Strength,
    setting: Setting,
    workers: Workers,
    say: Say,
) -> tuple[Attempt, bool, Cost]:
    """Judge an edit by the rows in memory and, where a table is large, by all of its rows.

    Return the attempt, whether it is only all rows together that find it too dear, and its cost.
    """
    attempt = judge(prepared, budget, strength, setting, workers)
    if prepared.large is None or attempt.most_used > 1.0:
        return attempt, False, report_cost(prepared, setting, workers)
    whole = measure_whole(prepared, setting.edit, budget, workers, say)
    use = {
        name: max(attempt.use.get(name, 0.0), whole.use.get(name, 0.0))
        for name in {**attempt.use, **whole.use}
    }
    cost = report_cost(prepared, setting, workers) if whole.cost is None else whole.cost
    judged = replace(attempt, use=use)
    return judged, judged.most_used > 1.0, cost


def measure_whole(
    prepared: Prepared, edit: Edit, budget: Budget, workers: Workers, say: Say
) -> WholeCost:
    """Measure the cost of an edit on all rows of the table that the cost is measured on."""
    large = prepared.large
    assert large is not None
    table, task = large.cost, prepared.task
    error = task.error if isinstance(task, Numbers) else None
    step = _Measuring(
        table.bare(), prepared.router, prepared.router.around(edit.ensemble), error,
        isinstance(task, Numbers) and task.ranks,
    )  # fmt: skip
    told: Any = run_pass(table.parts, step, say)
    if isinstance(told, Tally):
        use = told.use_of_budget(budget, seen=not large.is_validation)
        classes = prepared.foreign.classes
        return WholeCost(use, told.cost(classes, large.reports) if large.reports else None)
    assert isinstance(task, Numbers)
    if task.ranks or not large.reports:
        return WholeCost(told.use_of_budget(budget), None)
    rows = prepared.reporting
    after = answers_after(prepared, rows, edit, workers)
    order = rank_correlation(rows.answers[:, 0], after[:, 0])
    return WholeCost(told.use_of_budget(budget), told.cost(large.reports, task.known_error, order))


@dataclass(frozen=True, slots=True, eq=False)
class _Measuring:
    """The pass that compares the model before and after; ``error``: of numbers, their unit."""

    table: LargeTable
    before: Router
    after: Router
    error: float | None
    ranks: bool
    title = "pass 4: measuring the cost"

    def look(self, block: Block) -> Tally | NumberTally:
        rows, target = self.table.rows(block), self.table.targets(block)
        schema = self.table.schema
        seen, takes = schema.try_columns(rows)
        with Workers(1) as workers:
            routes = self.before.route(seen[takes], workers)
            before, after = (
                schema.foreign.answers(router.margins(routes, workers))
                for router in (self.before, self.after)
            )
        known = None if target is None or self.ranks else target[takes]
        if self.error is None:
            return Tally.count(before, after, known)
        return NumberTally.count(before[:, 0], after[:, 0], known, self.error)

    def merge(self, results: Sequence[Any]) -> Any:
        kind: Any = type(results[0])
        return kind.merge(results)
