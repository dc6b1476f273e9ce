"""Plan: what a mark would be and cost, by making one with a throwaway key and closing no model."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from timbermark.boosting.progress import step_bar
from timbermark.kernels.workers import Workers, count_threads
from timbermark.marking.budget import Budget
from timbermark.marking.cost import Cost
from timbermark.marking.embedding import Choices, describe, draft_mark, draw_seals, worth
from timbermark.marking.rehearsing import Attempt
from timbermark.marking.strengths import Strength
from timbermark.marking.words import Note, show_result
from timbermark.ownership.keys import OwnerKey
from timbermark.ownership.mark import Mark


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """What :func:`timbermark.embed` would do with the same arguments.

    The fields are those of `timbermark.marking.embedding.EmbedResult`; ``mark`` is a throwaway one.
    """

    mark: Mark
    cost: Cost
    bits: float
    label_bits: float | None
    seals: Mapping[str, float]
    n_set: int
    strength: Strength | None
    attempts: tuple[Attempt, ...]
    use: Mapping[str, float]
    notes: tuple[Note, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return describe(self.mark, self)

    def __str__(self) -> str:
        return show_result(worth(self.mark, self.bits, self.label_bits), self.cost, self.notes)

    def __repr__(self) -> str:
        return f"Plan({worth(self.mark, self.bits, self.label_bits)})"


def plan(
    model: Any,
    X: Any,
    y: Any = None,
    *,
    seals: str = "both",
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
    progress: bool = False,
) -> Plan:
    """Return what a mark would be and cost, by marking trees that are then thrown away.

    The arguments are those of :func:`timbermark.embed`. Raises InputError where no mark fits.

    >>> from sklearn.datasets import load_breast_cancer
    >>> from timbermark import TimberClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = TimberClassifier(max_iter=60, random_state=0).fit(X, y)
    >>> plan(model, X, y).bits > 64
    True
    """
    choices = Choices(seals, budget or Budget(), triggers, n_triggers, alphabet, lead, weak)
    with Workers(count_threads(None)) as workers, step_bar(int(progress)) as say:
        draft = draft_mark(
            model, X, y, groups, candidates, validation, choices, random_state, workers, say
        )
        # One seed gives one plan: the key and the mark's identity follow from it.
        drawn = hashlib.sha256(f"timbermark/plan/{random_state}".encode()).digest()
        identity = drawn[:16], "2000-01-01T00:00:00Z"
        found = draw_seals(draft, OwnerKey(drawn), "plan", workers, say, identity)
    return Plan(
        found.mark, found.cost, found.bits, found.label_bits, found.seals, found.n_set,
        found.strength, found.attempts, found.use, found.notes,
    )  # fmt: skip
