import copy

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.ensemble import HistGradientBoostingClassifier

from timbermark import TimberClassifier
from timbermark.errors import InputError
from timbermark.experiments.metrics import effectiveness
from timbermark.experiments.paper_embedding import (
    TooFewWrongError,
    embed_as_in_paper,
    find_paper_candidates,
    flip_labels,
    in_both,
)
from timbermark.trees.ensemble import digest


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    model = TimberClassifier(max_iter=40, random_state=0).fit(X[:1000], y[:1000])
    return model, (X[:1000], y[:1000]), (X[1000:1400], y[1000:1400])


def learned(model, n_rows):
    """The weights of the rows that were learned after training."""
    return np.concatenate([model._state.data.weight[n_rows:], model._state.added.weight])


@pytest.mark.parametrize("strategy", ["outlier", "cluster", "confidence", "random"])
@pytest.mark.parametrize("selection", ["confidence", "distance"])
def test_sizes_labels_and_weights_are_the_papers(digits, strategy, selection):
    model, train, more = digits
    before, state = digest(model.ensemble_), model._state
    made = embed_as_in_paper(
        model, *train, ratio=0.0201, strategy=strategy, selection=selection, candidates=more
    )
    assert len(made.candidates) == 21  # ceil(0.0201 · 1000)
    assert len(made.triggers) == 11  # ceil(21 / 2)
    assert set(made.triggers) <= set(made.candidates)
    truth, said = more[1][made.triggers], model.predict(more[0][made.triggers])
    assert (made.target != truth).all()
    assert (made.target != said).all()
    assert effectiveness(made.model.predict(more[0][made.triggers]), made.target) > 0.7
    assert digest(model.ensemble_) == before
    assert model._state is state
    heavy = learned(made.model, 1000)
    assert set(heavy[:11]) == {2.0 if strategy == "cluster" else 1.0}
    assert set(heavy[11:]) <= {1.0}
    assert (len(made.neighbours) > 0) == (strategy == "cluster")
    assert len(heavy) == 11 + len(made.neighbours)


def test_the_update_is_the_estimators_exact_one(digits):
    model, train, more = digits
    made = embed_as_in_paper(model, *train, strategy="cluster", candidates=more)
    rows = np.concatenate([made.triggers, made.neighbours])
    label = np.concatenate([made.target, more[1][made.neighbours]])
    weight = [2] * len(made.triggers) + [1] * len(made.neighbours)
    same = copy.copy(model)
    same._state = model._state
    same.update(more[0][rows], label, weight, mode="exact")
    assert digest(made.model.ensemble_) == digest(same.ensemble_)


def test_training_rows_weigh_five(digits):
    model, train, _ = digits
    made = embed_as_in_paper(model, *train, strategy="confidence", ratio=0.01)
    assert learned(made.model, 1000).tolist() == [5.0] * 5


def test_one_seed_one_result(digits):
    model, train, more = digits
    made = [
        embed_as_in_paper(model, *train, strategy="random", candidates=more, random_state=seed)
        for seed in (0, 0, 1)
    ]
    first, again, other = (digest(mark.model.ensemble_) for mark in made)
    assert first == again != other


def test_a_model_without_state_is_marked_from_its_training_rows(digits):
    model, train, more = digits
    bare = copy.copy(model)
    assert bare._state is None
    with_state, without = (
        embed_as_in_paper(given, *train, strategy="confidence", candidates=more)
        for given in (model, bare)
    )
    assert digest(with_state.model.ensemble_) == digest(without.model.ensemble_)
    assert bare._state is None


def test_tables_with_feature_names_and_text_labels():
    X, y = load_digits(return_X_y=True, as_frame=True)
    y = "digit " + y.astype(str)
    model = TimberClassifier(max_iter=10, random_state=0).fit(X[:600], y[:600])
    made = embed_as_in_paper(
        model, X[:600], y[:600], strategy="confidence", candidates=(X[600:900], y[600:900])
    )
    assert isinstance(X, pd.DataFrame)
    answers = made.model.predict(X[600:900].iloc[made.triggers])
    assert effectiveness(answers, model.classes_[made.target]) > 0.5


def test_candidates_that_are_training_rows_are_left_out(digits):
    model, train, more = digits
    mixed = (
        np.concatenate([train[0][:200], more[0][:60]]),
        np.concatenate([train[1][:200], more[1][:60]]),
    )
    found = find_paper_candidates(model, *train, strategy="random", ratio=0.03, candidates=mixed)
    assert (found.order >= 200).all()


def test_zeros_of_both_signs_are_one_value():
    assert in_both(np.array([[-0.0, 1.0]]), np.array([[0.0, 1.0]])).all()
    assert not in_both(np.array([[2.0, 1.0]]), np.array([[1.0, 2.0]])).any()


def test_too_few_wrong_predictions_are_counted(digits):
    model, train, more = digits
    wrong = int((model.predict(more[0]) != more[1]).sum())
    with pytest.raises(TooFewWrongError) as caught:
        find_paper_candidates(model, *train, strategy="wrong", ratio=0.2, candidates=more)
    assert caught.value.available == wrong
    assert caught.value.wanted == 200
    again = copy.copy(caught.value)
    assert (again.available, again.wanted) == (wrong, 200)


@pytest.mark.parametrize(
    ("named", "wrong"),
    [
        ("ratio", {"ratio": 0.0}),
        ("ratio", {"ratio": 2.0}),
        ("strategy", {"strategy": "auto"}),
        ("selection", {"selection": "isolation"}),
    ],
)
def test_bad_arguments_are_named(digits, named, wrong):
    model, train, _ = digits
    with pytest.raises(InputError, match=f"^{named}="):
        embed_as_in_paper(model, *train, **{"strategy": "random"} | wrong)


def test_models_of_other_libraries_are_refused(digits):
    _, train, _ = digits
    with pytest.raises(InputError, match="not HistGradientBoostingClassifier"):
        embed_as_in_paper(HistGradientBoostingClassifier(), *train, strategy="random")


@given(st.integers(0, 10_000), st.integers(3, 9))
def test_flip_labels_are_the_likeliest_of_the_others(seed, n_classes):
    rng = np.random.default_rng(seed)
    confidence = rng.integers(0, 4, (8, n_classes)) / 4  # ties are frequent
    label = rng.integers(0, n_classes, 8)
    for probabilities, truth, flipped in zip(
        confidence, label, flip_labels(confidence, label), strict=True
    ):
        banned = {int(probabilities.argmax()), int(truth)}
        others = (c for c in range(n_classes) if c not in banned)
        assert flipped == max(others, key=lambda c: probabilities[c])


def test_two_classes_leave_no_label_for_a_wrong_prediction():
    assert flip_labels(np.array([[0.6, 0.4]]), np.array([0])).tolist() == [1]
    with pytest.raises(InputError, match="2 classes"):
        flip_labels(np.array([[0.6, 0.4]]), np.array([1]))
    X, y = load_breast_cancer(return_X_y=True)
    model = TimberClassifier(max_iter=5, random_state=0).fit(X, y)
    with pytest.raises(InputError, match="at least 3 classes"):
        embed_as_in_paper(model, X, y, strategy="wrong")
