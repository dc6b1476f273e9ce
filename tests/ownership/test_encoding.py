import math
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given

from tests.ownership.making import plain
from timbermark.errors import InputError
from timbermark.ownership.encoding import (
    check_bytes,
    check_count,
    check_digest,
    check_name,
    check_time,
    encode,
    freeze,
    from_hex,
    thaw,
)


def same(a, b):
    """Equal in type too, and in the sign of zero."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, float) and isinstance(b, float):
        return a == b and math.copysign(1, a) == math.copysign(1, b)
    return type(a) is type(b) and a == b


@given(plain)
def test_thawing_gives_back_what_was_frozen(value):
    assert same(thaw(freeze(value, "it")), value)


@given(plain, plain)
def test_different_values_have_different_bytes(a, b):
    assert (encode(a) == encode(b)) == same(a, b)


@given(plain)
def test_frozen_values_have_the_same_bytes(value):
    assert encode(freeze(value, "it")) == encode(value)


def test_the_order_of_keys_does_not_matter():
    assert encode({"a": 1, "é": 2, "b": 3}) == encode({"é": 2, "b": 3, "a": 1})


def test_types_are_told_apart():
    assert len({encode(x) for x in (1, 1.0, True, "1", b"1", [1], None, 0.0, -0.0)}) == 9


def test_a_later_change_of_the_original_does_not_reach_it():
    original = {"a": [1, 2]}
    frozen = freeze(original, "it")
    original["a"].append(3)
    assert thaw(frozen) == {"a": [1, 2]}
    with pytest.raises(TypeError):
        frozen["b"] = 1


def deep(levels):
    value = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value",
    [
        np.nan,
        math.inf,
        2**64,
        -(2**63) - 1,
        "\ud800",
        b"x",
        {1: 2},
        {"\ud800": 1},
        {1},
        np.arange(3),
        SimpleNamespace(),
        deep(100),
        np.datetime64("2030-01-01"),
    ],
)
def test_what_is_not_plain_is_refused(value):
    with pytest.raises(InputError) as caught:
        freeze({"x": value}, "about")
    assert caught.value.code == "field.about"
    assert caught.value.hint


def test_numpy_scalars_become_python_ones():
    frozen = freeze([np.int8(3), np.float32(0.5), np.bool_(True), np.str_("x")], "it")
    assert [type(x) for x in frozen] == [int, float, bool, str]


def test_other_types_cannot_be_encoded():
    with pytest.raises(TypeError, match="set is not plain"):
        encode({1})


BAD_FIELDS = [
    (check_bytes, ("x", b"12", 3)),
    (check_bytes, ("x", "123", 3)),
    (check_name, ("", "x")),
    (check_name, (" ", "x")),
    (check_name, ("a" * 201, "x")),
    (check_name, ("a\nb", "x")),
    (check_name, ("\ud800", "x")),
    (check_name, (7, "x")),
    (check_digest, ("x", "ab")),
    (check_digest, ("x", "AB" * 32)),
    (check_digest, ("x", None)),
    (check_time, ("x", "2030-02-30T00:00:00Z")),
    (check_time, ("x", "2030-02-03T00:00:00")),
    (check_time, ("x", "2030-2-3T00:00:00Z")),
    (check_time, ("x", None)),
    (check_count, ("x", 0, 1, 8)),
    (check_count, ("x", 9, 1, 8)),
    (check_count, ("x", True, 1, 8)),
    (check_count, ("x", 1.0, 1, 8)),
    (from_hex, ("x", "0g")),
    (from_hex, ("x", "0")),
    (from_hex, ("x", "AA")),
    (from_hex, ("x", 7)),
    (from_hex, ("x", "00", 2)),
]


@pytest.mark.parametrize(("check", "arguments"), BAD_FIELDS)
def test_fields_that_are_none_are_named(check, arguments):
    with pytest.raises(InputError) as caught:
        check(*arguments)
    assert caught.value.code == "field.x"
    assert "\n" not in str(caught.value)


def test_fields_that_are_sound_pass():
    check_bytes("x", b"123", 3)
    check_name("Ann Ltd 木", "x")
    check_digest("x", "ab" * 32)
    check_time("x", "2030-12-31T23:59:59Z")
    assert check_count("x", np.int64(8), 1, 8) == 8
    assert type(check_count("x", np.int64(8), 1, 8)) is int
    assert from_hex("x", "00ff", 2) == b"\x00\xff"
