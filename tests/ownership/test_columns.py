import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from timbermark.errors import InputError
from timbermark.ownership.columns import (
    freeze_columns,
    join_columns,
    kinds_of_columns,
    numeric_matrix,
    split_columns,
)


@pytest.mark.parametrize(
    "rows",
    [
        [[1.0, "a"], [np.nan, None]],
        np.array([[1.0, "a"], [np.nan, None]], dtype=object),
        [[1, "a"], [None, np.nan]],
        [(np.float32(1), np.str_("a")), (float("nan"), pd.NA)],
        pd.DataFrame({"x": [1.0, None], "c": ["a", None]}),
        pd.DataFrame({"x": [1.0, None], "c": pd.Categorical(["a", None])}),
        pd.DataFrame({"x": pd.array([1, None], dtype="Int64"), "c": ["a", None]}),
    ],
)
def test_every_form_gives_the_same_columns(rows):
    numbers, texts = split_columns(rows)
    np.testing.assert_array_equal(numbers, [1.0, np.nan])
    assert numbers.dtype == np.float64
    assert texts == ("a", None)
    assert numbers.tobytes() == bytes.fromhex("000000000000f03f000000000000f87f")
    assert kinds_of_columns((numbers, texts)) == ("numbers", "texts")


values = st.floats(allow_infinity=False) | st.integers(-(2**53), 2**53)


@given(st.lists(st.lists(values, min_size=2, max_size=2), min_size=1, max_size=5))
def test_numbers_stay_what_they_are(rows):
    matrix = np.array(rows, dtype=np.float64)
    if len({tuple("nan" if x != x else x for x in row) for row in matrix.tolist()}) < len(rows):
        with pytest.raises(InputError, match="the same row"):
            split_columns(rows)
        return
    columns = split_columns(rows)
    np.testing.assert_array_equal(join_columns(columns), matrix)
    np.testing.assert_array_equal(numeric_matrix(columns), matrix)
    assert join_columns(columns).dtype == np.float64
    assert not np.signbit(join_columns(columns)[matrix == 0]).any()


def test_a_matrix_of_booleans_or_integers_is_numbers():
    (column,) = split_columns(np.array([[True], [False]]))
    assert column.tolist() == [1.0, 0.0]
    (column,) = split_columns(np.array([[7], [9]], np.uint8))
    assert column.tolist() == [7.0, 9.0]


def test_texts_of_numbers_are_texts():
    (column,) = split_columns(np.array([["1"], ["2"]]))
    assert column == ("1", "2")


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([[1.0], [1.0, 2.0]], "different lengths|not those of a matrix"),
        (np.zeros(3), "not those of a matrix"),
        (7, "not those of a matrix"),
        (np.zeros((0, 3)), "0 triggers of 3 features"),
        (np.zeros((3, 0)), "3 triggers of 0 features"),
        (np.zeros((16385, 1)), "16385 triggers"),
        ([[1 + 2j], [3]], "neither numbers nor texts"),
        ([[10**400], [3]], "neither numbers nor texts"),
        ([[b"x"], [b"y"]], "neither numbers nor texts"),
        (np.array([["2030-01-01"]], "M8[D]"), "not those of a matrix"),
        ([["a", 1], ["a", 1]], "the same row"),
        ([["a", None], ["a", np.nan]], "the same row"),
    ],
)
def test_other_rows_are_refused(rows, message):
    with pytest.raises(InputError, match=message) as caught:
        split_columns(rows)
    assert caught.value.hint


def test_frozen_columns_are_copies():
    given_column = np.array([1.0, 2.0])
    (column,) = freeze_columns([given_column])
    given_column[0] = 7
    assert column[0] == 1.0
    with pytest.raises(ValueError, match="read-only"):
        column[0] = 1
