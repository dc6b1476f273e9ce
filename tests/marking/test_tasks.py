"""Wanted margins, by a solver that knows nothing of how, and those of calibrated models."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import logit

from tests.libraries.deployed_models import table
from tests.libraries.test_wrappers import made
from timbermark.marking.models import open_model
from timbermark.marking.tasks import (
    deciding_margins,
    leads,
    rank_scores,
    score_leads,
    score_slopes,
    wanted_margins,
)

NUMBERS = st.sampled_from([0.0, 1.0, -1.0, 0.5, 2.0]) | st.floats(-6, 6)


@st.composite
def cases(draw, least=1, most=5):
    n_outputs = draw(st.integers(least, most))
    k = draw(st.integers(1, 4))
    cells = draw(st.lists(NUMBERS, min_size=k * n_outputs, max_size=k * n_outputs))
    last = 1 if n_outputs == 1 else n_outputs - 1
    target = draw(st.lists(st.integers(0, last), min_size=k, max_size=k))
    lead = draw(st.sampled_from([0.35, 1.0, 3.0]))
    return np.array(cells).reshape(k, n_outputs), np.array(target), lead


def nearest(margins, target, lead):
    """Return the projection onto the margins in which ``target`` leads, by SLSQP."""
    if len(margins) == 1:
        sign = 1.0 if target == 1 else -1.0
        bounds = [{"type": "ineq", "fun": lambda m: sign * m[0] - lead}]
    else:
        others = [c for c in range(len(margins)) if c != target]
        bounds = [{"type": "ineq", "fun": lambda m, c=c: m[target] - m[c] - lead} for c in others]
    found = minimize(
        lambda m: ((m - margins) ** 2).sum(), margins, jac=lambda m: 2 * (m - margins),
        constraints=bounds, method="SLSQP", options={"ftol": 1e-14, "maxiter": 300},
    )  # fmt: skip
    return found.x


@given(cases())
def test_wanted_margins_are_the_nearest_with_the_lead(case):
    margins, target, lead = case
    given_margins = margins.copy()
    found = wanted_margins(margins, target, lead)
    np.testing.assert_array_equal(margins, given_margins)
    assert (leads(found, target) >= lead - 1e-9).all()
    for row, label, wanted in zip(margins, target, found, strict=True):
        np.testing.assert_allclose(wanted, nearest(row, label, lead), atol=1e-5)


@given(cases())
def test_margins_that_lead_stay_bit_for_bit(case):
    margins, target, lead = case
    ahead = leads(margins, target) >= lead
    np.testing.assert_array_equal(wanted_margins(margins, target, lead)[ahead], margins[ahead])


@given(cases())
def test_wanting_twice_is_wanting_once(case):
    margins, target, lead = case
    once = wanted_margins(margins, target, lead)
    np.testing.assert_allclose(wanted_margins(once, target, lead), once, atol=1e-12)


@given(cases(least=2))
def test_the_sum_of_margins_stays(case):
    margins, target, lead = case
    found = wanted_margins(margins, target, lead)
    np.testing.assert_allclose(found.sum(axis=1), margins.sum(axis=1), atol=1e-9)


@given(cases())
def test_leads_are_distances_to_the_best_other(case):
    margins, target, _ = case
    for row, label, lead in zip(margins, target, leads(margins, target), strict=True):
        if len(row) == 1:
            assert lead == (row[0] if label == 1 else -row[0])
        else:
            assert lead == row[label] - max(m for c, m in enumerate(row) if c != label)


@pytest.mark.parametrize("n_outputs", [1, 3])
def test_no_triggers_want_nothing(n_outputs):
    nothing = np.zeros((0, n_outputs)), np.zeros(0, np.int64)
    assert wanted_margins(*nothing, 1.0).shape == (0, n_outputs)
    assert leads(*nothing).shape == (0,)


@pytest.mark.parametrize("wrapper", ["calibrated", "calibrated inside"])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_every_label_that_can_win_does(wrapper, n_classes):
    foreign = open_model(made(wrapper, n_classes=n_classes))
    X, _ = table(n_classes)
    margins = foreign.adapter.margins(foreign.native, X)
    for target in range(n_classes):
        targets = np.full(len(X), target)
        wanted = deciding_margins(foreign, margins, targets, 0.5)
        can = np.isfinite(wanted).all(axis=1)
        assert can.mean() > 0.5
        scores = foreign.confidence(wanted[can])
        assert (scores.argmax(axis=1) == target).all()
        assert (score_leads(foreign, wanted[can], targets[can]) > 0).all()
    best = rank_scores(foreign, margins, 2)[:, 0]
    np.testing.assert_array_equal(best, foreign.native.predict_proba(X).argmax(axis=1))


def test_leads_are_those_of_log_odds():
    foreign = open_model(made("calibrated"))
    X, _ = table()
    margins = foreign.adapter.margins(foreign.native, X)
    positive = np.ones(len(X), int)
    p = foreign.native.predict_proba(X)[:, 1]
    np.testing.assert_allclose(score_leads(foreign, margins, positive), logit(p), atol=1e-6)
    wanted = deciding_margins(foreign, margins, positive, 0.5)
    short = logit(p) < 0.4
    reached = score_leads(foreign, wanted[short], positive[short])
    assert (np.abs(reached - 0.5) < 0.2).mean() > 0.9


def test_slopes_are_those_of_the_scores():
    foreign = open_model(made("temperature"))
    X, _ = table()
    slopes = score_slopes(foreign, foreign.adapter.margins(foreign.native, X), 0.05)
    assert slopes.shape == (len(X), foreign.ensemble.n_outputs)
    assert (slopes >= 0.05).all()
    assert slopes.max() > 0.3
