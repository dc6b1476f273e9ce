import numpy as np
import pytest

from tests.attacks.models import LIBRARIES, data, fitted, stolen, thief
from timbermark.attacks.stolen import LeafValues, NotOfferedError


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_stolen_model_answers_as_the_model_does(library):
    X, _ = data()
    found = stolen(library).answer(X[:300])
    np.testing.assert_allclose(found, fitted(library).predict_proba(X[:300]), atol=1e-5)


@pytest.mark.parametrize("library", LIBRARIES)
def test_leaf_values_that_are_put_reach_the_library(library):
    X, _ = data()
    model = stolen(library)
    leaves = LeafValues.of(model, X[:50])
    edited = leaves.put([0.5 * value for value in leaves.value])
    native = edited.file().native
    np.testing.assert_allclose(edited.answer(X[:300]), native.predict_proba(X[:300]), atol=1e-5)
    assert np.abs(edited.answer(X[:300]) - model.answer(X[:300])).max() > 0.05
    # The one that was given is untouched, and so is where its rows end.
    again = LeafValues.of(edited, X[:50])
    for one, two in zip(leaves.value, again.value, strict=True):
        np.testing.assert_allclose(0.5 * one, two, rtol=1e-6, atol=1e-9)


def test_what_is_known_of_rows_follows_other_rows_of_the_same_shape():
    X, _ = data()
    model = stolen("timbermark")
    tables = [X[a : a + 40].copy() for a in (0, 40, 80, 120)]
    first = [model.answer(table) for table in tables]
    for table, answers in zip(tables, first, strict=True):
        np.testing.assert_array_equal(model.answer(table), answers)
        np.testing.assert_array_equal(model.answer(table.copy()), answers)


def test_a_service_has_no_file():
    served = stolen("timbermark").served(lambda X: np.zeros((len(X), 4)))
    with pytest.raises(NotOfferedError, match="one model file"):
        served.file()


def test_random_numbers_depend_on_seed_and_purpose():
    one, two = thief(seed=1), thief(seed=2)
    assert one.rng("a").random() == thief(seed=1).rng("a").random()
    assert len({one.rng("a").random(), one.rng("b").random(), two.rng("a").random()}) == 3
