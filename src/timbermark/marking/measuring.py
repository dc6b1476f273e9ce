"""What an edit costs on the rows of a prepared model: in memory, and in a pass over a large table.

Both give tallies. `timbermark.marking.cost` makes figures of them, `timbermark.marking.budget`
judges these.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from timbermark.editing.leaves import Edit
from timbermark.editing.routing import Router
from timbermark.kernels.workers import Workers
from timbermark.marking.budget import Budget, beyond_limits, judge_figures
from timbermark.marking.cost import (
    QUALITY,
    Cost,
    Figure,
    RowSet,
    label_figures,
    number_figures,
    share_at_most,
)
from timbermark.marking.large_tables import LargeTable, Say
from timbermark.marking.mixing import row_keys
from timbermark.marking.preparing import MeasuredRows, Prepared
from timbermark.marking.tallies import (
    Counting,
    NumberDistributions,
    ScoreDistributions,
    Tally,
    add_up,
    group_ndcg,
    grouped,
    number_distributions,
    score_distributions,
)
from timbermark.marking.words import Note
from timbermark.partitions import Block, run_pass
from timbermark.trees.ensemble import Ensemble

_MOST_SEEN = 0.9
"""The share of validation rows that may be training rows before a warning says so."""
_OCCUR_ONCE = 0.5
"""The share of training rows that must occur once for such a warning."""


def judge_edit(
    prepared: Prepared, budget: Budget, edit: Edit, workers: Workers
) -> dict[str, float]:
    """Return how much of each limit an edit uses, on the rows in memory that judge."""
    measured = [prepared.judging]
    if prepared.judging_labels is not None:
        measured.append(prepared.judging_labels)
    told = _compare(prepared, measured, edit, workers)
    return judge_figures(prepared.foreign.task, budget, [f for figures in told for f in figures])


def report_cost(
    prepared: Prepared, edit: Edit, workers: Workers, whole: Tally | None = None
) -> Cost:
    """Measure what an edit cost, on the rows that report.

    ``whole``: the tally of all rows of a large table, which then reports.
    """
    rows, large = prepared.reporting, prepared.large
    if whole is not None and large is not None and large.reports:
        figures = _figures(prepared, whole, large.reports)
    else:
        measured = [rows] if prepared.labelled is None else [rows, prepared.labelled]
        figures, *others = _compare(prepared, measured, edit, workers)
        known = (*QUALITY, "rmse", "mae", "r2", "ndcg")
        figures += [f for told in others for f in told if f.code in known and f.before is not None]
    main = figures[0].rows
    assert main is not None
    counting = prepared.task.counting
    return Cost(
        task=prepared.foreign.task,
        rows=main,
        figures=tuple(figures),
        classes=tuple(np.asarray(prepared.foreign.classes).tolist()),
        error=counting.error,
        known_error=counting.known_error,
        distributions=_distributions(prepared, edit, workers),
    )


def warn(prepared: Prepared, budget: Budget, cost: Cost) -> tuple[Note, ...]:
    """Return warnings about a cost: figures beyond a limit, and limits that rows cannot show."""
    notes = [
        Note(
            "beyond_limit",
            {"figure": figure.change, "limit": limit},
            name,
            "" if figure.rows is None else figure.rows.code,
        )
        for name, (figure, limit) in beyond_limits(cost, budget).items()
    ]
    judging = prepared.judging
    if (seen := _seen_share(prepared)) is not None:
        notes.append(Note("validation_seen", {"share": seen}))
    if prepared.few_of_class is not None:
        label, n = prepared.few_of_class
        notes.append(Note("few_of_class", {"rows": n}, str(label)))
    finest = share_at_most(0, judging.n_rows)
    if cost.answers == "labels" and budget.changed is not None and budget.changed < finest:
        numbers = {"limit": budget.changed, "rows": judging.n_rows, "finest": finest}
        notes.append(Note("limit_too_fine", numbers, "changed"))
    return tuple(notes)


def _seen_share(prepared: Prepared) -> float | None:
    """Return the share of validation rows that are training rows; None where it is no mistake.

    A table of few distinct rows has fresh rows that it had before: of those so many as the share of
    its rows that occur more than once (Good and Turing).
    """
    training, measured = prepared.training, (prepared.judging, prepared.reporting)
    if not training.known or any(rows.code != "validation" for rows in measured):
        return None
    keys, counts = np.unique(row_keys(training.Z, 0), return_counts=True)
    tested = np.concatenate([row_keys(rows.columns, 0) for rows in measured])
    once = float((counts == 1).sum()) / len(training.Z)
    # Of a large table a sample is here, which holds so many of its rows.
    here = min(len(training.Z) / prepared.n_rows, 1.0)
    share = min(float(np.isin(tested, keys).mean()) / here, 1.0)
    return share if share >= _MOST_SEEN and once >= _OCCUR_ONCE else None


def tally_table(prepared: Prepared, edit: Edit, say: Say) -> Tally:
    """Compare the model before and after an edit on all rows of the table that tells the cost."""
    large = prepared.large
    assert large is not None
    step = _Measuring(
        large.cost.bare(), prepared.unmarked or prepared.router,
        prepared.router.around(edit.ensemble),
        prepared.task.counting, large.cost.n_rows,
    )  # fmt: skip
    told: Tally = run_pass(large.cost.parts, step, say)
    return told


def judge_table(prepared: Prepared, budget: Budget, whole: Tally) -> dict[str, float]:
    """Return how much of each limit an edit uses, on all rows of a large table."""
    assert prepared.large is not None
    code = "all validation" if prepared.large.is_validation else "all training"
    return judge_figures(prepared.foreign.task, budget, _figures(prepared, whole, code))


def answers_after(
    prepared: Prepared, rows: MeasuredRows, edit: Edit, workers: Workers
) -> np.ndarray:
    """Return the edited model's probabilities or numbers of measured rows, float64."""
    router = prepared.router.around(edit.ensemble)
    return prepared.foreign.answers(router.margins(rows.routes, workers))


def same_thresholds(one: Ensemble, other: Ensemble) -> bool:
    """Return whether two ensembles send every row the same way: their thresholds are the same."""
    return one.threshold.tobytes() == other.threshold.tobytes()


def _compare(
    prepared: Prepared, measured: Sequence[MeasuredRows], edit: Edit, workers: Workers
) -> list[list[Figure]]:
    """Return the figures of an edit on each of several sets of rows, one thread for each."""
    after = [answers_after(prepared, rows, edit, workers) for rows in measured]

    def compare(pair: tuple[MeasuredRows, np.ndarray]) -> list[Figure]:
        rows, found = pair
        tally = prepared.task.counting.tally(rows.answers, found, rows.target)
        return _figures(prepared, tally, rows.code)

    return workers.map(compare, zip(measured, after, strict=True))


def _figures(prepared: Prepared, tally: Tally, code: str) -> list[Figure]:
    rows = RowSet(code, tally.n, tally.estimated)
    counting = prepared.task.counting
    if counting.kind == "labels":
        return label_figures(tally, np.asarray(prepared.foreign.classes).tolist(), rows)
    return number_figures(tally, counting.error, counting.kind == "ranks", rows)


def _distributions(
    prepared: Prepared, edit: Edit, workers: Workers
) -> ScoreDistributions | NumberDistributions:
    """Count how answers are distributed on the rows in memory that report."""
    rows = prepared.reporting
    before, after, target = rows.answers, answers_after(prepared, rows, edit, workers), rows.target
    counting = prepared.task.counting
    if counting.kind == "labels":
        known = None if target is None or target.ndim == 2 else target
        return score_distributions(before, after, known, np.abs(after - before).max(axis=1))
    moved = (after - before)[:, 0] / counting.error
    if target is None or counting.kind == "numbers":
        return number_distributions(before[:, 0], after[:, 0], target, moved)
    by_group = [group_ndcg(answers[:, 0], grouped(target)) for answers in (before, after)]
    return number_distributions(before[:, 0], after[:, 0], None, moved, (by_group[0], by_group[1]))


@dataclass(frozen=True, slots=True, eq=False)
class _Measuring:
    """The pass that compares the model before and after."""

    table: LargeTable
    before: Router
    after: Router
    counting: Counting
    n_rows: int
    title = "pass 4: measuring the cost"

    def look(self, block: Block) -> Tally:
        rows, target = self.table.rows(block), self.table.targets(block)
        schema = self.table.schema
        seen, takes = schema.try_columns(rows)
        with Workers(1) as workers:
            routes = self.before.route(seen[takes], workers)
            before = schema.foreign.answers(self.before.margins(routes, workers))
            moved = self.before.ensemble.threshold is not self.after.ensemble.threshold
            if moved and not same_thresholds(self.before.ensemble, self.after.ensemble):
                routes = self.after.route(seen[takes], workers)
            after = schema.foreign.answers(self.after.margins(routes, workers))
        # Without groups the rows of a ranker are one list, which parts do not add up to.
        known = None if target is None or self.counting.kind == "ranks" else target[takes]
        return self.counting.tally(before, after, known, self.n_rows)

    def merge(self, results: Sequence[Tally]) -> Tally:
        return add_up(results)
