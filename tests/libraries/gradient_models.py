"""Small GradientBoostingClassifiers of every kind."""

import numpy as np
import pandas as pd
import scipy.sparse
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import GradientBoostingClassifier

N = 300


def numbers(rng, n=N):
    return rng.normal(size=(n, 4))


def whole(rng, n=N):
    return rng.integers(-3, 4, size=(n, 4))


def tenths(rng, n=N):
    """Numbers that float32 does not hold, so that a comparison in float64 would differ."""
    return rng.integers(-3, 4, size=(n, 4)) * 0.1


def sparse(rng, n=N):
    X = numbers(rng, n)
    X[rng.random(X.shape) < 0.6] = 0.0
    return scipy.sparse.csr_matrix(X)


def frame(rng, n=N):
    return pd.DataFrame(numbers(rng, n), columns=list("wxyz"))


def dense(X):
    return X.toarray() if scipy.sparse.issparse(X) else np.asarray(X)


def labels_of(rng, X, n_classes):
    score = dense(X)[:, 0] + dense(X)[:, 1] ** 2 + rng.normal(size=X.shape[0])
    edges = np.quantile(score, np.linspace(0, 1, n_classes + 1)[1:-1])
    return np.digitize(score, edges)


def fitted(n_classes, make=numbers, names=None, weighted=False, **parameters):
    rng = np.random.default_rng(0)
    X, asked = make(rng), make(rng, n=100)
    y = labels_of(rng, X, n_classes)
    if names:
        y = np.array(names)[y]
    parameters = {"n_estimators": 6, "random_state": 0} | parameters
    weight = rng.random(N) if weighted else None
    return GradientBoostingClassifier(**parameters).fit(X, y, sample_weight=weight), asked


MAKERS = {
    "two classes": lambda: fitted(2),
    "three classes": lambda: fitted(3),
    "nine classes": lambda: fitted(9, n_estimators=2, names=list("abcdefghi")),
    "whole numbers": lambda: fitted(3, whole),
    "tenths": lambda: fitted(2, tenths, learning_rate=0.07),
    "sparse": lambda: fitted(3, sparse),
    "frame": lambda: fitted(2, frame, names=["no", "yes"]),
    "two, zero": lambda: fitted(2, init="zero", learning_rate=1 / 3),
    "three, zero": lambda: fitted(3, init="zero", names=["p", "q", "r"]),
    "given prior": lambda: fitted(3, init=DummyClassifier(strategy="prior")),
    "early stopping": lambda: fitted(
        3, n_iter_no_change=2, n_estimators=60, learning_rate=0.9, validation_fraction=0.3),
    "early, zero": lambda: fitted(
        2, n_iter_no_change=2, n_estimators=60, learning_rate=0.9, init="zero"),
    "subsample": lambda: fitted(2, subsample=0.5, max_features=2),
    "subsample, three": lambda: fitted(3, subsample=0.3, learning_rate=0.05),
    "weighted": lambda: fitted(2, weighted=True, min_samples_leaf=0.05),
    "best first": lambda: fitted(3, max_leaf_nodes=7, max_depth=None),
    "deep": lambda: fitted(2, max_depth=None, n_estimators=2),
    "stumps": lambda: fitted(2, max_depth=1, ccp_alpha=1e-4),
    "single leaves": lambda: fitted(3, min_impurity_decrease=1e9),
}  # fmt: skip
