"""Tables and labels that users give: taken as the model takes them, or one sentence and a hint."""

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_matrix
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import timbermark as tm
from timbermark.errors import InputError
from timbermark.marking.inputs import read_columns, take_labels, take_pair, take_rows
from timbermark.marking.models import open_model

lgb = pytest.importorskip("lightgbm")
N = 120


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    return pd.DataFrame(rng.normal(size=(N, 3)).round(3), columns=["age", "net income", "debt"])


@pytest.fixture(scope="module")
def y(table):
    return np.where(table["age"] + table["debt"] > 0, "yes", "no")


@pytest.fixture(scope="module")
def named(table, y):
    return open_model(tm.TimberClassifier(max_iter=3, random_state=0).fit(table, y))


@pytest.fixture(scope="module")
def unnamed(table, y):
    return open_model(HistGradientBoostingClassifier(max_iter=3).fit(table.to_numpy(), y))


def refused(match, function, *args):
    with pytest.raises(InputError, match=match) as caught:
        function(*args)
    assert caught.value.hint
    # One sentence, apart from what NumPy says in brackets.
    assert caught.value.message.partition(" (")[0].count(". ") == 0
    return caught.value


def test_columns_in_any_order_and_more_of_them(named, table):
    expected = table.to_numpy()
    mixed = table.assign(comment="text")[["debt", "comment", "age", "net income"]]
    for given in (table, mixed, expected, expected.tolist(), table.astype(object)):
        found = take_rows(named, given)
        assert found.dtype == np.float64
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("read", [take_rows, read_columns])
@pytest.mark.parametrize(
    "one", [lambda t: t["age"], lambda t: t["age"].to_numpy(), lambda t: [1.0]]
)
@pytest.mark.parametrize(
    ("what", "parameter"),
    [("training rows", "X"), ("candidates", "candidates"), ("validation rows", "validation")],
)
def test_a_single_column_is_no_table(named, table, read, one, what, parameter):
    with pytest.raises(InputError) as caught:
        read(named, one(table), what)
    assert (caught.value.code, caught.value.parameter) == ("rows.shape", parameter)


def test_labels_in_place_of_rows_are_refused(named, table, y):
    with pytest.raises(InputError) as caught:
        tm.plan(named, pd.Series(y), table)
    assert (caught.value.code, caught.value.parameter) == ("rows.shape", "X")
    with pytest.raises(InputError) as caught:
        tm.plan(named, table, y, validation=(table["age"], y))
    assert (caught.value.code, caught.value.parameter) == ("rows.pair", "validation")


def test_names_with_blanks_as_lightgbm_knows_them(table, y):
    model = lgb.LGBMClassifier(n_estimators=3, n_jobs=1, verbose=-1).fit(table, y)
    found = take_rows(open_model(model), table[["net income", "debt", "age"]])
    np.testing.assert_array_equal(found, table.to_numpy())


def test_tables_without_names_sparse_matrices_and_missing_values(unnamed, table):
    X = table.to_numpy().copy()
    X[3, 1] = np.nan
    np.testing.assert_array_equal(take_rows(unnamed, X), X)
    np.testing.assert_array_equal(take_rows(unnamed, csr_matrix(table.to_numpy())), table)
    empty = table.assign(age=np.nan)
    assert np.isnan(take_rows(unnamed, empty)[:, 0]).all()
    whole = table.assign(age=pd.array([1, None] * (N // 2), dtype="Int64"))
    np.testing.assert_array_equal(take_rows(unnamed, whole)[:4, 0], [1.0, np.nan, 1.0, np.nan])


def test_categories_become_the_codes_of_the_model(table, y):
    rng = np.random.default_rng(1)
    town = pd.Categorical(rng.choice(["Oslo", "Rome", "Bern"], N), ["Rome", "Oslo", "Bern"])
    given = table.assign(town=town)
    model = lgb.LGBMClassifier(n_estimators=3, n_jobs=1, verbose=-1).fit(given, y)
    found = take_rows(open_model(model), given)
    np.testing.assert_array_equal(found[:, 3], town.codes)
    # Another order of the categories is another code in the table, not in the model.
    other = given.assign(town=town.reorder_categories(["Bern", "Oslo", "Rome"]))
    np.testing.assert_array_equal(take_rows(open_model(model), other), found)
    # So are texts, in a frame or in a matrix as the command line reads it.
    texts = given.assign(town=given["town"].astype(object))
    np.testing.assert_array_equal(take_rows(open_model(model), texts), found)
    np.testing.assert_array_equal(take_rows(open_model(model), texts.to_numpy(object)), found)


def test_models_and_tables_that_are_not_rows_of_numbers(named, table, y):
    catboost = pytest.importorskip("catboost")
    pool = catboost.Pool(table, y)
    refused("rows are a Pool of catboost", take_rows, named, pool)
    pipeline = make_pipeline(StandardScaler(), HistGradientBoostingClassifier(max_iter=2))
    deployed = open_model(pipeline.fit(table, y))
    refused("Pipeline is a deployed model", take_rows, deployed, table)
    refused("rows are a Pool of catboost", read_columns, deployed, pool)
    texts = table.assign(age=table["age"].astype(str))
    model = catboost.CatBoostClassifier(
        iterations=2, cat_features=["age"], verbose=0, allow_writing_files=False
    )
    refused("model of CatBoost takes texts", take_rows, open_model(model.fit(texts, y)), texts)


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ([["a", "b", "c"]], "training rows are not all numbers"),
        ([[1.0, 2.0], [3.0]], "training rows are not all numbers"),
        ([1.0, 2.0, 3.0], r"training rows have the shape \(3,\)"),
        (np.zeros((2, 3, 1)), r"training rows have the shape \(2, 3, 1\)"),
        (np.zeros((0, 3)), "There are no training rows"),
        ([[1.0, np.inf, 0.0]], "training rows hold infinity"),
        ([[1.0, 0.0, -np.inf]], "training rows hold infinity"),
        ([[1.0, 1e39, np.nan]], r"training rows hold 1e\+39, which is beyond float32"),
        (np.zeros((5, 2)), "2 features"),
        (np.zeros((5, 4)), "4 features"),
    ],
)
def test_rows_that_are_none(named, unnamed, given, match):
    for foreign in (named, unnamed):
        refused(match, take_rows, foreign, given, "training rows")


def test_tables_that_lack_a_column_or_hold_texts(named, table):
    refused(
        "The rows lack the model's feature 'debt'", take_rows, named, table.drop(columns="debt")
    )
    refused("not all numbers", take_rows, named, table.assign(age="old"))


def test_labels_become_class_numbers():
    classes = np.array(["no", "yes"])
    assert take_labels(["yes", "no", "yes"], 3, classes).tolist() == [1, 0, 1]
    assert take_labels(pd.Series(["yes"], index=[7]), 1, classes).tolist() == [1]
    assert take_labels(pd.Categorical(["no", "yes"]), 2, classes).tolist() == [0, 1]
    assert take_labels(np.array([3.0, 7.0]), 2, np.array([3, 7])).tolist() == [0, 1]
    assert take_labels([True, False], 2, np.array([False, True])).tolist() == [1, 0]
    assert take_labels([], 0, classes).tolist() == []


@pytest.mark.parametrize(
    ("given", "match"),
    [
        (["yes", "no"], r"Training labels of the shape \(2,\) do not go with 3 rows"),
        ([["yes"], ["no"], ["no"]], r"Training labels of the shape \(3, 1\)"),
        ("yes", r"Training labels of the shape \(\)"),
        (["yes", "maybe", "no"], "The label 'maybe' is not one of the model's"),
        ([1, 0, 1], "The label 1 is not one of the model's"),
        ([np.nan, np.nan, np.nan], "3 of the training labels are missing"),
        ([None, "yes", "no"], "1 of the training labels are missing"),
        ([["yes"], "no", "no"], "training labels are not a list of labels"),
    ],
)
def test_labels_that_are_none(given, match):
    refused(match, take_labels, given, 3, np.array(["no", "yes"]), "training labels")


def test_pairs_and_tables_alone(table, y):
    for pair in ((table, y), [table, y]):
        rows, labels = take_pair(pair, "validation")
        assert rows is table
        assert labels is y
    rows, labels = take_pair(table, "validation")
    assert rows is table
    assert labels is None
    # Two rows are a table, not a pair.
    assert take_pair([[1.0, 2.0], [3.0, 4.0]], "validation")[1] is None
    refused("validation is not a pair", take_pair, (table, y, y), "validation")
    refused("validation is not a pair", take_pair, (y, table), "validation")


def test_tables_of_arrow_and_with_nullable_types_are_those_of_pandas():
    import pyarrow as pa

    model, X, y = small_model()
    table = pd.DataFrame(X, columns=list(model.feature_name_))
    forms = {
        "nullable": (table.convert_dtypes(), pd.Series(y).astype("Int64")),
        "arrow types": (table.convert_dtypes(dtype_backend="pyarrow"), y.tolist()),
        "arrow": (pa.Table.from_pandas(table), pa.array(y)),
    }
    options = {"seals": "splits", "random_state": 0}
    wanted = tm.plan(model, table, y, **options)
    for form, (rows, labels) in forms.items():
        found = tm.plan(model, rows, labels, **options)
        np.testing.assert_array_equal(found.mark.rows(), wanted.mark.rows(), err_msg=form)


def test_tables_of_polars_are_those_of_pandas():
    pl = pytest.importorskip("polars", reason="polars is not installed, and nothing needs it")
    model, X, y = small_model()
    table = pd.DataFrame(X, columns=list(model.feature_name_))
    frame = pl.DataFrame({name: table[name].to_numpy() for name in table})
    options = {"seals": "splits", "random_state": 0}
    wanted = tm.plan(model, table, y, **options)
    found = tm.plan(model, frame, pl.Series("y", y), **options)
    np.testing.assert_array_equal(found.mark.rows(), wanted.mark.rows())


def small_model():
    from lightgbm import LGBMClassifier

    rng = np.random.default_rng(0)
    X = rng.normal(size=(800, 4))
    y = (X[:, 0] + X[:, 1] ** 2 > 0.5).astype(int)
    model = LGBMClassifier(n_estimators=30, verbose=-1, n_jobs=1)
    names = [f"column {i}" for i in range(4)]
    return model.fit(pd.DataFrame(X, columns=names), y), X, y


def test_labels_of_rows_may_have_other_names():
    model, X, y = small_model()
    names = np.array(["no", "yes"])[y]
    table = pd.DataFrame(X, columns=list(model.feature_name_))
    options = {"seals": "splits", "random_state": 0}
    wanted = tm.plan(model, table, y, **options)
    for given in ({"no": 0, "yes": 1}, {"no": "0", "yes": "1"}):
        found = tm.plan(model, table, names, label_map=given, **options)
        assert found.cost.to_dict() == wanted.cost.to_dict()
    numbers = tm.plan(model, table, y + 1, label_map={"1": "0", "2": "1"}, **options)
    assert numbers.cost.to_dict() == wanted.cost.to_dict()


@pytest.mark.parametrize(
    ("label_map", "code"),
    [(None, "labels.unknown"), ({"no": 0}, "labels.unknown"),
     ({"no": 0, "yes": 2}, "label-map.targets"), ({"no": 1, "yes": 1}, "label-map.targets"),
     ("no=0", "label-map.type"), ({}, "label-map.type")],
)  # fmt: skip
def test_a_map_of_labels_leads_to_the_models_own(label_map, code):
    with pytest.raises(InputError) as caught:
        take_labels(["no", "yes"], 2, np.array([0, 1]), label_map=label_map)
    assert (caught.value.code, caught.value.parameter) == (code, "label_map")


def test_mistakes_with_labels_and_missing_rows_are_named():
    model, X, y = small_model()
    table = pd.DataFrame(X, columns=list(model.feature_name_))
    names = np.array(["no", "yes"], object)[y]
    cases = {
        "label-map.reversed": (table, names, {"0": "no", "1": "yes"}),
        "label-map.targets": (table, names, {"no": 0, "yes": 7}),
        "labels.missing": (table, np.where(np.arange(800) == 3, None, y.astype(object)), None),
        "labels.unknown": (table, names, None),
        "rows.missing": (table * np.nan, y, None),
    }
    for code, (rows, labels, label_map) in cases.items():
        with pytest.raises(InputError) as caught:
            tm.plan(model, rows, labels, label_map=label_map, seals="splits")
        assert caught.value.code == code


@pytest.mark.parametrize("seed", [None, -1, 1.5, True, np.random.RandomState(0)])
def test_a_seed_is_a_whole_number(named, table, y, seed):
    """One seed gives one result, so that there is none that draws anew."""
    with pytest.raises(InputError) as caught:
        tm.plan(named, table, y, random_state=seed)
    assert (caught.value.code, caught.value.parameter) == ("random_state", "random_state")
