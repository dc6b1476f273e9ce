import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer

from timbermark import TimberClassifier
from timbermark.trees.construction import constant_ensemble
from timbermark.trees.statistics import (
    find_children,
    find_parents,
    flatten_leaves,
    node_means,
    replace_oddest,
)


@pytest.fixture(scope="module")
def ensemble():
    X, y = load_breast_cancer(return_X_y=True)
    return TimberClassifier(max_iter=12, random_state=0).fit(X, y).ensemble_


def test_every_child_has_its_parent(ensemble):
    parent = find_parents(ensemble)
    left, right = find_children(ensemble)
    inner = ensemble.left >= 0
    places = np.flatnonzero(inner)
    np.testing.assert_array_equal(parent[left[inner]], places)
    np.testing.assert_array_equal(parent[right[inner]], places)
    assert (parent < 0).sum() == ensemble.n_trees


def test_means_lie_between_those_of_the_children(ensemble):
    mass, mean = node_means(ensemble)
    left, right = find_children(ensemble)
    inner = np.flatnonzero(ensemble.left >= 0)
    a, b = mean[left[inner], 0], mean[right[inner], 0]
    assert (mean[inner, 0] >= np.minimum(a, b) - 1e-12).all()
    assert (mean[inner, 0] <= np.maximum(a, b) + 1e-12).all()
    np.testing.assert_allclose(mass[inner], mass[left[inner]] + mass[right[inner]])


def test_only_the_oddest_leaves_are_flattened(ensemble):
    leaf = ensemble.left < 0
    flat = flatten_leaves(ensemble, 0.25)
    changed = (flat != ensemble.value).any(axis=1)
    assert not changed[~leaf].any()
    assert changed[leaf].mean() == pytest.approx(0.25, abs=0.03)
    parent, (_, mean) = find_parents(ensemble), node_means(ensemble)
    np.testing.assert_array_equal(flat[changed], mean[parent[changed]])
    more = flatten_leaves(ensemble, 0.5)
    assert (changed <= (more != ensemble.value).any(axis=1)).all()


def test_a_leaf_without_a_parent_stays():
    lonely = constant_ensemble(n_features=1, value=2.0)
    np.testing.assert_array_equal(flatten_leaves(lonely, 1.0), lonely.value)
    value = np.ones((3, 1))
    none = np.zeros(3, bool)
    assert replace_oddest(value, 2 * value, np.ones(3), none, 1.0) is value
