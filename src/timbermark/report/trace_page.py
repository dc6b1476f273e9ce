"""The page of a trace: who is accused, on what evidence, and what it does not say."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from timbermark.report.pages import (
    Commands,
    Notes,
    Page,
    Part,
    Section,
    Table,
    capitalized,
    chance_of,
    facts,
)
from timbermark.report.verdict_page import (
    digest_lines,
    install_lines,
    suspect_facts,
    suspect_path,
)
from timbermark.tracing.tracing import LIMITS
from timbermark.verification import words

if TYPE_CHECKING:
    from timbermark.tracing.tracing import Trace

_MOST_SHOWN = 20


def describe(trace: Trace) -> Page:
    """Return the page of what `timbermark trace` found; it names customers."""
    asked = trace.asked
    sections = [
        _evidence(trace),
        Section("What this does not say", (Notes(LIMITS),)),
        Section("How it works", (Notes(_explain(trace)),)),
        Section("The suspect", (suspect_facts(asked),)),
        Section("The roll", (_roll_facts(trace),)),
    ]
    if asked.warnings:
        said = tuple(words.say(words.WARNINGS, note) for note in asked.warnings)
        sections.append(Section("Warnings", (Notes(said),)))
    roll = "customer.opening --claim roll.claim" if trace.accused else "secret.roll"
    sections.append(
        Section(
            "How to recompute it",
            (
                Commands(
                    (
                        *install_lines(asked.version),
                        *digest_lines(asked),
                        f"timbermark trace {shlex.quote(suspect_path(asked))} {roll}",
                    )
                ),
            ),
            (
                "This page shows neither a question nor an answer. To convince somebody else, open "
                "the part of the accused customer to a judge: timbermark roll open.",
            ),
        )
    )
    conditions = words.list_conditions(asked) if trace.level != "none" else []
    return Page(
        what="trace",
        headline=capitalized(trace.finding),
        level=trace.level,
        lead=(trace.meaning, *conditions),
        figures=_figures(trace),
        sections=tuple(sections),
        version=asked.version,
    )


def _figures(trace: Trace) -> tuple[tuple[str, str], ...]:
    best = trace.best
    found = [
        (f"{trace.bits:.1f} bits", "of evidence, after all prices"),
        (chance_of(trace.bits), "chance of accusing anybody wrongly, at most"),
    ]
    if best.matched is not None:
        found.append((f"{best.matched} of {best.counted}", "boundaries lie as in this copy"))
    return tuple(found)


def _evidence(trace: Trace) -> Section:
    rows: list[tuple[str, str | None]] = [
        ("from", f"{trace.kind} at {trace.answered} of {trace.n_boundaries} boundaries"),
        *(
            ("minus", f"{price.bits:.1f} bits for {words.say_price(price)}")
            for price in trace.prices
        ),
        ("levels", "none below 20 bits, indicative from 20, conclusive from 64"),
    ]
    if trace.group is not None:
        names = ", ".join(trace.group.names)
        rows.append(("at least one of", f"{names}: {trace.group.bits:.1f} bits"))
    shown = trace.customers[:_MOST_SHOWN]
    table: Part = Table(
        f"Evidence against each customer, {len(shown)} of {trace.n_customers}",
        ("customer", "bits", "level", "boundaries that match", "of"),
        tuple(
            (f.names[0], f"{f.bits:.1f}", f.level, str(f.matched), str(f.counted)) for f in shown
        ),
    )
    return Section("The evidence", (facts(*rows), table))


def _explain(trace: Trace) -> tuple[str, ...]:
    return (
        f"Every customer of {trace.owner} has a copy of one model. The copies give the same "
        "answers to nearly all rows, but at some places between two training values, called "
        "boundaries, each copy decides in its own way, drawn at random when the copy was made.",
        "The suspect was asked on both sides and in the middle of each boundary. How often it "
        "decides as a customer's copy does is compared with how often any other model would.",
        f"Twenty bits are one chance in a million, 64 bits one in 2·10¹⁹. The price of looking at "
        f"{trace.n_customers} customers is already subtracted.",
    )


def _roll_facts(trace: Trace) -> Part:
    asked = trace.asked
    return facts(
        ("owner", trace.owner),
        ("customers", str(trace.n_customers)),
        ("accused before a judge", trace.accused),
        ("judge", trace.judge),
        *(("time stamp of the claim", words.say_stamp(stamp)) for stamp in trace.stamps),
        ("roll", asked.mark_id),
        ("made, by its own word", asked.created),
        ("SHA-256 of its boundaries", asked.mark_digest),
        ("SHA-256 of the unmarked model", asked.model_digest),
    )
