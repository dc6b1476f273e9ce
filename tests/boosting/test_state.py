import numpy as np
import pytest

from timbermark.boosting import state as state_module
from timbermark.boosting.data import TrainParams, find_bins, make_data
from timbermark.boosting.state import fit_data, fit_ensemble, rebuild_state
from timbermark.boosting.state_file import FORMAT_VERSION, load_state, save_state
from timbermark.boosting.updating import renew, update_ensemble
from timbermark.errors import FileFormatError, InputError, StateError
from timbermark.files import read_container, write_container
from timbermark.kernels.workers import Workers
from timbermark.trees.construction import make_ensemble
from timbermark.trees.ensemble import equal
from timbermark.trees.reference import margins

PARAMS = TrainParams(max_iter=8, max_leaf_nodes=6, min_samples_leaf=3, seed=5)


def made(n_classes=3, missing=True, n=160, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4)).round(1)
    if missing:
        X[rng.random(X.shape) < 0.1] = np.nan
    if n_classes == 0:
        return X, 20.0 * np.nan_to_num(X[:, 0]) + rng.normal(size=n)
    label = (np.nan_to_num(X[:, 0]) + rng.normal(size=n) > 0).astype(int) + (
        (np.nan_to_num(X[:, 1]) > 0.5) * (n_classes - 2)
    ).clip(0, n_classes - 2)
    label[:n_classes] = np.arange(n_classes)
    return X, label


@pytest.fixture(params=[0, 2, 3])
def fitted(request):
    X, label = made(request.param)
    with Workers(2) as workers:
        ensemble, state = fit_ensemble(X, label, None, request.param, PARAMS, workers)
        yield X, label, request.param, ensemble, state, workers


def other(label, n_classes):
    """Another answer for each row."""
    return (label + 1) % n_classes if n_classes else 5.0 - label


def used_records(state):
    forest = state.trained.forest
    splits = np.arange(forest.nodes.shape[1] // 2) < (forest.n_nodes // 2)[:, None]
    return state.trained.record[splits]


def assert_same_state(a, b):
    assert np.array_equal(a.trained.leaf, b.trained.leaf)
    assert np.array_equal(used_records(a), used_records(b))
    used = np.arange(a.trained.forest.nodes.shape[1]) < a.trained.forest.n_nodes[:, None]
    for field in a.trained.forest.nodes.dtype.names:
        one, two = a.trained.forest.nodes[field][used], b.trained.forest.nodes[field][used]
        if field == "value":  # inner nodes have none in an ensemble
            leaf = a.trained.forest.nodes["left"][used] < 0
            one, two = one[leaf], two[leaf]
        assert np.array_equal(one, two), field
    assert np.array_equal(a.history.numbers, b.history.numbers)
    assert np.array_equal(a.history.gone, b.history.gone)
    assert (a.history.n_learnt, a.history.scale) == (b.history.n_learnt, b.history.scale)
    for one, two in ((a.data, b.data), (a.added, b.added)):
        assert np.array_equal(one.codes, two.codes)
        assert np.array_equal(one.label, two.label)
        assert np.array_equal(one.weight, two.weight)
    assert (a.params, a.scale, a.model) == (b.params, b.scale, b.model)


def test_rebuilt_state_is_the_state_of_training(fitted):
    X, label, n_classes, ensemble, state, workers = fitted
    assert_same_state(state, rebuild_state(ensemble, X, label, None, n_classes, PARAMS, workers))


def test_adding_in_two_steps_is_adding_in_one(fitted):
    X, label, n_classes, ensemble, state, workers = fitted
    flipped = other(label, n_classes)
    first, after_first = update_ensemble(ensemble, state, X[:2], flipped[:2], None, workers)
    both, _ = update_ensemble(first, after_first, X[2:4], flipped[2:4], None, workers)
    at_once, _ = update_ensemble(ensemble, state, X[:4], flipped[:4], None, workers)
    assert equal(both, at_once)
    assert not equal(both, ensemble)


def test_nothing_added_changes_nothing(fitted):
    X, label, _, ensemble, state, workers = fitted
    same, same_state = update_ensemble(ensemble, state, X[:0], label[:0], None, workers)
    assert equal(same, ensemble)
    assert_same_state(same_state, state)


def test_exact_equals_fitting_all_rows_in_the_same_bins(fitted):
    X, label, n_classes, ensemble, state, workers = fitted
    # Copies of old rows leave the bins as they are, so a fresh fit has the same ones.
    every = np.concatenate([X, X[:5]]), np.concatenate([label, other(label[:5], n_classes)])
    bins = find_bins(every[0], None, PARAMS.max_bins, PARAMS.seed, workers, n_classes == 0)
    data = make_data(bins, *every, None, n_classes, workers)
    fresh, _ = fit_data(data, PARAMS, state.scale, workers)
    updated, after = update_ensemble(
        ensemble, state, X[:5], every[1][-5:], None, workers, mode="exact"
    )
    assert equal(fresh, updated)
    assert after.data.n_rows == len(X) + 5
    assert after.added.n_rows == 0


def test_lazy_with_both_knobs_at_zero_equals_exact(fitted):
    X, label, n_classes, ensemble, state, workers = fitted
    new = X[:9], other(label[:9], n_classes), np.array([1, 2, 5, 1, 0.5, 1, 1, 3, 1.0])
    exact, _ = update_ensemble(ensemble, state, *new, workers, mode="exact")
    lazy, _ = update_ensemble(ensemble, state, *new, workers, patience=0.0, tolerance=0.0)
    assert equal(exact, lazy)


def test_many_new_rows_are_trained_on_again(fitted):
    X, label, n_classes, ensemble, state, workers = fitted
    new = X[:40], other(label[:40], n_classes), None
    exact, _ = update_ensemble(ensemble, state, *new, workers, mode="exact")
    lazy, after = update_ensemble(ensemble, state, *new, workers)
    assert equal(exact, lazy)
    assert after.added.n_rows == 0


def test_state_of_another_model_is_refused(fitted):
    X, label, n_classes, _, state, workers = fitted
    stranger, _ = fit_ensemble(X[1:], label[1:], None, n_classes, PARAMS, workers)
    with pytest.raises(StateError, match="another model"):
        update_ensemble(stranger, state, X[:1], label[:1], None, workers)


def test_too_heavy_weights_are_refused(fitted):
    X, label, _, ensemble, state, workers = fitted
    with pytest.raises(InputError, match="too heavy"):
        update_ensemble(ensemble, state, X[:1], label[:1], np.array([5000.0]), workers)


def test_rebuilt_state_of_an_updated_model_keeps_it_when_nothing_comes(fitted):
    X, label, n_classes, ensemble, state, workers = fitted
    updated, _ = update_ensemble(ensemble, state, X[:3], other(label[:3], n_classes), None, workers)
    rebuilt = rebuild_state(updated, X, label, None, n_classes, PARAMS, workers)
    forest = renew(
        rebuilt.trained, rebuilt.data, rebuilt.added, PARAMS, rebuilt.scale, 0.1, 1.0, workers
    )
    leaf = forest.nodes["left"] < 0
    assert np.array_equal(forest.nodes["value"][leaf], rebuilt.trained.forest.nodes["value"][leaf])
    assert np.array_equal(forest.n_nodes, rebuilt.trained.forest.n_nodes)


def test_margins_of_a_rebuilt_state_are_the_models(fitted):
    X, label, n_classes, ensemble, _, workers = fitted
    rebuilt = rebuild_state(ensemble, X, label, None, n_classes, PARAMS, workers)
    assert np.array_equal(rebuilt.trained.margins.T, margins(ensemble, X))


def test_sums_that_would_not_fit_are_not_kept(fitted, monkeypatch):
    X, label, n_classes, ensemble, state, workers = fitted
    monkeypatch.setattr(state_module, "_MOST_BYTES", 10)
    same, small = fit_ensemble(X, label, None, n_classes, PARAMS, workers)
    assert equal(same, ensemble)
    assert not small.has_sums
    new = X[:2], other(label[:2], n_classes), None
    exact, _ = update_ensemble(ensemble, state, *new, workers, mode="exact")
    lazy, _ = update_ensemble(same, small, *new, workers)
    assert equal(exact, lazy)


def test_file_round_trip(fitted, tmp_path):
    X, label, n_classes, ensemble, state, workers = fitted
    ensemble, state = update_ensemble(
        ensemble, state, X[:2], other(label[:2], n_classes), None, workers
    )
    save_state(tmp_path / "s", state)
    assert (tmp_path / "s").stat().st_mode & 0o077 == 0
    loaded = load_state(tmp_path / "s")
    assert_same_state(state, loaded)
    new = X[5:7], other(label[5:7], n_classes), None
    assert equal(
        update_ensemble(ensemble, state, *new, workers)[0],
        update_ensemble(ensemble, loaded, *new, workers)[0],
    )


def test_file_without_sums(fitted, tmp_path, monkeypatch):
    X, label, n_classes, *_, workers = fitted
    monkeypatch.setattr(state_module, "_MOST_BYTES", 10)
    _, small = fit_ensemble(X, label, None, n_classes, PARAMS, workers)
    save_state(tmp_path / "s", small)
    assert not load_state(tmp_path / "s").has_sums


@pytest.mark.parametrize(
    ("name", "spoil"),
    [
        ("leaf", lambda a: a + 200),
        ("data_codes", lambda a: a + 100),
        ("data_label", lambda a: a - 1),
        ("data_weight", lambda a: a * np.float32("nan")),
        ("node_left", lambda a: a + 1),
        ("node_left", lambda a: np.where(a >= 0, 0, a).astype(a.dtype)),
        ("node_feature", lambda a: a + 50),
        ("node_choice", lambda a: a + 10_000),
        ("node_value", lambda a: a * np.nan),
        ("n_nodes", lambda a: a + 2),
        ("bin_starts", lambda a: a[:-1]),
        ("sum_g", lambda a: a[:-1]),
        ("sum_kept", lambda a: a + 1000),
    ],
)
@pytest.mark.parametrize("n_classes", [0, 3])
def test_files_that_would_mislead_a_kernel_are_refused(n_classes, name, spoil, tmp_path):
    if n_classes == 0 and name == "data_label":
        spoil = lambda a: a + np.inf  # noqa: E731
    X, label = made(n_classes)
    with Workers(1) as workers:
        _, state = fit_ensemble(X, label, None, n_classes, PARAMS, workers)
    save_state(tmp_path / "s", state)
    version, meta, arrays = read_container(tmp_path / "s", "state", FORMAT_VERSION)
    write_container(tmp_path / "t", "state", version, meta, {**arrays, name: spoil(arrays[name])})
    with pytest.raises(FileFormatError):
        load_state(tmp_path / "t")
    missing = {key: array for key, array in arrays.items() if key != name}
    write_container(tmp_path / "t", "state", version, meta, missing)
    with pytest.raises(FileFormatError, match="not complete"):
        load_state(tmp_path / "t")


def test_a_kept_split_keeps_its_direction_for_missing_values(monkeypatch):
    X = np.array([[0.0]] * 6 + [[1.0]] * 4)
    label = np.array([0] * 6 + [1] * 4)
    params = TrainParams(max_iter=1, max_leaf_nodes=2, min_samples_leaf=1, min_hessian=0.0)
    with Workers(1) as workers:
        ensemble, state = fit_ensemble(X, label, None, 2, params, workers)
        assert ensemble.missing_left[0]
        new = np.full((4, 1), np.nan), np.zeros(4, np.int64), None
        monkeypatch.setattr("timbermark.boosting.updating._LARGE_SHARE", 1.0)
        lazy, _ = update_ensemble(ensemble, state, *new, workers)
        exact, _ = update_ensemble(ensemble, state, *new, workers, mode="exact")
    assert lazy.missing_left[0]
    assert np.array_equal(margins(lazy, np.array([[np.nan]])), margins(exact, [[np.nan]]))


def test_heavy_rows_fit_where_they_were_fitted(fitted):
    X, label, n_classes, *_, workers = fitted
    weight = np.ones(len(X))
    weight[0] = 1500.0
    ensemble, state = fit_ensemble(X, label, weight, n_classes, PARAMS, workers)
    found, _ = update_ensemble(ensemble, state, X[:1], label[:1], np.array([1500.0]), workers)
    assert np.isfinite(found.value).all()
    assert not np.array_equal(found.value, ensemble.value)


def test_models_whose_missing_values_follow_other_rules_are_refused():
    X = np.array([[0.0], [1.0], [np.nan], [3.0]])
    label = np.array([0, 1, 0, 1])
    for kind, rows in ((0, X), (1, np.nan_to_num(X))):
        model = make_ensemble(
            n_features=1, tree_start=[0, 3], feature=[0, -1, -1], threshold=[0.5, 0, 0],
            left=[1, -1, -1], right=[2, -1, -1], value=[0, -1, 1], missing_kind=[kind] * 3,
        )  # fmt: skip
        with Workers(1) as workers, pytest.raises(StateError, match="missing values"):
            rebuild_state(model, rows, label, None, 2, PARAMS, workers)


def test_targets_far_outside_make_it_train_again_at_another_scale():
    X, label = made(0)
    with Workers(1) as workers:
        ensemble, state = fit_ensemble(X, label, None, 0, PARAMS, workers)
        new = X[:1], np.array([1e9]), None
        lazy, after = update_ensemble(ensemble, state, *new, workers)
        exact, _ = update_ensemble(ensemble, state, *new, workers, mode="exact")
    assert equal(lazy, exact)
    assert after.scale.residuals.bits < state.scale.residuals.bits
    assert after.data.n_rows == len(X) + 1
    assert margins(lazy, X[:1])[0, 0] > 1e7


def test_a_state_is_rebuilt_where_the_model_starts():
    X, label = made(0)
    with Workers(1) as workers:
        ensemble, _ = fit_ensemble(X, label, None, 0, PARAMS, workers)
        rebuilt = rebuild_state(ensemble, X[:80], label[:80], None, 0, PARAMS, workers)
    assert rebuilt.scale.start == ensemble.init[0]
    assert np.array_equal(rebuilt.trained.margins.T, margins(ensemble, X[:80]))


@pytest.mark.parametrize(
    "spoil",
    [
        {"residuals": None},
        {"residuals": {"start": 0.0, "bits": 5000, "top": 24}},
        {"residuals": {"start": 0.0, "bits": 5, "top": 31}},
        {"bits": 0},
    ],
)
def test_scales_that_cannot_be_are_refused(spoil, tmp_path):
    X, label = made(0)
    with Workers(1) as workers:
        _, state = fit_ensemble(X, label, None, 0, PARAMS, workers)
    save_state(tmp_path / "s", state)
    version, meta, arrays = read_container(tmp_path / "s", "state", FORMAT_VERSION)
    meta["scale"].update(spoil)
    write_container(tmp_path / "t", "state", version, meta, arrays)
    with pytest.raises(FileFormatError, match=r"scale|residuals"):
        load_state(tmp_path / "t")


def test_targets_far_outside_that_are_forgotten_bring_the_scale_back():
    X, label = made(0)
    with Workers(1) as workers:
        ensemble, state = fit_ensemble(X, label, None, 0, PARAMS, workers)
        far, after = update_ensemble(ensemble, state, X[:1], np.array([1e9]), None, workers)
        nothing = X[:0], label[:0], None
        for mode in ("exact", "lazy"):
            back, last = update_ensemble(
                far, after, *nothing, workers, mode, 0.0, 0.0, forget=np.array([len(X)])
            )
            assert equal(back, ensemble)
            assert last.scale == state.scale
