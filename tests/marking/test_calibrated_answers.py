"""Margins with which a calibrated model answers as wanted."""

import numpy as np
import pytest
from scipy.special import logit

from tests.libraries.deployed_models import table
from tests.libraries.test_wrappers import made
from timbermark.marking.calibrated_answers import (
    deciding_margins,
    rank_scores,
    score_leads,
    score_slopes,
)
from timbermark.marking.models import open_model


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
