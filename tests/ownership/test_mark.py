"""What a mark is made of, what it derives, and what is no mark."""

import copy
import pickle
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from tests.ownership.making import (
    KEY,
    make_both,
    make_leaves,
    make_mark,
    make_mixed_mark,
    make_number_mark,
    make_splits,
    marks,
)
from timbermark.errors import InputError
from timbermark.ownership import LeafSeal, Mark, OwnerKey, SplitSeal
from timbermark.ownership.columns import split_columns

MARK = make_both()
SPLITS = MARK.splits


def test_making():
    made = Mark.make(
        KEY,
        owner="Ann",
        model_digest="0" * 64,
        classes=np.array(["a", "b"]),
        triggers=[[1, 2], [3, 4]],
        alphabets=[[0, 1], [1, 0]],
        reference=[[0.5, 0.5], [0.0, 1.0]],
        splits=SplitSeal.make([[0, 5]], [1], [[6, 7, 9]], [[[0.5, 0.5], [0.2, 0.8]]]),
        feature_names=np.array(["x", "y"]),
        about={"strategy": "random"},
    )
    assert made.made_with(KEY)
    assert not made.made_with(OwnerKey.generate())
    assert made.secret == KEY.mark_secret(made.mark_id)
    assert made.claim_key == KEY.claim_key
    assert made.classes == ("a", "b")
    assert made.feature_names == ("x", "y")
    assert (made.n_leaves, made.n_splits, made.n_triggers, made.n_rows) == (2, 1, 3, 5)
    assert (made.n_features, made.q) == (2, 2)
    assert made.rows().tolist() == [[1, 2], [3, 4], [0, 6], [0, 7], [0, 9]]
    assert made.leaves.reference.tolist() == [[0.5, 0.5], [1e-6, 1.0]]
    assert (made.protocol, made.answers, made.draws) == (3, "classes", 1)
    again = replace(made)
    assert again == made
    other = Mark.make(
        KEY, owner="Ann", model_digest="0" * 64, classes=made.classes, splits=made.splits
    )
    assert other.mark_id != made.mark_id
    assert other.secret != made.secret
    assert (other.leaves, other.n_leaves, other.n_rows) == (None, 0, 3)


def test_a_mark_of_numbers_has_splits_alone():
    mark = make_number_mark(10)
    assert (mark.classes, mark.answers, mark.n_rows) == ((), "numbers", 30)
    assert mark.expected == ()
    assert mark.expected_numbers.shape == (0,)
    assert mark.splits.reference.shape == (10, 2, 1)


def test_other_draws_are_other_symbols():
    again = MARK.with_draws(2)
    assert (again.draws, again.mark_id, again.secret) == (2, MARK.mark_id, MARK.secret)
    assert np.mean(again.symbols == MARK.symbols) < 0.7
    assert again.with_draws(1) == MARK


def test_rows_with_texts():
    mark = make_mixed_mark(24, 10)
    assert mark.has_texts
    assert not MARK.has_texts
    rows = mark.rows()
    assert (rows.dtype, rows.shape) == (object, (54, 3))
    assert rows[0, 1] == "red"
    assert rows[3, 1] is None
    assert rows[24:27, 1].tolist() == ["red"] * 3
    assert type(rows[0, 0]) is float
    assert mark.kinds == ("numbers", "texts", "numbers")
    assert MARK.rows().dtype == np.float64
    assert len(MARK.rows()) == MARK.n_rows == 32 + 3 * 48


def test_expected_labels_are_those_of_the_alphabet():
    alphabets = MARK.leaves.alphabets
    assert list(MARK.expected) == [
        MARK.classes[alphabets[i, s]] for i, s in enumerate(MARK.leaf_symbols)
    ]
    assert MARK.expected_numbers.dtype == np.int32
    assert set(MARK.split_symbols.tolist()) == {0, 1}


def test_a_mark_cannot_be_changed():
    rows = np.column_stack(MARK.leaves.columns)
    reference = MARK.leaves.reference.copy()
    leaves = LeafSeal(tuple(rows.T), MARK.leaves.alphabets, reference, MARK.leaves.alternatives)
    mark = replace(MARK, leaves=leaves)
    rows[:] = 0
    reference[:] = 0
    assert mark == MARK
    arrays = [
        *(getattr(seal, name) for seal in mark.seals for name in seal.types),
        *(seal.columns[0] for seal in mark.seals),
        *(mark.columns[0], mark.symbols, mark.order_numbers),
    ]
    for array in arrays:
        if array.size:
            with pytest.raises(ValueError, match="read-only"):
                array[...] = 0
    with pytest.raises(TypeError):
        mark.about["x"] = 1
    with pytest.raises(AttributeError):
        mark.owner = "Eve"


def test_zeros_and_missing_values_have_one_form():
    odd = np.frombuffer(bytes.fromhex("010000000000f8ff"), "<f8")[0]
    made = [
        make_mark(2, columns=split_columns(np.array([[zero, nan, 1], [2, 2, 2]])))
        for zero, nan in ((0.0, np.nan), (-0.0, odd))
    ]
    assert made[0] == made[1]
    assert made[0].rows().tobytes() == made[1].rows().tobytes()
    assert list(made[0].symbols) == list(made[1].symbols)
    below = SplitSeal.make([[0.0]], [0], [[-0.0, 1, 2]], [[[0.5, 0.5]] * 2]).frozen((0, 1))
    assert not np.signbit(below.values).any()


BAD = {
    "protocol 2": ({"protocol": 2}, "field.protocol"),
    "protocol 4": ({"protocol": 4}, "field.protocol"),
    "protocol 3.0": ({"protocol": 3.0}, "field.protocol"),
    "protocol True": ({"protocol": True}, "field.protocol"),
    "short id": ({"mark_id": bytes(15)}, "field.mark_id"),
    "short key": ({"claim_key": bytes(31)}, "field.claim_key"),
    "short secret": ({"secret": bytes(31)}, "field.secret"),
    "no owner": ({"owner": " "}, "field.owner"),
    "long owner": ({"owner": "x" * 201}, "field.owner"),
    "owner not Unicode": ({"owner": "\ud800"}, "field.owner"),
    "an escape in the owner": ({"owner": "Ann\x1b[2J"}, "field.owner"),
    "no digest": ({"model_digest": "ab"}, "field.model_digest"),
    "few names": ({"feature_names": ("a", "b")}, "field.feature_names"),
    "same names": ({"feature_names": ("a", "b", "a")}, "field.feature_names"),
    "names no texts": ({"feature_names": (1, 2, 3)}, "field.feature_names"),
    "names one text": ({"feature_names": "abc"}, "field.feature_names"),
    "one class": ({"classes": (1,)}, "field.classes"),
    "classes of numbers": ({"answers": "numbers"}, "field.classes"),
    "fewer classes": ({"classes": (0, 1, 2, 3, 4)}, "leaves.alphabets"),
    "answers": ({"answers": "poems"}, "field.answers"),
    "no seals": ({"leaves": None, "splits": None}, "seals.none"),
    "other columns": ({"leaves": make_leaves(d=2)}, "seals.columns"),
    "texts in one": ({"splits": make_splits(3, rows=[[1.0, 2.0, "a"]] * 3)}, "seals.columns"),
    "leaves of numbers": ({"answers": "numbers", "classes": ()}, "leaves.numbers"),
    "too many": (
        {"leaves": make_leaves(16000), "splits": make_splits(385)},
        "seals.count",
    ),
    "no draws": ({"draws": 0}, "field.draws"),
    "half a draw": ({"draws": 1.5}, "field.draws"),
    "draws true": ({"draws": True}, "field.draws"),
    "local time": ({"created": "2030-01-02T03:04:05"}, "field.created"),
    "about no dictionary": ({"about": [1]}, "field.about"),
    "about not plain": ({"about": {"x": object()}}, "field.about"),
    "a large about": ({"about": {"x": "y" * (9 << 20)}}, "mark.size"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_no_mark_is_refused(case):
    change, code = BAD[case]
    with pytest.raises(InputError) as caught:
        replace(MARK, **change)
    assert caught.value.code == code
    assert MARK.secret.hex() not in str(caught.value)


def test_a_mark_is_not_pickled():
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        with pytest.raises(TypeError, match=r"Hint: .*mark\.save"):
            pickle.dumps(MARK, protocol)
    assert copy.copy(MARK) is MARK
    assert copy.deepcopy([MARK])[0] is MARK


@given(marks())
def test_nothing_secret_is_shown(mark):
    # One that is not to be found in other bytes by accident.
    mark = replace(mark, secret=KEY.mark_secret(mark.mark_id))
    len(mark.symbols)
    shown = f"{mark} {mark!r} {[mark]}"
    assert mark.secret.hex() not in shown
    assert repr(mark.secret)[2:-1] not in shown
    assert set(re.findall(r"(\w+)=", shown)) == {
        "mark_id", "owner", "created", "n_leaves", "n_splits",
    }  # fmt: skip


def test_equality_is_that_of_content():
    assert make_both() == MARK
    assert make_both(seed=1) != MARK
    assert replace(MARK, splits=None) != MARK
    assert MARK != "mark"


def test_what_a_mark_is_worth_at_most():
    assert make_mark(k=96, q=4).full_bits == 192
    assert make_mark(k=96, q=2, draws=8).full_bits == 93
    assert make_both(32, 48).full_bits == pytest.approx(64 + 48 - np.log2(3))
    assert make_number_mark(80, draws=4).full_bits == 78
    assert [(price.code, price.bits) for price in make_mark(draws=4).prices] == [("draws", 2.0)]
    assert MARK.prices == ()
