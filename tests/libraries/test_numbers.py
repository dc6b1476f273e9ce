"""Regressors and rankers of every library: opened, edited, closed and kept in files."""

from dataclasses import replace

import numpy as np
import pytest

from tests.libraries.number_models import CASES, data, fitted, objective
from timbermark import libraries
from timbermark.errors import FileFormatError, InputError
from timbermark.trees import reference

cases = pytest.mark.parametrize(("library", "loss"), CASES)
ENDINGS = {"xgboost": "json", "lightgbm": "txt", "catboost": "cbm"}


def edited(foreign):
    """Return the ensemble with every leaf value moved a little."""
    e = foreign.ensemble
    step = np.random.default_rng(1).normal(size=e.value.shape) * 0.01 * e.value.std()
    moved = np.where((e.left < 0)[:, None], e.value + step, e.value)
    if foreign.leaf_dtype == "f4":
        moved = np.where((e.left < 0)[:, None], moved.astype(np.float32), e.value)
    return replace(e, value=moved)


@cases
def test_answers_are_those_of_predict(library, loss):
    model = fitted(library, loss)
    foreign = libraries.open(model)
    X = data()[0]
    assert foreign.task == ("ranking" if library.endswith("ranker") else "regression")
    assert foreign.ensemble.objective == objective(library, loss)
    assert foreign.classes.size == 0
    answers = foreign.answers(foreign.margins(X))
    assert answers.shape == (len(X), 1)
    np.testing.assert_allclose(answers[:, 0], model.predict(X), rtol=2e-6, atol=1e-7)


@cases
def test_other_leaves_give_a_model_of_the_same_type_that_predicts_with_them(library, loss):
    model = fitted(library, loss)
    foreign = libraries.open(model)
    X = data()[0]
    before = model.predict(X)
    other = edited(foreign)
    made = libraries.close(foreign, other)
    assert type(made) is type(model)
    again = libraries.open(made)
    margins = reference.margins(other, foreign.rows(X)).astype(np.float64)
    np.testing.assert_array_equal(again.margins(X), margins)
    answers = foreign.answers(margins)[:, 0]
    np.testing.assert_allclose(answers, made.predict(X), rtol=2e-6, atol=1e-7)
    assert not np.array_equal(before, made.predict(X))
    np.testing.assert_array_equal(before, model.predict(X))


@cases
def test_a_file_gives_the_same_trees_and_task(library, loss, tmp_path):
    model = fitted(library, loss)
    path = tmp_path / f"model.{ENDINGS.get(library.split()[0], 'skops')}"
    libraries.save(model, path)
    opened, read = libraries.open(model), libraries.open(path)
    assert read.task == opened.task
    assert read.ensemble == opened.ensemble
    X = data()[0]
    # A Booster of LightGBM gives what the estimator gives, and so do the others.
    np.testing.assert_allclose(read.native.predict(_rows(read, X)), model.predict(X), rtol=1e-12)


def _rows(foreign, X):
    if foreign.library == "XGBoost" and foreign.kind == "Booster":
        import xgboost

        return xgboost.DMatrix(X)
    return X


@pytest.mark.parametrize("loss", ["poisson", "regression"])
def test_a_random_forest_of_lightgbm_answers_with_means(loss):
    from lightgbm import LGBMRegressor

    X, y, _, _ = data()
    options = {"boosting_type": "rf", "bagging_freq": 1, "bagging_fraction": 0.6, "verbose": -1}
    model = LGBMRegressor(n_estimators=8, objective=loss, **options).fit(X, y)
    foreign = libraries.open(model)
    answers = foreign.answers(foreign.margins(X))[:, 0]
    np.testing.assert_allclose(answers, model.predict(X), rtol=1e-9)


def test_boosters_answer_as_their_estimators_do():
    X, _, _, _ = data()
    for library, loss in (("xgboost", "count:poisson"), ("lightgbm", "gamma")):
        model = fitted(library, loss)
        booster = model.get_booster() if library == "xgboost" else model.booster_
        foreign = libraries.open(booster)
        assert foreign.kind == "Booster"
        assert foreign.task == "regression"
        answers = foreign.answers(foreign.margins(X))[:, 0]
        np.testing.assert_allclose(answers, model.predict(X), rtol=2e-6)


def test_a_bare_catboost_gives_margins():
    from catboost import CatBoost, Pool

    X, y, _, _ = data()
    quiet = {"iterations": 5, "verbose": False, "allow_writing_files": False}
    model = CatBoost({"loss_function": "Poisson", **quiet}).fit(Pool(X, y))
    foreign = libraries.open(model)
    np.testing.assert_allclose(foreign.answers(foreign.margins(X))[:, 0], model.predict(X))


class TestRefusals:
    def test_isolation_forests_have_no_leaf_values(self):
        from sklearn.ensemble import IsolationForest

        with pytest.raises(InputError, match="no leaf values"):
            libraries.open(IsolationForest(n_estimators=3).fit(data()[0]))

    @pytest.mark.parametrize("loss", ["survival:cox", "survival:aft"])
    def test_survival_of_xgboost(self, loss):
        import xgboost

        X, y, _, _ = data()
        matrix = xgboost.DMatrix(X, label=y)
        if loss == "survival:aft":
            matrix.set_float_info("label_lower_bound", y)
            matrix.set_float_info("label_upper_bound", y)
        booster = xgboost.train({"objective": loss}, matrix, 2)
        with pytest.raises(InputError, match="survival"):
            libraries.open(booster)

    def test_survival_of_catboost(self):
        from catboost import CatBoost, Pool

        X, y, _, _ = data()
        quiet = {"iterations": 3, "verbose": False, "allow_writing_files": False}
        model = CatBoost({"loss_function": "Cox", **quiet}).fit(Pool(X, y))
        with pytest.raises(InputError, match="survival"):
            libraries.open(model)

    def test_several_numbers_at_once(self):
        from catboost import CatBoostRegressor
        from sklearn.multioutput import MultiOutputRegressor
        from xgboost import XGBRegressor

        X, y, _, _ = data()
        both = np.column_stack([y, -y])
        quiet = {"iterations": 3, "verbose": False, "allow_writing_files": False}
        for model in (
            XGBRegressor(n_estimators=3).fit(X, both),
            XGBRegressor(
                n_estimators=3, objective="reg:quantileerror", quantile_alpha=[0.2, 0.8]
            ).fit(X, y),
            CatBoostRegressor(loss_function="MultiRMSE", **quiet).fit(X, both),
            CatBoostRegressor(loss_function="RMSEWithUncertainty", **quiet).fit(X, y),
            MultiOutputRegressor(XGBRegressor(n_estimators=3)).fit(X, both),
        ):
            with pytest.raises(InputError, match=r"several|at once") as caught:
                libraries.open(model)
            assert caught.value.hint

    def test_squares_of_margins(self):
        from lightgbm import LGBMRegressor

        X, y, _, _ = data()
        model = LGBMRegressor(n_estimators=3, reg_sqrt=True, verbose=-1).fit(X, y)
        with pytest.raises(InputError, match="reg_sqrt"):
            libraries.open(model)

    def test_a_regressor_with_an_objective_of_classes(self):
        from xgboost import XGBRegressor

        X, y, _, _ = data()
        model = XGBRegressor(n_estimators=3, objective="binary:logistic").fit(X, y > 1)
        with pytest.raises(InputError, match="does not predict what the objective is for"):
            libraries.open(model)

    def test_an_init_that_looks_at_the_rows(self):
        from sklearn.ensemble import GradientBoostingRegressor
        from sklearn.linear_model import LinearRegression

        X, y, _, _ = data()
        model = GradientBoostingRegressor(n_estimators=3, init=LinearRegression()).fit(X, y)
        with pytest.raises(InputError, match="start of its own"):
            libraries.open(model)

    def test_a_file_of_survival(self, tmp_path):
        import xgboost

        X, y, _, _ = data()
        booster = xgboost.train({"objective": "survival:cox"}, xgboost.DMatrix(X, label=y), 2)
        booster.save_model(tmp_path / "model.json")
        with pytest.raises(FileFormatError, match="survival"):
            libraries.open(tmp_path / "model.json")
