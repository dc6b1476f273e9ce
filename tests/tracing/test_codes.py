import hashlib
import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from timbermark.tracing.codes import (
    BIASES,
    count_traceable,
    derive_biases,
    derive_customer_seed,
    derive_customer_symbols,
    group_bits,
    group_gains,
)


def draw(n_boundaries, n_customers, rng):
    biases = np.array(BIASES)[rng.integers(0, len(BIASES), n_boundaries)]
    return biases, (rng.integers(0, 256, (n_customers, n_boundaries)) < biases).astype(np.uint8)


def answers(shown):
    n = len(shown)
    rows = np.stack([np.zeros(n), shown, np.ones(n)], axis=1)
    return rows, np.tile([[[0.0], [1.0]]], (n, 1, 1))


def mix(symbols, way, rng):
    """What colluders show of their symbols [k, n]."""
    k, n = symbols.shape
    ones = symbols.sum(axis=0)
    if way == "average":
        return ones / k
    if way == "pick":
        return symbols[rng.integers(0, k, n), np.arange(n)].astype(float)
    most = (2 * ones > k).astype(float)
    shown = most if way == "majority" else np.where((ones == 0) | (ones == k), most, 1.0 - most)
    return np.where(2 * ones == k, rng.integers(0, 2, n), shown)


@given(
    shown=st.floats(-0.5, 1.5),
    bias=st.sampled_from(BIASES),
    size=st.integers(1, 3),
    ends=st.tuples(st.floats(-3, 3), st.floats(-3, 3)),
    kind=st.sampled_from(["numbers", "scores"]),
)
def test_every_model_of_colluders_is_an_e_value(shown, bias, size, ends, kind):
    if kind == "scores":
        p = 1.0 / (1.0 + np.exp(-np.array([ends[0], shown, ends[1]])))
        rows = np.stack([1.0 - p, p], axis=-1)[None]
        reference = rows[:, ::2]
    else:
        rows, reference = np.array([[ends[0], shown, ends[1]]]), np.array([[[0.0], [1.0]]])
    gains, weights = group_gains(rows, reference, np.array([bias]), kind, size)
    p = bias / 256.0
    chance = [math.comb(size, s) * p**s * (1 - p) ** (size - s) for s in range(size + 1)]
    assert weights.sum() == pytest.approx(1.0)
    # The mean over a customer's symbols is 1, whatever the answer.
    assert (np.exp(gains[:, 0]) @ chance) == pytest.approx(np.ones(len(gains)))


@pytest.mark.parametrize(
    ("n", "k", "way", "least"),
    [
        (300, 1, "pick", 150), (500, 2, "average", 120), (600, 2, "pick", 64),
        (600, 2, "majority", 64), (600, 2, "minority", 64), (500, 3, "average", 80),
        (1000, 3, "majority", 64),
    ],
)  # fmt: skip
def test_a_colluder_is_found_and_no_innocent(n, k, way, least):
    rng = np.random.default_rng(3)
    biases, symbols = draw(n, 40, rng)
    rows, reference = answers(mix(symbols[:k], way, rng))
    bits = group_bits(*group_gains(rows, reference, biases, "numbers"), symbols)
    bits -= math.log2(40)
    assert bits[:k].max() >= least
    assert bits[k:].max() < 20


def test_a_pair_says_more_than_each_of_the_two():
    rng = np.random.default_rng(5)
    biases, symbols = draw(200, 20, rng)
    rows, reference = answers(mix(symbols[:2], "pick", rng))
    single = group_bits(*group_gains(rows, reference, biases, "numbers"), symbols)
    pairs = list(combinations(range(20), 2))
    counts = np.array([symbols[[a, b]].sum(axis=0) for a, b in pairs])
    bits = group_bits(*group_gains(rows, reference, biases, "numbers", 2), counts)
    assert pairs[bits.argmax()] == (0, 1)
    assert bits.max() > 64 > single.max()


@pytest.mark.parametrize("size", [1, 2, 3])
def test_bits_of_groups_are_those_of_a_sum_over_boundaries(size):
    rng = np.random.default_rng(size)
    biases, symbols = draw(30, size, rng)
    rows, reference = answers(rng.random(30))
    gains, weights = group_gains(rows, reference, biases, "numbers", size)
    ones = symbols.sum(axis=0)
    products = [np.exp(sum(form[i, ones[i]] for i in range(30))) for form in gains]
    expected = math.log2(np.dot(weights, products))
    assert group_bits(gains, weights, ones[None]) == pytest.approx([expected])


def test_innocents_reach_few_bits_as_rarely_as_they_should():
    rng = np.random.default_rng(7)
    found = []
    for _ in range(40):
        biases, symbols = draw(60, 250, rng)
        rows, reference = answers(symbols[0].astype(float))
        bits = group_bits(*group_gains(rows, reference, biases, "numbers"), symbols[1:])
        found.extend(bits.tolist())
    for b in (1, 3, 6):
        assert np.mean(np.array(found) >= b) <= 2.0**-b


def test_answers_that_tell_nothing_are_worth_nothing():
    rows, reference = answers(np.zeros(50))
    rows[:, 2] = 0.0
    biases, symbols = draw(50, 5, np.random.default_rng(0))
    bits = group_bits(*group_gains(rows, reference, biases, "numbers"), symbols)
    assert np.abs(bits).max() < 1e-9


def test_symbols_follow_from_all_that_they_derive_from():
    biases = derive_biases(bytes(32), 400)
    seeds = [
        derive_customer_seed(digest, name, token)
        for digest, name, token in (
            (bytes(32), "Bob", bytes(32)), (bytes(32), "Eve", bytes(32)),
            (b"\1" * 32, "Bob", bytes(32)), (bytes(32), "Bob", b"\1" * 32),
        )
    ]  # fmt: skip
    symbols = [derive_customer_symbols(seed, biases) for seed in seeds]
    assert len({part.tobytes() for part in symbols}) == 4
    assert np.mean(symbols) == pytest.approx(0.5, abs=0.06)
    high = biases > 160
    assert np.mean([part[high].mean() for part in symbols]) > 0.6


def test_symbols_are_those_that_the_format_states():
    drawn = hashlib.shake_256(b"timbermark/biases/1" + bytes(32)).digest(50)
    biases = [BIASES[byte % 16] for byte in drawn]
    assert derive_biases(bytes(32), 50).tolist() == biases
    stream = hashlib.shake_256(b"timbermark/customer-symbols/1" + b"\1" * 32).digest(50)
    expected = [int(byte < bias) for byte, bias in zip(stream, biases, strict=True)]
    assert derive_customer_symbols(b"\1" * 32, np.array(biases)).tolist() == expected


def test_fewer_boundaries_trace_fewer_colluders():
    found = [count_traceable(n, 100) for n in (50, 200, 600, 1500, 3000)]
    assert found == sorted(found)
    assert found[0] == 0
    assert found[-1] >= 3
