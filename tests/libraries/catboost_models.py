"""CatBoost models of every kind that is supported, and ways to change an ensemble."""

import numpy as np
import pytest

catboost = pytest.importorskip("catboost")

N = 200
SMALL = {
    "iterations": 6,
    "depth": 3,
    "learning_rate": 0.3,
    "thread_count": 2,
    "verbose": False,
    "allow_writing_files": False,
}
NESTED = {"grow_policy": "Lossguide", "max_leaves": 7, "depth": 5}


def table(missing=0.1, n=N, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    X[rng.random(X.shape) < missing] = np.nan
    return X


def classes_of(score, n_classes):
    score = np.nan_to_num(score)
    return np.digitize(score, np.quantile(score, np.arange(1, n_classes) / n_classes))


def numeric(n_classes=2, missing=0.1, labels=None, kind=catboost.CatBoostClassifier, **parameters):
    X = table(missing)
    y = classes_of(X[:, 0] + X[:, 1] * X[:, 2], n_classes)
    if labels is not None:
        y = np.array(labels)[y]
    parameters = SMALL | parameters
    plain = kind is catboost.CatBoost
    return (kind(parameters) if plain else kind(**parameters)).fit(X, y), X


def mixed(n_classes=2, n_categories=12, as_array=False, **parameters):
    """Two columns of numbers and three of categories, one of them of two values."""
    rng = np.random.default_rng(3)
    a, b, x = rng.integers(0, n_categories, N), rng.integers(0, 3, N), rng.normal(size=N)
    score = np.where(x > 0, np.sin(a * 1.7), np.cos(a * 2.3)) + (b == 1) + 0.3 * x
    y = classes_of(score, n_classes)
    x[rng.random(N) < 0.1] = np.nan
    columns = {
        "town": a.astype(str),
        "größe": x,
        "kind": np.array(["u", "v", "w"])[b],
        "weight": rng.normal(size=N),
        "flag": np.array(["no", "yes"])[a % 2],
    }
    parameters = SMALL | {"one_hot_max_size": 3, "max_ctr_complexity": 3} | parameters
    if as_array:
        X = np.array(list(columns.values()), dtype=object).T
        return catboost.CatBoostClassifier(cat_features=[0, 2, 4], **parameters).fit(X, y), X
    X = pytest.importorskip("pandas").DataFrame(columns)
    names = ["town", "kind", "flag"]
    return catboost.CatBoostClassifier(cat_features=names, **parameters).fit(X, y), X


def shares():
    X = table()
    p = 1 / (1 + np.exp(-np.nan_to_num(X[:, 0])))
    return catboost.CatBoostClassifier(loss_function="CrossEntropy", **SMALL).fit(X, p), X


def scaled(n_classes=2):
    model, X = numeric(n_classes, missing=0.0)
    bias = 0.1 if n_classes == 2 else [0.1, -0.2, 1 / 3]
    model.set_scale_and_bias(0.7, bias)
    return model, X


def summed():
    (first, X), (second, _) = numeric(), numeric(depth=4, random_seed=7)
    both = catboost.sum_models([first, second], weights=[0.3, 0.7])
    return catboost.to_classifier(both), X


def single_leaves():
    X = table()
    y = (np.arange(N) % 3 == 0).astype(int)
    parameters = SMALL | {"grow_policy": "Depthwise", "min_data_in_leaf": N}
    return catboost.CatBoostClassifier(**parameters, boost_from_average=True).fit(X, y), X


def without_unused():
    model, X = numeric(iterations=2, depth=2)
    model.drop_unused_features()
    return model, X


def stopped_early():
    X = table(n=300)
    y = classes_of(X[:, 0] + X[:, 1], 2)
    y[150:] = np.random.default_rng(5).permutation(y[150:])
    model = catboost.CatBoostClassifier(**(SMALL | {"iterations": 30, "early_stopping_rounds": 3}))
    return model.fit(X[:150], y[:150], eval_set=(X[150:], y[150:])), X


def weighted():
    X = table()
    y = classes_of(X[:, 0], 2)
    weight = np.random.default_rng(1).random(N)
    model = catboost.CatBoostClassifier(**SMALL, auto_class_weights="Balanced")
    return model.fit(X, y, sample_weight=weight), X


MAKERS = {
    "two": lambda: numeric(),
    "two, labels": lambda: numeric(labels=["no", "yes"], missing=0.0),
    "two, missing are largest": lambda: numeric(nan_mode="Max", missing=0.3),
    "two, depthwise": lambda: numeric(grow_policy="Depthwise"),
    "two, lossguide": lambda: numeric(**NESTED, nan_mode="Max"),
    "two, deep": lambda: numeric(depth=9, iterations=2),
    "two, many trees": lambda: numeric(iterations=43, depth=2),
    "two, ordered": lambda: numeric(boosting_type="Ordered", boost_from_average=True),
    "cross-entropy": shares,
    "plain CatBoost": lambda: numeric(kind=catboost.CatBoost, loss_function="Logloss"),
    "plain, three": lambda: numeric(3, kind=catboost.CatBoost, loss_function="MultiClass"),
    "three": lambda: numeric(3, labels=[-5, 0, 1000]),
    "three, missing are largest": lambda: numeric(3, nan_mode="Max", missing=0.3),
    "three, lossguide": lambda: numeric(3, **NESTED),
    "three, ova": lambda: numeric(3, loss_function="MultiClassOneVsAll"),
    "three, ova, depthwise": lambda: numeric(
        3, loss_function="MultiClassOneVsAll", grow_policy="Depthwise", labels=[0.5, 1.5, 7.0]
    ),
    "two as many": lambda: numeric(2, loss_function="MultiClass", labels=[False, True]),
    "one-hot": lambda: mixed(n_categories=9, one_hot_max_size=20),
    "one-hot, array": lambda: mixed(one_hot_max_size=20, as_array=True, n_classes=3),
    "statistics": lambda: mixed(iterations=12),
    "statistics, three": lambda: mixed(3, iterations=8),
    "statistics, lossguide": lambda: mixed(**NESTED),
    "statistics, combined": lambda: mixed(iterations=25, depth=4, model_size_reg=0),
    "statistics, pairs": lambda: mixed(iterations=15, model_size_reg=0, one_hot_max_size=2),
    "statistics, means": lambda: mixed(simple_ctr="BinarizedTargetMeanValue:Prior=0.5"),
    "statistics, buckets": lambda: mixed(3, simple_ctr="Buckets:Prior=0.5"),
    "scaled": scaled,
    "scaled, three": lambda: scaled(3),
    "summed": summed,
    "single leaves": single_leaves,
    "without unused": without_unused,
    "stopped early": stopped_early,
    "weighted": weighted,
}  # fmt: skip
