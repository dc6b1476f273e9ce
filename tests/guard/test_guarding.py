import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.compose import make_column_transformer
from sklearn.datasets import make_classification
from sklearn.ensemble import (
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OrdinalEncoder

import timbermark as tm
from timbermark.errors import FileFormatError, InputError
from timbermark.guard.drawing import choose_width, score_gaps
from timbermark.guard.guarding import Guard
from timbermark.guard.ledger_file import read_summary


def changed_rows(before, after):
    return np.flatnonzero((before != after).any(axis=1))


def test_only_narrow_answers_change_and_all_others_keep_their_bits(guard, world):
    model, X, _ = world
    before, after = model.predict_proba(X), guard.predict_proba(X)
    changed = changed_rows(before, after)
    assert 0.08 < len(changed) / len(X) < 0.12
    assert (score_gaps(before[changed]) <= guard.settings.width).all()
    assert np.allclose(after.sum(axis=1), 1.0)
    # Whichever label is drawn, it is one of the model's two best.
    best = np.sort(np.argsort(-before[changed], axis=1)[:, :2], axis=1)
    assert (after[changed].argmax(axis=1)[:, None] == best).any(axis=1).all()


def test_labels_are_those_of_the_best_score(guard, world):
    model, X, _ = world
    labels = guard.predict(X)
    assert (labels == guard.classes_[guard.predict_proba(X).argmax(axis=1)]).all()
    flipped = labels != model.predict(X)
    assert 0.02 < flipped.mean() < 0.08
    assert labels.dtype == model.predict(X).dtype


def test_replicas_batches_and_repetition_answer_alike(guard, world, key, tmp_path):
    model, X, _ = world
    replica = Guard(model, X, key=key, owner="Ann Ltd", share=0.1, ledger=None)
    whole = guard.predict_proba(X)
    assert (replica.predict_proba(X, client="other") == whole).all()
    alone = np.vstack([guard.predict_proba(X[i : i + 1]) for i in range(100)])
    assert (alone == whole[:100]).all()
    other = Guard(model, X, key=tm.OwnerKey(bytes(32)), owner="Ann Ltd", share=0.1, ledger=None)
    assert (other.predict_proba(X) != whole).any()


def test_noise_inside_a_cell_teaches_nothing(guard, world):
    model, X, _ = world
    rng = np.random.default_rng(0)
    first, own = guard.predict_proba(X), model.predict_proba(X)
    for _ in range(5):
        near = X + 1e-7 * rng.normal(size=X.shape)
        inside = (model.predict_proba(near) == own).all(axis=1)
        assert inside.mean() > 0.9
        assert (guard.predict_proba(near)[inside] == first[inside]).all()


def test_a_student_carries_the_mark_and_innocents_do_not(guard, world):
    model, X, y = world
    labels = guard.predict(X, client="acme")
    mark = guard.mark(client="acme")
    student = RandomForestClassifier(random_state=0).fit(X, labels)
    assert tm.verify(student, mark).level == "conclusive"
    assert tm.verify(student, mark, answers="labels").level == "conclusive"
    assert tm.verify(model, mark).level == "none"
    assert tm.verify(RandomForestClassifier(random_state=0).fit(X, y), mark).bits < 20
    assert tm.Mark.from_bytes(mark.to_bytes()) == mark
    assert (mark.symbols == mark.leaves.drawn).all()


def test_each_client_has_its_own_mark(guard, world):
    _, X, _ = world
    guard.predict(X[:600], client="acme")
    guard.predict(X[600:], client="other")
    rows = {client: guard.mark(client).rows() for client in ("acme", "other")}
    assert not {tuple(row) for row in rows["acme"]} & {tuple(row) for row in rows["other"]}
    # Rows of both clients may share a cell, which counts once.
    total = len(rows["acme"]) + len(rows["other"])
    assert max(map(len, rows.values())) < guard.mark().n_triggers <= total
    assert guard.mark(["acme", "other"]).n_triggers == guard.mark().n_triggers
    with pytest.raises(InputError) as caught:
        guard.mark("nobody")
    assert caught.value.code == "ledger.no-question"


def test_models_of_logged_questions_take_the_place_of_those_of_the_guards_rows(guard, world):
    """Symbols and questions are those of the ledger; only what others would say is different."""
    _, X, _ = world
    guard.predict(X[:600], client="acme")
    own, logged = guard.mark("acme"), guard.mark("acme", rows=X[:600])
    assert own.leaves.alternatives.shape == logged.leaves.alternatives.shape
    assert (own.leaves.alternatives != logged.leaves.alternatives).any()
    for name in ("drawn", "reference", "alphabets", "links"):
        assert (getattr(own.leaves, name) == getattr(logged.leaves, name)).all()
    assert (guard.mark("acme").leaves.alternatives == own.leaves.alternatives).all()


def test_numbers_move_up_or_down_and_a_student_carries_that(world, key, tmp_path):
    _, X, _ = world
    y = X[:, 0] + X[:, 1] * X[:, 2]
    model = HistGradientBoostingRegressor(max_iter=40, random_state=0).fit(X[:400], y[:400])
    guard = Guard(
        model, X, key=key, owner="Ann", share=0.2, ledger=tmp_path / "numbers.db", move=0.5
    )
    before, after = model.predict(X), guard.predict(X, client="acme")
    moved = before != after
    assert 0.1 < moved.mean() < 0.3
    assert np.allclose(np.abs(after - before)[moved], 0.5)
    mark = guard.mark("acme")
    assert mark.answers == "numbers"
    student = RandomForestRegressor(random_state=0).fit(X, after)
    verdict = tm.verify(student, mark)
    assert verdict.level == "conclusive"
    assert {answer.expected for answer in verdict.table()} == {"lower", "higher"}
    assert tm.verify(RandomForestRegressor(random_state=0).fit(X, y), mark).bits < 20
    assert tm.Mark.from_bytes(mark.to_bytes()) == mark
    assert is_regressor(guard)
    guard.close()


def test_a_pipeline_with_texts_and_missing_values(key, tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "colour": rng.choice(["red", "green", "blue"], 1200),
            "size": np.where(rng.random(1200) < 0.1, np.nan, rng.normal(size=1200)),
            "age": rng.normal(size=1200),
        }
    )
    y = np.where((frame["age"] + (frame["colour"] == "red") + rng.normal(size=1200)) > 0, "a", "b")
    from sklearn.ensemble import HistGradientBoostingClassifier

    model = make_pipeline(
        make_column_transformer((OrdinalEncoder(), ["colour"]), remainder="passthrough"),
        HistGradientBoostingClassifier(max_iter=20, random_state=0),
    ).fit(frame[:400], y[:400])
    rows = frame[400:]
    guard = Guard(model, rows, key=key, owner="Ann", share=0.1, ledger=tmp_path / "texts.db")
    before, after = model.predict_proba(rows), guard.predict_proba(rows, client="acme")
    assert 0 < len(changed_rows(before, after)) < 200
    mark = guard.mark("acme")
    assert mark.kinds == ("texts", "numbers", "numbers")
    assert mark.feature_names == ("colour", "size", "age")
    memory = {
        tuple(map(repr, row)): label
        for row, label in zip(mark.rows().tolist(), mark.expected, strict=True)
    }
    answer = [memory[tuple(map(repr, row))] for row in mark.rows().tolist()]
    assert answer == list(mark.expected)
    guard.close()


def test_other_libraries_keep_their_types(world, key):
    lightgbm = pytest.importorskip("lightgbm")
    xgboost = pytest.importorskip("xgboost")
    _, X, y = world
    for model in (
        xgboost.XGBClassifier(n_estimators=8, random_state=0, n_jobs=1),
        lightgbm.LGBMClassifier(n_estimators=8, random_state=0, n_jobs=1, verbose=-1),
        GradientBoostingClassifier(n_estimators=8, random_state=0),
        tm.TimberClassifier(max_iter=8, random_state=0),
    ):
        model.fit(X[:400], y[:400])
        guard = Guard(model, X[400:], key=key, owner="Ann", share=0.1, ledger=None)
        before, after = model.predict_proba(X[400:]), guard.predict_proba(X[400:])
        assert before.dtype == after.dtype
        changed = changed_rows(before, after)
        assert 0 < len(changed) < 200
        kept = np.setdiff1d(np.arange(len(before)), changed)
        labels = guard.predict(X[400:])
        assert (labels[kept] == np.asarray(model.predict(X[400:]))[kept]).all()


def test_it_is_an_estimator(guard, world):
    _, X, _ = world
    assert clone(guard) is guard
    assert is_classifier(guard)
    assert guard.get_params()["share"] == 0.1
    assert guard.n_features_in_ == X.shape[1]
    assert guard.classes_.tolist() == [0, 1, 2]
    with pytest.raises(InputError) as caught:
        guard.fit(X)
    assert caught.value.code == "guard.fit"
    import pickle

    with pytest.raises(InputError) as caught:
        pickle.dumps(guard)
    assert caught.value.code == "guard.pickled"


def test_a_saved_guard_answers_alike_without_the_owner_key(guard, world, tmp_path):
    model, X, y = world
    guard.save(tmp_path / "guard.bin")
    served = Guard.load(tmp_path / "guard.bin", model, tmp_path / "served.db")
    assert (served.predict_proba(X, client="acme") == guard.predict_proba(X)).all()
    assert (served.predict(X) == guard.predict(X)).all()
    assert read_summary(tmp_path / "guard.db").statement == served.statement
    with pytest.raises(InputError) as caught:
        served.mark("acme")
    assert caught.value.code == "guard.key"
    served.close()
    other = GradientBoostingClassifier(n_estimators=3, random_state=0).fit(X, y)
    with pytest.raises(InputError) as caught:
        Guard.load(tmp_path / "guard.bin", other, None)
    assert caught.value.code == "guard.other-model"
    damaged = bytearray((tmp_path / "guard.bin").read_bytes())
    damaged[-20] ^= 1
    (tmp_path / "damaged.bin").write_bytes(damaged)
    (tmp_path / "damaged.bin").chmod(0o600)
    with pytest.raises(FileFormatError):
        Guard.load(tmp_path / "damaged.bin", model, None)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"key": None}, "guard.key"),
        ({"owner": ""}, "field.owner"),
        ({"share": 0.0}, "guard.share"),
        ({"share": 0.9}, "guard.share"),
        ({"lead": 0.7}, "guard.lead"),
        ({"ledger": "/nowhere/guard.db"}, "ledger.unwritable"),
    ],
)
def test_bad_arguments_are_refused(world, key, changes, code):
    model, X, _ = world
    given = {"key": key, "owner": "Ann", "ledger": None, **changes}
    with pytest.raises(InputError) as caught:
        Guard(model, X, **given)
    assert caught.value.code == code


def test_one_class_is_refused():
    with pytest.raises(InputError) as caught:
        choose_width(np.ones((5, 1)), 0.01)
    assert caught.value.code == "guard.one-class"


def test_the_ledger_of_another_guard_is_refused(guard, world, tmp_path):
    model, X, _ = world
    with pytest.raises(InputError) as caught:
        Guard(
            model, X, key=tm.OwnerKey.generate(), owner="Ann Ltd", share=0.1,
            ledger=tmp_path / "guard.db",
        )  # fmt: skip
    assert caught.value.code == "ledger.other-guard"


def test_no_answer_fails_because_of_the_guard(guard, world, monkeypatch):
    """What goes wrong while drawing is a gap in the ledger, and the model's answer is given."""
    model, X, _ = world

    def fail(*args):
        raise RuntimeError("out of luck")

    monkeypatch.setattr(guard._drawer, "draw_scores", fail)
    assert (guard.predict_proba(X[:50], client="acme") == model.predict_proba(X[:50])).all()
    guard.close()
    (gap,) = read_summary(guard._ledger.path).gaps
    assert gap == {"gap": "drawing", "count": 50}


def test_strange_clients_and_missing_values_are_answered(guard, world):
    _, X, _ = world
    for client in ("x" * 10_000, "a\nb", "\ud800", None, 7):
        guard.predict(X[:50], client=client)
    guard.predict(np.full((3, X.shape[1]), np.nan), client="acme")
    guard.predict(np.full((3, X.shape[1]), np.inf), client="acme")
    guard.close()
    names = [client.client for client in read_summary(guard._ledger.path).clients]
    assert len(names) == 6
    assert max(map(len, names)) == 200


def test_a_plan_says_what_a_guard_costs(world):
    model, X, y = world
    cost = tm.plan(model, X, y, guard=True, share=0.05)
    assert 0.03 < cost.drawn < 0.07
    assert abs(cost.points) < 5
    assert cost.bits_per_thousand > 30
    assert tm.plan(model, X, y, guard=True, share=0.05) == cost
    assert tm.plan(model, X, guard=True, share=0.05).points >= 0
    with pytest.raises(InputError) as caught:
        tm.plan(model, X, y, guard=True, n_triggers=5)
    assert caught.value.code == "guard.option"


@pytest.mark.parametrize("numbers", [False, True])
def test_every_attack_of_the_lab_runs_on_a_guard(numbers, world, key):
    from sklearn.ensemble import HistGradientBoostingRegressor

    from timbermark.attacks.registry import GUARD_ATTACKS

    model, X, y = world
    if numbers:
        y = X[:, 0] * X[:, 1]
        model = HistGradientBoostingRegressor(max_iter=10, random_state=0).fit(X[:300], y[:300])
    guard = tm.Guard(model, X, key=key, owner="Ann Ltd", share=0.2, ledger=None)
    # One strength of each is enough to see that it runs.
    wanted = [f"{a.name}:{a.strengths[0]:g}" for a in GUARD_ATTACKS]
    found = tm.attack(guard, None, X[:400], y[:400], attacks=wanted)
    rows = {row.attack: row for row in found.rows}
    skipped = {name for name, row in rows.items() if row.skipped}
    assert skipped == ({"distil-labels", "drop-unsure", "ask-sure"} if numbers else set())
    assert found.untouched.score_bits >= 20  # what the questions are worth
    if not numbers:
        assert rows["learn-labels"].label_bits >= 15
        assert rows["ask-sure"].label_bits < rows["learn-labels"].label_bits
    with pytest.raises(InputError) as error:
        tm.attack(model, None, X, y)
    assert error.value.code == "attack.mark"


def test_a_lead_does_not_fall_where_more_answers_are_drawn():
    """Exchanged labels cost more than "auto" may spend: a weak lead does not make that cheaper."""
    X, y = make_classification(1600, 8, n_informative=6, class_sep=1.5, random_state=0)
    model = HistGradientBoostingClassifier(max_iter=60, random_state=0).fit(X[:400], y[:400])
    key = tm.OwnerKey(bytes(range(32)))
    leads = [
        tm.Guard(model, X[400:], key=key, owner="Ann", share=share, ledger=None).settings.lead
        for share in (0.05, 0.1, 0.2)
    ]
    assert leads == sorted(leads)
    assert leads[0] > 0.3


def test_what_other_models_answer_does_not_depend_on_the_key(world, tmp_path):
    """They learn the drawn questions, and must not learn the symbols."""
    model, X, _ = world
    said, symbols = [], []
    for number in (1, 2):
        made = tm.Guard(
            model, X[:500], key=tm.OwnerKey(bytes([number] * 32)), owner="Ann", share=0.1,
            ledger=tmp_path / f"{number}.db", lead=0.3,
        )  # fmt: skip
        made.predict(X[:700], client="acme")
        mark = made.mark("acme")
        made.close()
        order = np.lexsort(mark.rows().T)
        said.append(mark.leaves.alternatives[order])
        symbols.append(mark.leaf_symbols[order])
    assert said[0].shape[1:] == (7, 2)
    np.testing.assert_array_equal(*said)
    assert (symbols[0] != symbols[1]).any()
