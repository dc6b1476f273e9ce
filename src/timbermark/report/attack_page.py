"""The page of an attack lab: what a thief keeps, and what evidence is left."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import timbermark
from timbermark.attacks.chart import draw_curves
from timbermark.attacks.results import worth
from timbermark.report.pages import Notes, Page, Plot, Section, Table, capitalized

if TYPE_CHECKING:
    from timbermark.attacks.results import AttackResult, AttackRow


def describe(result: AttackResult) -> Page:
    """Return the page of what `timbermark attack` found."""
    worst = result.worst
    run = [row for row in result.rows if row.score_bits is not None]
    sections = [*survival_sections(result)]
    if result.notes:
        sections.append(Section("Notes", (Notes(result.notes),)))
    kept = sum(row.level == "conclusive" for row in run)
    return Page(
        what="attacks on a marked model",
        headline=_headline(worst),
        lead=(
            f"{result.n_attack} rows were used to attack with, {result.n_evaluation} others to "
            f"measure on. The thief's own model, from those rows alone, has an accuracy of "
            f"{result.own_accuracy:.4f}; the stolen one "
            f"has {result.untouched.accuracy or 0.0:.4f}.",
        ),
        figures=(
            (f"{result.untouched.score_bits or 0.0:.0f} bits", "in the stolen model as it is"),
            ("–" if worst is None else f"{worst.score_bits or 0.0:.0f} bits", "after the worst "
             "attack that keeps half of the theft's worth"),
            (f"{kept} of {len(run)}", "attacks leave conclusive evidence"),
        ),
        sections=tuple(sections),
        version=timbermark.__version__,
    )  # fmt: skip


def survival_sections(result: AttackResult) -> tuple[Section, Section]:
    """Return the chart and the table of attacks."""
    rows = (result.untouched, *result.rows)
    low = tuple(i for i, row in enumerate(rows) if row.level == "none" and worth(row) >= 0.5)
    table = Table(
        "Bits of evidence by scores and by labels after each attack; marked are attacks that leave "
        "no evidence and keep half of the theft's worth",
        ("attack", "level left", "strength", "scores", "labels", "accuracy", "theft kept"),
        tuple(map(_line, rows)),
        texts=2,
        marked=low,
    )
    return (
        Section("What it survives", (_chart(result),), (_explanation(),)),
        Section("Attack by attack", (table,)),
    )


def _headline(worst: AttackRow | None) -> str:
    if worst is None:
        return "No attack keeps half of what the theft is worth."
    bits = f"{worst.score_bits or 0.0:.0f} bits"
    return capitalized(
        f"the worst attack that pays, {worst.attack} at {worst.strength:g}, leaves {bits} of "
        "evidence"
    )


def _explanation() -> str:
    return (
        "A theft is worth 1 as long as the attacked model is as good as the stolen one, and 0 "
        "where it is no better than what the thief could train alone. Evidence is what a suspect's "
        "scores prove: 64 bits convince anyone, 20 bits the owner."
    )


def _chart(result: AttackResult) -> Plot:
    run = [row for row in result.rows if row.score_bits is not None]
    paying = [row for row in run if worth(row) >= 0.5]
    least = min((row.score_bits or 0.0 for row in paying), default=None)
    said = (
        f"Evidence left against the theft kept, one curve for each of {len(run)} attacks at their "
        "strengths. "
    )
    said += (
        "None of them keeps half of the theft's worth."
        if least is None
        else f"Of the {len(paying)} that keep half of the theft's worth, the worst leaves "
        f"{least:.0f} bits."
    )

    def draw(axes: Any) -> None:
        draw_curves(result, axes)

    return Plot("Evidence left and theft kept", said, draw, wide=True)


def _line(row: AttackRow) -> tuple[str, ...]:
    if row.score_bits is None:
        return (row.attack, f"skipped: {row.skipped}", f"{row.strength:g}", "", "", "", "")
    strength = "" if row.family in ("none", "chain") else f"{row.strength:g}"
    return (
        row.attack,
        row.level,
        strength,
        f"{row.score_bits:.0f}",
        "" if row.label_bits is None else f"{row.label_bits:.0f}",
        "" if row.accuracy is None else f"{row.accuracy:.4f}",
        "–" if row.theft_kept is None else f"{row.theft_kept:.2f}",
    )
