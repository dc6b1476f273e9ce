"""One round of the edit, against the same written row by row."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.editing.naive import naive_masses, naive_round
from timbermark.kernels.editing import (
    SPLIT,
    GainLimits,
    HeldRows,
    Leaves,
    PulledRows,
    edit_round,
    weigh_leaves,
)

numbers = st.floats(-3, 3)


@st.composite
def problems(draw):
    """Leaves of rows and triggers in a few trees, some with a single leaf."""
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    n, k = draw(st.integers(0, 8)), draw(st.integers(0, 3))
    leaf, trigger_leaf = (
        np.array([[draw(st.integers(0, size - 1)) for _ in range(m)] for size in sizes], np.uint8)
        for m in (n, k)
    )

    def column(size, inner):
        drawn = draw(st.lists(inner, min_size=int(size), max_size=int(size)))
        return np.array(drawn, np.float64)

    first = np.cumsum([0, *sizes])
    return {
        "leaf": leaf.reshape(len(sizes), n),
        "first": first,
        "order": np.array(draw(st.permutations(range(len(sizes))))),
        "weight": column(n, st.sampled_from([0.0, 0.25, 1.0, 2.0**-20])),
        "ridge": column(first[-1], st.sampled_from([0.0, 0.5, 1.0, np.inf])),
        "trigger_leaf": trigger_leaf.reshape(len(sizes), k),
        "pull": column(k, st.sampled_from([0.0, 1.0, 7.5])),
        "target": column(k, numbers),
        "drift": column(n, numbers),
        "shift": column(k, numbers),
        "change": np.where(draw(st.booleans()), column(first[-1], numbers), 0.0),
    }


def no_limits(first):
    """Trees whose file shows no gains: leaves move freely."""
    leaves = int(first[-1])
    none = np.zeros(len(first), np.int64)
    return GainLimits(np.zeros(0, SPLIT), none, np.zeros(leaves), np.ones(leaves))


def run(problem, *, naive=False):
    p = {name: array.copy() for name, array in problem.items()}
    mass = np.empty(p["first"][-1])
    weigh_leaves(p["leaf"], p["first"], p["weight"], mass)
    if naive:
        naive_round(
            p["leaf"], p["first"], p["order"], p["weight"], mass, p["ridge"], p["trigger_leaf"],
            p["pull"], p["target"], p["drift"], p["shift"], p["change"],
        )  # fmt: skip
    else:
        edit_round(
            p["order"],
            Leaves(p["first"], mass, p["ridge"], p["change"]),
            HeldRows(p["leaf"], p["weight"], p["drift"]),
            PulledRows(p["trigger_leaf"], p["pull"], p["target"], p["shift"]),
            no_limits(p["first"]),
        )
    return p["drift"], p["shift"], p["change"]


@given(problems())
def test_a_round_is_the_naive_round(problem):
    for fast, slow in zip(run(problem), run(problem, naive=True), strict=True):
        np.testing.assert_allclose(fast, slow, rtol=1e-9, atol=1e-9)


@given(problems())
def test_masses_are_sums_of_weights(problem):
    mass = np.full(problem["first"][-1], np.nan)
    weigh_leaves(problem["leaf"], problem["first"], problem["weight"], mass)
    assert mass.tolist() == naive_masses(problem["leaf"], problem["first"], problem["weight"])


@given(problems(), st.randoms(use_true_random=False))
def test_the_order_of_rows_changes_no_bit(problem, random):
    places = list(range(problem["leaf"].shape[1]))
    random.shuffle(places)
    other = problem | {
        "leaf": np.ascontiguousarray(problem["leaf"][:, places]),
        "weight": problem["weight"][places],
        "drift": problem["drift"][places],
    }
    drift, shift, change = run(problem)
    drift_2, shift_2, change_2 = run(other)
    assert drift[places].tobytes() == drift_2.tobytes()
    assert shift.tobytes() == shift_2.tobytes()
    assert change.tobytes() == change_2.tobytes()


@given(problems())
def test_rows_and_triggers_move_with_their_leaves(problem):
    before = problem["change"]
    drift, shift, change = run(problem)
    for old, new, leaf in (
        (problem["drift"], drift, problem["leaf"]),
        (problem["shift"], shift, problem["trigger_leaf"]),
    ):
        moved = sum(
            (change - before)[problem["first"][t] + leaf[t]] for t in range(len(problem["order"]))
        )
        np.testing.assert_allclose(new - old, moved, atol=1e-9)


@pytest.mark.parametrize("kind", [np.uint8, np.uint16, np.int32])
def test_one_tree_takes_the_weighted_mean(kind):
    # Leaf 0: weights 1 and 0.5, a ridge of 1 and a trigger of weight 2 that shall move by 3.
    leaf, trigger_leaf = np.array([[0, 0, 1]], kind), np.array([[0]], kind)
    first, weight = np.array([0, 2]), np.array([1.0, 0.5, 1.0])
    mass, change = np.array([1.5, 1.0]), np.zeros(2)
    drift, shift = np.zeros(3), np.zeros(1)
    edit_round(
        np.array([0]),
        Leaves(first, mass, np.ones(2), change),
        HeldRows(leaf, weight, drift),
        PulledRows(trigger_leaf, np.array([2.0]), np.array([3.0]), shift),
        no_limits(first),
    )
    best = 2.0 * 3.0 / (1.5 + 1.0 + 2.0)
    assert change.tolist() == [best, 0.0]
    assert drift.tolist() == [best, best, 0.0]
    assert shift.tolist() == [best]
