import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.kernels.making import SHIFT, make_binned, tinies
from timbermark.kernels.splitting import (
    fill_rows,
    subtract_histogram,
    unpack,
)


def filled(tiny, rows, start, stop):
    binned = tiny.binned
    out = np.zeros(2 * int((binned.n_thresholds + 2).sum()), np.int64)
    extra = np.zeros_like(out)
    rows = np.array(rows, np.uint32)
    fill_rows(binned, rows, start, stop, tiny.grad, tiny.hess, out, extra)
    assert not extra.any()
    return out


def naive_histogram(tiny, rows):
    binned = tiny.binned
    out = [0] * (2 * int((binned.n_thresholds + 2).sum()))
    for row in rows:
        for f, first in enumerate(binned.offsets.tolist()):
            slot = first + int(binned.codes[row, f])
            out[2 * slot] += int(tiny.grad[row])
            out[2 * slot + 1] += (int(tiny.hess[row]) << SHIFT) + int(binned.count[row])
    return out


@given(tinies(), st.data())
def test_sums_are_those_of_the_naive_histogram(tiny, data):
    rows = data.draw(st.permutations(range(tiny.n_rows)))
    start = data.draw(st.integers(0, tiny.n_rows))
    stop = data.draw(st.integers(start, tiny.n_rows))
    assert filled(tiny, rows, start, stop).tolist() == naive_histogram(tiny, rows[start:stop])


@given(tinies(dtype=np.uint16))
def test_wide_codes(tiny):
    rows = range(tiny.n_rows)
    assert filled(tiny, rows, 0, tiny.n_rows).tolist() == naive_histogram(tiny, rows)


@given(tinies(), st.data())
def test_what_is_taken_out_leaves_no_trace(tiny, data):
    n = tiny.n_rows
    cut = data.draw(st.integers(0, n))
    rows = data.draw(st.permutations(range(n)))
    whole = filled(tiny, rows, 0, n)
    subtract_histogram(whole, filled(tiny, rows, 0, cut))
    assert whole.tolist() == filled(tiny, rows, cut, n).tolist()


@given(tinies(), st.data())
def test_one_word_says_what_two_say(tiny, data):
    tiny = tiny.counted()
    rows = np.array(data.draw(st.permutations(range(tiny.n_rows))), np.uint32)
    start = data.draw(st.integers(0, tiny.n_rows))
    one = np.zeros(int((tiny.binned.n_thresholds + 2).sum()), np.int64)
    no_hess = tiny.hess[:0]
    extra = np.zeros_like(one)
    fill_rows(tiny.binned, rows, start, tiny.n_rows, tiny.grad, no_hess, one, extra)
    assert not extra.any()
    found = [x for word in one for x in unpack(word, word, tiny.binned)]
    assert found == naive_histogram(tiny, rows[start:])


def test_counts_do_not_spill_into_the_hessians():
    # 1023 rows are the most that fit below ten bits.
    n = 1023
    out = np.zeros(6, np.int64)
    binned = make_binned(np.zeros((n, 1)), [1], [1], np.ones(n))
    assert binned.shift == 10
    rows = np.arange(n, dtype=np.uint32)
    grad, hess = np.full(n, -(2**30), np.int32), np.full(n, 2**28, np.int32)
    fill_rows(binned, rows, 0, n, grad, hess, out, np.zeros_like(out))
    assert out.tolist() == [-n * 2**30, (n * 2**28 << 10) + n, 0, 0, 0, 0]
