"""Marks of deployed models, in the rows that they take: embedded, pickled, verified."""

import pickle
from functools import cache

import numpy as np
import pandas as pd
import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, LabelEncoder, StandardScaler

import timbermark as tm
from tests.libraries.deployed_models import table, transformer
from tests.marking.models import KEY, new_model
from timbermark.marking.models import open_model
from timbermark.marking.text_codes import take_tables
from timbermark.ownership.columns import plain_rows
from timbermark.verification.questions import make_questions

N = 2500


@cache
def wide():
    """Return a frame with a column of texts and many of numbers, and labels that depend on them."""
    X, y = table(2, N)
    rng = np.random.default_rng(1)
    more = {f"x{i}": rng.normal(size=N).round(3) + y * (i < 4) / 2 for i in range(10)}
    return X.assign(**more), y


def kinds(name):
    X, y = wide()
    if name == "calibrated":
        pipeline = make_pipeline(transformer(), new_model("histogram"))
        return CalibratedClassifierCV(pipeline, cv=2).fit(X, y)
    if name == "pipeline":
        return make_pipeline(transformer(), new_model("timbermark")).fit(X, y)
    if name == "labels":
        numbers = X.drop(columns="town")
        return new_model("xgboost").fit(numbers, y), LabelEncoder().fit(["no", "yes"])
    categories = X.assign(town=X["town"].astype("category"))
    if name == "catboost":
        filled = X.assign(town=X["town"].fillna("none"))
        return new_model("catboost", 60, cat_features=["town"]).fit(filled, y)
    if name == "xgboost":
        return new_model("xgboost", enable_categorical=True).fit(categories, y)
    if name == "histogram":
        return new_model("histogram", categorical_features="from_dtype").fit(categories, y)
    return new_model("lightgbm").fit(categories, y)


@cache
def marked(name):
    X, y = wide()
    if name == "catboost":
        X = X.assign(town=X["town"].fillna("none"))
    if name == "labels":
        X, y = X.drop(columns="town"), np.where(y == 1, "yes", "no")
    if name in ("xgboost", "lightgbm", "histogram"):
        X = X.assign(town=X["town"].astype("category"))
    model = kinds(name)
    return model, X, tm.embed(model, X, y, key=KEY, owner="Ann Ltd")


@pytest.mark.parametrize(
    "name",
    ["calibrated", "pipeline", "labels", "catboost", "xgboost", "lightgbm", "histogram"],
)
@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_what_is_deployed_is_marked_and_verified(name):
    if name in ("catboost", "xgboost", "lightgbm"):
        pytest.importorskip(name)
    model, X, result = marked(name)
    again = pickle.loads(pickle.dumps(result.model))
    assert type(again) is type(model)
    for answers in ("auto", "labels"):
        assert tm.verify(again, result.mark, answers=answers).level == "conclusive"
    assert tm.verify(model, result.mark).level == "none"
    texts = [column for column in result.mark.columns if not isinstance(column, np.ndarray)]
    assert len(texts) == (0 if name == "labels" else 1)
    if texts:
        known = {str(text) for text in X["town"].dropna()}
        assert {text for text in texts[0] if text is not None} <= known
    assert result.cost.changed <= 0.02 * result.cost.n_rows


def test_models_that_share_columns_have_no_boundaries_and_say_so():
    """Each of the models inside has columns of its own, made of the same ones."""
    X, y = wide()
    numbers = X.drop(columns="town").fillna(0.0)
    inside = new_model("histogram", 10)
    model = CalibratedClassifierCV(inside, cv=2, method="isotonic").fit(numbers, y)
    with pytest.raises(tm.errors.InputError) as caught:
        tm.plan(model, numbers, y, seals="splits")
    assert caught.value.code == "splits.too-few"
    assert "several columns" in caught.value.message
    _, _, result = marked("calibrated")
    assert "no_splits" in [note.code for note in result.notes]
    assert any("several columns" in str(note) for note in result.notes)


@pytest.mark.parametrize(
    ("name", "ending"), [("calibrated", "skops"), ("catboost", "cbm"), ("xgboost", "ubj")]
)
def test_files_are_verified(name, ending, tmp_path):
    pytest.importorskip("skops" if name == "calibrated" else name)
    _, _, result = marked(name)
    tm.save(result.model, tmp_path / f"model.{ending}")
    assert tm.verify(tmp_path / f"model.{ending}", result.mark).level == "conclusive"


@cache
def marked_numbers(name):
    X, label = wide()
    rng = np.random.default_rng(3)
    y = 10.0 * X["x0"] + 5.0 * X["x1"] * X["x2"] + 20.0 * (X["town"] == "Rome") + label
    y = y + 3.0 * rng.normal(size=N)
    inner = HistGradientBoostingRegressor(max_iter=40, random_state=0)
    if name == "categories":
        X = X.assign(town=X["town"].astype("category"))
        model = inner.set_params(categorical_features="from_dtype")
    elif name == "targets":
        y = np.exp(y / 20.0)
        pipeline = make_pipeline(transformer(), inner)
        model = TransformedTargetRegressor(pipeline, func=np.log, inverse_func=np.exp)
    elif name == "falling":
        pipeline = make_pipeline(transformer(), inner)
        falling = {"func": np.negative, "inverse_func": np.negative}
        model = GridSearchCV(TransformedTargetRegressor(pipeline, **falling), {}, cv=2)
    else:
        pipeline = make_pipeline(transformer(), StandardScaler(), inner)
        model = GridSearchCV(pipeline, {}, cv=2)
    model.fit(X, y)
    return model, X, tm.embed(model, X, y, key=KEY, owner="Ann Ltd")


@pytest.mark.parametrize("name", ["search", "categories", "targets", "falling"])
def test_raw_rows_carry_the_mark_where_answers_are_numbers(name, tmp_path):
    model, X, result = marked_numbers(name)
    mark = result.mark
    assert (mark.answers, mark.leaves, mark.n_triggers) == ("numbers", None, mark.n_splits)
    again = pickle.loads(pickle.dumps(result.model))
    assert type(again) is type(model)
    assert tm.verify(again, mark).level == "conclusive"
    assert tm.verify(model, mark).level == "none"
    # Rows are real ones but for the column that is set, which holds numbers.
    names = list(X.columns)
    assert "town" not in {names[f] for f in mark.splits.features}
    for place, (column, given) in enumerate(zip(mark.splits.columns, X, strict=True)):
        others = np.flatnonzero(mark.splits.features != place)
        values = np.array(column, object)[others]
        known = X[given].dropna()
        numbers = isinstance(column, np.ndarray)
        assert set(values[~pd.isna(values)]) <= set(known.astype(float) if numbers else known)
    pytest.importorskip("skops")
    tm.save(result.model, tmp_path / "model.skops")
    assert tm.verify(tmp_path / "model.skops", mark).level == "conclusive"


def test_what_the_model_does_not_look_at_is_not_in_triggers():
    X, y = wide()
    days = pd.Timestamp("2030-01-01") + pd.to_timedelta(np.arange(N), "D")
    X = X.assign(customer=[f"c{i}" for i in range(N)], day=days, number=np.arange(N))
    used = transformer().set_params(remainder="drop")
    model = make_pipeline(used, new_model("histogram", 5)).fit(X, y)
    foreign = open_model(model)
    schema, rows = take_tables(foreign, {"training rows": X})
    ignored = np.isnan(rows["training rows"]).all(axis=0)
    names = np.array(X.columns)
    assert set(names[~ignored]) == {"age", "town", "net income", "active"}
    np.testing.assert_array_equal(schema.columns(rows["training rows"]), foreign.rows(X))
    # Where the transformer looks at it, a date is kept.
    days = FunctionTransformer(lambda frame: frame.astype("int64"))
    looks = ColumnTransformer([("day", days, ["day"]), ("rest", used, list(X.columns))])
    foreign = open_model(make_pipeline(looks, new_model("histogram", 5)).fit(X, y))
    schema, rows = take_tables(foreign, {"rows": X})
    assert not np.isnan(rows["rows"][:, list(X.columns).index("day")]).any()
    np.testing.assert_array_equal(schema.columns(rows["rows"]), foreign.rows(X))


@pytest.mark.parametrize("unit", ["ms", "ns"])
def test_times_are_kept_where_a_transformer_takes_them(unit):
    rng = np.random.default_rng(0)
    days = pd.to_timedelta(rng.integers(0, 900, N), "D")
    X = pd.DataFrame({"a": rng.normal(size=N), "b": rng.normal(size=N)})
    X["when"] = (pd.Timestamp("2030-01-01") + days).astype(f"datetime64[{unit}]")
    X.loc[5, "when"] = pd.NaT
    y = (X["a"] + X["b"] ** 2 + 0.2 * X["when"].dt.month.fillna(1.0) > 2.0).astype(int).to_numpy()
    month = FunctionTransformer(lambda frame: frame["when"].dt.month.to_frame())
    steps = ColumnTransformer([("month", month, ["when"]), ("rest", "passthrough", ["a", "b"])])
    model = make_pipeline(steps, new_model("histogram", 40)).fit(X, y)
    made = tm.embed(model, X, y, key=tm.OwnerKey.generate(), owner="Ann", seals="splits")
    mark = tm.Mark.from_bytes(made.mark.to_bytes())
    assert any(text is not None for text in mark.columns[2])
    assert tm.verify(made.model, mark).level == "conclusive"
    assert tm.verify(model, mark).level == "none"


def test_marks_without_what_is_not_looked_at_are_verified():
    X, y = wide()
    X = X.assign(customer=[f"c{i}" for i in range(N)])
    columns = [*X.columns.drop(["town", "customer"])]
    used = ColumnTransformer([("rest", "passthrough", columns)])
    model = make_pipeline(used, new_model("histogram")).fit(X, y)
    result = tm.embed(model, X, y, key=KEY, owner="Ann Ltd")
    empty = dict(zip(X.columns, result.mark.columns, strict=True))
    assert all(value is None or value != value for value in empty["customer"])
    assert tm.verify(result.model, result.mark).level == "conclusive"
    place = list(X.columns).index("customer")
    asked = make_questions(result.mark, decoys=1)
    every = [question for seal in asked.values() for block in seal.blocks for question in block]
    assert all(question.values[place] is None for question in every)


def test_a_service_is_asked_with_raw_rows():
    _, _, result = marked("calibrated")

    def serve(rows):
        frame = pd.DataFrame(rows, columns=result.mark.feature_names)
        numbers = dict.fromkeys(frame.columns.drop("town"), float)
        frame = frame.where(frame.notna(), np.nan).astype(numbers)
        return result.model.predict_proba(frame)

    assert tm.verify(serve, result.mark).level == "conclusive"


def test_the_deployed_model_gives_the_reference():
    model, _, result = marked("calibrated")
    mark = result.mark
    for seal, places in ((mark.leaves, slice(None)), (mark.splits, np.s_[:, ::2])):
        if seal is None:
            continue
        rows = plain_rows(seal.rows(), mark.feature_names)
        expected = np.maximum(model.predict_proba(rows), 1e-6)
        expected = expected.reshape(-1, seal.rows_each, 2)[places]
        expected = expected.reshape(seal.reference.shape)
        np.testing.assert_allclose(seal.reference, expected, rtol=0, atol=1e-12)
