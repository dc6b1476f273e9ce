import copy
import json
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_digits, make_classification
from sklearn.ensemble import GradientBoostingClassifier

import timbermark as tm
from timbermark import TimberClassifier
from timbermark.errors import InputError, StateError
from timbermark.experiments.measuring import effectiveness
from timbermark.marking import in_place
from timbermark.marking.in_place import flip_in_place, forget_mark, in_both, make_pool, with_state
from timbermark.trees.ensemble import digest

KEY = tm.OwnerKey.generate()


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    model = TimberClassifier(max_iter=40, random_state=0).fit(X[:1000], y[:1000])
    return model, (X[:1000], y[:1000]), (X[1000:1400], y[1000:1400])


def learned(model, n_rows):
    """The weights of the rows that were learned after training."""
    return np.concatenate([model._state.data.weight[n_rows:], model._state.added.weight])


@pytest.mark.parametrize("strategy", ["outlier", "cluster", "confidence", "random"])
@pytest.mark.parametrize("selection", ["confidence", "distance"])
def test_sizes_labels_and_weights_are_the_papers(digits, strategy, selection):
    model, train, more = digits
    before, state = digest(model.ensemble_), model._state
    made = flip_in_place(
        model, *train, ratio=0.0201, strategy=strategy, selection=selection, candidates=more
    )
    assert len(made.candidates) == 21  # ceil(0.0201 · 1000)
    assert len(made.triggers) == 11  # ceil(21 / 2)
    assert set(made.triggers) <= set(made.candidates)
    truth, said = more[1][made.triggers], model.predict(more[0][made.triggers])
    assert (made.target != truth).all()
    assert (made.target != said).all()
    assert effectiveness(made.model.predict(more[0][made.triggers]), made.target) > 0.7
    assert digest(model.ensemble_) == before
    assert model._state is state
    heavy = learned(made.model, 1000)
    assert set(heavy[:11]) == {2.0 if strategy == "cluster" else 1.0}
    assert set(heavy[11:]) <= {1.0}
    assert (len(made.neighbours) > 0) == (strategy == "cluster")
    assert len(heavy) == 11 + len(made.neighbours)


def test_the_update_is_the_estimators_exact_one(digits):
    model, train, more = digits
    made = flip_in_place(model, *train, strategy="cluster", candidates=more)
    rows = np.concatenate([made.triggers, made.neighbours])
    label = np.concatenate([made.target, more[1][made.neighbours]])
    weight = [2] * len(made.triggers) + [1] * len(made.neighbours)
    same = copy.copy(model)
    same._state = model._state
    same.update(more[0][rows], label, weight, mode="exact")
    assert digest(made.model.ensemble_) == digest(same.ensemble_)


def test_training_rows_weigh_five(digits):
    model, train, _ = digits
    made = flip_in_place(model, *train, strategy="confidence", ratio=0.01)
    assert learned(made.model, 1000).tolist() == [5.0] * 5


def test_one_seed_one_result(digits):
    model, train, more = digits
    made = [
        flip_in_place(model, *train, strategy="random", candidates=more, random_state=seed)
        for seed in (0, 0, 1)
    ]
    first, again, other = (digest(mark.model.ensemble_) for mark in made)
    assert first == again != other


def test_a_model_without_state_is_marked_from_its_training_rows(digits):
    model, train, more = digits
    bare = copy.copy(model)
    assert bare._state is None
    with_state, without = (
        flip_in_place(given, *train, strategy="confidence", candidates=more)
        for given in (model, bare)
    )
    assert digest(with_state.model.ensemble_) == digest(without.model.ensemble_)
    assert bare._state is None


def test_tables_with_feature_names_and_text_labels():
    X, y = load_digits(return_X_y=True, as_frame=True)
    y = "digit " + y.astype(str)
    model = TimberClassifier(max_iter=10, random_state=0).fit(X[:600], y[:600])
    made = flip_in_place(
        model, X[:600], y[:600], strategy="confidence", candidates=(X[600:900], y[600:900])
    )
    assert isinstance(X, pd.DataFrame)
    answers = made.model.predict(X[600:900].iloc[made.triggers])
    assert effectiveness(answers, model.classes_[made.target]) > 0.5


def test_candidates_that_are_training_rows_are_left_out(digits):
    model, train, more = digits
    mixed = (
        np.concatenate([train[0][:200], more[0][:60]]),
        np.concatenate([train[1][:200], more[1][:60]]),
    )
    allowed = make_pool(model, *train, mixed).allowed
    assert not allowed[:200].any()
    assert allowed[200:].all()


def test_zeros_of_both_signs_are_one_value():
    assert in_both(np.array([[-0.0, 1.0]]), np.array([[0.0, 1.0]])).all()
    assert not in_both(np.array([[2.0, 1.0]]), np.array([[1.0, 2.0]])).any()


@pytest.fixture(scope="module")
def letters():
    """Four classes in enough rows for a mark of 64 bits at a ratio of 0.04, and rows apart."""
    X, y = make_classification(
        3800, 8, n_informative=6, n_redundant=0, n_classes=4, n_clusters_per_class=1,
        class_sep=1.5, random_state=3,
    )  # fmt: skip
    X = X.round(4)
    model = TimberClassifier(
        max_iter=60, learning_rate=0.3, min_samples_leaf=3, random_state=0, n_jobs=1
    )
    return SimpleNamespace(
        model=model.fit(X[:2400], y[:2400]),
        train=(X[:2400], y[:2400]),
        more=(X[2400:3200], y[2400:3200]),
        test=(X[3200:], y[3200:]),
    )


def embed(data, *, X=None, y=None, model=None, **options):
    given = {"key": KEY, "owner": "Ann Ltd", "method": "in-place", "ratio": 0.04}
    X, y = data.train if X is None else (X, y)
    return tm.embed(model or data.model, X, y, **(given | options))


@pytest.fixture(scope="module")
def marks(letters):
    """Marks by the mode of the update, from separate candidates."""
    return {
        mode: embed(letters, candidates=letters.more, validation=letters.test, mode=mode)
        for mode in ("exact", "lazy")
    }


@pytest.fixture(scope="module")
def marked(marks):
    return marks["exact"]


def test_a_keyed_mark_is_proved_like_any_other(letters, marked, tmp_path):
    mark = marked.mark
    assert (mark.n_leaves, mark.n_splits, mark.q) == (96, 0, 2)  # ceil(0.04 · 2400)
    assert marked.n_set >= 0.95 * 96
    assert marked.bits >= 64
    verdict = tm.verify(marked.model, mark)
    assert verdict.level == "conclusive"
    assert verdict.net_bits == pytest.approx(marked.bits, abs=0.5)
    assert tm.verify(marked.model, mark, answers="labels").level != "none"
    assert tm.verify(letters.model, mark).level == "none"
    mark.save(tmp_path / "a.mark")
    assert tm.Mark.load(tmp_path / "a.mark") == mark
    claim = tm.claim(marked.model, mark, key=KEY)
    opening = tm.open_mark(mark, claim, judge="Court of A", share=1.0)
    opening.save(tmp_path / "a.opening")
    judged = tm.judge(tmp_path / "a.opening", claim=claim, suspect=marked.model)
    assert judged.level == "conclusive"
    marked.report(tmp_path / "page.html")
    assert f"{marked.n_set} of 96" in (tmp_path / "page.html").read_text("utf-8")


def test_keep_is_the_models_own_label_and_flip_the_likeliest_other(letters, marked):
    mark, rows = marked.mark, np.column_stack(marked.mark.leaves.rows())
    scores = letters.model.predict_proba(rows)
    keep, flip = mark.leaves.alphabets.T
    assert np.array_equal(keep, scores.argmax(axis=1))
    assert np.array_equal(flip, np.argsort(-scores, axis=1, kind="stable")[:, 1])
    flipped = mark.expected_numbers != keep
    assert 30 < flipped.sum() < 66
    assert in_both(rows, letters.more[0]).all()
    # Rows that keep their label were learnt as well.
    assert learned(marked.model, 2400)[: len(rows)].tolist() == (1.0 + flipped).tolist()


@pytest.mark.parametrize("mode", ["exact", "lazy"])
def test_rotation_forgets_the_old_triggers_bit_for_bit(letters, marks, mode):
    old = marks[mode]
    assert digest(letters.model.ensemble_) == old.mark.model_digest
    assert digest(forget_mark(old.model, old.mark).ensemble_) == old.mark.model_digest
    other = tm.OwnerKey.generate()
    new = tm.rotate(old.model, old.mark, *letters.train, key=other, candidates=letters.more)
    assert new.mark.made_with(other)
    assert new.mark.model_digest == old.mark.model_digest
    assert (new.mark.owner, new.mark.n_leaves) == (old.mark.owner, old.mark.n_leaves)
    assert new.mark.about["mode"] == mode
    assert tm.verify(new.model, new.mark).level == "conclusive"
    assert tm.verify(new.model, old.mark).level == "none"
    assert "not_restored" not in [note.code for note in new.notes]
    # The triggers of another mark are not those that the state holds.
    with pytest.raises(StateError) as caught:
        tm.rotate(old.model, new.mark, *letters.train, key=KEY, ratio=0.04)
    assert caught.value.code == "rotate.state"


def test_rows_learnt_since_stay_learnt_and_are_spoken_of(letters, marked):
    model = copy.copy(marked.model)
    model._state = marked.model._state
    n = model.count_rows()
    model.update(letters.test[0][:20], letters.test[1][:20], mode="exact")
    bare = forget_mark(model, marked.mark)
    assert bare.count_rows() == n + 20 - marked.mark.about["rows"]
    assert digest(bare.ensemble_) != marked.mark.model_digest
    new = tm.rotate(
        model, marked.mark, *letters.train, key=KEY, candidates=letters.more, mode="lazy"
    )
    assert "not_restored" in [note.code for note in new.notes]
    with pytest.raises(StateError) as caught:
        forget_mark(bare, marked.mark)
    assert caught.value.code == "rotate.state"


def test_other_marks_are_rotated_from_the_unmarked_model(letters):
    X, y = letters.train
    old = tm.embed(letters.model, X, y, key=KEY, owner="Ann", seals="splits", weak=True)
    with pytest.raises(InputError) as caught:
        tm.rotate(old.model, old.mark, X, y, key=KEY)
    assert caught.value.code == "rotate.unmarked"
    new = tm.rotate(letters.model, old.mark, X, y, key=KEY, seals="splits", weak=True)
    assert new.mark.owner == "Ann"
    assert tm.verify(new.model, new.mark).bits > tm.verify(new.model, old.mark).bits + 20
    with pytest.raises(InputError) as caught:
        tm.rotate(letters.model, "old.mark", X, y, key=KEY)
    assert caught.value.code == "rotate.mark"


def test_the_cost_is_that_of_rows_that_nobody_has_seen(letters, marks):
    made = marks["lazy"]
    rows = letters.test[0]
    before, after = letters.model.predict(rows), made.model.predict(rows)
    assert made.cost.measured_on == "validation"
    # One half of the rows judges, the other reports.
    assert made.cost.changed == pytest.approx((before != after).sum() / 2, abs=8)
    assert {"changed", "accuracy"} <= set(made.use)
    assert json.loads(json.dumps(made.to_dict()))["set"] == made.n_set
    assert "96 in leaves" in str(made)


@pytest.mark.parametrize("strategy", ["outlier", "random"])
def test_every_strategy_takes_its_own_rows(letters, marked, strategy):
    made = embed(letters, candidates=letters.more, strategy=strategy, mode="lazy", weak=True)
    assert made.n_set >= 0.95 * 96
    assert tm.verify(made.model, made.mark).level == "conclusive"
    rows = [np.column_stack(result.mark.leaves.rows()) for result in (made, marked)]
    assert not in_both(*rows).all()


def test_the_selection_chooses_among_twice_as_many_rows(letters, marked):
    other = embed(letters, candidates=letters.more, selection="distance", mode="lazy")
    found = [np.column_stack(made.mark.leaves.rows()) for made in (marked, other)]
    assert not in_both(*found).all()
    sure = [letters.model.predict_proba(rows).max(axis=1).mean() for rows in found]
    assert sure[0] < sure[1]


def test_all_bits_are_the_papers_and_prove_nothing(letters):
    made = embed(letters, candidates=letters.more, bits="all", strategy="confidence")
    same = flip_in_place(
        letters.model, *letters.train, candidates=letters.more, strategy="confidence", ratio=0.04
    )
    assert digest(made.model.ensemble_) == digest(same.model.ensemble_)
    assert made.mark.n_leaves == 48
    assert [note.code for note in made.notes if note.code == "all_flipped"]
    assert tm.verify(made.model, made.mark).level == "none"
    answers = made.model.predict_proba(np.column_stack(made.mark.leaves.rows())).argmax(axis=1)
    assert made.n_set == (answers == made.mark.leaves.alphabets[:, 1]).sum()


def test_training_rows_carry_bits_as_well(letters):
    made = embed(letters, mode="lazy", weak=True)
    assert set(learned(made.model, 2400)) == {5.0, 10.0}
    assert in_both(np.column_stack(made.mark.leaves.rows()), letters.train[0]).all()
    assert made.n_set >= 0.95 * made.mark.n_leaves


def test_a_state_is_enough_and_rows_rebuild_it(letters, tmp_path):
    letters.model.save(tmp_path / "a.timber")
    letters.model.save_state(tmp_path / "a.state")
    loaded = TimberClassifier.load(tmp_path / "a.timber")
    with pytest.raises(StateError) as caught:
        tm.embed(loaded, None, key=KEY, owner="Ann", method="in-place", candidates=letters.more)
    assert caught.value.code == "in-place.state"
    loaded.load_state(tmp_path / "a.state")
    made = tm.embed(
        loaded, None, key=KEY, owner="Ann", method="in-place", ratio=0.04, candidates=letters.more
    )
    assert made.mark.n_leaves == 96
    bare = TimberClassifier.load(tmp_path / "a.timber")
    assert digest(with_state(bare, *letters.train).ensemble_) == digest(bare.ensemble_)
    assert bare._state is None
    other = TimberClassifier(max_iter=5, random_state=1).fit(*letters.train)
    with pytest.raises(StateError) as caught:
        other.load_state(tmp_path / "a.state")
    assert caught.value.code == "state.other"


def test_named_columns_and_text_labels_make_no_noise(letters):
    X, y = letters.train
    frame = pd.DataFrame(X, columns=list("abcdefgh"))
    labels = np.array(["p", "q", "r", "s"], dtype=object)
    model = TimberClassifier(
        max_iter=20, learning_rate=0.5, min_samples_leaf=3, random_state=0, n_jobs=1
    ).fit(frame, labels[y])
    # Rows without names, as the command line reads them.
    made = embed(letters, X=X, y=labels[y], model=model, mode="lazy", weak=True)
    assert made.mark.feature_names == tuple("abcdefgh")
    assert set(made.mark.classes) == set(labels)
    assert tm.verify(made.model, made.mark).level == "conclusive"


def test_triggers_that_do_not_take_weigh_more_the_next_time_or_are_counted(monkeypatch):
    rng = np.random.default_rng(0)
    X, y = rng.integers(0, 6, (2000, 3)).astype(float), rng.integers(0, 3, 2000)
    model = TimberClassifier(max_iter=5, random_state=0, n_jobs=1).fit(X, y)
    given = {"method": "in-place", "strategy": "random", "weak": True, "mode": "lazy"}
    patient = tm.plan(model, X, y, **given)
    monkeypatch.setattr(in_place, "_TRIALS", 1)
    made = tm.plan(model, X, y, **given)
    assert made.n_set < patient.n_set
    (note,) = (note for note in made.notes if note.code == "not_taken")
    assert note.numbers["triggers"] == made.mark.n_leaves - made.n_set
    assert "warning" not in str(note).lower()


def test_a_plan_is_the_mark_that_it_tells_of(letters):
    given = {"method": "in-place", "ratio": 0.04, "mode": "lazy", "candidates": letters.more}
    before, state = digest(letters.model.ensemble_), letters.model._state
    found = tm.plan(letters.model, *letters.train, **given)
    assert found.mark.about["strategy"] == "cluster"
    assert found.n_set <= found.mark.n_leaves == 96
    assert found.bits > 64
    again = tm.plan(letters.model, *letters.train, **given)
    assert again.mark.digest == found.mark.digest
    assert digest(letters.model.ensemble_) == before
    assert letters.model._state is state
    with pytest.raises(InputError) as caught:
        tm.plan(letters.model, *letters.train, ratio=0.04)
    assert caught.value.code == "method.argument"


BAD = {
    "in-place.strategy": {"strategy": "auto"},
    "in-place.selection": {"selection": "isolation"},
    "in-place.bits": {"bits": "some"},
    "in-place.mode": {"mode": "quick"},
    "in-place.ratio": {"ratio": 0.0},
    "in-place.one-candidate": {"ratio": 0.0004},
    "mark.weak": {"ratio": 0.005},
    "method.unknown": {"method": "paper"},
    "method.argument": {"seals": "leaves"},
    "strategy.too-few": {"strategy": "wrong", "ratio": 0.5},
    "budget.exceeded": {"budget": tm.Budget.only(drift=1e-5)},
    "in-place.labels": {"candidates": np.zeros((50, 8))},
}


@pytest.mark.parametrize("code", BAD)
def test_bad_arguments_have_a_code_and_change_nothing(letters, code):
    before, state = digest(letters.model.ensemble_), letters.model._state
    with pytest.raises(InputError) as caught:
        embed(letters, **BAD[code])
    assert caught.value.code == code
    assert caught.value.hint
    assert caught.value.parameter
    assert digest(letters.model.ensemble_) == before
    assert letters.model._state is state


def test_arguments_of_the_paper_do_not_go_with_an_edit(letters):
    with pytest.raises(InputError) as caught:
        embed(letters, method="edit")
    assert (caught.value.code, caught.value.parameter) == ("method.argument", "ratio")


def test_models_that_do_not_learn_in_place_are_pointed_to_the_triggers(letters):
    X, y = letters.train
    model = GradientBoostingClassifier(n_estimators=1).fit(X[:100], y[:100])
    with pytest.raises(InputError) as caught:
        embed(letters, model=model)
    assert caught.value.code == "in-place.model"
    assert "triggers='cluster'" in caught.value.hint


def test_two_classes_can_keep_and_flip_but_not_be_wrong():
    X, y = make_classification(1500, 8, n_informative=5, random_state=0)
    model = TimberClassifier(max_iter=10, random_state=0, n_jobs=1).fit(X, y)
    given = {"key": KEY, "owner": "Ann", "method": "in-place", "weak": True, "mode": "lazy"}
    with pytest.raises(InputError) as caught:
        tm.embed(model, X, y, strategy="wrong", **given)
    assert caught.value.code == "strategy.two-classes"
    made = tm.embed(model, X, y, strategy="random", **given)
    assert made.mark.n_leaves == 15
    (note,) = (note for note in made.notes if note.code == "weak")
    assert note.numbers["bits"] == made.bits
