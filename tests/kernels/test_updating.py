from collections import namedtuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kernels.making import SHIFT, make_binned
from timbermark.boosting.updating import make_pending
from timbermark.kernels.gradients import derive_gradients
from timbermark.kernels.layout import TOUCH, Block, Loss, Source
from timbermark.kernels.regrowing import ask_gradients
from timbermark.kernels.updating import advance_rows, find_moved, first_from, list_touches

# What list_touches reads of a Renewal; compiled code takes any named tuple.
Touching = namedtuple(
    "Touching",
    "binned watched past_count past_grad past_hess moved touching touch_grad touch_hess",
)
# Likewise of a Walk and a Renewal.
Asking = namedtuple("Asking", "block grad hess")
Advancing = namedtuple("Advancing", "margins pending loss grad hess")


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


def some_loss(rng, n_classes, n):
    label = rng.integers(0, n_classes, n).astype(np.int32) if n_classes else np.zeros(0, np.int32)
    target = np.zeros(0) if n_classes else rng.normal(size=n)
    weight = rng.choice([0.0, 0.5, 1.0, 3.0], n).astype(np.float32)
    return Loss(label, target, weight, np.float32(2**16), 2.0**16, 2.0**20)


def some_pending(rng, window, outputs, n, n_added):
    """What trees of three leaves give to rows, the leaves of the old trees, and it all added up."""
    pending = make_pending(window, outputs, 3, n, n_added)
    pending.values[:] = rng.normal(size=pending.values.shape)
    pending.leaf[:] = rng.integers(0, 5, pending.leaf.shape)
    pending.is_regrown[:] = rng.integers(0, 2, pending.is_regrown.shape)
    old = rng.integers(0, 5, pending.leaf.shape).astype(pending.leaf.dtype)
    leaf = np.where(pending.is_regrown[:, :, None], pending.leaf, old)
    gives = np.take_along_axis(pending.values, leaf.astype(np.int64), axis=2)
    return pending, old.reshape(window * outputs, n), gives


@pytest.mark.parametrize("window", [0, 1, 2])
@pytest.mark.parametrize("n_classes", [0, 2, 4])
def test_gradients_that_are_asked_for_are_those_derived_ahead(n_classes, window):
    rng = np.random.default_rng(n_classes)
    n, n_added, outputs, room = 50, 3, max(1, n_classes if n_classes > 2 else 1), 8
    margins = rng.normal(size=(outputs, n + n_added)) * 3
    loss = some_loss(rng, n_classes, n + n_added)
    pending, leaf, gives = some_pending(rng, window, outputs, n, n_added)
    now = margins.copy()
    for gift in gives:
        now[:, :n] += gift
    shape = outputs, n + n_added
    grad, hess = np.zeros(shape, np.int32), np.zeros(shape, np.int32)
    derive_gradients(now, loss, 0, n + n_added, grad, hess)
    block = Block(
        np.zeros((outputs, room)), np.zeros(room if n_classes else 0, np.int32),
        np.zeros(0 if n_classes else room), np.zeros(room, np.float32),
        np.zeros((outputs, room), np.int32), np.zeros((outputs, room), np.int32),
    )  # fmt: skip
    rows = rng.permutation(n + n_added).astype(np.uint32)
    for output in range(outputs):
        walk = Asking(block, np.full(shape[1], -1, np.int32), np.zeros(shape[1], np.int32))
        source = Source(margins, pending, window, leaf, loss, output, False)
        ask_gradients(rows, 2, 21, source, walk)
        asked = rows[2:21]
        np.testing.assert_array_equal(walk.grad[asked], grad[output, asked])
        np.testing.assert_array_equal(walk.hess[asked], hess[output, asked])
        assert (np.delete(walk.grad, asked) == -1).all()
    assert (grad[:, loss.weight == 0] == 0).all()
    assert (hess[:, loss.weight == 0] == 0).all()


@pytest.mark.parametrize("window", [1, 2, 3])
@pytest.mark.parametrize("is_ahead", [False, True])
def test_rows_are_brought_up_to_date_tree_by_tree(window, is_ahead):
    """The margins, in the order of the trees to the last bit, and the gradients."""
    rng = np.random.default_rng(window)
    n, n_added, outputs = 2100, 3, 3
    margins = rng.normal(size=(outputs, n + n_added))
    loss = some_loss(rng, outputs, n + n_added)
    pending, leaf, gives = some_pending(rng, window, outputs, n, n_added)
    expected = margins.copy()
    for gift in gives:
        expected[:, 7:n] += gift[:, 7:]
    shape = outputs, n + n_added if is_ahead else 0
    grad, hess = np.zeros(shape, np.int32), np.zeros(shape, np.int32)
    renewal = Advancing(margins, pending, loss, grad, hess)
    advance_rows(renewal, leaf, window, 7, n + n_added)
    np.testing.assert_array_equal(margins, expected)
    if is_ahead:
        wanted = np.zeros(shape, np.int32), np.zeros(shape, np.int32)
        derive_gradients(expected, loss, 7, n + n_added, *wanted)
        np.testing.assert_array_equal(grad, wanted[0])
        np.testing.assert_array_equal(hess, wanted[1])


@given(st.lists(st.integers(0, 20), unique=True), st.integers(-1, 22))
def test_the_first_row_from_some_row_on(rows, least):
    rows = np.array(sorted(rows), np.int64)
    assert first_from(rows, least) == np.searchsorted(rows, least)
