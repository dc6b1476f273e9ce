"""Disputes: two parties claim the same model. Whose mark is in whose model, and who was first?

Only the first owner's marked model carries one mark; a model that was taken from it and marked
again carries both. So each party hands over the unmarked and the marked model that its claim names,
and the judge looks for both marks in all of them.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal, TypeAlias

from timbermark.errors import EvidenceError, InputError, TimbermarkError
from timbermark.ownership.claim import Claim
from timbermark.ownership.opening import OpenedMark
from timbermark.ownership.stamps import StampCheck, check_stamps, first_time, read_roots
from timbermark.ownership.statistics import CONCLUSIVE_BITS, Level, level
from timbermark.trees.ensemble import Ensemble
from timbermark.verification.judging import find_parts
from timbermark.verification.judgments import describe_claim, describe_stamp
from timbermark.verification.models import name_model
from timbermark.verification.packs import Pack, read_pack
from timbermark.verification.verifying import verify

Side: TypeAlias = Literal["first", "second"]
Winner: TypeAlias = Literal["first", "second", "undecided"]

SIDES: tuple[Side, Side] = ("first", "second")
KINSHIP = 0.5
"""From this share of common trees on, one model was made from the other."""


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
        """The earliest verified time of its claim."""
        return first_time(self.stamps)


@dataclass(frozen=True, slots=True)
class Cell:
    """How much of one side's mark is in one model."""

    mark_of: Side
    model: str  # "first unmarked", "first marked", "second unmarked", "second marked", "suspect"
    bits: float

    @property
    def level(self) -> Level:
        """What the bits are good for."""
        return level(self.bits)


@dataclass(frozen=True, slots=True)
class Dispute:
    """Who was first, and why, with the table that it follows from."""

    parties: tuple[PartyFinding, PartyFinding]
    cells: tuple[Cell, ...]
    kinship: Mapping[str, float] = field(default_factory=dict)  # "A | B": share of common trees
    winner: Winner = "undecided"
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return all of it, ready for JSON."""
        return {
            "winner": self.winner,
            "owner": None if self.winner == "undecided" else self._party(self.winner).owner,
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
        if self.winner == "undecided":
            lines = ["undecided: the evidence does not show who was first"]
        else:
            lines = [f"{self._party(self.winner).owner} was first"]
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
        lines += [f"trees in common, {pair}: {share:.0%}" for pair, share in self.kinship.items()]
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])

    def _party(self, side: Side) -> PartyFinding:
        return self.parties[SIDES.index(side)]


def judge_dispute(
    first: Party,
    second: Party,
    *,
    suspect: Any = None,
    judge_name: str | None = None,
    roots: Sequence[bytes] = (),
) -> Dispute:
    """Decide between two claims on one model.

    Evidence that does not hold, a model that is not the one its claim names, a stamp of another
    claim: the side that brought it is refused, with the reason. ``suspect`` is the model that both
    claim, if it is not one of theirs. The other arguments are those of `timbermark.judge`.

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
    >>> memory = dict(zip(mark.triggers[:, 0], mark.expected, strict=True))
    >>> print(judge_dispute(ann, bob, suspect=lambda X: [memory[x] for x in X[:, 0]]).reasons[0])
    the suspect carries the mark of Ann and not the other
    """
    read_roots(roots)  # what is wrong with these is nobody's fault but the judge's
    given = zip(SIDES, (first, second), strict=True)
    held = [_hear(side, party, judge_name, roots) for side, party in given]
    (one, opened_one, models_one), (two, opened_two, models_two) = held
    if one.claim is not None and two.claim is not None and one.claim.digest == two.claim.digest:
        raise InputError("Both sides bring the same claim.", hint="give the other party's.")
    models: dict[str, Any] = {**models_one, **models_two}
    if suspect is not None:
        models["suspect"] = suspect
    opened = {"first": opened_one, "second": opened_two}
    cells, notes = _fill_table(opened, models)
    kinship = _compare_trees(models)
    winner, reasons = _decide((one, two), cells, kinship)
    return Dispute((one, two), tuple(cells), kinship, winner, tuple(reasons), tuple(notes))


_Heard: TypeAlias = tuple[PartyFinding, OpenedMark | None, dict[str, Any]]


def _hear(side: Side, party: Party, judge_name: str | None, roots: Sequence[bytes]) -> _Heard:
    claim: Claim | None = None
    try:
        pack = party.evidence if isinstance(party.evidence, Pack) else read_pack(party.evidence)
        given = party.claim
        published = Claim.load(given) if isinstance(given, str | os.PathLike) else given
        claim, opening = find_parts(pack, published)
        stamps = check_stamps(claim, roots)
        opened = opening.check(claim, judge_name)
        models = _named_models(side, party, claim)
    except TimbermarkError as error:
        owner = "unknown" if claim is None else claim.owner
        return PartyFinding(side, owner, claim, (), error.message), None, {}
    return PartyFinding(side, claim.owner, claim, stamps, "", opened.full_bits), opened, models


def _named_models(side: Side, party: Party, claim: Claim) -> dict[str, Any]:
    """Return the models of one side, each of which is the one that its claim names."""
    models: dict[str, Any] = {}
    for kind, model, wanted in (
        ("unmarked", party.unmarked, claim.model_digest),
        ("marked", party.marked, claim.marked_digest),
    ):
        if model is None:
            continue
        if name_model(model).digest != wanted:
            raise EvidenceError(
                f"The {kind} model that {claim.owner} hands over is not the one that the claim "
                "names.",
                hint="ask for the model of the claim.",
            )
        models[f"{side} {kind}"] = model
    return models


def _fill_table(
    opened: Mapping[str, OpenedMark | None], models: Mapping[str, Any]
) -> tuple[list[Cell], list[str]]:
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
                why = error.message
                notes.append(f"The {side} mark cannot be asked of the {name} model: {why}")
                bits = 0.0
            cells.append(Cell(side, name, bits))
    return cells, notes


def _compare_trees(models: Mapping[str, Any]) -> dict[str, float]:
    """Return the share of trees in common for each pair of models of different sides."""
    trees: dict[str, Ensemble] = {}
    for name, model in models.items():
        try:
            trees[name] = name_model(model).trees
        except (TimbermarkError, TypeError):
            continue  # an endpoint or a function has no trees to show
    shapes = {name: _tree_shapes(ensemble) for name, ensemble in trees.items()}
    pairs = [("first marked", "second marked"), ("first marked", "second unmarked"),
             ("first unmarked", "second marked"), ("first unmarked", "second unmarked"),
             ("suspect", "first marked"), ("suspect", "second marked")]  # fmt: skip
    return {
        f"{a} | {b}": _share_in_common(shapes[a], shapes[b])
        for a, b in pairs
        if a in shapes and b in shapes
    }


def _tree_shapes(trees: Ensemble) -> list[bytes]:
    """Return a digest of the splits of each tree that has any; leaf values do not count."""
    columns = (trees.feature, trees.threshold, trees.left, trees.right)
    found = []
    for start, end in pairwise(trees.tree_start.tolist()):
        if end - start >= 3:
            parts = (column[start:end].tobytes() for column in columns)
            found.append(hashlib.sha256(b"".join(parts)).digest())
    return found


def _share_in_common(one: list[bytes], other: list[bytes]) -> float:
    fewer, more = sorted((one, other), key=len)
    if not fewer:
        return 0.0
    known = set(more)
    return sum(shape in known for shape in fewer) / len(fewer)


def _decide(
    parties: tuple[PartyFinding, PartyFinding],
    cells: Sequence[Cell],
    kinship: Mapping[str, float],
) -> tuple[Winner, list[str]]:
    one, two = parties
    if one.refused or two.refused:
        if one.refused and two.refused:
            return "undecided", ["neither side's evidence holds"]
        lost, kept = (one, two) if one.refused else (two, one)
        return kept.side, [f"the evidence of the {lost.side} side is refused: {lost.refused}"]
    weak = [party for party in parties if party.full_bits < CONCLUSIVE_BITS]
    if weak:
        return "undecided", [
            f"the opened triggers of {party.owner} are worth {party.full_bits:.0f} bits at most: "
            "more of them must be opened"
            for party in weak
        ]
    has = {(cell.mark_of, cell.model): cell.level == "conclusive" for cell in cells}

    def carries(model: str, mark_of: Side) -> bool:
        return has.get((mark_of, model), False)

    empty = [
        party for party in parties
        if (party.side, f"{party.side} marked") in has
        and not carries(f"{party.side} marked", party.side)
    ]  # fmt: skip
    if len(empty) == 1:
        other = two if empty[0] is one else one
        return other.side, [
            f"the marked model that {empty[0].owner} claims does not carry the mark of the claim"
        ]
    taken = [
        party for party, rival in ((one, two), (two, one))
        if carries(f"{rival.side} marked", party.side)
        or carries(f"{rival.side} unmarked", party.side)
    ]  # fmt: skip
    if len(taken) == 1:
        (owner,) = taken
        rival = two if owner is one else one
        where = "even before it was marked" if carries(
            f"{rival.side} unmarked", owner.side
        ) else "marked"  # fmt: skip
        reasons = [
            f"the model of {rival.owner}, {where}, carries the mark of {owner.owner}",
            f"no model of {owner.owner} carries the mark of {rival.owner}",
        ]
        if f"{owner.side} marked" not in {cell.model for cell in cells}:
            return "undecided", [*reasons[:1], f"{owner.owner} handed over no marked model"]
        return owner.side, reasons
    return _decide_by_suspect(parties, carries, kinship, both=len(taken) == 2)


def _decide_by_suspect(
    parties: tuple[PartyFinding, PartyFinding],
    carries: Any,
    kinship: Mapping[str, float],
    both: bool,
) -> tuple[Winner, list[str]]:
    one, two = parties
    if both:
        return "undecided", ["each side's models carry the other's mark"]
    inside = [party for party in parties if carries("suspect", party.side)]
    if len(inside) == 1:
        (owner,) = inside
        return owner.side, [f"the suspect carries the mark of {owner.owner} and not the other"]
    shares = {party.side: kinship.get(f"suspect | {party.side} marked", 0.0) for party in parties}
    kin = [party for party in parties if shares[party.side] >= KINSHIP]
    if inside and len(kin) == 1:
        (owner,) = kin
        rival = two if owner is one else one
        return owner.side, [
            "the suspect carries both marks",
            f"the suspect shares {shares[owner.side]:.0%} of its trees with the marked model of "
            f"{owner.owner}, and {shares[rival.side]:.0%} with that of {rival.owner}: the other "
            "mark was added later",
        ]
    if inside:
        return "undecided", [
            "the suspect carries both marks, and no model that was handed over shows which came "
            "first"
        ]
    between = [share for pair, share in kinship.items() if not pair.startswith("suspect")]
    if between and max(between) >= KINSHIP:
        return _decide_by_time(parties)
    return "undecided", ["no model carries the other side's mark: they are different models"]


def _decide_by_time(parties: tuple[PartyFinding, PartyFinding]) -> tuple[Winner, list[str]]:
    """Decide between models with the same trees of which neither carries the other's mark."""
    reason = (
        "the models have trees in common, but neither carries the other's mark: one was washed out"
    )
    times = [party.first_seen for party in parties]
    if times[0] is None or times[1] is None or times[0] == times[1]:
        return "undecided", [reason, "no verified time stamps show which model was there first"]
    earlier = parties[0] if times[0] < times[1] else parties[1]
    return earlier.side, [
        reason,
        f"the claim of {earlier.owner}, which names that model, was stamped first: "
        f"{earlier.first_seen}",
    ]
