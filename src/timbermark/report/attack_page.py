"""The page of an attack lab: what a thief keeps, and what evidence is left."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import timbermark
from timbermark.attacks.results import MEASURE_NAMES, draw_curves, explain, show_quality, tabulate
from timbermark.report import pages
from timbermark.report.pages import Page, Section, Table, section

if TYPE_CHECKING:
    from timbermark.attacks.results import AttackResult


def describe(result: AttackResult) -> Page:
    """Return the page of what `timbermark attack` found."""
    run = result.run
    notes = pages.note_section("Notes", explain(result) if result.notes else ())
    conclusive = sum(row.level == "conclusive" for row in run)
    shown, said = result.weakest, "after the attack that leaves least, whatever it costs the thief"
    if result.stealable:
        shown, said = result.worst, "after the worst attack that keeps half of the theft's worth"
    name = MEASURE_NAMES[result.measure]
    return Page(
        what="attacks on a marked model",
        headline=_headline(result),
        lead=(
            f"{result.n_attack} rows were used to attack with, {result.n_evaluation} others to "
            f"measure on. The thief's own model, from those rows alone, has an {name} of "
            f"{show_quality(result.own_quality)}; the stolen one has "
            f"{show_quality(result.untouched.quality or 0.0)}.",
        ),
        figures=(
            (f"{result.untouched.score_bits or 0.0:.0f} bits", "in the stolen model as it is"),
            ("–" if shown is None else f"{shown.score_bits or 0.0:.0f} bits", said),
            (f"{conclusive} of {len(run)}", "attacks leave conclusive evidence"),
        ),
        sections=(*survival_sections(result), *notes),
        version=timbermark.__version__,
    )


def survival_sections(result: AttackResult) -> tuple[Section, Section]:
    """Return the chart and the table of attacks."""
    rows = (result.untouched, *result.rows)
    low = tuple(
        i
        for i, row in enumerate(rows)
        if row.level == "none" and (row.pays or not result.stealable)
    )
    marked = (
        "attacks that leave no evidence and keep half of the theft's worth"
        if result.stealable
        else "attacks that leave no evidence; whether they pay is not defined"
    )
    head, *lines = tabulate(result)
    table = Table(
        f"Bits of evidence after each attack; marked are {marked}",
        head,
        tuple(lines),
        texts=2,
        marked=low,
    )
    return (
        section("What it survives", _explanation(result), _chart(result)),
        section("Attack by attack", table),
    )


def _headline(result: AttackResult) -> str:
    row = result.worst if result.stealable else result.weakest
    if not result.stealable:
        end = (
            ""
            if row is None
            else f"; the attack that leaves least, {row.name}, leaves {row.score_bits or 0.0:.0f} "
            "bits of evidence"
        )
        return f"Nothing could be stolen: the thief's own model is as good{end}"
    if row is None:
        return "No attack keeps half of what the theft is worth."
    return pages.capitalized(
        f"the worst attack that pays, {row.name}, leaves {row.score_bits or 0.0:.0f} bits of "
        "evidence"
    )


def _explanation(result: AttackResult) -> str:
    evidence = (
        "Evidence is what a suspect's answers prove: 64 bits convince anyone, 20 bits the owner."
    )
    if not result.stealable:
        return (
            "What a theft is worth is measured against what the thief could train alone. Here that "
            f"is as good as the stolen model, and the chart shows the attacked models as they are. "
            f"{evidence}"
        )
    return (
        "A theft is worth 1 as long as the attacked model is as good as the stolen one, and 0 "
        f"where it is no better than what the thief could train alone. {evidence}"
    )


def _chart(result: AttackResult) -> pages.Plot:
    def draw(axes: Any) -> None:
        draw_curves(result, axes)

    name = MEASURE_NAMES[result.measure]
    said = f"one curve for each of {len({row.attack for row in result.run})} attacks at their "
    if not result.stealable:
        said = f"Evidence left against the {name} of attacked models, {said}strengths. "
        if result.weakest is not None:
            said += f"The least that is left are {result.weakest.score_bits or 0.0:.0f} bits."
        return pages.Plot(f"Evidence left and {name}", said, draw, wide=True)
    said = f"Evidence left against the theft kept, {said}strengths. "
    paying = [row for row in result.run if row.pays]
    said += (
        "None of them keeps half of the theft's worth."
        if result.worst is None
        else f"Of the {len(paying)} results that keep half of the theft's worth, the worst leaves "
        f"{result.worst.score_bits or 0.0:.0f} bits."
    )
    return pages.Plot("Evidence left and theft kept", said, draw, wide=True)
