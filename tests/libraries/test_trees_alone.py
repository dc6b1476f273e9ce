"""Files of XGBoost and LightGBM read as trees, without the library, say what the library says."""

import subprocess
import sys
from dataclasses import fields, replace

import numpy as np
import pytest

from tests.libraries import lightgbm_models, number_models, xgboost_models
from timbermark import libraries
from timbermark.libraries.lightgbm import models as lightgbm_adapter
from timbermark.libraries.xgboost import models as xgboost_adapter

NOT_IN_TREES = {"native", "extra", "l2", "ensemble"}


def check_same(path, adapter):
    """Compare both ways of opening a file; return whether it can be read as trees alone."""
    alone, whole = adapter.open_trees(path), adapter.open_file(path)
    if alone is None:
        return False
    for field in fields(whole):
        if field.name not in NOT_IN_TREES:
            np.testing.assert_equal(getattr(alone, field.name), getattr(whole, field.name))
    init = whole.ensemble.init
    np.testing.assert_allclose(alone.ensemble.init, init, rtol=2**-22, atol=2**-24)
    assert replace(alone.ensemble, init=init) == whole.ensemble
    assert alone.native is None
    rows = np.random.default_rng(0).normal(size=(50, len(whole.input_columns)))
    np.testing.assert_array_equal(alone.rows(rows), whole.rows(rows))
    return True


@pytest.mark.parametrize("name", xgboost_models.MAKERS)
def test_xgboost(name, tmp_path):
    model, _ = xgboost_models.made(name)
    path = tmp_path / "model.ubj"
    model.save_model(path)
    assert check_same(path, xgboost_adapter) == ("categor" not in name)


@pytest.mark.parametrize("loss", [*number_models.XGBOOST, "rank:ndcg"])
def test_xgboost_numbers(loss, tmp_path):
    kind = "xgboost ranker" if loss.startswith("rank") else "xgboost"
    path = tmp_path / "model.json"
    number_models.fitted(kind, loss).save_model(path)
    assert check_same(path, xgboost_adapter)


@pytest.mark.parametrize("base", np.random.default_rng(1).random(12).tolist())
@pytest.mark.parametrize("objective", ["binary:logistic", "count:poisson", "reg:squarederror"])
def test_any_base_score_of_xgboost(objective, base, tmp_path):
    xgb = pytest.importorskip("xgboost")
    X, y = np.arange(8.0)[:, None], np.arange(8) % 2
    params = {"objective": objective, "base_score": base, "nthread": 1}
    path = tmp_path / "model.json"
    xgb.train(params, xgb.DMatrix(X, y), 1).save_model(path)
    assert check_same(path, xgboost_adapter)


@pytest.mark.parametrize("name", lightgbm_models.MAKERS)
def test_lightgbm(name, tmp_path):
    model = lightgbm_models.MAKERS[name]()[0]
    path = tmp_path / "model.txt"
    getattr(model, "booster_", model).save_model(path)
    assert check_same(path, lightgbm_adapter) == ("frame" not in name)


@pytest.mark.parametrize("loss", [*number_models.LIGHTGBM, "lambdarank"])
def test_lightgbm_numbers(loss, tmp_path):
    kind = "lightgbm ranker" if loss == "lambdarank" else "lightgbm"
    path = tmp_path / "model.txt"
    number_models.fitted(kind, loss).booster_.save_model(path)
    assert check_same(path, lightgbm_adapter)


@pytest.mark.parametrize("library", ["xgboost", "lightgbm"])
def test_a_suspect_needs_no_library(library, tmp_path):
    path = tmp_path / "model"
    if library == "xgboost":
        model, _ = xgboost_models.made("four classes")
        model.get_booster().save_model(path.with_suffix(".json"))
        path = path.with_suffix(".json")
    else:
        lightgbm_models.MAKERS["three"]()[0].booster_.save_model(path)
    known = libraries.open(path)
    rows = np.random.default_rng(0).normal(size=(5, known.ensemble.n_features))
    code = (
        f"import sys; sys.modules.update(sklearn=None, {library}=None);"
        "from timbermark.verification.suspects import open_suspect;"
        f"asked = open_suspect({str(path)!r});"
        f"print(asked.functions['labels']({rows.tolist()!r}).tolist())"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    labels = known.confidence(known.margins(rows)).argmax(axis=1)
    assert said.stdout.strip() == str(labels.tolist())
