"""Who was first: the rules by which a table of marks in models decides a dispute.

The rules trust neither words nor times alone. A claim names its marked model, so a mark that is in
another model says little unless the trees are those of the named one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from timbermark.ownership.statistics import CONCLUSIVE_BITS
from timbermark.verification.dispute_results import Cell, PartyFinding, Side, Winner

KINSHIP = 0.5
"""From this share of common trees on, one model was made from the other."""

Decision = tuple[Winner, list[str]]


def decide(
    parties: tuple[PartyFinding, PartyFinding],
    cells: Sequence[Cell],
    kinship: Mapping[str, float],
) -> Decision:
    """Return which side was first, or "undecided", and the reasons.

    >>> ann, bob = PartyFinding("first", "Ann", None), PartyFinding("second", "Bob", None)
    >>> decide((ann, bob), [], {})[0]
    'undecided'
    """
    table = _Table(parties, cells, kinship)
    for rule in (_by_refusal, _by_strength, _by_own_mark, _by_foreign_mark, _by_time, _by_suspect):
        found = rule(table)
        if found is not None:
            return found
    return "undecided", ["no model carries the other side's mark: they are different models"]


@dataclass(frozen=True, slots=True)
class _Table:
    parties: tuple[PartyFinding, PartyFinding]
    cells: Sequence[Cell]
    kinship: Mapping[str, float]

    def carries(self, model: str, mark_of: Side) -> bool:
        """Whether a mark is conclusively in a model."""
        return any(
            cell.level == "conclusive"
            for cell in self.cells
            if (cell.model, cell.mark_of) == (model, mark_of)
        )

    def has(self, model: str) -> bool:
        """Whether a model was handed over."""
        return any(cell.model == model for cell in self.cells)

    def rival(self, party: PartyFinding) -> PartyFinding:
        return self.parties[1] if party is self.parties[0] else self.parties[0]

    def stands(self, party: PartyFinding) -> bool:
        """Whether a side's mark is in anything: its own marked model or the suspect."""
        places = (f"{party.side} marked", "suspect")
        return any(self.carries(model, party.side) for model in places)


def _by_refusal(table: _Table) -> Decision | None:
    refused = [party for party in table.parties if party.refused]
    if not refused:
        return None
    if len(refused) == 2:
        return "undecided", ["neither side's evidence holds"]
    (lost,) = refused
    kept = table.rival(lost)
    reason = f"the evidence of the {lost.side} side is refused: {lost.refused}"
    if table.stands(kept):
        return kept.side, [reason, f"that of {kept.owner} holds, and the mark is there"]
    return "undecided", [reason, f"the mark of {kept.owner} was found in no model either"]


def _by_strength(table: _Table) -> Decision | None:
    weak = [party for party in table.parties if party.full_bits < CONCLUSIVE_BITS]
    if not weak:
        return None
    return "undecided", [
        f"the opened triggers of {party.owner} are worth {party.full_bits:.0f} bits at most: more "
        "of them must be opened"
        for party in weak
    ]


def _by_own_mark(table: _Table) -> Decision | None:
    """Decide against a claim whose own marked model does not carry its mark."""
    empty = [
        party
        for party in table.parties
        if table.has(f"{party.side} marked")
        and not table.carries(f"{party.side} marked", party.side)
    ]
    if not empty:
        return None
    reasons = [
        f"the marked model that {party.owner} claims does not carry the mark of the claim"
        for party in empty
    ]
    other = table.rival(empty[0])
    if len(empty) == 1 and table.stands(other):
        return other.side, reasons
    return "undecided", reasons


def _by_foreign_mark(table: _Table) -> Decision | None:
    """Decide for the side whose mark is in the other's models, and not the reverse."""
    taken = []
    for party in table.parties:
        rival = table.rival(party).side
        where = [
            name for name in ("unmarked", "marked") if table.carries(f"{rival} {name}", party.side)
        ]
        if where:
            taken.append((party, where))
    if not taken:
        return None
    if len(taken) == 2:
        return "undecided", ["each side's models carry the other's mark"]
    ((owner, where),) = taken
    rival_owner = table.rival(owner).owner
    how = "even before it was marked" if "unmarked" in where else "marked"
    reason = f"the model of {rival_owner}, {how}, carries the mark of {owner.owner}"
    if not table.has(f"{owner.side} marked"):
        return "undecided", [reason, f"{owner.owner} handed over no marked model"]
    return owner.side, [reason, f"no model of {owner.owner} carries the mark of {rival_owner}"]


def _by_time(table: _Table) -> Decision | None:
    """Decide between models with the same trees of which neither carries the other's mark."""
    shares = [share for pair, share in table.kinship.items() if not pair.startswith("suspect")]
    if not shares or max(shares) < KINSHIP:
        return None
    reason = (
        "the models have trees in common, but neither carries the other's mark: one was washed out"
    )
    times = [party.first_seen for party in table.parties]
    if times[0] is None or times[1] is None or times[0] == times[1]:
        return "undecided", [reason, "no verified time stamps show which model was there first"]
    earlier = table.parties[0] if times[0] < times[1] else table.parties[1]
    return earlier.side, [
        reason,
        f"the claim of {earlier.owner}, which names that model, was stamped first: "
        f"{earlier.first_seen}",
    ]


def _by_suspect(table: _Table) -> Decision | None:
    """Decide by the marks in the disputed model, and by whose trees it has."""
    inside = [party for party in table.parties if table.carries("suspect", party.side)]
    if not inside:
        return None
    found = (
        "the suspect carries both marks"
        if len(inside) == 2
        else f"the suspect carries the mark of {inside[0].owner} and not the other"
    )
    shares = {
        party.side: table.kinship.get(f"suspect | {party.side} marked") for party in table.parties
    }
    kin = [party for party in table.parties if (shares[party.side] or 0.0) >= KINSHIP]
    if len(kin) == 1 and None not in shares.values():
        (owner,) = kin
        rival = table.rival(owner)
        return owner.side, [
            found,
            f"the suspect shares {shares[owner.side]:.0%} of its trees with the marked model of "
            f"{owner.owner}, and {shares[rival.side]:.0%} with that of {rival.owner}"
            + (": the other mark was added later" if rival in inside else ""),
        ]
    if len(inside) == 1 and kin in ([], inside):
        return inside[0].side, [found]
    return "undecided", [found, "no model that was handed over shows which came first"]
