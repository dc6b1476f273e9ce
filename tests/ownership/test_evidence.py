"""Evidence: e-values by enumeration of all symbols, and what copies of a marked model show."""

import itertools
import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import heavy
from tests.ownership import independent
from tests.ownership.making import (
    answers_to,
    carried,
    make_both,
    make_guard_mark,
    make_known_mark,
    make_mark,
    make_number_mark,
    make_splits,
    marks,
)
from timbermark.errors import InputError
from timbermark.ownership import Answers, evidence, weigh
from timbermark.ownership.evidence import (
    UNANSWERED,
    UNKNOWN,
    full_bits,
    label_gains,
    level,
    log_scores,
    nearest_margins,
    predict_scores,
    round_bits,
    split_gains,
    split_sides,
    total_bits,
)

BOTH_KNOWN = make_known_mark(2, q=4, n_models=2, splits=make_splits(3))


def bits(mark, answers):
    return total_bits([seal.bits for seal in weigh(mark, answers)], len(mark.seals))


def seal_bits(mark, answers):
    return {seal.seal: seal.bits for seal in weigh(mark, answers)}


def with_symbols(mark, symbols, order=None):
    """The same mark with given symbols, and with a given order of asking."""
    made = replace(mark)
    made._derived["symbols"] = np.array(symbols, np.uint8)
    numbers = np.arange(mark.n_triggers) if order is None else order
    made._derived["order_numbers"] = np.array(numbers, np.uint64)
    return made


def every_symbols(mark):
    sizes = [mark.q] * mark.n_leaves + [2] * mark.n_splits
    return itertools.product(*(range(size) for size in sizes))


def check_e_value(values):
    """The mean is 1, so that no more than 2^-b of all symbols reach b bits."""
    values = np.array(values)
    assert np.mean(values) == pytest.approx(1.0, rel=1e-9)
    for b in range(1, 10):
        assert np.mean(values >= 2.0**b * (1 + 1e-9)) <= 2.0**-b


@given(st.data())
@heavy
def test_the_mean_over_all_symbols_is_one_whatever_is_answered(data):
    """The whole proof: E of each seal and of both is an e-value, in any order of asking."""
    mark = data.draw(marks(2, 3))
    answers = data.draw(answers_to(mark))
    order = data.draw(st.permutations(range(mark.n_triggers)))
    found = [weigh(with_symbols(mark, symbols, order), answers) for symbols in every_symbols(mark)]
    for seal in range(len(mark.seals)):
        check_e_value([2.0 ** seals[seal].bits for seals in found])
    check_e_value([2.0 ** total_bits([s.bits for s in seals], len(mark.seals)) for seals in found])


def random_answers(mark, kind, seed=0):
    rng = np.random.default_rng(seed)
    if kind == "labels":
        values = rng.integers(-2, len(mark.classes), mark.n_rows)
        if mark.leaves is not None:  # labels of the alphabets, but for one in four
            named = rng.permuted(mark.leaves.alphabets, axis=1)[:, 0]
            values[: mark.n_leaves] = np.where(rng.random(mark.n_leaves) < 0.25, -1, named)
    elif kind == "scores":
        values = rng.dirichlet(np.full(len(mark.classes), 0.4), mark.n_rows)
        values[rng.random(mark.n_rows) < 0.1] = np.nan
    else:
        values = rng.normal(size=mark.n_rows)
        values[rng.random(mark.n_rows) < 0.1] = np.nan
    if mark.n_splits:  # a middle that is answered like one of its ends, as trees do it
        rows = values[mark.n_leaves :].reshape(mark.n_splits, 3, -1)
        rows[:, 1] = rows[np.arange(mark.n_splits), rng.integers(0, 2, mark.n_splits) * 2]
        if kind != "labels":  # and some that settle what b need not be asked for
            rows[::3, :2], rows[::6, 2] = mark.splits.reference[::3], np.nan
    return Answers(kind, values)


ENUMERATED = {
    "leaves by labels": (make_mark(3, q=4), "labels"),
    "leaves by labels, q=2": (make_mark(7, q=2), "labels"),
    "leaves by scores": (make_mark(3, q=4), "scores"),
    "a guard's by scores": (make_guard_mark(9, n_models=2), "scores"),
    "a guard's by scores, one model": (make_guard_mark(8, n_models=1), "scores"),
    "a guard's by scores, no model": (make_guard_mark(8, n_models=0), "scores"),
    "a guard's by labels": (make_guard_mark(7), "labels"),
    "leaves by scores with alternatives": (make_known_mark(3, q=4), "scores"),
    "leaves by scores with alternatives, q=2": (make_known_mark(7, q=2), "scores"),
    "splits by labels": (make_mark(0, n_splits=7), "labels"),
    "splits by scores": (make_mark(0, n_splits=7), "scores"),
    "splits by numbers": (make_number_mark(7), "numbers"),
    "splits without strata": (make_mark(0, splits=make_splits(7, strata=False)), "scores"),
    "both by labels": (make_both(2, 3), "labels"),
    "both by scores": (make_both(2, 3), "scores"),
    "both with alternatives": (BOTH_KNOWN, "scores"),
    "both, q=2": (make_both(3, 3, q=2), "scores"),
}


@cache
def weighed(case):
    """A mark for each choice of all symbols, asked in some order, with what some answers prove."""
    mark, kind = ENUMERATED[case]
    order = np.random.default_rng(5).permutation(mark.n_triggers)
    answers = random_answers(mark, kind, 3)
    marked = [with_symbols(mark, symbols, order) for symbols in every_symbols(mark)]
    return [(given_mark, weigh(given_mark, answers)) for given_mark in marked]


@pytest.mark.parametrize("case", ENUMERATED)
def test_the_mean_over_all_symbols_is_one(case):
    found = [
        total_bits([seal.bits for seal in seals], len(mark.seals)) for mark, seals in weighed(case)
    ]
    assert len({round(value, 9) for value in found}) > 1  # symbols do matter
    check_e_value([2.0**value for value in found])


def worth_of_prefixes(case):
    """E by the symbols of the triggers that were asked so far, of each seal.

    It must depend on nothing else: not on symbols of triggers that are asked later.
    """
    value, answered = {}, {}
    for given_mark, found_seals in weighed(case):
        seals = {seal.seal: seal for seal in found_seals}
        of = {"leaves": given_mark.leaf_symbols, "splits": given_mark.split_symbols}
        answered = {name: seal.answered for name, seal in seals.items()}
        for counts in itertools.product(*(range(n + 1) for n in answered.values())):
            asked = dict(zip(seals, counts, strict=True))
            known = tuple(
                tuple(int(of[name][i]) for i in seals[name].places[:n]) for name, n in asked.items()
            )
            now = [seals[name].growth[n] for name, n in asked.items()]
            found = 2.0 ** total_bits(now, len(given_mark.seals))
            assert value.setdefault(known, found) == pytest.approx(found, rel=1e-9)
    return value, list(answered.values())


def next_asked(known, seal, q):
    return [(*known[:seal], (*known[seal], s), *known[seal + 1 :]) for s in range(q)]


@pytest.mark.parametrize("case", ENUMERATED)
def test_no_rule_of_stopping_is_worth_anything(case):
    """The best of all rules, found backwards from the end, has the expectation 1.

    A rule may look at everything that was compared so far, and may choose which seal is asked next.
    """
    value, most = worth_of_prefixes(case)
    sizes = [seal.q for seal in ENUMERATED[case][0].seals]
    best = {}
    for known in sorted(value, key=lambda known: -sum(map(len, known))):
        choices = [value[known]]
        for seal, q in enumerate(sizes):
            if len(known[seal]) < most[seal]:
                later = next_asked(known, seal, q)
                # It is a martingale, whichever seal is asked next.
                assert np.mean([value[k] for k in later]) == pytest.approx(value[known], rel=1e-9)
                choices.append(np.mean([best[k] for k in later]))
        best[known] = max(choices)
    assert best[((),) * len(sizes)] == pytest.approx(1.0, rel=1e-9)


def by_promise(seals):
    """The bits of each seal before each question and at the end, asked by the rule."""
    asked = [0] * len(seals)
    yield [seal.growth[n] for seal, n in zip(seals, asked, strict=True)]
    while left := [i for i, seal in enumerate(seals) if asked[i] < seal.answered]:
        asked[max(left, key=lambda i: seals[i].promise(asked[i]))] += 1
        yield [seal.growth[n] for seal, n in zip(seals, asked, strict=True)]


@given(st.data())
@heavy
def test_the_seal_that_promises_more_may_be_asked_next(data):
    """The rule looks at symbols that were compared: after any number of questions the mean is 1."""
    mark = data.draw(st.sampled_from([make_both(2, 3, q=2), make_both(2, 2), BOTH_KNOWN]))
    answers = data.draw(answers_to(mark))
    order = data.draw(st.permutations(range(mark.n_triggers)))
    runs = [
        [2.0 ** total_bits(now, 2) for now in by_promise(weigh(marked, answers))]
        for marked in (with_symbols(mark, symbols, order) for symbols in every_symbols(mark))
    ]
    for values in zip(*runs, strict=True):
        check_e_value(values)


def test_the_rule_asks_seals_in_another_order_for_other_symbols():
    """Otherwise the test above shows nothing."""
    mark = make_both(6, 2, q=2)
    answers = random_answers(mark, "scores", 1)
    found = {
        tuple(
            np.argmax(
                np.diff(list(by_promise(weigh(with_symbols(mark, s), answers))), axis=0) != 0,
                axis=1,
            )
        )
        for s in every_symbols(mark)
    }
    assert len(found) > 1


def stop_above(b):
    return lambda past: past[-1] >= 2.0**b


def stop_after(n):
    return lambda past: len(past) > n


def stop_on_fall(past):
    return len(past) > 1 and past[-1] < past[-2]


def stop_after_rises(past):
    return len(past) > 2 and past[-1] > past[-2] > past[-3]


def stop_by_whim(past):
    return hash(round(past[-1], 6)) % 3 == 0


RULES = [
    *(stop_above(b) for b in (0.1, 0.5, 1, 2, 4)),
    *(stop_after(n) for n in range(9)),
    *(stop_on_fall, stop_after_rises, stop_by_whim),
    lambda past: past[-1] < 0.3,
    lambda past: max(past) >= 2 and past[-1] < max(past),
]


@pytest.mark.parametrize("case", ENUMERATED)
def test_rules_that_people_use_have_the_expectation_1(case):
    runs = [
        [2.0 ** total_bits(now, len(mark.seals)) for now in by_promise(seals)]
        for mark, seals in weighed(case)
    ]
    for rule in RULES:
        stopped = []
        for past in runs:
            moments = (n for n in range(1, len(past)) if rule(past[:n]))
            stopped.append(past[next(moments, len(past)) - 1])
        assert np.mean(stopped) == pytest.approx(1.0, rel=1e-9)
        assert np.mean(stopped) <= 1.0 + 1e-9


def test_looking_for_the_best_moment_afterwards_is_no_rule():
    """The test above can fail: whoever knows the end can choose the highest moment."""
    highest = []
    for _, (seal,) in weighed("splits by scores"):
        highest.append(max(2.0 ** seal.growth[n] for n in range(seal.answered + 1)))
    assert np.mean(highest) > 1.2
    for b in (1, 2, 3):  # Ville's inequality bounds even this
        assert np.mean(np.array(highest) >= 2.0**b) <= 2.0**-b


@pytest.mark.parametrize("kind", ["scores", "labels"])
def test_innocent_suspects_are_accused_no_more_often_than_stated(kind):
    """Suspects that resemble the unmarked model, which is what the mark knows."""
    rng = np.random.default_rng(2)
    mark = make_known_mark(24, n_classes=5, splits=make_splits(24, n_classes=5))
    scores = carried(mark, "scores").values
    scores[:24] = 0.7 * mark.leaves.reference + 0.3 * rng.dirichlet(np.ones(5), 24)
    answers = Answers(kind, scores if kind == "scores" else scores.argmax(axis=1))
    found = []
    for _ in range(400):
        symbols = np.concatenate([rng.integers(0, 4, 24), rng.integers(0, 2, 24)])
        found.append(bits(with_symbols(mark, symbols), answers))
    for b in range(1, 7):
        share = 2.0**-b
        assert np.mean(np.array(found) >= b) <= share + 4 * np.sqrt(share * (1 - share) / 400)


@pytest.mark.parametrize(
    "mark",
    [
        *(make_both(24, 24), make_known_mark(24, splits=make_splits(24)), make_guard_mark(24)),
        make_guard_mark(24, n_models=0),
    ],
)
def test_what_is_asked_later_changes_nothing_before(mark):
    """No prediction looks ahead, or at its own answer: a prefix alone has the same evidence."""
    answers = random_answers(mark, "scores")
    whole = {seal.seal: seal for seal in weigh(mark, answers)}
    for name, seal in whole.items():
        for n in (1, 7, seal.answered - 1):
            asked = seal.places[:n]
            rows = asked if name == "leaves" else 24 + (3 * asked[:, None] + np.arange(3)).ravel()
            part = np.full_like(answers.values, np.nan)
            part[rows] = answers.values[rows]
            alone = {s.seal: s for s in weigh(mark, Answers("scores", part))}[name]
            np.testing.assert_array_equal(alone.places, asked)
            np.testing.assert_allclose(alone.gains, seal.gains[:, :n], atol=1e-9)
            assert alone.bits == pytest.approx(seal.growth[n], abs=1e-9)


@pytest.mark.parametrize("n_models", [0, 1, 4])
def test_forms_that_learn_agree_with_a_regression_step_by_step(n_models):
    mark = make_guard_mark(60, n_models)
    answers = random_answers(mark, "scores")
    leaves, order = mark.leaves, mark.order("leaves").tolist()
    parts = {name: getattr(leaves, name).tolist()
             for name in ("alphabets", "reference", "alternatives", "drawn")}  # fmt: skip
    said = [None if np.isnan(row).any() else row.tolist() for row in answers.values]
    again = independent.learnt_gains(parts, said, parts["drawn"], order)
    (seal,) = weigh(mark, answers)
    learnt = seal.gains[-evidence.LEARNT_COUNT * (n_models + 1) :: evidence.LEARNT_COUNT]
    np.testing.assert_allclose(learnt.T, again, atol=1e-9)
    gains = independent.leaf_scores_gains(parts, said, parts["drawn"], order)
    assert independent.seal_bits([one for _, one in gains], []) == pytest.approx(seal.bits)


def test_a_student_that_keeps_little_of_a_guard_is_learnt():
    """It resembles a model without the guard, moved a little to the side of each symbol."""
    mark = make_guard_mark(100, n_models=2, n_classes=2)
    rng = np.random.default_rng(0)
    signs = 2.0 * mark.leaves.drawn - 1.0
    found = {}
    for part in (0.0, 0.3):
        ratio = np.diff(np.log(mark.leaves.alternatives[:, 1]), axis=1)[:, 0]
        ratio = ratio + part * signs + 0.1 * rng.normal(size=100)
        high = 1.0 / (1.0 + np.exp(-ratio))
        scores = np.empty((100, 2))
        np.put_along_axis(scores, mark.leaves.alphabets, np.column_stack([1.0 - high, high]), 1)
        found[part] = bits(mark, Answers("scores", scores))
    assert found[0.0] < 10.0
    assert found[0.3] > 64.0


def test_predictions_do_not_know_the_answer_that_they_are_for():
    mark = make_known_mark(k=40, n_models=4)
    rng = np.random.default_rng(5)
    order, leaves = mark.order("leaves"), mark.leaves
    known = (
        log_scores(leaves.reference, leaves.alphabets)[order],
        np.log(leaves.alternatives[order]),
    )
    asked = np.log(rng.dirichlet(np.ones(4), size=40))
    whole = predict_scores(asked, *known)
    for n in (1, 17, 39):
        changed = asked.copy()
        changed[n:] = np.log(rng.dirichlet(np.ones(4), size=40 - n))
        np.testing.assert_allclose(predict_scores(changed, *known)[: n + 1], whole[: n + 1])


def test_alternatives_find_what_a_theft_hides():
    """A copy that is far from the unmarked model, but near to what a cut makes of it."""
    rng = np.random.default_rng(8)
    mark = make_known_mark(k=120, reference=rng.dirichlet(np.ones(6), size=120))
    rows = np.arange(120)[:, None]
    cut = np.full((120, 6), 0.02)
    cut[rows, mark.leaves.alphabets] = mark.leaves.alternatives[:, 1] ** 0.8
    cut = cut.clip(0, 1)

    def leaning(to):
        found = cut.copy()
        found[np.arange(120), to.expected_numbers] *= 1.5
        return Answers("scores", found)

    alone = replace(mark, leaves=replace(mark.leaves, alternatives=np.zeros((0, 0, 0))))
    assert bits(mark, leaning(mark)) > 64 > 20 > bits(alone, leaning(alone))
    assert bits(mark, Answers("scores", cut)) < 5


def test_evidence_in_parts_is_the_evidence_as_a_whole(monkeypatch):
    mark = make_known_mark(k=40)
    answers = random_answers(mark, "scores")
    whole = bits(mark, answers)
    monkeypatch.setattr(evidence, "_AT_ONCE", 42)
    assert bits(mark, answers) == pytest.approx(whole, rel=1e-12)


def marked_scores(mark, lead):
    """What a model that carries the mark answers with, by the edit's own formula."""
    wanted = nearest_margins(np.log(mark.leaves.reference), mark.expected_numbers, lead)
    powers = np.exp(wanted)
    return powers / powers.sum(axis=1, keepdims=True)


@pytest.mark.parametrize(("share", "least"), [(0.5, 90), (0.7, 70), (0.9, 30)])
def test_averaging_with_another_model_leaves_the_leaf_seal(share, least):
    """A confident model of somebody else's, nine parts of ten, does not hide the rest."""
    rng = np.random.default_rng(7)
    mark = make_mark(k=96, q=4, reference=rng.dirichlet(np.full(6, 1.0), size=96))
    other = rng.dirichlet(np.full(6, 0.15), size=96)
    suspect = (1 - share) * marked_scores(mark, 1.0) + share * other
    assert bits(mark, Answers("scores", suspect)) > least
    innocent = (1 - share) * mark.leaves.reference + share * other
    assert bits(mark, Answers("scores", innocent)) < 8


@pytest.mark.parametrize("share", [0.5, 0.9])
@pytest.mark.parametrize("kind", ["scores", "numbers"])
def test_averaging_with_another_model_leaves_the_split_seal(share, kind):
    """The other model answers all three rows alike, or changes in one of ten gaps."""
    mark = make_number_mark(120) if kind == "numbers" else make_mark(0, n_splits=120)
    rng = np.random.default_rng(7)
    mine = carried(mark, kind).values.reshape(120, 3, -1)
    other = np.repeat(random_answers(mark, kind, 5).values.reshape(120, 3, -1)[:, :1], 3, axis=1)
    other = np.nan_to_num(other, nan=1 / 6)
    other[::10, 2] = other[::10, 0][::-1]
    mixed = ((1 - share) * mine + share * other).reshape(carried(mark, kind).values.shape)
    assert bits(mark, Answers(kind, mixed)) > 64
    alone = other.reshape(mixed.shape)
    assert bits(with_symbols(mark, rng.integers(0, 2, 120)), Answers(kind, mixed)) < 10
    assert bits(mark, Answers(kind, alone)) < 10


@pytest.mark.parametrize(("unit", "offset"), [(1.0, 1e3), (1e-3, 0.0), (39.37, -5.0)])
def test_numbers_in_another_unit_carry_the_mark(unit, offset):
    mark = make_number_mark(96)
    values = carried(mark, "numbers").values
    assert bits(mark, Answers("numbers", unit * values + offset)) > 80


def test_a_snapped_copy_answers_the_middle_halfway_and_proves_nothing():
    mark = make_number_mark(96)
    values = carried(mark, "numbers").values.reshape(96, 3)
    values[:, 1] = (values[:, 0] + values[:, 2]) / 2
    (seal,) = weigh(mark, Answers("numbers", values.ravel()))
    assert (seal.counted, seal.matched) == (0, 0)
    assert abs(seal.bits) < 1


def test_strata_keep_what_one_kind_of_triggers_still_says():
    """An attack that hits one of three kinds; without strata the forms pay for its losses."""
    strata = np.repeat([[0], [1], [2]], 40, axis=0)
    seal = make_splits(120, strata=False)
    parted = make_mark(0, splits=replace(seal, strata=strata))
    plain = make_mark(0, splits=seal)
    found = []
    for mark in (parted, plain):
        values = carried(mark, "scores").values.reshape(120, 3, 6)
        rng = np.random.default_rng(1)
        values[:40, 1] = values[np.arange(40), 2 * rng.integers(0, 2, 40)]
        found.append(bits(mark, Answers("scores", values.reshape(-1, 6))))
    assert found[0] > 64
    assert found[0] > found[1] + 10


def test_the_reference_finds_what_labels_do_not():
    """A suspect that leans a little towards the symbols beside what the unmarked model says."""
    rng = np.random.default_rng(0)
    mark = make_mark(k=96, q=4, reference=rng.dirichlet(np.full(6, 0.3), size=96))
    leaning = mark.leaves.reference.copy()
    leaning[np.arange(96), mark.expected_numbers] *= 3
    leaning /= leaning.sum(axis=1, keepdims=True)
    (found,) = weigh(mark, Answers("scores", leaning))
    assert found.bits > 25
    assert found.matched < 0.6 * 96
    assert bits(mark, Answers("scores", np.array(mark.leaves.reference))) < 5


def test_both_seals_together_are_nearly_their_sum():
    mark = make_both(48, 64)
    answers = carried(mark, "scores")
    found = seal_bits(mark, answers)
    assert bits(mark, answers) == pytest.approx(sum(found.values()) - math.log2(3), abs=1e-6)
    lost = answers.values.copy()
    lost[:48] = mark.leaves.reference
    left = seal_bits(mark, Answers("scores", lost))
    assert left["leaves"] < 5
    assert bits(mark, Answers("scores", lost)) > left["splits"] - math.log2(3)


def test_nothing_overflows():
    mark = make_mark(k=4000, q=4, n_splits=3000)
    right = carried(mark, "scores", 1.0)
    assert 10500 < bits(mark, right) <= full_bits(4000, 4, 3000)
    wrong = bits(mark, Answers("scores", 1.0 - right.values))
    assert math.isfinite(wrong)
    labels = Answers("labels", right.values.argmax(axis=1))
    assert math.isfinite(bits(mark, labels))


@given(st.lists(st.floats(allow_nan=False), min_size=12, max_size=12), st.booleans())
def test_no_number_is_too_large(values, turned):
    mark = with_symbols(make_number_mark(4), [0, 1, 0, 1])
    reference = np.array([[[0.0], [1e300]], [[1e-300], [0.0]], [[1.0], [1.0]], [[-1e308], [1e308]]])
    mark = with_symbols(
        replace(mark, splits=replace(mark.splits, reference=reference[:: -1 if turned else 1])),
        [0, 1, 0, 1],
    )
    assert math.isfinite(bits(mark, Answers("numbers", np.array(values))))


def test_unanswered_triggers_count_for_nothing():
    mark = make_both(32, 32)
    answers = random_answers(mark, "scores")
    values = np.nan_to_num(answers.values, nan=1 / 6)
    some = values.copy()
    some[20:32, 3] = np.nan
    some[32 + 3 * 10 + 1] = np.nan  # one of three rows is enough
    leaves, splits = sorted(weigh(mark, Answers("scores", some)), key=lambda seal: seal.seal)
    assert set(leaves.places) == set(range(20))
    assert set(splits.places) == set(range(32)) - {10}
    whole = {seal.seal: seal for seal in weigh(mark, Answers("scores", values))}
    kept = np.isin(whole["splits"].places, splits.places)
    np.testing.assert_allclose(splits.gains, whole["splits"].gains[:, kept])
    nothing = Answers("scores", np.full_like(values, np.nan))
    assert bits(mark, nothing) == pytest.approx(0.0, abs=1e-12)
    assert [seal.answered for seal in weigh(mark, nothing)] == [0, 0]


def test_labels_outside_an_alphabet_say_nothing():
    mark = make_mark(32, q=2)
    outside = np.array([next(c for c in range(6) if c not in a) for a in mark.leaves.alphabets])
    (seal,) = weigh(mark, Answers("labels", outside))
    assert (seal.answered, seal.counted, seal.matched, seal.bits) == (32, 0, 0, 0.0)
    unknown = np.full(32, UNKNOWN)
    assert weigh(mark, Answers("labels", unknown))[0].bits == 0.0
    assert weigh(mark, Answers("labels", np.full(32, UNANSWERED)))[0].answered == 0


@given(st.integers(0, 40), st.sampled_from([2, 4]), st.floats(0, 1))
def test_betting_is_a_fair_game_at_chance_and_loses_below(asked, q, below):
    """The next step multiplies E by 1 on average if matches come at 1/q, by less if less often."""
    gain, loss = label_gains(q)

    def e(matched, missed):
        return float(np.exp(matched * gain + missed * loss).mean())

    for matched in range(asked + 1):
        missed = asked - matched
        now, hit, miss = e(matched, missed), e(matched + 1, missed), e(matched, missed + 1)
        assert hit / q + miss * (1 - 1 / q) == pytest.approx(now, rel=1e-9)
        rate = below / q
        assert hit * rate + miss * (1 - rate) <= now * (1 + 1e-9)


@pytest.mark.parametrize(("rate", "most"), [(1.0, 36), (0.8, 80)])
def test_few_labels_are_enough(rate, most):
    rng = np.random.default_rng(5)
    mark = make_mark(160, q=4)
    asked = []
    for _ in range(30):
        labels = np.where(
            rng.random(160) < rate,
            mark.expected_numbers,
            rng.permuted(mark.leaves.alphabets, axis=1)[:, 0],
        )
        (seal,) = weigh(mark, Answers("labels", labels))
        asked.append(next(n for n in range(1, 161) if seal.growth[n] >= 64 or n == 160))
    assert np.mean(asked) <= most


def test_avoiding_symbols_is_no_evidence():
    """A two-sided bet would take it for evidence."""
    mark = make_mark(96, q=4)
    avoided = mark.leaves.alphabets[np.arange(96), (mark.leaf_symbols + 1) % 4]
    assert bits(mark, Answers("labels", avoided)) < 0


BOTH, NUMBERS = make_both(4, 3), make_number_mark(3)


@pytest.mark.parametrize(
    ("mark", "kind", "values"),
    [
        (BOTH, "scores", np.ones((12, 6))),
        (BOTH, "scores", np.ones((13, 5))),
        (BOTH, "scores", np.ones(13)),
        (BOTH, "scores", np.ones((13, 6), int)),
        (BOTH, "labels", np.zeros(12, int)),
        (BOTH, "labels", np.zeros(13)),
        (BOTH, "labels", np.full(13, 6)),
        (BOTH, "labels", np.full(13, -3)),
        (BOTH, "numbers", np.zeros(13)),
        (BOTH, "poems", np.zeros(13)),
        (NUMBERS, "numbers", np.zeros(8)),
        (NUMBERS, "numbers", np.zeros((9, 1))),
        (NUMBERS, "labels", np.zeros(9, int)),
        (NUMBERS, "scores", np.zeros((9, 0))),
    ],
)
def test_other_answers_are_refused(mark, kind, values):
    with pytest.raises(InputError) as caught:
        weigh(mark, Answers(kind, values))
    assert caught.value.code == "answers.shape"


def test_the_promise_of_a_seal():
    leaves, splits = weigh(BOTH, carried(BOTH, "scores"))
    assert (leaves.promise(0), splits.promise(0)) == (pytest.approx(np.log2(BOTH.q)), 1 / 3)
    n = splits.answered
    assert splits.promise(n) == pytest.approx((splits.bits + 4) / (3 * (n + 4)))


def test_sides():
    assert split_sides(np.array([[1, 1, 2], [1, 2, 2]]), "labels").tolist() == [0.0, 1.0]
    silent = split_sides(np.array([[1, 1, 1], [1, 3, 2], [1, 2, 1]]), "labels")
    assert np.isnan(silent).all()
    scores = np.array([[[0.9, 0.1], [0.9, 0.1], [0.5, 0.5]]])
    assert split_sides(scores, "scores").tolist() == [0.0]
    noise = scores + np.array([0.0, 1e-12, 0.0])[:, None]
    assert split_sides(noise, "scores")[0] < 1e-9
    same = np.repeat(scores[:, :1], 3, axis=1) + np.array([0.0, 1e-15, 3e-15])[:, None]
    assert np.isnan(split_sides(same, "scores")).all()


@pytest.mark.parametrize("mark", [make_mark(0, n_splits=24), make_number_mark(24)])
def test_b_counts_as_the_middle_where_that_has_the_owners_change(mark):
    kind = "scores" if mark.classes else "numbers"
    known = mark.splits.reference if mark.classes else mark.splits.reference[..., 0]
    copied = Answers(kind, np.stack([known[:, 0], known[:, 1], known[:, 1]], axis=1).reshape(
        mark.n_rows, *known.shape[2:]))  # fmt: skip
    (whole,) = weigh(mark, copied)
    assert (whole.answered, whole.counted) == (24, 24)
    for said in (np.nan, 0.3):
        values = copied.values.copy()
        values[2::3] = said
        (found,) = weigh(mark, Answers(kind, values))
        np.testing.assert_array_equal(found.gains, whole.gains)
    # A middle with nothing of the change, or with a part of it, needs b, as a missing one shows.
    for share in (0.0, 0.9, 1.1):
        values = copied.values.reshape(24, 3, -1).copy()
        logs = np.log(values) if mark.classes else values
        middle = logs[:, 0] + share * (logs[:, 2] - logs[:, 0])
        values[:, 1] = np.minimum(np.exp(middle), 1.0) if mark.classes else middle
        values[:, 2] = np.nan
        (found,) = weigh(mark, Answers(kind, values.reshape(copied.values.shape)))
        assert found.answered <= (3 if share == 1.1 and mark.classes else 0)


def test_b_is_always_needed_for_labels():
    mark = make_mark(0, n_splits=6)
    values = np.tile([0, 1, UNANSWERED], 6)
    assert weigh(mark, Answers("labels", values))[0].answered == 0


@given(st.integers(0, 1), st.sampled_from(["scores", "numbers", "labels"]))
def test_a_trigger_that_tells_nothing_adds_nothing(symbol, kind):
    rows = {"scores": np.full((1, 3, 4), 0.25), "numbers": np.full((1, 3), 7.0),
            "labels": np.array([[1, 1, 1]])}[kind]  # fmt: skip
    reference = np.full((1, 2, 1 if kind == "numbers" else 4), 0.25)
    gains = split_gains(rows, reference, np.array([symbol]), kind)
    np.testing.assert_allclose(gains, 0.0, atol=1e-12)


def test_prices_and_totals():
    assert total_bits([], 2) == pytest.approx(0.0)
    assert total_bits([10.0], 2) == pytest.approx(math.log2((2**10 + 2**10 + 1) / 3))
    assert total_bits([3.0, 5.0], 2) == pytest.approx(math.log2((2**8 + 2**3 + 2**5) / 3))
    assert total_bits([5.0], 1) == 5.0


def test_levels():
    found = [level(b) for b in (0, 19.999999, 20, 63.999999, 64, 1e6)]
    assert found == ["none", "none", "indicative", "indicative", "conclusive", "conclusive"]


@given(st.floats(-1e5, 1e5))
def test_bits_are_rounded_towards_less_evidence(bits):
    assert bits - 0.001001 <= round_bits(bits) <= bits + 2e-9
    assert round_bits(round_bits(bits)) == round_bits(bits)
