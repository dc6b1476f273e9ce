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

from tests.libraries.leaf_changes import other_leaves
from timbermark.errors import FileFormatError, InputError, MissingLibraryError, StateError
from timbermark.libraries import histogram_boosting as library
from timbermark.libraries.registry import adapter_of_file
from timbermark.trees import reference

pytest.importorskip("sklearn")
joblib = pytest.importorskip("joblib")
pd = pytest.importorskip("pandas")

from sklearn.ensemble import (  # noqa: E402
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
)

from tests.libraries.histogram_models import (  # noqa: E402
    MAKERS,
    gaps,
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


def part(X, i):
    return X.iloc[i : i + 1] if hasattr(X, "iloc") else X[i : i + 1]


def assert_same_margins(foreign, ensemble, model, X):
    expected = reference.margins(ensemble, library.rows(foreign, X))
    assert expected.shape == (len(X), ensemble.n_outputs)
    np.testing.assert_array_equal(library.margins(model, X), expected)
    for i in range(0, len(X), max(1, len(X) // 4)):
        np.testing.assert_array_equal(library.margins(model, part(X, i)), expected[i : i + 1])


# Reading


def test_a_margin_of_zero_is_class_0():
    _, asked, foreign = made("two classes")
    ensemble = replace(foreign.ensemble, value=foreign.ensemble.value * 0, init=np.zeros(1))
    written = library.close(foreign, ensemble)
    assert (written.predict(asked) == foreign.classes[0]).all()
    assert not ensemble.zero_is_positive


def test_what_an_opened_model_says(case):
    model, _, foreign = case
    assert (foreign.library, foreign.kind) == ("scikit-learn", "HistGradientBoostingClassifier")
    assert foreign.ensemble.n_trees == model.n_iter_ * model.n_trees_per_iteration_
    np.testing.assert_array_equal(foreign.classes, model.classes_)
    roots = foreign.ensemble.count[foreign.ensemble.tree_start[:-1]]
    assert (roots == roots[0]).all()


def test_names_are_those_of_what_predict_takes():
    foreign = made("frame")[2]
    assert foreign.feature_names == ("a", "text", "b", "number", "flag")
    assert foreign.extra.tolist() == [1, 3, 4, 0, 2]
    assert made("two classes")[2].feature_names is None


def test_early_stopping_stops():
    assert made("early stopping")[0].n_iter_ < 60


def test_rows_come_back_from_native_rows(case):
    _, asked, foreign = case
    rows = library.rows(foreign, asked)
    np.testing.assert_array_equal(library.rows(foreign, library.native_rows(foreign, rows)), rows)


def test_an_unseen_category_is_missing_and_goes_with_missing_values():
    model, asked, foreign = made("two, categories")
    asked = asked.copy()
    asked[:, 1] = np.where(np.arange(100) % 2, 55.0, np.nan)
    assert np.isnan(library.rows(foreign, asked)[:, 0]).all()
    assert_same_margins(foreign, foreign.ensemble, model, asked)


def test_a_split_of_the_only_category_is_read_as_it_predicts():
    """It names the set of another split, and has an infinite threshold that nobody looks at."""
    model, _, foreign = made("three, categories")
    nodes = np.concatenate([tree.nodes for i in model._predictors for tree in i])
    odd = (nodes["is_categorical"] == 1) & np.isinf(nodes["num_threshold"])
    assert odd.any()
    assert (nodes["bitset_idx"][odd] == 0).all()
    assert (foreign.ensemble.category_set[odd] >= 0).all()


DATA = st.floats(-3, 3, width=16) | st.sampled_from([np.nan, 0.0, -0.0, 1e300, -np.inf, np.inf])


@settings(max_examples=25)
@given(st.data(), st.integers(2, 3), st.booleans())
def test_any_data(data, n_classes, by_category):
    width = 1 if by_category else 2
    values = st.integers(0, 3).map(float) | st.just(np.nan) if by_category else DATA
    row = st.lists(values, min_size=width, max_size=width)
    X = np.array(data.draw(st.lists(row, min_size=12, max_size=25)))
    y = data.draw(st.permutations([i % n_classes for i in range(len(X))]))
    model = HistGradientBoostingClassifier(
        max_iter=3, min_samples_leaf=1, max_leaf_nodes=5, learning_rate=0.3, early_stopping=False,
        categorical_features=[0] if by_category else None,
    ).fit(X, y)  # fmt: skip
    foreign = library.open(model)
    assert_same_margins(foreign, foreign.ensemble, model, X)
    fresh = np.array(data.draw(st.lists(row, min_size=1, max_size=5)))
    assert_same_margins(foreign, foreign.ensemble, model, fresh)


def test_treelite_agrees():
    treelite = pytest.importorskip("treelite")
    for name in ("two classes", "two, missing", "three, missing", "early stopping", "deep"):
        model, asked, foreign = made(name)
        oracle = treelite.gtil.predict(
            treelite.sklearn.import_model(model), asked, pred_margin=True
        )
        ours = reference.margins(foreign.ensemble, asked)
        np.testing.assert_allclose(ours, oracle.reshape(ours.shape), rtol=1e-12, atol=1e-14)


# Writing


def test_training_goes_on_after_writing():
    rng = np.random.default_rng(3)
    X = gaps(rng)
    y = labels_of(rng, X, 2)
    model = HistGradientBoostingClassifier(max_iter=3, warm_start=True, random_state=0).fit(X, y)
    written = library.close(library.open(model), library.open(model).ensemble)
    for both in (model, written):
        both.set_params(max_iter=5).fit(X, y)
    np.testing.assert_array_equal(written.decision_function(X), model.decision_function(X))


def test_a_subclass_stays_one():
    class Mine(HistGradientBoostingClassifier):
        pass

    rng = np.random.default_rng(0)
    X = numbers(rng)
    model = Mine(max_iter=2).fit(X, labels_of(rng, X, 2))
    assert library.is_model(model)
    foreign = library.open(model)
    assert foreign.kind == "Mine"
    assert type(library.close(foreign, foreign.ensemble)) is Mine


def test_statistics_follow_the_leaves():
    for name in ("two classes", "three, categories", "early stopping", "single leaves"):
        model, _, foreign = made(name)
        marked = library.close(foreign, other_leaves(foreign))
        for old, new in zip(trees_of(model), trees_of(marked), strict=True):
            inner = old["is_leaf"] == 0
            assert new["value"][0] == old["value"][0] or not inner.any()
            for node in np.flatnonzero(inner)[1:]:
                below = leaves_below(old, node)
                moved = (new["value"] - old["value"])[below] / model.learning_rate
                mean = np.average(moved, weights=old["count"][below].astype(float))
                assert new["value"][node] - old["value"][node] == pytest.approx(mean, abs=1e-12)
            assert (new["gain"][inner] >= 0).all()
            for field in set(old.dtype.names) - {"value", "gain"}:
                np.testing.assert_array_equal(new[field], old[field])
            np.testing.assert_array_equal(new["gain"][~inner], old["gain"][~inner])


def trees_of(model):
    return [tree.nodes for iteration in model._predictors for tree in iteration]


def leaves_below(nodes, node):
    if nodes["is_leaf"][node]:
        return [node]
    below = nodes["left"][node], nodes["right"][node]
    return [leaf for child in below for leaf in leaves_below(nodes, child)]


# Refusals


def test_foreign_objects_are_no_models():
    for thing in ("text", 3, HistGradientBoostingClassifier):
        assert not library.is_model(thing)
        with pytest.raises(InputError):
            library.open(thing)
    with pytest.raises(InputError, match=r"HistGradientBoostingRegressor is not fitted"):
        library.open(HistGradientBoostingRegressor())


def test_an_unfitted_model_is_refused():
    with pytest.raises(InputError, match=r"is not fitted.*fit first"):
        library.open(HistGradientBoostingClassifier())


def test_a_single_class_is_refused():
    model = HistGradientBoostingClassifier(max_iter=1).fit([[0.0], [1.0]], ["only", "only"])
    with pytest.raises(InputError, match="knows 1 class"):
        library.open(model)


def test_another_loss_is_refused():
    from sklearn._loss.loss import HalfPoissonLoss

    model = copy.deepcopy(made("two classes")[0])
    model._loss = HalfPoissonLoss()
    with pytest.raises(InputError, match="HalfPoissonLoss"):
        library.open(model)


@pytest.mark.parametrize(
    "name", ["_predictors", "_baseline_prediction", "_bin_mapper", "_preprocessor", "_loss"]
)
def test_a_form_that_is_not_known_is_refused(name):
    model = copy.deepcopy(made("two classes")[0])
    delattr(model, name)
    with pytest.raises(InputError, match=rf"has no {name}.*1\.4 to 1\.9"):
        library.open(model)


def corrupt_nodes(name, value, node=0):
    def corrupt(model):
        model._predictors[0][0].nodes[name][node] = value

    return corrupt


def drop_fields(model):
    tree = model._predictors[0][0]
    tree.nodes = tree.nodes[["value", "count"]]


def short_sets(model):
    for tree in (tree for iteration in model._predictors for tree in iteration):
        tree.raw_left_cat_bitsets = tree.raw_left_cat_bitsets[:0]


def narrow_sets(model):
    tree = model._predictors[0][0]
    tree.raw_left_cat_bitsets = np.zeros((9, 2), dtype=np.uint32)


def uneven(model):
    model._predictors[0].append(model._predictors[0][0])


def no_trees(model):
    model._predictors = []


def wrong_width(model):
    model.n_features_in_ = 3


def wrong_mapper(model):
    model._bin_mapper.is_categorical_ = np.ones(4, dtype=np.uint8)


def wrong_categories(model):
    model._bin_mapper.bin_thresholds_[0] = np.arange(3.0)


def numeric_as_category(model):
    tree = model._predictors[0][0]
    tree.raw_left_cat_bitsets = np.zeros((1, 8), dtype=np.uint32)
    tree.nodes["feature_idx"][0] = 3
    tree.nodes["is_categorical"][0] = 1
    tree.nodes["bitset_idx"][0] = 0


def foreign_preparation(model):
    model._preprocessor.named_transformers_["numerical"].func = np.exp


def float32_baseline(model):
    model._baseline_prediction = model._baseline_prediction.astype(np.float32)


CORRUPTIONS = [
    corrupt_nodes("left", 10**6), corrupt_nodes("left", 0), corrupt_nodes("right", 2**32 - 1),
    corrupt_nodes("feature_idx", 4), corrupt_nodes("feature_idx", -1),
    corrupt_nodes("num_threshold", np.nan), corrupt_nodes("value", np.nan, -1),
    drop_fields, short_sets, narrow_sets, uneven, no_trees, wrong_width, wrong_mapper,
    wrong_categories, numeric_as_category, foreign_preparation, float32_baseline,
]  # fmt: skip


@pytest.mark.parametrize("corrupt", CORRUPTIONS, ids=lambda c: c.__qualname__.partition(".")[0])
def test_what_would_make_scikit_learn_read_foreign_memory_is_refused(corrupt):
    model = copy.deepcopy(made("three, categories")[0])
    root = model._predictors[0][0].nodes
    root["is_categorical"][0], root["feature_idx"][0] = 0, 3
    library.open(model)
    corrupt(model)
    with pytest.raises(InputError):
        library.open(model)


def test_a_model_that_predicts_otherwise_is_noticed():
    class Louder(HistGradientBoostingClassifier):
        def decision_function(self, X):
            return super().decision_function(X) * 2

    rng = np.random.default_rng(0)
    X = numbers(rng)
    with pytest.raises(StateError, match="does not predict what timbermark does"):
        library.open(Louder(max_iter=2).fit(X, labels_of(rng, X, 2)))


def test_rows_of_another_shape_are_refused():
    _, asked, foreign = made("two classes")
    with pytest.raises(InputError, match="does not take these rows"):
        library.rows(foreign, asked[:, :2])


# Files


def test_importing_the_module_imports_no_library():
    code = (
        "import sys, timbermark.libraries.histogram_boosting as m; m.is_model(3);"
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
    before = joblib.hash(model)
    path = saved(model, tmp_path / "model.skops")
    assert adapter_of_file(path) is library
    loaded = library.open_file(path).native
    assert type(loaded) is type(model)
    np.testing.assert_array_equal(library.margins(loaded, asked), library.margins(model, asked))
    assert library.open(loaded).ensemble == foreign.ensemble
    assert joblib.hash(model) == before


@pytest.mark.parametrize("corrupt", CORRUPTIONS, ids=lambda c: c.__qualname__.partition(".")[0])
def test_a_hostile_file_is_refused(corrupt, tmp_path):
    model = copy.deepcopy(made("three, categories")[0])
    root = model._predictors[0][0].nodes
    root["is_categorical"][0], root["feature_idx"][0] = 0, 3
    corrupt(model)
    path = saved(model, tmp_path / "model.skops")
    with pytest.raises(FileFormatError, match="does not hold a sound"):
        library.open_file(path)


def test_a_file_with_foreign_types_is_refused(tmp_path):
    model = copy.deepcopy(made("two classes")[0])
    model.extra_ = json.JSONDecoder
    path = saved(model, tmp_path / "model.skops")
    with pytest.raises(FileFormatError, match="JSONDecoder"):
        library.open_file(path)


def test_a_file_of_another_model_is_refused(tmp_path):
    from sklearn.linear_model import LogisticRegression

    path = saved(LogisticRegression(), tmp_path / "model.skops")
    with pytest.raises(FileFormatError, match="not a model file of a supported library"):
        adapter_of_file(path)
    with pytest.raises(FileFormatError, match="holds a LogisticRegression"):
        library.open_file(path)


def test_a_damaged_file_is_refused(tmp_path):
    path = saved(made("two classes")[0], tmp_path / "model.skops")
    whole = path.read_bytes()
    for damaged in (whole[:-30], whole[: len(whole) // 2], b"PK\x03\x04", b""):
        path.write_bytes(damaged)
        with pytest.raises(FileFormatError, match="not a skops archive"):
            library.open_file(path)


def test_a_file_that_would_fill_the_memory_is_refused(tmp_path):
    path = tmp_path / "model.skops"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("schema.json", b"{}")
        archive.writestr("1.npy", bytes(100 << 20))
    with pytest.raises(FileFormatError, match="would unpack to"):
        library.open_file(path)
