"""Marking as users meet it: the default options, every library, data that did not choose them."""

import contextlib
import json
import warnings

import numpy as np
import pytest
from sklearn.metrics import recall_score, roc_auc_score

import timbermark as tm
from tests.marking.models import KEY, data, fitted, marked, new_model
from timbermark.editing.leaves import Edit
from timbermark.errors import InputError
from timbermark.kernels.workers import Workers
from timbermark.marking import embedding
from timbermark.marking.budget import LIMITS
from timbermark.marking.measuring import report_cost, warn
from timbermark.marking.models import open_model
from timbermark.marking.preparing import prepare
from timbermark.trees.ensemble import digest

# Every library with two classes and with more, every data set with several libraries. On five
# noisy classes with few shallow trees, those of "gradient", no mark fits the default budget.
TWO = {
    "timbermark": "rare",
    "xgboost": "cancer",
    "lightgbm": "rare",
    "catboost": "cancer",
    "histogram": "cancer",
    "gradient": "rare",
}
MORE = {
    "timbermark": "digits",
    "xgboost": "five",
    "lightgbm": "digits",
    "catboost": "five",
    "histogram": "digits",
    "gradient": "digits",
}
EXTRA = [("timbermark", "cancer"), ("timbermark", "five"), ("catboost", "rare")]
CASES = [*TWO.items(), *MORE.items(), *EXTRA]
cases = pytest.mark.parametrize(("library", "name"), CASES)


def embed(model, X, y=None, **options):
    return tm.embed(model, X, y, **({"key": KEY, "owner": "Ann Ltd"} | options))


def refused(match, model, X, y=None, **options):
    with pytest.raises(InputError, match=match) as caught:
        embed(model, X, y, **options)
    assert caught.value.hint
    assert "nan" not in str(caught.value)
    return caught.value


def leaf_rows(result):
    return np.column_stack(result.mark.leaves.rows())


def check_fidelity(model, made, X, y):
    """Compare two models on rows that neither training nor marking has seen."""
    p, q = model.predict_proba(X), made.predict_proba(X)
    # Of 169 rows a few may be more than that.
    assert (p.argmax(axis=1) != q.argmax(axis=1)).sum() <= max(0.015 * len(X), 4)
    assert np.abs(p - q).max(axis=1).mean() <= 0.015
    if p.shape[1] == 2:
        # With 169 rows a single pair in the wrong order is a tenth of the limit.
        lost = roc_auc_score(y, p[:, 1]) - roc_auc_score(y, q[:, 1])
        assert lost <= (0.004 if len(y) > 1000 else 0.02)
        assert q[:, 1].mean() == pytest.approx(p[:, 1].mean(), rel=0.03)
    return p, q


@cases
def test_labels_prove_the_mark_and_nothing_else_does(library, name):
    result = marked(library, name)
    verdict = tm.verify(result.model, result.mark, answers="labels")
    assert verdict.level != "none"
    assert verdict.net_bits == pytest.approx(result.label_bits - 1.0, abs=0.5)
    found = {seal.seal: seal.matched for seal in verdict.seals}
    assert found.get("leaves", 0) == result.n_set
    assert result.bits >= 64
    unmarked = fitted(library, name)
    assert tm.verify(unmarked, result.mark).level == "none"
    assert tm.verify(unmarked, result.mark, answers="labels").level == "none"


@cases
def test_scores_prove_the_mark(library, name):
    result = marked(library, name)
    verdict = tm.verify(result.model, result.mark)
    assert verdict.kind == "scores"
    assert verdict.level == "conclusive"
    assert verdict.net_bits == pytest.approx(result.bits, abs=0.5)
    assert {seal.seal: seal.triggers for seal in verdict.seals} == {
        name: count
        for name, count in (("splits", result.mark.n_splits), ("leaves", result.mark.n_leaves))
        if count
    }


@cases
def test_unseen_rows_are_answered_as_before(library, name):
    _, _, X, y = data(name)
    check_fidelity(fitted(library, name), marked(library, name).model, X, y)


@cases
def test_the_type_stays_and_the_trees_but_for_leaves_and_thresholds(library, name):
    model, result = fitted(library, name), marked(library, name)
    assert type(result.model) is type(model)
    before, after = open_model(model).ensemble, open_model(result.model).ensemble
    assert result.mark.model_digest == digest(before) != digest(after)
    np.testing.assert_array_equal(before.tree_start, after.tree_start)
    np.testing.assert_array_equal(before.init, after.init)
    # The nodes of a LightGBM tree are in the order of their gains, which follow the leaves.
    for start, stop in zip(before.tree_start[:-1], before.tree_start[1:], strict=True):
        features = [np.sort(e.feature[start:stop]) for e in (before, after)]
        np.testing.assert_array_equal(*features)
    assert (before.value != after.value).any() == (result.mark.leaves is not None)
    assert (before.threshold != after.threshold).any() == (result.mark.splits is not None)


@cases
def test_the_cost_is_honest_and_names_no_row(library, name):
    _, _, X, _ = data(name)
    cost = marked(library, name).cost
    assert cost.measured_on == "unseen"
    p, q = (m.predict_proba(X) for m in (fitted(library, name), marked(library, name).model))
    drift = np.abs(p - q).max(axis=1).mean()
    assert cost.drift > drift / 4
    assert cost.drift < 0.015
    json.dumps(cost.to_dict(), allow_nan=False)
    result = marked(library, name)
    assert f"{result.mark.n_splits} triggers in splits" in str(result) or not result.mark.n_splits


@pytest.mark.parametrize("library", TWO)
def test_the_model_given_is_untouched(library):
    X, y, test, _ = data(TWO[library])
    given, result = fitted(library, TWO[library]), marked(library, TWO[library])
    # The same training gives the model as it was before it was marked.
    model = new_model(library).fit(X, y)
    before, after = open_model(model), open_model(given)
    assert before.margins(test).tobytes() == after.margins(test).tobytes()
    assert digest(before.ensemble) == digest(after.ensemble)
    margins = before.adapter.margins(model, test), after.adapter.margins(given, test)
    assert margins[0].tobytes() == margins[1].tobytes()
    assert result.model is not given


WEIGHTED = {
    "xgboost": {"scale_pos_weight": 9.0},
    "lightgbm": {"class_weight": "balanced"},
    "catboost": {"auto_class_weights": "Balanced"},
    "histogram": {"class_weight": "balanced"},
}


@pytest.mark.parametrize("library", WEIGHTED)
def test_models_with_class_weights_keep_scores_and_recall(library):
    X, y, test, truth = data("rare")
    model = new_model(library, 30, **WEIGHTED[library]).fit(X, y)
    result = embed(model, X, y)
    assert tm.verify(result.model, result.mark, answers="labels").level == "conclusive"
    p, q = check_fidelity(model, result.model, test, truth)
    old, new = (recall_score(truth, s.argmax(axis=1)) for s in (p, q))
    assert abs(old - new) <= 0.02


STOPPED = {
    "xgboost": ({"early_stopping_rounds": 3, "eval_metric": "logloss"}, "eval_set"),
    "catboost": ({"early_stopping_rounds": 3}, "eval_set"),
    "histogram": ({"early_stopping": True, "n_iter_no_change": 3}, None),
    "gradient": ({"n_iter_no_change": 3}, None),
}


@pytest.mark.parametrize("library", ["xgboost", "catboost", "histogram", "gradient", "lightgbm"])
def test_models_that_stopped_early_keep_scores_and_recall(library):
    X, y, test, truth = data("rare")
    X, y, held = X[:2500], y[:2500], (X[2500:], y[2500:])
    if library == "lightgbm":
        from lightgbm import early_stopping

        stop = early_stopping(3, verbose=False)
        model = new_model(library, 200, learning_rate=0.3)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # eval_set has another name in new versions
            model.fit(X, y, eval_set=[held], callbacks=[stop])
    else:
        options, with_rows = STOPPED[library]
        model = new_model(library, 200, learning_rate=0.3, **options)
        if with_rows and library == "xgboost":
            model.fit(X, y, eval_set=[held], verbose=False)
        elif with_rows:
            model.fit(X, y, eval_set=held)
        else:
            model.fit(X, y)
    result = embed(model, X, y)
    assert tm.verify(result.model, result.mark, answers="labels").level == "conclusive"
    p, q = check_fidelity(model, result.model, test, truth)
    old, new = (recall_score(truth, s.argmax(axis=1)) for s in (p, q))
    assert abs(old - new) <= 0.02


def test_a_doubled_table_is_marked_like_a_single_one():
    X, y, test, truth = data("rare")
    model = fitted("xgboost", "rare")
    result = embed(model, np.repeat(X, 2, axis=0), np.repeat(y, 2))
    assert result.bits >= 64
    assert tm.verify(result.model, result.mark, answers="labels").level != "none"
    check_fidelity(model, result.model, test, truth)


@pytest.mark.parametrize("library", ["timbermark", "xgboost", "lightgbm", "histogram"])
def test_constant_empty_and_incomplete_columns(library):
    X, y, test, truth = data("rare")

    def odd(X):
        holes = np.random.default_rng(0).random(X.shape) < 0.1
        holey = np.where(holes, np.nan, X)
        # HistGradientBoosting itself does not take a column without values.
        empty = np.full(len(X), 0.5 if library == "histogram" else np.nan)
        return np.column_stack([holey, np.full(len(X), 7.0), empty])

    model = new_model(library, 30).fit(odd(X), y)
    result = embed(model, odd(X), y)
    assert tm.verify(result.model, result.mark, answers="labels").level == "conclusive"
    triggers = result.mark.rows()
    assert (triggers[:, -2] == 7.0).all()
    assert library == "histogram" or np.isnan(triggers[:, -1]).all()
    check_fidelity(model, result.model, odd(test), truth)


def test_validation_rows_judge_and_report():
    X, y, test, truth = data("rare")
    model = fitted("lightgbm", "rare")
    held = test[:3000], truth[:3000]
    result = embed(model, X, y, validation=held)
    cost = result.cost
    assert cost.measured_on == "validation"
    assert cost.n_rows == 1500
    assert cost["auc"].before is not None
    assert set(result.use) - {"top"} == {
        "changed", "drift", "accuracy", "auc", "score", "recall", "churn", "precision",
    }  # fmt: skip
    assert max(result.use.values()) <= 1.0
    # One of the thirty rows at the top may leave it, which is beyond 3 % and said first of all.
    warned, said, _ = str(result).partition("Cost measured on 1,500 validation rows.\n")
    assert said
    assert warned.count("Warning: ") == sum(note.is_warning for note in result.notes)
    without = embed(model, X, validation=held[0])
    assert without.cost["accuracy"].before is None
    assert without.cost.rows.estimated


def test_without_any_rows_nothing_is_marked():
    model = fitted("xgboost", "rare")
    for call in (
        lambda: tm.embed(model, key=KEY, owner="Ann Ltd"),
        lambda: embedding.plan(model),
        lambda: tm.copies(model, customers=["Bob Ltd"], key=KEY, owner="Ann Ltd"),
    ):
        with pytest.raises(InputError) as caught:
            call()
        assert (caught.value.code, caught.value.parameter) == ("rows.none", "X")


def test_training_rows_as_validation_rows_are_warned_of():
    X, y, test, truth = data("rare")
    model = fitted("lightgbm", "rare")
    mixed = np.concatenate([X[:1900], test[:100]]), np.concatenate([y[:1900], truth[:100]])
    for rows, seen in (((X, y), 1.0), (mixed, 0.95), ((test[:2000], truth[:2000]), None)):
        found = tm.plan(model, X, y, validation=rows, seals="splits")
        shares = [note.numbers["share"] for note in found.notes if note.code == "validation_seen"]
        assert shares == ([] if seen is None else [pytest.approx(seen, abs=0.01)])
        assert str(found).startswith("Warning: ") or seen is None


def test_rows_of_a_table_of_few_distinct_rows_may_come_again():
    rng = np.random.default_rng(0)
    X, test = (rng.integers(0, 3, size=(2000, 4)).astype(float) for _ in range(2))
    y, truth = ((Z.sum(axis=1) > 4).astype(int) for Z in (X, test))
    model = tm.TimberClassifier(max_iter=40, random_state=0).fit(X, y)
    with Workers(1) as workers:
        prepared = prepare(model, X, y, None, (test, truth), 0, workers)
        none = np.zeros((0, 1))
        cost = report_cost(prepared, Edit(prepared.router.ensemble, none, none, 0), workers)
        codes = [note.code for note in warn(prepared, tm.Budget(), cost)]
    assert "validation_seen" not in codes


def test_without_training_rows_candidates_are_enough():
    _, _, test, truth = data("rare")
    model = fitted("xgboost", "rare")
    result = tm.embed(model, candidates=(test[:2500], truth[:2500]), key=KEY, owner="Ann Ltd")
    assert result.cost.measured_on == "candidates"
    assert tm.verify(result.model, result.mark, answers="labels").level != "none"
    check_fidelity(model, result.model, test[2500:], truth[2500:])


def test_triggers_are_mixtures_of_candidates_and_no_row():
    X, y, test, _ = data("rare")
    model = fitted("xgboost", "rare")
    result = embed(model, X, y, candidates=test[:1500])
    triggers = leaf_rows(result)
    for j in range(X.shape[1]):
        assert np.isin(triggers[:, j], test[:1500, j]).all()
    known = {row.tobytes() for row in np.vstack([X, test])}
    assert not any(row.tobytes() in known for row in triggers)


def test_rows_themselves_can_be_triggers():
    X, y, test, _ = data("rare")
    model = fitted("xgboost", "rare")
    wide = tm.Budget.only(changed=0.05, drift=0.05)
    result = embed(
        model, X, y, candidates=test[:2000], triggers="rows", seals="leaves", budget=wide
    )
    known = {row.tobytes() for row in test[:2000]}
    assert all(row.tobytes() in known for row in leaf_rows(result))
    # How many symbols of so few rows can be set hangs on the symbols, which nobody chooses.
    found = tm.verify(result.model, result.mark, answers="labels").bits
    assert found > max(result.label_bits - 2.0, 40.0)


def test_what_is_given_is_held_to():
    X, y, _, _ = data("digits")
    model = fitted("lightgbm", "digits")
    result = embed(model, X, y, n_triggers=40, alphabet=4, lead=0.6)
    assert (result.strength.k, result.strength.q) == (40, 4)
    assert result.strength.lead <= 0.6
    assert result.mark.q == 4
    assert result.mark.n_leaves == 40
    two = embed(model, X, y, n_triggers=80, alphabet=2)
    assert (two.mark.q, two.mark.n_leaves) == (2, 80)


def test_a_weak_mark_is_made_only_when_asked_for():
    X, y, _, _ = data("digits")
    model = fitted("lightgbm", "digits")
    few = {"n_triggers": 24, "seals": "leaves"}
    refused("n_triggers=24 makes a mark of at most 48 bits", model, X, y, **few)
    result = embed(model, X, y, **few, weak=True)
    assert 0 < result.label_bits <= 48
    assert "weak" in [note.code for note in result.notes]
    assert tm.verify(result.model, result.mark, answers="labels").level == "indicative"
    strong = marked("lightgbm", "digits")
    assert "weak" not in [note.code for note in strong.notes]


@pytest.mark.parametrize(
    "budget",
    [
        tm.Budget(changed=None, drift=1e-12),
        tm.Budget(**dict.fromkeys(LIMITS["classification"], 1e-12)),
        tm.Budget(drift=1e-6),
    ],
)
def test_an_impossible_budget_is_one_sentence(budget):
    X, y, _, _ = data("rare")
    model = fitted("xgboost", "rare")
    error = refused("mark", model, X, y, budget=budget, seals="leaves")
    assert error.parameter in LIMITS["classification"]
    assert "inf" not in str(error)
    # A free boundary changes no training row, so that splits may fit even these.
    with contextlib.suppress(InputError):
        result = embed(model, X, y, budget=budget, seals="splits")
        assert max(result.use.values()) <= 1.0


def test_limits_on_accuracy_and_auc_are_judged_without_validation_rows():
    X, y, _, _ = data("rare")
    limits = tm.Budget.only(accuracy=0.005, auc=0.002)
    result = embed(fitted("xgboost", "rare"), X, y, budget=limits)
    assert set(result.attempts[-1].use) == {"accuracy", "auc"}


def test_too_few_triggers_for_two_classes_are_refused_in_so_many_words():
    X, y, _, _ = data("rare")
    refused("at most 40 bits", fitted("xgboost", "rare"), X, y, n_triggers=40, seals="leaves")


def test_a_model_that_carries_no_mark_says_what_would_help():
    X, y, _, _ = data("five")
    model = new_model("gradient", 5).fit(X, y)
    tight = {"budget": tm.Budget(drift=0.0001), "seals": "leaves"}
    error = refused("The weakest mark would use", model, X, y, **tight)
    assert error.code == "budget.exceeded"
    assert "allow" in error.hint


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"key": None}, "needs your owner key"),
        ({"key": "secret"}, "needs your owner key"),
        ({"owner": ""}, "needs the owner's name"),
        ({"owner": "  "}, "needs the owner's name"),
        ({"owner": 7}, "needs the owner's name"),
        ({"budget": 0.01}, "budget is not a Budget"),
        ({"triggers": "best"}, "triggers='best'"),
        ({"n_triggers": "lots"}, "n_triggers='lots'"),
        ({"n_triggers": 0}, "n_triggers=0"),
        ({"n_triggers": -3}, "n_triggers=-3"),
        ({"n_triggers": 90.5}, "n_triggers=90.5"),
        ({"seals": "wax"}, "seals='wax'"),
        ({"n_triggers": 100_000, "seals": "leaves"}, "100000 triggers are wanted"),
        ({"alphabet": 3}, "alphabet=3"),
        ({"alphabet": 4}, "alphabet=4 needs as many classes; the model has 2"),
        ({"lead": 0}, "lead=0"),
        ({"lead": float("nan")}, "lead=nan"),
        ({"lead": "far"}, "lead='far'"),
        ({"X": None, "y": None}, "nothing to choose triggers from"),
        ({"X": None}, "labels y but no rows X"),
        ({"y": [0, 1]}, r"Training labels of the shape \(2,\)"),
        ({"validation": (np.zeros((3, 20)), [0, 1, 0])}, "3 validation rows are too few"),
        ({"validation": (1, 2, 3)}, "validation is not a pair"),
        ({"candidates": np.zeros((0, 20))}, "no candidates"),
        ({"candidates": np.zeros((9, 20)), "seals": "leaves"}, "can carry a symbol"),
    ],
)
def test_bad_arguments(change, match):
    X, y, _, _ = data("rare")
    options = {"X": X, "y": y} | change
    with pytest.raises(InputError, match=match) as caught:
        embed(fitted("xgboost", "rare"), options.pop("X"), options.pop("y"), **options)
    assert caught.value.hint


@pytest.mark.parametrize("n", [1, 10, 79])
def test_too_few_rows(n):
    X, y, _, _ = data("rare")
    refused(f"{n} rows are too few", fitted("xgboost", "rare"), X[:n], y[:n])


def test_what_is_no_fitted_classifier():
    from sklearn.linear_model import LogisticRegression

    X, y, _, _ = data("cancer")
    refused("not fitted", tm.TimberClassifier(), X, y)
    refused("LogisticRegression is not a supported model", LogisticRegression(), X, y)
    refused("int is not a supported model", 7, X, y)


def test_two_marks_of_one_model_differ():
    X, y, _, _ = data("cancer")
    model = fitted("xgboost", "cancer")
    one, two = marked("xgboost", "cancer"), embed(model, X, y)
    assert one.mark.mark_id != two.mark.mark_id
    np.testing.assert_array_equal(one.mark.rows(), two.mark.rows())
    assert tm.verify(one.model, two.mark, answers="labels").level == "none"


def test_triggers_survive_single_precision():
    result = marked("histogram", "digits")
    asked = lambda X: result.model.predict(X.astype(np.float32))  # noqa: E731
    assert tm.verify(asked, result.mark).level == "conclusive"
