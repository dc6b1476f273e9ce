"""Both seals together: which are made, what they prove, and what they leave as it was."""

import itertools
from functools import cache

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lightgbm import LGBMRegressor
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import (
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

import timbermark as tm
from tests.marking.models import KEY, LIBRARIES, new_model
from timbermark.editing.routing import Router
from timbermark.errors import InputError
from timbermark.kernels.workers import Workers
from timbermark.marking import sealing
from timbermark.marking.boundaries import are_inside
from timbermark.marking.models import open_model
from timbermark.marking.sealing import Choices, draft_mark, move_thresholds
from timbermark.marking.splits import set_thresholds
from timbermark.trees import reference


@cache
def cancer():
    X, y = load_breast_cancer(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(X))
    return X[order][:400], y[order][:400]


@cache
def fitted(kind):
    X, y = cancer()
    if kind == "pipeline":
        frame = pd.DataFrame(X, columns=[f"c{i}" for i in range(X.shape[1])])
        scaler = StandardScaler().set_output(transform="pandas")
        return make_pipeline(scaler, new_model("lightgbm")).fit(frame, y), frame, y
    return new_model(kind).fit(X, y), X, y


# What both do together to a model of every library is seen in test_embedding.py.
@pytest.mark.parametrize(
    ("kind", "seals"),
    [
        *itertools.product([*LIBRARIES, "pipeline"], ["splits", "leaves"]),
        *(("timbermark", "both"), ("pipeline", "both")),
    ],
)
def test_the_seals_that_are_asked_for_prove_the_mark(kind, seals):
    model, X, y = fitted(kind)
    # A few shallow trees on 569 rows have some 68 boundaries: 64 bits, or a little less.
    result = tm.embed(model, X, y, key=KEY, owner="Ann Ltd", seals=seals, weak=seals == "splits")
    wanted = {"splits", "leaves"} if seals == "both" else {seals}
    assert set(result.seals) == {seal.name for seal in result.mark.seals} == wanted
    assert (result.strength is None) == (seals == "splits")
    assert max(result.use.values()) <= 1.0
    verdict = tm.verify(result.model, result.mark)
    assert verdict.bits > (50 if seals == "splits" else 64)
    assert verdict.net_bits == pytest.approx(result.bits, abs=0.5)
    assert tm.verify(model, result.mark).level == "none"
    assert tm.verify(model, result.mark, answers="labels").level == "none"
    described = result.to_dict()
    assert described["triggers"] == {
        "splits": result.mark.n_splits,
        "leaves": result.mark.n_leaves,
    }
    before, after = open_model(model).ensemble, open_model(result.model).ensemble
    if seals == "splits":
        np.testing.assert_array_equal(before.value, after.value)
    if seals == "leaves":
        np.testing.assert_array_equal(np.sort(before.threshold), np.sort(after.threshold))


@cache
def drafted(kind):
    model, X, y = fitted(kind)
    with Workers(1) as workers:
        return draft_mark(
            model, X, y, None, None, None, Choices(), 0, workers, lambda said: None
        )  # fmt: skip


@pytest.mark.parametrize("kind", [*LIBRARIES, "pipeline"])
def test_free_boundaries_change_no_training_row(kind):
    model, X, _ = fitted(kind)
    splits = drafted(kind).splits
    free = splits.boundaries.take(np.flatnonzero(~splits.boundaries.wide))
    assert len(free) > 20
    foreign = open_model(model)
    rows = foreign.rows(X)
    before = reference.leaf_indices(foreign.ensemble, rows)
    for symbols in (np.zeros(len(free)), np.ones(len(free)), np.arange(len(free)) % 2):
        moved = set_thresholds(foreign.ensemble, free, symbols)
        np.testing.assert_array_equal(reference.leaf_indices(moved, rows), before)
        changed = np.flatnonzero(moved.threshold != foreign.ensemble.threshold)
        inside = [
            ((free.feature == moved.feature[node])
             & (free.below <= moved.threshold[node])
             & (moved.threshold[node] <= free.above)).any()
            for node in changed
        ]  # fmt: skip
        assert all(inside)
    # XGBoost's own thresholds are at one end, so that equal symbols may leave them there.
    assert len(changed)


@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 2**32), kind=st.sampled_from(["xgboost", "lightgbm", "catboost"]))
def test_rows_are_routed_as_if_all_were_routed_anew(seed, kind):
    draft = drafted(kind)
    prepared, boundaries = draft.prepared, draft.splits.boundaries
    symbols = np.random.default_rng(seed).integers(0, 2, len(boundaries))
    with Workers(1) as workers:
        moved = move_thresholds(prepared, boundaries, symbols, workers)
        router = Router(set_thresholds(prepared.router.ensemble, boundaries, symbols))
        routes = [(moved.holding, prepared.columns)]
        routes += [
            (rows.routes, rows.columns)
            for rows in (moved.judging, moved.reporting, moved.labelled, moved.judging_labels)
            if rows is not None
        ]
        for found, columns in routes:
            assert found.same(router.route(columns, workers)).all()
        whole = router.margins(router.route(prepared.columns, workers), workers)
    np.testing.assert_array_equal(moved.margins, whole)
    np.testing.assert_array_equal(moved.judging.answers, prepared.judging.answers)


@pytest.mark.parametrize("kind", LIBRARIES)
def test_triggers_in_leaves_stay_out_of_boundaries(kind):
    draft = drafted(kind)
    assert draft.rehearsal is not None
    columns = draft.prepared.schema.columns(draft.rehearsal.triggers.X)
    single = draft.prepared.router.ensemble.input_dtype == "f4"
    assert not are_inside(columns, draft.splits.boundaries, single).any()


def refused(model, X, y, **options):
    with pytest.raises(InputError) as caught:
        tm.embed(model, X, y, key=KEY, owner="Ann Ltd", **options)
    assert caught.value.hint
    assert caught.value.message.count(". ") == 0
    return caught.value.code, caught.value.parameter


def test_a_model_without_numeric_splits_has_no_split_seal():
    rng = np.random.default_rng(0)
    X = rng.integers(0, 6, (600, 8)).astype(float)
    y = (X[:, 0] + X[:, 1] + rng.integers(0, 3, 600) > 5).astype(int)
    model = HistGradientBoostingClassifier(
        max_iter=40, categorical_features=list(range(8)), random_state=0
    ).fit(X, y)
    assert refused(model, X, y, seals="splits") == ("splits.none", "seals")


def test_too_few_boundaries_are_said():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.integers(0, 2, 600), rng.integers(0, 2, 600)]).astype(float)
    y = (X[:, 0] + X[:, 1] > 1).astype(int)
    model = new_model("lightgbm", 20).fit(X, y)
    assert refused(model, X, y, seals="splits") == ("splits.too-few", "seals")


def test_rows_that_are_all_alike_are_refused():
    X, y = cancer()
    alike = np.repeat(X[:1], 300, axis=0)
    code, _ = refused(new_model("lightgbm").fit(X, y), alike, y[:300], seals="splits")
    assert code == "splits.too-few"


def _square_some(X):
    return np.column_stack([X[:, :20], (X[:, 20:] - 0.3) ** 2])


def test_columns_in_which_a_transformer_is_not_monotone_are_left_out_and_named():
    X, y = cancer()
    turned = FunctionTransformer(_square_some)
    model = make_pipeline(StandardScaler(), turned, new_model("lightgbm")).fit(X, y)
    result = tm.embed(model, X, y, key=KEY, owner="Ann Ltd", seals="splits", weak=True)
    assert (result.mark.splits.features < 20).all()
    assert any("not monotone" in str(note) for note in result.notes)
    assert tm.verify(model, result.mark).level == "none"


def test_without_training_rows_gaps_are_those_of_candidates():
    X, _ = cancer()
    result = tm.embed(
        fitted("lightgbm")[0], None, key=KEY, owner="Ann Ltd", candidates=X, seals="splits"
    )
    assert "gaps_from_candidates" in [note.code for note in result.notes]
    assert tm.verify(result.model, result.mark).level == "conclusive"


def test_whole_numbers_that_leave_few_boundaries_carry_a_mark_between_them(monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.integers(0, 12, (1500, 12)).astype(float)
    y = X[:, 0] * X[:, 1] + 3.0 * X[:, 2] + rng.normal(size=1500)
    model = LGBMRegressor(n_estimators=60, n_jobs=1, verbose=-1, random_state=0).fit(X, y)
    made = tm.embed(model, X, y, key=KEY, owner="Ann")
    assert "off_grid" in [note.code for note in made.notes]
    assert tm.verify(made.model, made.mark).level == "conclusive"
    np.testing.assert_array_equal(made.model.predict(X), model.predict(X))
    monkeypatch.setattr(sealing, "_ENOUGH_ALONE", 0)
    with pytest.raises(InputError) as caught:
        tm.embed(model, X, y, key=KEY, owner="Ann")
    assert caught.value.code in ("mark.weak", "splits.too-few")


@pytest.mark.parametrize("seals", ["both", "splits"])
@pytest.mark.parametrize("kind", [GradientBoostingClassifier, GradientBoostingRegressor])
def test_a_mark_that_is_worth_too_little_is_refused_with_what_would_help(kind, seals):
    """More triggers in leaves help no mark that has none there."""
    X, y = cancer()
    model = kind(n_estimators=30, max_depth=1, random_state=0).fit(X[:, :5], y)
    with pytest.raises(InputError) as caught:
        tm.plan(model, X[:, :5], y, seals=seals)
    assert caught.value.code == "mark.weak"
    assert "n_triggers" not in caught.value.hint
    alone = seals == "splits" and kind is GradientBoostingClassifier
    assert ("seals='both'" in caught.value.hint) == alone


@pytest.mark.parametrize(("n", "shares"), [(None, (1.0,)), (20, (0.65,)), (200, (0.35, 0.65))])
def test_a_leaf_seal_takes_more_of_the_budget_where_splits_are_few(n, shares):
    assert sealing._leaf_shares(None if n is None else np.zeros(n)) == pytest.approx(shares)


@pytest.mark.parametrize(
    "given", [{"triggers": "rows"}, {"n_triggers": 96}, {"alphabet": 2}, {"lead": 0.5}]
)
@pytest.mark.parametrize("kind", ["splits", "numbers"])
def test_choices_that_would_do_nothing_are_refused(kind, given):
    X, y = cancer()
    if kind == "splits":
        model, chosen = fitted("timbermark")[0], {"seals": "splits"}
    else:
        model, chosen = GradientBoostingRegressor(n_estimators=3).fit(X, X[:, 0]), {}
    for function in (tm.plan, lambda *a, **k: tm.embed(*a, key=KEY, owner="Ann Ltd", **k)):
        with pytest.raises(InputError) as caught:
            function(model, X, y, **chosen, **given)
        assert (caught.value.code, caught.value.parameter) == ("seals.argument", next(iter(given)))
