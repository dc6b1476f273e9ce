import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from timbermark.errors import InputError
from timbermark.ownership.columns import (
    check_distinct,
    freeze_columns,
    join_columns,
    kinds_of_columns,
    numeric_matrix,
    plain_rows,
    split_columns,
    take_rows,
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
    columns = split_columns(rows)
    if len({tuple("nan" if x != x else x for x in row) for row in matrix.tolist()}) < len(rows):
        with pytest.raises(InputError) as caught:
            check_distinct(columns)
        assert caught.value.code == "triggers.same"
    else:
        check_distinct(columns)
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
    ("rows", "what"),
    [
        ([[1.0], [1.0, 2.0]], "shape"),
        (np.zeros(3), "shape"),
        (7, "shape"),
        (np.zeros((0, 3)), "shape"),
        (np.zeros((3, 0)), "shape"),
        (np.zeros((16385, 1)), "shape"),
        ([[1 + 2j], [3]], "values"),
        ([[10**400], [3]], "values"),
        ([[b"x"], [b"y"]], "values"),
        ([["a"], [1]], "values"),
        ([["\ud800"], ["b"]], "values"),
        ([[np.inf], [3]], "values"),
        ([[2**53 + 1], [3]], "values"),
        (np.array([["2030-01-01"]], "M8[D]"), "shape"),
    ],
)
def test_other_rows_are_refused(rows, what):
    with pytest.raises(InputError) as caught:
        split_columns(rows)
    assert caught.value.code == f"triggers.{what}"
    assert caught.value.hint


@pytest.mark.parametrize("rows", [[["a", 1], ["a", 1]], [["a", None], ["a", np.nan]]])
def test_rows_with_texts_are_told_apart(rows):
    with pytest.raises(InputError) as caught:
        check_distinct(split_columns(rows))
    assert caught.value.code == "triggers.same"
    check_distinct(split_columns([*rows[:1], ["b", None]]))


def test_columns_of_several_lengths_are_refused():
    for columns in ([], [[1.0], [1.0, 2.0]], 7):
        with pytest.raises(InputError) as caught:
            freeze_columns(columns)
        assert caught.value.code == "triggers.shape"


def test_rows_are_taken_and_shown():
    columns = split_columns([[1.0, "a"], [np.nan, None], [3.0, "c"]])
    numbers, texts = take_rows(columns, [2, 1])
    np.testing.assert_array_equal(numbers, [3.0, np.nan])
    assert texts == ("c", None)
    frame = plain_rows(columns, ["x", "y"])
    assert list(frame.columns) == ["x", "y"]
    assert frame["y"].isna().tolist() == [False, True, False]
    assert plain_rows(columns, None).dtype == object


def test_frozen_columns_are_copies():
    given_column = np.array([1.0, 2.0])
    (column,) = freeze_columns([given_column])
    given_column[0] = 7
    assert column[0] == 1.0
    with pytest.raises(ValueError, match="read-only"):
        column[0] = 1
