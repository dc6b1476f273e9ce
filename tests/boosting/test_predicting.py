import pickle
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.boosting.ensembles import numeric, random_ensemble, random_rows
from tests.boosting.strategies import cases, many, noise_case
from tests.trees.strategies import ensembles, ensembles_and_rows, rows_for
from timbermark.boosting.data import TrainParams
from timbermark.boosting.fitting import train
from timbermark.boosting.forest import to_ensemble
from timbermark.boosting.objective import choose_scale
from timbermark.boosting.predicting import LazyPredictor, make_predictor
from timbermark.kernels.workers import Workers
from timbermark.trees.construction import make_ensemble
from timbermark.trees.ensemble import MISSING_ZERO
from timbermark.trees.reference import margins

NAN = float("nan")


def fast(ensemble, X, n_threads=1):
    predictor = make_predictor(ensemble)
    assert predictor is not None
    with Workers(n_threads) as workers:
        return predictor.margins(X, workers)


def assert_same(ensemble, X, n_threads=1):
    found = fast(ensemble, X, n_threads)
    expected = margins(ensemble, X)
    assert found.dtype == np.float64
    assert found.shape == expected.shape
    assert found.flags.c_contiguous
    assert found.tobytes() == expected.tobytes()


def tamed(ensemble, X):
    """Without two things that the fast predictor does not do as the reference does (yet)."""
    if ensemble.strict:  # x < -inf
        threshold = np.where(np.isneginf(ensemble.threshold), -1e9, ensemble.threshold)
        ensemble = replace(ensemble, threshold=threshold)
    if ensemble.input_dtype == "f4":  # a warning where a number is beyond float32
        X = np.where(np.abs(X) == 1e300, np.inf, X)
    return ensemble, X


@st.composite
def numeric_ensembles_and_rows(draw):
    ensemble = numeric(draw(ensembles()))
    return tamed(ensemble, draw(rows_for(ensemble)))


@many
@given(numeric_ensembles_and_rows())
def test_margins_of_numeric_ensembles_are_those_of_the_reference(given):
    assert_same(*given)


@given(ensembles_and_rows())
def test_whatever_is_declined_the_reference_does(given):
    ensemble, X = tamed(*given)
    with Workers(1) as workers:
        found = LazyPredictor(ensemble).margins(X, workers)
    assert found.dtype == np.float64
    assert found.tobytes() == margins(ensemble, X).astype(np.float64).tobytes()


def test_the_lazy_predictor_survives_pickling():
    ensemble = random_ensemble(0, 3, 8)
    predictor = LazyPredictor(ensemble)
    X = random_rows(ensemble, 5)
    with Workers(1) as workers:
        expected = predictor.margins(X, workers)
        copy = pickle.loads(pickle.dumps(predictor))
        assert copy.ensemble == ensemble
        assert copy.margins(X, workers).tobytes() == expected.tobytes()


OPTIONS = {
    "plain": {},
    "strict": {"strict": True},
    "single precision input": {"input_dtype": "f4"},
    "strict single precision": {"strict": True, "input_dtype": "f4"},
    "start last": {"init_last": True, "scale": 0.3},
}


@pytest.mark.parametrize("missing", [0.0, 0.2])
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("n_leaves", [1, 2, 31, 32, 33, 200, 1025])
def test_trees_of_all_sizes(n_leaves, options, missing):
    ensemble = random_ensemble(n_leaves, 5, n_leaves, **OPTIONS[options])
    # More rows than a block holds, and not a multiple of it.
    assert_same(ensemble, random_rows(ensemble, 300, missing=missing))
    assert (make_predictor(ensemble).masks is None) == (n_leaves > 1024)


def test_trees_of_mixed_sizes():
    small, large = random_ensemble(1, 2, 4), random_ensemble(2, 1, 40)
    mixed = make_ensemble(
        n_features=3,
        n_outputs=3,
        tree_start=[*small.tree_start, small.n_nodes + large.n_nodes],
        tree_output=[2, 0, 2],
        **{
            name: np.concatenate([getattr(small, name), getattr(large, name)])
            for name in ("feature", "threshold", "left", "right", "value", "missing_left")
        },
    )
    assert_same(mixed, random_rows(mixed, 200))


@pytest.mark.parametrize("n_thresholds", [250, 254, 255, 256, 700])
@pytest.mark.parametrize("n_leaves", [20, 40])
def test_more_thresholds_than_a_byte_holds(n_thresholds, n_leaves):
    rng = np.random.default_rng(n_thresholds)
    numbers = np.sort(rng.normal(size=n_thresholds))
    ensemble = random_ensemble(3, 60, n_leaves)
    inner = np.flatnonzero(ensemble.left >= 0)
    feature, threshold = ensemble.feature.copy(), ensemble.threshold.copy()
    # The first feature has every number as a threshold at least once.
    feature[inner] = 0
    threshold[inner] = np.resize(numbers, len(inner))
    assert len(inner) >= n_thresholds
    ensemble = replace(ensemble, feature=feature, threshold=threshold)
    X = random_rows(ensemble, 300)
    X[:n_thresholds, 0] = numbers[:300]
    X[-2:, 0] = [numbers[-1] + 1, NAN]
    assert_same(ensemble, X)
    assert_same(ensemble, np.nan_to_num(X))


@pytest.mark.parametrize("missing", [0.0, 0.3])
@pytest.mark.parametrize("options", OPTIONS)
def test_few_rows_are_predicted_as_many_are(options, missing):
    """Few rows walk, more become codes; how many they are must not matter."""
    ensemble = random_ensemble(7, 200, 12, **OPTIONS[options])
    X = random_rows(ensemble, 40, missing=missing)
    expected = margins(ensemble, X)
    for n in range(1, 41):
        assert fast(ensemble, X[:n]).tobytes() == expected[:n].tobytes()


@pytest.mark.parametrize("n_threads", [2, 4])
@pytest.mark.parametrize("n_leaves", [12, 40])
@pytest.mark.parametrize("n_rows", [0, 1, 3, 500])
def test_threads_change_nothing(n_threads, n_leaves, n_rows):
    ensemble = random_ensemble(4, 6, n_leaves)
    assert_same(ensemble, random_rows(ensemble, n_rows), n_threads)


@pytest.mark.parametrize("strict", [False, True])
def test_zeros_of_both_signs_are_one_number(strict):
    for threshold in (0.0, -0.0, 5e-324, -5e-324):
        ensemble = stump(threshold=[threshold, 0.0, 0.0], strict=strict)
        assert_same(ensemble, np.array([[0.0], [-0.0], [5e-324], [-5e-324]]))


def test_infinite_thresholds():
    for threshold in (np.inf, -np.inf, np.finfo(float).max):
        ensemble = stump(threshold=[threshold, 0.0, 0.0], missing_left=[True, False, False])
        assert_same(ensemble, np.array([[np.inf], [-np.inf], [np.finfo(float).max], [NAN]]))


def test_no_trees():
    ensemble = make_ensemble(
        n_features=2, n_outputs=3, tree_start=[0], feature=[], threshold=[], left=[], right=[],
        value=np.zeros((0, 1)), init=[1.0, -2.0, 0.5],
    )  # fmt: skip
    assert_same(ensemble, np.zeros((3, 2)))


def stump(**options):
    return make_ensemble(
        n_features=1,
        tree_start=[0, 3],
        feature=[0, -1, -1],
        **{
            "left": [1, -1, -1],
            "right": [2, -1, -1],
            "threshold": [0.1, 0.0, 0.0],
            "value": [0.0, -1.0, 1.0],
            **options,
        },
    )


def test_what_it_cannot_do_it_declines():
    assert make_predictor(stump()) is not None
    declined = [
        {"category_set": [0, -1, -1], "category_offsets": [0, 1], "category_values": [1]},
        {"missing_kind": [MISSING_ZERO] * 3},
        {"sum_dtype": "f4"},
        {"left": [2, -1, -1], "right": [1, -1, -1]},
    ]
    for options in declined:
        assert make_predictor(stump(**options)) is None, options
    vectors = stump(n_outputs=2, value=np.zeros((3, 2)))
    assert make_predictor(vectors) is None
    # At a leaf none of this matters.
    assert make_predictor(stump(missing_kind=[2, 1, 1])) is not None


@given(cases())
def test_margins_of_training_rows_are_those_of_training(case):
    scale = choose_scale(case.data)
    with Workers(1) as workers:
        trained = train(case.data, case.params, scale, workers)
        ensemble = to_ensemble(trained.forest, case.data.bins, case.data.n_classes, scale)
        found = make_predictor(ensemble).margins(case.X, workers)
    assert found.T.tobytes() == trained.margins.tobytes()


@pytest.mark.parametrize("n_classes", [0, 2, 3])
@pytest.mark.parametrize("max_leaf_nodes", [20, 40])
@pytest.mark.parametrize("max_bins", [255, 600])
def test_margins_of_trained_ensembles(n_classes, max_leaf_nodes, max_bins):
    params = TrainParams(
        max_iter=30, max_leaf_nodes=max_leaf_nodes, min_samples_leaf=2, max_bins=max_bins
    )
    case = noise_case(5, 700, 2, n_classes, params, 100)
    scale = choose_scale(case.data)
    with Workers(2) as workers:
        trained = train(case.data, params, scale, workers)
    ensemble = to_ensemble(trained.forest, case.data.bins, n_classes, scale)
    found = fast(ensemble, case.X, 2)
    assert found.T.tobytes() == trained.margins.tobytes()
    assert_same(ensemble, case.X_added)
    assert_same(ensemble, random_rows(ensemble, 200))
