import numpy as np
import pytest

from tests.experiments.making import made_dataset
from timbermark import TimberClassifier
from timbermark.attacks.tuning import (
    add_to_leaves,
    tune_model_only,
    tune_regrown,
    tune_with_state,
)
from timbermark.boosting.data import TrainParams
from timbermark.trees import reference
from timbermark.trees.ensemble import digest


@pytest.fixture(scope="module")
def model():
    data = made_dataset()
    return TimberClassifier(max_iter=12, random_state=0, n_jobs=1).fit(data.X, data.y)


def naive_leaves(ensemble, X, label, rate):
    """Row by row and leaf by leaf, as the docstring says it."""
    K = ensemble.n_outputs
    where = reference.leaf_indices(ensemble, X)
    value = ensemble.value[:, 0].copy()
    F = np.zeros((len(X), K))
    for m in range(ensemble.n_trees // K):
        e = np.exp(F)
        p = e / e.sum(axis=1, keepdims=True)
        for k in range(K):
            tree = m * K + k
            start = ensemble.tree_start[tree]
            for leaf in set(where[:, tree].tolist()):
                node = start + leaf
                rows = [i for i in range(len(X)) if where[i, tree] == leaf]
                H = ensemble.hessian[node]
                G = value[node] * H / (rate * (K - 1) / K)
                G += sum((label[i] == k) - p[i, k] for i in rows)
                H += sum(p[i, k] * (1 - p[i, k]) for i in rows)
                value[node] = rate * (K - 1) / K * max(min(G / H, 50), -50)
            F[:, k] += value[start + where[:, tree]]
    return value


def test_leaves_take_up_rows_as_a_naive_loop_does(model):
    new = made_dataset(n=40, seed=5)
    found = add_to_leaves(model.ensemble_, new.X, new.y, TrainParams())
    assert found.value[:, 0] == pytest.approx(naive_leaves(model.ensemble_, new.X, new.y, 0.1))
    assert np.array_equal(found.threshold, model.ensemble_.threshold)
    assert not np.allclose(found.value, model.ensemble_.value)


def test_training_rows_once_more_change_nothing(model):
    # (2 G) / (2 H) = G / H in every leaf, so the file's statistics say what they should.
    data = made_dataset()
    found = add_to_leaves(model.ensemble_, data.X, data.y, TrainParams())
    assert found.value == pytest.approx(model.ensemble_.value, abs=2e-5)


def test_no_rows_change_nothing(model):
    found = add_to_leaves(model.ensemble_, np.empty((0, 2)), np.empty(0, np.int64), TrainParams())
    assert np.array_equal(found.value, model.ensemble_.value)


def test_two_classes_once_more_change_nothing_either():
    data = made_dataset(n_classes=2)
    small = TimberClassifier(max_iter=8, random_state=0).fit(data.X, data.y)
    found = add_to_leaves(small.ensemble_, data.X, data.y, TrainParams())
    assert found.value == pytest.approx(small.ensemble_.value, abs=2e-5)


@pytest.mark.parametrize("tune", [tune_with_state, tune_model_only, tune_regrown])
def test_the_model_given_is_untouched(model, tune):
    new = made_dataset(n=40, seed=5)
    before, state = digest(model.ensemble_), model._state
    tuned = tune(model, new.X, new.y)
    assert digest(model.ensemble_) == before
    assert model._state is state
    assert digest(tuned.ensemble_) != before


def test_only_the_owner_knows_the_old_rows(model):
    new = made_dataset(n=40, seed=5)
    data = made_dataset()
    owner = tune_with_state(model, new.X, new.y)
    assert owner._state.data.n_rows == 280
    regrown = tune_regrown(model, new.X, new.y)
    assert regrown._state.data.n_rows == 80
    assert tune_model_only(model, new.X, new.y)._state is None
    assert owner.score(data.X, data.y) > regrown.score(data.X, data.y)
