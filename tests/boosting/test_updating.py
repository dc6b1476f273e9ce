from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.boosting.comparing import assert_same_forest, n_leaves, used_nodes
from tests.boosting.naive import Sums, gradients, naive_paths, naive_train, naive_value
from tests.boosting.strategies import cases, cases_with_additions, many, noise_case
from tests.boosting.watching import nobody_waits_for_ever
from timbermark.boosting import updating
from timbermark.boosting.data import TrainParams, empty_data, join_data, make_data, take_rows
from timbermark.boosting.fitting import train
from timbermark.boosting.forest import to_ensemble
from timbermark.boosting.objective import choose_scale
from timbermark.boosting.state import fit_data
from timbermark.boosting.updating import renew, update_ensemble
from timbermark.kernels.workers import Workers
from timbermark.trees.ensemble_file import validate_ensemble
from timbermark.trees.reference import leaf_indices, margins

INF = float("inf")
PARAMS = TrainParams(
    max_iter=4,
    learning_rate=0.5,
    max_leaf_nodes=12,
    min_samples_leaf=3,
    max_bins=32,
    split_sampling=0.5,
    seed=7,
)
patiences = st.sampled_from([0.0, 0.02, 0.1, 0.3, 1.0])
tolerances = st.sampled_from([0.0, 0.01, 0.3, INF])


# Shares of rows up to which gradients are derived as they are asked for: none and all.
shares = st.sampled_from([0.0, 10.0])


@contextmanager
def few_touched(share):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(updating, "_FEW_TOUCHED", share)
        yield


def fit(data, params, scale, n_threads=1):
    with Workers(n_threads) as workers:
        return train(data, params, scale, workers, record=True)


def update(case, patience, tolerance, n_threads=1, trained=None, **options):
    scale = choose_scale(case.data)
    if trained is None:
        trained = fit(case.data, case.params, scale)
    with Workers(n_threads) as workers:
        return renew(
            trained, case.data, case.added, case.params, scale, patience, tolerance, workers,
            **options,
        )  # fmt: skip


def train_again(case, gone=None):
    """On the rows that are left, with the same bins, seeds and scale."""
    left = np.ones(case.whole.n_rows, np.bool_)
    if gone is not None:
        left[: case.data.n_rows] = ~gone
    return fit(take_rows(case.whole, left), case.params, choose_scale(case.data)).forest


def draw_gone(data, case):
    """Rows of the training that are forgotten; one row at least is left."""
    n = case.data.n_rows
    rows = data.draw(st.sets(st.integers(0, n - 1), max_size=n - (case.added.n_rows == 0)))
    gone = np.zeros(n, np.bool_)
    gone[list(rows)] = True
    return gone


@many
@given(cases_with_additions())
def test_without_patience_and_tolerance_it_is_training_again(case):
    assert_same_forest(update(case, 0.0, 0.0), train_again(case))


@many
@given(cases_with_additions(), st.data())
def test_without_patience_and_tolerance_forgetting_is_training_without(case, data):
    gone = draw_gone(data, case)
    assert_same_forest(update(case, 0.0, 0.0, gone=gone), train_again(case, gone))


@pytest.mark.parametrize("n_classes", [0, 2, 3])
@pytest.mark.parametrize("n_gone", [1, 12, 350])
def test_larger_trees_forget(n_classes, n_gone):
    params = replace(PARAMS, max_iter=12)
    case = noise_case(n_gone, 400, 3, n_classes, params, 5, decimals=2)
    gone = np.arange(400) % 400 < n_gone
    gone = np.random.default_rng(0).permutation(gone)
    assert_same_forest(update(case, 0.0, 0.0, gone=gone), train_again(case, gone))


@pytest.mark.parametrize("n_classes", [0, 2, 3])
@pytest.mark.parametrize("max_bins", [16, 300])
@pytest.mark.parametrize("n_added", [1, 5, 60])
def test_larger_trees_are_those_of_training_again(n_classes, max_bins, n_added):
    params = replace(PARAMS, max_bins=max_bins, max_iter=12)
    case = noise_case(n_added, 400, 3, n_classes, params, n_added, decimals=2)
    expected = train_again(case)
    assert n_leaves(expected).max() == params.max_leaf_nodes
    assert_same_forest(update(case, 0.0, 0.0), expected)


@given(cases(), patiences, tolerances)
def test_adding_nothing_changes_nothing(case, patience, tolerance):
    scale = choose_scale(case.data)
    trained = fit(case.data, case.params, scale)
    with Workers(1) as workers:
        found = renew(
            trained, case.data, empty_data(case.data), case.params, scale, patience, tolerance,
            workers,
        )  # fmt: skip
    assert_same_forest(found, trained.forest)


def assert_sound(forest, case, gone=None):
    """Every node has the rows that come by, enough of them, and margins are sums of leaves."""
    params, whole = case.params, case.whole
    assert (n_leaves(forest) <= params.max_leaf_nodes).all()
    ensemble = to_ensemble(forest, whole.bins, whole.n_classes, choose_scale(case.data))
    validate_ensemble(ensemble)
    total = np.full((whole.n_rows, whole.n_outputs), ensemble.init[0])
    in_leaf = leaf_indices(ensemble, case.all_rows)
    weights = whole.count.copy()
    if gone is not None:
        weights[: case.data.n_rows][gone] = 0
    for tree in range(forest.n_trees):
        nodes = used_nodes(forest, tree)
        paths = naive_paths(nodes, whole.codes, whole.bins.n_thresholds)
        count = np.zeros(len(nodes), np.int64)
        for path, weight in zip(paths, weights, strict=True):
            count[path] += weight
        np.testing.assert_array_equal(nodes["c"], count)
        assert nodes["c"][nodes["left"] < 0].sum() == weights.sum()
        assert (nodes["c"][1:] >= params.min_samples_leaf).all()
        np.testing.assert_array_equal(in_leaf[:, tree], [path[-1] for path in paths])
        total[:, tree % whole.n_outputs] += nodes["value"][in_leaf[:, tree]]
    assert margins(ensemble, case.all_rows).tobytes() == total.tobytes()


@given(cases_with_additions(), patiences, tolerances, shares, st.data())
def test_a_lazy_update_is_sound(case, patience, tolerance, few, data):
    gone = draw_gone(data, case)
    with few_touched(few):
        assert_sound(update(case, patience, tolerance, gone=gone), case, gone)


@pytest.mark.parametrize("n_classes", [0, 2, 3])
@pytest.mark.parametrize("patience", [0.05, 0.5])
@pytest.mark.parametrize("tolerance", [0.0, 0.05, INF])
def test_a_lazy_update_of_larger_trees_is_sound(n_classes, patience, tolerance):
    case = noise_case(21, 200, 3, n_classes, PARAMS, 25)
    gone = np.arange(200) % 9 == 0
    for few in (0.0, 1.0):
        with few_touched(few):
            assert_sound(update(case, patience, tolerance), case)
            assert_sound(update(case, patience, tolerance, gone=gone), case, gone)


def assert_sums_are_current(forest, case):
    """Every node's sums are those of its rows' gradients in the model as it is now."""
    whole, scale = case.whole, choose_scale(case.data)
    total = np.full((whole.n_outputs, whole.n_rows), scale.start)
    for tree in range(forest.n_trees):
        output = tree % whole.n_outputs
        if output == 0:
            grad, hess = gradients(total, whole, scale)
        nodes = used_nodes(forest, tree)
        sums = np.zeros((len(nodes), 2), np.int64)
        for row, path in enumerate(naive_paths(nodes, whole.codes, whole.bins.n_thresholds)):
            sums[path] += [grad[output, row], hess[output, row]]
            total[output, row] += nodes["value"][path[-1]]
        np.testing.assert_array_equal(nodes["g"], sums[:, 0])
        np.testing.assert_array_equal(nodes["h"], sums[:, 1])
        for node in nodes:
            expected = Sums(int(node["g"]), int(node["h"]), int(node["c"]))
            assert node["value"] == naive_value(expected, case.params, whole.n_classes, scale)


# Rows whose margins moved are taken out of the old sums and put back in: nothing may be left over.
@given(cases_with_additions(), patiences)
def test_without_tolerance_all_sums_are_up_to_date(case, patience):
    assert_sums_are_current(update(case, patience, 0.0), case)


@pytest.mark.parametrize("n_classes", [0, 2, 3])
@pytest.mark.parametrize("patience", [0.05, 0.5])
def test_without_tolerance_all_sums_of_larger_trees_are_up_to_date(n_classes, patience):
    case = noise_case(22, 200, 3, n_classes, PARAMS, 25)
    assert_sums_are_current(update(case, patience, 0.0), case)


@given(cases_with_additions())
def test_with_boundless_patience_and_tolerance_rows_join_the_trees_as_they_are(case):
    """Where few come, no leaf is added up anew: sums are what they were, and the rows'."""
    scale = choose_scale(case.data)
    trained = fit(case.data, case.params, scale)
    with few_touched(10.0):
        forest = update(case, INF, INF, trained=trained)
    added = case.added
    np.testing.assert_array_equal(forest.n_nodes, trained.forest.n_nodes)
    total = np.full((added.n_outputs, added.n_rows), scale.start)
    for tree in range(forest.n_trees):
        output = tree % added.n_outputs
        if output == 0:
            grad, hess = gradients(total, added, scale)
        nodes, was = used_nodes(forest, tree), used_nodes(trained.forest, tree)
        for name in ("left", "split", "feature", "code", "key"):
            np.testing.assert_array_equal(nodes[name], was[name])
        expected = [Sums(int(node["g"]), int(node["h"]), int(node["c"])) for node in was]
        for row, path in enumerate(naive_paths(nodes, added.codes, added.bins.n_thresholds)):
            entry = Sums(int(grad[output, row]), int(hess[output, row]), int(added.count[row]))
            for node in path:
                expected[node] += entry
            total[output, row] += nodes["value"][path[-1]]
        for name in ("g", "h", "c"):
            assert nodes[name].tolist() == [getattr(sums, name) for sums in expected]
        assert nodes["value"].tolist() == [
            naive_value(sums, case.params, added.n_classes, scale) for sums in expected
        ]


@pytest.mark.parametrize("n_classes", [0, 2, 3, 5])
@pytest.mark.parametrize(("patience", "tolerance"), [(0.0, 0.0), (0.1, 0.05), (0.1, INF)])
def test_threads_change_nothing(n_classes, patience, tolerance):
    params = replace(PARAMS, max_iter=12)
    case = noise_case(23, 300, 3, n_classes, params, 12)
    gone = np.arange(300) % 50 == 7
    for few in (0.0, 1.0):
        with few_touched(few):
            expected = update(case, patience, tolerance, gone=gone)
            for n_threads in (1, 2, 4):
                found = update(case, patience, tolerance, n_threads, gone=gone)
                assert_same_forest(found, expected)


def test_patience_keeps_splits_that_would_be_given_up():
    case = noise_case(24, 300, 3, 2, PARAMS, 30)
    scale = choose_scale(case.data)
    old = fit(case.data, PARAMS, scale).forest

    def n_changed(patience):
        new = update(case, patience, INF)
        return sum(
            used_nodes(new, tree)["feature"].tolist() != used_nodes(old, tree)["feature"].tolist()
            or used_nodes(new, tree)["code"].tolist() != used_nodes(old, tree)["code"].tolist()
            for tree in range(old.n_trees)
        )

    assert n_changed(0.001) > n_changed(1.0) == 0


def test_what_is_given_is_left_alone():
    case = noise_case(25, 200, 3, 3, PARAMS, 20)
    trained = fit(case.data, PARAMS, choose_scale(case.data))
    everything = [
        trained.forest.nodes, trained.forest.n_nodes, trained.leaf, trained.record,
        trained.margins, case.data.codes, case.data.columns, case.data.label, case.data.weight,
        case.added.codes, case.added.columns, case.added.label, case.added.weight,
    ]  # fmt: skip
    before = [x.tobytes() for x in everything]
    first = update(case, 0.1, 0.01, trained=trained)
    assert [x.tobytes() for x in everything] == before
    assert_same_forest(update(case, 0.1, 0.01, trained=trained), first)


def test_progress_is_told():
    case = noise_case(26, 60, 2, 2, replace(PARAMS, max_iter=23), 5)
    told = []
    update(case, 0.1, INF, progress=told.append)
    assert told == sorted(set(told))
    assert told[-1] == 23
    assert len(told) >= 3


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_a_thread_that_fails_does_not_leave_the_others_waiting(monkeypatch, failing):
    original = updating.renew_trees

    def fails(turn, *given):
        syncs.append(turn.sync)
        if turn.thread == failing:
            raise MemoryError(f"thread {failing}")
        original(turn, *given)

    monkeypatch.setattr(updating, "renew_trees", fails)
    case = noise_case(27, 60, 2, 3, PARAMS, 5)
    with (
        nobody_waits_for_ever() as syncs,
        pytest.raises(MemoryError, match=f"thread {failing}"),
    ):
        update(case, 0.1, INF, n_threads=3)


steps = st.lists(
    st.tuples(st.sampled_from(["learn", "forget", "both"]), st.integers(0, 2**32 - 1)),
    min_size=1,
    max_size=4,
)


@given(cases(), steps, st.sampled_from(["exact", "lazy"]))
def test_any_sequence_of_learning_and_forgetting_is_training_on_what_is_left(case, steps, mode):
    """Against the naive twin; a lazy update without patience and tolerance is as exact."""
    scale = choose_scale(case.data)
    with Workers(1) as workers:
        ensemble, state = fit_data(case.data, case.params, scale, workers)
        left, rows = list(range(case.data.n_rows)), case.data
        numbers = state.history.n_learnt
        for what, seed in steps:
            rng = np.random.default_rng(seed)
            n_new = 0 if what == "forget" else int(rng.integers(1, 4))
            source = rng.integers(0, len(case.X), n_new)
            new = case.X[source], rng.permutation(case.data.label)[source], None
            n_gone = 0 if what == "learn" else int(rng.integers(0, len(left) + (n_new > 0)))
            gone = np.sort(rng.permutation(left)[:n_gone])
            ensemble, state = update_ensemble(
                ensemble, state, *new, workers, mode, 0.0, 0.0, forget=gone
            )
            fresh = make_data(case.data.bins, *new, case.data.n_classes, workers)
            rows = join_data(rows, fresh)
            left = [i for i in left if i not in gone] + list(range(numbers, numbers + n_new))
            numbers += n_new
            assert state.n_rows == len(left)
            assert state.history.numbers[state.left].tolist() == left
        expected = naive_train(take_rows(rows, np.array(left)), case.params, state.scale)
    found = ensemble.value[ensemble.left < 0, 0].tolist()
    assert found == [node.value for tree in expected.trees for node in tree if node.split < 0]
    assert [int(n) for n in np.diff(ensemble.tree_start)] == [len(t) for t in expected.trees]
    assert ensemble.feature.tolist() == [
        node.feature if node.split >= 0 else -1 for tree in expected.trees for node in tree
    ]
    assert ensemble.count.tolist() == [node.sums.c for tree in expected.trees for node in tree]
