import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from timbermark.errors import InputError
from timbermark.ownership.statistics import (
    evidence_bits,
    level,
    log2_lower_tail,
    log2_tail,
    matches_needed,
    round_bits,
    show_chance,
)


def naive_tail(matched, trials, q):
    p = Fraction(1, q)
    return sum(
        math.comb(trials, i) * p**i * (1 - p) ** (trials - i) for i in range(matched, trials + 1)
    )


@st.composite
def counts(draw, most=300):
    trials = draw(st.integers(1, most))
    return draw(st.integers(0, trials)), trials, draw(st.sampled_from([2, 3, 4, 10]))


@given(counts(60))
def test_equals_the_exact_fraction(count):
    tail = naive_tail(*count)
    expected = math.log2(tail.numerator) - math.log2(tail.denominator)
    assert log2_tail(*count) == pytest.approx(expected, rel=1e-12, abs=1e-12)


@given(counts())
def test_equals_scipy(count):
    matched, trials, q = count
    expected = binom.logsf(matched - 1, trials, 1 / q) / np.log(2)
    assert log2_tail(*count) == pytest.approx(expected, rel=1e-9, abs=1e-9)


@given(counts())
def test_more_matches_are_more_evidence(count):
    matched, trials, q = count
    assert evidence_bits(0, trials, q) == 0.0
    if matched:
        assert evidence_bits(matched, trials, q) > evidence_bits(matched - 1, trials, q)
    assert evidence_bits(trials, trials, q) == pytest.approx(trials * math.log2(q))


@pytest.mark.parametrize(
    ("trials", "q", "bits"),
    [(256, 2, 256), (128, 4, 256), (2000, 2, 2000), (1000, 4, 2000), (16384, 4, 32768)],
)
def test_tiny_chances_are_neither_zero_nor_too_large(trials, q, bits):
    found = evidence_bits(trials, trials, q)
    assert found == bits
    digits = bits * math.log10(2)
    assert show_chance(found) == f"1 in {int(10 ** (digits % 1))}·10^{int(digits)}"


@given(counts(60))
def test_the_lower_tail_is_exact(count):
    matched, trials, q = count
    at_most = 1 - naive_tail(matched + 1, trials, q)
    expected = math.log2(at_most.numerator) - math.log2(at_most.denominator)
    assert log2_lower_tail(*count) == pytest.approx(expected, rel=1e-12, abs=1e-12)


def test_a_chance_near_one_keeps_its_digits():
    # 1 - (3/4)^40 ... the complement of seeing no match at all.
    miss = 0.75**100
    assert evidence_bits(1, 100, 4) == pytest.approx(-math.log1p(-miss) / math.log(2), rel=1e-9)
    assert evidence_bits(1, 100, 4) > 0


TRIGGERS = (32, 48, 64, 96, 128, 192, 256)
NEEDED = {2: (None, None, 64, 90, 113, 158, 200), 4: (32, 43, 52, 67, 82, 108, 133)}


@pytest.mark.parametrize("q", NEEDED)
def test_matches_needed_are_those_of_the_design(q):
    assert tuple(matches_needed(k, q, 64) for k in TRIGGERS) == NEEDED[q]


@given(counts(120), st.integers(0, 130))
def test_needed_matches_are_enough_and_one_less_is_not(count, bits):
    _, trials, q = count
    needed = matches_needed(trials, q, bits)
    if needed is None:
        assert evidence_bits(trials, trials, q) < bits
    else:
        assert naive_tail(needed, trials, q) <= Fraction(1, 2**bits)
        assert needed == 0 or naive_tail(needed - 1, trials, q) > Fraction(1, 2**bits)


@pytest.mark.parametrize("q", [2, 4])
def test_level_and_needed_matches_agree(q):
    for trials in TRIGGERS:
        for name, bits in (("indicative", 20), ("conclusive", 64)):
            needed = matches_needed(trials, q, bits)
            if needed is not None:
                assert level(evidence_bits(needed, trials, q)) in (name, "conclusive")
                assert level(evidence_bits(needed - 1, trials, q)) != name or bits == 20
                assert evidence_bits(needed - 1, trials, q) < bits


def test_levels():
    bits = [0, 19.999999, 20, 63.999999, 64, 1e6]
    assert [level(b) for b in bits] == [
        "none", "none", "indicative", "indicative", "conclusive", "conclusive",
    ]  # fmt: skip


@given(st.floats(0, 40000))
def test_shown_chances_never_overstate_the_evidence(bits):
    shown = show_chance(bits)
    assert shown.startswith("1 in ")
    first, _, power = shown[5:].partition("·10^")
    count = int(first) * 10 ** int(power or 0)
    assert math.log2(count) <= bits + 1e-8
    # One digit is at most halved by rounding down.
    assert bits - 1.002 <= math.log2(count)


@pytest.mark.parametrize(
    ("bits", "text"),
    [(0, "1 in 1"), (-3, "1 in 1"), (1, "1 in 2"), (9.965, "1 in 999"), (9.97, "1 in 1·10^3"),
     (64, "1 in 1·10^19"), (192, "1 in 6·10^57"), (32768, "1 in 1·10^9864")],
)  # fmt: skip
def test_chances_in_words(bits, text):
    assert show_chance(bits) == text


@given(st.floats(-1e5, 1e5))
def test_bits_are_rounded_towards_less_evidence(bits):
    assert bits - 0.001001 <= round_bits(bits) <= bits + 2e-9
    assert round_bits(round_bits(bits)) == round_bits(bits)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [((5, 4, 2), "matched=5"), ((-1, 4, 2), "matched=-1"), ((0, 0, 2), "trials=0"),
     ((1, 2, 1), "q=1")],
)  # fmt: skip
def test_impossible_counts_are_refused(arguments, message):
    with pytest.raises(InputError, match=message):
        log2_tail(*arguments)


def test_impossible_levels_are_refused():
    with pytest.raises(InputError, match="bits=-1"):
        matches_needed(4, 2, -1)
