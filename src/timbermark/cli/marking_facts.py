"""What `timbermark embed` and `timbermark plan` tell: the strength of a mark, and plain facts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from timbermark.marking.budget import NEED_TARGETS

if TYPE_CHECKING:
    from timbermark.marking.budget import Budget
    from timbermark.marking.embedding import EmbedResult, Plan
    from timbermark.marking.rehearsing import Attempt


def strength_line(made: EmbedResult | Plan, budget: Budget) -> str:
    """Return how strong a mark is, how much of the limits it uses, and what was not judged."""
    parts = [f"{name} {bits:.0f} bits" for name, bits in made.seals.items()]
    strength = made.strength
    if strength is not None:
        parts.append(f"{strength.q} labels each in leaves, lead {strength.lead:.2g}")
    used = sorted(made.use.items(), key=lambda item: -item[1])
    lines = [f"strength: {', '.join(parts)}"]
    if used:
        said = ", ".join(f"{name} {share:.0%}" for name, share in used)
        lines.append(f"used of the limits: {said}")
    skipped = not_judged(made, budget)
    if skipped:
        lines.append(f"not judged: {', '.join(skipped)} (needs labelled rows: --label)")
    return "\n".join(lines)


def not_judged(made: EmbedResult | Plan, budget: Budget) -> list[str]:
    """Return the limits that are set but had no labels to be judged by."""
    used = made.use
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


def plan_facts(found: Plan) -> dict[str, Any]:
    """Return a plan as plain values."""
    return found.to_dict() | {"attempts": _attempt_facts(found.attempts)}


def embed_facts(result: EmbedResult) -> dict[str, Any]:
    """Return a marking as plain values, nothing of which is secret."""
    return result.to_dict() | {
        "attempts": _attempt_facts(result.attempts),
        "owner": result.mark.owner,
        "mark_id": result.mark.mark_id.hex(),
        "mark_digest": result.mark.digest.hex(),
        "model_digest": result.mark.model_digest,
    }
