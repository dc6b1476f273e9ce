"""Compiling all kernels ahead of time, for images and jobs."""

from __future__ import annotations

import numpy as np

from timbermark.boosting.warmup import warm_up
from timbermark.estimator import TimberClassifier
from timbermark.marking.budget import Budget
from timbermark.marking.embedding import plan

_N = 400


def warmup() -> None:
    """Compile all kernels now, so that the first training or marking starts at once.

    The machine code lies on disk afterwards, in Numba's cache: beside the package where that can
    be written, else in the folder that ``NUMBA_CACHE_DIR`` names.

    >>> warmup()
    """
    warm_up()
    rng = np.random.default_rng(0)
    X = rng.normal(size=(_N, 4))
    y = (X[:, 0] + X[:, 1] ** 2 + 0.5 * rng.normal(size=_N) > 0.5).astype(int)
    model = TimberClassifier(max_iter=5, min_samples_leaf=5, random_state=0).fit(X, y)
    # A model so small that its mark is weak, and a budget that lets any pass.
    wide = Budget.only(changed=1.0, drift=1.0, accuracy=1.0, auc=1.0, score=1.0)
    plan(model, X, y, budget=wide, n_triggers=8, weak=True, random_state=0)
