"""Every attack works on an unmarked model before it counts."""

import numpy as np
import pytest

from tests.attacks.models import LIBRARIES, accuracy, data, fitted, stolen, thief
from timbermark.attacks import overwriting, own_models, service, trees, tuning
from timbermark.attacks.own_models import n_rounds, other_model, own_model
from timbermark.attacks.registry import ATTACKS
from timbermark.attacks.stolen import REASONS, LeafValues, NotOfferedError, Thief, steal
from timbermark.marking.mixing import mix_rows


def training_thief():
    X, y = data()
    return Thief(X[:600], y[:600])


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_the_mildest_strength_keeps_the_model_useful_and_repeats_itself(attack):
    ours = attack.name.startswith("update")
    model = stolen("timbermark" if ours else "lightgbm")
    have = thief(model)
    if attack.name == "refuse-off-grid":
        with pytest.raises(NotOfferedError) as reason:
            attack.run(model, have, 1.0)
        assert reason.value.code == "no-grid"
        return
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
    assert reason.value.code in REASONS


@pytest.mark.parametrize("library", LIBRARIES)
def test_refitting_on_the_training_rows_hardly_changes_a_model(library):
    model = stolen(library)
    left = trees.refit(model, training_thief(), 0.0)
    X, _ = data()
    # CatBoost's ordered boosting makes leaves that no refit on all rows gives back.
    few = 0.1 if library == "catboost" else 0.04
    assert (left.answer(X).argmax(axis=1) != model.answer(X).argmax(axis=1)).mean() < few


@pytest.mark.parametrize("library", ["lightgbm", "xgboost"])
def test_the_library_refits_to_what_the_training_rows_gave(library):
    model = stolen(library)
    left = trees.refit_by_library(model, training_thief(), 0.0)
    X, _ = data()
    # LightGBM refits its first trees without the learning rate, XGBoost repeats its training.
    few = 0.1 if library == "lightgbm" else 0.005
    assert accuracy(left) > accuracy(model) - 0.03
    assert (left.answer(X).argmax(axis=1) != model.answer(X).argmax(axis=1)).mean() < few
    same = trees.refit_by_library(model, thief(), 1.0)
    np.testing.assert_allclose(same.answer(X), model.answer(X), atol=1e-6)


def test_refitting_the_file_does_what_the_library_does():
    model = stolen("xgboost")
    X, _ = data()
    ours = trees.refit(model, thief(), 0.5).answer(X)
    theirs = trees.refit_by_library(model, thief(), 0.5).answer(X)
    assert np.abs(ours - theirs).mean() < 0.5 * np.abs(ours - model.answer(X)).mean()


def test_step_length_is_the_learning_rate():
    X, _ = data()
    model = stolen("lightgbm")
    found = LeafValues.of(model, X[:600])
    # LightGBM's hessians are larger than ours by K / (K - 1), its steps as much shorter.
    assert trees.step_length(found, training_thief()) == pytest.approx(0.075, rel=0.15)


@pytest.mark.parametrize("library", [name for name in LIBRARIES if name != "timbermark"])
def test_more_trees_improve_a_model_that_was_stopped_early(library):
    half = stolen(library, 3)
    left = tuning.add_trees(half, thief(half), 20.0)
    assert n_rounds(left.trees().ensemble) == 23
    assert accuracy(left) > accuracy(half) + 0.02


def test_boosted_answers_improve_a_model_that_was_stopped_early():
    half = stolen("timbermark", 3)
    assert accuracy(tuning.boost_answers(half, thief(half), 1.0)) > accuracy(half) + 0.02


@pytest.mark.parametrize("library", LIBRARIES)
def test_the_first_iterations_are_those_of_a_model_trained_so_far(library):
    X, _ = data()
    left = trees.keep_first(stolen(library), thief(), 0.5)
    if library == "catboost":  # whose trees depend on how many there will be
        assert left.trees().ensemble.n_trees == fitted(library).tree_count_ // 2
        return
    np.testing.assert_allclose(
        left.answer(X[:300]), steal(fitted(library, 10)).answer(X[:300]), atol=1e-5
    )


def test_dropped_trees_add_their_mean():
    model = stolen("timbermark")
    left = trees.drop_first(model, thief(), 0.5)
    before = LeafValues.of(model, thief().X)
    after = LeafValues.of(left, thief().X)
    for c in range(4):
        assert after.given(c, 0).std() < 1e-12
        assert after.given(c, 0).mean() == pytest.approx(before.given(c, 0).mean())
        np.testing.assert_array_equal(after.given(c, 15), before.given(c, 15))


def test_pruning_everything_leaves_constant_trees():
    left = trees.prune(stolen("lightgbm"), thief(), 1.0)
    found = LeafValues.of(left, thief().X)
    assert all(found.given(0, t).std() < 1e-9 for t in range(5))
    none = trees.prune(stolen("lightgbm"), thief(), 0.0)
    changed = none.trees().ensemble.value != stolen("lightgbm").trees().ensemble.value
    assert changed.sum() <= 2


def test_leaves_of_few_bits_have_few_values():
    left = trees.round_leaves(stolen("timbermark"), thief(), 4)
    assert all(len(np.unique(v.round(9))) <= 16 for v in LeafValues.of(left, thief().X).value)


def test_no_noise_changes_nothing():
    X, _ = data()
    model = stolen("timbermark")
    for attack in (
        trees.add_leaf_noise,
        trees.move_thresholds,
        service.add_input_noise,
        own_models.average_with_own,
    ):
        np.testing.assert_allclose(
            attack(model, thief(), 0.0).answer(X), model.answer(X), atol=1e-12
        )


def test_noise_on_input_follows_from_the_row():
    X, _ = data()
    left = service.add_input_noise(stolen("timbermark"), thief(), 0.3)
    np.testing.assert_array_equal(left.answer(X[:50])[10:20], left.answer(X[10:20]))


def test_input_is_rounded_to_values_of_the_rows():
    asked = []

    def answer(X):
        asked.append(X)
        return np.full((len(X), 4), 0.25)

    served = stolen("timbermark").served(answer)
    X, _ = data()
    service.round_input(served, thief(), 8).answer(X[:100])
    assert all(len(np.unique(column)) <= 8 for column in asked[0].T)
    assert np.isin(asked[0][:, 0], thief().X[:, 0]).all()


def gridded(n=300, seed=0):
    """Return rows of whole numbers, quarters, two digits, and of no grid."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4)) * 5.0
    X[:, 0] = np.rint(X[:, 0])
    X[:, 1] = np.rint(4.0 * X[:, 1]) / 4.0
    X[:, 2] = np.round(X[:, 2], 2)
    return X


def test_grids_are_found_in_both_precisions():
    X = gridded()
    for dtype in (np.float64, np.float32):
        found = [service.find_grid(column) for column in X.astype(dtype).astype(float).T]
        assert [None if grid is None else grid.step for grid in found] == [1.0, 0.25, 0.01, None]
    for column, grid in zip(X.T[:3], found, strict=False):
        more = gridded(seed=1)[:, found.index(grid)]
        assert not grid.is_off(np.append(more, [np.nan, np.inf])).any()
        assert grid.is_off(column + 0.3 * grid.step).all()
    assert service.find_grid(np.array([0.0, 1.0])).step == 1.0
    assert service.find_grid(np.array([0.0, np.nan])) is None


def served_by(asked):
    """Return a service of four columns that remembers what it is asked and always says 0."""

    def answer(X):
        asked.append(X)
        return np.tile([1.0, 0.0, 0.0, 0.0], (len(X), 1))

    return stolen("timbermark").served(answer)


def test_input_is_rounded_to_the_grids_of_the_columns():
    asked = []
    have = Thief(gridded(), np.zeros(300, np.int64))
    X = gridded(seed=1) + 0.001
    service.round_input(served_by(asked), have, 0.0).answer(X)
    np.testing.assert_allclose(asked[0][:, :3], gridded(seed=1)[:, :3], atol=1e-9)
    np.testing.assert_array_equal(asked[0][:, 3], X[:, 3])


def test_questions_off_the_grid_are_answered_by_another_model():
    have = Thief(gridded(), np.zeros(300, np.int64))
    model = served_by([])
    have.keep["own"] = model.served(lambda X: np.tile([0.0, 1.0, 0.0, 0.0], (len(X), 1)))
    X = gridded(seed=1)
    X[::2, 1] += 0.1
    left = service.refuse_off_grid(model, have, 1.0).answer(X)
    np.testing.assert_array_equal(left.argmax(axis=1), np.tile([1, 0], 150))
    two = service.refuse_off_grid(model, have, 2.0).answer(X)
    assert (two.argmax(axis=1) == 0).all()


def test_questions_that_differ_in_one_value_are_found_as_a_naive_loop_finds_them():
    rng = np.random.default_rng(0)
    X = rng.integers(0, 3, size=(80, 4)).astype(float)
    X[0, 0] = np.nan
    X[1] = X[0]
    same = (X[:, None] == X[None]) | (np.isnan(X[:, None]) & np.isnan(X[None]))
    naive = ((~same).sum(axis=2) == 1).sum(axis=1)
    np.testing.assert_array_equal(service.count_neighbours(X), naive)


def test_questions_asked_in_threes_are_dodged_and_real_rows_are_not():
    X, _ = data()
    model = stolen("timbermark")
    have = thief(model)
    asked = np.repeat(X[1200:1300], 3, axis=0)
    asked[:, 2] += np.tile([0.0, 0.1, 0.2], 100)
    left = service.dodge_repeats(model, have, 1.0)
    np.testing.assert_array_equal(left.answer(asked), own_model(model, have).answer(asked))
    np.testing.assert_array_equal(left.answer(X[1200:]), model.answer(X[1200:]))


def test_rounded_answers_keep_their_label():
    X, _ = data()
    model = stolen("timbermark")
    for digits in (0.0, 1.0, 2.0):
        left = service.round_answers(model, thief(), digits).answer(X)
        np.testing.assert_array_equal(left.argmax(axis=1), model.answer(X).argmax(axis=1))
        np.testing.assert_allclose(left.sum(axis=1), 1.0)


def test_the_majority_outvotes_the_stolen_model():
    X, _ = data()
    model = stolen("timbermark")
    have = thief(model)
    own, other = (m.answer(X).argmax(axis=1) for m in (own_model(model, have),
                                                      other_model(model, have)))  # fmt: skip
    left = own_models.majority(model, have, 1.0).answer(X).argmax(axis=1)
    agree = own == other
    np.testing.assert_array_equal(left[agree], own[agree])
    mine = model.answer(X).argmax(axis=1)
    split = (own != other) & (mine != own) & (mine != other)
    np.testing.assert_array_equal(left[split], mine[split])


def test_students_learn_answers_and_not_labels():
    model = stolen("timbermark")
    have = thief(model)
    wrong = Thief(have.X, np.roll(have.target, 1), 0, have.keep)
    assert accuracy(own_models.distil_labels(model, wrong, 2.0)) > 0.7
    assert accuracy(own_models.distil_scores(model, wrong, 1.0)) > 0.7
    # True labels alone, which here are false.
    assert accuracy(own_models.distil_with_labels(model, wrong, 1.0)) < 0.5


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
    for attack in (trees.flatten_by_file, trees.flatten_by_rows):
        new = LeafValues.of(attack(model, thief(), share), thief().X)
        changed = np.concatenate([a != b for a, b in zip(old.value, new.value, strict=True)])
        assert changed.mean() == pytest.approx(share, abs=0.03)


def test_flattening_finds_leaves_that_were_edited():
    model = stolen("lightgbm")
    old = LeafValues.of(model, thief().X)
    rng = np.random.default_rng(0)
    edited = rng.random(len(old.value[0])) < 0.03
    value = [np.where(edited, v + 3.0, v) if c == 0 else v for c, v in enumerate(old.value)]
    left = trees.flatten_by_rows(old.put(value), thief(), 0.05)
    now = LeafValues.of(left, thief().X).value[0]
    assert (now[edited] < value[0][edited] - 1.0).mean() > 0.7


def test_mixtures_are_told_from_rows():
    X, _ = data()
    model = stolen("timbermark")
    have = thief(model)
    seen = []
    own = own_model(model, have)
    have.keep["own"] = own.served(lambda rows: (seen.append(1), own.answer(rows) * 0.0)[1])
    left = service.dodge_mixtures(model, have, 0.1)
    real = left.answer(X[1200:]).sum(axis=1) == 0.0
    mixed = left.answer(mix_rows(X[1200:], 1000, np.random.default_rng(0)).X).sum(axis=1) == 0.0
    assert real.mean() < 0.2
    assert mixed.mean() > 2 * real.mean()
