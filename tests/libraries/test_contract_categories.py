"""Texts as categories of a model, in frames and matrices."""

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.impute import SimpleImputer
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from timbermark import libraries
from timbermark.errors import InputError
from timbermark.libraries.contract import find_texts, with_categories

KNOWN = {1: ["blue", "red"], 2: [3, 5]}
FRAME = pd.DataFrame(
    {"x": [0.5, 1.5, 2.5], "colour": ["red", None, "blue"], "size": [5.0, 3.0, np.nan]}
)


@pytest.mark.parametrize("given", [FRAME, FRAME.to_numpy(object), FRAME.astype({"colour": object})])
def test_tables_get_the_models_categories(given):
    found = with_categories(given, KNOWN, list(FRAME.columns), strict=True)
    assert list(found.columns) == list(FRAME.columns)
    assert found["colour"].cat.codes.tolist() == [1, -1, 0]
    assert found["size"].cat.codes.tolist() == [1, 0, -1]
    assert found["x"].tolist() == [0.5, 1.5, 2.5]


def test_what_needs_nothing_is_given_back():
    codes = np.array([[0.5, 1.0, 0.0]])
    ready = with_categories(FRAME, KNOWN, None, strict=True)
    for given in (codes, ready):
        assert with_categories(given, KNOWN, None, strict=True) is given
    assert with_categories(FRAME, {}, None, strict=True) is FRAME


def test_a_category_never_seen():
    strange = FRAME.assign(colour="green")
    with pytest.raises(InputError, match="'colour' holds the category 'green'") as caught:
        with_categories(strange, KNOWN, list(FRAME.columns), strict=True)
    assert "leave such rows out" in caught.value.hint
    lenient = with_categories(strange, KNOWN, list(FRAME.columns), strict=False)
    assert lenient["colour"].isna().all()
    assert set(find_texts(KNOWN)) == {1}


def test_models_say_which_texts_are_categories():
    lightgbm = pytest.importorskip("lightgbm")
    town = pd.Series(["NA", "Bern"] * 40)
    X = pd.DataFrame({"x": np.arange(80.0), "town": town.astype("category")})
    model = lightgbm.LGBMClassifier(n_estimators=2, verbose=-1).fit(X, np.arange(80) % 2)
    assert libraries.open(model).known_texts == {1: frozenset({"NA", "Bern"})}


def test_every_text_is_a_category_of_catboost():
    catboost = pytest.importorskip("catboost")
    X = pd.DataFrame({"x": np.arange(80.0), "town": ["", "nan"] * 40})
    model = catboost.CatBoostClassifier(
        iterations=2, cat_features=["town"], verbose=0, allow_writing_files=False
    ).fit(X, np.arange(80) % 2)
    assert libraries.open(model).known_texts == {1: None}


@pytest.mark.parametrize(
    "columns", [["zip"], [1], [-1], [False, True], slice(1, 2), "column of an imputer"]
)
def test_encoders_say_which_columns_are_texts(columns):
    X = pd.DataFrame({"x": np.arange(80.0), "zip": ["0123", "0456"] * 40})
    steps = [OneHotEncoder(sparse_output=False)]
    if columns == "column of an imputer":
        columns = ["zip"]
        steps.insert(0, SimpleImputer(strategy="most_frequent"))
    encoded = ColumnTransformer([("zip", make_pipeline(*steps), columns)], remainder="passthrough")
    model = make_pipeline(encoded, HistGradientBoostingClassifier(max_iter=2))
    model.fit(X, np.arange(80) % 2)
    foreign = libraries.open(GridSearchCV(model, {}, cv=2).fit(X, np.arange(80) % 2))
    assert foreign.known_texts == {1: frozenset({"0123", "0456"})}
