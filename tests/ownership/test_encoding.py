import math
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given

from tests.ownership.making import plain
from timbermark.errors import InputError
from timbermark.ownership.encoding import encode, freeze, thaw


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
    with pytest.raises(InputError, match="about") as caught:
        freeze({"x": value}, "about")
    assert caught.value.hint


def test_numpy_scalars_become_python_ones():
    frozen = freeze([np.int8(3), np.float32(0.5), np.bool_(True), np.str_("x")], "it")
    assert [type(x) for x in frozen] == [int, float, bool, str]


def test_other_types_cannot_be_encoded():
    with pytest.raises(TypeError, match="set is not plain"):
        encode({1})
