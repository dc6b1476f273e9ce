"""Small HistGradientBoostingClassifiers of every kind."""

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier

N = 400


def numbers(rng, missing=0.0, n=N):
    X = rng.normal(size=(n, 4))
    X[rng.random(X.shape) < missing] = np.nan
    return X


def labels_of(rng, X, n_classes):
    score = np.nan_to_num(X[:, 0]) + np.nan_to_num(X[:, 1], nan=1.5) + rng.normal(size=len(X))
    return np.digitize(score, np.quantile(score, np.linspace(0, 1, n_classes + 1)[1:-1]))


def codes(rng, n=N):
    """Columns 1 and 3 are categories, some negative; column 3 is one category or missing."""
    X = numbers(rng, 0.1, n)
    X[:, 1] = rng.integers(-2, 7, n)
    X[:, 3] = np.where(rng.random(n) < 0.5, 7.0, np.nan)
    return X


def frame(rng, n=N):
    return pd.DataFrame(
        {
            "a": numbers(rng, 0.1, n)[:, 0],
            "text": pd.Categorical(
                rng.choice(["x", "y", "z", None], n), categories=["z", "y", "x"]
            ),
            "b": rng.normal(size=n),
            "number": pd.Categorical(rng.integers(3, 9, n)),
            "flag": pd.Categorical(rng.random(n) < 0.5),
        }
    )


def score_of(table):
    return np.column_stack(
        [table["a"], (table["text"] == "y") + (table["number"] == 4) * 1.0, table["b"]]
    )


def fitted(n_classes, make=numbers, seed=0, names=None, **parameters):
    rng = np.random.default_rng(seed)
    X, asked = make(rng), make(rng, n=100)
    y = labels_of(rng, score_of(X) if make is frame else np.asarray(X), n_classes)
    if names:
        y = np.array(names)[y]
    parameters = {"max_iter": 6, "max_leaf_nodes": 8, "random_state": 0} | parameters
    return HistGradientBoostingClassifier(**parameters).fit(X, y), asked


def gaps(rng, n=N):
    return numbers(rng, 0.3, n)


MAKERS = {
    "two classes": lambda: fitted(2),
    "three classes": lambda: fitted(3),
    "nine classes": lambda: fitted(9, max_iter=2, names=list("abcdefghi")),
    "two, missing": lambda: fitted(2, gaps, names=["no", "yes"]),
    "three, missing": lambda: fitted(3, gaps),
    "two, categories": lambda: fitted(2, codes, categorical_features=[1, 3]),
    "three, categories": lambda: fitted(3, codes, categorical_features=[3, 1], max_iter=12),
    "all are categories": lambda: fitted(2, lambda rng, n=N: codes(rng, n)[:, [1, 3]],
                                         categorical_features=[True, True]),
    "frame": lambda: fitted(3, frame, categorical_features="from_dtype", names=["p", "q", "r"]),
    "frame of numbers": lambda: fitted(
        2, lambda rng, n=N: pd.DataFrame(gaps(rng, n), columns=list("wxyz")),
        categorical_features=None),
    "early stopping": lambda: fitted(
        3, gaps, early_stopping=True, max_iter=60, learning_rate=0.5, n_iter_no_change=2),
    "early, categories": lambda: fitted(
        2, codes, early_stopping=True, max_iter=60, n_iter_no_change=2, validation_fraction=0.4,
        categorical_features=[1, 3], learning_rate=0.7),
    "scorer": lambda: fitted(2, early_stopping=True, scoring="accuracy"),
    "monotonic": lambda: fitted(2, monotonic_cst=[1, 0, -1, 0], class_weight="balanced"),
    "single leaves": lambda: fitted(3, min_samples_leaf=N, max_iter=2),
    "deep": lambda: fitted(2, gaps, max_leaf_nodes=None, min_samples_leaf=1, max_iter=2),
    "few bins": lambda: fitted(2, gaps, max_bins=3, l2_regularization=1.0, max_depth=2),
}  # fmt: skip
