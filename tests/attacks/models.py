"""Small unmarked models of every library, and a thief with rows of their own."""

from functools import cache

import numpy as np
from sklearn.datasets import make_classification

from tests.marking.models import LIBRARIES, new_model
from timbermark.attacks.stolen import Thief, steal

__all__ = ["LIBRARIES", "accuracy", "data", "fitted", "stolen", "thief"]
ROUNDS = 20


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
    return float((model.answer(X[1200:]).argmax(axis=1) == y[1200:]).mean())
