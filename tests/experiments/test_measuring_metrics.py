import numpy as np

from timbermark.experiments import measuring

WANTED = np.array([1, 2, 3, 4])


def test_effectiveness_and_accuracy_are_shares_of_equal_labels():
    assert measuring.effectiveness(np.array([1, 2, 3, 0]), WANTED) == 0.75
    assert measuring.accuracy(np.array([1, 1, 1, 1]), WANTED) == 0.25


def test_robustness_counts_only_triggers_that_were_embedded():
    assert measuring.robustness(np.array([1, 2, 0, 0]), np.array([1, 0, 3, 4]), WANTED) == 0.5
    assert np.isnan(measuring.robustness(np.zeros(4), WANTED, WANTED))


def test_resilience_is_nan_where_every_candidate_is_a_trigger():
    assert measuring.resilience(np.array([1, 2]), np.array([1, 2])) == 1.0
    assert np.isnan(measuring.resilience(np.empty(0), np.empty(0)))


def test_adjusted_metrics_are_products():
    assert measuring.adjusted_accuracy(0.9, 0.5) == 0.45
    assert measuring.adjusted_resilience(0.5, 0.5) == 0.25
