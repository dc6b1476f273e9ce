"""Compiling kernels ahead of time, for images and jobs: those of the engine, or all."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from timbermark.boosting import fitting
from timbermark.boosting.data import TrainParams, find_bins, make_data
from timbermark.boosting.forest import empty_forest
from timbermark.boosting.objective import choose_scale
from timbermark.boosting.predicting import make_predictor
from timbermark.boosting.state import fit_ensemble, rebuild_state
from timbermark.boosting.state_file import load_state, save_state
from timbermark.boosting.updating import renew
from timbermark.estimator import TimberClassifier
from timbermark.kernels.compile import is_cold
from timbermark.kernels.growing import train_trees
from timbermark.kernels.workers import Workers
from timbermark.marking.budget import Budget
from timbermark.marking.embedding import plan

_PARAMS = TrainParams(max_iter=2, max_leaf_nodes=4, min_samples_leaf=2)


def _rows() -> tuple[np.ndarray, np.ndarray]:
    return np.random.default_rng(0).normal(size=(60, 3)), np.arange(60) % 3


def warm_up() -> None:
    """Run every kernel once on a few rows, so that its machine code lies on disk afterwards.

    Another process compiles the update meanwhile: compilation uses one core only.
    """
    code = f"from {__name__} import warm_update; warm_update()"
    if is_cold(train_trees):
        with subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL):
            warm_training()
    else:
        warm_training()
    # Loaded from disk by now; compiled here if the other process could not.
    warm_update()


def warm_training() -> None:
    """Run a training, which compiles that of any loss; rebuild, save and load a state; predict."""
    X, label = _rows()
    with Workers(2) as workers:
        ensemble, state = fit_ensemble(X, label, None, 3, _PARAMS, workers)
        rebuild_state(ensemble, X, label, None, 3, _PARAMS, workers)
        with tempfile.TemporaryDirectory() as folder:
            save_state(Path(folder) / "state", state)
            load_state(Path(folder) / "state")
        predictor = make_predictor(ensemble)
        if predictor is not None:
            predictor.margins(X, workers)


def warm_update() -> None:
    """Run the in-place update of trees that are single leaves: no training is needed."""
    X, label = _rows()
    leaves = _PARAMS.max_leaf_nodes
    forest = empty_forest(3 * _PARAMS.max_iter, leaves, 3)
    forest.n_nodes[:] = 1
    for field in ("left", "split", "feature", "choice"):
        forest.nodes[field] = -1
    with Workers(2) as workers:
        data = make_data(find_bins(X, None, 255, 0, workers), X, label, None, 3, workers)
        candidates = int(data.binned(_PARAMS).firsts[-1])
        trained = fitting.Trained(
            forest,
            leaf=np.zeros((forest.n_trees, len(X)), fitting.leaf_dtype(leaves)),
            record=np.zeros((forest.n_trees, leaves - 1, 2 * candidates), np.int64),
            margins=np.zeros((3, 0)),
        )
        one = make_data(data.bins, X[:1], label[:1], None, 3, workers)
        renew(trained, data, one, _PARAMS, choose_scale(data), 0.0, 0.0, workers)


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
