"""Models that are monotone in a feature stay so: which leaves an edit must leave alone."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import timbermark as tm
from tests.trees.strategies import ensembles
from timbermark.editing.monotone import find_monotone, promised_leaves
from timbermark.editing.routing import Router
from timbermark.marking.models import open_model
from timbermark.trees import reference
from timbermark.trees.ensemble import MISSING_ZERO


def monotone_by_asking(trees, X, feature, values):
    """Whether margins only rise, or only fall, as one feature takes all values."""
    rows = np.repeat(X[:, None], len(values), axis=1)
    rows[:, :, feature] = values
    margins = reference.margins(trees, rows.reshape(-1, X.shape[1]))
    steps = np.diff(margins.reshape(len(X), len(values), -1), axis=1)
    return [(steps[..., c] >= -1e-9).all() or (steps[..., c] <= 1e-9).all()
            for c in range(steps.shape[2])]  # fmt: skip


def some_rows(rng, n=600):
    X = rng.normal(size=(n, 12))
    rest = np.sin(2.0 * X[:, 2:]).sum(axis=1)
    p = 1.0 / (1.0 + np.exp(-(X[:, 0] - X[:, 1] + rest)))
    return X, (rng.random(n) < p).astype(int)


def models():
    from catboost import CatBoostClassifier
    from lightgbm import LGBMClassifier
    from sklearn.ensemble import HistGradientBoostingClassifier
    from xgboost import XGBClassifier

    signs = [1, -1, *[0] * 10]
    return {
        "xgboost": XGBClassifier(n_estimators=60, monotone_constraints=tuple(signs), n_jobs=1),
        "lightgbm": LGBMClassifier(
            n_estimators=60, monotone_constraints=signs, verbose=-1, n_jobs=1
        ),
        "lightgbm-advanced": LGBMClassifier(
            n_estimators=60, monotone_constraints=signs, verbose=-1, n_jobs=1,
            monotone_constraints_method="advanced",
        ),
        "catboost": CatBoostClassifier(
            iterations=60, monotone_constraints=signs, verbose=0, allow_writing_files=False
        ),
        "histogram": HistGradientBoostingClassifier(max_iter=60, monotonic_cst=signs),
    }  # fmt: skip


@pytest.mark.parametrize("library", ["xgboost", "lightgbm", "catboost", "histogram"])
def test_a_marked_model_stays_monotone(library):
    rng = np.random.default_rng(0)
    X, y = some_rows(rng, 1500)
    model = models()[library].fit(X, y)
    made = tm.embed(model, X, y, key=tm.OwnerKey.generate(), owner="Ann", weak=True)
    asked = some_rows(rng, 60)[0]
    values = np.linspace(-4.0, 4.0, 200)
    for one in (model, made.model):
        trees = open_model(one).ensemble
        for feature in (0, 1):
            assert all(monotone_by_asking(trees, asked, feature, values))
    # Every tree of CatBoost asks one feature at each depth, so that most of them split a promise.
    if library != "catboost":
        assert made.mark.n_leaves, "leaves below other splits can carry a seal"


@pytest.mark.parametrize(
    "library", ["xgboost", "lightgbm", "lightgbm-advanced", "catboost", "histogram"]
)
def test_promises_of_libraries_are_told_by_the_trees(library):
    X, y = some_rows(np.random.default_rng(1))
    foreign = open_model(models()[library].fit(X, y))
    assert foreign.told_monotone
    trees = foreign.ensemble
    router = Router(trees)
    value = np.zeros(trees.n_nodes)
    value[router.nodes[0]] = router.values(0)
    found = find_monotone(trees, router.trees[0], value)
    assert found[:2].all()
    assert not found[2:].any()
    assert 0.0 < promised_leaves(router)[0].mean() < 1.0


@pytest.mark.parametrize("library", ["xgboost", "lightgbm", "catboost", "histogram"])
def test_libraries_that_were_told_nothing_say_so(library):
    model = models()[library]
    name = "monotonic_cst" if library == "histogram" else "monotone_constraints"
    nothing = [0] * 12 if library == "catboost" else None
    X, y = some_rows(np.random.default_rng(1))
    assert not open_model(model.set_params(**{name: nothing}).fit(X, y)).told_monotone


def test_a_file_that_lost_its_constraints_still_keeps_them(tmp_path):
    X, y = some_rows(np.random.default_rng(0), 1500)
    models()["xgboost"].fit(X, y).save_model(tmp_path / "model.json")
    foreign = open_model(tmp_path / "model.json")
    assert not foreign.told_monotone
    made = tm.embed(foreign, X, y, key=tm.OwnerKey.generate(), owner="Ann", weak=True)
    trees = open_model(made.model).ensemble
    for feature in (0, 1):
        assert all(monotone_by_asking(trees, X[:100], feature, np.linspace(-4.0, 4.0, 200)))


@given(ensembles(), st.integers(0, 2**32 - 1))
def test_every_feature_that_is_found_is_monotone(trees, seed):
    assume((trees.missing_kind != MISSING_ZERO).all())  # where 0 is missing, it is no number
    router = Router(trees)
    rng = np.random.default_rng(seed)
    finite = trees.threshold[np.isfinite(trees.threshold)]
    values = np.unique(np.concatenate([finite - 1e-3, finite, finite + 1e-3, [0.0]]))
    X = rng.choice(values, size=(20, trees.n_features))
    for c in range(trees.n_outputs):
        value = np.zeros(trees.n_nodes)
        value[router.nodes[c]] = router.values(c)
        for feature in np.flatnonzero(find_monotone(trees, router.trees[c], value)):
            rows = np.repeat(X[:, None], len(values), axis=1)
            rows[:, :, feature] = values
            margins = reference.margins(trees, rows.reshape(-1, trees.n_features))[:, c]
            steps = np.diff(margins.reshape(len(X), len(values)).astype(float), axis=1)
            slack = 1e-5 * (1.0 + np.abs(margins).max())
            assert (steps >= -slack).all() or (steps <= slack).all()
