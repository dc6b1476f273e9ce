import numpy as np
import pytest
from sklearn.datasets import load_digits

from timbermark import TimberClassifier
from timbermark.boosting.binning import encode
from timbermark.errors import InputError
from timbermark.kernels.workers import Workers
from timbermark.marking.cost import measure
from timbermark.marking.engine import Marked
from timbermark.marking.rows import (
    distinct_codes,
    repeated_codes,
    shared_codes,
    survives_rounding,
)
from timbermark.marking.setting import Request, gaps, set_answers
from timbermark.trees.ensemble import equal


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return X, y, TimberClassifier(max_iter=40, random_state=0).fit(X[:1200], y[:1200])


def test_answers_are_set_and_the_model_is_not_touched(digits):
    X, _, model = digits
    before = model.ensemble_
    marked = Marked(model, None, None, None)
    rows = X[1200:1212]
    target = (model.predict(rows) + 3) % 10
    none = np.empty((0, 64)), np.empty(0, np.int64)
    setting = set_answers(marked, Request(rows, target, np.full(12, 0.25), *none), 0.5, 10)
    assert (setting.gap >= 0.5).all()
    made = marked.wrap(setting.ensemble, setting.state)
    assert (made.predict(rows) == target).all()
    assert type(made) is type(model)
    assert model.ensemble_ is before
    assert equal(model.ensemble_, before)
    assert setting.weight.min() == 0.25


def test_a_model_without_state_is_rebuilt_from_data(digits, tmp_path):
    X, y, model = digits
    model.save(tmp_path / "m")
    bare = TimberClassifier.load(tmp_path / "m")
    with pytest.raises(InputError, match="no training state"):
        Marked(bare, None, None, None)
    assert (
        Marked(bare, X[:1200], y[:1200], None).state.model
        == Marked(model, None, None, None).state.model
    )


def test_gaps_of_two_classes():
    assert gaps(np.array([[2.0], [-1.0]]), np.array([1, 1])).tolist() == [2.0, -1.0]
    assert gaps(np.array([[2.0], [-1.0]]), np.array([0, 0])).tolist() == [-2.0, 1.0]


def test_codes():
    codes = np.array([[1, 2], [3, 4], [1, 2], [5, 6]], np.uint8)
    assert distinct_codes(codes).tolist() == [True, True, False, True]
    assert repeated_codes(codes).tolist() == [True, False, True, False]
    assert shared_codes(codes, codes[1:2]).tolist() == [False, True, False, False]


def test_rows_on_a_threshold_do_not_survive_rounding(digits):
    _, _, model = digits
    bins = model._state.data.bins
    feature = int(np.argmax(bins.n_thresholds))
    threshold = bins.thresholds(feature)[0]
    X = np.zeros((3, 64))
    X[:, feature] = threshold, np.nextafter(threshold, 9), threshold + 0.25
    with Workers(1) as workers:
        assert survives_rounding(X, bins, workers).tolist() == [False, False, True]
        single = X[2:].astype(np.float32).astype(float)
        assert np.array_equal(encode(bins, single, workers)[0], encode(bins, X[2:], workers)[0])


def test_quality():
    two = measure(np.array([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]]), np.array([0, 1, 1]))
    assert two.accuracy == pytest.approx(2 / 3)
    assert two.auc == 1.0
    assert two.recall == (1.0, 0.5)
    three = measure(np.eye(3), np.array([0, 1, 1]))
    assert three.auc is None
    assert np.isnan(three.recall[2])
