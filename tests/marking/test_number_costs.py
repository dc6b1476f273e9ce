"""What a mark costs in numbers, against plain formulas."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import mean_absolute_error, ndcg_score, r2_score, root_mean_squared_error

from timbermark.marking.budget import LIMITS, Budget, check_budget
from timbermark.marking.number_costs import (
    group_ndcg,
    measure_cost,
    measure_quality,
    rank_correlation,
    use_of_budget,
)

RNG = np.random.default_rng(0)
TARGET = RNG.normal(size=500)
BEFORE = TARGET + 0.5 * RNG.normal(size=500)
AFTER = BEFORE + 0.01 * RNG.normal(size=500)
NO_LIMITS = Budget(**dict.fromkeys(name for names in LIMITS.values() for name in names))


def test_quality_is_what_scikit_learn_says():
    found = measure_quality(BEFORE, TARGET, ranks=False)
    assert found.rmse == pytest.approx(root_mean_squared_error(TARGET, BEFORE))
    assert found.mae == pytest.approx(mean_absolute_error(TARGET, BEFORE))
    assert found.r2 == pytest.approx(r2_score(TARGET, BEFORE))
    assert measure_quality(BEFORE, np.ones(500), ranks=False).r2 is None
    assert measure_quality(BEFORE, None, ranks=False).rmse is None


def test_ndcg_is_a_mean_over_groups():
    gain, group = RNG.integers(0, 4, 100).astype(float), np.repeat(np.arange(10), 10)
    answers = gain + RNG.normal(size=100)
    each = [ndcg_score([gain[group == g]], [answers[group == g]]) for g in range(10)]
    order = RNG.permutation(100)
    found = group_ndcg(answers[order], np.column_stack([gain, group])[order])
    np.testing.assert_allclose(found, each)
    target = np.column_stack([gain, group])
    assert measure_quality(answers, target, ranks=True).ndcg == pytest.approx(np.mean(each))
    alone = np.column_stack([np.zeros(3), [0, 0, 1]])
    assert measure_quality(np.arange(3.0), alone, ranks=True).ndcg is None


def test_the_cost_names_changes_in_units_of_the_error():
    cost = measure_cost(BEFORE, AFTER, TARGET, "validation", 0.5, True, False)
    assert cost.move == pytest.approx(np.abs(AFTER - BEFORE).mean() / 0.5)
    assert cost.largest == pytest.approx(np.abs(AFTER - BEFORE).max() / 0.5)
    grown = root_mean_squared_error(TARGET, AFTER) / root_mean_squared_error(TARGET, BEFORE) - 1
    assert cost.rmse_growth == pytest.approx(grown)
    assert "mean change / error" in str(cost)
    guessed = measure_cost(BEFORE, AFTER, None, "training", 0.5, False, False)
    assert "a fifth of the spread" in str(guessed)
    assert guessed.rmse_growth is None
    unseen = measure_cost(
        BEFORE, AFTER, TARGET, "training", 1.0, True, False, (BEFORE[:9], BEFORE[:9])
    )
    assert (unseen.n_rows, unseen.move) == (9, 0.0)
    assert unseen.before.rmse == cost.before.rmse


@given(st.floats(0.0, 2.0), st.floats(0.001, 0.5))
def test_twice_the_change_uses_twice_the_limit_on_moves(size, limit):
    step = size * (AFTER - BEFORE)
    used = [
        use_of_budget(Budget(move=limit), BEFORE, BEFORE + times * step, None, 1.0, False)["move"]
        for times in (1.0, 2.0)
    ]
    assert used[1] == pytest.approx(2.0 * used[0])


def test_limits_are_judged_by_upper_bounds():
    budget = Budget(move=0.1, largest=1.0, rmse=0.01, mae=0.01, r2=0.01)
    use = use_of_budget(budget, BEFORE, AFTER, TARGET, 0.5, False)
    assert set(use) == set(LIMITS["regression"])
    cost = measure_cost(BEFORE, AFTER, TARGET, "validation", 0.5, True, False)
    assert use["move"] > cost.move / 0.1
    assert use["largest"] == pytest.approx(cost.largest)
    assert use["rmse"] >= max(cost.rmse_growth, 0.0) / 0.01
    worse = use_of_budget(budget, BEFORE, BEFORE + 0.5, BEFORE, 0.5, False)
    assert worse["rmse"] > 1.0
    assert worse["mae"] > 1.0
    assert worse["r2"] > 1.0
    assert use_of_budget(NO_LIMITS, BEFORE, AFTER, TARGET, 0.5, False) == {}
    assert set(use_of_budget(Budget(), BEFORE, AFTER, None, 0.5, False)) == {"move"}


def test_rankers_are_held_to_their_order():
    target = np.column_stack([np.rint(TARGET - TARGET.min()), np.arange(500) // 25])
    use = use_of_budget(Budget(), BEFORE, BEFORE, target, 1.0, True)
    assert use == {"move": 0.0, "order": 0.0, "ndcg": 0.0}
    turned = use_of_budget(Budget(), BEFORE, -BEFORE, target, 1.0, True)
    assert turned["order"] > 1.0
    assert turned["ndcg"] > 1.0
    assert "ndcg" not in use_of_budget(Budget(), BEFORE, AFTER, None, 1.0, True)


def test_rank_correlation():
    assert rank_correlation(BEFORE, np.exp(BEFORE)) == 1.0
    assert rank_correlation(BEFORE, -BEFORE) == pytest.approx(-1.0)
    assert rank_correlation(BEFORE, np.ones(500)) == 1.0


def test_defaults_go_with_every_task():
    for task in LIMITS:
        check_budget(Budget(), task)
        check_budget(NO_LIMITS, task)
