"""The page of a dispute: who was first, and the table that it follows from."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import timbermark
from timbermark.report.judgment_page import stamps_table
from timbermark.report.pages import (
    Commands,
    Notes,
    Page,
    Part,
    Section,
    Table,
    capitalized,
    facts,
)
from timbermark.report.verdict_page import install_lines
from timbermark.verification import words

if TYPE_CHECKING:
    from timbermark.verification.disputes import Dispute, PartyFinding

_SIDES = ("first", "second")


def describe(dispute: Dispute) -> Page:
    """Return the page of what `timbermark judge --against` found."""
    headline = "it is undecided who was first"
    if dispute.owner is not None:
        headline = f"{dispute.owner} was first"
    sections = [_marks_section(dispute)]
    sections += [_party_section(party) for party in dispute.parties]
    if dispute.notes:
        sections.append(Section("Notes", (Notes(tuple(words.say_notes(dispute.notes))),)))
    sections.append(_recompute_section(dispute))
    return Page(
        what="dispute between two claims",
        headline=capitalized(headline),
        lead=tuple(capitalized(words.say(words.REASONS, reason)) for reason in dispute.reasons),
        figures=tuple(
            (party.first_seen or "no time", f"of the claim of {party.owner}, by a verified stamp")
            for party in dispute.parties
        ),
        sections=tuple(sections),
        version=timbermark.__version__,
    )


def _marks_section(dispute: Dispute) -> Section:
    owners = [party.owner for party in dispute.parties]
    rows = []
    for model in dict.fromkeys(cell.model for cell in dispute.cells):
        found = {cell.mark_of: cell for cell in dispute.cells if cell.model == model}
        shown = (
            f"{found[side].bits:.1f} ({found[side].level})" if side in found else "not asked"
            for side in ("first", "second")
        )
        rows.append((model, *shown))
    parts: list[Part] = [
        Table(
            "Bits of each side's mark in each model",
            ("model", *(f"mark of {owner} ({s})" for owner, s in zip(owners, _SIDES, strict=True))),
            tuple(rows),
        )
    ]
    shares = dispute.in_common.items()
    if shares:
        parts.append(
            Table(
                "Thresholds in common, columns matched by them: a fact that decides nothing",
                ("thresholds of", "found in", "share"),
                tuple((*pair.split(" | "), f"{share:.0%}") for pair, share in shares),
                texts=2,
            )
        )
    return Section(
        "Whose mark is in whose model",
        tuple(parts),
        (
            "A model that was taken from the first owner's and marked again carries both marks; "
            "the first owner's carries one.",
        ),
    )


def _party_section(party: PartyFinding) -> Section:
    claim = party.claim
    parts: list[Part] = [
        facts(
            ("owner", party.owner),
            ("evidence", f"refused: {party.refused}" if party.refused else "holds"),
            ("opened triggers are worth", f"{party.full_bits:.0f} bits at most"),
            ("claim, SHA-256", None if claim is None else claim.digest.hex()),
            ("made, by its own word", None if claim is None else claim.claimed),
            ("unmarked model, SHA-256", None if claim is None else claim.model_digest),
            ("marked model, SHA-256", None if claim is None else claim.marked_digest),
        )
    ]
    if party.stamps:
        parts.append(stamps_table(party.stamps))
    return Section(f"The {party.side} side", tuple(parts))


def _recompute_section(dispute: Dispute) -> Section:
    models = {cell.model for cell in dispute.cells}
    words = ["timbermark", "judge", "a-evidence", "--claim", "a.claim"]
    for name in ("unmarked", "marked"):
        if f"first {name}" in models:
            words += [f"--{name}", f"a-{name}.model"]
    words += ["--against", "b-evidence", "--against-claim", "b.claim"]
    for name in ("unmarked", "marked"):
        if f"second {name}" in models:
            words += [f"--against-{name}", f"b-{name}.model"]
    if "suspect" in models:
        words += ["--suspect", "disputed.model"]
    if any(stamp.counts for party in dispute.parties for stamp in party.stamps):
        words += ["--roots", "authority.pem"]
    lines = (*install_lines(timbermark.__version__, "[stamps]"), shlex.join(words))
    return Section("How to recompute it", (Commands(lines),))
