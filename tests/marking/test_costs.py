"""What a mark costs, against scikit-learn and SciPy, and how a budget is judged."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom
from sklearn.metrics import accuracy_score, log_loss, recall_score, roc_auc_score

from timbermark.marking.budget import Budget
from timbermark.marking.costs import measure_cost, share_at_most, use_of_budget


def answers(n_classes, n=400, seed=0, moved=0.3):
    """Probabilities before and after, and labels that the first ones mostly meet."""
    rng = np.random.default_rng(seed)
    margins = rng.normal(size=(n, n_classes)) * 2
    label = (margins + rng.gumbel(size=margins.shape)).argmax(axis=1)

    def shares(m):
        powers = np.exp(m)
        return powers / powers.sum(axis=1, keepdims=True)

    return shares(margins), shares(margins + moved * rng.normal(size=margins.shape)), label


@pytest.mark.parametrize("n_classes", [2, 3, 5])
def test_figures_are_those_of_scikit_learn(n_classes):
    before, after, label = answers(n_classes)
    cost = measure_cost(before, after, label, np.arange(n_classes), "validation")
    for quality, p in ((cost.before, before), (cost.after, after)):
        found = p.argmax(axis=1)
        assert quality.accuracy == pytest.approx(accuracy_score(label, found))
        assert quality.log_loss == pytest.approx(log_loss(label, p))
        np.testing.assert_allclose(quality.recall, recall_score(label, found, average=None))
        np.testing.assert_allclose(quality.mean_score, p.mean(axis=0))
        if n_classes == 2:
            assert quality.auc == pytest.approx(roc_auc_score(label, p[:, 1]))
        else:
            assert quality.auc is None
    moved = np.abs(before - after).max(axis=1)
    assert cost.n_rows == 400
    assert cost.changed == (before.argmax(axis=1) != after.argmax(axis=1)).sum()
    assert cost.drift == pytest.approx(moved.mean())
    assert cost.largest_drift == moved.max()
    assert cost.accuracy_lost == pytest.approx(cost.before.accuracy - cost.after.accuracy)


def test_without_labels_only_what_needs_none_is_told():
    before, after, _ = answers(3)
    cost = measure_cost(before, after, None, ["a", "b", "c"], "candidates")
    assert cost.before.accuracy is cost.before.auc is cost.before.recall is None
    assert cost.before.log_loss is cost.accuracy_lost is None
    assert cost.changed > 0
    assert "accuracy" not in str(cost)
    assert "mean score of b" in str(cost)


def test_a_class_without_rows_has_no_recall():
    before, after, label = answers(3)
    kept = label != 2
    cost = measure_cost(before[kept], after[kept], label[kept], [0, 1, 2], "validation")
    assert cost.before.recall[2] is None
    assert None not in cost.before.recall[:2]
    assert "recall of 2" not in str(cost)


def test_one_class_alone_has_no_auc():
    before, after, label = answers(2)
    kept = label == 1
    cost = measure_cost(before[kept], after[kept], label[kept], [0, 1], "validation")
    assert cost.before.auc is None
    assert "auc" not in use_of_budget(Budget(), before[kept], after[kept], label[kept])


def test_unseen_rows_tell_what_changed_and_the_others_how_good_it_is():
    before, after, label = answers(2)
    unseen = answers(2, n=700, seed=1)[:2]
    cost = measure_cost(before, after, label, [0, 1], "training", unseen)
    alone = measure_cost(*unseen, None, [0, 1], "training")
    assert (cost.n_rows, cost.changed, cost.drift) == (700, alone.changed, alone.drift)
    assert cost.before.accuracy == accuracy_score(label, before.argmax(axis=1))


@pytest.mark.parametrize("n_classes", [2, 3, 15])
@pytest.mark.parametrize("labelled", [True, False])
def test_json_is_strict_and_lists_no_row(n_classes, labelled):
    before, after, label = answers(n_classes)
    label[label == 1] = 0
    classes = np.array([f"class {c}" for c in range(n_classes)])
    given = label if labelled else None
    cost = measure_cost(before, after, given, classes, "validation")
    said = json.loads(json.dumps(cost.to_dict(), allow_nan=False))
    assert said["labels_changed"] == cost.changed
    assert said["labels_changed_share"] == pytest.approx(cost.changed / 400)
    assert said["classes"] == classes.tolist()
    if labelled:
        assert said["before"]["recall"][1] is None

    def longest(value):
        if isinstance(value, dict):
            return max(map(longest, value.values()))
        return len(value) if isinstance(value, list) else 0

    # One figure per class at most, never one per row.
    assert longest(said) == n_classes


@pytest.mark.parametrize(
    "classes", [[False, True], [1.5, 2.5], ["no", "yes"], np.array([3, 7]), [np.str_("a"), "b"]]
)
def test_labels_of_any_type_are_written(classes):
    before, after, label = answers(2)
    cost = measure_cost(before, after, label, classes, "validation")
    assert json.loads(json.dumps(cost.to_dict()))["classes"] == np.asarray(classes).tolist()


def test_the_table_is_before_and_after():
    before, after, label = answers(2)
    cost = measure_cost(before, after, label, ["no", "yes"], "training")
    head, *lines = str(cost).splitlines()
    assert head.split() == ["held-out", "training", "rows", "before", "after"]
    table = {name: (a, b) for name, a, b in cost.lines()}
    assert list(table)[:3] == ["accuracy", "log-loss", "AUC"]
    assert table["accuracy"] == (f"{cost.before.accuracy:.4f}", f"{cost.after.accuracy:.4f}")
    assert table["labels changed"][1].startswith(f"{cost.changed} of 400 (")
    assert len(lines) == len(table) == 10


@pytest.mark.parametrize("n_classes", [2, 5])
@pytest.mark.parametrize("n", [40, 400, 4000])
def test_an_identical_model_uses_nothing(n_classes, n):
    before, _, label = answers(n_classes, n=n)
    use = use_of_budget(Budget(), before, before, label)
    assert set(use) == {"changed", "drift", "accuracy"} | ({"auc"} if n_classes == 2 else set())
    assert all(share == 0.0 for share in use.values())


@pytest.mark.parametrize("n_classes", [2, 5])
@pytest.mark.parametrize("n", [40, 400, 4000])
def test_a_wrecked_model_exceeds_every_limit(n_classes, n):
    before, _, label = answers(n_classes, n=n)
    use = use_of_budget(Budget(), before, np.roll(before, 1, axis=1), label)
    assert len(use) == (4 if n_classes == 2 else 3)
    assert min(use.values()) > 1.0


def test_limits_that_are_off_are_not_judged():
    before, after, label = answers(2)
    assert use_of_budget(Budget(None, None, None, None), before, after, label) == {}
    assert set(use_of_budget(Budget(), before, after, None)) == {"changed", "drift"}
    none = use_of_budget(Budget(0, 0, 0, 0), before, before, label)
    assert set(none.values()) == {0.0}
    some = use_of_budget(Budget(0, 0, 0, 0), before, after, label)
    assert some["drift"] == float("inf")
    assert some["changed"] > 1


@pytest.mark.parametrize("moved", [0.05, 0.2])
@pytest.mark.parametrize("n_classes", [2, 4])
def test_bounds_are_near_the_truth_and_mostly_above_it(n_classes, moved):
    """The true share and drift are those of many rows. The bound of the drift holds for 75 % of
    samples; that of the share is an estimate from narrow gaps, for two classes a bound as well."""
    many_before, many_after, _ = answers(n_classes, n=60_000, moved=moved)
    budget = Budget(changed=1.0, drift=1.0, accuracy=None, auc=None)
    changed = (many_before.argmax(axis=1) != many_after.argmax(axis=1)).mean()
    drift = np.abs(many_before - many_after).max(axis=1).mean()
    uses = [
        use_of_budget(budget, many_before[i : i + 300], many_after[i : i + 300], None)
        for i in range(0, 60_000, 300)
    ]
    assert np.mean([use["changed"] >= changed for use in uses]) > (0.55 if n_classes == 2 else 0.4)
    assert np.median([use["changed"] for use in uses]) > 0.9 * changed
    assert np.mean([use["drift"] >= drift for use in uses]) > 0.6
    # And they are no wild guesses.
    assert np.median([use["changed"] for use in uses]) < 2 * changed
    assert np.median([use["drift"] for use in uses]) < 1.5 * drift


@given(st.integers(1, 500), st.data())
def test_the_bound_of_a_share_is_exact(n, data):
    count = data.draw(st.integers(0, n))
    bound = share_at_most(count, n)
    assert count / n <= bound <= 1.0
    if count < n:
        # At the bound so few are seen with a chance of 25 %, by definition of Clopper and Pearson.
        assert binom.cdf(count, n, bound) == pytest.approx(0.25, abs=1e-9)
