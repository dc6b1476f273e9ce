"""What each of the two seals takes, keeps and refuses."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ownership.making import leaf_seals, make_leaves, make_splits, split_seals, text, values
from timbermark.errors import InputError
from timbermark.ownership import LeafSeal, SplitSeal
from timbermark.ownership.columns import join_columns
from timbermark.ownership.seals import agree_on_missing, check_classes, take_triggers

CLASSES = tuple(range(6))
LEAVES, SPLITS = make_leaves().frozen(CLASSES), make_splits().frozen(CLASSES)
NUMBERS = make_splits(n_classes=0).frozen(())
HALVES = np.full((32, 1, 4), 0.5)

BAD_LEAVES = {
    "classes for numbers": ({}, (), "leaves.numbers"),
    "no columns": ({"columns": ()}, CLASSES, "triggers.shape"),
    "same rows": ({"columns": (np.zeros(32),)}, CLASSES, "triggers.same"),
    "few alphabets": ({"alphabets": LEAVES.alphabets[1:]}, CLASSES, "leaves.alphabets"),
    "three labels": ({"alphabets": LEAVES.alphabets[:, :3]}, CLASSES, "leaves.alphabets"),
    "one label": ({"alphabets": LEAVES.alphabets[:, :1]}, CLASSES, "leaves.alphabets"),
    "too large a class": ({"alphabets": LEAVES.alphabets + 1}, CLASSES, "leaves.alphabets"),
    "a negative class": ({"alphabets": LEAVES.alphabets - 1}, CLASSES, "leaves.alphabets"),
    "a class twice": ({"alphabets": np.zeros((32, 4), int)}, CLASSES, "leaves.alphabets"),
    "labels": ({"alphabets": np.full((32, 4), "a")}, CLASSES, "leaves.alphabets"),
    "fractions": ({"alphabets": LEAVES.alphabets + 0.5}, CLASSES, "leaves.alphabets"),
    "ragged": ({"alphabets": [[0, 1], [0]]}, CLASSES, "seal.shape"),
    "another shape": ({"reference": LEAVES.reference[:, 1:]}, CLASSES, "leaves.reference"),
    "margins": ({"reference": LEAVES.reference * 3 - 1}, CLASSES, "leaves.reference"),
    "NaN": ({"reference": LEAVES.reference * np.nan}, CLASSES, "leaves.reference"),
    "texts": ({"reference": [["a"] * 6] * 32}, CLASSES, "leaves.reference"),
    "other scores": ({"alternatives": np.ones((32, 2, 3))}, CLASSES, "leaves.alternatives"),
    "flat scores": ({"alternatives": np.ones((32, 4))}, CLASSES, "leaves.alternatives"),
    "17 models": ({"alternatives": np.ones((32, 17, 4))}, CLASSES, "leaves.alternatives"),
    "margins of models": ({"alternatives": HALVES * 4}, CLASSES, "leaves.alternatives"),
    "NaN of models": ({"alternatives": HALVES * np.nan}, CLASSES, "leaves.alternatives"),
}


@pytest.mark.parametrize("case", BAD_LEAVES)
def test_what_is_no_leaf_seal_is_refused(case):
    change, classes, code = BAD_LEAVES[case]
    with pytest.raises(InputError) as caught:
        replace(LEAVES, **change).frozen(classes)
    assert caught.value.code == code
    assert caught.value.hint


def flipped(array, *at):
    changed = np.array(array)
    changed[at] = -changed[at] - 1
    return changed


BAD_SPLITS = {
    "a feature too many": ({"features": SPLITS.features + 3}, "splits.features"),
    "a negative feature": ({"features": flipped(SPLITS.features, 0)}, "splits.features"),
    "few features": ({"features": SPLITS.features[1:]}, "splits.features"),
    "half a feature": ({"features": SPLITS.features + 0.5}, "splits.features"),
    "falling values": ({"values": SPLITS.values[:, ::-1]}, "splits.values"),
    "no middle": ({"values": SPLITS.values[:, [0, 0, 2]]}, "splits.values"),
    "two values": ({"values": SPLITS.values[:, :2]}, "splits.values"),
    "NaN": ({"values": SPLITS.values * np.nan}, "splits.values"),
    "infinity": ({"values": SPLITS.values + np.array([0, 0, np.inf])}, "splits.values"),
    "another low end": ({"values": SPLITS.values - [1e-9, 0, 0]}, "splits.rows"),
    "few answers": ({"reference": SPLITS.reference[1:]}, "splits.reference"),
    "one end": ({"reference": SPLITS.reference[:, :1]}, "splits.reference"),
    "fewer classes": ({"reference": SPLITS.reference[..., :5]}, "splits.reference"),
    "margins": ({"reference": SPLITS.reference * 3 - 1}, "splits.reference"),
    "NaN answers": ({"reference": SPLITS.reference * np.nan}, "splits.reference"),
    "flat strata": ({"strata": SPLITS.strata[:, 0]}, "splits.strata"),
    "few strata": ({"strata": SPLITS.strata[1:]}, "splits.strata"),
    "nine divisions": ({"strata": np.zeros((48, 9), int)}, "splits.strata"),
    "halves": ({"strata": SPLITS.strata + 0.5}, "splits.strata"),
}


@pytest.mark.parametrize("case", BAD_SPLITS)
def test_what_is_no_split_seal_is_refused(case):
    change, code = BAD_SPLITS[case]
    with pytest.raises(InputError) as caught:
        replace(SPLITS, **change).frozen(CLASSES)
    assert caught.value.code == code


def test_two_triggers_in_one_gap_are_refused():
    twice = take_triggers(SPLITS, [0, 1, 0])
    with pytest.raises(InputError) as caught:
        twice.frozen(CLASSES)
    assert caught.value.code == "splits.same"


def test_numbers_need_one_answer_for_each_end():
    with pytest.raises(InputError) as caught:
        SPLITS.frozen(())
    assert caught.value.code == "splits.reference"
    large = replace(NUMBERS, reference=NUMBERS.reference * 1e9).frozen(())
    np.testing.assert_array_equal(large.reference, NUMBERS.reference * 1e9)


@pytest.mark.parametrize(
    ("features", "gaps", "code"),
    [
        ([0], [[0, 1, 2]], "splits.shape"),
        ([0, 1], [[0, 1, 2], [0, 1, 2]], "splits.features"),
        ([0, 2], [[0, 1, 2], [0, 1, 2]], "splits.features"),
        ([0, -1], [[0, 1, 2], [0, 1, 2]], "splits.features"),
        ([0.0, 0.0], [[0, 1, 2], [0, 1, 2]], "splits.shape"),
        ([0, 0], [[0, 1], [0, 2]], "splits.shape"),
    ],
)
def test_gaps_belong_to_columns_of_numbers(features, gaps, code):
    with pytest.raises(InputError) as caught:
        SplitSeal.make([[0.5, "a"], [0.5, "b"]], features, gaps, np.full((2, 2, 2), 0.5))
    assert caught.value.code == code


@given(st.data(), st.integers(0, 4))
def test_a_split_asks_three_rows_that_differ_in_one_value(data, n_classes):
    n_classes = n_classes if n_classes > 1 else 0
    kinds = [values, st.none() | text, values]
    seal = data.draw(split_seals(kinds, n_classes)).frozen(range(n_classes))
    rows = join_columns(seal.rows())
    for i, (feature, gap) in enumerate(zip(seal.features, seal.values.tolist(), strict=True)):
        three = rows[3 * i : 3 * i + 3]
        assert three[:, feature].tolist() == gap
        others = np.delete(three, feature, axis=1)
        shown = {tuple("nan" if x != x else x for x in row) for row in others.tolist()}
        assert len(shown) == 1
    base = join_columns(seal.columns)
    assert str(rows[::3].tolist()) == str(base.tolist())


@given(st.data())
def test_freezing_twice_changes_nothing(data):
    classes = range(data.draw(st.integers(2, 5)))
    kinds = [values, st.none() | text]
    for strategy in (leaf_seals, split_seals):
        seal = data.draw(strategy(kinds, len(classes)))
        once = seal.frozen(classes)
        again = once.frozen(classes)
        for name in seal.types:
            one, two = getattr(once, name), getattr(again, name)
            assert one.tobytes() == two.tobytes()
            assert (one.dtype, one.shape) == (np.dtype(seal.types[name]), two.shape)
            with pytest.raises(ValueError, match="read-only"):
                one[...] = 0


def test_smallest_probabilities_are_raised():
    seal = LeafSeal.make([[1.0]], [[0, 1]], [[0.0, 1.000001]], [[[0.0, 1.0]]]).frozen((0, 1))
    assert seal.reference.tolist() == [[1e-6, 1.0]]
    assert seal.alternatives.tolist() == [[[1e-6, 1.0]]]


def test_some_triggers_alone():
    part = take_triggers(SPLITS, [5, 2]).frozen(CLASSES)
    np.testing.assert_array_equal(part.values, SPLITS.values[[5, 2]])
    assert len(part.columns[0]) == 2
    rows, whole = join_columns(part.rows()), join_columns(SPLITS.rows())
    np.testing.assert_array_equal(rows[:3], whole[15:18])


def test_texts_that_are_all_missing_in_one_seal_are_texts_there():
    leaves = LeafSeal.make([[1.0, None], [2.0, None]], [[0, 1]] * 2, [[0.5, 0.5]] * 2)
    splits = SplitSeal.make([[0.0, "a"]], [0], [[0, 1, 2]], [[[0.5, 0.5]] * 2])
    for both in ((leaves, splits), (splits, leaves)):
        assert [s.columns[1] for s in agree_on_missing(*both)] in (
            [(None, None), ("a",)],
            [("a",), (None, None)],
        )
    assert agree_on_missing(leaves, None)[0].columns[1].dtype == float
    assert agree_on_missing(None, None) == []


@pytest.mark.parametrize(
    "bad", [(1,), (), (1, 2, 1), (1, "2"), 7, (1.0, np.nan), (None, None), ([1], [2]), "ab", None]
)
def test_what_is_no_list_of_classes_is_refused(bad):
    with pytest.raises(InputError) as caught:
        check_classes(bad)
    assert caught.value.code == "field.classes"


def test_classes_keep_their_type():
    found = check_classes(np.array([3, 5], np.int8))
    assert found == (3, 5)
    assert [type(label) for label in found] == [int, int]
    assert check_classes([False, True]) == (False, True)
