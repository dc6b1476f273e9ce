"""Disputes: two parties claim the same model. Whose mark is in whose model, and who was first?

Each party hands over the unmarked and the marked model that its claim names, and the judge looks
for both marks in all of them. The rules, in their order; the first that answers decides:

1. A side whose unmarked model is the other's marked model, by its digest, is second, if that
   model carries the other's mark, conclusively: digests stand in public claims, and anybody can
   claim a digest.
2. A side whose unmarked model carries the other's mark, conclusively, is second; if both do, the
   dispute is undecided.
3. A side whose marked model carries the other's mark, conclusively, is second, unless the other's
   does likewise.
4. A claim whose own marked model lacks its mark, far below its full bits, proves nothing: the
   other side is first if its mark is found in the suspect.
5. If the suspect carries both marks, the earlier verified time stamp decides; if it carries one,
   that side is first unless the other's verified time stamp is earlier, or the suspect is the very
   model that it claims.
6. Otherwise the dispute is undecided.

A side whose evidence does not hold has no mark to find, nor has one that brings the mark of a
guard, whose symbols can be fitted to any model. Opening few triggers counts against whoever does
it: a mark that cannot be found conclusively is found nowhere. Thresholds in common are shown as a
fact and decide nothing.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np

from timbermark.errors import EvidenceError, InputError, TimbermarkError
from timbermark.ownership.claim import Claim
from timbermark.ownership.evidence import CONCLUSIVE_BITS, INDICATIVE_BITS, Level, level
from timbermark.ownership.opening import OpenedMark
from timbermark.reportable import Reportable
from timbermark.trees.ensemble import Ensemble
from timbermark.trees.ensemble import digest as digest_trees
from timbermark.verification.judge import find_parts
from timbermark.verification.packs import Pack, read_pack
from timbermark.verification.refusals import refusal
from timbermark.verification.stamps import StampCheck, check_stamps, first_time, read_roots
from timbermark.verification.suspects import name_model
from timbermark.verification.transcript import Note
from timbermark.verification.verifying import verify

Side: TypeAlias = Literal["first", "second"]
Winner: TypeAlias = Literal["first", "second", "undecided"]

SIDES: tuple[Side, Side] = ("first", "second")
_LACKS = 0.25
"""A model lacks a mark if fewer than this share of its full bits, and fewer than 20, are found."""
_MOST_COLUMNS = 500
"""Columns that are compared, those with most thresholds first."""
_FEWEST_THRESHOLDS = 8
"""Thresholds of a column below which two columns are not compared: few ones agree by chance."""


@dataclass(frozen=True, slots=True)
class Party:
    """One side's evidence, as given: claim and opening, and the models that the claim names."""

    evidence: str | os.PathLike[str] | Pack
    claim: Claim | str | os.PathLike[str] | None = None
    unmarked: Any = None  # the model before marking, or its file
    marked: Any = None  # the marked model, or its file


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
    # "A | B": the share of A's thresholds that B has, too, columns matched by their thresholds
    in_common: Mapping[str, float] = field(default_factory=dict)
    winner: Winner = "undecided"
    reasons: tuple[Note, ...] = ()
    notes: tuple[Note, ...] = ()

    @property
    def owner(self) -> str | None:
        """Return the name of the side that was first; None if that is undecided."""
        return None if self.winner == "undecided" else self.parties[SIDES.index(self.winner)].owner

    def to_dict(self) -> dict[str, Any]:
        """Return the whole result, ready for JSON; ``words`` are for people."""
        from timbermark.verification import words

        return {
            "winner": self.winner,
            "owner": self.owner,
            "reasons": [reason.to_dict() for reason in self.reasons],
            "parties": [
                {
                    "side": party.side,
                    "owner": party.owner,
                    "claim": None if party.claim is None else party.claim.to_dict()["statement"],
                    "claim_digest": None if party.claim is None else party.claim.digest.hex(),
                    "stamps": [asdict(stamp) for stamp in party.stamps],
                    "first_seen": party.first_seen,
                    "refused": party.refused,
                    "full_bits": round(party.full_bits, 3),
                }
                for party in self.parties
            ],
            "table": [{**asdict(cell), "level": cell.level} for cell in self.cells],
            "in_common": dict(self.in_common),
            "notes": [note.to_dict() for note in self.notes],
            "words": {
                "reasons": [words.say(words.REASONS, reason) for reason in self.reasons],
                "notes": words.say_notes(self.notes),
            },
        }

    def __str__(self) -> str:
        from timbermark.verification import words

        return words.show_dispute(self)

    def __repr__(self) -> str:
        sides = " and ".join(repr(party.owner) for party in self.parties)
        return f"Dispute(between {sides}, first: {self.winner})"


def judge_dispute(
    first: Party,
    second: Party,
    *,
    suspect: Any = None,
    judge: str | None = None,
    roots: Sequence[bytes] = (),
) -> Dispute:
    """Decide between two claims on one model; the rules are those at the head of this module.

    A side whose evidence does not hold is refused, with the reason. A model that is not the one its
    claim names is left out, with a note. ``suspect`` is the model that both claim, if it is not one
    of theirs. The other arguments are those of `timbermark.judge`.

    Raises InputError if both sides bring the same claim or a root certificate cannot be read.

    >>> import numpy as np
    >>> from timbermark import Mark, OwnerKey, open_mark
    >>> def evidence(owner):
    ...     key = OwnerKey.generate()
    ...     mark = Mark.make(
    ...         key, owner=owner, model_digest="0" * 64, classes=[0, 1],
    ...         triggers=np.arange(100.0)[:, None], alphabets=[[0, 1]] * 100,
    ...         reference=np.full((100, 2), 0.5),
    ...     )
    ...     claim = Claim.make(mark, key, marked_digest="1" * 64)
    ...     return mark, Party(Pack(owner, claim, open_mark(mark, claim, judge="J", share=1.0)))
    >>> (mark, ann), (_, bob) = evidence("Ann"), evidence("Bob")
    >>> memory = dict(zip(mark.rows()[:, 0], mark.expected, strict=True))
    >>> judge_dispute(ann, bob, suspect=lambda X: [memory[x] for x in X[:, 0]]).owner
    'Ann'
    """
    read_roots(roots)  # what is wrong with these is nobody's fault but the judge's
    given = zip(SIDES, (first, second), strict=True)
    held = [_hear(side, party, judge, roots) for side, party in given]
    one, two = held
    claims = [heard.finding.claim for heard in held]
    if None not in claims and len({claim.digest for claim in claims if claim}) == 1:
        raise refusal("dispute.same-claim")
    models: dict[str, Any] = {**one.models, **two.models}
    if suspect is not None:
        models["suspect"] = suspect
    cells, notes = _fill_table({"first": one.opened, "second": two.opened}, models)
    parties = (one.finding, two.finding)
    trees = {**one.trees, **two.trees}
    with suppress(TimbermarkError, TypeError, OSError):  # endpoints and functions have none
        trees["suspect"] = name_model(suspect).trees
    known = trees.get("suspect")
    winner, reasons = decide(parties, cells, None if known is None else digest_trees(known))
    return Dispute(
        parties,
        tuple(cells),
        _compare_thresholds(trees),
        winner,
        tuple(reasons),
        (*one.notes, *two.notes, *notes),
    )


Decision: TypeAlias = tuple[Winner, list[Note]]


def decide(
    parties: tuple[PartyFinding, PartyFinding], cells: Sequence[Cell], suspect: str | None = None
) -> Decision:
    """Return which side was first, or "undecided", and the reasons.

    ``suspect``: the digest of the suspect's trees, if it has any to show.

    >>> ann, bob = PartyFinding("first", "Ann", None), PartyFinding("second", "Bob", None)
    >>> decide((ann, bob), [])[0]
    'undecided'
    """
    bits = {(cell.mark_of, cell.model): cell.bits for cell in cells}

    def carries(model: str, side: Side) -> bool:
        return bits.get((side, model), 0.0) >= CONCLUSIVE_BITS

    one, two = parties
    pairs = ((one, two), (two, one))
    facts = [Note("refused", {"owner": p.owner, "why": p.refused}) for p in parties if p.refused]
    facts += [
        Note("opened-too-little", {"owner": p.owner, "bits": p.full_bits})
        for p in parties
        if not p.refused and p.full_bits < CONCLUSIVE_BITS
    ]
    if len([p for p in parties if p.refused]) == 2:
        return "undecided", [Note("both-refused"), *facts]
    for owner, other in pairs:
        same = owner.claim and other.claim and owner.claim.marked_digest == other.claim.model_digest
        if same and carries(f"{owner.side} marked", owner.side):
            names = {"owner": owner.owner, "other": other.owner}
            return owner.side, [Note("same-model", names), *facts]
    for kind in ("unmarked", "marked"):
        found = [(a, b) for a, b in pairs if carries(f"{b.side} {kind}", a.side)]
        if len(found) == 2:
            return "undecided", [Note("each-other"), *facts]
        if found:
            owner, other = found[0]
            names = {"owner": owner.owner, "other": other.owner}
            return owner.side, [Note(f"{kind}-carries", names), *facts]
    inside = [party for party in parties if carries("suspect", party.side)]
    for owner, other in pairs:
        model = (other.side, f"{other.side} marked")
        lacks = model in bits and bits[model] < min(INDICATIVE_BITS, _LACKS * other.full_bits)
        if lacks and not other.refused:
            facts.append(Note("own-missing", {"owner": other.owner}))
            if inside == [owner]:
                return owner.side, [Note("suspect-carries", {"owner": owner.owner}), *facts]
    if len(inside) == 2:
        return _by_time(parties, facts)
    if inside:
        owner = inside[0]
        other = two if owner is one else one
        earlier = other.first_seen and (not owner.first_seen or other.first_seen < owner.first_seen)
        said = Note("suspect-carries", {"owner": owner.owner})
        if earlier and not other.refused:
            time = Note("earlier-stamp", {"owner": other.owner, "time": other.first_seen})
            return "undecided", [said, time, *facts]
        if owner.claim and suspect == owner.claim.marked_digest:
            return "undecided", [Note("own-model", {"owner": owner.owner}), *facts]
        return owner.side, [said, *facts]
    return "undecided", [Note("nothing-in-common"), *facts]


def _by_time(parties: tuple[PartyFinding, PartyFinding], facts: list[Note]) -> Decision:
    one, two = parties
    both = Note("suspect-carries-both")
    if one.first_seen is None or two.first_seen is None:
        return "undecided", [both, Note("no-stamps"), *facts]
    if one.first_seen == two.first_seen:
        return "undecided", [both, Note("same-time"), *facts]
    first = one if one.first_seen < two.first_seen else two
    time = {"owner": first.owner, "time": first.first_seen}
    return first.side, [both, Note("earlier-stamp", time), *facts]


@dataclass(frozen=True, slots=True)
class _Heard:
    """What one side brought, as far as it holds."""

    finding: PartyFinding
    opened: OpenedMark | None
    models: dict[str, Any] = field(default_factory=dict)
    trees: dict[str, Ensemble] = field(default_factory=dict)
    notes: tuple[Note, ...] = ()


def _hear(side: Side, party: Party, judge: str | None, roots: Sequence[bytes]) -> _Heard:
    """Check one side's evidence; a failed check becomes a reason of the result, not an error."""
    claim: Claim | None = None
    opened, stamps, refused, worth = None, tuple[StampCheck, ...](), "", 0.0
    try:
        pack = party.evidence if isinstance(party.evidence, Pack) else read_pack(party.evidence)
        given = party.claim
        published = Claim.load(given) if isinstance(given, str | os.PathLike) else given
        claim, opening = find_parts(pack, published)
        stamps = check_stamps(claim, roots)
        held = opening.check(claim, judge)
        if held.is_guard:  # whose owner can fit questions and symbols to any model
            raise refusal("dispute.guard", EvidenceError)
        opened, worth = held, opening.full_bits
    except TimbermarkError as error:
        refused = error.message
    # The models of a side that is refused may still carry the other's mark.
    if claim is None:
        return _Heard(PartyFinding(side, "unknown", None, stamps, refused, worth), opened)
    finding = PartyFinding(side, claim.owner, claim, stamps, refused, worth)
    return _Heard(finding, opened, *_named_models(side, party, claim))


def _named_models(
    side: Side, party: Party, claim: Claim
) -> tuple[dict[str, Any], dict[str, Ensemble], tuple[Note, ...]]:
    """Return the models of one side that its claim names, their trees, and notes about others."""
    models, trees, notes = dict[str, Any](), dict[str, Ensemble](), []
    for kind, model, wanted in (
        ("unmarked", party.unmarked, claim.model_digest),
        ("marked", party.marked, claim.marked_digest),
    ):
        if model is None:
            continue
        try:
            named = name_model(model)
            why = "" if named.digest == wanted else "not-the-named"
        except TimbermarkError as error:
            why = error.message
        if why:
            notes.append(Note("left-out", {"which": kind, "owner": claim.owner, "why": why}))
            continue
        models[f"{side} {kind}"], trees[f"{side} {kind}"] = model, named.trees
    return models, trees, tuple(notes)


def _fill_table(
    opened: Mapping[str, OpenedMark | None], models: Mapping[str, Any]
) -> tuple[list[Cell], list[Note]]:
    cells, notes = [], []
    for name, model in models.items():
        for side in SIDES:
            mark = opened[side]
            if mark is None:
                continue
            try:
                bits = verify(model, mark).bits
            except InputError as error:
                # Another task, other columns: then the mark is not in it.
                facts = {"side": side, "model": name, "why": error.message}
                notes.append(Note("cannot-ask", facts))
                bits = 0.0
            cells.append(Cell(side, name, bits))
    return cells, notes


def _compare_thresholds(trees: Mapping[str, Ensemble]) -> dict[str, float]:
    """Return which share of one model's thresholds another has, for models of different sides."""
    known = {name: _list_thresholds(one) for name, one in trees.items()}
    pairs = [
        (a, b)
        for a in known
        for b in known
        if a != b and a.split()[0] != b.split()[0] and "unmarked" not in b
    ]
    return {f"{a} | {b}": round(share_of_thresholds(known[a], known[b]), 3) for a, b in pairs}


def _list_thresholds(trees: Ensemble) -> list[set[float]]:
    """Return the distinct thresholds of each column that a model splits, in single precision."""
    numeric = (trees.left >= 0) & (trees.category_set < 0) & np.isfinite(trees.threshold)
    features, values = trees.feature[numeric], trees.threshold[numeric]
    with np.errstate(over="ignore"):
        values = values.astype(np.float32)
    order = np.argsort(features, kind="stable")
    _, starts = np.unique(features[order], return_index=True)
    columns = [set(part.tolist()) for part in np.split(values[order], starts[1:])]
    return sorted(columns, key=len, reverse=True)[:_MOST_COLUMNS]


def share_of_thresholds(one: Sequence[set[float]], other: Sequence[set[float]]) -> float:
    """Return the share of one model's thresholds that another has, columns matched by them.

    Columns may have been renamed or permuted, so each column goes with the one that has most of its
    thresholds. Columns with few thresholds count for nothing.

    >>> share_of_thresholds([set(range(10))], [set(), set(range(5, 20))])
    0.5
    """
    counted = [column for column in one if len(column) >= _FEWEST_THRESHOLDS]
    total = sum(map(len, counted))
    if not total:
        return 0.0
    having: dict[float, list[int]] = {}
    for place, theirs in enumerate(other):
        for value in theirs:
            having.setdefault(value, []).append(place)
    found = 0
    for column in counted:
        places = Counter(place for value in column for place in having.get(value, ()))
        found += max(places.values(), default=0)
    return found / total
