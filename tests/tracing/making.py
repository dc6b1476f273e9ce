"""One small model, its owner and the copies of three customers."""

import numpy as np

import timbermark as tm

NAMES = ("Bob Ltd", "Eve Inc", "Zoë & Söhne")


def rows(n=2000, seed=0):
    X = np.random.default_rng(seed).normal(size=(n, 6)).round(4)
    return X, (X[:, 0] + X[:, 1] * X[:, 2] > 0).astype(int)


def train(seed=0, max_iter=60):
    X, y = rows(seed=seed)
    return tm.TimberClassifier(max_iter=max_iter, random_state=0).fit(X, y)
