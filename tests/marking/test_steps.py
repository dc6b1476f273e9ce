"""The steps by themselves: the same seed gives the same choice, whatever the order and threads."""

import json

import numpy as np
import pytest

import timbermark as tm
from tests.marking.models import KEY, data, fitted
from timbermark.editing import edit_leaves
from timbermark.kernels.workers import Workers
from timbermark.marking import preparing, rehearsing
from timbermark.marking.budget import Budget
from timbermark.marking.choosing import find_candidates
from timbermark.marking.models import open_model
from timbermark.marking.preparing import prepare
from timbermark.marking.rehearsing import Attempt, Strength, list_strengths, rehearse
from timbermark.marking.tasks import rank_labels
from timbermark.trees.ensemble import digest

MODELS = [("timbermark", "rare"), ("catboost", "digits"), ("xgboost", "cancer")]


def rehearsed(model, X, y, seed=0, n_threads=1, **options):
    with Workers(n_threads) as workers:
        prepared = prepare(
            model, X, y, options.get("candidates"), options.get("validation"), seed, workers
        )
        strengths = list_strengths(len(prepared.foreign.classes), "auto", "auto", "auto")
        return prepared, rehearse(prepared, Budget(), strengths, "mixed", workers)


@pytest.mark.parametrize(("library", "name"), MODELS)
def test_order_and_threads_change_nothing(library, name):
    X, y, _, _ = data(name)
    model = fitted(library, name)
    prepared, found = rehearsed(model, X, y)
    places = np.random.default_rng(5).permutation(len(X))
    other_prepared, other = rehearsed(model, X[places], y[places], n_threads=2)
    assert found.strength == other.strength == found.attempts[-1].strength
    assert found.attempts == other.attempts
    np.testing.assert_array_equal(found.triggers.X, other.triggers.X)
    np.testing.assert_array_equal(found.triggers.alphabets, other.triggers.alphabets)
    assert found.setting.edit.ensemble == other.setting.edit.ensemble
    np.testing.assert_array_equal(prepared.weight, other_prepared.weight)
    assert repr(prepared) == repr(other_prepared)


def test_another_seed_chooses_other_triggers():
    X, y, _, _ = data("rare")
    model = fitted("xgboost", "rare")
    (_, one), (_, two) = rehearsed(model, X, y, seed=0), rehearsed(model, X, y, seed=1)
    assert not np.array_equal(one.triggers.X[:20], two.triggers.X[:20])


def test_every_row_has_one_role():
    X, y, test, truth = data("rare")
    model = fitted("xgboost", "rare")
    with Workers(1) as workers:
        prepared = prepare(model, X, y, None, None, 0, workers)
        given = prepare(model, X, y, None, (test[:400], truth[:400]), 0, workers)
        alone = prepare(model, None, None, test[:500], None, 0, workers)
    assert (prepared.n_rows, prepared.reporting.code) == (3000, "unseen")
    assert len(prepared.source) == 2100
    assert prepared.labelled.n_rows == 450
    # The labels of rows made to resemble the held-out ones are estimates.
    assert prepared.judging.target.shape == (2000, 2)
    assert prepared.judging.n_rows == prepared.reporting.n_rows == 2000
    assert (given.reporting.code, len(given.source)) == ("validation", 3000)
    assert given.judging.n_rows == given.reporting.n_rows == 200
    assert given.labelled is None
    assert (alone.reporting.code, len(alone.source)) == ("candidates", 350)
    assert "3000 rows" in repr(prepared)


def test_all_rows_judge_or_report_a_rare_class_that_need_not_hold(monkeypatch):
    X = data("rare")[0]
    model = fitted("xgboost", "rare")
    monkeypatch.setattr(preparing, "_FEWEST_HOLDING", 1000)
    monkeypatch.setattr(preparing, "_ROUTED_CELLS", 1)
    with Workers(1) as workers:
        rare, even = (
            prepare(model, X, (np.arange(len(X)) % n == 0).astype(int), None, None, 0, workers)
            for n in (20, 2)
        )
    assert (len(rare.source), rare.labelled.n_rows) == (1000, 1000)
    assert (len(even.source), even.labelled.n_rows) == (1000, 450)


def test_candidates_are_apart_and_cheapest_first():
    X, y, _, _ = data("digits")
    model = fitted("catboost", "digits")
    with Workers(1) as workers:
        prepared = prepare(model, X, y, None, None, 0, workers)
        found = find_candidates(prepared, "mixed", 60, 10, 4, workers)
        fewer = find_candidates(prepared, "mixed", 20, 10, 4, workers)
    assert len(found) == 60 <= found.usable
    assert found.alphabets.shape == (60, 4)
    np.testing.assert_array_equal(found.alphabets, rank_labels(found.margins, 4))
    same = (found.X[:, None] == found.X[None]).mean(axis=2) - np.eye(60)
    assert same.max() < 1.0
    assert len(fewer) == 20
    taken = found.take(np.arange(5))
    assert (len(taken), taken.alphabets.shape[1], taken.routes.n_rows) == (5, 4, 5)


def test_nothing_wanted_of_a_real_model_is_the_model():
    X, y, _, _ = data("digits")
    model = fitted("catboost", "digits")
    with Workers(2) as workers:
        prepared = prepare(model, X, y, None, None, 0, workers)
        found = find_candidates(prepared, "mixed", 30, 10, 4, workers)
        edit = edit_leaves(
            prepared.router, prepared.holding, prepared.weight, found.routes,
            np.zeros(found.margins.shape), workers,
        )  # fmt: skip
    assert edit.ensemble == prepared.foreign.ensemble


def test_strengths_fall_and_keep_what_is_given():
    for n_classes in (2, 3, 4, 10):
        tried = list_strengths(n_classes, "auto", "auto", "auto")
        assert all(strength.bits >= 64 for strength in tried)
        for q, hidden in {(s.q, s.hidden) for s in tried}:
            leads = [s.lead for s in tried if (s.q, s.hidden) == (q, hidden)]
            assert leads == sorted(leads, reverse=True)
        assert tried[0].q == (4 if n_classes >= 4 else 2)
    assert {s.k for s in list_strengths(5, 99, "auto", "auto")} == {99}
    assert {s.q for s in list_strengths(5, "auto", 2, "auto")} == {2}
    assert {s.lead for s in list_strengths(5, "auto", "auto", 0.8)} == {0.8}
    assert list_strengths(2, 80, 2, 0.5)[0] == Strength(80, 2, 0.5)


@pytest.mark.parametrize(("library", "name"), MODELS)
def test_the_plan_is_what_embed_does_and_changes_nothing(library, name):
    X, y, _, _ = data(name)
    model = fitted(library, name)
    before = digest(open_model(model).ensemble)
    plan = tm.plan(model, X, y)
    assert digest(open_model(model).ensemble) == before
    result = tm.embed(model, X, y, key=KEY, owner="Ann Ltd")
    assert (plan.strength.k, plan.strength.q) == (result.strength.k, result.strength.q)
    if result.mark.draws == 1:
        assert plan.strength == result.strength
    rehearsals = min(len(plan.attempts), len(result.attempts)) - result.mark.draws - plan.mark.draws
    assert plan.attempts[:rehearsals] == result.attempts[:rehearsals]
    assert plan.bits >= 64
    np.testing.assert_array_equal(plan.mark.rows(), result.mark.rows())
    said = json.loads(json.dumps(plan.to_dict(), allow_nan=False))
    assert said["triggers"] == {"splits": plan.mark.n_splits, "leaves": plan.strength.k}
    # The mark of a plan is thrown away: only what was made has a name.
    names = {"owner", "mark_id", "mark_digest", "model_digest"}
    assert set(said) | names == set(result.to_dict())
    assert f"{plan.mark.n_splits} triggers in splits" in str(plan)


def test_a_mark_that_only_just_fits_is_reported_with_its_own_figures(monkeypatch):
    X, y, _, _ = data("rare")
    # Within the budget but above the target at every strength: the last such one is taken.
    uses = iter([0.9, 0.8, *[1.5] * 100])

    def judged(prepared, budget, strength, setting, workers):
        return Attempt(strength, strength.k, {"drift": next(uses)}, 1, strength.bits)

    monkeypatch.setattr(rehearsing, "judge", judged)
    with Workers(1) as workers:
        prepared = prepare(fitted("catboost", "rare"), X, y, None, None, 0, workers)
        strengths = list_strengths(2, "auto", "auto", "auto")
        found = rehearse(prepared, Budget(), strengths, "mixed", workers)
    assert found.attempts[-1].use == {"drift": 0.8}
    assert found.attempts[-1].strength == found.strength
    assert len(found.triggers) == found.strength.k
