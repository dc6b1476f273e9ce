"""What `timbermark embed` and `timbermark plan` tell: the strength of a mark, and plain facts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from timbermark.marking.budget import NEED_TARGETS

if TYPE_CHECKING:
    from timbermark.marking.budget import Budget
    from timbermark.marking.embedding import EmbedResult
    from timbermark.marking.planning import Plan
    from timbermark.marking.rehearsing import Attempt


def strength_line(made: EmbedResult | Plan, budget: Budget) -> str:
    """Return how strong a mark is, how much of the limits it uses, and what was not judged."""
    strength = made.strength
    used = [
        f"{name} {share:.0%}"
        for name, share in sorted(made.attempts[-1].use.items(), key=lambda item: -item[1])
    ]
    skipped = not_judged(made, budget)
    labels = made.cost.answers == "labels"
    what = ("triggers", "labels") if labels else ("pairs of rows", "levels")
    line = f"strength: {strength.k} {what[0]}, {strength.q} {what[1]} each, lead {strength.lead:g}"
    if used:
        line += f"\nused of the limits: {', '.join(used)}"
    if skipped:
        line += f"\nnot judged: {', '.join(skipped)} (needs labelled rows: --label)"
    return line


def not_judged(made: EmbedResult | Plan, budget: Budget) -> list[str]:
    """Return the limits that are set but had no labels to be judged by."""
    used = made.attempts[-1].use
    return [
        name
        for name in NEED_TARGETS[made.cost.task]
        if getattr(budget, name) is not None and name not in used
    ]


def _attempt_facts(attempts: Sequence[Attempt]) -> list[dict[str, Any]]:
    return [
        {
            "triggers": attempt.strength.k,
            "alphabet": attempt.strength.q,
            "lead": attempt.strength.lead,
            "set": attempt.n_set,
            "used": attempt.use,
        }
        for attempt in attempts
    ]


def _common_facts(made: EmbedResult | Plan) -> dict[str, Any]:
    return {
        "bits": made.bits,
        "triggers": made.strength.k,
        "set": made.n_set,
        "alphabet": made.strength.q,
        "lead": made.strength.lead,
        "attempts": _attempt_facts(made.attempts),
        "cost": made.cost.to_dict(),
        "notes": [note.to_dict() for note in made.notes],
    }


def plan_facts(found: Plan) -> dict[str, Any]:
    """Return a plan as plain values."""
    more = {"usable": found.usable, "matches_needed": found.matches_needed}
    return _common_facts(found) | more


def embed_facts(result: EmbedResult) -> dict[str, Any]:
    """Return a marking as plain values, nothing of which is secret."""
    return _common_facts(result) | {
        "draws": result.mark.draws,
        "owner": result.mark.owner,
        "mark_id": result.mark.mark_id.hex(),
        "mark_digest": result.mark.digest.hex(),
        "model_digest": result.mark.model_digest,
    }
