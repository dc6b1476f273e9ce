"""Whole trainings on a single thread, so that they also run without compilation."""

from dataclasses import replace

import pytest
from hypothesis import given

from tests.boosting.comparing import assert_same_as_naive, assert_same_forest, n_leaves
from tests.boosting.naive import naive_train
from tests.boosting.strategies import cases, cases_with_additions, few, noise_case
from timbermark.boosting.data import TrainParams
from timbermark.boosting.fitting import train
from timbermark.boosting.objective import choose_scale
from timbermark.boosting.updating import renew
from timbermark.kernels.workers import Workers


def fit(data, params, scale):
    with Workers(1) as workers:
        return train(data, params, scale, workers, record=True)


@few
@given(cases(max_rows=12))
def test_training_is_that_of_the_naive_grower(case):
    scale = choose_scale(case.data)
    trained = fit(case.data, case.params, scale)
    assert_same_as_naive(trained, naive_train(case.data, case.params, scale), scale.shift)


@few
@given(cases_with_additions(max_added=3))
def test_renewing_without_patience_and_tolerance_is_training_again(case):
    scale = choose_scale(case.data)
    trained = fit(case.data, case.params, scale)
    with Workers(1) as workers:
        found = renew(trained, case.data, case.added, case.params, scale, 0.0, 0.0, workers)
    assert_same_forest(found, fit(case.whole, case.params, scale).forest)


@pytest.mark.parametrize("n_classes", [0, 2, 3])
def test_more_iterations_than_are_done_at_once(n_classes):
    params = TrainParams(max_iter=11, max_leaf_nodes=4, min_samples_leaf=3, max_bins=8)
    case = noise_case(1, 40, 2, n_classes, params, 4)
    scale = choose_scale(case.data)
    trained = fit(case.data, params, scale)
    assert_same_as_naive(trained, naive_train(case.data, params, scale), scale.shift)
    # The first trees do not know how many will follow.
    shorter = fit(case.data, replace(params, max_iter=3), scale).forest
    n_trees = shorter.n_trees
    assert trained.forest.nodes[:n_trees].tobytes() == shorter.nodes.tobytes()
    with Workers(1) as workers:
        lazy = renew(trained, case.data, case.added, params, scale, 0.1, 0.05, workers)
    assert (n_leaves(lazy) <= 4).all()
    assert (lazy.nodes["c"][:, 0] == case.whole.count.sum()).all()
