"""Disputes: two parties claim the same model. Whose mark is in whose model, and who was first?

Only the first owner's marked model carries one mark; a model that was taken from it and marked
again carries both. So each party hands over the unmarked and the marked model that its claim names,
and the judge looks for both marks in all of them.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

from timbermark.errors import EvidenceError, InputError, TimbermarkError
from timbermark.ownership.claim import Claim
from timbermark.ownership.opening import OpenedMark
from timbermark.ownership.stamps import check_stamps, read_roots
from timbermark.trees.ensemble import Ensemble
from timbermark.verification.dispute_rules import decide
from timbermark.verification.dispute_results import SIDES, Cell, Dispute, PartyFinding, Side
from timbermark.verification.judging import find_parts
from timbermark.verification.models import name_model
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
    winner, reasons = decide((one, two), cells, kinship)
    return Dispute((one, two), tuple(cells), kinship, winner, tuple(reasons), tuple(notes))


_Heard: TypeAlias = tuple[PartyFinding, OpenedMark | None, dict[str, Any]]


def _hear(side: Side, party: Party, judge_name: str | None, roots: Sequence[bytes]) -> _Heard:
    claim: Claim | None = None
    try:
        pack = party.evidence if isinstance(party.evidence, Pack) else read_pack(party.evidence)
        given = party.claim
        published = Claim.load(given) if isinstance(given, str | os.PathLike) else given
        claim, opening = find_parts(pack, published)
        stamps = check_stamps(claim, roots, strict=False)
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
