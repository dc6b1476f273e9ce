"""Who was first: the rules by which a table of marks in models decides a dispute.

The rules trust neither words nor times alone. A claim names its marked model, so a mark that is in
another model says little unless the trees are those of the named one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from timbermark.ownership.statistics import CONCLUSIVE_BITS
from timbermark.verification.dispute_results import Cell, PartyFinding, Side, Winner

KINSHIP = 0.3
"""From this share of common trees on, two models have a common origin."""
MOST, NEARLY_ALL, TRACE = 0.5, 0.9, 0.25
"""Shares of a suspect that come from one side; below a trace, trees agree by chance."""

Decision = tuple[Winner, list[str]]


def decide(
    parties: tuple[PartyFinding, PartyFinding],
    cells: Sequence[Cell],
    kinship: Mapping[str, float],
    suspect_is: Side | None = None,
) -> Decision:
    """Return which side was first, or "undecided", and the reasons.

    ``kinship`` has, for "A | B", the share of the model A that is made of trees of B.
    ``suspect_is`` is the side whose claim names the suspect as a model of its own.

    >>> ann, bob = PartyFinding("first", "Ann", None), PartyFinding("second", "Bob", None)
    >>> decide((ann, bob), [], {})[0]
    'undecided'
    """
    table = _Table(parties, cells, kinship, suspect_is)
    for rule in _RULES:
        found = rule(table)
        if found is not None:
            return found
    return "undecided", ["no model carries the other side's mark: they are different models"]


@dataclass(frozen=True, slots=True)
class _Table:
    parties: tuple[PartyFinding, PartyFinding]
    cells: Sequence[Cell]
    kinship: Mapping[str, float]
    suspect_is: Side | None

    def carries(self, model: str, mark_of: Side) -> bool:
        """Return whether a mark is conclusively in a model."""
        return any(
            cell.level == "conclusive"
            for cell in self.cells
            if (cell.model, cell.mark_of) == (model, mark_of)
        )

    def has(self, model: str) -> bool:
        """Return whether a model was handed over."""
        return any(cell.model == model for cell in self.cells)

    def rival(self, party: PartyFinding) -> PartyFinding:
        """Return the other side."""
        return self.parties[1] if party is self.parties[0] else self.parties[0]

    def reaches(self, party: PartyFinding) -> bool:
        """Return whether a side's mark is in a model that is not its own.

        Its own marked model carries its mark whatever it was made from.
        """
        rival = self.rival(party).side
        places = [f"{rival} unmarked", f"{rival} marked"]
        if self.suspect_is != party.side:
            places.append("suspect")
        return any(self.carries(model, party.side) for model in places)

    def earlier(self) -> tuple[PartyFinding | None, str]:
        """Return the side whose claim was stamped first, by verified stamps, and the reason."""
        one, two = self.parties
        if one.first_seen == two.first_seen:
            return None, "no verified time stamps show which claim was there first"
        if one.first_seen is None or two.first_seen is None:
            stamped = one if two.first_seen is None else two
            rival = self.rival(stamped)
            why = f"only the claim of {stamped.owner} has a verified time stamp: "
            why += str(stamped.first_seen)
            if rival.stamps:
                why += (
                    f"; the time stamps of {rival.owner} were not verified: if their authority can "
                    "be trusted, its root certificate must be given"
                )
            return stamped, why
        first = one if one.first_seen < two.first_seen else two
        return first, f"the claim of {first.owner} was stamped first: {first.first_seen}"


def _by_refusal(table: _Table) -> Decision | None:
    refused = [party for party in table.parties if party.refused]
    if not refused:
        return None
    if len(refused) == 2:
        return "undecided", ["neither side's evidence holds"]
    (lost,) = refused
    kept = table.rival(lost)
    reason = f"the evidence of the {lost.side} side is refused: {lost.refused}"
    if table.reaches(kept):
        return kept.side, [reason, f"that of {kept.owner} holds, and the mark is there"]
    return "undecided", [
        reason, f"the mark of {kept.owner} was found in no model but its own either"
    ]  # fmt: skip


def _by_strength(table: _Table) -> Decision | None:
    weak = [party for party in table.parties if party.full_bits < CONCLUSIVE_BITS]
    if not weak:
        return None
    return "undecided", [
        f"the opened triggers of {party.owner} are worth {party.full_bits:.0f} bits at most: more "
        "of them must be opened"
        for party in weak
    ]


def _by_same_mark(table: _Table) -> Decision | None:
    """Decide between claims of two keys on one mark: whoever saw an opening can sign the second."""
    one, two = (party.claim for party in table.parties)
    if one is None or two is None or one.mark_digest != two.mark_digest or one.key == two.key:
        return None
    first, why = table.earlier()
    return "undecided" if first is None else first.side, [
        "both claims are about the same mark and signed with different keys: one of them was made "
        "by somebody who saw the other's opening",
        why,
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
    if len(empty) == 1 and table.reaches(other):
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
    if "unmarked" not in where and not table.has(f"{owner.side} marked"):
        return "undecided", [reason, f"{owner.owner} handed over no marked model"]
    return owner.side, [reason, f"no model of {owner.owner} carries the mark of {rival_owner}"]


def _by_time(table: _Table) -> Decision | None:
    """Decide between models with the same trees of which neither carries the other's mark."""
    shares = [share for pair, share in table.kinship.items() if "suspect" not in pair]
    if not shares or max(shares) < KINSHIP:
        return None
    reason = (
        f"the models have {max(shares):.0%} of their trees in common, but neither carries the "
        "other's mark: one was washed out"
    )
    first, why = table.earlier()
    return "undecided" if first is None else first.side, [reason, why]


def _by_suspect(table: _Table) -> Decision | None:
    """Decide by the marks in the disputed model, and by whose trees it is made of."""
    inside = [party for party in table.parties if table.carries("suspect", party.side)]
    if not inside:
        return None
    found = (
        "the suspect carries both marks"
        if len(inside) == 2
        else f"the suspect carries the mark of {inside[0].owner} and not the other"
    )
    if table.suspect_is is not None:
        owner = next(p.owner for p in table.parties if p.side == table.suspect_is)
        return "undecided", [
            found,
            f"the suspect is the very model that {owner} claims, which shows nothing about where "
            "it came from",
        ]
    shares = {
        party.side: table.kinship.get(f"suspect | {party.side} marked") for party in table.parties
    }
    if not any(share is not None for share in shares.values()):
        return "undecided", [
            found,
            "whether the mark was there before the model was taken shows in its trees alone: the "
            "file of the suspect and the marked models of both sides must be compared",
        ]
    for party in table.parties:
        rival = table.rival(party)
        if _is_made_from(table, party, inside):
            own, other = shares[party.side], shares[rival.side]
            return party.side, [
                found,
                f"{own:.0%} of the suspect are trees of the marked model of {party.owner}"
                + ("" if other is None else f", and {other:.0%} are trees of that of {rival.owner}")
                + (": the other mark was added later" if rival in inside else ""),
            ]
    return "undecided", [
        found,
        "; ".join(
            f"{party.owner} handed over no marked model with trees"
            if shares[party.side] is None
            else f"{shares[party.side]:.0%} of the suspect are trees of the marked model of "
            f"{party.owner}"
            for party in table.parties
        ),
    ]


def _is_made_from(table: _Table, party: PartyFinding, inside: Sequence[PartyFinding]) -> bool:
    """Return whether the suspect is made from one side's marked model and not from the other's.

    Where the other's mark is in it, too, nearly all of its trees must be from that side, and the
    other's model must be there to compare: an average of two models belongs to neither.
    """
    rival = table.rival(party)
    own = table.kinship.get(f"suspect | {party.side} marked", 0.0)
    pairs = (f"suspect | {rival.side} marked", f"{rival.side} marked | suspect")
    # Trees that somebody adds drown the other's share of the suspect, not their share of his.
    traces = [table.kinship[pair] for pair in pairs if pair in table.kinship]
    if any(share >= TRACE for share in traces):
        return False
    if list(inside) == [party]:
        return own >= MOST
    return own >= NEARLY_ALL and len(traces) > 0


_RULES = (
    _by_refusal,
    _by_strength,
    _by_same_mark,
    _by_own_mark,
    _by_foreign_mark,
    _by_time,
    _by_suspect,
)
"""In the order in which they are asked; the first that answers decides."""
