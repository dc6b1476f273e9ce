"""Codes become sentences in one place, and every code has one."""

import json
from dataclasses import replace

import numpy as np
import pytest

from timbermark.marking.budget import LIMITS
from timbermark.marking.cost import Cost, RowSet, label_figures
from timbermark.marking.tallies import Counting
from timbermark.marking.words import (
    LIMIT_WORDS,
    Note,
    figure_name,
    library_notes,
    rows_sentence,
    show_result,
)

CODES = (
    "validation", "unseen", "training", "candidates", "all validation", "all training",
    "all candidates",
)  # fmt: skip


def make_cost(code="validation", labelled=True, n_classes=2):
    rng = np.random.default_rng(0)
    before = rng.dirichlet(np.ones(n_classes), size=400)
    after = 0.9 * before + 0.1 / n_classes
    label = rng.integers(0, n_classes, 400) if labelled else None
    tally = Counting("labels").tally(before, after, label)
    rows = RowSet(code, 400, tally.estimated)
    classes = tuple(range(n_classes))
    return Cost("classification", rows, tuple(label_figures(tally, classes, rows)), classes)


def test_every_limit_has_words():
    assert set(LIMIT_WORDS) == {name for names in LIMITS.values() for name in names}


@pytest.mark.parametrize("code", CODES)
def test_the_first_line_names_the_rows_and_recommends_validation_rows(code):
    first = str(make_cost(code)).splitlines()[0]
    assert first == rows_sentence(make_cost(code))
    assert "400" in first
    assert ("give validation rows" in first) == ("validation" not in code)


def test_figures_of_other_rows_stand_apart():
    cost = make_cost("unseen", labelled=False)
    seen = make_cost("training")
    quality = tuple(figure for figure in seen.figures if figure.code == "accuracy")
    text = str(replace(cost, figures=cost.figures + quality)).splitlines()
    place = text.index("on 400 training rows held out of the edit, which the model was trained on:")
    assert text[place + 1].startswith("accuracy")
    assert len(text) == place + 3
    guessed = text.index("with labels estimated from the model's own scores:")
    assert guessed < next(i for i, line in enumerate(text) if line.startswith("AUC"))
    before = [line.split()[0] for line in text[2:guessed]]
    assert {"accuracy", "log-loss", "AUC"}.isdisjoint(before)


def test_tables_of_many_classes_show_some_of_them():
    cost = make_cost(n_classes=15)
    assert "mean score of 11" in str(cost)
    assert "mean score of 12" not in str(cost)
    assert any(one["class"] == 14 for one in cost.to_dict()["figures"])


@pytest.mark.parametrize(
    ("note", "said"),
    [
        (Note("beyond_limit", {"figure": 0.03, "limit": 0.02}, "score"), "3.00%"),
        (Note("beyond_limit", {"figure": 0.03, "limit": 0.02}, "auc", "training"), "on training"),
        (Note("few_of_class", {"rows": 6.0}, "yes"), "Only 6 rows"),
        (
            Note("limit_too_fine", {"limit": 1e-4, "rows": 2e3, "finest": 7e-4}, "changed"),
            "0.0001",
        ),
        (Note("weak", {"bits": 40.0}), "40 bits"),
        (Note("gains"), "edited"),
        (Note("validation_seen", {"share": 0.95}), "95%"),
        *((note, "A note.") for note in library_notes(["A note."])),
    ],
)
def test_notes_are_sentences_and_strict_json(note, said):
    assert said in str(note)
    assert str(note).endswith(".")
    plain = json.loads(json.dumps(note.to_dict(), allow_nan=False))
    assert (plain["code"], plain["text"]) == (note.code, str(note))


def test_warnings_head_a_result():
    warning = Note("beyond_limit", {"figure": 0.03, "limit": 0.02}, "score")
    lines = show_result("64 bits", make_cost(), [Note("gains"), warning]).splitlines()
    assert lines[0] == f"Warning: {warning}"
    assert lines[1].startswith("Cost measured on")
    assert lines[2] == "64 bits"
    assert lines[-1] == f"Note: {Note('gains')}"
    assert sum(str(Note("gains")) in line for line in lines) == 1


def test_the_largest_change_is_said_to_be_that_of_the_measured_rows():
    for code, answers in (("largest_drift", "labels"), ("largest", "numbers")):
        assert "unseen" in figure_name(code, None, answers)


def test_names_of_figures_leave_the_columns_of_the_table_in_line():
    lines = str(make_cost()).splitlines()
    header = next(line for line in lines if "before" in line)
    after = next(line for line in lines if line.startswith("largest"))
    assert len(after) == header.index("change") + len("change")
