"""The operations that Numba cannot say by itself, called from a kernel as they must be."""

import numpy as np
import pytest
from numba import njit

from timbermark.kernels.compile import (
    add_pair,
    add_shared,
    bits_to_float,
    float_to_bits,
    load_shared,
    wrapping,
    yield_core,
)


@njit
def call_add_pair(out, index, first, second):
    add_pair(out, index, first, second)


@njit
def call_shared(array, index, amount):
    yield_core()
    before = add_shared(array, index, amount)
    return before, load_shared(array, index)


@njit
def call_bits(value):
    bits = float_to_bits(value)
    return bits, bits_to_float(bits)


def test_a_pair_is_added_in_place():
    out = np.array([1, 2, 3, 4, 5], np.int64)
    call_add_pair(out, np.uint64(1), np.int64(-10), np.int64(2**40))
    assert out.tolist() == [1, -8, 3 + 2**40, 4, 5]


def test_shared_numbers():
    array = np.array([7, 0], np.int64)
    assert call_shared(array, 0, 5) == (7, 12)
    assert call_shared(array, 0, -20) == (12, -8)
    assert array.tolist() == [-8, 0]


@pytest.mark.parametrize("value", [0.0, -0.0, 1.0, -1.5, 2.0**-126, 3.4e38, np.inf])
def test_bits_of_floats(value):
    value = np.float32(value)
    bits, back = call_bits(value)
    assert bits == value.view(np.int32)
    assert np.float32(back).tobytes() == value.tobytes()


def test_wrapping_is_silent():
    @njit
    @wrapping
    def wrap(a, b):
        return a * b

    assert wrap(np.uint64(2**63), np.uint64(3)) == np.uint64(2**63)
