"""The leaf seal: the edit that makes triggers answer with their symbols, and which then do."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from timbermark.editing.leaves import ROUNDS, Edit, edit_leaves
from timbermark.kernels.workers import Workers
from timbermark.marking.choosing import Candidates
from timbermark.marking.defaults import ARRIVED_SHARE
from timbermark.marking.mixing import row_keys
from timbermark.marking.preparing import Prepared
from timbermark.ownership.evidence import label_bits

_KEPT_TREES, _FEWEST_TREES = 1, 8
"""Trees of each output that an edit leaves alone, the first ones, where there are enough others: in
the first round the library's formula puts every leaf on a grid that the file shows."""


@dataclass(frozen=True, slots=True, eq=False)
class Setting:
    """An edit, and how far each trigger's answer leads after it."""

    edit: Edit
    lead: np.ndarray  # float64 [k], see `Classification.find_leads`
    q: int

    @property
    def n_set(self) -> int:
        """Return the number of triggers that answer with their symbol."""
        return int((self.lead > 0.0).sum())

    @property
    def bits(self) -> float:
        """Return what the labels of an untouched copy prove."""
        return label_bits(self.n_set, len(self.lead), self.q)

    def __repr__(self) -> str:
        return f"Setting({self.n_set} of {len(self.lead)} set in {self.edit.rounds} rounds)"


def set_leaves(
    prepared: Prepared,
    triggers: Candidates,
    symbols: np.ndarray,
    lead: float,
    workers: Workers,
    hidden: bool = True,
) -> Setting:
    """Edit the model so that every trigger answers with its symbol, by a margin of ``lead``.

    ``symbols`` [k]: which answer of its alphabet each trigger carries; ``lead`` in units of what
    probabilities are made from; ``hidden``: splits keep their gains where the file shows them.
    """
    foreign, task = prepared.foreign, prepared.labels
    target = triggers.alphabets[np.arange(len(triggers)), symbols]
    wanted = task.wanted_margins(triggers.margins, target, lead)
    weight = prepared.weight
    alike = np.isin(row_keys(prepared.margins, 0), row_keys(triggers.margins, 0))
    if alike.any():
        # No tree separates these rows from a trigger, so that they must not hold it back.
        weight = np.where(alike[:, None], 0.0, weight)
    n_trees = min(len(trees) for trees in prepared.router.trees)
    edit = edit_leaves(
        prepared.router, prepared.holding, weight, triggers.routes, wanted - triggers.margins,
        workers, leaf_dtype=foreign.leaf_dtype, l2=foreign.l2 if hidden else None,
        unit=task.unit, max_rounds=ROUNDS, slack=ARRIVED_SHARE * lead * task.unit,
        kept_trees=_KEPT_TREES if foreign.l2 is not None and n_trees >= _FEWEST_TREES else 0,
    )  # fmt: skip
    after = triggers.margins + edit.shift
    return Setting(
        edit, task.find_leads(after, triggers.alphabets, symbols), triggers.alphabets.shape[1]
    )


def reroute(prepared: Prepared, triggers: Candidates, workers: Workers) -> Candidates:
    """Return triggers as they go through the trees of a model whose thresholds were moved."""
    routes = prepared.router.route(prepared.schema.columns(triggers.X), workers)
    return replace(triggers, routes=routes, margins=prepared.router.margins(routes, workers))
