"""Verdicts: levels, prices, what they show, their curves, and transcripts that give them again."""

import json
import math
from dataclasses import fields, replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import timbermark as tm
from tests.verification.making import innocent, learnt, make_mark, numbered, scored
from timbermark.errors import FileFormatError, InputError
from timbermark.ownership.evidence import UNANSWERED, Answers, Price, round_bits, weigh
from timbermark.verification.transcript import Context, Note, Transcript
from timbermark.verification.verdict import (
    SealFinding,
    Verdict,
    judge,
    judge_again,
    lack_of_matches,
    log2_factorial,
    show_chance,
)

BOTH = make_mark(k=40, n_splits=60)
NUMBERS = make_mark(n_splits=60, classes=())
WHEN = "2030-01-02T03:04:05Z"


def verdict(**changes):
    known = {
        "owner": "Ann", "mark_id": "00ff", "created": WHEN, "mark_digest": "11" * 32,
        "model_digest": "22" * 32, "kind": "scores",
        "seals": (SealFinding("leaves", 192.0, 96, 96, 96, 96, 4),), "raw_bits": 192.0,
        "context": Context("file a.timber", "file", "33" * 32, "by-name"), "version": "0.1.0",
    }  # fmt: skip
    return Verdict(**{**known, **changes})


@pytest.mark.parametrize(
    ("bits", "level"),
    [
        (-5.0, "none"), (19.9999, "none"), (20.0, "indicative"), (63.9996, "indicative"),
        (64.0, "conclusive"), (63.99999999999, "conclusive"),
    ],
)  # fmt: skip
def test_levels(bits, level):
    found = verdict(raw_bits=bits)
    assert found.level == level
    assert str(found).startswith(f"{level}: ")
    assert found.bits == max(0.0, round_bits(bits))


def test_a_condition_without_a_price_caps_the_level():
    capped = Context("x", "http", conditions=(Note("headers", {"names": "X", "caps": True}),))
    assert [verdict(raw_bits=b, context=capped).level for b in (10.0, 30.0, 90.0)] == [
        "none", "indicative", "indicative"
    ]  # fmt: skip


def test_prices_are_subtracted():
    found = verdict(raw_bits=70.0, prices=(Price("draws", 1.0), Price("kind", 5.5)))
    assert (found.bits, found.net_bits, found.level) == (63.5, 63.5, "indicative")
    assert verdict(raw_bits=1.0, prices=(Price("kind", 5.5),)).bits == 0.0


def test_everything_but_answers_is_in_the_facts():
    found = tm.verify(scored(BOTH), BOTH)
    shown = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert shown.pop("words").keys() == {
        "finding", "meaning", "conditions", "prices", "reading", "warnings"
    }  # fmt: skip
    assert shown == json.loads(json.dumps(found.facts()))
    flat = {"version": "timbermark", "context": "request"}
    named = {flat.get(f.name, f.name) for f in fields(Verdict)}
    assert named - set(shown) == {"answers", "transcript", "curve"}
    assert len(repr(found)) < 120


@pytest.mark.parametrize("model", [learnt, scored, innocent])
def test_no_secret_and_no_trigger_is_in_a_verdict(model):
    found = tm.verify(model(BOTH), BOTH)
    shown = f"{found} {found!r} {json.dumps(found.to_dict())}"
    assert BOTH.secret.hex() not in shown
    assert not any(repr(x)[:9] in shown for x in BOTH.rows().ravel().tolist())
    assert len(found.table()) == BOTH.n_triggers
    assert found.table()[0].seal == "leaves"


def answers_of_kind(kind, seed=0):
    rng = np.random.default_rng(seed)
    if kind == "numbers":
        return NUMBERS, Answers("numbers", np.array(numbered(NUMBERS)(NUMBERS.rows())))
    if kind == "scores":
        return BOTH, Answers("scores", scored(BOTH, share=rng.uniform(0.3, 0.9))(BOTH.rows()))
    numbers = np.array([BOTH.classes.index(label) for label in learnt(BOTH, 0.8)(BOTH.rows())])
    return BOTH, Answers("labels", numbers.astype(np.int32))


@given(st.sampled_from(["labels", "scores", "numbers"]), st.integers(0, 99), st.floats(0, 0.3))
@settings(max_examples=20)
def test_a_transcript_gives_its_verdict_again(kind, seed, missing):
    mark, answers = answers_of_kind(kind, seed)
    values = answers.values.copy()
    gone = np.random.default_rng(seed).random(len(values)) < missing
    gone[0] = False
    values[gone] = UNANSWERED if kind == "labels" else np.nan
    context = Context(
        "their server", "http", None, "by-place", ("a", "b"), {"kind": kind}, {"url": "http://h"},
        (Price("kind", 1.0),), (Note("hopeless", {"asked": 3, "of": 9, "limit": 64.0}),),
        (Note("query"),),
    )  # fmt: skip
    found = judge(mark, context, Answers(answers.kind, values), None, 17)
    assert judge_again(mark, found.transcript) == found
    text = found.transcript.to_json(mark, WHEN)
    again, when = Transcript.from_json(text, mark)
    assert when == WHEN
    assert judge_again(mark, again) == found
    assert again.to_json(mark, when) == text


def test_a_transcript_of_another_mark_is_refused():
    mark, answers = answers_of_kind("labels")
    text = judge(mark, Context("x", "file"), answers).transcript.to_json(mark, WHEN)
    other = make_mark(k=40, n_splits=60, seed=1)
    with pytest.raises(FileFormatError) as caught:
        Transcript.from_json(text, other)
    assert caught.value.code == "transcript.not-sound"


def order_of_asking(mark, answers):
    """By the rule of docs/mark-format.md: the seal that promises more bits for each row."""
    seals = {seal.seal: seal for seal in weigh(mark, answers)}
    left = {name: [*mark.order(name)] for name in seals}
    order = []
    while any(left.values()):
        promises = {}
        for name, places in left.items():
            n = seals[name].triggers - len(places)
            rows, perfect = (1, np.log2(mark.q)) if name == "leaves" else (3, 1.0)
            if places:
                promises[name] = (seals[name].growth[n] + 4 * perfect) / (rows * (n + 4))
        name = max(promises, key=promises.get)
        order.append((name, left[name].pop(0)))
    return order


@pytest.mark.parametrize("kind", ["labels", "scores", "numbers"])
def test_the_curve_is_the_evidence_of_what_was_asked_so_far(kind):
    """Against the evidence of those answers alone, computed anew."""
    mark, answers = answers_of_kind(kind)
    found = judge(mark, Context("x", "file"), answers)
    order = order_of_asking(mark, answers)
    for n, bits in found.curve[:: max(1, len(found.curve) // 9)]:
        values = answers.values.copy()
        for seal, place in order[n:]:
            rows = [place] if seal == "leaves" else mark.n_leaves + 3 * place + np.arange(3)
            values[rows] = UNANSWERED if kind == "labels" else np.nan
        part = judge(mark, Context("x", "file"), Answers(answers.kind, values))
        assert part.net_bits == pytest.approx(bits, abs=1e-9)
    assert found.curve[-1] == (mark.n_triggers, pytest.approx(found.net_bits))


@given(st.lists(st.integers(-2, 5), min_size=16, max_size=16))
def test_counts_add_up(numbers):
    mark = make_mark(k=16, q=2)
    answers = Answers("labels", np.array(numbers, np.int32))
    if max(numbers) < 0:
        with pytest.raises(InputError) as caught:
            judge(mark, Context("x", "file"), answers)
        assert caught.value.code in ("answers.none", "answers.no-class")
        return
    (leaves,) = judge(mark, Context("x", "file"), answers).seals
    assert leaves.triggers == 16
    assert leaves.answered == 16 - numbers.count(-2)
    assert leaves.matched <= leaves.counted <= leaves.answered


def test_far_fewer_matches_than_chance_warn_of_a_misreading():
    mark = make_mark(k=128)
    inside = [
        mark.classes[next(c for c in alphabet if mark.classes[c] != wanted)]
        for alphabet, wanted in zip(mark.leaves.alphabets.tolist(), mark.expected, strict=True)
    ]
    numbers = np.array([mark.classes.index(label) for label in inside], np.int32)
    found = judge(mark, Context("x", "file"), Answers("labels", numbers))
    assert (found.level, [note.code for note in found.warnings]) == ("none", ["few-matches"])


@pytest.mark.parametrize("seed", range(3))
def test_innocent_models_are_not_accused(seed):
    mark = make_mark(k=100, n_splits=100, seed=seed)
    rng = np.random.default_rng(seed)
    noise = rng.dirichlet(np.ones(6), size=mark.n_rows)
    for answers in (Answers("scores", noise),
                    Answers("labels", noise.argmax(axis=1).astype(np.int32))):  # fmt: skip
        assert judge(mark, Context("x", "file"), answers).bits < 10


def test_draws_have_their_price():
    mark = replace(BOTH, draws=8)
    found = judge(mark, Context("x", "file"), answers_of_kind("scores")[1])
    assert [(price.code, price.bits) for price in found.prices] == [("draws", 3.0)]


def test_answers_left_out_cost_the_choice_and_the_end_costs_nothing():
    mark, answers = answers_of_kind("labels")
    values = answers.values.copy()
    order = mark.order("leaves")
    values[order[30:]] = UNANSWERED
    values[mark.n_leaves :] = UNANSWERED
    assert judge(mark, Context("x", "table"), Answers("labels", values)).prices == ()
    values[order[[3, 7]]] = UNANSWERED
    (price,) = judge(mark, Context("x", "table"), Answers("labels", values)).prices
    assert (price.code, price.bits) == ("holes", math.log2(math.comb(30, 2) * 31))


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


@given(st.integers(1, 60), st.data(), st.sampled_from([2, 4]))
def test_the_lack_of_matches_is_exact(counted, data, q):
    matched = data.draw(st.integers(0, counted))
    p = Fraction(1, q)
    tail = sum(math.comb(counted, i) * p**i * (1 - p) ** (counted - i) for i in range(matched + 1))
    expected = math.log2(tail.denominator) - math.log2(tail.numerator)
    if matched * q >= counted:
        expected = 0.0
    assert lack_of_matches(matched, counted, q) == pytest.approx(expected, rel=1e-12, abs=1e-12)


def test_logarithms_of_factorials():
    for n in (0, 1, 5, 1000, 1001, 5000):
        assert log2_factorial(n) == pytest.approx(math.lgamma(n + 1) / math.log(2), abs=1e-9)
