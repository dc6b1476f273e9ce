import pickle
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import check_estimator

import timbermark as tm
from timbermark import TimberClassifier, TimberRegressor
from timbermark.errors import FileFormatError, InputError, StateError
from timbermark.experiments.datasets import load_dataset
from timbermark.files import read_container, write_container
from timbermark.trees.ensemble import digest, equal
from timbermark.trees.reference import margins

FIXTURES = Path(__file__).parent / "fixtures"


def small(**more):
    return TimberClassifier(**{"max_iter": 10, "random_state": 0, **more})


def digits_split():
    X, y = load_digits(return_X_y=True)
    return X[:600], y[:600], X[600:1000], y[600:1000]


@pytest.fixture(scope="module")
def digits():
    return digits_split()


@dataclass(frozen=True)
class Kind:
    """One of the two estimators, with data of its own."""

    model: type
    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    other: Callable  # other answers than those given

    def small(self, **more):
        return self.model(**{"max_iter": 10, "random_state": 0, **more})

    def margins(self, model, X):
        answers = model.predict(X) if self.model is TimberRegressor else model.decision_function(X)
        return answers.reshape(len(X), -1)


@pytest.fixture(scope="module", params=["classifier", "regressor"])
def kind(request):
    X, y, X_test, _ = digits_split()
    if request.param == "classifier":
        return Kind(TimberClassifier, X, y, X_test, lambda y: (y + 1) % 10)
    # How dark a digit's last rows are, from the others.
    target, X, X_test = X[:, 48:].sum(axis=1) / 7, X[:, :48], X_test[:, :48]
    return Kind(TimberRegressor, X, target, X_test, lambda y: 20 - y)


@pytest.mark.parametrize("model", [TimberClassifier, TimberRegressor])
def test_all_of_scikit_learns_checks(model):
    with warnings.catch_warnings():
        # One check is skipped by scikit-learn itself unless an environment variable is set.
        warnings.filterwarnings("ignore", message=".*SCIPY_ARRAY_API.*")
        results = check_estimator(model(), on_fail=None, on_skip=None)
    failed = [r["check_name"] for r in results if r["status"] not in ("passed", "skipped")]
    skipped = [r["check_name"] for r in results if r["status"] == "skipped"]
    assert failed == []
    assert skipped in ([], ["check_array_api_input"])


@pytest.mark.parametrize("labels", ["int", "str", "bool", "object", "float"])
def test_labels_of_any_type(labels):
    X, y = load_breast_cancer(return_X_y=True)
    y = (
        {
            "int": y * 7 - 3,
            "str": np.where(y == 1, "benign", "malignant"),
            "bool": y == 1,
            "object": np.where(y == 1, "b", "m").astype(object),
            "float": y * 0.5,
        }[labels]
        if labels != "float"
        else y.astype(float)
    )
    model = small().fit(X, y)
    assert set(model.predict(X)) <= set(y.tolist())
    assert (model.predict(X) == y).mean() > 0.97
    assert model.decision_function(X).shape == (len(X),)
    assert np.allclose(model.predict_proba(X).sum(axis=1), 1)


def test_as_accurate_as_a_known_library(digits):
    X, y, X_test, y_test = digits
    ours = TimberClassifier(max_iter=60, random_state=0).fit(X, y).score(X_test, y_test)
    other = HistGradientBoostingClassifier(max_iter=60, random_state=0).fit(X, y)
    assert ours >= other.score(X_test, y_test) - 0.02


def test_numbers_as_accurate_as_a_known_library(shared):
    wine = load_dataset("wine_quality", shared)
    white = wine.X[:, -1] == 1.0
    X, y = wine.X[white, :-1], np.array(wine.classes, float)[wine.y[white]]
    errors = []
    for model in (
        TimberRegressor(random_state=0),
        HistGradientBoostingRegressor(max_iter=200, max_leaf_nodes=20, random_state=0),
    ):
        guess = model.fit(X[::2], y[::2]).predict(X[1::2])
        errors.append(np.sqrt(np.mean((guess - y[1::2]) ** 2)))
    assert errors[0] <= 1.02 * errors[1]


def test_margins_are_the_reference_predictors(kind):
    model = kind.small().fit(kind.X, kind.y)
    spoilt = kind.X_test.copy()
    spoilt[::3, ::5] = np.nan
    for rows in (kind.X_test, spoilt, spoilt[:1]):
        assert np.array_equal(kind.margins(model, rows), margins(model.ensemble_, rows))


def test_missing_values_are_learned():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 3))
    y = rng.integers(0, 2, 400)
    X[y == 1, 1] = np.nan
    model = small().fit(X, y)
    assert model.score(X, y) == 1.0


def test_thread_count_does_not_matter(kind):
    X, y = kind.X, kind.y
    models = [kind.small(n_jobs=n).fit(X, y) for n in (1, 2, 4)]
    for model in models:
        model.update(X[:3], kind.other(y[:3]))
    assert equal(models[0].ensemble_, models[1].ensemble_)
    assert equal(models[0].ensemble_, models[2].ensemble_)


def test_one_seed_gives_one_model_and_another_another(kind):
    first, again, third = (
        kind.small(random_state=seed).fit(kind.X, kind.y).ensemble_ for seed in (0, 0, 1)
    )
    assert equal(first, again)
    assert not equal(first, third)


def test_exact_and_patient_updates_without_patience_are_equal(kind):
    X, y = kind.X, kind.y
    first, second = (kind.small().fit(X, y) for _ in range(2))
    new = X[:30], kind.other(y[:30]), np.arange(30) % 4 + 0.5
    first.update(*new, mode="exact")
    second.update(*new, patience=0.0, tolerance=0.0)
    assert equal(first.ensemble_, second.ensemble_)
    assert not equal(first.ensemble_, kind.small().fit(X, y).ensemble_)


def test_numbers_are_learned_in_place():
    X, y = load_diabetes(return_X_y=True)
    model = TimberRegressor(max_iter=60, random_state=0).fit(X[:300], y[:300])
    trees, before = model.ensemble_.n_trees, model.score(X[310:], y[310:])
    guess = model.predict(X[300:305])
    model.update(X[300:305], guess + 100, sample_weight=[10] * 5)
    moved = model.predict(X[300:305]) - guess
    assert (moved > 40).all()
    assert model.ensemble_.n_trees == trees
    assert model.score(X[310:], y[310:]) > before - 0.1


@pytest.mark.parametrize("unit", [1e-200, 1e-6, 2.0**60, 1e200])
def test_the_unit_of_a_target_does_not_matter(unit):
    X, y = load_diabetes(return_X_y=True)
    plain = TimberRegressor(max_iter=20, random_state=0).fit(X, y).predict(X)
    other = TimberRegressor(max_iter=20, random_state=0).fit(X, y * unit).predict(X)
    # A unit that is no power of two rounds otherwise, and a rounding may tip a split.
    assert np.abs(other / unit - plain).mean() < 1e-3 * y.std()
    shifted = TimberRegressor(max_iter=20, random_state=0).fit(X, y - 1e6).predict(X)
    assert np.abs(shifted + 1e6 - plain).mean() < 1e-3 * y.std()


def test_constant_targets_and_a_single_row():
    X = np.arange(20.0)[:, None]
    assert (TimberRegressor(max_iter=3).fit(X, np.full(20, 0.1)).predict(X) == 0.1).all()
    assert TimberRegressor(max_iter=3).fit(X[:1], [-7.25]).predict(X).tolist() == [-7.25] * 20
    whole = TimberRegressor(max_iter=3, random_state=0).fit(X, np.arange(20)).predict(X)
    assert whole.dtype == np.float64
    flags = TimberRegressor(min_samples_leaf=1, random_state=0).fit(X, X[:, 0] > 9)
    assert flags.predict(X).round(1).tolist() == [0.0] * 10 + [1.0] * 10


def test_missing_values_of_numbers_are_learned():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 3))
    y = rng.integers(0, 2, 400) * 50.0
    X[y > 0, 1] = np.nan
    assert TimberRegressor(max_iter=100, random_state=0).fit(X, y).score(X, y) > 0.999


def test_update_teaches_new_answers_without_new_trees(digits):
    X, y, X_test, y_test = digits
    model = TimberClassifier(max_iter=50, random_state=0).fit(X, y)
    trees = model.ensemble_.n_trees
    before = model.score(X_test, y_test)
    wanted = (model.predict(X_test[:6]) + 1) % 10
    model.update(X_test[:6], wanted, sample_weight=[4] * 6)
    assert (model.predict(X_test[:6]) == wanted).all()
    assert model.ensemble_.n_trees == trees
    assert model.score(X_test[6:], y_test[6:]) > before - 0.05


def test_paper_preset():
    model = TimberClassifier(preset="paper", max_iter=3, random_state=0)
    X, y = load_digits(n_class=3, return_X_y=True)
    assert model.fit(X, y).n_iter_ == 200


def test_feature_names_are_kept_and_checked(tmp_path):
    frame = load_breast_cancer(as_frame=True)
    model = small().fit(frame.data, frame.target)
    assert list(model.feature_names_in_) == list(frame.data.columns)
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(frame.data[frame.data.columns[::-1]])
    with pytest.raises(ValueError, match="feature names should match"):
        model.update(frame.data[frame.data.columns[::-1]], frame.target)
    model.save(tmp_path / "m")
    assert list(tm.load(tmp_path / "m").feature_names_in_) == list(frame.data.columns)


@pytest.mark.parametrize("labels", [int, str, float, bool, object])
def test_file_round_trip(labels, tmp_path):
    X, y = load_breast_cancer(return_X_y=True)
    y = y.astype(str).astype(object) if labels is object else y.astype(labels)
    model = small(learning_rate=0.2).fit(X, y)
    model.save(tmp_path / "m")
    loaded = TimberClassifier.load(tmp_path / "m")
    assert equal(loaded.ensemble_, model.ensemble_)
    assert loaded.classes_.dtype == model.classes_.dtype
    assert (loaded.predict(X) == model.predict(X)).all()
    assert loaded.get_params() == model.get_params()


def test_files_written_before_there_were_regressors_are_read():
    model = tm.load(FIXTURES / "classifier-v1.timber")
    assert isinstance(model, TimberClassifier)
    assert model.classes_.tolist() == ["a", "b", "c"]
    model.load_state(Path(__file__).parent / "boosting" / "fixtures" / "state-v1.state")
    model.update([[5.1, 3.5, 1.4, 0.2], [4.9, 3.0, 1.4, 0.2]], ["c", "c"], mode="exact")
    # As the version that wrote them did it.
    assert digest(model.ensemble_).startswith("65f2eb74f7fc5751")


def test_a_file_says_which_kind_it_is(kind, tmp_path):
    model = kind.small(learning_rate=0.2).fit(kind.X, kind.y)
    tm.save(model, tmp_path / "m")
    loaded = tm.load(tmp_path / "m")
    assert type(loaded) is kind.model
    assert loaded.get_params() == model.get_params()
    assert np.array_equal(loaded.predict(kind.X_test), model.predict(kind.X_test))
    stranger = TimberClassifier if kind.model is TimberRegressor else TimberRegressor
    with pytest.raises(FileFormatError, match=kind.model.file_kind):
        stranger.load(tmp_path / "m")
    with pytest.raises(InputError, match="exists"):
        tm.save(model, tmp_path / "m")


def test_trees_of_the_other_kind_are_refused(kind, tmp_path):
    kind.small().fit(kind.X, kind.y).save(tmp_path / "m")
    version, meta, arrays = read_container(tmp_path / "m", kind.model.file_kind, 1)
    stranger = TimberClassifier if kind.model is TimberRegressor else TimberRegressor
    forged = {"object_labels": False, **meta}
    forged["params"].pop("preset", None)
    classes = {"classes": np.arange(0)}
    write_container(tmp_path / "m", stranger.file_kind, version, forged, {**classes, **arrays})
    with pytest.raises(FileFormatError, match="not complete"):
        stranger.load(tmp_path / "m")


def test_neither_file_nor_pickle_holds_the_state(kind, tmp_path):
    X, y = kind.X, kind.y
    model = kind.small().fit(X, y)
    model.save(tmp_path / "m")
    model.save_state(tmp_path / "s")
    for copy in (kind.model.load(tmp_path / "m"), pickle.loads(pickle.dumps(model))):
        assert equal(copy.ensemble_, model.ensemble_)
        with pytest.raises(StateError) as caught:
            copy.update(X[:1], y[:1])
        assert caught.value.code == "state.none"
        copy.load_state(tmp_path / "s").update(X[:2], kind.other(y[:2]))
        rebuilt = kind.model.load(tmp_path / "m").rebuild_state(X, y)
        rebuilt.update(X[:2], kind.other(y[:2]))
        assert equal(copy.ensemble_, rebuilt.ensemble_)


def test_state_can_be_left_out(kind):
    X, y = kind.X, kind.y
    model = kind.small(keep_state=False).fit(X, y)
    with pytest.raises(StateError) as caught:
        model.update(X[:1], y[:1])
    assert caught.value.code == "state.none"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"learning_rate": -1}, "learning_rate=-1 must be > 0"),
        ({"learning_rate": float("nan")}, "learning_rate"),
        ({"max_iter": 0}, "max_iter=0"),
        ({"max_iter": 2.5}, "max_iter=2.5"),
        ({"max_leaf_nodes": 1}, "max_leaf_nodes=1"),
        ({"min_samples_leaf": 0}, "min_samples_leaf"),
        ({"max_bins": 1}, "max_bins"),
        ({"max_bins": 100_000}, "max_bins"),
        ({"split_sampling": 0}, "split_sampling"),
        ({"split_sampling": 1.5}, "split_sampling"),
        ({"l2_regularization": -0.1}, "l2_regularization"),
        ({"preset": "fast"}, "preset='fast'"),
        ({"random_state": -1}, "random_state"),
    ],
)
@pytest.mark.parametrize("model", [TimberClassifier, TimberRegressor])
def test_bad_parameters(model, change, message):
    if "preset" in change and model is TimberRegressor:
        pytest.skip("the paper has no regression")
    with pytest.raises(InputError, match=message) as caught:
        model(**change).fit([[0.0], [1.0]], [0, 1])
    assert caught.value.hint


def broken(X, y):
    infinite, nan_label = X.copy(), y.astype(float)
    infinite[3, 3], nan_label[2] = np.inf, np.nan
    return {
        "one class": ((X, np.zeros(len(X))), "only one class"),
        "labels missing": ((X, nan_label), "1 labels are missing"),
        "labels none": ((X, np.where(y == 0, None, "a")), "labels are missing"),
        "no labels": ((X, None), "requires y"),
        "fewer labels": ((X, y[:-1]), "labels"),
        "infinite": ((infinite, y), "infinity"),
        "negative weight": ((X, y, -np.ones(len(X))), "holds -1"),
        "weight of NaN": ((X, y, np.full(len(X), np.nan)), "holds nan"),
        "weights short": ((X, y, np.ones(3)), "shape"),
        "weights zero": ((X, y, np.zeros(len(X))), "zero"),
        "empty": ((X[:0], y[:0]), "0 sample"),
        "no features": ((X[:, :0], y), "0 feature"),
        "text": ((np.full(X.shape, "a"), y), "could not convert"),
        "one dimension": ((X[:, 0], y), "2D"),
        "one class by weight": ((X, y, (y == 1) * 1.0), "only one class: 1"),
    }


@pytest.mark.parametrize("case", sorted(broken(np.zeros((4, 4)), np.arange(4))))
def test_bad_training_data(case, digits):
    X, y, *_ = digits
    arguments, message = broken(X, y)[case]
    with pytest.raises(ValueError, match=message):
        small().fit(*arguments)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (["a", "b", "c"], "learns numbers"),
        ([1.0, "x", 2.0], "learns numbers"),
        ([1.0, None, 2.0], "1 labels are missing"),
        ([1.0, np.nan, 2.0], "1 labels are missing"),
        ([1.0, np.inf, 2.0], "infinity"),
        ([1, 10**400, 2], "learns numbers"),
        ([1.0, 2.0], "3 rows but 2"),
        ([[1.0, 2.0]] * 3, "1d array"),
        ([1j, 2j, 3j], "Complex data"),
        (None, "requires y"),
    ],
)
def test_targets_that_are_no_numbers(y, message):
    y = np.array(y, dtype=object) if y is not None and None in list(y) else y
    with pytest.raises(ValueError, match=message):
        TimberRegressor().fit([[0.0], [1.0], [2.0]], y)


def test_bad_updates_change_nothing(digits, tmp_path):
    X, y, *_ = digits
    model = small().fit(X, y)
    before, state = model.ensemble_, model._state
    infinite = np.full((1, 64), np.inf)
    for arguments, more, code in (
        ((X[:2], [3, 77]), {}, "labels.unknown"),
        ((X[:2], ["3", "x"]), {}, "labels.unknown"),
        ((X[:2, :5], [1, 2]), {}, "rows.table"),
        ((np.full((1, 64), "red"), [1]), {}, "rows.table"),
        ((X[:2], [1]), {}, "labels.count"),
        ((infinite, [1]), {}, "rows.table"),
        ((X[:1], [1], [-2]), {}, "weights.values"),
        ((X[:1], [1], ["heavy"]), {}, "weights.type"),
        ((X[:1], [1], [1, 2]), {}, "weights.shape"),
        ((X[:1], [1], [0]), {}, "weights.zero"),
        ((X[:1], [1], [1e6]), {}, "weights.heavy"),
        ((X[:1], [1]), {"mode": "quick"}, "update.mode"),
        ((X[:1], [1]), {"patience": -1}, "update.knob"),
        ((X[:1], [1]), {"tolerance": float("nan")}, "update.knob"),
        ((X[:1], [1]), {"forget": [5, 5]}, "forget.twice"),
    ):
        with pytest.raises(InputError) as caught:
            model.update(*arguments, **more)
        assert caught.value.code == code
        assert caught.value.hint
        assert model.ensemble_ is before
        assert model._state is state


def test_an_update_that_breaks_half_way_leaves_the_model(kind, monkeypatch):
    X, y = kind.X, kind.y
    model = kind.small().fit(X, y)
    before, state, answers = model.ensemble_, model._state, model.predict(X)

    def breaks(*_, **__):
        raise MemoryError("half way")

    for name in (
        "timbermark.boosting.updating.to_ensemble",
        "timbermark.boosting.state.to_ensemble",
    ):
        monkeypatch.setattr(name, breaks)
    for mode in ("lazy", "exact"):
        with pytest.raises(MemoryError):
            model.update(X[:2], kind.other(y[:2]), mode=mode)
    monkeypatch.undo()
    assert model.ensemble_ is before
    assert model._state is state
    assert np.array_equal(model.predict(X), answers)
    clean = kind.small().fit(X, y).update(X[:2], kind.other(y[:2]))
    assert equal(model.update(X[:2], kind.other(y[:2])).ensemble_, clean.ensemble_)


def test_a_fit_that_fails_leaves_the_model(kind):
    X, y = kind.X, kind.y
    model = kind.small().fit(X, y)
    answers = model.predict(X)
    for arguments in ((X[:, :5], y * np.nan), (X[:, :5], y[:3]), (X[:, :5], y, [-1.0])):
        with pytest.raises(InputError):
            model.fit(*arguments)
        assert model.n_features_in_ == X.shape[1]
        assert (model.predict(X) == answers).all()


def test_unfitted(kind):
    for call in ("predict", "predict_proba", "decision_function"):
        if hasattr(kind.model, call):
            with pytest.raises(NotFittedError):
                getattr(kind.small(), call)([[0.0]])
    with pytest.raises(NotFittedError):
        kind.small().update([[0.0]], [0])
    with pytest.raises(NotFittedError):
        kind.small().save("nowhere")


def test_state_of_another_model_is_refused(kind, tmp_path):
    X, y = kind.X, kind.y
    kind.small().fit(X, y).save_state(tmp_path / "s")
    other = kind.small(random_state=1).fit(X, y)
    own = other._state
    with pytest.raises(StateError) as caught:
        other.load_state(tmp_path / "s")
    assert caught.value.code == "state.other"
    assert other._state is own


def test_foreign_and_broken_files(kind, tmp_path):
    model = kind.small().fit(kind.X, kind.y)
    model.save(tmp_path / "m")
    model.save_state(tmp_path / "s")
    whole = (tmp_path / "m").read_bytes()
    with pytest.raises(FileFormatError, match="state"):
        kind.model.load(tmp_path / "s")
    with pytest.raises(FileFormatError):
        model.load_state(tmp_path / "m")
    rng = np.random.default_rng(0)
    for place in rng.integers(0, len(whole), 60):
        broken_bytes = bytearray(whole)
        broken_bytes[place] ^= 1 << int(rng.integers(8))
        (tmp_path / "b").write_bytes(broken_bytes)
        with pytest.raises(FileFormatError):
            kind.model.load(tmp_path / "b")
    for size in (0, 10, 100, len(whole) // 2, len(whole) - 1):
        (tmp_path / "b").write_bytes(whole[:size])
        with pytest.raises(FileFormatError):
            kind.model.load(tmp_path / "b")
    (tmp_path / "b").write_bytes(b"tree\nversion=v4\n")
    with pytest.raises(FileFormatError):
        kind.model.load(tmp_path / "b")


def test_clone_has_no_model(kind):
    copy = clone(kind.small().fit(kind.X, kind.y))
    assert not hasattr(copy, "ensemble_")


def test_progress_is_silent_without_a_terminal(digits, capfd):
    X, y, *_ = digits
    small(verbose=1).fit(X, y)
    assert capfd.readouterr().err == ""


def test_rows_in_any_form_get_the_same_answers():
    """Plain arrays skip scikit-learn's checks; whatever else holds numbers does not."""
    X, y = load_digits(return_X_y=True)
    model = small(max_iter=2).fit(X[:300], y[:300])
    rows = np.ascontiguousarray(X[:3])
    expected = model.predict_proba(rows)
    for form in (rows.tolist(), np.asfortranarray(rows), rows.astype(np.float32), rows[::1]):
        assert model.predict_proba(form).tobytes() == expected.tobytes()
    assert model.predict_proba(rows[:0]).shape == (0, 10)


@pytest.mark.parametrize("bad", [np.inf, -np.inf])
def test_an_infinite_value_is_refused_in_any_form(bad):
    X, y = load_digits(return_X_y=True)
    model = small(max_iter=2).fit(X[:300], y[:300])
    rows = np.array(X[:2])
    rows[1, 5] = bad
    for form in (rows, rows.tolist()):
        with pytest.raises(InputError, match="infinity"):
            model.predict_proba(form)
    for shape in ((2, 63), (2, 65), (64,), (1, 2, 64)):
        with pytest.raises(InputError):
            model.predict(np.zeros(shape))


def test_rows_without_the_names_of_the_columns_are_warned_of():
    X, y = load_digits(return_X_y=True, as_frame=True)
    model = small(max_iter=2).fit(X[:300], y[:300])
    with pytest.warns(UserWarning, match="feature names"):
        model.predict(np.ascontiguousarray(X[:2].to_numpy()))


@pytest.mark.parametrize("mode", ["exact", "lazy"])
def test_forgetting_what_was_just_learnt_brings_the_model_back(kind, mode):
    X, y = kind.X, kind.y
    model = kind.small().fit(X, y)
    before = model.ensemble_
    n = len(X)
    model.update(X[:3], kind.other(y[:3]), sample_weight=[2, 0, 1], mode=mode)
    assert not equal(model.ensemble_, before)
    # Row n + 1 had no weight: it has a number and was never learnt.
    with pytest.raises(InputError) as caught:
        model.forget([n + 1], mode=mode)
    assert caught.value.code == "forget.gone"
    model.forget([n, n + 2], mode=mode)
    assert equal(model.ensemble_, before)
    assert model.count_rows() == n


def test_rows_are_forgotten_by_number_and_by_value(kind):
    X, y = kind.X, kind.y
    rows = [2, 5, 11]
    expected = kind.small().fit(X, y).forget(rows, mode="exact").ensemble_
    by_value = kind.small().fit(X, y)
    by_value.forget(X[rows], y[rows], mode="exact")
    together = kind.small().fit(X, y)
    together.update(X[:0], y[:0], forget=(X[rows], y[rows]), mode="exact")
    assert equal(together.ensemble_, by_value.ensemble_)
    if len(np.unique(X, axis=0)) == len(X):
        assert equal(by_value.ensemble_, expected)
    assert by_value.count_rows() == len(X) - 3


def test_forgetting_is_kept_in_the_state_file(kind, tmp_path):
    X, y = kind.X, kind.y
    model = kind.small().fit(X, y)
    model.update(X[:2], kind.other(y[:2]), forget=[4])
    model.save(tmp_path / "m")
    model.save_state(tmp_path / "s")
    other = type(model).load(tmp_path / "m").load_state(tmp_path / "s")
    with pytest.raises(InputError) as caught:
        other.forget([4])
    assert caught.value.code == "forget.gone"
    for one in (model, other):
        one.forget([len(X)], mode="exact")
    assert equal(model.ensemble_, other.ensemble_)


@pytest.mark.parametrize(
    ("rows", "code"),
    [([0, 0], "forget.twice"), ([10**6], "forget.unknown"), ([-1], "forget.unknown"),
     ([0.5], "forget.numbers"), ([True, False], "forget.numbers"), (3, "forget.shape"),
     ([[[1.0]]], "forget.shape"), ([[1.0]], "rows.table"), (["a"], "forget.numbers")],
)  # fmt: skip
def test_rows_that_cannot_be_forgotten_are_refused(kind, rows, code):
    X, y = kind.X, kind.y
    model = kind.small().fit(X, y)
    before = model.ensemble_
    with pytest.raises(InputError) as caught:
        model.forget(rows)
    assert caught.value.code == code
    assert caught.value.hint
    assert model.ensemble_ is before
    assert model.forget([]).count_rows() == len(X)


def test_values_that_were_never_learnt_or_with_other_answers_are_refused(kind):
    X, y = kind.X, kind.y
    model = kind.small().fit(X, y)
    model.update(X[:1], kind.other(y[:1]))
    with pytest.raises(InputError) as caught:
        model.forget(X[:1])
    assert caught.value.code == "forget.answers"
    strange = np.where(np.arange(X.shape[1]) % 2, X.min(axis=0), X.max(axis=0))[None]
    with pytest.raises(InputError) as caught:
        model.forget(strange)
    assert caught.value.code == "forget.never-learnt"
    model.forget(X[:1], kind.other(y[:1]))
    assert model.count_rows() == len(X)
    with pytest.raises(InputError) as caught:
        model.forget(np.arange(len(X)))
    assert caught.value.code == "forget.all"


def test_a_row_is_forgotten_once_and_an_empty_update_changes_nothing(kind):
    X, y = kind.X, kind.y
    model = kind.small().fit(X, y)
    before, answers = model.ensemble_, model.predict(X)
    assert model.update(X[:0], y[:0]).ensemble_ is before
    assert np.array_equal(model.update(X[:0], y[:0], mode="exact").predict(X), answers)
    model.forget([3])
    with pytest.raises(InputError) as caught:
        model.forget([3])
    assert caught.value.code == "forget.gone"
    assert model.count_rows() == len(X) - 1
