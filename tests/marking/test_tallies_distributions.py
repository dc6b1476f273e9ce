"""Counts that plots are made from: nothing is lost, and they agree with what is known of rows."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.calibration import calibration_curve

from timbermark.marking.tallies import number_distributions, score_distributions


def answers(seed, n, n_classes):
    rng = np.random.default_rng(seed)
    before = rng.dirichlet(np.full(n_classes, 0.5), size=n)
    after = 0.9 * before + 0.1 / n_classes
    return before, after, rng.integers(n_classes, size=n)


@given(st.integers(0, 999), st.integers(1, 300), st.integers(2, 6))
def test_every_row_counts_once(seed, n, n_classes):
    before, after, label = answers(seed, n, n_classes)
    moved = np.abs(after - before).max(axis=1)
    found = score_distributions(before, after, label, moved)
    assert sum(found.scores.before) == sum(found.scores.after) == sum(found.changes) == n
    assert sum(b.n for b in found.reliability_before) == n
    assert sum(one.share for one in found.by_class) == pytest.approx(1.0)
    bare = score_distributions(before, after, None, moved)
    assert (bare.scores, bare.changes) == (found.scores, found.changes)
    assert (bare.reliability_after, bare.by_class) == ((), ())


@given(st.integers(0, 999), st.sampled_from([2, 3, 5]))
def test_groups_add_up_to_the_accuracy_and_the_mean_score(seed, n_classes):
    before, after, label = answers(seed, 200, n_classes)
    found = score_distributions(before, after, label, np.abs(after - before).max(axis=1))
    bins = found.reliability_after
    share = sum(b.n * b.share for b in bins) / 200
    score = sum(b.n * b.score for b in bins) / 200
    if n_classes == 2:
        assert share == pytest.approx((label == 1).mean())
        assert score == pytest.approx(found.mean_after[1])
    else:
        assert share == pytest.approx((after.argmax(axis=1) == label).mean())
        assert score == pytest.approx(after.max(axis=1).mean())


def test_the_reliability_curve_is_scikit_learns():
    before, after, label = answers(3, 500, 2)
    found = score_distributions(before, after, label, np.zeros(500))
    share, score = calibration_curve(label, before[:, 1], n_bins=10)
    assert [b.share for b in found.reliability_before] == pytest.approx(share.tolist())
    assert [b.score for b in found.reliability_before] == pytest.approx(score.tolist())


def test_calibration_errors_by_hand():
    p = np.array([[0.95, 0.05], [0.95, 0.05], [0.35, 0.65], [0.25, 0.75]])
    found = score_distributions(p, p, np.array([0, 1, 1, 1]), np.zeros(4))
    # Bins of class 1: two rows near 0.05 of which one holds, one of 0.65, one of 0.75.
    assert found.by_class[1].before == pytest.approx((2 * 0.45 + 0.35 + 0.25) / 4)
    assert found.by_class[1].share == 0.75


@given(st.integers(0, 999), st.integers(2, 300))
def test_numbers_count_once_whatever_their_range(seed, n):
    rng = np.random.default_rng(seed)
    before = rng.standard_cauchy(n)
    after = before + rng.normal(size=n)
    found = number_distributions(before, after, before + 1.0, after - before)
    for histogram in (found.answers, found.errors):
        assert sum(histogram.before) == sum(histogram.after) == n
        assert len(histogram.edges) == len(histogram.after) + 1
        assert (np.diff(histogram.edges) > 0).all()
    assert (sum(found.changes.before), sum(found.changes.after)) == (0, n)
    assert found.ndcg is None


def test_answers_that_are_all_the_same_have_a_histogram():
    same = np.full(5, 7.0)
    found = number_distributions(same, same, None, np.zeros(5))
    assert max(found.answers.after) == max(found.changes.after) == 5
    assert found.errors is None
