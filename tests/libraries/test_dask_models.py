"""Models that were trained on a Dask cluster are opened and given back as local ones."""

import dask.array as da
import numpy as np
import pytest
from distributed import Client, LocalCluster

from timbermark.errors import InputError
from timbermark.marking.models import close_model, open_model

RNG = np.random.default_rng(0)
X = RNG.normal(size=(2000, 4))
Y = (X[:, 0] * X[:, 1] + X[:, 2] > 0).astype(int)


@pytest.fixture(scope="module")
def client():
    quiet = {"dashboard_address": ":0", "silence_logs": 50}
    cluster = LocalCluster(n_workers=1, threads_per_worker=1, processes=False, **quiet)
    with cluster, Client(cluster) as made:
        yield made


def estimators():
    import lightgbm
    import xgboost.dask

    return {
        "DaskXGBClassifier": (xgboost.dask.DaskXGBClassifier, xgboost.XGBClassifier),
        "DaskXGBRegressor": (xgboost.dask.DaskXGBRegressor, xgboost.XGBRegressor),
        "DaskLGBMClassifier": (lightgbm.DaskLGBMClassifier, lightgbm.LGBMClassifier),
        "DaskLGBMRegressor": (lightgbm.DaskLGBMRegressor, lightgbm.LGBMRegressor),
    }


NAMES = ("DaskXGBClassifier", "DaskXGBRegressor", "DaskLGBMClassifier", "DaskLGBMRegressor")


@pytest.mark.filterwarnings("ignore")  # the libraries' own, about ports and Dask
@pytest.mark.parametrize("name", NAMES)
def test_they_become_local_models_with_the_same_answers(client, name):
    kind, local = estimators()[name]
    quiet = {"verbose": -1} if "LGBM" in name else {}
    model = kind(n_estimators=10, **quiet)
    with pytest.raises(InputError, match="not fitted"):
        open_model(model)
    if "LGBM" in name:
        model.set_params(client=client)
    else:
        model.client = client
    model.fit(da.from_array(X, chunks=(500, 4)), da.from_array(Y, chunks=500))
    foreign = open_model(model)
    assert type(foreign.native) is local
    assert foreign.kind == local.__name__
    made = close_model(foreign, foreign.ensemble)
    assert type(made) is local
    theirs = model.predict(da.from_array(X, chunks=(500, 4))).compute()
    np.testing.assert_allclose(made.predict(X), theirs, rtol=1e-6)


def test_what_xgboost_dask_train_returns_is_explained():
    with pytest.raises(InputError) as caught:
        open_model({"booster": object(), "history": {}})
    assert '["booster"]' in caught.value.hint
