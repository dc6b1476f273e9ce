"""Plan: what a mark would be and cost, from a rehearsal on the model itself."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from timbermark.boosting.progress import step_bar
from timbermark.kernels.workers import Workers, count_threads
from timbermark.marking.budget import Budget, check_budget
from timbermark.marking.cost import Cost
from timbermark.marking.embedding import check_choices
from timbermark.marking.large_tables import Say
from timbermark.marking.measuring import report_cost, warn
from timbermark.marking.models import open_model
from timbermark.marking.preparing import Prepared, prepare
from timbermark.marking.rehearsing import Attempt, Rehearsal, judge_whole, rehearse
from timbermark.marking.sampling import Hold
from timbermark.marking.setting_symbols import set_symbols
from timbermark.marking.strengths import Strength, list_strengths
from timbermark.marking.words import Note, library_notes, show_result
from timbermark.ownership.statistics import matches_needed


@dataclass(frozen=True, slots=True)
class Plan:
    """What :func:`timbermark.embed` would do with the same arguments.

    ``usable``: how many candidates there were; ``n_set``: symbols that the rehearsal set; ``bits``:
    what they would prove; ``matches_needed``: how many must survive an attack for 64 bits, None
    where all would not be enough and for numbers; ``cost``: of the rehearsal, on rows that chose
    nothing.
    """

    strength: Strength
    usable: int
    n_set: int
    bits: float
    matches_needed: int | None
    cost: Cost
    attempts: tuple[Attempt, ...]
    notes: tuple[Note, ...]

    def __str__(self) -> str:
        return show_result(
            f"{self.strength.k} triggers of {self.usable} usable candidates, {self.n_set} of them "
            f"set in the rehearsal: {self.bits:.0f} bits of evidence", self.cost, self.notes,
        )  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "triggers": self.strength.k,
            "alphabet": self.strength.q,
            "lead": self.strength.lead,
            "usable": self.usable,
            "set": self.n_set,
            "evidence_bits": self.bits,
            "matches_needed": self.matches_needed,
            "budget_used": self.attempts[-1].use,
            "cost": self.cost.to_dict(),
            "notes": [note.to_dict() for note in self.notes],
        }


def plan(
    model: Any,
    X: Any,
    y: Any = None,
    *,
    groups: Any = None,
    candidates: Any = None,
    validation: Any = None,
    budget: Budget | None = None,
    triggers: str = "mixed",
    n_triggers: int | str = "auto",
    alphabet: int | str = "auto",
    lead: float | str = "auto",
    weak: bool = False,
    random_state: int = 0,
    verbose: int = 0,
) -> Plan:
    """Rehearse a mark with throwaway symbols and return what it would cost; change nothing.

    The arguments are those of :func:`timbermark.embed`.

    >>> from sklearn.datasets import load_digits
    >>> from timbermark import TimberClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> model = TimberClassifier(max_iter=20, random_state=0).fit(X[:1200], y[:1200])
    >>> plan(model, X[:1200], y[:1200]).bits >= 64
    True
    """
    check_choices(budget, triggers)
    with Workers(count_threads(None)) as workers, step_bar(verbose) as say:
        say("reading the model and the rows")
        foreign = open_model(model)
        check_budget(budget or Budget(), foreign.task)
        strengths = list_strengths(len(foreign.classes), n_triggers, alphabet, lead, weak)
        prepared = prepare(
            foreign, X, y, candidates, validation, random_state, workers, groups, say
        )
        found = rehearse(prepared, budget or Budget(), strengths, triggers, workers, say)
        if prepared.large is None:
            cost = report_cost(prepared, found.setting.edit, workers)
        else:
            found, cost = _rehearse_whole(prepared, found, budget or Budget(), workers, say)
    last, in_pairs = found.attempts[-1], prepared.task.in_pairs
    return Plan(
        strength=found.strength,
        usable=found.triggers.usable,
        n_set=last.n_set,
        bits=last.bits,
        # Evidence from numbers is read from all triggers together, not from a count of matches.
        matches_needed=None if in_pairs else matches_needed(last.strength.k, last.strength.q, 64),
        cost=cost,
        attempts=found.attempts,
        notes=(
            *warn(prepared, budget or Budget(), cost),
            *library_notes((*prepared.foreign.notes, *prepared.notes)),
        ),
    )


def _rehearse_whole(
    prepared: Prepared, found: Rehearsal, budget: Budget, workers: Workers, say: Say
) -> tuple[Rehearsal, Cost]:
    """Rehearse once more with a sample of all rows, and measure the cost on all of them."""
    hold: Hold | None = Hold.begin(prepared, found.triggers, workers, say)
    rng = np.random.default_rng(prepared.seed + 8)
    strength, attempts = found.strength, list(found.attempts)
    while hold is not None:
        symbols = rng.integers(0, strength.q, strength.k)
        setting = set_symbols(
            hold.prepared, found.triggers, symbols, strength.lead, workers, strength.hidden
        )
        attempt, needs_more, cost = judge_whole(
            hold.prepared, budget, strength, setting, workers, say
        )
        attempts.append(attempt)
        hold = hold.doubled(workers, say) if needs_more else None
    return replace(found, attempts=tuple(attempts), setting=setting), cost
