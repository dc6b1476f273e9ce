import itertools
from dataclasses import replace

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, make_classification, make_regression
from sklearn.ensemble import (
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from timbermark import TimberClassifier
from timbermark.editing.routing import Router
from timbermark.kernels.workers import Workers
from timbermark.marking.models import open_model
from timbermark.marking.splits import SplitLimits, SplitSearch, set_thresholds, split_strata
from timbermark.ownership.evidence import mean_bits, split_gains
from timbermark.trees import reference


def split_evidence(answers, reference, symbols, kind):
    return mean_bits(split_gains(np.asarray(answers), reference, symbols, kind).sum(axis=1))


def _lightgbm():
    return pytest.importorskip("lightgbm").LGBMClassifier(n_estimators=30, verbose=-1, n_jobs=1)


def _xgboost():
    return pytest.importorskip("xgboost").XGBClassifier(n_estimators=30, n_jobs=1)


def _catboost():
    catboost = pytest.importorskip("catboost")
    return catboost.CatBoostClassifier(
        iterations=30, verbose=0, allow_writing_files=False, thread_count=1
    )


MODELS = {
    "lightgbm": _lightgbm,
    "xgboost": _xgboost,
    "catboost": _catboost,
    "histogram": lambda: HistGradientBoostingClassifier(max_iter=30),
    "gradient": lambda: GradientBoostingClassifier(n_estimators=30),
    "timbermark": lambda: TimberClassifier(max_iter=30, random_state=0),
}


def find_splits(*given, limits=None, **options):
    """Return the triggers of a `SplitSearch` with one choice of boundaries."""
    limits = limits or SplitLimits()
    search = SplitSearch(*given, 0, limits, **options)
    return search.find_triggers(search.choose(limits), limits)


def find(model, X, limits=None, **options):
    """Return an opened model and its triggers."""
    foreign = open_model(model)
    with Workers(1) as workers:
        found = find_splits(
            Router(foreign.ensemble), X, foreign.rows(X), foreign.rows, foreign.answers, workers,
            limits=limits, **options,
        )  # fmt: skip
    return foreign, found


def answer(foreign, ensemble, X):
    return foreign.answers(np.asarray(reference.margins(ensemble, foreign.rows(X)), np.float64))


@pytest.fixture(scope="module")
def cancer():
    return load_breast_cancer(return_X_y=True)


@pytest.mark.parametrize("library", MODELS)
def test_symbols_decide_the_middle_and_nothing_else(library, cancer):
    X, y = cancer
    foreign, found = find(MODELS[library]().fit(X, y), X, SplitLimits(free=60, wide=30))
    b, e = found.boundaries, foreign.ensemble
    assert len(found) >= 40
    free = np.flatnonzero(~b.wide)
    for seed in range(2):
        symbols = np.random.default_rng(seed).integers(2, size=len(found))
        made = set_thresholds(e, b, symbols)
        # No training row takes another way because of a free boundary.
        moved = set_thresholds(e, b.take(free), symbols[free])
        np.testing.assert_array_equal(
            reference.leaf_indices(e, foreign.rows(X)),
            reference.leaf_indices(moved, foreign.rows(X)),
        )
        leaves = reference.leaf_indices(made, foreign.rows(found.rows())).reshape(len(found), 3, -1)
        np.testing.assert_array_equal(leaves[:, 1], leaves[np.arange(len(found)), 2 * symbols])
        assert (leaves[:, 0] != leaves[:, 2]).any(axis=1).all()
        answers = answer(foreign, made, found.rows()).reshape(len(found), 3, -1)
        bits = split_evidence(answers, found.reference, symbols, "scores")
        assert bits > len(found) - 8
    assert replace(made, threshold=e.threshold) == e


@pytest.mark.parametrize("library", MODELS)
def test_base_rows_are_real_but_for_one_value(library, cancer):
    X, y = cancer
    _, found = find(MODELS[library]().fit(X, y), X, SplitLimits(free=40, wide=20))
    b = found.boundaries
    differ = found.base != X[found.row]
    own = np.arange(X.shape[1]) == b.column[:, None]
    assert not (differ & ~own).any()
    assert len(set(found.row.tolist())) == len(found)
    for f in np.unique(b.feature):
        ends = sorted(zip(b.below[b.feature == f], b.above[b.feature == f], strict=True))
        assert all(first[1] <= second[0] for first, second in itertools.pairwise(ends))
    # Inside another boundary, a base row would answer by that one's symbol as well.
    for i in np.flatnonzero(b.wide):
        inside = (found.base[:, b.column[i]] > b.a[i]) & (found.base[:, b.column[i]] < b.b[i])
        assert not (inside & (b.column != b.column[i])).any()


def test_middles_have_no_more_decimals_than_their_column(cancer):
    X, y = cancer
    _, found = find(_lightgbm().fit(X, y), X)
    for column, mid in zip(found.boundaries.column, found.boundaries.mid, strict=True):
        decimals = max(len(repr(float(v)).partition(".")[2]) for v in X[:, column])
        assert len(repr(float(mid)).partition(".")[2]) <= decimals


def test_labels_tell_some_symbols():
    X, y = make_classification(1500, 8, n_informative=5, n_classes=3, flip_y=0.2, random_state=0)
    X = X.round(3)
    foreign, found = find(HistGradientBoostingClassifier(max_iter=60).fit(X, y), X)
    assert found.labels_differ.sum() >= 20
    symbols = np.random.default_rng(1).integers(2, size=len(found))
    made = set_thresholds(foreign.ensemble, found.boundaries, symbols)
    labels = answer(foreign, made, found.rows()).argmax(axis=1).reshape(-1, 3)
    bits = split_evidence(labels, found.reference, symbols, "labels")
    assert found.labels_differ.sum() - 5 < bits < found.labels_differ.sum()


def test_numbers_carry_symbols():
    X, y = make_regression(1500, 6, noise=5.0, random_state=0)
    model = HistGradientBoostingRegressor(max_iter=60).fit(X, y)
    foreign, found = find(model, X)
    symbols = np.random.default_rng(1).integers(2, size=len(found))
    made = set_thresholds(foreign.ensemble, found.boundaries, symbols)
    numbers = answer(foreign, made, found.rows()).reshape(len(found), 3)
    assert split_evidence(numbers, found.reference, symbols, "numbers") > len(found) - 8


def test_boundaries_live_in_the_columns_of_what_is_deployed(cancer):
    X, y = cancer
    turned = FunctionTransformer(lambda X: np.column_stack([-X[:, :5], (X[:, 5:] - 0.1) ** 2]))
    model = make_pipeline(StandardScaler(), turned, HistGradientBoostingClassifier(max_iter=30))
    foreign, found = find(model.fit(X, y), X, SplitLimits(free=40, wide=20))
    assert len(found) >= 10
    assert found.boundaries.falls.any()
    assert any("not monotone" in note for note in found.notes)
    symbols = np.random.default_rng(1).integers(2, size=len(found))
    made = set_thresholds(foreign.ensemble, found.boundaries, symbols)
    answers = answer(foreign, made, found.rows()).reshape(len(found), 3, -1)
    at = np.arange(len(found))
    np.testing.assert_array_equal(answers[:, 1], answers[at, 2 * symbols])


def test_same_triggers_every_time_and_for_any_number_of_threads(cancer):
    X, y = cancer
    foreign = open_model(_lightgbm().fit(X, y))
    made = []
    for threads in (1, 3):
        with Workers(threads) as workers:
            made.append(
                find_splits(Router(foreign.ensemble), X, X, foreign.rows, foreign.answers, workers)
            )
    np.testing.assert_array_equal(made[0].rows(), made[1].rows())
    np.testing.assert_array_equal(made[0].boundaries.low, made[1].boundaries.low)


def test_model_without_numeric_splits_has_no_triggers():
    X = np.zeros((100, 2))
    _, found = find(HistGradientBoostingClassifier().fit(X, np.arange(100) % 2), X)
    assert len(found) == 0
    assert all(len(part) == 0 for part in split_strata(found))


def test_strata_follow_from_what_a_mark_holds(cancer):
    X, y = cancer
    _, found = find(_lightgbm().fit(X, y), X)
    strata = split_strata(found)
    assert all(part.shape == (len(found),) for part in strata)
    assert all(len(np.unique(part)) > 1 for part in strata)


def test_boundaries_stay_away_from_where_a_rare_class_is_frequent():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000, 6))
    # Most positives are in the tail of one column, where values are far apart.
    X[:, 0] = np.where(rng.random(len(X)) < 0.01, np.rint(rng.exponential(20_000.0, len(X))), 0.0)
    score = np.minimum(X[:, 0] / 10_000.0, 3.0) + 0.3 * X[:, 1:].sum(axis=1)
    y = (rng.random(len(X)) < 1.0 / (1.0 + np.exp(6.5 - 1.5 * score))).astype(int)
    assert 0.002 < y.mean() < 0.005
    limits = SplitLimits(free=60, wide=40)
    _, found = find(TimberClassifier(max_iter=40, random_state=0).fit(X, y), X, limits)
    b = found.boundaries
    inside = np.zeros(len(X), np.bool_)
    for w in np.flatnonzero(b.wide):
        values = X[:, b.feature[w]]
        inside |= (values > b.below[w]) & (values < b.above[w])
    assert inside.mean() > 0.02
    assert inside[y == 1].mean() <= 2.0 * inside.mean()
    # No training row is inside a free boundary; of unseen rows, those with the highest scores are
    # where it is wide.
    in_tail = ~b.wide & (b.feature == 0)
    assert in_tail.sum() >= 10
    assert (b.above - b.below)[in_tail].max() < 1000.0
