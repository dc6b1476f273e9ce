"""Set: the edit that makes triggers answer with their symbols, and which of them then do."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from timbermark.editing.leaves import ROUNDS, STRIDE, Edit, edit_leaves
from timbermark.kernels.workers import Workers
from timbermark.marking.choosing import Candidates, want_margins
from timbermark.marking.costs import Cost, measure_cost
from timbermark.marking.deciding import score_leads
from timbermark.marking.margins import leads
from timbermark.marking.mixing import row_keys
from timbermark.marking.preparing import MeasuredRows, Prepared

_PATIENT_ROUNDS = 60
"""For small models, whose triggers get in each other's way: there rounds are cheap."""


@dataclass(frozen=True, slots=True, eq=False)
class Setting:
    """An edit and how far each trigger's label leads after it, in units of ``margin_scale``."""

    edit: Edit
    lead: np.ndarray  # float64 [k]

    @property
    def n_set(self) -> int:
        """How many triggers answer with their symbol."""
        return int((self.lead > 0.0).sum())

    def __repr__(self) -> str:
        return f"Setting({self.n_set} of {len(self.lead)} set in {self.edit.rounds} rounds)"


def set_symbols(
    prepared: Prepared,
    triggers: Candidates,
    symbols: np.ndarray,
    lead: float,
    workers: Workers,
    stride: float = STRIDE,
) -> Setting:
    """Edit the model so that every trigger answers with its symbol, by a margin of ``lead``.

    ``symbols`` [k]: which label of its alphabet each trigger carries; ``lead`` in units of what
    probabilities are made from.
    """
    foreign = prepared.foreign
    target = triggers.alphabets[np.arange(len(triggers)), symbols]
    wanted = want_margins(foreign, triggers.margins, target, lead)
    weight = prepared.weight
    alike = np.isin(row_keys(prepared.margins, 0), row_keys(triggers.margins, 0))
    if alike.any():
        # No tree can tell these rows from a trigger, so that they cannot hold it back.
        weight = np.where(alike[:, None], 0.0, weight)
    edit = edit_leaves(
        prepared.router, prepared.holding, weight, triggers.routes, wanted - triggers.margins,
        workers, leaf_dtype=foreign.leaf_dtype, l2=foreign.l2, stride=stride,
        max_rounds=ROUNDS if stride < 1.0 else _PATIENT_ROUNDS,
    )  # fmt: skip
    margins = triggers.margins + edit.shift
    if foreign.scores is not None:
        return Setting(edit, score_leads(foreign, margins, target))
    return Setting(edit, leads(margins, target) * foreign.margin_scale)


def confidence_after(
    prepared: Prepared, rows: MeasuredRows, edit: Edit, workers: Workers
) -> np.ndarray:
    """Return the edited model's probabilities of measured rows, float64 [n, classes]."""
    router = prepared.router.around(edit.ensemble)
    return prepared.foreign.confidence(router.margins(rows.routes, workers))


def report_cost(prepared: Prepared, setting: Setting, workers: Workers) -> Cost:
    """Measure what an edit cost, on the rows that report."""
    rows, labelled = prepared.reporting, prepared.labelled
    moved = rows.confidence, confidence_after(prepared, rows, setting.edit, workers)
    after = confidence_after(prepared, labelled, setting.edit, workers)
    return measure_cost(
        labelled.confidence, after, labelled.label, prepared.foreign.classes,
        prepared.measured_on, moved,
    )  # fmt: skip
