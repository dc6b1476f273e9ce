"""Kinship: trees are recognized in disguise, and models of honest owners have few in common."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import GradientBoostingClassifier, HistGradientBoostingClassifier

from timbermark import libraries
from timbermark.verification.kinship import compare_models

X, Y = load_breast_cancer(return_X_y=True)


def fitted(model, rows=slice(None)):
    return libraries.open(model.fit(X[rows], Y[rows])).ensemble


@pytest.fixture(scope="module")
def stolen():
    return fitted(HistGradientBoostingClassifier(max_iter=30))


def compare(one, other):
    return compare_models({"a": one, "b": other}, [("a", "b")], {"a": "a", "b": "b"})["a", "b"]


@pytest.mark.parametrize("by", [1e-12, 1e-6, 1e-4, 1e-3])
def test_moved_thresholds_are_recognized(stolen, by):
    noise = np.random.default_rng(0).uniform(-by, by, size=len(stolen.threshold))
    moved = replace(stolen, threshold=stolen.threshold * (1 + noise), value=stolen.value * 0.7)
    found = compare(moved, stolen)
    assert min(found.of_first, found.of_second) > 0.95


OTHERS = {
    "half of the rows": (HistGradientBoostingClassifier(max_iter=30), slice(0, None, 2)),
    "nine tenths of the rows": (HistGradientBoostingClassifier(max_iter=30), slice(57, None)),
    "another learning rate": (
        HistGradientBoostingClassifier(max_iter=30, learning_rate=0.05),
        slice(None),
    ),
    "another learner": (GradientBoostingClassifier(n_estimators=30, random_state=0), slice(None)),
}


@pytest.mark.parametrize("other", OTHERS)
def test_models_trained_apart_have_few_trees_in_common(stolen, other):
    """Even on the same rows: below what counts as a trace."""
    assert compare(fitted(*OTHERS[other]), stolen).largest < 0.25


def test_other_columns_have_nothing_in_common(stolen):
    other = libraries.open(HistGradientBoostingClassifier(max_iter=3).fit(X[:, :5], Y)).ensemble
    assert compare(stolen, other).largest == 0.0


def test_models_that_are_not_there_are_left_out(stolen):
    assert compare_models({"a": stolen}, [("a", "b")], {"a": "a"}) == {}


def test_thresholds_far_away_do_not_make_trees_alike(stolen):
    """Rows beyond all data show next to nothing of a tree, so they recognize none."""
    far = replace(stolen, threshold=np.where(stolen.left >= 0, stolen.threshold * 1e6 + 1e9, 0.0))
    assert compare(far, stolen).largest < 0.25
