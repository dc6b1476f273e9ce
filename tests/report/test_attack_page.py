"""The page of attacks says the same in its headline, figures, chart and table."""

from dataclasses import replace

import pytest
from matplotlib.figure import Figure

from tests.report.results import attack_result
from timbermark.report import describe
from timbermark.report.attack_page import survival_sections
from timbermark.report.pages import Plot, Table


def unstealable():
    found = attack_result()
    rows = tuple(replace(row, theft_kept=None) for row in found.rows)
    untouched = replace(found.untouched, theft_kept=None)
    return replace(found, rows=rows, untouched=untouched, own_quality=0.98)


def axes_of(result):
    plot = next(
        part for s in survival_sections(result) for part in s.parts if isinstance(part, Plot)
    )
    axes = Figure().subplots()
    plot.draw(axes)
    return plot, axes


def table_of(result):
    parts = (part for s in survival_sections(result) for part in s.parts)
    return next(part for part in parts if isinstance(part, Table))


def test_the_worst_attack_that_pays_is_the_same_everywhere():
    found = attack_result()
    page = describe(found)
    bits = f"{found.worst.score_bits:.0f} bits"
    assert found.worst.name in page.headline
    assert bits in page.headline
    assert page.figures[1][0] == bits
    plot, axes = axes_of(found)
    assert bits in plot.description
    assert "theft kept" in axes.get_xlabel()
    assert "theft kept" in table_of(found).header


def test_where_nothing_could_be_stolen_nothing_is_said_to_pay():
    found = unstealable()
    page = describe(found)
    assert "Nothing could be stolen" in page.headline
    assert "pays" not in page.headline
    assert page.figures[1][0] == f"{found.weakest.score_bits:.0f} bits"
    assert "theft" not in page.figures[1][1]
    plot, axes = axes_of(found)
    assert "theft kept" not in f"{plot.title} {plot.description}"
    assert "nothing could be stolen" in axes.get_xlabel()
    # What is drawn are the qualities of the attacked models, not a theft of 1.
    drawn = {x for line in axes.lines for x in line.get_xdata()}
    assert {row.quality for row in found.run} <= drawn
    assert "theft kept" not in table_of(found).header
    assert [section.title for section in page.sections][-1] == "Notes"


@pytest.mark.parametrize(("measure", "name"), [("rmse", "RMSE"), ("ndcg", "NDCG")])
def test_models_of_numbers_are_shown_with_their_measure(measure, name):
    found = attack_result()
    rows = tuple(replace(row, label_bits=None) for row in found.rows)
    untouched = replace(found.untouched, label_bits=None)
    found = replace(found, rows=rows, untouched=untouched, measure=measure)
    assert name in table_of(found).header
    assert "labels" not in table_of(found).header
    assert name in describe(found).lead[0]
