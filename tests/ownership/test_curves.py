"""The curve of evidence, against the evidence of what was asked so far, computed anew."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from timbermark.ownership.labels import UNANSWERED
from timbermark.ownership.statistics import evidence_bits

from tests.ownership.making import make_mark
from timbermark.ownership import Inquiry, Mark, OwnerKey, judge
from timbermark.ownership.evidence import (
    levels_around,
    numbers_evidence,
    scores_evidence,
    sequential_evidence,
)

INQUIRY = Inquiry("someone")


def masked(mark, n):
    """Which triggers were asked among the first n."""
    asked = np.zeros(mark.n_triggers, bool)
    asked[mark.order[:n]] = True
    return asked


def price_of(verdict):
    return math.fsum(price.bits for price in verdict.prices)


@given(seed=st.integers(0, 99), k=st.sampled_from([1, 7, 130]), draws=st.sampled_from([1, 3]))
def test_scores(seed, k, draws):
    mark = make_mark(k=k, draws=draws)
    rng = np.random.default_rng(seed)
    scores = rng.dirichlet(np.ones(len(mark.classes)), size=k)
    scores[rng.random(k) < 0.2] = np.nan
    scores[0] = 1.0 / len(mark.classes)
    verdict = judge(mark, INQUIRY, scores=scores)
    assert len(verdict.curve) == min(k, 128)
    for n, bits in verdict.curve[:: max(1, k // 9)]:
        part = np.where(masked(mark, n)[:, None], scores, np.nan)
        assert bits == pytest.approx(scores_evidence(part, mark) - price_of(verdict), abs=1e-9)
    assert verdict.curve[-1] == (k, verdict.net_bits)


@pytest.mark.parametrize("one_by_one", [False, True])
def test_labels(one_by_one):
    mark = make_mark(k=90)
    rng = np.random.default_rng(4)
    labels = np.where(rng.random(90) < 0.7, mark.expected_numbers, rng.integers(6, size=90))
    labels[rng.random(90) < 0.1] = UNANSWERED
    verdict = judge(mark, INQUIRY, labels=labels, one_by_one=one_by_one)
    assert [n for n, _ in verdict.curve] == list(range(1, 91))
    for n, bits in verdict.curve[5::12]:
        matched = inside = silent = 0
        for place in mark.order[:n]:
            matched += int(labels[place] == mark.expected_numbers[place])
            inside += int(labels[place] in mark.alphabets[place])
            silent += int(labels[place] == UNANSWERED)
        if one_by_one:
            assert bits == sequential_evidence(matched, inside, 4)
        else:
            assert bits == evidence_bits(matched, inside + silent, 4)
    assert verdict.curve[-1] == (90, verdict.net_bits)


def test_numbers():
    k = 40
    reference = np.column_stack([np.zeros(k), np.arange(k) / 10.0])
    levels = levels_around(reference[:, 1], 0.5, 4)
    mark = Mark.make(
        OwnerKey.generate(), owner="Ann", model_digest="0" * 64, classes=[], answers="numbers",
        triggers=np.random.default_rng(0).normal(size=(2 * k, 2)), alphabets=levels,
        reference=reference,
    )  # fmt: skip
    said = np.random.default_rng(1).normal(scale=0.1, size=2 * k)
    said[1::2] += mark.expected_levels
    verdict = judge(mark, INQUIRY, numbers=said)
    assert verdict.level == "conclusive"
    for n, bits in verdict.curve[::7]:
        part = np.where(masked(mark, n), said[1::2] - said[::2], np.nan)
        assert bits == pytest.approx(numbers_evidence(part, mark.levels, mark.symbols))
    assert verdict.curve[-1] == (k, verdict.net_bits)


def test_the_curve_takes_no_part_in_comparisons():
    mark = make_mark(k=8)
    verdict = judge(mark, INQUIRY, labels=mark.expected_numbers)
    assert replace(verdict, curve=()) == verdict
    assert "curve" not in repr(verdict)
    assert "curve" not in verdict.to_dict()
