"""The pages of a marking, a plan and a cost; they show no trigger and no symbol."""

from __future__ import annotations

from typing import TYPE_CHECKING

import timbermark
from timbermark.guard.guarding import GuardCost
from timbermark.marking.cost import Cost
from timbermark.marking.embedding import Plan
from timbermark.marking.tallies import CHANGE_EDGES, NumberDistributions, ScoreDistributions
from timbermark.marking.words import BOUND_SENTENCE, LIMIT_WORDS, cost_lines, rows_sentence
from timbermark.ownership.evidence import level
from timbermark.report import pages
from timbermark.report.pages import Page, Section, Table, facts, section
from timbermark.report.plots import bars_plot, classes_plot, histogram_plot, reliability_plot
from timbermark.report.verdict_pages import install_line

if TYPE_CHECKING:
    from timbermark.attacks.results import AttackResult
    from timbermark.marking.embedding import EmbedResult

_MOST_CLASSES = 24
"""Classes that the plot has room for; the table has them all."""


def describe(
    result: EmbedResult | Plan | Cost | GuardCost, attacks: AttackResult | None = None
) -> Page:
    """Return the page of a marking or a plan, or of a cost alone.

    ``attacks``: what the lab found about a marking.
    """
    if isinstance(result, Cost):
        return _cost_page(result)
    if isinstance(result, GuardCost):
        return _guard_page(result)
    cost = result.cost
    planned = isinstance(result, Plan)
    survival: tuple[Section, ...] = ()
    if attacks is not None:
        from timbermark.report.attack_page import survival_sections

        survival = survival_sections(attacks)
    headline = f"the model carries the mark of {result.mark.owner}"
    if planned:
        headline = f"a mark would be worth {result.bits:.0f} bits; nothing was marked"
    return Page(
        what="the plan of a mark" if planned else "a marked model",
        headline=pages.capitalized(headline),
        lead=(
            *(f"Warning: {note}" for note in result.notes if note.is_warning),
            rows_sentence(cost),
            *_quality_sentence(cost),
        ),
        figures=(
            (f"{result.bits:.0f} bits", f"of evidence in the {_scores(cost)} of an untouched copy"),
            (pages.chance_of(result.bits), "chance of coincidence, at most"),
            (str(result.mark.n_triggers), "secret questions, known to the owner alone"),
            _changed_figure(cost),
        ),
        sections=(
            section("What it costs", _cost_table(cost), *_limits_table(result)),
            *_distribution_sections(cost),
            _worth_section(result, planned),
            *survival,
            *pages.note_section(
                "Notes", (str(note) for note in result.notes if not note.is_warning)
            ),
            *(() if planned else (_next_section(),)),
        ),
        version=timbermark.__version__,
    )


def _cost_page(cost: Cost) -> Page:
    table = section("Figure by figure", _cost_table(cost))
    return Page(
        what="the cost of a mark",
        headline=rows_sentence(cost),
        lead=_quality_sentence(cost),
        figures=(_changed_figure(cost),),
        sections=(table, *_distribution_sections(cost)),
        version=timbermark.__version__,
    )


def _guard_page(cost: GuardCost) -> Page:
    shown = facts(
        ("answers that are drawn", f"{cost.drawn:.2%} of {cost.rows:,}"),
        ("points lost", None if cost.points is None else f"{cost.points:.3f}"),
        ("AUC lost", None if cost.auc is None else f"{cost.auc:.5f}"),
        ("largest change of a mean score", f"{cost.mean_score:.3%}"),
        ("bits in a thousand questions, at most", f"{cost.bits_per_thousand:.1f}"),
    )
    return Page(
        what="the cost of a guard",
        headline=f"A guard would draw {cost.drawn:.2%} of the answers.",
        lead=(),
        figures=(),
        sections=(section("What it costs", shown),),
        version=timbermark.__version__,
    )


def _quality_sentence(cost: Cost) -> tuple[str, ...]:
    """Return how good the model is before and after, where rows that it did not see tell."""
    for line in cost_lines(cost):
        if line[1] and "training" not in line[5]:
            return (pages.capitalized(f"{line[0]} {line[1]} before and {line[2]} after marking"),)
    return ()


def _scores(cost: Cost) -> str:
    return "scores" if cost.answers == "labels" else "numbers"


def _changed_figure(cost: Cost) -> tuple[str, str]:
    if cost.answers == "labels":
        return f"{cost.changed} of {cost.n_rows}", "labels changed on rows that are no triggers"
    return f"{cost.move:.2%}", "of the model's error: the mean change of an answer"


def _cost_table(cost: Cost) -> Table:
    return Table(
        f"Each figure before and after, on the same rows; {BOUND_SENTENCE}",
        ("", "before", "after", "change", "at most", "rows"),
        tuple(cost.lines()),
    )


def _limits_table(result: EmbedResult | Plan) -> tuple[Table, ...]:
    used = tuple((LIMIT_WORDS[name], f"{share:.0%}") for name, share in result.use.items())
    caption = "How much of each limit the mark used, by an upper confidence bound"
    return (Table(caption, ("limit", "used"), used),) if used else ()


def _distribution_sections(cost: Cost) -> list[Section]:
    found = cost.distributions
    if isinstance(found, ScoreDistributions):
        return _score_sections(cost, found)
    if isinstance(found, NumberDistributions):
        return [section("Answers before and after", *_number_plots(found))]
    return []


def _score_sections(cost: Cost, found: ScoreDistributions) -> list[Section]:
    names = [str(label) for label in cost.classes]
    two = len(names) == 2
    what = f"the score of {names[1]}" if two else "the score of the most likely class"
    before, after = (sum(part) for part in (found.scores.before, found.scores.after))
    assert before == after
    n = sum(found.changes)
    tiny = sum(found.changes[:3])
    plots: list[pages.Plot] = [
        histogram_plot(
            "Scores",
            f"How many of {before} rows have {what} in each twentieth from 0 to 1, before and "
            "after marking.",
            what,
            found.scores,
        ),
        bars_plot(
            "How far probabilities moved",
            f"The largest change of a probability of each of {n} rows: {tiny} of them moved by "
            f"less than {CHANGE_EDGES[3]:g}.",
            "change, up to",
            [f"{edge:g}" for edge in CHANGE_EDGES[1:]],
            found.changes,
        ),
    ]
    if found.reliability_after:
        holds = f"a row is of class {names[1]}" if two else "the most likely class is the true one"
        plots.append(reliability_plot(found.reliability_before, found.reliability_after, holds))
    if found.by_class and len(names) <= _MOST_CLASSES:
        shares = [one.share for one in found.by_class]
        plots.append(classes_plot(names, shares, found.mean_before, found.mean_after))
    sections = [section("Scores before and after", *plots)]
    if found.by_class:
        sections.append(_calibration_section(found, names))
    return sections


def _calibration_section(found: ScoreDistributions, names: list[str]) -> Section:
    rows = tuple(
        (name, f"{one.share:.4f}", f"{a:.4f}", f"{b:.4f}", f"{one.before:.4f}", f"{one.after:.4f}")
        for name, one, a, b in zip(
            names, found.by_class, found.mean_before, found.mean_after, strict=True
        )
    )
    header = (
        "class", "share of rows", "mean score before", "after", "calibration error before", "after",
    )  # fmt: skip
    return section(
        "Calibration by class",
        "The calibration error is the mean distance between a class's score and how often it "
        "holds, over groups of similar scores.",
        Table("Of each class, on rows with known labels", header, rows),
    )


def _number_plots(found: NumberDistributions) -> list[pages.Plot]:
    errors, ndcg = found.errors, found.ndcg
    plots = [
        (
            "Answers",
            f"How the answers to {sum(found.answers.after)} rows are distributed before and after "
            "marking; the outer bins hold what lies beyond.",
            "answer",
            found.answers,
        ),
        (
            "How far answers moved",
            "Answers after minus answers before, in units of the model's error.",
            "change / error",
            found.changes,
        ),
    ]
    if errors is not None:
        said = f"Answers minus true numbers of {sum(errors.after)} rows, before and after marking."
        plots.append(("Errors", said, "answer − truth", errors))
    if ndcg is not None:
        said = f"How well each of {sum(ndcg.after)} groups is ranked, before and after marking"
        plots.append(("NDCG of groups", f"{said}; 1 is perfect.", "NDCG", ndcg))
    return [histogram_plot(*plot) for plot in plots]


def _worth_section(result: EmbedResult | Plan, planned: bool) -> Section:
    strength, mark = result.strength, result.mark
    convinces = {
        "conclusive": "anyone", "indicative": "its owner, and nobody else", "none": "nobody"
    }[level(result.bits)]  # fmt: skip
    rows = []
    if mark.n_splits:
        said = f"{mark.n_splits} triggers, {result.seals['splits']:.0f} bits"
        rows.append(("in splits", f"{said}: where thresholds lie between training values"))
    if mark.n_leaves:
        said = f"{mark.n_leaves} triggers, {result.seals['leaves']:.0f} bits"
        made = "rows that are nobody's" if strength is not None else "rows learnt in place"
        rows.append(("in leaves", f"{said}: labels of {made}"))
        rows.append(("answers each of these can give", f"{mark.q} labels, one drawn by lot"))
        rows.append(("symbols set in leaves", f"{result.n_set} of {mark.n_leaves}"))
    if strength is not None:
        rows.append(("lead", f"{strength.lead:.2g}"))
    if result.label_bits is not None:
        rows.append(("by labels alone", f"{result.label_bits:.0f} bits"))
    rows.append(("draws of symbols", str(mark.draws)))
    if not planned:
        rows += [
            ("owner", mark.owner),
            ("mark", mark.mark_id.hex()),
            ("made", mark.created),
            ("SHA-256 of the mark without its secret", mark.digest.hex()),
        ]
    shown = facts(*rows, ("digest of the unmarked model's trees", mark.model_digest))
    return section(
        "What the mark is worth",
        f"An untouched copy gives {result.bits:.0f} bits of evidence, which convinces {convinces}.",
        pages.chance_in_words(result.bits),
        shown,
    )


def _next_section() -> Section:
    lines = (
        install_line(timbermark.__version__),
        "timbermark claim marked.model secret.mark --key owner.key --out model.claim",
        "timbermark verify suspect.model secret.mark --report verdict.html",
    )
    return section(
        "Before the model leaves the house",
        "Publish a claim with a time stamp, keep the mark secret, and keep the unmarked model. "
        "This page shows no trigger and no symbol.",
        pages.Commands(lines),
    )
