import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.boosting.naive import naive_mix
from timbermark.kernels.hashing import hash_rows, mix, mix_cells

words = st.integers(0, 2**64 - 1)


def mixed(key, counter):
    return int(mix(np.uint64(key), np.uint64(counter)))


# SplitMix64 as published; the files of models that can be updated depend on it.
@pytest.mark.parametrize(
    ("key", "numbers"),
    [
        (0, [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]),
        (1234567, [6457827717110365317, 3203168211198807973, 9817491932198370423]),
    ],
)
def test_vectors(key, numbers):
    assert [mixed(key, i) for i in range(3)] == numbers


@given(words, words)
def test_it_wraps_as_64_bits_do(key, counter):
    assert mixed(key, counter) == naive_mix(key, counter)


def test_bits_are_balanced_and_independent_of_their_neighbours():
    numbers = np.array([mixed(42, i) for i in range(2000)], np.uint64)
    assert len(set(numbers.tolist())) == 2000
    bits = (numbers[:, None] >> np.arange(64, dtype=np.uint64)) & np.uint64(1)
    # Five standard deviations.
    assert np.abs(bits.mean(axis=0) - 0.5).max() < 0.056
    flips = bits[1:] ^ bits[:-1]
    assert np.abs(flips.mean(axis=0) - 0.5).max() < 0.056


def test_neighbouring_keys_give_unlike_numbers():
    changed = [(mixed(key, 0) ^ mixed(key + 1, 0)).bit_count() for key in range(500)]
    assert 31 < np.mean(changed) < 33
    assert min(changed) > 12


@given(st.integers(0, 4), st.integers(0, 4), words, st.data())
def test_a_row_is_hashed_value_after_value(n, d, seed, data):
    drawn = data.draw(st.lists(words, min_size=n * d, max_size=n * d))
    bits = np.array(drawn, np.uint64).reshape(n, d)
    out = np.empty(n, np.uint64)
    hash_rows(bits, np.uint64(seed), out)
    for row, found in zip(bits.tolist(), out.tolist(), strict=True):
        key = seed
        for place, word in enumerate(row):
            key = naive_mix(key ^ word, place)
        assert found == key


def test_rows_that_differ_in_a_bit_or_in_order_have_unlike_hashes():
    rng = np.random.default_rng(0)
    row = rng.integers(0, 2**63, 5).astype(np.uint64)
    flipped = np.array([row ^ (np.uint64(1) << np.uint64(b)) * (np.arange(5) == b % 5)
                        for b in range(64)])  # fmt: skip
    rows = np.vstack([row, row[::-1], np.roll(row, 1), flipped])
    out = np.empty(len(rows), np.uint64)
    hash_rows(rows, np.uint64(7), out)
    assert len(np.unique(out)) == len(rows)
    distances = [int(out[0] ^ other).bit_count() for other in out[1:]]
    assert min(distances) > 12
    assert 28 < np.mean(distances) < 36


@given(st.integers(0, 2**32), st.integers(1, 6), st.integers(1, 4))
def test_mixtures_take_what_the_naive_twin_takes(seed, d, n_seconds):
    rng = np.random.default_rng(seed)
    X, seconds = (rng.integers(0, 3, (n, d)).astype(float) for n in (7, n_seconds))
    X[0, 0] = np.nan
    keys = rng.integers(0, 2**63, 7).astype(np.uint64)
    shares = np.array([2**62, 2**63], np.uint64)
    mixed, differs = np.empty(X.shape), np.empty(7, np.bool_)
    mix_cells(X, keys, seconds, shares, mixed, differs)
    for i, key in enumerate(keys.tolist()):
        second = seconds[naive_mix(key, 0) % n_seconds]
        share = int(shares[naive_mix(key, 1) % 2])
        taken = np.array([naive_mix(key, j + 2) < share for j in range(d)])
        expected = np.where(taken, second, X[i])
        np.testing.assert_array_equal(mixed[i], expected)
        assert differs[i] == (not np.array_equal(expected, X[i], equal_nan=True))
