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
    Table,
    capitalized,
    chance_in_words,
    chance_of,
    facts,
)
from timbermark.report.plots import Curve, evidence_plot
from timbermark.verification import words
from timbermark.verification.verdict import printable

if TYPE_CHECKING:
    from timbermark.verification.verdict import Verdict

_MOST_STEPS, _FEWEST_AT_ONCE = 24, 4
_LONGEST_SHOWN = 2000


def describe(verdict: Verdict) -> Page:
    """Return the page of what `timbermark verify` found."""
    sections = [
        evidence_section(verdict, blur_curve(verdict.curve)),
        Section("The suspect", (suspect_facts(verdict),)),
        Section("The mark", (mark_facts(verdict),)),
    ]
    if verdict.warnings:
        said = tuple(words.say(words.WARNINGS, note) for note in verdict.warnings)
        sections.append(Section("Warnings", (Notes(said),)))
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
        headline=headline_of(verdict),
        level=verdict.level,
        lead=lead_of(verdict),
        figures=figures_of(verdict),
        sections=tuple(sections),
        version=verdict.version,
    )


def headline_of(verdict: Verdict) -> str:
    """Return what was found, in one sentence."""
    return capitalized(words.FINDINGS[verdict.level].format(owner=verdict.owner))


def lead_of(verdict: Verdict) -> tuple[str, ...]:
    """Return what the level means, and on what conditions."""
    conditions = words.list_conditions(verdict) if verdict.level != "none" else []
    return (words.say_meaning(verdict), *conditions)


def figures_of(verdict: Verdict) -> tuple[tuple[str, str], ...]:
    """Return the key figures at the head of the page."""
    return (
        (f"{verdict.bits:.1f} bits", "of evidence"),
        (chance_of(verdict.bits), "chance of coincidence, at most"),
        *(
            (
                f"{seal.matched} of {seal.counted}",
                f"symbols in {seal.seal} match; chance gives about {seal.counted / seal.q:.0f}",
            )
            for seal in verdict.seals
            if seal.counted
        ),
    )


def evidence_section(verdict: Verdict, curve: Curve) -> Section:
    """Return how much evidence there is and where it comes from."""
    rows: list[tuple[str, str | None]] = [
        ("from", f"{verdict.kind} of {verdict.answered} of {verdict.trials} triggers"),
        ("before prices", f"{verdict.raw_bits:.1f} bits"),
        *(
            ("minus", f"{price.bits:.1f} bits for {words.say_price(price)}")
            for price in verdict.prices
        ),
        ("evidence", f"{verdict.bits:.1f} bits"),
        ("levels", "none below 20 bits, indicative from 20, conclusive from 64"),
    ]
    parts: list[Part] = [facts(*rows), seals_table(verdict)]
    if curve:
        parts.append(evidence_plot(curve))
    return Section("The evidence", tuple(parts), (chance_in_words(verdict.bits),))


def seals_table(verdict: Verdict) -> Table:
    """Return what each seal of the mark shows; together they are worth what is stated above."""
    return Table(
        "Evidence of each seal of the mark, before prices",
        ("seal", "bits", "triggers", "answered", "tell a symbol", "match", "by chance"),
        tuple(
            (
                seal.seal,
                f"{seal.bits:.1f}",
                *map(str, (seal.triggers, seal.answered, seal.counted, seal.matched)),
                f"{seal.counted / seal.q:.0f}",
            )
            for seal in verdict.seals
        ),
    )


def suspect_facts(verdict: Verdict) -> Facts:
    """Return the facts about the suspect and how it was asked."""
    context = verdict.context
    return facts(
        ("suspect", verdict.suspect),
        ("asked through", words.say_through(verdict)),
        ("columns matched", context.columns.replace("-", " ")),
        ("answers read", words.say_reading(context.reading)),
        ("SHA-256 of its file", verdict.suspect_digest),
        *(
            (f"request: {name.replace('_', ' ')}", _show_request(value))
            for name, value in context.request.items()
        ),
    )


def _show_request(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else ""
    said = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    return printable(said)[:_LONGEST_SHOWN]


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
    kind, _, path = verdict.suspect.partition(" ")
    is_named = kind in ("file", "answers") and verdict.suspect_digest is not None
    return path if is_named or kind == "endpoint" else "SUSPECT"


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
    by_hand = any(price.code == "kind" for price in verdict.prices)
    answers = f" --answers {verdict.kind}" if by_hand else ""
    return (
        *install_lines(verdict.version),
        *digest_lines(verdict),
        f"timbermark verify {path} secret.mark{answers}",
    )
