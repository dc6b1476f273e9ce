import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from timbermark.kernels.gradients import (
    derive_gradients,
    exp_nonpositive,
    logistic_gradients,
    softmax_gradients,
    weighted,
)
from timbermark.kernels.layout import Loss

UNIT = np.float32(2**20)
margins_of = st.floats(-30, 30) | st.sampled_from([0.0, -800.0, 800.0, 1e6, 1e-9])


def test_exponential():
    for x in np.concatenate([np.linspace(-87, 0, 1500), -np.logspace(-9, 1, 200)]):
        x = np.float32(x)
        found = exp_nonpositive(x)
        assert np.float32(found) == found
        assert abs(float(found) / math.exp(float(x)) - 1) < 3e-7


def test_exponential_at_its_ends():
    assert exp_nonpositive(np.float32(0.0)) == 1.0
    assert 0 < exp_nonpositive(np.float32(-1e30)) < 2e-38
    assert exp_nonpositive(np.float32(-87.0)) == exp_nonpositive(np.float32(-88.0))


@given(st.lists(st.floats(-87, 0, width=32), min_size=2, max_size=10))
def test_exponential_rises(values):
    ordered = [float(exp_nonpositive(np.float32(x))) for x in sorted(values)]
    # Up to its rounding.
    assert all(a <= b * (1 + 3e-7) for a, b in itertools.pairwise(ordered))
    assert ordered[-1] <= 1.0


def derive(margins, label, weight, unit=UNIT, part=None):
    start, stop = part or (0, len(label))
    grad, hess = np.full(margins.shape, -7, np.int32), np.full(margins.shape, -7, np.int32)
    label, weight = np.array(label, np.int32), np.array(weight, np.float32)
    loss = Loss(label, np.empty(0), weight, unit, 1.0, 0.0)
    derive_gradients(margins, loss, start, stop, grad, hess)
    return grad, hess


def exact(margins, label, weight, unit=UNIT):
    """The same in float64, not rounded."""
    with np.errstate(over="ignore"):
        if len(margins) == 1:
            p = 1 / (1 + np.exp(-margins))
            y = np.array(label)[None, :]
        else:
            e = np.exp(margins - margins.max(axis=0))
            p = e / e.sum(axis=0)
            y = np.array(label) == np.arange(len(margins))[:, None]
    scale = np.array(weight, np.float64) * float(unit)
    return (y - p) * scale, p * (1 - p) * scale


def assert_close(margins, label, weight, unit=UNIT):
    found, expected = derive(margins, label, weight, unit), exact(margins, label, weight, unit)
    # A gradient is rounded and then weighted, which makes the error as heavy as the row.
    allowed = 1.5 * np.maximum(1.0, weight)
    for a, b in zip(found, expected, strict=True):
        assert (np.abs(a - b) <= allowed).all()
    assert (found[1] >= 0).all()


@st.composite
def rows(draw, n_classes, weights):
    n = draw(st.integers(1, 6))
    outputs = 1 if n_classes == 2 else n_classes
    flat = draw(st.lists(margins_of, min_size=n * outputs, max_size=n * outputs))
    label = draw(st.lists(st.integers(0, n_classes - 1), min_size=n, max_size=n))
    weight = draw(st.lists(weights, min_size=n, max_size=n))
    return np.array(flat).reshape(outputs, n), label, weight


fractions = st.sampled_from([0.001, 0.25, 0.5, 1.0, 1.5, 2.0, 3.3])


@pytest.mark.parametrize("n_classes", [2, 3, 4, 7])
@given(data=st.data())
def test_gradients_are_those_of_the_loss(n_classes, data):
    margins, label, weight = data.draw(rows(n_classes, fractions))
    assert_close(margins, label, weight)
    assert_close(margins, label, weight, np.float32(2**8))


@pytest.mark.parametrize("n_outputs", [1, 3])
def test_more_rows_than_a_block(n_outputs):
    rng = np.random.default_rng(n_outputs)
    n = 270
    margins = rng.normal(scale=3, size=(n_outputs, n))
    label = rng.integers(0, max(n_outputs, 2), n)
    weight = rng.choice([0.5, 1.0, 2.0], n)
    assert_close(margins, label, weight)
    whole = derive(margins, label, weight)
    # In parts, as threads do it, nothing else is written and nothing else comes out.
    for start, stop in ((0, 5), (5, 140), (140, n), (7, 7)):
        parts = derive(margins, label, weight, part=(start, stop))
        for part, all_rows in zip(parts, whole, strict=True):
            np.testing.assert_array_equal(part[:, start:stop], all_rows[:, start:stop])
            assert (part[:, :start] == -7).all()
            assert (part[:, stop:] == -7).all()


@pytest.mark.parametrize("n_classes", [2, 3, 5])
@given(data=st.data())
def test_a_whole_weight_is_as_many_copies(n_classes, data):
    margins, label, weight = data.draw(rows(n_classes, st.integers(1, 8)))
    heavy, light = derive(margins, label, weight), derive(margins, label, [1] * len(label))
    for a, b in zip(heavy, light, strict=True):
        np.testing.assert_array_equal(a, b * np.array(weight))


@given(data=st.data())
def test_gradients_of_all_classes_add_up_to_nothing(data):
    margins, label, weight = data.draw(rows(4, st.just(1.0)))
    grad, _ = derive(margins, label, weight)
    assert (np.abs(grad.sum(axis=0)) <= 4).all()


def test_at_the_start_all_classes_are_alike():
    grad, hess = derive(np.zeros((4, 2)), [0, 3], [1.0, 1.0])
    quarter = 2**18
    assert grad.T.tolist() == [[3 * quarter, *[-quarter] * 3], [*[-quarter] * 3, 3 * quarter]]
    assert (hess == 3 * 2**16).all()
    grad, hess = derive(np.zeros((1, 2)), [0, 1], [1.0, 2.0])
    assert grad.tolist() == [[-(2**19), 2**20]]
    assert hess.tolist() == [[2**18, 2**19]]


def test_confident_rows_have_nothing_to_add():
    for margins, right, wrong in (
        (np.array([[800.0]]), 1, 0),
        (np.array([[-800.0]]), 0, 1),
        (np.array([[0.0], [-800.0], [800.0]]), 2, 0),
    ):
        grad, hess = derive(margins, [right], [1.0])
        assert not grad.any()
        assert not hess.any()
        grad, _ = derive(margins, [wrong], [1.0])
        assert np.abs(grad).max() == UNIT


def test_one_output_means_two_classes():
    one, three = np.array([[0.3, -2.0]]), np.array([[0.3, -2.0], [0.1, 0.0], [1.0, 5.0]])
    for margins, kernel in ((one, logistic_gradients), (three, softmax_gradients)):
        by_name = np.empty(margins.shape, np.int32), np.empty(margins.shape, np.int32)
        label, weight = np.array([1, 0], np.int32), np.array([1.0, 2.5], np.float32)
        kernel(margins, label, weight, UNIT, 0, 2, *by_name)
        for a, b in zip(derive(margins, label, weight), by_name, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    ("value", "weight", "expected"),
    [(0.4, 1.0, 0), (0.5, 1.0, 1), (2.6, 3.0, 9), (3.0, 0.5, 2), (3.0, 0.25, 1), (0.0, 5.0, 0)],
)
def test_values_are_rounded_before_they_are_weighted(value, weight, expected):
    assert weighted(np.float32(value), np.float32(weight)) == expected


def derive_residuals(margin, target, weight, bits, top, room=True):
    n = len(target)
    loss = Loss(
        np.empty(0, np.int32), np.array(target), np.array(weight, np.float32), UNIT, 2.0**bits,
        2.0**top,
    )  # fmt: skip
    grad, hess = np.full((1, n), -7, np.int32), np.full((1, n if room else 0), -7, np.int32)
    derive_gradients(np.array(margin)[None, :], loss, 0, n, grad, hess)
    return grad[0], hess[0] if room else hess


def naive_residual(margin, target, weight, bits, top):
    """Rounded, held within the limit, weighted, rounded again; halves go up."""

    def whole(x):
        return math.floor(x + Fraction(1, 2))

    units = whole(Fraction(target - margin) * Fraction(2) ** bits)
    return whole(min(max(units, -(2**top)), 2**top) * Fraction(np.float32(weight).item()))


numbers = st.integers(-(2**20), 2**20).map(lambda x: x / 64)


@given(st.lists(st.tuples(numbers, numbers, fractions), min_size=1, max_size=6), st.integers(-9, 9))
def test_gradients_of_numbers_are_rounded_residuals(rows, bits):
    margin, target, weight = zip(*rows, strict=True)
    grad, hess = derive_residuals(margin, target, weight, bits, 16)
    assert grad.tolist() == [naive_residual(*row, bits, 16) for row in rows]
    assert hess.tolist() == [weighted(UNIT, np.float32(w)) for w in weight]
    # Nobody asks for hessians that are all the same.
    alone, _ = derive_residuals(margin, target, weight, bits, 16, room=False)
    assert alone.tolist() == grad.tolist()


def test_numbers_of_a_whole_weight_are_as_many_copies():
    target = np.random.default_rng(0).normal(size=300)
    weight = np.arange(300) % 8 + 1
    light = derive_residuals(np.zeros(300), target, np.ones(300), 20, 24)
    heavy = derive_residuals(np.zeros(300), target, weight, 20, 24)
    for a, b in zip(heavy, light, strict=True):
        np.testing.assert_array_equal(a, b * weight)
