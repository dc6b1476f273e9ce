"""Regressors and rankers are attacked as classifiers are."""

from functools import cache

import numpy as np
import pytest

import timbermark as tm
from tests.attacks.models import (
    LIBRARIES,
    RANKERS,
    fitted_numbers,
    fitted_ranker,
    held_out,
    number_thief,
    numbers,
    ranks,
)
from timbermark.attacks import own_models, service, trees, tuning
from timbermark.attacks.registry import ATTACKS
from timbermark.attacks.stolen import LeafValues, NotOfferedError, Thief, measure_worth, steal
from timbermark.errors import InputError

KEY = tm.OwnerKey.generate()
ON_LABELS = {"distil-labels", "relabel-unsure", "relabel-outliers", "flatten-learnt"}
SLOW = {"mark-again", "flatten-learnt"}


def stolen(library, rounds=40):
    return steal(fitted_numbers(library, rounds))


def error(model):
    return measure_worth(model, held_out(model.task))


def owner(model):
    X, y = numbers()
    made = Thief(X[:1500], y[:1500])
    made.once("kind", model.trees)
    return made


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_stolen_regressor_answers_as_the_model_does(library):
    X, _ = numbers()
    found = stolen(library).answer(X[2000:2300])
    assert found.shape == (300, 1)
    np.testing.assert_allclose(
        found[:, 0], fitted_numbers(library).predict(X[2000:2300]), rtol=1e-5
    )


@pytest.mark.parametrize("library", LIBRARIES)
def test_refitting_on_the_training_rows_hardly_changes_a_regressor(library):
    model = stolen(library)
    left = trees.refit(model, owner(model), 0.0)
    X = held_out().X
    # CatBoost's ordered boosting makes leaves that no refit on all rows gives back, and XGBoost
    # shrinks small leaves by its λ.
    few = {"catboost": 0.1, "xgboost": 0.08}.get(library, 0.03)
    moved = np.sqrt(np.mean((left.answer(X) - model.answer(X)) ** 2))
    assert moved < few * model.answer(X).std()
    np.testing.assert_allclose(
        trees.refit(model, owner(model), 1.0).answer(X), model.answer(X), rtol=1e-5
    )


def test_step_length_of_a_regressor_is_the_learning_rate():
    for library, rate in (("lightgbm", 0.1), ("xgboost", 0.3), ("histogram", 0.1)):
        model = stolen(library)
        have = owner(model)
        found = trees.step_length(LeafValues.of(model, have.X), have)
        assert found == pytest.approx(rate, rel=0.1)


@pytest.mark.parametrize("library", [name for name in LIBRARIES if name != "timbermark"])
def test_more_trees_improve_a_regressor_that_was_stopped_early(library):
    early = stolen(library, 5)
    left = tuning.add_trees(early, number_thief(early), 20.0)
    assert own_models.n_rounds(left.trees().ensemble) == 25
    assert error(left) < 0.9 * error(early)


def test_our_own_regressor_takes_up_rows_in_place():
    model = stolen("timbermark")
    X, y = numbers()
    # Training rows once more give every leaf what it has.
    same = tuning.update_leaves(model, owner(model), 1.0)
    np.testing.assert_allclose(same.answer(X), model.answer(X), rtol=1e-4)
    shifted = Thief(X[1500:2000], y[1500:2000] + 20.0)
    moved = tuning.update_leaves(model, shifted, 5.0).answer(X).mean() - model.answer(X).mean()
    assert 5.0 < moved < 20.0


@pytest.mark.parametrize(
    ("attack", "kind"),
    [
        pytest.param(attack, kind, id=f"{kind}-{attack.name}")
        for attack in ATTACKS
        for kind in ("regressor", "ranker")
        if kind == "regressor" or attack.name not in SLOW
    ],
)
def test_every_attack_runs_on_numbers_or_says_why_not(attack, kind):
    """The mildest strength keeps the model useful, and it repeats itself."""
    if kind == "ranker":
        model = steal(fitted_ranker("lightgbm"))
    else:
        model = stolen("timbermark" if attack.name.startswith("update") else "lightgbm")
    codes = dict.fromkeys(ON_LABELS, "labels-only") | {
        "dodge-unsure": "no-sureness", "refuse-off-grid": "no-grid"
    }  # fmt: skip
    if kind == "ranker":
        codes |= {"boost-answers": "no-rank-boosting"}
        codes |= dict.fromkeys(("update-leaves", "update-regrown"), "not-ours")
    if attack.name in codes:
        with pytest.raises(NotOfferedError) as reason:
            attack.run(model, number_thief(model), attack.strengths[0])
        assert reason.value.code == codes[attack.name]
        return
    left = attack.run(model, number_thief(model), attack.strengths[0])
    if kind == "ranker":
        assert error(left) > error(model) - 0.05
    else:
        assert error(left) < 1.7 * error(model)
    again = attack.run(model, number_thief(model), attack.strengths[0])
    X = held_out().X[:200]
    np.testing.assert_array_equal(left.answer(X), again.answer(X))


@pytest.mark.parametrize("library", RANKERS)
def test_rankers_are_refitted_and_trained_on(library):
    early = steal(fitted_ranker(library, 2))
    have = number_thief(early)
    assert error(tuning.add_trees(early, have, 20.0)) > error(early) + 0.005
    whole = steal(fitted_ranker(library))
    assert error(trees.refit(whole, number_thief(whole), 0.5)) > error(whole) - 0.02
    assert error(trees.refit_by_library(whole, number_thief(whole), 0.5)) > error(whole) - 0.05


def test_scores_of_the_thiefs_ranker_are_on_the_scale_of_the_stolen_one():
    model = steal(fitted_ranker("lightgbm"))
    have = number_thief(model)
    for own in (own_models.own_model(model, have), own_models.other_model(model, have)):
        mine, theirs = own.answer(have.X), model.answer(have.X)
        assert mine.mean() == pytest.approx(theirs.mean(), abs=1e-6)
        assert mine.std() == pytest.approx(theirs.std())


def test_the_median_of_three_numbers_is_taken():
    model = stolen("lightgbm")
    have = number_thief(model)
    left = own_models.majority(model, have, 1.0)
    X = held_out().X[:50]
    three = [
        m.answer(X)
        for m in (model, own_models.own_model(model, have), own_models.other_model(model, have))
    ]
    np.testing.assert_array_equal(left.answer(X), np.sort(three, axis=0)[1])


def test_numbers_are_rounded_to_digits_of_their_spread():
    model = stolen("lightgbm")
    have = number_thief(model)
    X = held_out().X
    spread = model.answer(have.X).std()
    for digits, most in ((1.0, 0.05), (0.0, 0.5)):
        left = service.round_answers(model, have, digits).answer(X)
        assert np.abs(left - model.answer(X)).max() <= most * spread * (1 + 1e-9)
        assert len(np.unique(left)) < 100


@cache
def marked():
    X, y = numbers()
    free = tm.Budget(move=None, rmse=None)
    return tm.embed(
        fitted_numbers("lightgbm"), X[:1500], y[:1500], key=KEY, owner="Ann", budget=free
    )


def test_the_lab_measures_regressors_by_their_error():
    made = marked()
    X, y = numbers()
    tested = X[2000:], y[2000:]
    words = ["average-own:0.3", "average-own:1", "snap-thresholds", "dodge-unsure:0.05"]
    found = tm.attack(
        made.model, made.mark, X[1500:1700], y[1500:1700], attacks=words, evaluation=tested
    )
    missed = made.model.predict(tested[0]) - tested[1]
    assert found.measure == "rmse"
    assert found.untouched.quality == pytest.approx(np.sqrt(np.mean(missed**2)))
    assert found.untouched.score_bits == pytest.approx(tm.verify(made.model, made.mark).bits)
    assert found.untouched.label_bits is None
    assert found.untouched.theft_kept == pytest.approx(1.0)
    assert found.own_quality > found.untouched.quality
    mild, alone, snapped, skipped = found.rows
    assert alone.theft_kept <= 0.0
    assert alone.score_bits < 20
    assert mild.theft_kept > 0.5
    assert snapped.theft_kept == pytest.approx(1.0, abs=0.1)
    assert skipped.skipped == "no-sureness"
    assert "RMSE" in str(found)
    assert "labels" not in str(found).splitlines()[0]


def test_a_ranker_is_measured_by_ndcg_on_whole_groups():
    X, grade, group = ranks()
    made = tm.embed(
        fitted_ranker("lightgbm"), X[:1500], grade[:1500], groups=group[:1500], key=KEY,
        owner="Ann", budget=tm.Budget(move=None, order=None, ndcg=None),
    )  # fmt: skip
    part = slice(1500, 2000)
    found = tm.attack(
        made.model, made.mark, X[part], grade[part], groups=group[part], attacks=["refit:0.5"],
        evaluation=(X[2000:], grade[2000:], group[2000:]),
    )  # fmt: skip
    assert found.measure == "ndcg"
    assert 0.5 < found.untouched.quality <= 1.0
    assert not found.rows[0].skipped
    divided = tm.attack(
        made.model, made.mark, X[part], grade[part], groups=group[part], attacks=["refit:0.5"]
    )
    assert (divided.n_attack, divided.n_evaluation) == (300, 200)
    with pytest.raises(InputError) as caught:
        tm.attack(made.model, made.mark, X[part], grade[part])
    assert caught.value.code == "groups.missing"
