"""Data and small models of every supported library, for marking with default options."""

from functools import cache

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits, make_classification
from sklearn.ensemble import GradientBoostingClassifier, HistGradientBoostingClassifier

import timbermark as tm

KEY = tm.OwnerKey.generate()
LIBRARIES = ("timbermark", "xgboost", "lightgbm", "catboost", "histogram", "gradient")
SETS = ("digits", "cancer", "rare", "five")


@cache
def data(name):
    """Return training rows and labels, and the same that nothing else has seen."""
    if name == "digits":
        X, y = load_digits(return_X_y=True)
        n = 1200
    elif name == "cancer":
        X, y = load_breast_cancer(return_X_y=True)
        n = 400
    elif name == "rare":
        # Many rows to test on, so that figures are those of the mark and not of chance.
        X, y = make_classification(13_000, 20, n_informative=8, weights=[0.9], random_state=1)
        n = 3000
    else:
        X, y = make_classification(13_000, 20, n_informative=10, n_classes=5, random_state=2)
        n = 3000
    order = np.random.default_rng(0).permutation(len(X))
    X, y = X[order], y[order]
    return X[:n], y[:n], X[n:], y[n:]


def new_model(library, n_trees=None, **options):
    """Return an unfitted classifier with the library's defaults, on one thread.

    It has 40 rounds if not told otherwise, GradientBoosting with its shallow trees 100.
    """
    n_trees = n_trees or (100 if library == "gradient" else 40)
    if library == "timbermark":
        return tm.TimberClassifier(max_iter=n_trees, random_state=0, n_jobs=1, **options)
    if library == "xgboost":
        from xgboost import XGBClassifier

        return XGBClassifier(n_estimators=n_trees, n_jobs=1, **options)
    if library == "lightgbm":
        from lightgbm import LGBMClassifier

        return LGBMClassifier(n_estimators=n_trees, n_jobs=1, verbose=-1, **options)
    if library == "catboost":
        from catboost import CatBoostClassifier

        quiet = {"thread_count": 1, "allow_writing_files": False, "verbose": False}
        return CatBoostClassifier(iterations=n_trees, random_seed=0, **quiet, **options)
    if library == "histogram":
        return HistGradientBoostingClassifier(max_iter=n_trees, random_state=0, **options)
    return GradientBoostingClassifier(n_estimators=n_trees, random_state=0, **options)


@cache
def fitted(library, name):
    X, y, _, _ = data(name)
    n_trees = {"five": 60, "digits": 40}.get(name)
    return new_model(library, n_trees).fit(X, y)


@cache
def marked(library, name):
    """Return what `embed` makes of the model with default options."""
    X, y, _, _ = data(name)
    return tm.embed(fitted(library, name), X, y, key=KEY, owner="Ann Ltd")
