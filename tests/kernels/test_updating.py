import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.kernels.making import SHIFT, make_binned, make_rule
from timbermark.kernels.layout import TOUCH, Fit
from timbermark.kernels.updating import find_moved, list_touches


def make_fit(grad, hess, count):
    binned = make_binned(np.zeros((len(count), 1)), [1], [1], count)
    return Fit(binned, grad, hess, make_rule())


@given(st.integers(0, 6), st.integers(0, 3), st.data())
def test_added_rows_enter_and_moved_rows_change(n_old, n_added, data):
    n = n_old + n_added

    def numbers(low, high, size):
        drawn = data.draw(st.lists(st.integers(low, high), min_size=size, max_size=size))
        return np.array(drawn, np.int32)

    moved = numbers(0, 1, n_old).astype(np.bool_)
    grad, hess, count = numbers(-9, 9, n), numbers(0, 9, n), numbers(1, 3, n)
    old_grad, old_hess = numbers(-9, 9, n_old), numbers(0, 9, n_old)
    out = np.zeros(n, TOUCH)
    found = list_touches(make_fit(grad, hess, count), moved, old_grad, old_hess, out)
    expected = {
        row: (int(grad[row]), (int(hess[row]) << SHIFT) + int(count[row]))
        for row in range(n_old, n)
    }
    for row in range(n_old):
        g, h = int(grad[row] - old_grad[row]), int(hess[row] - old_hess[row])
        if moved[row] and (g, h) != (0, 0):
            # It was counted before.
            expected[row] = (g, h << SHIFT)
    assert found == len(expected)
    touches = out[:found]
    assert {int(t["row"]): (int(t["g"]), int(t["packed"])) for t in touches} == expected


def test_where_nothing_is_compared_only_added_rows_touch():
    out = np.zeros(3, TOUCH)
    none = np.zeros(0, np.int32)
    ones = np.ones(3, np.int32)
    assert list_touches(make_fit(ones, ones, ones), np.ones(2, np.bool_), none, none, out) == 1
    assert out[0]["row"] == 2


def test_rows_move_by_more_than_the_tolerance_in_any_output():
    before = np.array([[0.0, 0.0, 0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 1.0, 9.0]])
    after = np.array([[0.0, 0.5, 0.6, 1.0, 9.0], [0.0, 0.0, 0.0, 0.2, 9.0]])
    for tolerance, expected in (
        (0.5, [False, False, True, True, True]),
        (0.0, [False, True, True, True, True]),
        (1.0, [False, False, False, False, True]),
    ):
        out = np.zeros(5, np.bool_)
        find_moved(before, after, tolerance, 0, 5, out)
        assert out.tolist() == expected


def test_only_a_threads_own_rows_are_marked():
    out = np.ones(4, np.bool_)
    find_moved(np.zeros((1, 4)), np.zeros((1, 4)), 0.0, 1, 3, out)
    assert out.tolist() == [True, False, False, True]
