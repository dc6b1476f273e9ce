import pytest

from timbermark.boosting.data import PAPER, TrainParams
from timbermark.boosting.objective import Scale, factor, make_rule


@pytest.mark.parametrize(("n_classes", "expected"), [(2, 1.0), (3, 2 / 3), (26, 25 / 26)])
def test_factor_of_robust_logitboost(n_classes, expected):
    assert factor(n_classes) == expected


@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_rule_is_in_units(n_classes):
    params = TrainParams(l2_regularization=0.5, min_hessian=0.25, min_samples_leaf=7)
    unit = factor(n_classes) * 2**16
    rule = make_rule(params, n_classes, Scale(16, 9))
    assert rule[:4] == (0.5 * unit, 0.25 * unit, 7, 1)
    assert rule.step == params.learning_rate * factor(n_classes)
    assert (rule.limit, rule.max_leaves) == (params.leaf_limit, params.max_leaf_nodes)


def test_the_papers_engine():
    assert (PAPER.max_iter, PAPER.learning_rate, PAPER.max_leaf_nodes) == (200, 0.1, 20)
    assert (PAPER.min_samples_leaf, PAPER.split_sampling, PAPER.min_hessian) == (10, 0.1, 0.0)
