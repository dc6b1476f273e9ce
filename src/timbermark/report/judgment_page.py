"""The page of a judgment. The opened triggers are known to the judge, so the answers are shown."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from timbermark.report.pages import Commands, Notes, Page, Section, Table, capitalized, facts
from timbermark.report.verdict_page import (
    digest_lines,
    evidence_section,
    figures_of,
    headline_of,
    install_lines,
    lead_of,
    mark_facts,
    suspect_facts,
    suspect_path,
)
from timbermark.verification import words

if TYPE_CHECKING:
    from timbermark.verification.judge import Judgment
    from timbermark.verification.stamps import StampCheck

_MOST_ANSWERS = 512


def describe(judgment: Judgment) -> Page:
    """Return the page of what `timbermark judge` found about one suspect."""
    verdict, opening = judgment.verdict, judgment.opening
    seen = judgment.first_seen
    sections = [
        evidence_section(verdict, verdict.curve),
        _claim_section(judgment),
        Section(
            "What was checked",
            (
                Notes(
                    tuple(capitalized(words.say(words.CHECKS, check)) for check in judgment.checks)
                ),
            ),
            (
                "All of this was derived again from the files. If one of these did not hold, there "
                "would be no verdict.",
            ),
        ),
        Section(
            "The suspect",
            (
                suspect_facts(verdict),
                facts(
                    ("asked", judgment.asked),
                    (
                        "by whom",
                        "by this judge"
                        if judgment.asked_again
                        else "taken from the transcript in the pack",
                    ),
                    ("the claimed model itself", _is_claimed(judgment)),
                ),
            ),
        ),
        Section("The mark", (mark_facts(verdict),)),
    ]
    if judgment.references:
        sections.append(_second_opinion(judgment))
    warnings = [words.say(words.WARNINGS, note) for note in verdict.warnings]
    remarks = (*words.say_notes(judgment.notes), *warnings)
    if remarks:
        sections.append(Section("Notes", (Notes(remarks),)))
    sections += [_answers_section(judgment), _recompute_section(judgment)]
    return Page(
        what=f"judgment for {opening.judge}",
        headline=headline_of(verdict),
        level=judgment.level,
        lead=lead_of(verdict),
        figures=(
            *figures_of(verdict),
            (seen or "no time", "at which the claim existed, by a verified time stamp"),
        ),
        sections=tuple(sections),
        version=verdict.version,
    )


def stamps_table(stamps: tuple[StampCheck, ...]) -> Table:
    """Return what the time stamps of a claim are worth."""
    return Table(
        "Time stamps of the claim",
        ("status", "time", "authority", "reason"),
        tuple(
            (s.status, s.time or "", s.authority, words.STAMP_REASONS.get(s.reason, ""))
            for s in stamps
        ),
        texts=4,
    )


def _claim_section(judgment: Judgment) -> Section:
    claim, opening = judgment.claim, judgment.opening
    shown = facts(
        ("owner", claim.owner),
        ("made, by its own word", claim.claimed),
        ("SHA-256", claim.digest.hex()),
        ("signed with the key", claim.key.hex()),
        ("SHA-256 of the marked model", claim.marked_digest),
        ("opened", f"{opening.n_opened} of {claim.n_triggers} triggers, for {opening.judge}"),
        ("SHA-256 of the opening", opening.digest.hex()),
    )
    if not judgment.stamps:
        return Section("The claim", (shown,), ("No time stamp shows when the claim was made.",))
    return Section("The claim", (shown, stamps_table(judgment.stamps)))


def _second_opinion(judgment: Judgment) -> Section:
    rows = [(r.kind, f"{r.bits:.1f}", f"{r.matched} of {r.trials}") for r in judgment.references]
    verdict = judgment.verdict
    rows.append(("the suspect", f"{verdict.bits:.1f}", f"{verdict.matched} of {verdict.trials}"))
    return Section(
        "Second opinion",
        (
            Table(
                "Evidence in models that were trained on the judge's own rows, and in the suspect",
                ("model", "bits", "matches"),
                tuple(rows),
                marked=(len(rows) - 1,),
            ),
        ),
        ("These models have nothing to do with the mark: they show what innocence looks like.",),
    )


def _answers_section(judgment: Judgment) -> Section:
    verdict, places = judgment.verdict, judgment.opening.places
    table = verdict.table()
    rows = tuple(
        (
            str(places[answer.trigger]),
            answer.seal,
            _show(answer.expected),
            "nothing" if answer.response is None else _show(answer.response),
            "yes" if answer.matched else "no",
        )
        for answer in table[:_MOST_ANSWERS]
    )
    text = [
        "The opened triggers were shown to the judge, so these answers are no secret to the judge; "
        "whoever else sees them learns which answers to avoid. Give this page to nobody who may "
        "not see the opening."
    ]
    if len(table) > len(rows):
        text.append(f"These are the first {len(rows)} of {len(table)}; transcript.json has all.")
    return Section(
        "The answers",
        (
            Table(
                "What the mark asks for and what the suspect's answers say: labels in leaves, in "
                "splits the end of the gap that the middle is answered like",
                ("place in the mark", "seal", "asked for", "answered", "match"),
                rows,
                texts=5,
                marked=tuple(i for i, row in enumerate(rows) if row[4] == "no"),
            ),
        ),
        tuple(text),
    )


def _recompute_section(judgment: Judgment) -> Section:
    verdict = judgment.verdict
    name = shlex.quote(judgment.opening.judge)
    again = f"timbermark judge evidence --claim model.claim --for {name}"
    roots = " --roots authority.pem" if any(s.counts for s in judgment.stamps) else ""
    lines = (
        *install_lines(verdict.version, "[stamps]" if judgment.stamps else ""),
        "# from the pack alone, offline; its answers are weighed again:",
        f"timbermark judge pack.zip{roots}",
        "# asking the suspect again:",
        *digest_lines(verdict),
        f"{again} --suspect {shlex.quote(suspect_path(verdict))}{roots}",
    )
    return Section(
        "How to recompute it",
        (Commands(lines),),
        (
            "Compare the claim's SHA-256 with that of the claim as its owner published it. The "
            "formulae are in docs/mark-format.md and docs/claim-format.md, completely enough to "
            "write a program of one's own.",
        ),
    )


def _is_claimed(judgment: Judgment) -> str:
    found = judgment.is_marked_model
    if found is None or judgment.verdict.context.through != "file":
        return "not known, because no file of a model was asked"
    return "yes, it is the very file that the claim names" if found else "no, it is another file"


def _show(answer: object) -> str:
    return f"{answer:.6g}" if isinstance(answer, float) else str(answer)
