"""Marking models that answer with numbers, as users meet it: the default options, every library."""

import json
from functools import cache

import numpy as np
import pytest
from sklearn.ensemble import GradientBoostingRegressor, HistGradientBoostingRegressor

import timbermark as tm
from timbermark.errors import InputError
from timbermark.marking.models import open_model

KEY = tm.OwnerKey.generate()
LIBRARIES = ("timbermark", "xgboost", "lightgbm", "catboost", "histogram", "gradient")


@cache
def data(name="squared"):
    """Return rows and targets to train on and to test on; of rankers, grades and groups."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(8000, 6))
    signal = np.sin(2.0 * X[:, 0]) + 0.5 * X[:, 1] * X[:, 2] + 0.3 * X[:, 3]
    if name == "poisson":
        y = rng.poisson(np.exp(0.5 + 0.5 * signal)).astype(float)
    elif name == "ranks":
        y = np.clip(np.rint(signal + 1.0 + 0.3 * rng.normal(size=len(X))), 0, 4)
    else:
        y = 50.0 + 10.0 * signal + 4.0 * rng.normal(size=len(X))
    group = np.repeat(np.arange(400), 20)
    return X[:3000], y[:3000], group[:3000], X[3000:], y[3000:], group[3000:]


@cache
def fitted(library, name):
    X, y, group, _, _, _ = data(name)
    if library == "timbermark":
        from timbermark.estimator import TimberRegressor

        return TimberRegressor(max_iter=60, random_state=0, n_jobs=1).fit(X, y)
    if library == "xgboost":
        from xgboost import XGBRanker, XGBRegressor

        if name == "ranks":
            return XGBRanker(n_estimators=40, n_jobs=1).fit(X, y, qid=group)
        objective = "count:poisson" if name == "poisson" else "reg:squarederror"
        return XGBRegressor(n_estimators=40, n_jobs=1, objective=objective).fit(X, y)
    if library == "lightgbm":
        from lightgbm import LGBMRanker, LGBMRegressor

        quiet = {"n_estimators": 40, "n_jobs": 1, "verbose": -1}
        if name == "ranks":
            return LGBMRanker(**quiet).fit(X, y, group=np.bincount(group))
        objective = "poisson" if name == "poisson" else "regression"
        return LGBMRegressor(objective=objective, **quiet).fit(X, y)
    if library == "catboost":
        from catboost import CatBoostRegressor

        quiet = {"thread_count": 1, "allow_writing_files": False, "verbose": False}
        return CatBoostRegressor(iterations=60, random_seed=0, **quiet).fit(X, y)
    if library == "histogram":
        loss = "poisson" if name == "poisson" else "squared_error"
        return HistGradientBoostingRegressor(loss=loss, max_iter=40, random_state=0).fit(X, y)
    return GradientBoostingRegressor(n_estimators=100, random_state=0).fit(X, y)


@cache
def marked(library, name):
    X, y, group, _, _, _ = data(name)
    groups = {"groups": group} if name == "ranks" else {}
    return tm.embed(fitted(library, name), X, y, key=KEY, owner="Ann Ltd", **groups)


CASES = [
    *((library, "squared") for library in LIBRARIES),
    *(("lightgbm", "poisson"), ("histogram", "poisson"), ("lightgbm", "ranks")),
]
cases = pytest.mark.parametrize(("library", "name"), CASES)


@cases
def test_numbers_prove_the_mark_and_nothing_else_does(library, name):
    result = marked(library, name)
    verdict = tm.verify(result.model, result.mark)
    assert (verdict.kind, verdict.level) == ("numbers", "conclusive")
    assert result.bits >= 64
    # XGBoost answers in single precision.
    assert verdict.net_bits == pytest.approx(result.bits, abs=0.5)
    assert tm.verify(fitted(library, name), result.mark).level == "none"
    assert type(result.model) is type(fitted(library, name))


@cases
def test_unseen_rows_are_answered_as_before(library, name):
    _, _, _, X, y, _ = data(name)
    before, after = (m.predict(X) for m in (fitted(library, name), marked(library, name).model))
    error = 0.2 * before.std() if name == "ranks" else np.sqrt(np.mean((y - before) ** 2))
    assert np.abs(after - before).mean() <= 0.025 * error
    if name != "ranks":
        assert np.sqrt(np.mean((y - after) ** 2)) <= 1.003 * error


@cases
def test_only_thresholds_change(library, name):
    before = open_model(fitted(library, name)).ensemble
    after = open_model(marked(library, name).model).ensemble
    np.testing.assert_array_equal(before.tree_start, after.tree_start)
    np.testing.assert_array_equal(before.value, after.value)
    np.testing.assert_array_equal(before.feature, after.feature)
    assert (before.threshold != after.threshold).any()


@cases
def test_the_cost_is_told_in_numbers(library, name):
    result = marked(library, name)
    cost, lines = result.cost, {line[0] for line in result.cost.lines()}
    assert 0.0 <= cost.move <= 0.02
    assert max(result.use.values()) <= 1.0
    assert ("NDCG" in lines) == (name == "ranks")
    assert ("RMSE" in lines) == (name != "ranks")
    assert json.loads(json.dumps(cost.to_dict()))["rows"] == cost.n_rows
    assert "mean change / " in str(result)


def test_the_reference_is_what_the_unmarked_model_says():
    mark = marked("histogram", "poisson").mark
    said = fitted("histogram", "poisson").predict(mark.rows()).reshape(-1, 3)
    np.testing.assert_allclose(mark.splits.reference[..., 0], said[:, ::2], rtol=1e-12)


@pytest.mark.parametrize("library", ["histogram", "xgboost"])
def test_a_copy_averaged_with_another_model_still_proves_the_mark(library):
    _, _, _, X, y, _ = data()
    own = HistGradientBoostingRegressor(max_iter=40, random_state=1).fit(X[:600], y[:600])
    made = marked(library, "squared")
    averaged = tm.verify(lambda Z: 0.5 * (made.model.predict(Z) + own.predict(Z)), made.mark)
    assert averaged.level == "conclusive"
    assert tm.verify(own, made.mark).level == "none"


def test_another_unit_does_not_hide_the_mark():
    made = marked("lightgbm", "squared")
    verdict = tm.verify(lambda Z: 0.92 * made.model.predict(Z) + 7.0, made.mark)
    assert verdict.level == "conclusive"


def test_files_and_boosters_are_verified(tmp_path):
    made = marked("lightgbm", "poisson")
    tm.save(made.model, tmp_path / "model.txt")
    for suspect in (tmp_path / "model.txt", made.model.booster_):
        assert tm.verify(suspect, made.mark).level == "conclusive"
    made.mark.save(tmp_path / "secret.mark")
    assert tm.Mark.load(tmp_path / "secret.mark") == made.mark


def test_a_plan_forecasts_what_embed_does():
    X, y, _, _, _, _ = data()
    found = tm.plan(fitted("histogram", "squared"), X, y)
    done = marked("histogram", "squared")
    assert found.bits >= 64
    assert (found.strength, found.label_bits) == (None, None)
    np.testing.assert_array_equal(found.mark.rows(), done.mark.rows())
    assert set(found.to_dict()) < set(done.to_dict())
    assert found.to_dict()["cost"]["figures"]


def test_the_same_seed_gives_the_same_plan_in_any_order_of_rows():
    X, y, _, _, _, _ = data()
    order = np.random.default_rng(3).permutation(len(X))
    plans = [tm.plan(fitted("histogram", "squared"), X[o], y[o]) for o in (slice(None), order)]
    np.testing.assert_array_equal(plans[0].mark.rows(), plans[1].mark.rows())


def refused(match, library="lightgbm", name="squared", **options):
    X, y, _, _, _, _ = data(name)
    given = {"X": X, "y": y, "key": KEY, "owner": "Ann Ltd"} | options
    with pytest.raises(InputError, match=match) as caught:
        tm.embed(fitted(library, name), given.pop("X"), given.pop("y"), **given)
    assert caught.value.hint
    return caught.value


def test_bad_input_is_refused():
    X, y, group, _, _, _ = data()
    refused("limit for classification", budget=tm.Budget(changed=0.02))
    refused("limit for ranking", budget=tm.Budget(ndcg=0.1))
    refused("not all numbers", y=["red"] * len(X))
    refused("do not go with 3000 rows", y=y[:-1])
    refused("missing or infinite", y=np.where(np.arange(len(y)) == 3, np.nan, y))
    refused("groups are for rankers", groups=group)
    refused("groups but no y", y=None, groups=group)
    refused("not the sizes|do not go with", name="ranks", groups=group[:10])
    error = refused("only splits can carry", seals="leaves")
    assert (error.code, error.parameter) == ("seals.numbers", "seals")


def test_a_budget_of_next_to_nothing_leaves_free_boundaries():
    X, y, _, _, _, _ = data()
    made = tm.plan(fitted("lightgbm", "squared"), X, y, budget=tm.Budget(move=1e-12))
    assert made.use["move"] == 0.0
    # A wide one may stay where it moves no row that judges.
    assert made.mark.splits.strata[:, 2].mean() < 0.05


def test_without_targets_a_share_of_the_spread_stands_for_the_error():
    X, _, _, _, _, _ = data()
    found = tm.plan(fitted("histogram", "squared"), X)
    assert not found.cost.known_error
    assert "rmse" not in found.cost
    assert found.cost.error == pytest.approx(
        0.2 * fitted("histogram", "squared").predict(X).std(), rel=0.1
    )
