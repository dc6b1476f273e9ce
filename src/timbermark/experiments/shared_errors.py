"""Which of our model's errors other libraries make, too: rows that are hard for everybody."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from timbermark.estimator import TimberClassifier
from timbermark.experiments.splits import Split

_ITERATIONS, _RATE, _LEAVES = 200, 0.1, 20


@dataclass(frozen=True, slots=True)
class SharedErrors:
    """Of ``n_errors`` errors of ours, the share that a library makes (``shared``) and that to
    which it gives the same wrong answer (``same``). A library that is not installed is missing."""

    n_errors: int
    n_rows: int
    shared: dict[str, float]
    same: dict[str, float]
    missing: tuple[str, ...]


def find_shared_errors(split: Split, seed: int = 0) -> SharedErrors:
    """Train our model and each library's on D_train, as alike as can be; compare on all test rows.

    The rows of D_test and D_fine: neither was seen in training, and errors are few. One thread
    throughout, since some libraries' sums depend on the number of threads.
    """
    X = np.concatenate([split.test.X, split.fine.X])
    y = np.concatenate([split.test.y, split.fine.y])
    ours = TimberClassifier(preset="paper", random_state=seed, n_jobs=1)
    answers = ours.fit(split.train.X, split.train.y).predict(X)
    wrong = answers != y
    shared: dict[str, float] = {}
    same: dict[str, float] = {}
    missing = []
    for name, make in _MAKERS.items():
        try:
            model = make(seed)
        except ImportError:
            missing.append(name)
            continue
        with threadpool_limits(limits=1):
            model.fit(split.train.X, split.train.y)
            theirs = np.asarray(model.predict(X)).reshape(-1)
        if wrong.any():
            shared[name] = float(np.mean(theirs[wrong] != y[wrong]))
            same[name] = float(np.mean(theirs[wrong] == answers[wrong]))
    return SharedErrors(int(wrong.sum()), len(y), shared, same, tuple(missing))


def _lightgbm(seed: int) -> Any:
    from lightgbm import LGBMClassifier

    return LGBMClassifier(
        n_estimators=_ITERATIONS, learning_rate=_RATE, num_leaves=_LEAVES, random_state=seed,
        n_jobs=1, verbose=-1,
    )  # fmt: skip


def _xgboost(seed: int) -> Any:
    from xgboost import XGBClassifier

    return XGBClassifier(
        n_estimators=_ITERATIONS, learning_rate=_RATE, max_leaves=_LEAVES, max_depth=0,
        grow_policy="lossguide", tree_method="hist", random_state=seed, n_jobs=1,
    )  # fmt: skip


def _catboost(seed: int) -> Any:
    from catboost import CatBoostClassifier

    # Its usual symmetric trees: with trees of 20 leaves it takes minutes.
    return CatBoostClassifier(
        iterations=_ITERATIONS, learning_rate=_RATE, random_seed=seed, thread_count=1,
        verbose=False, allow_writing_files=False,
    )  # fmt: skip


def _hist_gradient_boosting(seed: int) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier

    return HistGradientBoostingClassifier(
        max_iter=_ITERATIONS, learning_rate=_RATE, max_leaf_nodes=_LEAVES, early_stopping=False,
        random_state=seed,
    )  # fmt: skip


_MAKERS: dict[str, Callable[[int], Any]] = {
    "LightGBM": _lightgbm,
    "XGBoost": _xgboost,
    "CatBoost": _catboost,
    "HistGradientBoosting": _hist_gradient_boosting,
}
