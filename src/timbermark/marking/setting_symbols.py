"""The edit that makes triggers answer with their symbols, and which of them then do."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from timbermark.editing.leaves import ROUNDS, Edit, edit_leaves
from timbermark.kernels.workers import Workers
from timbermark.marking.choosing import Candidates
from timbermark.marking.defaults import ARRIVED_SHARE
from timbermark.marking.mixing import row_keys
from timbermark.marking.pairing import pair_room
from timbermark.marking.preparing import Prepared

_PAIR_ROUNDS = 30
"""Rounds of an edit of pairs, whose rows share most leaves, so that differences change slowly."""


@dataclass(frozen=True, slots=True, eq=False)
class Setting:
    """An edit, how far each trigger's answer leads after it, and what an untouched copy proves.

    ``survives``: what attacked copies would prove, in bits; 0 where nothing is forecast.
    """

    edit: Edit
    lead: np.ndarray  # float64 [k], see `Task.find_leads`
    bits: float
    survives: float = 0.0

    @property
    def n_set(self) -> int:
        """Return the number of triggers that answer with their symbol."""
        return int((self.lead > 0.0).sum())

    def __repr__(self) -> str:
        return f"Setting({self.n_set} of {len(self.lead)} set in {self.edit.rounds} rounds)"


def set_symbols(
    prepared: Prepared,
    triggers: Candidates,
    symbols: np.ndarray,
    lead: float,
    workers: Workers,
    hidden: bool = True,
) -> Setting:
    """Edit the model so that every trigger answers with its symbol, by a margin of ``lead``.

    ``symbols`` [k]: which answer of its alphabet each trigger carries; ``lead`` in units of what
    probabilities are made from or, for numbers, of the model's error; ``hidden``: splits keep their
    gains where the file shows them.
    """
    foreign, task = prepared.foreign, prepared.task
    target = triggers.alphabets[np.arange(len(triggers)), symbols]
    wanted = task.wanted_margins(triggers.margins, target, lead)
    weight = prepared.weight
    alike = np.isin(row_keys(prepared.margins, 0), row_keys(triggers.margins, 0))
    if alike.any():
        # No tree separates these rows from a trigger, so that they must not hold it back.
        weight = np.where(alike[:, None], 0.0, weight)
    edit = edit_leaves(
        prepared.router, prepared.holding, weight, triggers.routes, wanted - triggers.margins,
        workers, leaf_dtype=foreign.leaf_dtype, l2=foreign.l2 if hidden else None,
        unit=task.unit,
        max_rounds=_PAIR_ROUNDS if task.in_pairs else ROUNDS,
        slack=np.inf if task.in_pairs else ARRIVED_SHARE * lead * task.unit,
        room=pair_room(prepared, triggers.routes).repeat(2)[:, None] if task.in_pairs else None,
    )  # fmt: skip
    before, after = triggers.margins, triggers.margins + edit.shift
    told = before, after, triggers.alphabets, symbols, lead
    columns = prepared.schema.columns(triggers.X)
    return Setting(
        edit, task.find_leads(*told), task.prove(*told), task.forecast(*told, columns=columns)
    )
