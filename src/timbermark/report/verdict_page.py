"""The page of a verdict. Nothing in it is secret: neither triggers nor the answers to them."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from timbermark.report.pages import (
    Commands,
    Facts,
    Notes,
    Page,
    Part,
    Section,
    capitalized,
    chance_in_words,
    chance_of,
    facts,
)
from timbermark.report.plots import Curve, evidence_plot

if TYPE_CHECKING:
    from timbermark.ownership.verdict import Verdict

_MOST_STEPS, _FEWEST_AT_ONCE = 24, 4


def describe(verdict: Verdict) -> Page:
    """Return the page of what `timbermark verify` found."""
    sections = [
        evidence_section(verdict, blur_curve(verdict.curve)),
        Section("The suspect", (suspect_facts(verdict),)),
        Section("The mark", (mark_facts(verdict),)),
    ]
    if verdict.warnings:
        sections.append(Section("Warnings", (Notes(verdict.warnings),)))
    sections.append(
        Section(
            "How to recompute it",
            (Commands(_commands(verdict)),),
            (
                "Asking again takes the suspect and the secret mark, and gives the same bits if "
                "the suspect answers as it did.",
                "This page shows neither a question nor an answer, so that the mark stays good. To "
                "convince somebody else, open a part of the mark to a judge: timbermark open.",
            ),
        )
    )
    return Page(
        what="verdict",
        headline=capitalized(verdict.finding),
        level=verdict.level,
        lead=lead_of(verdict),
        figures=figures_of(verdict),
        sections=tuple(sections),
        version=verdict.version,
    )


def lead_of(verdict: Verdict) -> tuple[str, ...]:
    """Return what the level means, and on what condition."""
    condition = verdict.condition if verdict.level != "none" else ""
    return tuple(said for said in (verdict.meaning, condition) if said)


def figures_of(verdict: Verdict) -> tuple[tuple[str, str], ...]:
    """Return the key figures at the head of the page."""
    found = [
        (f"{verdict.bits:.1f} bits", "of evidence"),
        (chance_of(verdict.bits), "chance of coincidence, at most"),
    ]
    if verdict.matched is not None:
        found.append(
            (
                f"{verdict.matched} of {count_trials(verdict)}",
                f"answers match; chance gives about {count_trials(verdict) / verdict.q:.0f}",
            )
        )
    return tuple(found)


def count_trials(verdict: Verdict) -> int:
    """Return the number of triggers that count.

    Where asking may stop at any moment, those without an answer do not.
    """
    return verdict.trials if verdict.kind in ("labels", "numbers") else verdict.answered


def evidence_section(verdict: Verdict, curve: Curve) -> Section:
    """Return how much evidence there is and where it comes from."""
    rows: list[tuple[str, str | None]] = [
        ("from", f"{verdict.kind} of {verdict.answered} of {verdict.trials} triggers"),
        ("before prices", f"{verdict.raw_bits:.1f} bits"),
        *(("minus", f"{price.bits:.1f} bits for {price.reason}") for price in verdict.prices),
        ("evidence", f"{verdict.bits:.1f} bits"),
        ("levels", "none below 20 bits, indicative from 20, conclusive from 64"),
    ]
    parts: list[Part] = [facts(*rows)]
    if curve:
        parts.append(evidence_plot(curve))
    return Section("The evidence", tuple(parts), (chance_in_words(verdict.bits),))


def suspect_facts(verdict: Verdict) -> Facts:
    """Return the facts about the suspect and how it was asked."""
    return facts(
        ("suspect", verdict.suspect),
        ("asked through", verdict.asked_through),
        ("columns matched", verdict.columns),
        ("answers read", verdict.reading),
        ("SHA-256 of its file", verdict.suspect_digest),
    )


def mark_facts(verdict: Verdict) -> Facts:
    """Return the facts about the mark."""
    return facts(
        ("owner", verdict.owner),
        ("mark", verdict.mark_id),
        ("made, by its own word", verdict.created),
        ("SHA-256 of the mark without its secret", verdict.mark_digest),
        ("SHA-256 of the unmarked model", verdict.model_digest),
        ("timbermark", verdict.version),
    )


def suspect_path(verdict: Verdict) -> str:
    """Return the suspect as the command line takes it, as far as the verdict knows it."""
    if verdict.suspect.startswith(("http://", "https://")):
        return verdict.suspect
    kind, _, path = verdict.suspect.partition(" ")
    return path if kind in ("file", "answers") and verdict.suspect_digest else "SUSPECT"


def install_lines(version: str, extra: str = "") -> tuple[str, ...]:
    """Return the command that installs the version that a page was made with.

    >>> install_lines("0.1.0")
    ('pip install "timbermark==0.1.0"',)
    """
    return (f'pip install "timbermark{extra}=={version}"',)


def digest_lines(verdict: Verdict) -> tuple[str, ...]:
    """Return the command that shows whether a file is the suspect that was asked."""
    if verdict.suspect_digest is None:
        return ()
    return (f"sha256sum {shlex.quote(suspect_path(verdict))}   # {verdict.suspect_digest}",)


def blur_curve(curve: Curve) -> Curve:
    """Return a curve in steps of at least four questions, 24 at most.

    Whoever runs the suspect has a record of all questions; single steps could tell them which of
    those were triggers.

    >>> blur_curve([(n, float(n)) for n in range(1, 11)])
    [(4, 4.0), (8, 8.0), (10, 10.0)]
    """
    if not curve:
        return []
    step = max(_FEWEST_AT_ONCE, -(-curve[-1][0] // _MOST_STEPS))
    found: list[tuple[int, float]] = []
    for n, bits in curve[:-1]:
        if n >= (found[-1][0] if found else 0) + step:
            found.append((n, bits))
    return [*found, curve[-1]]


def _commands(verdict: Verdict) -> tuple[str, ...]:
    path = shlex.quote(suspect_path(verdict))
    answers = "" if verdict.kind != "labels" else " --answers labels"
    by_hand = any(price.reason.startswith("a kind of answers") for price in verdict.prices)
    return (
        *install_lines(verdict.version),
        *digest_lines(verdict),
        f"timbermark verify {path} secret.mark{answers if by_hand else ''}",
    )
