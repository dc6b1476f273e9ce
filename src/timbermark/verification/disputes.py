"""Disputes: two parties claim the same model. Whose mark is in whose model, and who was first?

Only the first owner's marked model carries one mark; a model that was taken from it and marked
again carries both. So each party hands over the unmarked and the marked model that its claim names,
and the judge looks for both marks in all of them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from timbermark.errors import InputError, TimbermarkError
from timbermark.ownership.claim import Claim
from timbermark.ownership.opening import OpenedMark
from timbermark.ownership.stamps import StampCheck, check_stamps, read_roots
from timbermark.verification.dispute_results import SIDES, Cell, Dispute, PartyFinding, Side
from timbermark.verification.dispute_rules import decide
from timbermark.verification.judging_claims import find_parts
from timbermark.verification.kinship import compare_models
from timbermark.verification.models import NamedModel, name_model
from timbermark.verification.packs import Pack, read_pack
from timbermark.verification.verifying import verify


@dataclass(frozen=True, slots=True)
class Party:
    """One side's evidence, as given: claim and opening, and the models that the claim names."""

    evidence: str | os.PathLike[str] | Pack
    claim: Claim | str | os.PathLike[str] | None = None
    unmarked: Any = None  # the model before marking, or its file
    marked: Any = None  # the marked model, or its file


def judge_dispute(
    first: Party,
    second: Party,
    *,
    suspect: Any = None,
    judge_name: str | None = None,
    roots: Sequence[bytes] = (),
) -> Dispute:
    """Decide between two claims on one model.

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
    >>> memory = dict(zip(mark.triggers[:, 0], mark.expected, strict=True))
    >>> print(judge_dispute(ann, bob, suspect=lambda X: [memory[x] for x in X[:, 0]]).reasons[0])
    the suspect carries the mark of Ann and not the other
    """
    read_roots(roots)  # what is wrong with these is nobody's fault but the judge's
    given = zip(SIDES, (first, second), strict=True)
    held = [_hear(side, party, judge_name, roots) for side, party in given]
    one, two = held
    claims = [heard.finding.claim for heard in held]
    if None not in claims and len({claim.digest for claim in claims if claim}) == 1:
        raise InputError("Both sides bring the same claim.", hint="give the other party's.")
    models: dict[str, Any] = {**one.models, **two.models}
    if suspect is not None:
        models["suspect"] = suspect
    opened = {"first": one.opened, "second": two.opened}
    cells, notes = _fill_table(opened, models)
    trees = _read_trees(models)
    kinship = _compare_trees(trees)
    parties = (one.finding, two.finding)
    winner, reasons = decide(parties, cells, kinship, _find_side(trees.get("suspect"), parties))
    notes = [*one.notes, *two.notes, *notes]
    return Dispute(parties, tuple(cells), kinship, winner, tuple(reasons), tuple(notes))


@dataclass(frozen=True, slots=True)
class _Heard:
    """What one side brought, as far as it holds."""

    finding: PartyFinding
    opened: OpenedMark | None
    models: dict[str, Any]
    notes: tuple[str, ...]


def _hear(side: Side, party: Party, judge_name: str | None, roots: Sequence[bytes]) -> _Heard:
    """Check one side's evidence; a failed check becomes a reason of the result, not an error."""
    claim: Claim | None = None
    opened, stamps, refused = None, tuple[StampCheck, ...](), ""
    try:
        pack = party.evidence if isinstance(party.evidence, Pack) else read_pack(party.evidence)
        given = party.claim
        published = Claim.load(given) if isinstance(given, str | os.PathLike) else given
        claim, opening = find_parts(pack, published)
        stamps = check_stamps(claim, roots, strict=False)
        opened = opening.check(claim, judge_name)
    except TimbermarkError as error:
        refused = error.message
    # The models of a side that is refused may still carry the other's mark.
    models, notes = ({}, []) if claim is None else _named_models(side, party, claim)
    owner = "unknown" if claim is None else claim.owner
    worth = 0.0 if opened is None else opening.full_bits
    finding = PartyFinding(side, owner, claim, stamps, refused, worth)
    return _Heard(finding, opened, models, tuple(notes))


def _named_models(side: Side, party: Party, claim: Claim) -> tuple[dict[str, Any], list[str]]:
    """Return the models of one side that its claim names, and notes about the others."""
    models: dict[str, Any] = {}
    notes = []
    for kind, model, wanted in (
        ("unmarked", party.unmarked, claim.model_digest),
        ("marked", party.marked, claim.marked_digest),
    ):
        if model is None:
            continue
        try:
            found = name_model(model).digest
        except TimbermarkError as error:
            notes.append(f"The {kind} model of {claim.owner} is left out: {error.message}")
            continue
        if found != wanted:
            notes.append(
                f"The {kind} model that {claim.owner} hands over is left out: it is not the one "
                "that the claim names."
            )
            continue
        models[f"{side} {kind}"] = model
    return models, notes


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


def _read_trees(models: Mapping[str, Any]) -> dict[str, NamedModel]:
    """Return the trees of all models that show them; an endpoint or a function has none to show."""
    trees = {}
    for name, model in models.items():
        try:
            trees[name] = name_model(model)
        except (TimbermarkError, TypeError):
            continue
    return trees


def _find_side(
    suspect: NamedModel | None, parties: tuple[PartyFinding, PartyFinding]
) -> Side | None:
    """Return the side whose claim names the suspect as a model of its own, if there is one."""
    for party in parties:
        claim = party.claim
        if suspect and claim and suspect.digest in (claim.marked_digest, claim.model_digest):
            return party.side
    return None


def _compare_trees(models: Mapping[str, NamedModel]) -> dict[str, float]:
    """Return which share of a model is made of trees of another, for models of different sides."""
    kinds = ("marked", "unmarked")
    sides = [(f"first {one}", f"second {two}") for one in kinds for two in kinds]
    suspects = [("suspect", f"{side} marked") for side in SIDES]
    trees = {name: model.trees for name, model in models.items()}
    # Both models of a side have nearly the same thresholds, so that those of one are enough.
    sources = {
        f"{side} {kind}": f"{side} {kinds[f'{side} marked' not in trees]}"
        for side in SIDES
        for kind in kinds
    }
    found = compare_models(trees, [*sides, *suspects], sources)
    shares = {f"{a} | {b}": found[a, b].largest for a, b in sides if (a, b) in found}
    for a, b in suspects:
        if (a, b) in found:
            shares[f"{a} | {b}"] = found[a, b].of_first
            shares[f"{b} | {a}"] = found[a, b].of_second
    return shares
