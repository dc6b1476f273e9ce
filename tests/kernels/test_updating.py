from collections import namedtuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kernels.making import SHIFT, make_binned
from timbermark.kernels.gradients import derive_gradients
from timbermark.kernels.layout import TOUCH, Block, Loss
from timbermark.kernels.renewing import derive_block
from timbermark.kernels.updating import find_moved, list_touches

# What list_touches reads of a Renewal; compiled code takes any named tuple.
Touching = namedtuple(
    "Touching",
    "binned watched past_count past_grad past_hess moved touching touch_grad touch_hess",
)


@given(st.integers(0, 6), st.integers(0, 3), st.data())
def test_added_rows_enter_forgotten_rows_leave_and_moved_rows_change(n_old, n_added, data):
    n = n_old + n_added

    def numbers(low, high, size):
        drawn = data.draw(st.lists(st.integers(low, high), min_size=size, max_size=size))
        return np.array(drawn, np.int32)

    some = data.draw(st.sets(st.sampled_from(range(n_old)))) if n_old else set()
    watched = np.array(sorted(some), np.int64)
    w = len(watched)
    moved = numbers(0, 1, w).astype(np.bool_)
    grad, hess = numbers(-9, 9, w + n_added), numbers(0, 9, w + n_added)
    was_grad, was_hess, was_count = numbers(-9, 9, w), numbers(0, 9, w), numbers(1, 3, w)
    count = numbers(1, 3, n)
    gone = numbers(0, 1, w).astype(np.bool_)
    for j, row in enumerate(watched):
        count[row] = 0 if gone[j] else was_count[j]
    renewal = Touching(
        make_binned(np.zeros((n, 1)), [1], [1], count), watched, was_count, was_grad[None],
        was_hess[None], moved, np.concatenate([watched, np.arange(n_old, n)]), grad[None],
        hess[None],
    )  # fmt: skip
    out = np.zeros(w + n_added, TOUCH)
    found = list_touches(renewal, 0, out)
    expected = {
        n_old + i: (int(grad[w + i]), (int(hess[w + i]) << SHIFT) + int(count[n_old + i]))
        for i in range(n_added)
    }
    for j, row in enumerate(watched.tolist()):
        g, h = int(grad[j] - was_grad[j]), int(hess[j] - was_hess[j])
        c = int(count[row] - was_count[j])
        if (moved[j] or gone[j]) and (g, h, c) != (0, 0, 0):
            expected[row] = (g, (h << SHIFT) + c)
    assert found == len(expected)
    touches = out[:found]
    assert {int(t["row"]): (int(t["g"]), int(t["packed"])) for t in touches} == expected


def test_rows_move_by_more_than_the_tolerance_in_any_output():
    before = np.array([[0.0, 0.0, 0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 1.0, 9.0]])
    after = np.array([[9.0, 0.0, 0.5, 0.6, 1.0, 9.0], [9.0, 0.0, 0.0, 0.0, 0.2, 9.0]])
    watched = np.arange(1, 6)
    for tolerance, expected in (
        (0.5, [False, False, True, True, True]),
        (0.0, [False, True, True, True, True]),
        (1.0, [False, False, False, False, True]),
    ):
        out = np.zeros(5, np.bool_)
        find_moved(before, watched, after, tolerance, 0, 5, out)
        assert out.tolist() == expected


def test_only_a_threads_own_rows_are_marked():
    out = np.ones(4, np.bool_)
    find_moved(np.zeros((1, 4)), np.arange(4), np.zeros((1, 4)), 0.0, 1, 3, out)
    assert out.tolist() == [True, False, False, True]


@pytest.mark.parametrize("n_classes", [0, 2, 4])
def test_gradients_that_are_asked_for_are_those_derived_ahead(n_classes):
    rng = np.random.default_rng(n_classes)
    n, outputs, room = 50, max(1, n_classes if n_classes > 2 else 1), 8
    margins = rng.normal(size=(outputs, n)) * 3
    label = rng.integers(0, n_classes, n).astype(np.int32) if n_classes else np.zeros(0, np.int32)
    target = np.zeros(0) if n_classes else rng.normal(size=n)
    weight = rng.choice([0.0, 0.5, 1.0, 3.0], n).astype(np.float32)
    loss = Loss(label, target, weight, np.float32(2**16), 2.0**16, 2.0**20)
    grad, hess = np.zeros((outputs, n), np.int32), np.zeros((outputs, n), np.int32)
    derive_gradients(margins, loss, 0, n, grad, hess)
    block = Block(
        np.zeros((outputs, room)), np.zeros(room if n_classes else 0, np.int32),
        np.zeros(0 if n_classes else room), np.zeros(room, np.float32),
        np.zeros((outputs, room), np.int32), np.zeros((outputs, room), np.int32),
    )  # fmt: skip
    rows = rng.permutation(n).astype(np.uint32)
    for start, stop in ((0, 8), (8, 13), (49, 50)):
        derive_block(rows, start, stop, margins, loss, block)
        np.testing.assert_array_equal(block.grad[:, : stop - start], grad[:, rows[start:stop]])
        np.testing.assert_array_equal(block.hess[:, : stop - start], hess[:, rows[start:stop]])
    assert (grad[:, weight == 0] == 0).all()
    assert (hess[:, weight == 0] == 0).all()
