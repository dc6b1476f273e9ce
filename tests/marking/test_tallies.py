"""Tallies of parts against those of all rows together."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import heavy
from timbermark.marking.cost import RowSet, label_figures, number_figures
from timbermark.marking.tallies import Counting, add_up, as_float, exact_sum

CUTS = st.lists(st.integers(1, 2999), max_size=8)


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=50), st.randoms())
def test_sums_are_exact_in_any_order(values, random):
    expected = sum((Fraction(value) for value in values), Fraction(0))
    total = exact_sum(np.array(values))
    assert Fraction(total, 1 << 1127) == expected
    shuffled = list(values)
    random.shuffle(shuffled)
    cut = len(values) // 3
    assert exact_sum(np.array(shuffled[:cut])) + exact_sum(np.array(shuffled[cut:])) == total
    if abs(expected) < Fraction(10) ** 300:
        assert as_float(total) == float(expected)


def answers(n, k, seed):
    rng = np.random.default_rng(seed)
    margins = rng.normal(size=(n, k)) * 2
    moved = margins + rng.normal(size=(n, k)) * 0.05
    before, after = (np.exp(m) / np.exp(m).sum(axis=1, keepdims=True) for m in (margins, moved))
    label = (before.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1).clip(0, k - 1)
    return before, after, label


def parts(counting, before, after, target, cuts):
    places = [p for p in np.split(np.arange(len(before)), sorted(cuts)) if len(p)]
    n = len(before)
    return add_up(
        [
            counting.tally(before[p], after[p], None if target is None else target[p], n)
            for p in places
        ]
    )


@given(st.integers(2, 4), CUTS, st.integers(0, 5), st.sampled_from(["labels", "shares", "none"]))
@heavy
def test_figures_are_those_of_all_rows_whatever_the_parts(k, cuts, seed, known):
    before, after, label = answers(3000, k, seed)
    target = {"labels": label, "shares": before[::-1], "none": None}[known]
    counting, rows = Counting("labels"), RowSet("validation", 3000)
    whole = counting.tally(before, after, target)
    split = parts(counting, before, after, target, cuts)
    assert split.sums == whole.sums
    classes = list(range(k))
    assert label_figures(split, classes, rows) == label_figures(whole, classes, rows)
    assert split.estimated == (known != "labels")


@given(CUTS, st.integers(0, 3), st.booleans(), st.booleans())
@heavy
def test_numbers_are_those_of_all_rows_whatever_the_parts(cuts, seed, known, ranks):
    rng = np.random.default_rng(seed)
    before = np.exp(rng.normal(size=3000)) * 30
    after = before + rng.normal(size=3000) * 0.05
    target = before + rng.normal(size=3000) * 4 if known and not ranks else None
    counting = Counting("ranks" if ranks else "numbers", 4.0, known, 50.0)
    given = before[:, None], after[:, None], target
    whole, split = counting.tally(*given), parts(counting, *given, cuts)
    rows = RowSet("all training", 3000)
    assert number_figures(split, 4.0, ranks, rows) == number_figures(whole, 4.0, ranks, rows)


def test_tables_with_many_rows_have_coarser_bins_and_nearly_the_same_ranks():
    before, after, label = answers(20_000, 2, 0)
    fine = Counting("labels").tally(before, after, label)
    coarse = Counting("labels").tally(before, after, label, 5_000_000)
    assert len(coarse.joint.count) < len(fine.joint.count)
    found = [
        {f.code: f for f in label_figures(tally, [0, 1], RowSet("validation", 20_000))}
        for tally in (fine, coarse)
    ]
    for code in ("auc", "precision"):
        assert found[1][code].before == pytest.approx(found[0][code].before, abs=3e-4)
        assert found[1][code].change == pytest.approx(found[0][code].change, abs=2e-5)
        assert found[1][code].error == pytest.approx(found[0][code].error, rel=0.05)
