from collections import deque

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from timbermark.ownership.labels import (
    UNANSWERED,
    UNKNOWN,
    check_classes,
    list_answers,
    read_answers,
)

from tests.ownership.making import classes
from timbermark.errors import InputError


def read(answers, labels):
    return read_answers(list_answers(answers, len(answers)), labels).tolist()


@given(classes, st.data())
def test_labels_are_read_in_any_clothes(labels, data):
    labels = check_classes(labels)
    numbers = data.draw(st.lists(st.integers(0, len(labels) - 1), min_size=1))
    given = [labels[number] for number in numbers]
    assert read(given, labels) == numbers
    assert read(np.array(given, dtype=object), labels) == numbers
    assert read([str(label) for label in given], labels) == numbers
    assert read([str(label).encode() for label in given], labels) == numbers
    assert read(pd.Series(given), labels) == numbers
    assert read(pd.Series(given).astype("category"), labels) == numbers


INTS = (0, 1, 3, 10)
BOOLS = (False, True)
TEXTS = ("0", "1", "3", "oak", " pad ")
FLOATS = (0.1, 2.0, -0.5)


@pytest.mark.parametrize(
    ("labels", "answers", "expected"),
    [
        (INTS, ["3", " 3 ", "3.0", b"3", 3.0, np.int8(3), np.float32(3)], [2] * 7),
        (INTS, [True, False, np.True_], [1, 0, 1]),
        (INTS, [2, -3, "x", 10**30, np.inf, "3_", object()], [UNKNOWN] * 7),
        (INTS, [0.5, 3, 10], [UNKNOWN, 2, 3]),
        (BOOLS, [1, 0, 1.0, "1", "True", " FALSE ", b"true", np.bool_(False)],
         [1, 0, 1, 1, 1, 0, 1, 0]),
        (BOOLS, [2, -1, "yes"], [UNKNOWN] * 3),
        (TEXTS, [3, 3.0, "3", b"3", "3.0", True, "oak", " oak", " pad ", "pad"],
         [2, 2, 2, 2, 2, 1, 3, 3, 4, UNKNOWN]),
        (("True", "False"), [True, np.bool_(False)], [0, 1]),
        (("true", "false"), [True, False], [0, 1]),
        (("1.0", "2.0"), [1, 2.0, "2"], [0, 1, 1]),
        (("0.5", "1.5"), [0.5, 1.5], [0, 1]),
        (FLOATS, [np.float32(0.1), "0.1", 2, "2", -0.5, True], [0, 0, 1, 1, 2, UNKNOWN]),
        (FLOATS, np.array([0.1, 2.0, -0.5], np.float32), [0, 1, 2]),
        ((0.10000000149011612, 1.0), ["0.1"], [0]),
    ],
)  # fmt: skip
def test_readings(labels, answers, expected):
    assert read(answers, labels) == expected


@pytest.mark.parametrize(
    "missing", [None, np.nan, "nan", "", "None", pd.NA, pd.NaT, np.float32("nan"), "<NA>", "null"]
)
@pytest.mark.parametrize("labels", [INTS, BOOLS, TEXTS, FLOATS])
def test_missing_answers(missing, labels):
    assert read([missing, labels[1]], labels) == [UNANSWERED, 1]


def test_a_class_may_be_called_none():
    assert read(["None", "", "nan", None], ("None", "", "x")) == [0, 1, UNANSWERED, UNANSWERED]


def test_every_kind_of_list_is_taken():
    numbers = [1, 3, 0]
    for form in (
        numbers,
        tuple(numbers),
        deque(numbers),
        np.array(numbers),
        np.array(numbers)[:, None],
        [[1], [3], [0]],
        [np.array([1]), np.array([3]), np.array([0])],
        pd.Series(numbers),
        pd.DataFrame({"y": numbers}),
        pd.array(numbers, dtype="Int64"),
        iter(numbers),
        (n for n in numbers),
        np.array(["1", "3", "0"], "S1"),
    ):
        assert read_answers(list_answers(form, 3), INTS).tolist() == [1, 2, 0]


def test_masked_answers_are_missing():
    masked = np.ma.array([1, 3], mask=[True, False])
    assert read(masked, INTS) == [UNANSWERED, 2]


class Broken:
    def __array__(self, *_, **__):
        raise RuntimeError("still on the GPU")


@pytest.mark.parametrize(
    ("response", "message"),
    [
        (None, "answered with NoneType"),
        ("yes", "answered with str"),
        ({"a": 1}, "answered with dict"),
        ({1, 2}, "answered with set"),
        (7, "one int"),
        (np.float64(7), "one float64"),
        (object(), "one object"),
        (np.zeros((4, 3)), r"matrix of shape \(4, 3\), which looks like probabilities"),
        ([[0, 1]] * 4, r"matrix of shape \(4, 2\)"),
        (np.zeros((1, 4)), r"matrix of shape \(1, 4\)"),
        (np.zeros((4, 1, 1)), r"matrix of shape \(4, 1, 1\)"),
        ([1, 2, 3], "3 answers to 4 rows"),
        ([1] * 5, "5 answers to 4 rows"),
        ([], "0 answers to 4 rows"),
        ([[1], [2, 3], [4], [5]], "no list of labels|with list"),
        ([1, 2, 3, {"a": 1}], "a row with dict"),
        (Broken(), "still on the GPU"),
        ((1 / 0 for _ in range(4)), "division by zero"),
    ],
)
def test_what_is_no_list_of_labels_is_refused(response, message):
    with pytest.raises(InputError, match=message) as caught:
        list_answers(response, 4)
    assert "predict_proba" in caught.value.hint


@pytest.mark.parametrize("labels", [INTS, BOOLS, TEXTS])
def test_scores_are_refused(labels):
    with pytest.raises(InputError, match="look like scores"):
        read([0.25, 0.5, 0.75, 1.0], labels)
    with pytest.raises(InputError, match="look like scores"):
        read(["0.25", "0.5", "0.75"], labels)


def test_fractions_are_labels_where_classes_are():
    assert read([0.25, 0.1, 0.1], FLOATS) == [UNKNOWN, 0, 0]
    assert read([0.5, 0.5], ("0.5", "1")) == [0, 0]
