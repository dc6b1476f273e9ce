"""What was found in a dispute: plain results that everything else only shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from timbermark.ownership.claim import Claim
from timbermark.ownership.stamps import StampCheck, first_time
from timbermark.ownership.statistics import Level, level
from timbermark.reportable import Reportable
from timbermark.verification.judgments import describe_claim, describe_stamp

Side: TypeAlias = Literal["first", "second"]
Winner: TypeAlias = Literal["first", "second", "undecided"]

SIDES: tuple[Side, Side] = ("first", "second")


@dataclass(frozen=True, slots=True)
class PartyFinding:
    """What was found about one side."""

    side: Side
    owner: str
    claim: Claim | None
    stamps: tuple[StampCheck, ...] = ()
    refused: str = ""  # why its evidence does not hold; empty if it does
    full_bits: float = 0.0  # what the opened triggers are worth at most

    @property
    def first_seen(self) -> str | None:
        """Return the earliest verified time of its claim, None if there is none."""
        return first_time(self.stamps)


@dataclass(frozen=True, slots=True)
class Cell:
    """How much of one side's mark is in one model."""

    mark_of: Side
    model: str  # "first unmarked", "first marked", "second unmarked", "second marked", "suspect"
    bits: float

    @property
    def level(self) -> Level:
        """Return the level of evidence of the bits."""
        return level(self.bits)


@dataclass(frozen=True, slots=True)
class Dispute(Reportable):
    """Who was first, and why, with the table that it follows from."""

    parties: tuple[PartyFinding, PartyFinding]
    cells: tuple[Cell, ...]
    # "A | B": the share of A that is made of trees of B; of two sides' models, the larger share
    kinship: Mapping[str, float] = field(default_factory=dict)
    winner: Winner = "undecided"
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def owner(self) -> str | None:
        """Return the name of the side that was first; None if that is undecided."""
        return None if self.winner == "undecided" else self.parties[SIDES.index(self.winner)].owner

    def to_dict(self) -> dict[str, Any]:
        """Return the whole result, ready for JSON."""
        return {
            "winner": self.winner,
            "owner": self.owner,
            "reasons": list(self.reasons),
            "parties": [
                {
                    "side": party.side,
                    "owner": party.owner,
                    "claim": None if party.claim is None else describe_claim(party.claim),
                    "claim_digest": None if party.claim is None else party.claim.digest.hex(),
                    "stamps": [describe_stamp(stamp) for stamp in party.stamps],
                    "first_seen": party.first_seen,
                    "refused": party.refused,
                }
                for party in self.parties
            ],
            "table": [
                {"mark_of": c.mark_of, "model": c.model, "bits": c.bits, "level": c.level}
                for c in self.cells
            ],
            "kinship": dict(self.kinship),
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        lines = [
            "undecided: the evidence does not show who was first"
            if self.owner is None
            else f"{self.owner} was first"
        ]
        lines += [f"  because {reason}" for reason in self.reasons]
        for party in self.parties:
            seen = party.first_seen or "no verified time stamp"
            lines.append(f"{party.side} ({party.owner}): {party.refused or seen}")
        models = list(dict.fromkeys(cell.model for cell in self.cells))
        if models:
            width = max(map(len, models)) + 2
            lines.append(f"{'bits of the mark of':{width}}" + f"{'first':>12}{'second':>12}")
            for model in models:
                bits = {cell.mark_of: cell.bits for cell in self.cells if cell.model == model}
                shown = (f"{bits[side]:.1f}" if side in bits else "-" for side in SIDES)
                lines.append(f"{model:{width}}" + "".join(f"{text:>12}" for text in shown))
        for pair, share in self.kinship.items():
            model, _, source = pair.partition(" | ")
            lines.append(f"trees of {source} in {model}: {share:.0%}")
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])
