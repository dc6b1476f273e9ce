from functools import partial

import numpy as np
import pytest
from sklearn import ensemble
from sklearn.datasets import make_classification
from sklearn.ensemble import HistGradientBoostingClassifier

import timbermark as tm
from timbermark.guard import drawing


@pytest.fixture(scope="package", autouse=True)
def cheap_guards():
    """Let what a guard and thieves train be two drawings and forests of ten trees."""
    with pytest.MonkeyPatch.context() as patch:
        make_cheap(patch)
        yield


def make_cheap(patch):
    patch.setattr(drawing, "_REDRAWN", 2)
    for kind in ("Classifier", "Regressor"):
        forest = getattr(ensemble, f"RandomForest{kind}")
        patch.setattr(ensemble, f"RandomForest{kind}", partial(forest, n_estimators=10))


@pytest.fixture(scope="package")
def key():
    return tm.OwnerKey(bytes(range(32)))


@pytest.fixture(scope="package")
def world():
    """A model of three classes, and rows that it has not seen."""
    X, y = make_classification(1600, 8, n_informative=6, n_classes=3, class_sep=0.7, random_state=0)
    model = HistGradientBoostingClassifier(max_iter=15, random_state=0).fit(X[:400], y[:400])
    return model, np.asarray(X[400:]), y[400:]


@pytest.fixture
def guard(world, key, tmp_path):
    model, X, _ = world
    made = tm.Guard(model, X, key=key, owner="Ann Ltd", share=0.1, ledger=tmp_path / "guard.db")
    yield made
    made.close()
