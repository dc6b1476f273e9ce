"""Every attack works on an unmarked model before it counts."""

import numpy as np
import pytest

from tests.attacks.models import LIBRARIES, accuracy, data, fitted, stolen, thief
from timbermark.attacks import (
    averaging,
    blurring,
    continuing,
    cutting,
    distilling,
    dodging,
    flattening,
    overwriting,
    refitting,
)
from timbermark.attacks.own_models import other_model, own_model
from timbermark.attacks.registry import ATTACKS
from timbermark.attacks.stolen import LeafValues, NotOfferedError, Thief, steal
from timbermark.marking.mixing import mix_rows


def training_thief():
    X, y = data()
    return Thief(X[:600], y[:600])


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_the_mildest_strength_keeps_the_model_useful_and_repeats_itself(attack):
    ours = attack.name.startswith("update")
    model = stolen("timbermark" if ours else "lightgbm")
    have = thief(model)
    left = attack.run(model, have, attack.strengths[0])
    before = accuracy(model)
    assert accuracy(left) > before - 0.06
    assert accuracy(left) > 0.6
    again = attack.run(model, thief(model), attack.strengths[0])
    X, _ = data()
    np.testing.assert_array_equal(left.answer(X[:200]), again.answer(X[:200]))


@pytest.mark.parametrize(
    ("name", "library"),
    [
        *(("library-refit", other) for other in ("catboost", "histogram", "timbermark")),
        *(("update-leaves", other) for other in ("lightgbm", "gradient")),
        ("update-regrown", "xgboost"),
        ("add-trees", "timbermark"),
    ],
)
def test_what_a_library_does_not_offer_is_refused_with_a_reason(name, library):
    attack = next(attack for attack in ATTACKS if attack.name == name)
    model = stolen(library)
    with pytest.raises(NotOfferedError) as reason:
        attack.run(model, thief(model), attack.strengths[0])
    assert reason.value.message.endswith(".")


@pytest.mark.parametrize("library", LIBRARIES)
def test_refitting_on_the_training_rows_hardly_changes_a_model(library):
    model = stolen(library)
    left = refitting.refit(model, training_thief(), 0.0)
    X, _ = data()
    # CatBoost's ordered boosting makes leaves that no refit on all rows gives back.
    few = 0.1 if library == "catboost" else 0.04
    assert (left.answer(X).argmax(axis=1) != model.answer(X).argmax(axis=1)).mean() < few


@pytest.mark.parametrize("library", ["lightgbm", "xgboost"])
def test_the_library_refits_to_what_the_training_rows_gave(library):
    model = stolen(library)
    left = refitting.refit_by_library(model, training_thief(), 0.0)
    X, _ = data()
    # LightGBM refits its first trees without the learning rate, XGBoost repeats its training.
    few = 0.1 if library == "lightgbm" else 0.005
    assert accuracy(left) > accuracy(model) - 0.03
    assert (left.answer(X).argmax(axis=1) != model.answer(X).argmax(axis=1)).mean() < few
    same = refitting.refit_by_library(model, thief(), 1.0)
    np.testing.assert_allclose(same.answer(X), model.answer(X), atol=1e-6)


def test_refitting_the_file_does_what_the_library_does():
    model = stolen("xgboost")
    X, _ = data()
    ours = refitting.refit(model, thief(), 0.5).answer(X)
    theirs = refitting.refit_by_library(model, thief(), 0.5).answer(X)
    assert np.abs(ours - theirs).mean() < 0.5 * np.abs(ours - model.answer(X)).mean()


def test_step_length_is_the_learning_rate():
    X, y = data()
    model = stolen("lightgbm")
    leaves = LeafValues.of(model, X[:600])
    # LightGBM's hessians are larger than ours by K / (K - 1), its steps as much shorter.
    assert refitting.step_length(leaves, y[:600]) == pytest.approx(0.075, rel=0.15)


@pytest.mark.parametrize("library", [name for name in LIBRARIES if name != "timbermark"])
def test_more_trees_improve_a_model_that_was_stopped_early(library):
    half = stolen(library, 3)
    left = continuing.add_trees(half, thief(half), 5.0)
    assert left.trees().ensemble.n_trees > 3 * half.trees().ensemble.n_trees
    assert accuracy(left) > accuracy(half) + 0.02


def test_boosted_answers_improve_a_model_that_was_stopped_early():
    half = stolen("timbermark", 3)
    assert accuracy(continuing.boost_answers(half, thief(half), 1.0)) > accuracy(half) + 0.02


@pytest.mark.parametrize("library", LIBRARIES)
def test_the_first_iterations_are_those_of_a_model_trained_so_far(library):
    X, _ = data()
    left = cutting.keep_first(stolen(library), thief(), 0.5)
    if library == "catboost":  # whose trees depend on how many there will be
        assert left.trees().ensemble.n_trees == fitted(library).tree_count_ // 2
        return
    np.testing.assert_allclose(
        left.answer(X[:300]), steal(fitted(library, 10)).answer(X[:300]), atol=1e-5
    )


def test_dropped_trees_add_their_mean():
    model = stolen("timbermark")
    left = cutting.drop_first(model, thief(), 0.5)
    before = LeafValues.of(model, thief().X)
    after = LeafValues.of(left, thief().X)
    for c in range(4):
        assert after.given(c, 0).std() < 1e-12
        assert after.given(c, 0).mean() == pytest.approx(before.given(c, 0).mean())
        np.testing.assert_array_equal(after.given(c, 15), before.given(c, 15))


def test_pruning_everything_leaves_constant_trees():
    left = cutting.prune(stolen("lightgbm"), thief(), 1.0)
    leaves = LeafValues.of(left, thief().X)
    assert all(leaves.given(0, t).std() < 1e-9 for t in range(5))
    none = cutting.prune(stolen("lightgbm"), thief(), 0.0)
    changed = none.trees().ensemble.value != stolen("lightgbm").trees().ensemble.value
    assert changed.sum() <= 2


def test_leaves_of_few_bits_have_few_values():
    left = blurring.round_leaves(stolen("timbermark"), thief(), 4)
    assert all(len(np.unique(v.round(9))) <= 16 for v in LeafValues.of(left, thief().X).value)


def test_no_noise_changes_nothing():
    X, _ = data()
    model = stolen("timbermark")
    for attack in (
        blurring.add_leaf_noise,
        blurring.move_thresholds,
        blurring.add_input_noise,
        averaging.average_with_own,
    ):
        np.testing.assert_allclose(
            attack(model, thief(), 0.0).answer(X), model.answer(X), atol=1e-12
        )


def test_noise_on_input_follows_from_the_row():
    X, _ = data()
    left = blurring.add_input_noise(stolen("timbermark"), thief(), 0.3)
    np.testing.assert_array_equal(left.answer(X[:50])[10:20], left.answer(X[10:20]))


def test_input_is_rounded_to_values_of_the_rows():
    asked = []

    def answer(X):
        asked.append(X)
        return np.full((len(X), 4), 0.25)

    served = stolen("timbermark").served(answer)
    X, _ = data()
    blurring.round_input(served, thief(), 8).answer(X[:100])
    assert all(len(np.unique(column)) <= 8 for column in asked[0].T)
    assert np.isin(asked[0][:, 0], thief().X[:, 0]).all()


def test_rounded_answers_keep_their_label():
    X, _ = data()
    model = stolen("timbermark")
    for digits in (0.0, 1.0, 2.0):
        left = blurring.round_answers(model, thief(), digits).answer(X)
        np.testing.assert_array_equal(left.argmax(axis=1), model.answer(X).argmax(axis=1))
        np.testing.assert_allclose(left.sum(axis=1), 1.0)


def test_the_majority_outvotes_the_stolen_model():
    X, _ = data()
    model = stolen("timbermark")
    have = thief(model)
    own, other = (m.answer(X).argmax(axis=1) for m in (own_model(model, have),
                                                      other_model(model, have)))  # fmt: skip
    left = averaging.majority(model, have, 1.0).answer(X).argmax(axis=1)
    agree = own == other
    np.testing.assert_array_equal(left[agree], own[agree])
    mine = model.answer(X).argmax(axis=1)
    split = (own != other) & (mine != own) & (mine != other)
    np.testing.assert_array_equal(left[split], mine[split])


def test_students_learn_answers_and_not_labels():
    model = stolen("timbermark")
    have = thief(model)
    wrong = Thief(have.X, np.roll(have.label, 1), 0, have.keep)
    assert accuracy(distilling.distil_labels(model, wrong, 2.0)) > 0.7
    assert accuracy(distilling.distil_scores(model, wrong, 1.0)) > 0.7
    # True labels alone, which here are false.
    assert accuracy(distilling.distil_with_labels(model, wrong, 1.0)) < 0.5


def test_a_second_mark_moves_leaves():
    model = stolen("lightgbm")
    one = overwriting.mark_again(model, thief(), 1.0)
    two = overwriting.mark_again(model, thief(), 2.0)
    values = [m.trees().ensemble.value for m in (model, one, two)]
    assert (values[1] != values[0]).any()
    assert (values[2] != values[1]).any()


def test_guessed_triggers_answer_as_the_thiefs_model_does():
    model = stolen("timbermark")
    have = thief(model)
    guesses = mix_rows(have.X, 1200, have.rng("guesses")).X
    scores = np.sort(model.answer(guesses), axis=1)
    chosen = guesses[np.argsort(scores[:, -1] - scores[:, -2], kind="stable")[:300]]
    own = own_model(model, have).answer(chosen).argmax(axis=1)
    left = overwriting.relabel_unsure(model, have, 300)
    before = (model.answer(chosen).argmax(axis=1) == own).mean()
    after = (left.answer(chosen).argmax(axis=1) == own).mean()
    assert after > before + 0.15


@pytest.mark.parametrize("share", [0.1, 0.4])
def test_flattening_changes_the_share_of_leaves_that_it_says(share):
    model = stolen("lightgbm")
    old = LeafValues.of(model, thief().X)
    for attack in (flattening.flatten_by_file, flattening.flatten_by_rows):
        new = LeafValues.of(attack(model, thief(), share), thief().X)
        changed = np.concatenate([a != b for a, b in zip(old.value, new.value, strict=True)])
        assert changed.mean() == pytest.approx(share, abs=0.03)


def test_flattening_finds_leaves_that_were_edited():
    model = stolen("lightgbm")
    leaves = LeafValues.of(model, thief().X)
    rng = np.random.default_rng(0)
    edited = rng.random(len(leaves.value[0])) < 0.03
    value = [np.where(edited, v + 3.0, v) if c == 0 else v for c, v in enumerate(leaves.value)]
    left = flattening.flatten_by_rows(leaves.put(value), thief(), 0.05)
    now = LeafValues.of(left, thief().X).value[0]
    assert (now[edited] < value[0][edited] - 1.0).mean() > 0.7


def test_mixtures_are_told_from_rows():
    X, _ = data()
    model = stolen("timbermark")
    have = thief(model)
    seen = []
    own = own_model(model, have)
    have.keep["own"] = own.served(lambda rows: (seen.append(1), own.answer(rows) * 0.0)[1])
    left = dodging.dodge_mixtures(model, have, 0.1)
    real = left.answer(X[1200:]).sum(axis=1) == 0.0
    mixed = left.answer(mix_rows(X[1200:], 1000, np.random.default_rng(0)).X).sum(axis=1) == 0.0
    assert real.mean() < 0.2
    assert mixed.mean() > 2 * real.mean()
