"""Small unmarked models of every library and task, and a thief with rows of their own."""

from functools import cache

import numpy as np
from sklearn.datasets import make_classification

from tests.marking.models import LIBRARIES, new_model
from timbermark.attacks.stolen import Labelled, Thief, measure_worth, steal

__all__ = [
    "LIBRARIES",
    "RANKERS",
    "accuracy",
    "data",
    "fitted",
    "fitted_numbers",
    "fitted_ranker",
    "held_out",
    "number_thief",
    "numbers",
    "ranks",
    "stolen",
    "thief",
]  # fmt: skip
ROUNDS = 20
RANKERS = ("lightgbm", "xgboost")


@cache
def data():
    """Return rows and labels of four classes: 600 to train, 600 for the thief, 1,200 to test."""
    X, y = make_classification(
        2400, 10, n_informative=6, n_classes=4, class_sep=1.4, flip_y=0.02, random_state=3
    )
    return X, y.astype(np.int64)


@cache
def fitted(library, rounds=ROUNDS):
    X, y = data()
    return new_model(library, rounds).fit(X[:600], y[:600])


def stolen(library, rounds=ROUNDS):
    return steal(fitted(library, rounds))


def thief(model=None, seed=0):
    X, y = data()
    made = Thief(X[600:1200], y[600:1200], seed)
    if model is not None:
        made.once("kind", model.trees)
    return made


def accuracy(model):
    X, y = data()
    return measure_worth(model, Labelled(X[1200:], y[1200:]))


@cache
def numbers():
    """Return rows and numbers far from 0: 1,500 to train, 500 for the thief, 2,000 to test."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(4000, 6))
    signal = np.sin(2.0 * X[:, 0]) + 0.5 * X[:, 1] * X[:, 2] + 0.3 * X[:, 3]
    return X, 50.0 + 10.0 * signal + 2.0 * rng.normal(size=len(X))


@cache
def ranks():
    """Return rows, grades from 0 to 4 and groups of twenty, divided as `numbers` is."""
    X, y = numbers()
    return X, np.clip(np.rint((y - 40.0) / 5.0), 0, 4), np.repeat(np.arange(200), 20)


@cache
def fitted_numbers(library, rounds=40):
    X, y = numbers()
    if library == "timbermark":
        from timbermark import TimberRegressor

        model = TimberRegressor(max_iter=rounds, random_state=0, n_jobs=1)
    elif library == "xgboost":
        from xgboost import XGBRegressor

        model = XGBRegressor(n_estimators=rounds, n_jobs=1)
    elif library == "lightgbm":
        from lightgbm import LGBMRegressor

        model = LGBMRegressor(n_estimators=rounds, n_jobs=1, verbose=-1)
    elif library == "catboost":
        from catboost import CatBoostRegressor

        quiet = {"thread_count": 1, "allow_writing_files": False, "verbose": False}
        model = CatBoostRegressor(iterations=rounds, random_seed=0, **quiet)
    elif library == "histogram":
        from sklearn.ensemble import HistGradientBoostingRegressor

        model = HistGradientBoostingRegressor(max_iter=rounds, random_state=0)
    else:
        from sklearn.ensemble import GradientBoostingRegressor

        model = GradientBoostingRegressor(n_estimators=rounds, random_state=0)
    return model.fit(X[:1500], y[:1500])


@cache
def fitted_ranker(library, rounds=20):
    X, grade, group = (part[:1500] for part in ranks())
    if library == "lightgbm":
        from lightgbm import LGBMRanker

        sizes = np.unique(group, return_counts=True)[1]
        return LGBMRanker(n_estimators=rounds, n_jobs=1, verbose=-1).fit(X, grade, group=sizes)
    from xgboost import XGBRanker

    return XGBRanker(n_estimators=rounds, n_jobs=1).fit(X, grade, qid=group)


def number_thief(model, seed=0):
    """Return a thief of a regressor or a ranker."""
    part = slice(1500, 2000)
    X, y, group = ranks() if model.task == "ranking" else (*numbers(), None)
    made = Thief(X[part], y[part], seed, groups=None if group is None else group[part])
    made.once("kind", model.trees)
    return made


def held_out(task="regression"):
    """Return rows that neither the owner nor the thief has."""
    X, y, group = ranks() if task == "ranking" else (*numbers(), None)
    return Labelled(X[2000:], y[2000:], None if group is None else group[2000:])
