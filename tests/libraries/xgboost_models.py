"""Small models of XGBoost of every kind, and ensembles edited in every way."""

import warnings
from functools import cache

import numpy as np

N_ROWS = 240


def numbers(missing=0.0, seed=0):
    rng = np.random.default_rng(seed)
    # Few digits, so that rows meet thresholds.
    X = rng.normal(size=(N_ROWS, 5)).round(2)
    X[rng.random(X.shape) < missing] = np.nan
    return X


def labels(X, n_classes, seed=0):
    rng = np.random.default_rng(seed)
    known = np.nan_to_num(X)
    score = known[:, 0] + known[:, 1] * known[:, 2] + rng.normal(size=len(X)) / 3
    return np.digitize(score, np.quantile(score, np.linspace(0, 1, n_classes + 1)[1:-1]))


def frame(seed=0):
    import pandas as pd

    rng = np.random.default_rng(seed)
    table = pd.DataFrame(
        {
            "size": rng.normal(size=N_ROWS).round(2),
            "colour": pd.Categorical(rng.choice(["red", "green", "blue", "black", "pink"], N_ROWS)),
            "year": pd.Categorical(rng.integers(1990, 2003, N_ROWS)),
            "length": rng.normal(size=N_ROWS),
        }
    )
    table.loc[::11, "colour"] = np.nan
    return table


def frame_labels(table, n_classes=2):
    lucky = table.colour.isin(["red", "pink"]).to_numpy() ^ table.year.isin([1991, 1995, 2000])
    return (lucky.astype(int) + (table["size"] > 0)).to_numpy() % n_classes


def codes(table):
    """The numbers of a frame; missing categories are NaN."""
    X = np.column_stack(
        [table[c].cat.codes if table[c].dtype == "category" else table[c] for c in table]
    ).astype(float)
    X[:, 1:3][X[:, 1:3] < 0] = np.nan
    return X


def wrapper(X, y, **options):
    import xgboost as xgb

    fit = options.pop("fit", {})
    options = {"n_estimators": 4, "max_depth": 3, "n_jobs": 1, **options}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # dart is deprecated from 3.4 on
        return xgb.XGBClassifier(**options).fit(X, y, **fit)


def booster(X, y, rounds=4, names=None, types=None, early=None, **options):
    import xgboost as xgb

    data = xgb.DMatrix(X, y, feature_names=names, feature_types=types)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return xgb.train(
            {"max_depth": 3, "nthread": 1, **options},
            data,
            rounds,
            evals=[(data, "train")] if early else (),
            early_stopping_rounds=early,
            verbose_eval=False,
        )


def plain(n_classes, missing=0.1, **options):
    X = numbers(missing)
    return wrapper(X, labels(X, n_classes), **options), X


def core(n_classes, missing=0.1, **options):
    X = numbers(missing)
    return booster(X, labels(X, n_classes), **options), X


def stopped_early():
    X = numbers()
    y = labels(X, 3)
    half = slice(None, None, 2)
    fit = {"eval_set": [(X[1::2], y[1::2])], "verbose": False}
    model = wrapper(
        X[half], y[half], n_estimators=60, early_stopping_rounds=3, learning_rate=0.7, fit=fit
    )
    assert model.get_booster().num_boosted_rounds() > model.best_iteration + 1
    return model, X


def stopped_booster():
    X = numbers()
    model = booster(X, labels(X, 2), rounds=6, **LOGISTIC)
    model.set_attr(best_iteration="2")
    return model, X


def reloaded():
    import xgboost as xgb

    model, X = plain(3)
    again = xgb.XGBClassifier()
    again.load_model(model.get_booster().save_raw("json"))
    again.get_booster().set_param({"nthread": 1})
    return again, X


def with_categories(n_classes, **options):
    table = frame()
    options = {"enable_categorical": True, "tree_method": "hist", "max_cat_to_onehot": 3, **options}
    return wrapper(table, frame_labels(table, n_classes), **options), table


def category_numbers(**options):
    table = frame()
    X = codes(table)
    types = ["q", "c", "c", "q"]
    return booster(X, frame_labels(table), types=types, tree_method="hist", **options), X


def value_for_missing():
    X = numbers(0.1)
    X[np.isnan(X)] = -0.1  # no float32
    X[::7, 3] = np.nan  # is missing all the same
    return wrapper(X, labels(X, 2), missing=-0.1), X


def named():
    X = numbers()
    names = ["a", "b", "ç", "d e", "e"]
    return booster(X, labels(X, 2), names=names, objective="binary:logistic"), X


LOGISTIC = {"objective": "binary:logistic"}
SOFTPROB = {"objective": "multi:softprob", "num_class": 3}
DART = {"booster": "dart", "rate_drop": 0.4, "one_drop": True}
MAKERS = {
    "two classes": lambda: plain(2),
    "four classes": lambda: plain(4),
    "softmax": lambda: plain(3, objective="multi:softmax"),
    "nothing missing": lambda: plain(2, missing=0.0),
    "a value means missing": value_for_missing,
    "base score": lambda: plain(2, base_score=0.123),
    "base score, many": lambda: plain(3, base_score=0.3),
    "parallel trees": lambda: plain(3, num_parallel_tree=2, subsample=0.7, colsample_bynode=0.5),
    "dart": lambda: plain(2, **DART, n_estimators=9),
    "dart, many": lambda: plain(3, **DART, n_estimators=9),
    "pruned": lambda: plain(2, tree_method="exact", gamma=3.0, max_depth=6, n_estimators=6),
    "exact": lambda: plain(3, tree_method="exact", learning_rate=0.1, reg_lambda=4.0),
    "leaf-wise": lambda: plain(2, grow_policy="lossguide", max_leaves=12, max_depth=0),
    "leaf-wise, categories": lambda: with_categories(
        3, grow_policy="lossguide", max_leaves=9, max_depth=0
    ),
    "l1": lambda: plain(2, reg_alpha=0.2, learning_rate=0.2),
    "deep": lambda: plain(2, max_depth=10, min_child_weight=0.0, reg_lambda=0.1),
    "stumps": lambda: plain(3, max_depth=1),
    "single leaves": lambda: plain(2, gamma=1e6),
    "weighted": lambda: plain(2, scale_pos_weight=3.0, reg_alpha=0.1, max_delta_step=0.5),
    "stopped early": stopped_early,
    "loaded": reloaded,
    "categories": lambda: with_categories(2),
    "categories, many": lambda: with_categories(3, **DART),
    "booster": lambda: core(2, **LOGISTIC),
    "booster, raw": lambda: core(2, objective="binary:logitraw"),
    "booster, many": lambda: core(3, **SOFTPROB),
    "booster, softmax": lambda: core(3, objective="multi:softmax", num_class=3),
    "booster, softprob of two": lambda: core(2, objective="multi:softprob", num_class=2),
    "booster, dart": lambda: core(3, **SOFTPROB, **DART, rounds=9),
    "booster, category numbers": lambda: category_numbers(**LOGISTIC),
    "booster, stopped early": stopped_booster,
    "booster, names": named,
}


@cache
def made(name):
    """The model of this name and rows for it; not to be changed."""
    return MAKERS[name]()
