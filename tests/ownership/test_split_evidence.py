import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from timbermark.errors import InputError
from timbermark.ownership.split_evidence import (
    combine_seals,
    mixed_bits,
    split_evidence,
    split_gains,
)

K = 4  # 2^4 outcomes of the symbols


@st.composite
def suspects(draw):
    """Return answers of any suspect, references, divisions, and the kind of answers."""
    kind = draw(st.sampled_from(["scores", "numbers", "labels"]))
    width = draw(st.integers(2, 4)) if kind == "scores" else 1
    number = st.one_of(
        st.sampled_from([0.0, 0.5, 1.0, np.nan]),
        st.floats(0.0, 1.0) if kind == "scores" else st.floats(-1e6, 1e6),
    )
    if kind == "labels":
        number = st.sampled_from([0.0, 1.0, 2.0, np.nan])
    answers = np.array([draw(number) for _ in range(K * 3 * width)]).reshape(K, 3, width)
    known = st.floats(0.0, 1.0) if kind == "scores" else st.floats(-1e6, 1e6)
    reference = np.array([draw(known) for _ in range(K * 2 * width)]).reshape(K, 2, width)
    strata = [
        np.array([draw(st.integers(0, 2)) for _ in range(K)])
        for _ in range(draw(st.integers(0, 2)))
    ]
    return answers, reference, strata, kind


@given(suspects())
@settings(max_examples=150, deadline=None)
def test_mean_over_all_symbols_is_one(suspect):
    answers, reference, strata, kind = suspect
    values = [
        2.0 ** split_evidence(answers, reference, symbols, kind, strata)
        for symbols in itertools.product([0, 1], repeat=K)
    ]
    assert np.mean(values) == pytest.approx(1.0, rel=1e-9)


@given(suspects(), st.permutations(range(K)), st.floats(0.1, 10.0))
@settings(max_examples=100, deadline=None)
def test_mean_is_one_whenever_one_stops(suspect, order, enough):
    """Stop as soon as the evidence reaches a level: Ville's inequality needs exactly this."""
    answers, reference, strata, kind = suspect
    total = 0.0
    for symbols in itertools.product([0, 1], repeat=K):
        gains = split_gains(answers, reference, symbols, kind)
        for n in range(1, K + 1):
            asked = np.array(order[:n])
            bits = mixed_bits(gains[:, asked], [part[asked] for part in strata])
            if 2.0**bits >= enough or n == K:
                total += 2.0**bits
                break
    assert total / 2**K == pytest.approx(1.0, rel=1e-9)


def test_mean_of_both_seals_is_one():
    splits, leaves = np.array([0.5, 1.5]), np.array([0.25, 1.75])
    values = [
        2.0 ** combine_seals(float(np.log2(s)), float(np.log2(e))) for s in splits for e in leaves
    ]
    assert np.mean(values) == pytest.approx(1.0)


def _copy(k, share, other, rng):
    """Return answers of a copy that is averaged with another model, references and symbols."""
    reference = rng.dirichlet(np.ones(3), size=(k, 2))
    symbols = rng.integers(2, size=k)
    marked = np.stack([reference[:, 0], reference[np.arange(k), symbols], reference[:, 1]], axis=1)
    return share * marked + (1.0 - share) * other, reference, symbols


def test_untouched_copy_proves_nearly_a_bit_for_each_trigger():
    rng = np.random.default_rng(0)
    answers, reference, symbols = _copy(100, 1.0, 0.0, rng)
    assert split_evidence(answers, reference, symbols, "scores") > 94.0
    assert split_evidence(answers, reference, 1 - symbols, "scores") < 0.0


def test_average_with_a_model_that_also_jumps_still_proves():
    rng = np.random.default_rng(1)
    other = rng.dirichlet(np.ones(3), size=(100, 1)).repeat(3, axis=1)
    jumps = rng.random(100) < 0.3
    other[jumps, 1:] = rng.dirichlet(np.ones(3), size=(int(jumps.sum()), 1))
    answers, reference, symbols = _copy(100, 0.1, other, rng)
    assert split_evidence(answers, reference, symbols, "scores") > 60.0


def test_missing_ends_are_taken_from_the_reference():
    rng = np.random.default_rng(2)
    answers, reference, symbols = _copy(100, 1.0, 0.0, rng)
    answers[:, [0, 2]] = np.nan
    assert split_evidence(answers, reference, symbols, "scores") > 94.0


def test_missing_middle_says_nothing():
    rng = np.random.default_rng(3)
    answers, reference, symbols = _copy(20, 1.0, 0.0, rng)
    answers[:, 1] = np.nan
    assert split_evidence(answers, reference, symbols, "scores") == 0.0


def test_divisions_keep_what_an_attack_left():
    """Half of the triggers are answered at random: apart from them, the others keep their say."""
    rng = np.random.default_rng(4)
    answers, reference, symbols = _copy(200, 1.0, 0.0, rng)
    hit = np.arange(200) < 100
    answers[hit, 1] = reference[np.flatnonzero(hit), rng.integers(2, size=100)]
    together = split_evidence(answers, reference, symbols, "scores")
    apart = split_evidence(answers, reference, symbols, "scores", [hit])
    assert together < 60.0 < 85.0 < apart


def test_numbers_on_any_scale():
    rng = np.random.default_rng(5)
    reference = rng.normal(size=(80, 2, 1))
    symbols = rng.integers(2, size=80)
    answers = np.stack([reference[:, 0], reference[np.arange(80), symbols], reference[:, 1]], 1)
    assert split_evidence(3.0 * answers[..., 0] + 10.0, reference, symbols, "numbers") > 74.0


def test_labels_tell_only_where_they_differ():
    answers = [[0, 1, 1], [0, 0, 0], [0, 2, 1], [1, 1, 0]]
    gains = split_gains(answers, np.zeros((4, 2, 3)), [1, 1, 1, 1], "labels")
    assert (gains[:, 0] > 0).all()
    assert (gains[:, 1:3] == 0).all()
    assert (gains[:, 3] < 0).all()


def test_shapes_that_do_not_fit_are_refused():
    with pytest.raises(InputError, match="do not fit together"):
        split_gains(np.zeros((2, 2, 3)), np.zeros((2, 2, 3)), [0, 1], "scores")


@pytest.mark.parametrize("jump", [1e-300, 1.1e-148, 1e-20, 1.0, 1e200, 1e308])
@pytest.mark.parametrize("size", [0.0, 1e-200, 1317.0, 1e308])
def test_numbers_of_any_size_are_judged_without_overflow(jump, size):
    answers = np.array([[0.0, size, -size], [0.0, 0.0, size], [size, -size, size]])
    reference = np.array([[[0.0], [jump]], [[jump], [0.0]], [[-jump], [jump]]])
    values = [
        2.0 ** split_evidence(answers, reference, symbols, "numbers")
        for symbols in itertools.product([0, 1], repeat=3)
    ]
    assert np.mean(values) == pytest.approx(1.0, rel=1e-9)
