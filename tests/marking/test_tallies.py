"""Tallies of parts against the figures of all rows together."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from timbermark.marking.budget import Budget
from timbermark.marking.costs import measure_cost
from timbermark.marking.number_costs import measure_cost as measure_numbers
from timbermark.marking.number_costs import use_of_budget as use_numbers
from timbermark.marking.number_tallies import NumberTally
from timbermark.marking.tallies import Tally


def answers(n, k, seed):
    rng = np.random.default_rng(seed)
    margins = rng.normal(size=(n, k)) * 2
    moved = margins + rng.normal(size=(n, k)) * 0.05
    before, after = (np.exp(m) / np.exp(m).sum(axis=1, keepdims=True) for m in (margins, moved))
    label = (before.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1).clip(0, k - 1)
    return before, after, label


def tally(before, after, label, cuts):
    places = np.split(np.arange(len(before)), cuts)
    parts = [
        Tally.count(before[p], after[p], None if label is None else label[p])
        for p in places
        if len(p)
    ]
    return Tally.merge(parts)


def plain(value):
    return value.to_dict()


@given(st.integers(2, 4), st.lists(st.integers(1, 2999), max_size=8), st.integers(0, 5))
def test_figures_are_those_of_all_rows_whatever_the_parts(k, cuts, seed):
    before, after, label = answers(3000, k, seed)
    whole = tally(before, after, label, [])
    split = tally(before, after, label, sorted(cuts))
    classes = list(range(k))
    assert plain(split.cost(classes, "validation")) == plain(whole.cost(classes, "validation"))
    assert split.use_of_budget(Budget(), True) == whole.use_of_budget(Budget(), True)
    expected = measure_cost(before, after, label, classes, "validation")
    found = whole.cost(classes, "validation")
    assert found.changed == expected.changed
    assert found.largest_drift == expected.largest_drift
    assert found.drift == pytest.approx(expected.drift, abs=1e-9)
    for side in ("before", "after"):
        ours, theirs = getattr(found, side), getattr(expected, side)
        assert ours.accuracy == theirs.accuracy
        assert ours.recall == pytest.approx(theirs.recall)
        assert ours.log_loss == pytest.approx(theirs.log_loss, abs=1e-8)
        assert ours.mean_score == pytest.approx(theirs.mean_score, abs=1e-9)
        if k == 2:
            assert ours.auc == pytest.approx(theirs.auc, abs=2e-5)
        else:
            assert ours.auc is None


def test_without_labels_nothing_is_said_of_quality():
    before, after, _ = answers(500, 2, 0)
    cost = tally(before, after, None, [100]).cost([0, 1], "all training")
    assert cost.before.accuracy is None
    assert "all training rows" in str(cost)
    used = tally(before, after, None, [100]).use_of_budget(Budget(), True)
    assert set(used) == {"changed", "drift"}


def test_limits_are_used_as_far_as_they_are():
    before, after, label = answers(200_000, 2, 1)
    told = tally(before, after, label, [1000])
    share = told.changed / told.n
    used = told.use_of_budget(Budget(changed=share, drift=told.drift), seen=True)
    assert 1.0 < used["changed"] < 1.05
    assert 1.0 < used["drift"] < 1.01
    same = tally(before, before, label, [7])
    assert same.use_of_budget(Budget(), seen=True)["drift"] == 0.0
    assert same.use_of_budget(Budget(), seen=True)["auc"] == 0.0
    # A model that hardly errs is held to its own rate of errors.
    sure = np.array([[0.999, 0.001]] * 10_000)
    flipped = sure.copy()
    flipped[:20] = flipped[:20, ::-1]
    exact = tally(sure, flipped, np.zeros(10_000, np.int64), [])
    assert exact.use_of_budget(Budget(), seen=False)["changed"] > 1.0
    assert exact.use_of_budget(Budget(), seen=True)["changed"] < 1.0


@given(st.lists(st.integers(1, 1999), max_size=6), st.integers(0, 3), st.booleans())
def test_numbers_are_those_of_all_rows_whatever_the_parts(cuts, seed, known):
    rng = np.random.default_rng(seed)
    before = rng.normal(size=2000) * 30 + 100
    after = before + rng.normal(size=2000) * 0.05
    target = before + rng.normal(size=2000) * 4 if known else None

    def count(places):
        return NumberTally.count(
            before[places], after[places], None if target is None else target[places], 4.0
        )

    places = [p for p in np.split(np.arange(2000), sorted(cuts)) if len(p)]
    whole, split = count(np.arange(2000)), NumberTally.merge([count(p) for p in places])
    assert whole == split
    found = whole.cost("all training", known, 0.99)
    expected = measure_numbers(before, after, target, "training", 4.0, known, False)
    for side in ("before", "after"):
        for name in ("mean", "rmse", "mae", "r2"):
            ours, theirs = (getattr(getattr(c, side), name) for c in (found, expected))
            assert ours == (None if theirs is None else pytest.approx(theirs, rel=1e-4))
    assert found.move == pytest.approx(expected.move, abs=1e-5)
    assert found.largest == expected.largest
    budget = Budget(largest=1.0, mae=0.01, r2=0.01)
    ours = whole.use_of_budget(budget)
    theirs = use_numbers(budget, before, after, target, 4.0, False)
    assert set(ours) == set(theirs)
    for name in ("move", "largest"):
        assert ours[name] == pytest.approx(theirs[name], rel=1e-2)
