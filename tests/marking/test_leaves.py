"""What a mark holds of models without it, and that it helps against real thefts."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from benchmarks.hiding import off_grid
from catboost import CatBoostClassifier
from lightgbm import LGBMClassifier
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_digits
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import timbermark as tm
from tests.marking.models import data, new_model
from timbermark.attacks.registry import find_attacks
from timbermark.attacks.stolen import Thief, steal
from timbermark.kernels.workers import Workers
from timbermark.marking import leaves
from timbermark.marking.choosing import find_candidates
from timbermark.marking.leaves import score_alternatives
from timbermark.marking.preparing import prepare
from timbermark.ownership.evidence import Answers, weigh

KEY = tm.OwnerKey.generate()


def evidence(scores, mark):
    (found,) = weigh(mark, Answers("scores", np.asarray(scores, np.float64)))
    return found.bits


@pytest.fixture(scope="module")
def marked():
    X, y = load_digits(return_X_y=True)
    model = tm.TimberClassifier(max_iter=60, random_state=0).fit(X[:1200], y[:1200])
    made = tm.embed(model, X[:1200], y[:1200], key=KEY, owner="Ann", seals="leaves")
    return model, made, Thief(X[1200:], y[1200:], 0)


def scored(model, X, y, q, kind="mixed"):
    """The alternatives of a model on candidates, and the candidates."""
    with Workers(1) as workers:
        ready = prepare(model, X, y, None, None, 0, workers)
        found = find_candidates(ready, kind, 40, 1, q, workers)
        return score_alternatives(ready, found, workers), found, ready


def test_they_are_the_model_cut_and_flattened_and_a_forest():
    X, y = load_digits(return_X_y=True)
    model = tm.TimberClassifier(max_iter=18, random_state=0).fit(X, y)
    scores, found, ready = scored(model, X, y, 4)
    assert scores.shape == (len(found), 5, 4)
    assert ((scores >= 0) & (scores <= 1)).all()
    again = scored(model, X, y, 4)[0]
    np.testing.assert_array_equal(scores, again)
    thief, rows = Thief(X, y, 0), ready.schema.columns(found.X)
    attacks = ("keep-first:0.25", "keep-first:0.5", "drop-first:0.9", "flatten-file:0.25")
    for place, name in enumerate(attacks):
        (attack, strength), *_ = find_attacks((name,))
        stolen = attack.run(steal(model), thief, strength).answer(rows)
        expected = np.take_along_axis(stolen, found.alphabets.astype(int), axis=1)
        # The thief knows rows, and the mark hessians, of which dropped trees take the mean.
        near = 0.03 if name.startswith("drop") else 1e-6
        np.testing.assert_allclose(scores[:, place], expected, atol=near)
    # The model's best four of ten labels are likely to the forest as well, undecided as they are.
    assert scores[:, 4].sum(axis=1).mean() > 0.55


def test_other_kinds_of_models_have_them_too():
    X, y = (part[:700] for part in load_digits(n_class=6, return_X_y=True))
    few = y < 3
    frame = pd.DataFrame(X[:, 10:30], columns=[f"p{i}" for i in range(20)])
    frame["shade"] = np.where(X[:, 30] > 8, "dark", "light")
    columns = ColumnTransformer([("texts", OneHotEncoder(), ["shade"])], remainder="passthrough")
    boosted = HistGradientBoostingClassifier(max_iter=15, random_state=0)
    calibrated = CalibratedClassifierCV(
        HistGradientBoostingClassifier(max_iter=10, random_state=0), cv=2
    )
    catboost = CatBoostClassifier(
        iterations=20, verbose=0, thread_count=1, allow_writing_files=False
    )
    one_for_all = LGBMClassifier(
        n_estimators=15, objective="multiclassova", num_class=6, verbose=-1, n_jobs=1
    )
    # Calibration is asked for every pair of labels: three classes are asked enough.
    for model, rows, labels, q in (
        (make_pipeline(columns, boosted), frame, y, 4), (calibrated, X[few], y[few], 2),
        (catboost, X, y, 4), (one_for_all, X, y, 4),
    ):  # fmt: skip
        scores = scored(model.fit(rows, labels), rows, labels, q)[0]
        assert scores.shape[1:] == (5, q)
        assert np.isfinite(scores).all()
        # Half of the trees tell more than a quarter, and all of these models differ.
        assert len({scores[:, place].tobytes() for place in range(5)}) == 5


def test_cuts_leave_more_evidence_than_without_them(marked):
    """The same suspect, judged with and without what the mark holds of other models."""
    _, made, thief = marked
    mark = made.mark
    assert mark.leaves.alternatives.shape[1] == 5
    alone = _without_alternatives(mark)
    # Without its first tenth the model has nearly all of its evidence either way.
    for name, more in (("keep-first:0.25", 50), ("flatten-file:0.25", 50), ("drop-first:0.9", 0)):
        (attack, strength), *_ = find_attacks((name,))
        scores = attack.run(steal(made.model), thief, strength).answer(mark.rows())
        assert evidence(scores, mark) > evidence(scores, alone) + more, name


def test_no_attack_on_the_unmarked_model_gives_it_evidence(marked):
    model, made, thief = marked
    skipped = []
    for attack, strength in find_attacks("fast"):
        try:
            suspect = attack.run(steal(model), thief, strength)
        except tm.errors.TimbermarkError:
            skipped.append(attack.name)
            continue
        assert evidence(suspect.answer(made.mark.rows()), made.mark) < 10
    assert skipped == ["add-trees"]


def test_missing_values_and_a_single_label_are_no_obstacle():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1500, 5))
    y = (X[:, 0] + X[:, 1] > 2.5).astype(int)
    X[rng.random(X.shape) < 0.1] = np.nan
    model = tm.TimberClassifier(max_iter=20, random_state=0).fit(X, y)
    scores = scored(model, X, y, 2)[0]
    assert np.isfinite(scores).all()
    sure = model.predict(X) == 0
    only = scored(model, X[sure], None, 2)[0]
    assert only.shape[1] == 4


def _without_alternatives(mark):
    """The mark as it would be judged without them: with the same symbols."""

    bare = replace(mark.leaves, alternatives=np.zeros((mark.n_leaves, 0, mark.q)))

    class Bare:
        leaves = bare
        seals = (bare,)

        def __getattr__(self, name):
            return getattr(mark, name)

    return Bare()


@pytest.mark.parametrize("library", ["xgboost", "lightgbm"])
def test_first_round_leaves_stay_on_the_grid_of_the_library(library, monkeypatch):
    """98 % of those of a marked file were off it, and none of an unmarked one's."""
    X, y, *_ = data("cancer")
    model = new_model(library, 20, learning_rate=0.3, reg_lambda=1.0).fit(X, y)
    options = {"key": KEY, "owner": "Ann", "seals": "leaves", "random_state": 0, "weak": True}
    marked = tm.embed(model, X, y, **options).model
    assert (off_grid(model), off_grid(marked)) == (0.0, 0.0)
    monkeypatch.setattr(leaves, "_KEPT_TREES", 0)
    assert off_grid(tm.embed(model, X, y, **options).model) > 0.25  # what would tell it
