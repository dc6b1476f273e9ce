from types import SimpleNamespace

import numpy as np
import pytest

from tests.ownership.making import make_guard_mark
from timbermark.ownership.evidence import Answers, mean_bits, weigh
from timbermark.ownership.evidence import label_gains as gains_of_labels
from timbermark.verification.inquiry import GIVE_UP_BITS, Inquiry, Known, is_hopeless


def sequential_evidence(matched, n, q):
    """The bits of so many matches of n labels, in their order."""
    gain, loss = gains_of_labels(q)
    return mean_bits(matched * gain + (n - matched) * loss)


def average_questions(rate, bits, q, longest=400):
    """The mean number of questions until so many bits, exactly: over all paths at once."""
    alive = np.zeros(longest + 1)  # the chance of each number of matches, not yet stopped
    alive[0] = 1.0
    total = 0.0
    for n in range(1, longest + 1):
        total += alive.sum()
        alive = alive * (1 - rate) + np.append(0.0, alive[:-1]) * rate
        for matched in np.flatnonzero(alive[: n + 1] > 0):
            if sequential_evidence(int(matched), n, q) >= bits:
                alive[matched] = 0.0
        if alive.sum() < 1e-9:
            return total
    raise AssertionError("it does not end")


@pytest.mark.parametrize(("rate", "most"), [(1.0, 36), (0.8, 75)])
def test_few_questions_are_enough(rate, most):
    assert average_questions(rate, 64, 4, longest=260) <= most


def label_gains(matches, q=4):
    gain, loss = (part / np.log(2) for part in gains_of_labels(q))
    return np.where(matches, gain[:, np.newaxis], loss[:, np.newaxis])


def test_innocent_suspects_are_given_up_soon_and_copies_never():
    rng = np.random.default_rng(0)
    ends = []
    for _ in range(30):
        gains = label_gains(rng.random(128) < 0.25)
        ends.append(next(n for n in range(129) if is_hopeless([(gains[:, :n], 128, 4)], 64.0)))
    assert np.mean(ends) < 50
    for n in range(128):
        assert not is_hopeless([(label_gains(np.ones(n, dtype=bool)), 128, 4)], 64.0)


def test_a_suspect_that_is_just_good_enough_is_rarely_given_up():
    """The promise: a mean gain of what is needed for each question, and 2^-10 at most."""
    rng = np.random.default_rng(1)
    k, needed, wrong = 100, 50.0, 0
    for _ in range(1000):
        # Gains of 2 or -1 bits with a mean of needed / k, as heavy a gamble as there is.
        gains = np.where(rng.random((1, k)) < 0.5, 2.0, -1.0)
        checks = range(5, 60, 5)  # where even nothing but gains could still reach it
        wrong += any(
            is_hopeless([(gains[:, :n], k, 4)], needed)
            and gains[0, :n].sum() + 2 * (k - n) >= needed
            for n in checks
        )
    assert wrong <= 1000 * 2**-GIVE_UP_BITS * 4


def test_it_is_hopeless_where_even_perfect_answers_are_not_enough():
    gains = np.full((3, 70), 0.0)
    assert is_hopeless([(gains, 100, 4)], 64.0)
    assert not is_hopeless([(gains[:, :30], 128, 4)], 30.0)
    # One form that can still get there is enough.
    gains[1] = 1.0
    assert not is_hopeless([(gains, 100, 4)], 64.0)


def test_nothing_asked_is_not_hopeless():
    assert not is_hopeless([(np.empty((64, 0)), 128, 4)], 64.0)
    assert is_hopeless([(np.empty((64, 0)), 20, 4)], 64.0)


def test_two_seals_are_hopeless_only_together():
    """A seal that cannot do it alone was given up, and a copy whose seals do it together with it.

    Labels of a default mark of digits behind an address with a price of 35 bits: the leaves show 96
    bits of 99, and the splits the rest.
    """
    rng = np.random.default_rng(2)
    shows = rng.permutation(318) < 17
    splits = np.array([[0.0], [1.0]]) * shows  # one form says nothing, one reads labels
    for n in range(97):
        seals = [(np.ones((2, n)), 96, 2), (splits[:, :4], 318, 2)]
        assert not is_hopeless(seals, 99.0)
    for n in range(319):
        assert not is_hopeless([(np.ones((2, 96)), 96, 2), (splits[:, :n], 318, 2)], 99.0)
    innocent = label_gains(rng.integers(0, 2, 414) == 1, q=2)
    ends = next(
        n for n in range(96)
        if is_hopeless([(innocent[:, :n], 96, 2), (innocent[:, 96 : 96 + n], 318, 2)], 99.0)
    )  # fmt: skip
    assert ends < 40


def ending_after(n, mark, scores):
    """Return why asking a guard's suspect ends after n answers of all."""
    given = np.full_like(scores, np.nan)
    first = mark.order("leaves")[:n]
    given[first] = scores[first]
    answers = Answers("scores", given)
    free = SimpleNamespace(prices=())
    inquiry = Inquiry(mark, free, free, free, None, limit=64.0)
    inquiry._known = Known(None, answers, None, weigh(mark, answers))
    return inquiry.ending()


def test_forms_that_learn_are_waited_for_as_long_as_perfect_answers_would_do():
    """A guard's suspect shows little at first; it is given up when 64 bits are out of reach."""
    mark = make_guard_mark(120, n_models=2, n_classes=2)
    rng = np.random.default_rng(0)
    own = np.diff(np.log(mark.leaves.alternatives[:, 1]), axis=1)[:, 0]
    ends = {}
    for part in (0.0, 0.35):
        ratio = own + part * (2.0 * mark.leaves.drawn - 1.0) + 0.1 * rng.normal(size=120)
        high = 1.0 / (1.0 + np.exp(-ratio))
        scores = np.empty((120, 2))
        np.put_along_axis(scores, mark.leaves.alphabets, np.column_stack([1.0 - high, high]), 1)
        found = [ending_after(n, mark, scores) for n in range(4, 121, 4)]
        ends[part] = next((end for end in found if end is not None), None)
        if part == 0.0:
            assert found.index("hopeless") >= (120 - 64) // 4 - 2
    assert ends == {0.0: "hopeless", 0.35: "enough"}
