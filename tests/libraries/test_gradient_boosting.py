import copy
import json
import subprocess
import sys
import zipfile
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from timbermark.errors import FileFormatError, InputError, MissingLibraryError, StateError
from timbermark.libraries import gradient_boosting as library
from timbermark.libraries.registry import adapter_of_file
from timbermark.trees import reference

pytest.importorskip("sklearn")
joblib = pytest.importorskip("joblib")
pd = pytest.importorskip("pandas")

from sklearn.dummy import DummyClassifier  # noqa: E402
from sklearn.ensemble import (  # noqa: E402
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
)
from sklearn.linear_model import LogisticRegression  # noqa: E402
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor  # noqa: E402

from tests.libraries.gradient_models import (  # noqa: E402
    MAKERS,
    fitted,
    labels_of,
    numbers,
)


@cache
def made(name):
    model, asked = MAKERS[name]()
    return model, asked, library.open(model)


@pytest.fixture(params=MAKERS)
def case(request):
    return made(request.param)


def assert_same_margins(foreign, ensemble, model, X):
    expected = reference.margins(ensemble, library.rows(foreign, X))
    assert expected.shape == (X.shape[0], ensemble.n_outputs)
    np.testing.assert_array_equal(library.margins(model, X), expected)
    for i in range(0, X.shape[0], max(1, X.shape[0] // 4)):
        np.testing.assert_array_equal(library.margins(model, X[i : i + 1]), expected[i : i + 1])


# Reading


def test_a_margin_of_zero_is_class_1():
    _, asked, foreign = made("two, zero")
    written = library.close(foreign, replace(foreign.ensemble, value=foreign.ensemble.value * 0))
    margins = reference.margins(foreign.ensemble, asked) * 0
    assert (written.predict(asked) == foreign.classes[1]).all()
    assert (reference.labels(margins, foreign.ensemble) == 1).all()


def test_what_an_opened_model_says(case):
    model, _, foreign = case
    assert (foreign.library, foreign.kind) == ("scikit-learn", "GradientBoostingClassifier")
    assert foreign.ensemble.n_trees == model.n_estimators_ * model.n_trees_per_iteration_
    assert (foreign.ensemble.tree_weight == model.learning_rate).all()
    np.testing.assert_array_equal(foreign.classes, model.classes_)


def test_gains_are_what_importances_add_up(case):
    model, _, foreign = case
    e = foreign.ensemble
    roots = np.concatenate([t.tree_.weighted_n_node_samples[:1] for t in model.estimators_.ravel()])
    shares = e.gain / np.repeat(roots, np.diff(e.tree_start))
    inner = e.left >= 0
    total = np.bincount(e.feature[inner], shares[inner], minlength=4)
    np.testing.assert_allclose(
        total / (total.sum() or 1.0), model.feature_importances_, rtol=1e-6, atol=1e-12
    )


def test_early_stopping_stops():
    assert made("early stopping")[0].n_estimators_ < 60


def test_names_are_kept():
    assert made("frame")[2].feature_names == tuple("wxyz")
    assert made("two classes")[2].feature_names is None


def test_sparse_rows_are_dense_rows():
    model, asked, foreign = made("sparse")
    np.testing.assert_array_equal(
        library.margins(model, asked), library.margins(model, asked.toarray())
    )
    np.testing.assert_array_equal(
        library.rows(foreign, asked), asked.toarray().astype(np.float32).astype(float)
    )


DATA = st.floats(-3, 3, width=16) | st.sampled_from([0.1, 1e-40, -0.0, 1e30, -1e30, 2.0**24 + 1])


@settings(max_examples=25)
@given(st.data(), st.integers(2, 3), st.sampled_from([None, "zero"]))
def test_any_data(data, n_classes, init):
    row = st.lists(DATA, min_size=2, max_size=2)
    X = np.array(data.draw(st.lists(row, min_size=9, max_size=20)))
    y = data.draw(st.permutations([i % n_classes for i in range(len(X))]))
    rate = data.draw(st.sampled_from([0.1, 1.0, 1 / 3]))
    model = GradientBoostingClassifier(n_estimators=3, init=init, learning_rate=rate).fit(X, y)
    foreign = library.open(model)
    assert_same_margins(foreign, foreign.ensemble, model, X)
    fresh = np.array(data.draw(st.lists(row, min_size=1, max_size=5)))
    assert_same_margins(foreign, foreign.ensemble, model, fresh)


def test_treelite_agrees():
    treelite = pytest.importorskip("treelite")
    for name in ("two classes", "three classes", "two, zero", "early stopping", "tenths", "deep"):
        model, asked, foreign = made(name)
        # treelite compares in the type of the rows, scikit-learn in float32 whatever they are.
        rows = asked.astype(np.float32).astype(float)
        # It looks for as many trees as were wished for, and crashes after early stopping.
        whole = copy.deepcopy(model).set_params(n_estimators=model.n_estimators_)
        oracle = treelite.gtil.predict(treelite.sklearn.import_model(whole), rows, pred_margin=True)
        ours = reference.margins(foreign.ensemble, rows)
        np.testing.assert_allclose(ours, oracle.reshape(ours.shape), rtol=1e-12, atol=1e-14)


# Writing


def test_training_goes_on_after_writing():
    rng = np.random.default_rng(3)
    X = numbers(rng)
    y = labels_of(rng, X, 2)
    model = GradientBoostingClassifier(n_estimators=3, warm_start=True, random_state=0).fit(X, y)
    written = library.close(library.open(model), library.open(model).ensemble)
    for both in (model, written):
        both.set_params(n_estimators=5).fit(X, y)
    np.testing.assert_array_equal(written.decision_function(X), model.decision_function(X))


# Refusals


def test_foreign_objects_are_no_models():
    for thing in ("text", 3, HistGradientBoostingClassifier()):
        assert not library.is_model(thing)
        with pytest.raises(InputError):
            library.open(thing)
    with pytest.raises(InputError, match=r"GradientBoostingRegressor is not fitted"):
        library.open(GradientBoostingRegressor())


def test_an_unfitted_model_is_refused():
    with pytest.raises(InputError, match=r"is not fitted.*fit first"):
        library.open(GradientBoostingClassifier())


def test_exponential_loss_is_refused():
    with pytest.raises(InputError, match=r"loss='exponential'.*log_loss"):
        library.open(fitted(2, loss="exponential")[0])


@pytest.mark.parametrize(
    "init", [DecisionTreeClassifier(), DummyClassifier(strategy="stratified", random_state=0)]
)
def test_a_start_of_ones_own_is_refused(init):
    with pytest.raises(InputError, match="a start of its own"):
        library.open(fitted(2, init=init)[0])


@pytest.mark.parametrize("name", ["estimators_", "init_", "_loss", "n_trees_per_iteration_"])
def test_a_form_that_is_not_known_is_refused(name):
    model = copy.deepcopy(made("two classes")[0])
    delattr(model, name)
    with pytest.raises(InputError, match=rf"has no {name}.*1\.4 to 1\.9"):
        library.open(model)


def corrupt_nodes(name, value, node=0):
    def corrupt(model):
        getattr(model.estimators_[0, 0].tree_, name)[node] = value

    return corrupt


def with_state(**changes):
    def corrupt(model):
        old = model.estimators_[0, 0].tree_
        kind, arguments, state = old.__reduce__()
        tree = kind(*arguments)
        if changes:
            tree.__setstate__(state | changes)
        model.estimators_[0, 0].tree_ = tree

    return corrupt


def other_features(model):
    model.estimators_[0, 0] = DecisionTreeRegressor().fit([[0.0], [1.0]], [0.0, 1.0])


def many_outputs(model):
    X = np.zeros((2, 4))
    model.estimators_[0, 0] = DecisionTreeRegressor().fit(X, [[0.0, 1.0], [1.0, 0.0]])


def other_kind(model):
    model.estimators_[0, 0] = LogisticRegression()


def uneven(model):
    model.estimators_ = model.estimators_[:, :2]


def no_trees(model):
    model.estimators_ = model.estimators_[:0]


def wrong_width(model):
    model.n_features_in_ = 3


def wrong_start(model):
    model.init_.class_prior_ = np.array([0.5, 0.5])
    model.init_.n_classes_ = 2
    model.init_.classes_ = np.arange(2)


CORRUPTIONS = [
    corrupt_nodes("children_left", 10**6), corrupt_nodes("children_left", 0),
    corrupt_nodes("children_right", -5), corrupt_nodes("feature", 4), corrupt_nodes("feature", -2),
    corrupt_nodes("threshold", np.nan), corrupt_nodes("value", np.inf, -1),
    with_state(node_count=1), with_state(node_count=0), with_state(), other_features,
    many_outputs, other_kind, uneven, no_trees, wrong_width, wrong_start,
]  # fmt: skip


@pytest.mark.parametrize("corrupt", CORRUPTIONS, ids=lambda c: c.__qualname__.partition(".")[0])
def test_what_would_make_scikit_learn_read_foreign_memory_is_refused(corrupt):
    model = copy.deepcopy(made("three classes")[0])
    corrupt(model)
    with pytest.raises(InputError):
        library.open(model)


def test_a_model_that_predicts_otherwise_is_noticed():
    class Louder(GradientBoostingClassifier):
        def decision_function(self, X):
            return super().decision_function(X) * 2

    rng = np.random.default_rng(0)
    X = numbers(rng)
    with pytest.raises(StateError, match="does not predict what timbermark does"):
        library.open(Louder(n_estimators=2).fit(X, labels_of(rng, X, 2)))


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e300])
def test_rows_that_the_library_refuses_are_refused(value):
    _, asked, foreign = made("two classes")
    asked = asked.copy()
    asked[3, 2] = value
    with pytest.raises(InputError, match="does not take these rows"):
        library.rows(foreign, asked)
    library.rows(foreign, library.native_rows(foreign, asked))


# Files


def test_importing_the_module_imports_no_library():
    code = (
        "import sys, timbermark.libraries.gradient_boosting as m; m.is_model(3);"
        "sys.exit(any(name in sys.modules for name in ('sklearn', 'pandas', 'skops')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_without_skops_the_install_command_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "skops.io", None)
    with pytest.raises(MissingLibraryError, match=r"timbermark\[skops\]"):
        library.save(made("two classes")[0], tmp_path / "model.skops")
    assert list(tmp_path.iterdir()) == []


def test_an_old_skops_is_refused(tmp_path, monkeypatch):
    path = saved(made("two classes")[0], tmp_path / "model.skops")
    monkeypatch.setattr("skops.__version__", "0.14.0")
    with pytest.raises(MissingLibraryError, match=r"skops 0\.14\.0 is too old"):
        library.open_file(path)


def test_other_formats_are_refused(tmp_path):
    for name in ("model.pkl", "model.joblib", "model"):
        with pytest.raises(InputError, match=r"does not end in \.skops"):
            library.save(made("two classes")[0], tmp_path / name)
        joblib.dump(made("two classes")[0], tmp_path / name)
        with pytest.raises(FileFormatError, match=r"not a skops archive.*run any code"):
            library.open_file(tmp_path / name)


def saved(model, path):
    pytest.importorskip("skops")
    library.save(model, path)
    return path


def test_a_file_holds_the_model(case, tmp_path):
    model, asked, foreign = case
    path = saved(model, tmp_path / "model.skops")
    assert adapter_of_file(path) is library
    loaded = library.open_file(path).native
    assert type(loaded) is type(model)
    np.testing.assert_array_equal(library.margins(loaded, asked), library.margins(model, asked))
    assert library.open(loaded).ensemble == foreign.ensemble


@pytest.mark.parametrize("corrupt", CORRUPTIONS, ids=lambda c: c.__qualname__.partition(".")[0])
def test_a_hostile_file_is_refused(corrupt, tmp_path):
    model = copy.deepcopy(made("three classes")[0])
    corrupt(model)
    path = saved(model, tmp_path / "model.skops")
    with pytest.raises(FileFormatError):
        library.open_file(path)


@pytest.mark.parametrize("count", ["0", "1", "-1"])
def test_a_file_whose_tree_lies_about_its_size_is_refused(count, tmp_path):
    path = saved(made("three classes")[0], tmp_path / "model.skops")
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    schema = json.loads(members["schema.json"])

    def lie(part):
        if isinstance(part, dict):
            if "node_count" in part:
                part["node_count"]["content"] = count
            for value in part.values():
                lie(value)
        elif isinstance(part, list):
            for value in part:
                lie(value)

    lie(schema)
    members["schema.json"] = json.dumps(schema)
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    with pytest.raises(FileFormatError, match="does not hold a sound"):
        library.open_file(path)


def test_a_file_with_foreign_types_is_refused(tmp_path):
    model = copy.deepcopy(made("two classes")[0])
    model.extra_ = json.JSONDecoder
    path = saved(model, tmp_path / "model.skops")
    with pytest.raises(FileFormatError, match="JSONDecoder"):
        library.open_file(path)


def test_a_file_of_another_model_is_refused(tmp_path):
    path = saved(LogisticRegression(), tmp_path / "model.skops")
    with pytest.raises(FileFormatError, match="not a model file of a supported library"):
        adapter_of_file(path)
    with pytest.raises(FileFormatError, match="holds a LogisticRegression"):
        library.open_file(path)


def test_a_damaged_file_is_refused(tmp_path):
    path = saved(made("two classes")[0], tmp_path / "model.skops")
    content = path.read_bytes()
    for damaged in (content[:-30], content[: len(content) // 2], b"PK\x03\x04", b""):
        path.write_bytes(damaged)
        with pytest.raises(FileFormatError, match="not a skops archive"):
            library.open_file(path)
