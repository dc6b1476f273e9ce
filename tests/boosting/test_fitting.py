from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.boosting.comparing import (
    assert_same_as_naive,
    assert_same_forest,
    assert_same_training,
    n_leaves,
)
from tests.boosting.naive import naive_mix, naive_train
from tests.boosting.strategies import cases, few, many, noise_case
from tests.boosting.watching import nobody_waits_for_ever
from timbermark.boosting import fitting
from timbermark.boosting.data import Bins, TrainingData, TrainParams
from timbermark.boosting.fitting import leaf_dtype, train, tree_key
from timbermark.boosting.objective import choose_scale, shares_word
from timbermark.kernels.workers import Workers
from timbermark.trees.reference import probabilities

PARAMS = TrainParams(
    max_iter=3,
    learning_rate=0.5,
    max_leaf_nodes=12,
    min_samples_leaf=3,
    max_bins=32,
    split_sampling=0.5,
    seed=7,
)


def fit(data, params, scale=None, n_threads=1, record=True, **options):
    with Workers(n_threads) as workers:
        return train(data, params, scale or choose_scale(data), workers, record=record, **options)


def assert_naive(data, params):
    scale = choose_scale(data)
    trained = fit(data, params, scale)
    assert_same_as_naive(trained, naive_train(data, params, scale), scale.shift)
    return trained


@many
@given(cases())
def test_training_is_that_of_the_naive_grower(case):
    assert_naive(case.data, case.params)


@pytest.mark.parametrize("n_classes", [0, 2, 3, 5])
@pytest.mark.parametrize("split_sampling", [0.1, 1.0])
@pytest.mark.parametrize("decimals", [1, 6])
def test_larger_trees_are_those_of_the_naive_grower(n_classes, split_sampling, decimals):
    params = replace(PARAMS, split_sampling=split_sampling, max_iter=2)
    case = noise_case(n_classes, 150, 3, n_classes, params, decimals=decimals)
    trained = assert_naive(case.data, params)
    assert n_leaves(trained.forest).max() == params.max_leaf_nodes


@pytest.mark.parametrize("n_classes", [0, 2, 3])
@pytest.mark.parametrize("split_sampling", [0.1, 1.0])
def test_more_bins_than_a_byte_holds(n_classes, split_sampling):
    params = replace(PARAMS, max_bins=300, max_iter=1, split_sampling=split_sampling)
    case = noise_case(3, 400, 2, n_classes, params)
    assert case.data.codes.dtype == np.uint16
    assert case.data.codes.max() > 255
    assert_naive(case.data, params)


def test_more_leaves_than_a_byte_holds():
    params = replace(PARAMS, max_leaf_nodes=140, min_samples_leaf=1, max_iter=1)
    case = noise_case(4, 300, 2, 2, params)
    label = np.random.default_rng(4).integers(0, 2, 300).astype(np.int32)
    trained = assert_naive(replace(case.data, label=label), params)
    assert trained.leaf.dtype == np.uint16
    assert trained.leaf.max() > 255


@pytest.mark.parametrize("n_rows", [1, 2])
@pytest.mark.parametrize("n_classes", [0, 2, 3])
def test_one_row_and_two_rows(n_rows, n_classes):
    params = replace(PARAMS, min_samples_leaf=1, max_iter=2)
    case = noise_case(5, n_rows, 2, n_classes, params, missing=0.0)
    trained = assert_naive(case.data, params)
    if n_rows == 1:
        assert (trained.forest.n_nodes == 1).all()


def test_nothing_but_missing_values():
    params = replace(PARAMS, min_samples_leaf=1)
    case = noise_case(6, 9, 3, 3, params, missing=1.1)
    trained = assert_naive(case.data, params)
    assert (trained.forest.n_nodes == 1).all()
    assert trained.margins.any()


# Thirteen iterations: more than are done between two looks at the progress.
@pytest.mark.parametrize("n_classes", [0, 2, 3, 5])
@pytest.mark.parametrize("max_bins", [32, 300])
def test_threads_change_nothing(n_classes, max_bins):
    params = replace(PARAMS, max_iter=13, max_bins=max_bins)
    case = noise_case(8, 400, 4, n_classes, params)
    expected = fit(case.data, params)
    assert n_leaves(expected.forest).max() > 4
    for n_threads in (1, 2, 4):
        assert_same_training(fit(case.data, params, n_threads=n_threads), expected)


@few
@given(cases())
def test_threads_change_nothing_on_odd_data(case):
    expected = fit(case.data, case.params)
    for n_threads in (2, 4):
        assert_same_training(fit(case.data, case.params, n_threads=n_threads), expected)


@pytest.mark.parametrize("n_classes", [0, 2])
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("n_rows", [3, 300])
@pytest.mark.parametrize("n_threads", [2, 4, 7])
def test_threads_that_share_a_tree_change_nothing(
    monkeypatch, n_classes, weighted, n_rows, n_threads
):
    case = noise_case(9, n_rows, 3, n_classes, PARAMS, weighted=weighted)
    expected = fit(case.data, PARAMS)
    teams = []
    original = fitting.make_team
    monkeypatch.setattr(fitting, "_ALONE", 1)
    monkeypatch.setattr(
        fitting, "make_team", lambda *given: (teams.append(given[2]), original(*given))[1]
    )
    assert_same_training(fit(case.data, PARAMS, n_threads=n_threads), expected)
    assert teams == [n_threads]


def test_threads_that_share_a_tree_change_nothing_on_odd_data(monkeypatch):
    monkeypatch.setattr(fitting, "_ALONE", 1)

    @few
    @given(cases())
    def check(case):
        expected = fit(case.data, case.params)
        for n_threads in (2, 4):
            assert_same_training(fit(case.data, case.params, n_threads=n_threads), expected)

    check()


def test_of_equal_splits_threads_take_that_of_the_first_feature(monkeypatch):
    """Each of two threads has one of two equal features."""
    monkeypatch.setattr(fitting, "_ALONE", 1)
    case = noise_case(9, 200, 1, 2, PARAMS)
    data = replace(
        case.data,
        bins=Bins(np.tile(case.data.bins.values, 2), np.arange(3) * len(case.data.bins.values)),
        codes=np.repeat(case.data.codes, 2, axis=1),
        columns=np.repeat(case.data.columns, 2, axis=0),
    )
    params = replace(PARAMS, split_sampling=1.0)
    for n_threads in (1, 2):
        forest = fit(data, params, n_threads=n_threads).forest
        assert set(np.unique(forest.nodes["feature"])) == {-1, 0}


@pytest.mark.parametrize("n_threads", [1, 2])
def test_histograms_of_one_word_change_nothing(monkeypatch, n_threads):
    monkeypatch.setattr(fitting, "_ALONE", 1)
    case = noise_case(19, 300, 3, 0, PARAMS, weighted=False)
    assert shares_word(choose_scale(case.data), case.data, PARAMS)
    found = fit(case.data, PARAMS, n_threads=n_threads)
    monkeypatch.setattr(fitting, "shares_word", lambda *given: False)
    assert_same_training(found, fit(case.data, PARAMS, n_threads=n_threads))


def test_another_seed_draws_other_candidates():
    params = replace(PARAMS, split_sampling=0.1)
    case = noise_case(10, 200, 3, 2, params)
    first = fit(case.data, params)
    other = fit(case.data, replace(params, seed=params.seed + 1))
    assert first.margins.tobytes() != other.margins.tobytes()


@pytest.mark.parametrize("n_classes", [0, 2, 3])
def test_without_a_record_the_trees_are_the_same(n_classes):
    case = noise_case(11, 120, 3, n_classes, PARAMS)
    expected = fit(case.data, PARAMS)
    found = fit(case.data, PARAMS, record=False)
    assert_same_forest(found.forest, expected.forest)
    assert found.margins.tobytes() == expected.margins.tobytes()
    assert found.record.shape[1] == 0


def copied(data, times):
    """Every row as often as ``times`` says, each with weight one."""
    codes = np.repeat(data.codes, times, axis=0)
    return TrainingData(
        data.bins,
        codes,
        np.ascontiguousarray(codes.T),
        np.repeat(data.label, times),
        np.ones(len(codes), np.float32),
        data.n_classes,
    )


def weighted_case(seed, n_classes, params):
    case = noise_case(seed, 200, 3, n_classes, params, weighted=False)
    times = np.random.default_rng(seed).integers(1, 6, case.data.n_rows)
    return replace(case.data, weight=times.astype(np.float32)), times


@pytest.mark.parametrize("n_classes", [0, 2, 3, 5])
def test_a_whole_weight_is_as_many_copies(n_classes):
    params = replace(PARAMS, max_iter=5)
    case = noise_case(12, 200, 3, n_classes, params, weighted=False)
    times = np.random.default_rng(12).integers(1, 9, case.data.n_rows)
    weighted = replace(case.data, weight=times.astype(np.float32))
    scale = choose_scale(weighted)
    a, b = fit(weighted, params, scale), fit(copied(case.data, times), params, scale)
    assert n_leaves(a.forest).max() == params.max_leaf_nodes
    assert_same_forest(a.forest, b.forest)
    np.testing.assert_array_equal(np.repeat(a.margins, times, axis=1), b.margins)


@given(cases(), st.data())
def test_a_whole_weight_is_as_many_copies_on_odd_data(case, draw):
    n = case.data.n_rows
    times = np.array(draw.draw(st.lists(st.integers(1, 5), min_size=n, max_size=n)))
    weighted = replace(case.data, weight=times.astype(np.float32))
    scale = choose_scale(weighted)
    a = fit(weighted, case.params, scale)
    b = fit(copied(case.data, times), case.params, scale)
    assert_same_forest(a.forest, b.forest)
    np.testing.assert_array_equal(np.repeat(a.margins, times, axis=1), b.margins)


@pytest.mark.parametrize("n_classes", [0, 2, 3])
def test_every_iteration_lowers_the_loss(n_classes):
    params = replace(PARAMS, max_iter=8, learning_rate=0.1)
    case = noise_case(14, 300, 3, n_classes, params, weighted=False)
    losses = []
    for n_iterations in range(params.max_iter + 1):
        margins = fit(case.data, replace(params, max_iter=n_iterations)).margins
        if n_classes == 0:
            losses.append(((margins[0] - case.data.label) ** 2).mean())
            continue
        objective = "logistic" if n_classes == 2 else "softmax"
        share = probabilities(margins.T, objective)[np.arange(300), case.data.label]
        losses.append(-np.log(share).mean())
    assert (np.diff(losses) < 0).all()


@pytest.mark.parametrize("n_threads", [1, 2])
def test_progress_is_told(monkeypatch, n_threads):
    monkeypatch.setattr(fitting, "_ALONE", 1)
    params = replace(PARAMS, max_iter=23)
    told = []
    fit(noise_case(15, 60, 2, 2, params).data, params, n_threads=n_threads, progress=told.append)
    assert told == sorted(set(told))
    assert told[-1] == 23
    assert len(told) >= 3


@pytest.mark.parametrize("n_classes", [0, 2, 3])
def test_whoever_looks_at_the_progress_may_stop_it(n_classes):
    def stop(done):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(noise_case(16, 60, 2, n_classes, PARAMS).data, PARAMS, n_threads=2, progress=stop)


@pytest.mark.parametrize("failing", [0, 1, 2])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_thread_that_fails_does_not_leave_the_others_waiting(monkeypatch, failing, n_classes):
    monkeypatch.setattr(fitting, "_ALONE", 1)
    original = fitting.train_trees

    def fails(turn, *given):
        syncs.append(turn.sync)
        if turn.thread == failing:
            raise MemoryError(f"thread {failing}")
        original(turn, *given)

    monkeypatch.setattr(fitting, "train_trees", fails)
    with (
        nobody_waits_for_ever() as syncs,
        pytest.raises(MemoryError, match=f"thread {failing}"),
    ):
        fit(noise_case(17, 60, 2, n_classes, PARAMS).data, PARAMS, n_threads=3)


def test_tree_keys_are_hashes_of_seed_and_number():
    for seed in (0, 1, 2**64 - 1):
        for tree in (0, 5):
            assert int(tree_key(seed, tree)) == naive_mix(seed, tree)


def test_leaf_numbers_fit_their_type():
    assert leaf_dtype(2) is np.uint8
    assert leaf_dtype(128) is np.uint8
    assert leaf_dtype(129) is np.uint16
