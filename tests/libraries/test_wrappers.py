"""Deployed models around boosted ones: opened, closed and kept in files, nothing fitted again."""

import pickle
import warnings
from dataclasses import replace

import numpy as np
import pytest
import sklearn
from sklearn.compose import (
    TransformedTargetRegressor,
    make_column_selector,
    make_column_transformer,
)
from sklearn.ensemble import (
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    VotingClassifier,
)
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, TimeSeriesSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    LabelEncoder,
    OneHotEncoder,
    SplineTransformer,
    StandardScaler,
)

import timbermark as tm
from tests.libraries.deployed_models import WRAPPERS, fitted, table, transformer
from tests.marking.models import new_model
from timbermark import libraries
from timbermark.errors import FileFormatError, InputError
from timbermark.libraries.wrappers import asked_model
from timbermark.trees import reference

VERSION = tuple(int(part) for part in sklearn.__version__.split(".")[:2])
CASES = [(wrapper, "histogram", n) for wrapper in WRAPPERS for n in (2, 3)] + [
    *(("calibrated", library, 2) for library in ("xgboost", "lightgbm", "gradient")),
    *(("calibrated", library, 3) for library in ("xgboost", "lightgbm", "catboost")),
    *(("frozen", library, 2) for library in ("xgboost", "catboost")),
]


def made(wrapper, library="histogram", n_classes=2):
    if wrapper.startswith("frozen") and VERSION < (1, 6):
        pytest.skip("FrozenEstimator came with scikit-learn 1.6")
    if wrapper == "temperature" and VERSION < (1, 8):
        pytest.skip("temperature scaling came with scikit-learn 1.8")
    if library not in ("histogram", "gradient"):
        pytest.importorskip(library)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fitted(wrapper, library, n_classes)


@pytest.mark.parametrize(("wrapper", "library", "n_classes"), CASES)
@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_opened_and_closed(wrapper, library, n_classes):
    model = made(wrapper, library, n_classes)
    X, _ = table(n_classes)
    before = asked_model(model).predict_proba(X)
    foreign = libraries.open(model)
    assert foreign.feature_names == tuple(X.columns)
    rows = foreign.rows(X)
    margins = reference.margins(foreign.ensemble, rows)
    np.testing.assert_array_equal(margins, foreign.adapter.margins(model, X))
    # Steps of isotonic calibration take the last digit of a float32 for a whole step.
    far = np.abs(foreign.confidence(margins.astype(float)) - before).max(axis=1) > 1e-6
    assert far.mean() < 0.02
    assert len(foreign.classes) == n_classes
    assert foreign.confidence(margins[:0].astype(float)).shape == (0, n_classes)

    same = libraries.close(foreign, foreign.ensemble)
    np.testing.assert_array_equal(asked_model(same).predict_proba(X), before)
    value = foreign.ensemble.value.copy()
    value[foreign.ensemble.left < 0] /= 2
    halved = replace(foreign.ensemble, value=value)
    edited = libraries.close(foreign, halved)
    assert type(edited) is type(model)
    np.testing.assert_array_equal(
        foreign.adapter.margins(edited, X), reference.margins(halved, rows)
    )
    assert (asked_model(edited).predict_proba(X) != before).any()
    np.testing.assert_array_equal(asked_model(model).predict_proba(X), before)
    again = pickle.loads(pickle.dumps(edited))
    np.testing.assert_array_equal(
        asked_model(again).predict_proba(X), asked_model(edited).predict_proba(X)
    )


@pytest.mark.parametrize("loss", ["squared_error", "poisson"])
@pytest.mark.parametrize("searched", [False, True])
def test_numbers_are_those_of_the_model_inside(loss, searched, tmp_path):
    X, y = table(4)
    inner = HistGradientBoostingRegressor(loss=loss, max_iter=8, random_state=0)
    model = make_pipeline(transformer(), inner)
    model = (GridSearchCV(model, {}, cv=2) if searched else model).fit(X, y)
    foreign = libraries.open(model)
    assert foreign.task == "regression"
    assert len(foreign.classes) == 0
    margins = reference.margins(foreign.ensemble, foreign.rows(X))
    np.testing.assert_array_equal(margins, foreign.adapter.margins(model, X))
    np.testing.assert_allclose(foreign.answers(margins)[:, 0], model.predict(X), rtol=1e-12)
    value = foreign.ensemble.value.copy()
    value[foreign.ensemble.left < 0] /= 2
    halved = replace(foreign.ensemble, value=value)
    edited = libraries.close(foreign, halved)
    expected = foreign.answers(reference.margins(halved, foreign.rows(X)))[:, 0]
    np.testing.assert_allclose(edited.predict(X), expected, rtol=1e-12)
    pytest.importorskip("skops")
    libraries.save(edited, tmp_path / "model.skops")
    read = libraries.open(tmp_path / "model.skops")
    assert read.task == "regression"
    np.testing.assert_array_equal(read.native.predict(X), edited.predict(X))


@pytest.mark.parametrize("kind", ["logarithm", "transformer", "inside a search", "last step"])
def test_numbers_are_transformed_back(kind, tmp_path):
    X, y = table(4)
    y = np.exp(y / 2.0)
    inner = HistGradientBoostingRegressor(max_iter=8, random_state=0)
    logarithm = {"func": np.log1p, "inverse_func": np.expm1}
    if kind == "last step":
        last = TransformedTargetRegressor(inner, **logarithm)
        model = make_pipeline(transformer(), last)
    else:
        how = {"transformer": StandardScaler()} if kind == "transformer" else logarithm
        model = TransformedTargetRegressor(make_pipeline(transformer(), inner), **how)
    model = (GridSearchCV(model, {}, cv=2) if kind == "inside a search" else model).fit(X, y)
    foreign = libraries.open(model)
    assert foreign.feature_names == tuple(X.columns)
    margins = reference.margins(foreign.ensemble, foreign.rows(X))
    np.testing.assert_array_equal(margins, foreign.adapter.margins(model, X))
    np.testing.assert_allclose(foreign.answers(margins)[:, 0], model.predict(X), rtol=1e-12)
    value = foreign.ensemble.value.copy()
    value[foreign.ensemble.left < 0] /= 2
    edited = libraries.close(foreign, replace(foreign.ensemble, value=value))
    assert type(edited) is type(model)
    expected = foreign.answers(foreign.adapter.margins(edited, X))[:, 0]
    np.testing.assert_allclose(edited.predict(X), expected, rtol=1e-12)
    assert (pickle.loads(pickle.dumps(edited)).predict(X) == edited.predict(X)).all()
    pytest.importorskip("skops")
    libraries.save(edited, tmp_path / "model.skops")
    read = libraries.open(tmp_path / "model.skops")
    np.testing.assert_array_equal(read.native.predict(X), edited.predict(X))


def test_rows_in_untouched_leaves_keep_every_bit():
    model = made("calibrated")
    X, _ = table()
    foreign = libraries.open(model)
    rows, e = foreign.rows(X), foreign.ensemble
    leaves = reference.leaf_indices(e, rows)
    value = e.value.copy()
    value[e.tree_start[0] + leaves[0, 0]] += 0.25
    edited = libraries.close(foreign, replace(e, value=value))
    untouched = leaves[:, 0] != leaves[0, 0]
    before, after = model.predict_proba(X), edited.predict_proba(X)
    np.testing.assert_array_equal(before[untouched], after[untouched])
    assert (before[~untouched] != after[~untouched]).any()


def test_labels_of_a_pair_are_those_of_its_encoder():
    assert libraries.open(made("labels")).classes.tolist() == ["no", "yes"]


@pytest.mark.parametrize(
    "wrapper", ["pipeline", "grid", "calibrated", "calibrated inside", "frozen"]
)
def test_files_hold_the_same_model(wrapper, tmp_path):
    pytest.importorskip("skops")
    model, path = made(wrapper), tmp_path / "model.skops"
    X, _ = table()
    libraries.save(model, path)
    read = libraries.open(path)
    assert type(read.native) is type(model)
    np.testing.assert_array_equal(read.native.predict_proba(X), model.predict_proba(X))
    assert read.ensemble == libraries.open(model).ensemble


def ordinary(kind):
    """Return a deployed model with a part that is neither a function nor a type of one's own."""
    X, y = table()
    plain, numbers = new_model("histogram", 3), X[["age"]]
    if kind == "metric":
        return GridSearchCV(plain, {}, cv=2, scoring="roc_auc").fit(numbers, y)
    if kind == "metrics":
        how = {"scoring": ["roc_auc", "neg_log_loss"], "refit": "roc_auc"}
        return GridSearchCV(plain, {}, cv=2, **how).fit(numbers, y)
    if kind == "splitter":
        return GridSearchCV(plain, {}, cv=TimeSeriesSplit(2)).fit(numbers, y)
    if kind == "splines":
        return make_pipeline(SplineTransformer(), plain).fit(numbers, y)
    selected = {"dtype_exclude": object} if kind == "object" else {"dtype_include": np.number}
    numeric = make_column_transformer(("passthrough", make_column_selector(**selected)))
    return make_pipeline(numeric, plain).fit(X.astype({"town": object}), y)


@pytest.mark.parametrize(
    "kind", ["metric", "metrics", "splitter", "splines", "object", "numpy.number"]
)
def test_files_hold_ordinary_parts(kind, tmp_path):
    pytest.importorskip("skops")
    model = ordinary(kind)
    libraries.save(model, tmp_path / "model.skops")
    X = table()[0].astype({"town": object})
    X = X[list(model.feature_names_in_)]
    read = libraries.open(tmp_path / "model.skops").native
    np.testing.assert_array_equal(read.predict_proba(X), model.predict_proba(X))


@pytest.mark.parametrize("change", ["degree", "knots", "values"])
def test_splines_of_another_size_than_they_say_are_refused(change, tmp_path):
    skops = pytest.importorskip("skops.io")
    model = ordinary("splines")
    spline = model[0].bsplines_[0]
    if change == "degree":
        spline.k = 50
    else:
        name = {"knots": "t", "values": "c"}[change]
        held = name if name in vars(spline) else f"_{name}"
        vars(spline)[held] = vars(spline)[held][:3]
    skops.dump(model, tmp_path / "model.skops")
    with pytest.raises(FileFormatError, match="spline of another size"):
        libraries.open(tmp_path / "model.skops")


def test_what_cannot_be_written_is_named_and_no_draft_is(tmp_path):
    pytest.importorskip("skops")
    model = unsafe("function").fit(*table())
    with pytest.raises(InputError, match=r"Pipeline has no file .* model\.skops holds .*_one_more"):
        libraries.save(model, tmp_path / "model.skops")
    assert not list(tmp_path.iterdir())
    inner = make_pipeline(transformer(), tm.TimberRegressor(max_iter=2))
    with pytest.raises(InputError, match="around a model of timbermark has no file"):
        tm.save(inner.fit(*table()), tmp_path / "model.skops")


def unsafe(kind):
    if kind == "function":
        return make_pipeline(
            transformer(), FunctionTransformer(_one_more), new_model("histogram", 3)
        )
    from sklearn.feature_selection import SelectFromModel

    chosen = SelectFromModel(RandomForestClassifier(3, random_state=0))
    return make_pipeline(transformer(), chosen, new_model("histogram", 3))


def _twice(X):
    return np.hstack([X, X])


def _one_more(X):
    return X + 1


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("function", "not known to be safe: .*_one_more"),
        ("forest", "SelectFromModel, which is not run"),
    ],
)
def test_files_with_other_code_or_trees_are_refused(kind, said, tmp_path):
    skops = pytest.importorskip("skops.io")
    path = tmp_path / "model.skops"
    skops.dump(unsafe(kind).fit(*table()), path)
    with pytest.raises(FileFormatError, match=said):
        libraries.open(path)


def test_files_of_other_libraries_inside_are_refused(tmp_path):
    with pytest.raises(InputError, match="no file that can be read safely"):
        libraries.save(made("pipeline", "lightgbm"), tmp_path / "model.skops")
    assert not list(tmp_path.iterdir())


def bad(kind):
    X, y = table()
    if kind == "not fitted":
        return make_pipeline(transformer(), new_model("histogram", 3))
    if kind == "no boosted model":
        return make_pipeline(transformer(), LogisticRegression(max_iter=10_000)).fit(X, y)
    if kind == "two":
        both = [(name, new_model(name, 3)) for name in ("histogram", "gradient")]
        return make_pipeline(transformer(), VotingClassifier(both, voting="soft")).fit(X, y)
    if kind == "no model":
        return make_pipeline(transformer(), "passthrough").fit(X, y)
    if kind == "not kept":
        pipeline = make_pipeline(transformer(), new_model("histogram", 3))
        return GridSearchCV(pipeline, {}, cv=2, refit=False).fit(X, y)
    if kind == "targets not fitted":
        return TransformedTargetRegressor(HistGradientBoostingRegressor())
    if kind == "two targets":
        inner = make_pipeline(transformer(), HistGradientBoostingRegressor(max_iter=3))
        model = TransformedTargetRegressor(inner).fit(X, y)
        model.transformer_ = FunctionTransformer(inverse_func=_twice)
        return model
    if kind == "transformed labels":
        model = TransformedTargetRegressor(HistGradientBoostingRegressor(max_iter=3))
        model.fit(X[["age"]], y)
        model.regressor_ = new_model("histogram", 3).fit(X[["age"]], y)
        return model
    if kind == "numbers with labels":
        inner = HistGradientBoostingRegressor(max_iter=3).fit(X[["age"]], y)
        return inner, LabelEncoder().fit(y)
    return new_model("histogram", 3).fit(X[["age"]], y), LabelEncoder()


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("not fitted", "not fitted"),
        ("no boosted model", "no boosted model .* LogisticRegression"),
        ("two", "VotingClassifier decides by several models"),
        ("no model", "no model at its end"),
        ("not kept", "keeps no model"),
        ("labels", "LabelEncoder is not fitted"),
        ("targets not fitted", "TransformedTargetRegressor is not fitted"),
        ("two targets", "gives 2 numbers for each row"),
        ("transformed labels", "answers with labels, which cannot be transformed"),
        ("numbers with labels", "answers with numbers, which have no labels"),
    ],
)
def test_bad_models_get_one_sentence_and_a_hint(kind, said):
    with pytest.raises(InputError, match=said) as caught:
        libraries.open(bad(kind))
    assert caught.value.hint


def test_a_step_that_is_not_fitted_and_a_category_never_seen():
    X, y = table()
    before = make_pipeline(OneHotEncoder(sparse_output=False))
    model = new_model("histogram", 3).fit(before.fit_transform(X[["town"]]), y)
    foreign = libraries.open(make_pipeline(transformer(), model))
    with pytest.raises(InputError, match="step of the Pipeline is not fitted"):
        foreign.rows(X)
    foreign = libraries.open(make_pipeline(before, model))
    with pytest.raises(InputError, match="Atlantis") as caught:
        foreign.rows(X[["town"]].assign(town="Atlantis"))
    assert "never seen" in caught.value.hint
