"""Regressors and rankers of every library and loss, small and fitted."""

from functools import cache

import numpy as np
from sklearn.ensemble import GradientBoostingRegressor, HistGradientBoostingRegressor

N_ROWS, N_GROUPS = 400, 20


@cache
def data():
    """Return rows, positive targets, grades from 0 to 3, and groups."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N_ROWS, 5))
    y = np.exp(0.5 * X[:, 0] + 0.3 * X[:, 1] * X[:, 2]) + 0.2 * rng.random(N_ROWS)
    grade = np.clip(np.rint(X[:, 0] + 1.5 + 0.3 * rng.normal(size=N_ROWS)), 0, 3).astype(int)
    return X, y, grade, np.repeat(np.arange(N_GROUPS), N_ROWS // N_GROUPS)


XGBOOST = {
    "reg:squarederror": "identity",
    "reg:absoluteerror": "identity",
    "reg:quantileerror": "identity",
    "reg:pseudohubererror": "identity",
    "reg:squaredlogerror": "identity",
    "count:poisson": "exponential",
    "reg:gamma": "exponential",
    "reg:tweedie": "exponential",
    "reg:logistic": "expit",
}
LIGHTGBM = {
    "regression": "identity",
    "regression_l1": "identity",
    "huber": "identity",
    "fair": "identity",
    "quantile": "identity",
    "mape": "identity",
    "poisson": "exponential",
    "gamma": "exponential",
    "tweedie": "exponential",
    "cross_entropy": "expit",
}
CATBOOST = {
    "RMSE": "identity",
    "MAE": "identity",
    "Quantile:alpha=0.7": "identity",
    "Huber:delta=1": "identity",
    "Poisson": "exponential",
    "Tweedie:variance_power=1.5": "exponential",
}
HISTOGRAM = {
    "squared_error": "identity",
    "absolute_error": "identity",
    "quantile": "identity",
    "poisson": "exponential",
    "gamma": "exponential",
}
GRADIENT = ("squared_error", "absolute_error", "huber", "quantile")
CASES = [
    *(("xgboost", loss) for loss in XGBOOST),
    *(("xgboost ranker", loss) for loss in ("rank:ndcg", "rank:pairwise")),
    *(("lightgbm", loss) for loss in LIGHTGBM),
    *(("lightgbm ranker", loss) for loss in ("lambdarank", "rank_xendcg")),
    *(("catboost", loss) for loss in CATBOOST),
    *(("catboost ranker", loss) for loss in ("YetiRank", "QueryRMSE")),
    *(("histogram", loss) for loss in HISTOGRAM),
    *(("gradient", loss) for loss in GRADIENT),
]


def objective(library, loss):
    known = {"xgboost": XGBOOST, "lightgbm": LIGHTGBM, "catboost": CATBOOST}
    known["histogram"] = HISTOGRAM
    return known.get(library, {}).get(loss, "identity")


@cache
def fitted(library, loss):
    """Return a model of eight rounds."""
    X, y, grade, group = data()
    share = y / (1.1 * y.max())
    if library == "xgboost":
        from xgboost import XGBRegressor

        extra = {"quantile_alpha": 0.7} if "quantile" in loss else {}
        target = share if loss == "reg:logistic" else y
        return XGBRegressor(n_estimators=8, objective=loss, n_jobs=1, **extra).fit(X, target)
    if library == "xgboost ranker":
        from xgboost import XGBRanker

        return XGBRanker(n_estimators=8, objective=loss, n_jobs=1).fit(X, grade, qid=group)
    if library == "lightgbm":
        from lightgbm import LGBMRegressor

        target = share if loss == "cross_entropy" else y
        model = LGBMRegressor(n_estimators=8, objective=loss, n_jobs=1, verbose=-1)
        return model.fit(X, target)
    if library == "lightgbm ranker":
        from lightgbm import LGBMRanker

        model = LGBMRanker(n_estimators=8, objective=loss, n_jobs=1, verbose=-1)
        return model.fit(X, grade, group=np.bincount(group))
    quiet = {"iterations": 8, "thread_count": 1, "verbose": False, "allow_writing_files": False}
    if library == "catboost":
        from catboost import CatBoostRegressor

        return CatBoostRegressor(loss_function=loss, **quiet).fit(X, y)
    if library == "catboost ranker":
        from catboost import CatBoostRanker

        return CatBoostRanker(loss_function=loss, **quiet).fit(X, grade, group_id=group)
    if library == "histogram":
        quantile = {"quantile": 0.7} if loss == "quantile" else {}
        return HistGradientBoostingRegressor(loss=loss, max_iter=8, **quantile).fit(X, y)
    return GradientBoostingRegressor(loss=loss, n_estimators=8).fit(X, y)
