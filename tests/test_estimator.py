import pickle
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import check_estimator

from timbermark import TimberClassifier
from timbermark.errors import FileFormatError, InputError, StateError
from timbermark.trees.ensemble import equal
from timbermark.trees.reference import margins


def small(**more):
    return TimberClassifier(**{"max_iter": 10, "random_state": 0, **more})


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return X[:600], y[:600], X[600:1000], y[600:1000]


def test_all_of_scikit_learns_checks():
    with warnings.catch_warnings():
        # One check is skipped by scikit-learn itself unless an environment variable is set.
        warnings.filterwarnings("ignore", message=".*SCIPY_ARRAY_API.*")
        results = check_estimator(TimberClassifier(), on_fail=None, on_skip=None)
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


def test_margins_are_the_reference_predictors(digits):
    X, y, X_test, _ = digits
    model = small().fit(X, y)
    spoilt = X_test.copy()
    spoilt[::3, ::5] = np.nan
    for rows in (X_test, spoilt, spoilt[:1]):
        assert np.array_equal(model.decision_function(rows), margins(model.ensemble_, rows))


def test_missing_values_are_learned():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 3))
    y = rng.integers(0, 2, 400)
    X[y == 1, 1] = np.nan
    model = small().fit(X, y)
    assert model.score(X, y) == 1.0


def test_thread_count_does_not_matter(digits):
    X, y, *_ = digits
    models = [small(n_jobs=n).fit(X, y) for n in (1, 2, 4)]
    for model in models:
        model.update(X[:3], (y[:3] + 1) % 10)
    assert equal(models[0].ensemble_, models[1].ensemble_)
    assert equal(models[0].ensemble_, models[2].ensemble_)


def test_one_seed_gives_one_model_and_another_another(digits):
    X, y, *_ = digits
    assert equal(small().fit(X, y).ensemble_, small().fit(X, y).ensemble_)
    assert not equal(small().fit(X, y).ensemble_, small(random_state=1).fit(X, y).ensemble_)


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
    loaded = TimberClassifier.load(tmp_path / "m")
    assert list(loaded.feature_names_in_) == list(frame.data.columns)


@pytest.mark.parametrize("kind", [int, str, float, bool, object])
def test_file_round_trip(kind, tmp_path):
    X, y = load_breast_cancer(return_X_y=True)
    y = y.astype(str).astype(object) if kind is object else y.astype(kind)
    model = small(learning_rate=0.2).fit(X, y)
    model.save(tmp_path / "m")
    loaded = TimberClassifier.load(tmp_path / "m")
    assert equal(loaded.ensemble_, model.ensemble_)
    assert loaded.classes_.dtype == model.classes_.dtype
    assert (loaded.predict(X) == model.predict(X)).all()
    assert loaded.get_params() == model.get_params()


def test_neither_file_nor_pickle_holds_the_state(digits, tmp_path):
    X, y, *_ = digits
    model = small().fit(X, y)
    model.save(tmp_path / "m")
    model.save_state(tmp_path / "s")
    for copy in (TimberClassifier.load(tmp_path / "m"), pickle.loads(pickle.dumps(model))):
        assert equal(copy.ensemble_, model.ensemble_)
        with pytest.raises(StateError, match="no training state"):
            copy.update(X[:1], y[:1])
        copy.load_state(tmp_path / "s").update(X[:2], (y[:2] + 1) % 10)
        rebuilt = TimberClassifier.load(tmp_path / "m").rebuild_state(X, y)
        rebuilt.update(X[:2], (y[:2] + 1) % 10)
        assert equal(copy.ensemble_, rebuilt.ensemble_)


def test_state_can_be_left_out(digits):
    X, y, *_ = digits
    model = small(keep_state=False).fit(X, y)
    with pytest.raises(StateError, match="rebuild_state"):
        model.update(X[:1], y[:1])


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
def test_bad_parameters(change, message):
    with pytest.raises(InputError, match=message) as caught:
        small(**change).fit([[0.0], [1.0]], [0, 1])
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


def test_bad_updates_change_nothing(digits, tmp_path):
    X, y, *_ = digits
    model = small().fit(X, y)
    before, state = model.ensemble_, model._state
    infinite = np.full((1, 64), np.inf)
    for arguments, more, message in (
        ((X[:2], [3, 77]), {}, "does not know the class 77"),
        ((X[:2], ["3", "x"]), {}, "does not know the class '3', 'x'"),
        ((X[:2, :5], [1, 2]), {}, "5 features"),
        ((X[:2], [1]), {}, "labels"),
        ((infinite, [1]), {}, "infinity"),
        ((X[:1], [1], [-2]), {}, "holds -2"),
        ((X[:1], [1], [1e6]), {}, "too heavy"),
        ((X[:1], [1]), {"mode": "quick"}, "mode='quick'"),
        ((X[:1], [1]), {"patience": -1}, "patience=-1"),
        ((X[:1], [1]), {"tolerance": float("nan")}, "tolerance=nan"),
    ):
        with pytest.raises(ValueError, match=message):
            model.update(*arguments, **more)
        assert model.ensemble_ is before
        assert model._state is state


def test_an_update_that_breaks_half_way_leaves_the_model(digits, monkeypatch):
    X, y, *_ = digits
    model = small().fit(X, y)
    before, state, answers = model.ensemble_, model._state, model.decision_function(X)

    def breaks(*_, **__):
        raise MemoryError("half way")

    for name in (
        "timbermark.boosting.updating.to_ensemble",
        "timbermark.boosting.state.to_ensemble",
    ):
        monkeypatch.setattr(name, breaks)
    for mode in ("lazy", "exact"):
        with pytest.raises(MemoryError):
            model.update(X[:2], (y[:2] + 1) % 10, mode=mode)
    monkeypatch.undo()
    assert model.ensemble_ is before
    assert model._state is state
    assert np.array_equal(model.decision_function(X), answers)
    clean = small().fit(X, y).update(X[:2], (y[:2] + 1) % 10)
    assert equal(model.update(X[:2], (y[:2] + 1) % 10).ensemble_, clean.ensemble_)


def test_a_fit_that_fails_leaves_the_model(digits):
    X, y, *_ = digits
    model = small().fit(X, y)
    answers = model.predict(X)
    for arguments in ((X[:, :5], np.zeros(len(X))), (X[:, :5], y[:3]), (X[:, :5], y, [-1.0])):
        with pytest.raises(InputError):
            model.fit(*arguments)
        assert model.n_features_in_ == 64
        assert (model.predict(X) == answers).all()


def test_unfitted():
    for call in ("predict", "predict_proba", "decision_function"):
        with pytest.raises(NotFittedError):
            getattr(small(), call)([[0.0]])
    with pytest.raises(NotFittedError):
        small().update([[0.0]], [0])
    with pytest.raises(NotFittedError):
        small().save("nowhere")


def test_state_of_another_model_is_refused(digits, tmp_path):
    X, y, *_ = digits
    small().fit(X, y).save_state(tmp_path / "s")
    other = small(random_state=1).fit(X, y)
    with pytest.raises(StateError, match="another model"):
        other.load_state(tmp_path / "s")


def test_foreign_and_broken_files(digits, tmp_path):
    X, y, *_ = digits
    model = small().fit(X, y)
    model.save(tmp_path / "m")
    model.save_state(tmp_path / "s")
    whole = (tmp_path / "m").read_bytes()
    with pytest.raises(FileFormatError, match="state"):
        TimberClassifier.load(tmp_path / "s")
    with pytest.raises(FileFormatError):
        model.load_state(tmp_path / "m")
    rng = np.random.default_rng(0)
    for place in rng.integers(0, len(whole), 60):
        broken_bytes = bytearray(whole)
        broken_bytes[place] ^= 1 << int(rng.integers(8))
        (tmp_path / "b").write_bytes(broken_bytes)
        with pytest.raises(FileFormatError):
            TimberClassifier.load(tmp_path / "b")
    for size in (0, 10, 100, len(whole) // 2, len(whole) - 1):
        (tmp_path / "b").write_bytes(whole[:size])
        with pytest.raises(FileFormatError):
            TimberClassifier.load(tmp_path / "b")
    (tmp_path / "b").write_bytes(b"tree\nversion=v4\n")
    with pytest.raises(FileFormatError):
        TimberClassifier.load(tmp_path / "b")


def test_clone_has_no_model(digits):
    X, y, *_ = digits
    copy = clone(small().fit(X, y))
    assert not hasattr(copy, "ensemble_")


def test_progress_is_silent_without_a_terminal(digits, capfd):
    X, y, *_ = digits
    small(verbose=1).fit(X, y)
    assert capfd.readouterr().err == ""
