import itertools
import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.ownership import independent
from tests.ownership.making import make_known_mark, make_mark, marks
from timbermark.errors import InputError
from timbermark.ownership import (
    evidence,
    levels_around,
    numbers_evidence,
    scores_evidence,
    sequential_evidence,
)
from timbermark.ownership.evidence import mixture_bits, scores_gains, softmax
from timbermark.ownership.score_forms import log_scores, nearest_margins, predict_scores

shares = st.floats(0, 1) | st.sampled_from([0.0, 1.0, 1e-300])


class Fixed:
    """A mark whose symbols are given: what evidence sees of a mark."""

    def __init__(self, alphabets, reference, symbols, n_classes, alternatives=()):
        self.alternatives = np.array(alternatives).reshape(len(alphabets), -1, len(alphabets[0]))
        self.order = np.arange(len(alphabets))[::-1]
        self.alphabets = np.array(alphabets)
        self.reference = np.array(reference)
        self.symbols = np.array(symbols)
        self.n_triggers = len(alphabets)
        self.classes = range(n_classes)


@st.composite
def answered(draw, most=4):
    """Any response to a few triggers: scores, reference, alphabets, q, number of classes, and what
    up to two other models answer."""
    q = draw(st.sampled_from([2, 4]))
    n_classes = draw(st.integers(q, 5))
    k = draw(st.integers(1, most))
    rows = st.lists(shares, min_size=n_classes, max_size=n_classes)
    scores = np.array([draw(rows) for _ in range(k)])
    for row in range(k):
        if draw(st.integers(0, 5)) == 0:
            scores[row, draw(st.integers(0, n_classes - 1))] = np.nan
    reference = [draw(rows) for _ in range(k)]
    alphabets = [draw(st.permutations(range(n_classes)))[:q] for _ in range(k)]
    models = draw(st.integers(0, 2))
    others = st.lists(shares, min_size=models * q, max_size=models * q)
    return scores, reference, alphabets, q, n_classes, [draw(others) for _ in range(k)]


@given(answered())
@settings(max_examples=40)
def test_the_mean_over_all_symbols_is_one_for_any_response(case):
    """The whole proof: E is an e-value whatever the suspect says."""
    scores, reference, alphabets, q, n_classes, others = case
    k = len(alphabets)
    values = [
        2.0 ** scores_evidence(scores, Fixed(alphabets, reference, symbols, n_classes, others))
        for symbols in itertools.product(range(q), repeat=k)
    ]
    assert np.mean(values) == pytest.approx(1.0, rel=1e-9)
    for bits in range(1, 2 * k + 1):
        assert np.mean(np.array(values) >= 2.0**bits) <= 2.0**-bits


@given(marks(), st.data())
@settings(max_examples=40)
def test_scores_agree_with_the_independent_verifier(mark, data):
    n_classes = len(mark.classes)
    row = st.none() | st.lists(shares, min_size=n_classes, max_size=n_classes)
    scores = [data.draw(row) for _ in range(mark.n_triggers)]
    filled = [[np.nan] * n_classes if row is None else row for row in scores]
    bits = scores_evidence(filled, mark)
    again = independent.scores_bits(
        scores, mark.reference.tolist(), mark.alphabets.tolist(), mark.symbols.tolist(),
        mark.alternatives.tolist() if mark.alternatives.size else None, mark.order.tolist(),
    )  # fmt: skip
    assert bits == pytest.approx(again, rel=1e-10, abs=1e-9)
    assert independent.reported(bits, mark.draws) == independent.reported(again, mark.draws)


@given(st.integers(0, 300), st.integers(0, 300), st.sampled_from([2, 4]))
def test_one_by_one_agrees_with_the_independent_verifier(matched, missed, q):
    bits = sequential_evidence(matched, matched + missed, q)
    again = independent.one_by_one_bits(matched, matched + missed, q)
    assert bits == pytest.approx(again, rel=1e-10, abs=1e-9)


def test_scores_of_a_whole_mark_agree_with_the_independent_verifier():
    rng = np.random.default_rng(3)
    for q, seed in ((2, 0), (4, 1)):
        mark = make_mark(k=40, q=q, seed=seed)
        scores = rng.dirichlet(np.ones(6), size=40)
        again = independent.scores_bits(
            scores.tolist(), mark.reference.tolist(), mark.alphabets.tolist(), mark.symbols.tolist()
        )
        assert scores_evidence(scores, mark) == pytest.approx(again, rel=1e-10)


def test_scores_with_alternatives_agree_with_the_independent_verifier():
    rng = np.random.default_rng(3)
    for q in (2, 4):
        mark = make_known_mark(k=40, q=q, n_models=5)
        scores = rng.dirichlet(np.full(6, 0.3), size=40)
        scores[::7] = np.nan
        again = independent.scores_bits(
            [None if np.isnan(row).any() else row for row in scores.tolist()],
            mark.reference.tolist(), mark.alphabets.tolist(), mark.symbols.tolist(),
            mark.alternatives.tolist(), mark.order.tolist(),
        )  # fmt: skip
        assert scores_evidence(scores, mark) == pytest.approx(again, rel=1e-10)


def test_what_is_asked_later_changes_no_earlier_gain():
    """Evidence is valid whenever one stops: no prediction looks ahead, or at its own answer."""
    mark = make_known_mark(k=40, n_models=4)
    rng = np.random.default_rng(5)
    scores = rng.dirichlet(np.ones(6), size=40)
    order = mark.order
    known = log_scores(mark.reference, mark.alphabets)[order], np.log(mark.alternatives[order])
    asked = log_scores(scores, mark.alphabets)[order]
    whole = predict_scores(asked, *known)
    for n in (1, 17, 39):
        changed = asked.copy()
        changed[n:] = np.log(rng.dirichlet(np.ones(4), size=40 - n))
        np.testing.assert_allclose(predict_scores(changed, *known)[: n + 1], whole[: n + 1])
        part = scores.copy()
        part[order[n:]] = np.nan
        found = scores_gains(part, mark)
        answered = np.flatnonzero(~np.isnan(part).any(axis=1))
        np.testing.assert_allclose(found, scores_gains(scores, mark)[:, answered], atol=1e-9)


def test_no_rule_for_stopping_is_worth_anything():
    """Over all symbols, the best moment of each run known beforehand: the mean stays 1.

    A rule may look at all that was answered and compared so far. The best one is found backwards
    from the end, over every prefix of symbols, in the order in which suspects are asked.
    """
    rng = np.random.default_rng(2)
    k, q = 6, 2
    scores = rng.dirichlet(np.ones(3), size=k)
    reference, others = rng.dirichlet(np.ones(3), size=k), rng.dirichlet(np.ones(2), size=(k, 2))
    alphabets = np.tile([0, 1], (k, 1))
    order = Fixed(alphabets, reference, [0] * k, 3, others).order
    value = {}
    for symbols in itertools.product(range(q), repeat=k):
        mark = Fixed(alphabets, reference, symbols, 3, others)
        for n in range(k + 1):
            part = np.full_like(scores, np.nan)
            part[order[:n]] = scores[order[:n]]
            known = tuple(symbols[i] for i in order[:n])
            bits = 2.0 ** scores_evidence(part, mark)
            assert value.setdefault(known, bits) == pytest.approx(bits, rel=1e-9)
    for n in range(k - 1, -1, -1):
        for known in itertools.product(range(q), repeat=n):
            later = np.mean([value[(*known, s)] for s in range(q)])
            assert later == pytest.approx(value[known], rel=1e-9)


def test_alternatives_find_what_a_theft_hides():
    """A copy that is far from the unmarked model, but near to what a cut makes of it."""
    rng = np.random.default_rng(8)
    mark = make_known_mark(k=120, reference=rng.dirichlet(np.ones(6), size=120))
    rows = np.arange(120)[:, None]
    cut = np.full((120, 6), 0.02)
    cut[rows, mark.alphabets] = mark.alternatives[:, 1] ** 0.8
    leaning = cut.copy()
    leaning[np.arange(120), mark.expected_numbers] *= 1.5
    alone = replace(mark, alternatives=np.zeros((120, 0, 4)))
    leaning_alone = cut.copy()  # that mark has other symbols
    leaning_alone[np.arange(120), alone.expected_numbers] *= 1.5
    assert scores_evidence(leaning, mark) > 64 > 20 > scores_evidence(leaning_alone, alone)
    assert scores_evidence(cut, mark) < 5


def test_evidence_in_parts_is_the_evidence_as_a_whole(monkeypatch):
    mark = make_known_mark(k=40)
    scores = np.random.default_rng(4).dirichlet(np.ones(6), size=40)
    whole = scores_evidence(scores, mark)
    monkeypatch.setattr(evidence, "_AT_ONCE", 42)
    assert scores_evidence(scores, mark) == pytest.approx(whole, rel=1e-12)


def marked_scores(mark, lead):
    """What a model that carries the mark answers with, by the edit's own formula."""
    margins = np.log(mark.reference)
    wanted = nearest_margins(margins, mark.expected_numbers, lead)
    return softmax(wanted)


@pytest.mark.parametrize(("share", "bits"), [(0.5, 90), (0.7, 70), (0.9, 30)])
def test_averaging_with_another_model_leaves_the_mark(share, bits):
    """A confident model of somebody else's, nine parts of ten, does not hide the rest."""
    rng = np.random.default_rng(7)
    mark = make_mark(k=96, q=4, reference=rng.dirichlet(np.full(6, 1.0), size=96))
    other = rng.dirichlet(np.full(6, 0.15), size=96)
    suspect = (1 - share) * marked_scores(mark, 1.0) + share * other
    assert scores_evidence(suspect, mark) > bits
    innocent = (1 - share) * mark.reference + share * other
    assert scores_evidence(innocent, mark) < 8


def test_nothing_overflows():
    mark = make_mark(k=5000, q=4)
    certain = np.where(np.arange(6) == mark.expected_numbers[:, None], 1.0, 0.0)
    bits = scores_evidence(certain, mark)
    assert 9900 < bits <= 10000
    opposite = scores_evidence(1.0 - certain, mark)
    assert math.isfinite(opposite)
    assert opposite < 0
    assert math.isfinite(sequential_evidence(0, 10**6, 4))
    assert sequential_evidence(10**5, 10**5, 4) == pytest.approx(2e5, rel=1e-3)


def test_the_reference_finds_what_labels_do_not():
    """A suspect that leans a little towards the symbols beside what the unmarked model says."""
    rng = np.random.default_rng(0)
    mark = make_mark(k=96, q=4, reference=rng.dirichlet(np.full(6, 0.3), size=96))
    leaning = mark.reference.copy()
    leaning[np.arange(96), mark.expected_numbers] *= 3
    leaning /= leaning.sum(axis=1, keepdims=True)
    assert scores_evidence(leaning, mark) > 25
    assert scores_evidence(mark.reference, mark) < 5
    matched = (leaning.argmax(axis=1) == mark.expected_numbers).mean()
    assert matched < 0.6


def test_unanswered_triggers_count_for_nothing():
    mark = make_mark(k=32)
    scores = np.random.default_rng(1).dirichlet(np.ones(6), size=32)
    part = Fixed(mark.alphabets[:20], mark.reference[:20], mark.symbols[:20], 6)
    some = scores.copy()
    some[20:, 3] = np.nan
    assert scores_evidence(some, mark) == pytest.approx(scores_evidence(scores[:20], part))


@cache
def bits_of(matched, asked, q):
    return sequential_evidence(matched, asked, q)


def stopped(q, goal, rng, match, most=400):
    matched = 0
    for asked in range(1, most + 1):
        matched += match(rng)
        if bits_of(int(matched), asked, q) >= goal:
            return asked, True
    return most, False


@pytest.mark.parametrize("q", [2, 4])
@pytest.mark.parametrize("goal", [2, 4])
def test_stopping_when_it_looks_best_accuses_no_more_often_than_stated(q, goal):
    rng = np.random.default_rng(q * 10 + goal)
    runs = 1500
    hits = sum(stopped(q, goal, rng, lambda r: r.integers(q) == 0, 200)[1] for _ in range(runs))
    bound = 2.0**-goal
    assert hits / runs <= bound + 4 * math.sqrt(bound / runs)


@given(st.integers(0, 60), st.sampled_from([2, 4]), st.floats(0, 1))
def test_betting_is_a_fair_game_at_chance_and_loses_below(asked, q, below):
    """The next step multiplies E by 1 on average if matches come at 1/q, by less if less often."""
    for matched in range(asked + 1):
        now = 2.0 ** sequential_evidence(matched, asked, q)
        hit = 2.0 ** sequential_evidence(matched + 1, asked + 1, q)
        miss = 2.0 ** sequential_evidence(matched, asked + 1, q)
        assert hit / q + miss * (1 - 1 / q) == pytest.approx(now, rel=1e-9)
        rate = below / q
        assert hit * rate + miss * (1 - rate) <= now * (1 + 1e-9)


@pytest.mark.parametrize(("rate", "most"), [(1.0, 36), (0.8, 75)])
def test_few_questions_are_enough(rate, most):
    rng = np.random.default_rng(5)
    asked = [stopped(4, 64, rng, lambda r: r.random() < rate)[0] for _ in range(100)]
    assert np.mean(asked) <= most


def test_avoiding_symbols_is_no_evidence():
    """A two-sided bet would take it for evidence."""
    assert sequential_evidence(0, 96, 4) < 0
    assert sequential_evidence(0, 5000, 2) < 0


@pytest.mark.parametrize(("arguments"), [(5, 4, 2), (-1, 4, 2), (1, 2, 1)])
def test_impossible_counts_are_refused(arguments):
    with pytest.raises(InputError, match="is impossible"):
        sequential_evidence(*arguments)


@pytest.mark.parametrize(
    ("scores", "message"),
    [(np.ones((31, 6)), "shape"), (np.ones((32, 5)), "shape"), (np.ones(32), "shape"),
     ([["a"] * 6] * 32, "not numbers"), ("x", "not numbers")],
)  # fmt: skip
def test_other_scores_are_refused(scores, message):
    with pytest.raises(InputError, match=message):
        scores_evidence(scores, make_mark())


@given(
    st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=1, max_size=3),
    st.floats(-1e6, 1e6),
    st.sampled_from([2, 4]),
)
def test_numbers_are_an_e_value_too(values, reference, q):
    levels = levels_around([reference] * len(values), 1.0, q)
    all_bits = [
        numbers_evidence(values, levels, symbols)
        for symbols in itertools.product(range(q), repeat=len(values))
    ]
    assert np.isfinite(all_bits).all()
    assert np.mean(2.0 ** np.array(all_bits)) == pytest.approx(1.0, rel=1e-9)


def test_numbers_of_a_marked_regressor():
    rng = np.random.default_rng(0)
    levels = levels_around(rng.normal(size=96), 0.5, 4)
    symbols = rng.integers(0, 4, 96)
    said = levels[np.arange(96), symbols]
    assert numbers_evidence(said, levels, symbols) > 150
    assert numbers_evidence(said + rng.normal(0, 0.25, 96), levels, symbols) > 64
    assert numbers_evidence(levels.mean(axis=1), levels, symbols) < 5
    assert numbers_evidence(np.full(96, np.nan), levels, symbols) == 0.0


def test_levels_and_values_must_fit():
    with pytest.raises(InputError, match="do not fit together"):
        numbers_evidence([1.0], [[1.0, 2.0]] * 2, [0, 1])
    with pytest.raises(InputError, match="not distinct"):
        numbers_evidence([1.0], [[1.0, 1.0]], [0])
    with pytest.raises(InputError, match="not distinct"):
        numbers_evidence([1.0], [[1.0, np.nan]], [0])


def test_a_mixture_of_one_form_is_the_form():
    forms = np.log([[[0.5, 0.5], [0.9, 0.1]]])
    assert mixture_bits(forms, np.array([0, 1])) == pytest.approx(math.log2(0.2))


@given(st.lists(st.lists(st.floats(), min_size=3, max_size=3), min_size=1, max_size=5))
def test_softmax_takes_anything(rows):
    found = softmax(rows)
    for row, given_row in zip(found, rows, strict=True):
        if np.isnan(row).any():
            top = np.max(given_row)
            assert not np.isfinite(top)
        else:
            assert row.sum() == pytest.approx(1.0)
