"""Rows as codes and back, and models that do not see the same in them each time."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, OrdinalEncoder

from tests.libraries.deployed_models import fitted, table
from tests.marking.models import new_model
from timbermark.errors import InputError
from timbermark.marking.inputs import read_columns
from timbermark.marking.models import open_model
from timbermark.marking.text_codes import Schema, take_tables


@pytest.fixture(scope="module")
def pipeline():
    return open_model(fitted("pipeline"))


def test_tables_become_codes_and_come_back(pipeline):
    X, _ = table()
    more = X.iloc[:50].assign(town="Bern")
    schema, rows = take_tables(pipeline, {"training rows": X, "candidates": more})
    assert schema.texts == (None, ("Bern", "Cork", "Oslo", "Rome"), None, None)
    assert rows["training rows"].dtype == np.float64
    back = schema.decode(rows["training rows"])
    assert list(back.columns) == list(X.columns)
    pd.testing.assert_frame_equal(
        back.astype({"town": object}), X.astype({"age": float, "active": float, "town": object})
    )
    np.testing.assert_array_equal(schema.columns(rows["candidates"]), pipeline.rows(more))


def test_columns_in_any_order_and_more_of_them(pipeline):
    X, _ = table()
    mixed = X.assign(comment="words")[["comment", "town", "active", "net income", "age"]]
    _, expected = take_tables(pipeline, {"rows": X})
    _, found = take_tables(pipeline, {"rows": mixed})
    np.testing.assert_array_equal(found["rows"], expected["rows"])


@settings(max_examples=40, deadline=None)
@given(st.lists(st.text(max_size=5) | st.none(), min_size=1, max_size=20))
def test_any_texts_survive(texts):
    foreign = open_model(fitted("pipeline"))
    frame = table()[0].iloc[[0] * len(texts)].assign(town=pd.Series(texts, dtype=object).to_numpy())
    columns = read_columns(foreign, frame).values
    known = tuple(sorted({text for text in texts if text is not None})) or None
    schema = Schema(foreign, (None, known, None, None))
    if known is not None:
        codes = np.array([np.nan if t is None else known.index(t) for t in texts])
        rows = np.column_stack([columns[0], codes, columns[2], columns[3]])
        back = schema.decode(rows)["town"].tolist()
        assert [None if text != text else text for text in back] == texts


class Noise(TransformerMixin, BaseEstimator):
    def fit(self, X, y=None):
        self.fitted_ = True
        return self

    def transform(self, X):
        return np.asarray(X) + np.random.default_rng().normal(size=np.shape(X))


class Picky(Noise):
    """Refuses rows whose first value is above the second."""

    def transform(self, X):
        X = np.asarray(X, float)
        if (X[:, 0] > X[:, 1]).any():
            raise ValueError("first above second")
        return X


def centred(X):
    return np.asarray(X) - np.mean(X, axis=0)


def refuse(model, X, said):
    with pytest.raises(InputError, match=said) as caught:
        take_tables(open_model(model), {"training rows": X})
    assert caught.value.hint


def test_transformers_that_do_not_always_give_the_same_are_refused():
    X, y = np.random.default_rng(0).normal(size=(60, 2)), np.arange(60) % 2
    for step, said in [
        (Noise(), "other numbers of the same training rows each time"),
        (FunctionTransformer(centred), "when it is alone"),
    ]:
        refuse(make_pipeline(step, new_model("histogram", 3)).fit(X, y), X, said)


def test_columns_that_a_mark_cannot_keep_are_refused():
    X, y = table()
    dated = X[["age"]].assign(since=pd.Timestamp("2030-01-01", tz="UTC"))
    model = make_pipeline(FunctionTransformer(_lengths), new_model("histogram", 3)).fit(dated, y)
    refuse(model, dated, r"'since' of the training rows holds datetime64\[")
    mixed = X[["age"]].assign(since=[1, "two"] * (len(X) // 2))
    refuse(model, mixed, "neither all numbers nor all texts")
    encoded = make_pipeline(OneHotEncoder(sparse_output=False), new_model("histogram", 3))
    encoded.fit(X[["town"]].dropna(), y[X["town"].notna()])
    strange = X[["town"]].dropna().assign(town="Atlantis")
    refuse(encoded, strange, "does not take these rows .*Atlantis")


def _lengths(frame):
    return frame.assign(since=[len(str(value)) for value in frame["since"]])


def test_numbers_that_only_look_like_texts_are_told_apart():
    """An encoder that was fitted on texts does not know the same digits as numbers."""
    X = pd.DataFrame({"code": ["1", "2", "3"] * 20}, dtype=object)
    y = np.arange(60) % 2
    encoder = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1)
    model = make_pipeline(encoder, new_model("histogram", 3)).fit(X, y)
    schema, _ = take_tables(open_model(model), {"rows": X})
    assert schema.texts == (("1", "2", "3"),)


def test_rows_that_a_transformer_refuses_are_left_out():
    X = np.sort(np.random.default_rng(0).normal(size=(60, 2)), axis=1)
    model = make_pipeline(Picky(), new_model("histogram", 3)).fit(X, np.arange(60) % 2)
    schema, rows = take_tables(open_model(model), {"rows": X})
    bad = rows["rows"].copy()
    bad[[3, 40], 0] = 9.0
    columns, takes = schema.try_columns(bad)
    assert np.flatnonzero(~takes).tolist() == [3, 40]
    np.testing.assert_array_equal(columns[takes], schema.columns(bad[takes]))
    bad[:, 0] = 9.0
    with pytest.raises(InputError, match=r"No row .*first above second"):
        schema.try_columns(bad)
