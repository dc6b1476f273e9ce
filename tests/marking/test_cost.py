"""What a mark costs, against scikit-learn, SciPy and resampling, and how a budget is judged."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, spearmanr
from sklearn.metrics import (
    accuracy_score,
    average_precision_score,
    log_loss,
    mean_absolute_error,
    ndcg_score,
    r2_score,
    recall_score,
    roc_auc_score,
    root_mean_squared_error,
)

from timbermark.marking.budget import LIMITS, Budget, beyond_limits, check_budget, judge_figures
from timbermark.marking.cost import (
    Cost,
    RowSet,
    label_figures,
    number_figures,
    share_at_most,
)
from timbermark.marking.tallies import Counting, group_ndcg

NO_LIMITS = Budget(**dict.fromkeys(name for names in LIMITS.values() for name in names))


def answers(n_classes, n=400, seed=0, moved=0.3):
    """Probabilities before and after, and labels that the first ones mostly meet."""
    rng = np.random.default_rng(seed)
    margins = rng.normal(size=(n, n_classes)) * 2
    label = (margins + rng.gumbel(size=margins.shape)).argmax(axis=1)

    def shares(m):
        powers = np.exp(m)
        return powers / powers.sum(axis=1, keepdims=True)

    return shares(margins), shares(margins + moved * rng.normal(size=margins.shape)), label


def rare(n=20_000, seed=0, moved=0.2, shift=0.0):
    """The same for two classes of which the second is rare."""
    rng = np.random.default_rng(seed)
    odds = rng.normal(size=n) * 1.7 - 6.0
    label = (rng.random(n) < 1.0 / (1.0 + np.exp(-odds))).astype(int)
    after = odds + moved * rng.normal(size=n) + shift
    before, after = (
        np.column_stack([1.0 - p, p]) for p in (1.0 / (1.0 + np.exp(-o)) for o in (odds, after))
    )
    return before, after, label


def measure(before, after, target, classes=None, code="validation", counting=None):
    """Figures of classes or, with a counting, of numbers, as a `Cost`."""
    counting = counting or Counting("labels")
    tally = counting.tally(before, after, target)
    rows = RowSet(code, tally.n, tally.estimated)
    if counting.kind == "labels":
        classes = list(range(before.shape[1])) if classes is None else np.asarray(classes).tolist()
        found = label_figures(tally, classes, rows)
        return Cost("classification", rows, tuple(found), tuple(classes))
    ranks = counting.kind == "ranks"
    found = number_figures(tally, counting.error, ranks, rows)
    task = "ranking" if ranks else "regression"
    return Cost(task, rows, tuple(found), (), counting.error, counting.known_error)


def use(budget, *args, **options):
    cost = measure(*args, **options)
    return judge_figures(cost.task, budget, cost.figures)


@pytest.mark.parametrize("n_classes", [2, 3, 5])
def test_figures_are_those_of_scikit_learn(n_classes):
    before, after, label = answers(n_classes)
    cost = measure(before, after, label)
    for side, p in (("before", before), ("after", after)):
        found = p.argmax(axis=1)

        def value(code, label=None, side=side):
            return getattr(cost[code if label is None else (code, label)], side)

        assert value("accuracy") == pytest.approx(accuracy_score(label, found))
        assert value("log_loss") == pytest.approx(log_loss(label, p))
        recalls = recall_score(label, found, average=None)
        for c in range(n_classes):
            assert value("recall", c) == pytest.approx(recalls[c])
            assert value("score", c) == pytest.approx(p[:, c].mean())
        if n_classes == 2:
            assert value("auc") == pytest.approx(roc_auc_score(label, p[:, 1]), abs=2e-4)
            small = int(label.mean() < 0.5)
            expected = average_precision_score(label == small, p[:, small])
            assert value("precision") == pytest.approx(expected, abs=2e-3)
        else:
            assert "auc" not in cost
    moved = np.abs(before - after).max(axis=1)
    assert cost.n_rows == 400
    assert cost.changed == (before.argmax(axis=1) != after.argmax(axis=1)).sum()
    assert cost.drift == pytest.approx(moved.mean())
    assert cost["largest_drift"].change == moved.max()


def test_rare_classes_have_figures_of_their_own():
    before, after, label = rare(moved=0.5, shift=0.2)
    cost = measure(before, after, label, ["no", "yes"])
    areas = [roc_auc_score(label, p[:, 1]) for p in (before, after)]
    assert cost["auc"].change == pytest.approx(areas[0] - areas[1], abs=2e-5)
    precise = [average_precision_score(label, p[:, 1]) for p in (before, after)]
    assert cost["precision"].change == pytest.approx(1 - precise[1] / precise[0], abs=2e-3)
    tops = [set(np.argsort(-p[:, 1])[:400].tolist()) for p in (before, after)]
    gone = 1.0 - len(tops[0] & tops[1]) / 400
    assert cost["top"].change == pytest.approx(gone, abs=0.01)
    grown = after[:, 1].mean() / before[:, 1].mean() - 1.0
    assert cost["score", "yes"].change == pytest.approx(grown)
    flipped = (before.argmax(1) != after.argmax(1)).sum()
    assert cost["churn", "yes"].change == pytest.approx(flipped / label.sum())
    # All of it is small as a share of all rows, and far too much for the rare class.
    used = judge_figures("classification", Budget(), cost.figures)
    assert max(used[name] for name in ("changed", "drift")) < 1.0
    assert min(used[name] for name in ("auc", "score", "top", "precision")) > 1.0
    # The classes may come in any order.
    turned = measure(before[:, ::-1], after[:, ::-1], 1 - label, ["yes", "no"])
    for code in ("auc", "precision", "top"):
        assert turned[code].change == pytest.approx(cost[code].change, abs=1e-4)
        assert turned[code].error == pytest.approx(cost[code].error, rel=1e-2)


def test_standard_errors_are_those_of_resampling():
    before, after, label = rare(n=6000, moved=0.5)
    cost = measure(before, after, label)
    rng, found = np.random.default_rng(1), {}
    for _ in range(120):
        rows = rng.integers(0, len(label), len(label))
        again = measure(before[rows], after[rows], label[rows])
        for code in ("auc", "drift", "accuracy"):
            found.setdefault(code, []).append(again[code].change)
        for code in ("precision", ("score", 1)):
            fell = again[code].before - again[code].after
            found.setdefault(code, []).append(fell / cost[code].before)
    for code, changes in found.items():
        assert cost[code].error == pytest.approx(np.std(changes), rel=0.25), code


def test_the_auc_is_judged_by_an_upper_bound():
    before, after, label = rare(n=5000, moved=0.3)
    cost = measure(before, after, label)
    lost = cost["auc"]
    assert lost.at_most(0.75) == pytest.approx(max(lost.change + 0.6745 * lost.error, 0), rel=1e-3)
    assert lost.bound > lost.at_most(0.75)
    # With few positives chance is large, and counts against the mark.
    few = measure(before[:1000], after[:1000], label[:1000])["auc"]
    assert few.error > 1.5 * lost.error


def test_estimated_labels_tell_changes_and_no_values():
    before, after, label = rare(n=100_000, moved=0.4)
    known, guessed = measure(before, after, label), measure(before, after, None, code="unseen")
    assert guessed.rows.estimated
    for code in ("accuracy", "auc", "precision"):
        assert guessed[code].before is None
        # The labels were drawn from these probabilities.
        chance = 4.0 * np.hypot(known[code].error, guessed[code].error)
        assert guessed[code].change == pytest.approx(known[code].change, abs=chance)
        assert guessed[code].error == pytest.approx(known[code].error, rel=0.3)
    assert guessed["score", 1] == replace(known["score", 1], rows=guessed.rows)


def test_a_class_without_rows_has_no_recall():
    before, after, label = answers(3)
    kept = label != 2
    cost = measure(before[kept], after[kept], label[kept])
    assert ("recall", 2) not in cost
    assert ("recall", 1) in cost
    assert "recall of 2" not in str(cost)


def test_one_class_alone_has_no_auc():
    before, after, label = answers(2)
    kept = label == 1
    assert "auc" not in measure(before[kept], after[kept], label[kept])


def test_of_many_classes_those_with_few_rows_are_left_out():
    before, after, label = answers(5, n=300)
    label[label == 4] = 0
    label[:5] = 4
    cost = measure(before, after, label)
    assert ("recall", 4) not in cost
    assert ("recall", 0) in cost


@pytest.mark.parametrize("n_classes", [2, 3, 15])
@pytest.mark.parametrize("labelled", [True, False])
def test_json_is_strict_and_lists_no_row(n_classes, labelled):
    before, after, label = answers(n_classes)
    classes = np.array([f"class {c}" for c in range(n_classes)])
    cost = measure(before, after, label if labelled else None, classes)
    said = json.loads(json.dumps(cost.to_dict(), allow_nan=False))
    assert said["labels_changed"] == cost.changed
    assert said["classes"] == classes.tolist()
    assert ("accuracy" in said["before"]) == labelled
    assert {one["rows"] for one in said["figures"]} == {"validation"}
    assert next(iter(said)) == "measured"
    # A few figures per class at most, never one per row.
    assert len(said["figures"]) <= 8 + 3 * n_classes


@pytest.mark.parametrize(
    "classes", [[False, True], [1.5, 2.5], ["no", "yes"], np.array([3, 7]), [np.str_("a"), "b"]]
)
def test_labels_of_any_type_are_written(classes):
    before, after, label = answers(2)
    cost = measure(before, after, label, classes)
    assert json.loads(json.dumps(cost.to_dict()))["classes"] == np.asarray(classes).tolist()


@pytest.mark.parametrize("n_classes", [2, 5])
@pytest.mark.parametrize("n", [40, 400, 4000])
def test_an_identical_model_uses_nothing(n_classes, n):
    before, _, label = answers(n_classes, n=n)
    used = use(Budget(), before, before, label)
    wanted = {"changed", "drift", "accuracy"}
    assert wanted | ({"auc", "precision"} if n_classes == 2 else set()) <= set(used)
    assert all(share == 0.0 for share in used.values())


@pytest.mark.parametrize("n_classes", [2, 5])
@pytest.mark.parametrize("n", [400, 4000])
def test_a_wrecked_model_exceeds_every_limit(n_classes, n):
    before, _, label = answers(n_classes, n=n)
    before[:, 0] *= 3.0
    before /= before.sum(axis=1, keepdims=True)
    used = use(Budget(), before, np.roll(before, 1, axis=1), label)
    assert len(used) == (8 if n_classes == 2 else 6)
    assert min(used.values()) > 1.0


def test_limits_that_are_off_are_not_judged():
    before, after, label = answers(2)
    assert use(NO_LIMITS, before, after, label) == {}
    least = Budget(**dict.fromkeys(LIMITS["classification"], 1e-12))
    assert set(use(least, before, before, label).values()) == {0.0}
    some = use(least, before, after, label)
    assert some["drift"] > 1e6
    assert some["changed"] > 1


def test_a_limit_below_what_rows_can_show_is_judged_by_its_bound():
    before, after, label = answers(2, n=2000, moved=0.02)
    fine = use(Budget(changed=0.0001), before, after, label)["changed"]
    coarse = use(Budget(changed=0.01), before, after, label)["changed"]
    assert fine == pytest.approx(100.0 * coarse)
    assert fine > 1.0


def test_a_model_that_hardly_errs_is_held_to_its_own_errors():
    sure = np.array([[0.999, 0.001]] * 10_000)
    flipped = sure.copy()
    flipped[:20] = flipped[:20, ::-1]
    label = np.zeros(10_000, np.int64)
    assert use(Budget(), sure, flipped, label)["changed"] > 1.0
    # Rows that the model was trained on do not tell its errors.
    assert use(Budget(), sure, flipped, label, code="all training")["changed"] < 1.0


@pytest.mark.parametrize("moved", [0.05, 0.2])
@pytest.mark.parametrize("n_classes", [2, 4])
def test_bounds_are_near_the_truth_and_mostly_above_it(n_classes, moved):
    """The true share and drift are those of many rows. The bound of the drift holds for 75 % of
    samples; that of the share is an estimate from narrow gaps, for two classes a bound as well."""
    many_before, many_after, many = answers(n_classes, n=60_000, moved=moved)
    changed = (many_before.argmax(axis=1) != many_after.argmax(axis=1)).mean()
    drift = np.abs(many_before - many_after).max(axis=1).mean()
    figures = [
        measure(many_before[i : i + 300], many_after[i : i + 300], many[i : i + 300])
        for i in range(0, 60_000, 300)
    ]
    shares = [cost["changed"].at_most(0.75) for cost in figures]
    drifts = [cost["drift"].at_most(0.75) for cost in figures]
    assert np.mean(np.array(shares) >= changed) > (0.55 if n_classes == 2 else 0.4)
    assert np.median(shares) > 0.9 * changed
    assert np.mean(np.array(drifts) >= drift) > 0.6
    # And they are no wild guesses.
    assert np.median(shares) < 2 * changed
    assert np.median(drifts) < 1.5 * drift


def test_stated_bounds_hold_together_in_most_samples():
    """Each of 100 samples states nine bounds; all of them hold in 90 % of the samples."""
    before, after, label = rare(n=500_000, moved=0.3, shift=0.01)
    truth = measure(before, after, label)
    codes = ["auc", "precision", "top", "drift", "changed", "accuracy"]
    wanted = [*codes, ("score", 1), ("recall", 1), ("churn", 1)]
    kept = 0
    for i in range(0, 500_000, 5000):
        rows = slice(i, i + 5000)
        cost = measure(before[rows], after[rows], label[rows])
        kept += all(cost[code].bound >= truth[code].change for code in wanted)
    assert kept >= 90


@given(st.integers(1, 500), st.data())
def test_the_bound_of_a_share_is_exact(n, data):
    count = data.draw(st.integers(0, n))
    bound = share_at_most(count, n)
    assert count / n <= bound <= 1.0
    if count < n:
        # At the bound so few are seen with a chance of 25 %, by definition of Clopper and Pearson.
        assert binom.cdf(count, n, bound) == pytest.approx(0.25, abs=1e-9)


def test_reported_figures_beyond_a_limit_are_found():
    before, after, label = rare(moved=0.5, shift=0.2)
    cost = measure(before, after, label, ["no", "yes"])
    found = beyond_limits(cost, Budget())
    assert found["score"] == (cost["score", "yes"], 0.02)
    assert "changed" not in found
    # What is in the table is not silent, whatever rows it is of.
    seen = measure(before, after, label, ["no", "yes"], code="training")
    assert found.keys() == beyond_limits(seen, Budget()).keys()
    assert beyond_limits(cost, NO_LIMITS) == {}
    assert beyond_limits(measure(before, before, label), Budget()) == {}


RNG = np.random.default_rng(0)
TARGET = RNG.normal(size=500)
BEFORE = TARGET + 0.5 * RNG.normal(size=500)
AFTER = BEFORE + 0.01 * RNG.normal(size=500)
COUNTING = Counting("numbers", 0.5, True)


def numbers(before, after, target, counting=COUNTING):
    return measure(before[:, None], after[:, None], target, counting=counting)


def use_numbers(budget, before, after, target, counting=COUNTING):
    cost = numbers(before, after, target, counting)
    return judge_figures(cost.task, budget, cost.figures)


def test_errors_of_numbers_are_what_scikit_learn_says():
    cost = numbers(BEFORE, AFTER, TARGET)
    for side, answers in (("before", BEFORE), ("after", AFTER)):
        assert getattr(cost["rmse"], side) == pytest.approx(
            root_mean_squared_error(TARGET, answers)
        )
        assert getattr(cost["mae"], side) == pytest.approx(mean_absolute_error(TARGET, answers))
        assert getattr(cost["r2"], side) == pytest.approx(r2_score(TARGET, answers))
        assert getattr(cost["mean"], side) == pytest.approx(answers.mean())
    assert cost["order"].after == pytest.approx(spearmanr(BEFORE, AFTER).statistic, abs=1e-5)
    assert cost.move == pytest.approx(np.abs(AFTER - BEFORE).mean() / 0.5)
    assert cost["largest"].change == pytest.approx(np.abs(AFTER - BEFORE).max() / 0.5)
    assert "r2" not in numbers(BEFORE, AFTER, np.ones(500))
    assert "rmse" not in numbers(BEFORE, AFTER, None)
    assert numbers(TARGET, AFTER, TARGET)["rmse"].change == 1.0
    guessed = numbers(BEFORE, AFTER, None, Counting("numbers", 0.5))
    assert "a fifth of the spread" in str(guessed)
    assert "mean change / error" in str(cost)


def test_ndcg_is_a_mean_over_groups():
    gain, group = RNG.integers(0, 4, 100).astype(float), np.repeat(np.arange(10), 10)
    answers = gain + RNG.normal(size=100)
    each = [ndcg_score([gain[group == g]], [answers[group == g]]) for g in range(10)]
    order = RNG.permutation(100)
    found = group_ndcg(answers[order], np.column_stack([gain, group])[order])
    np.testing.assert_allclose(found, each)
    ranks = Counting("ranks", 1.0)
    target = np.column_stack([gain, group])
    assert numbers(answers, answers, target, ranks)["ndcg"].before == pytest.approx(np.mean(each))
    alone = np.column_stack([np.zeros(3), [0, 0, 1]])
    assert "ndcg" not in numbers(np.arange(3.0), np.arange(3.0), alone, ranks)


@given(st.floats(0.0, 2.0), st.floats(0.001, 0.5))
def test_twice_the_change_uses_twice_the_limit_on_moves(size, limit):
    step = size * (AFTER - BEFORE)
    used = [
        use_numbers(Budget(move=limit), BEFORE, BEFORE + times * step, None)["move"]
        for times in (1.0, 2.0)
    ]
    assert used[1] == pytest.approx(2.0 * used[0])


def test_limits_on_numbers_are_judged_by_upper_bounds():
    budget = Budget(move=0.1, largest=1.0, rmse=0.01, mae=0.01, r2=0.01)
    used = use_numbers(budget, BEFORE, AFTER, TARGET)
    assert set(used) == set(LIMITS["regression"])
    cost = numbers(BEFORE, AFTER, TARGET)
    assert used["move"] > cost.move / 0.1
    assert used["largest"] == pytest.approx(cost["largest"].change)
    for name in ("rmse", "mae", "r2"):
        # The mean absolute error has a bound as the others do.
        assert used[name] > max(cost[name].change, 0.0) / 0.01
    worse = use_numbers(budget, BEFORE, BEFORE + 0.5, BEFORE)
    assert min(worse[name] for name in ("rmse", "mae", "r2", "mean")) > 1.0
    assert use_numbers(NO_LIMITS, BEFORE, AFTER, TARGET) == {}
    assert set(use_numbers(Budget(), BEFORE, AFTER, None)) == {"move", "mean", "tail"}


def test_heavy_tails_are_held_where_answers_are_large():
    before = np.exp(2.0 * RNG.normal(size=5000))
    counting = Counting("numbers", 10.0, True, float(before.mean()))
    large = before > np.quantile(before, 0.98)
    after = np.where(large, 1.1 * before, before)
    used = use_numbers(Budget(), before, after, None, counting)
    assert used["tail"] > 1.0
    assert used["mean"] > 1.0
    small = np.where(large, before, before + 0.01)
    used = use_numbers(Budget(), before, small, None, counting)
    assert used["tail"] == 0.0


def test_rankers_are_held_to_their_order():
    target = np.column_stack([np.rint(TARGET - TARGET.min()), np.arange(500) // 25])
    ranks = Counting("ranks", 1.0)
    used = use_numbers(Budget(), BEFORE, BEFORE, target, ranks)
    assert used == {"move": 0.0, "order": 0.0, "top": 0.0, "ndcg": 0.0}
    turned = use_numbers(Budget(), BEFORE, -BEFORE, target, ranks)
    assert min(turned[name] for name in ("order", "top", "ndcg")) > 1.0
    without = use_numbers(Budget(), BEFORE, AFTER, None, ranks)
    assert set(without) == {"move", "order", "top"}


def test_defaults_go_with_every_task():
    for task in LIMITS:
        check_budget(Budget(), task)
        check_budget(NO_LIMITS, task)


def test_a_sample_that_nothing_changes_in_does_not_promise_that_nothing_will():
    """Few rows change much, next to moved thresholds: a sample may hold none of them."""
    scores = RNG.uniform(0.01, 0.2, size=2000)
    before = np.column_stack([1.0 - scores, scores])
    labels = (RNG.random(2000) < scores).astype(int)
    rows = RowSet("validation", 2000)
    found = label_figures(Counting("labels").tally(before, before, labels), ["no", "yes"], rows)
    stated = {figure.code: figure.bound for figure in found}
    for code in ("drift", "score", "auc", "precision", "changed", "churn"):
        assert 0.0 < stated[code] < 0.1
    judged = {figure.code: figure.at_most(0.75) for figure in found}
    assert judged["drift"] == judged["auc"] == 0.0
    answers = numbers(BEFORE, BEFORE, TARGET)
    for code in ("mean", "tail", "move", "rmse", "mae", "r2", "order"):
        assert 0.0 < answers[code].bound < 0.1
    # What has no bound says so.
    assert {figure.code for figure in found if figure.bound is None} == {
        "log_loss", "largest_drift",
    }  # fmt: skip
    assert answers["largest"].bound is None


@pytest.mark.parametrize("n", [500, 2500])
def test_stated_bounds_of_numbers_with_heavy_tails_hold_in_most_samples(n):
    """One row in 50 moves, some of them far: a sample may hold none that does."""
    rng = np.random.default_rng(1)
    before = rng.lognormal(0.0, 1.0, 250_000)
    target = before * rng.lognormal(0.0, 0.6, len(before))
    shift = np.where(rng.random(len(before)) < 0.02, rng.normal(0.0, 0.15, len(before)), 0.0)
    after = before * np.exp(shift)
    counting = Counting("numbers", float(np.sqrt(((before - target) ** 2).mean())), True, 1.6)
    truth = numbers(before, after, target, counting)
    wanted = ("rmse", "mae", "r2", "mean", "tail", "order", "move")
    kept = 0
    for first in range(0, 100 * n, n):
        rows = slice(first, first + n)
        cost = numbers(before[rows], after[rows], target[rows], counting)
        kept += all(cost[code].bound >= truth[code].change for code in wanted)
    assert kept >= 95


def test_the_error_of_a_rank_correlation_is_that_of_resampling():
    rng = np.random.default_rng(2)
    before = rng.normal(size=2000)
    after = before + np.where(rng.random(2000) < 0.2, rng.normal(size=2000), 0.0)
    cost = numbers(before, after, None)
    again = []
    for _ in range(100):
        rows = rng.integers(0, 2000, 2000)
        again.append(numbers(before[rows], after[rows], None)["order"].change)
    assert cost["order"].change == pytest.approx(1.0 - spearmanr(before, after)[0], rel=0.02)
    assert cost["order"].error == pytest.approx(np.std(again), rel=0.25)
