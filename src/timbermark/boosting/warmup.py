"""Compiling all kernels ahead of time, and a word to those who did not."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from timbermark.boosting import fitting
from timbermark.boosting.data import make_data
from timbermark.boosting.params import TrainParams
from timbermark.boosting.predicting import make_predictor
from timbermark.boosting.state import fit_ensemble, rebuild_state
from timbermark.boosting.updating import update_ensemble
from timbermark.boosting.workers import Workers
from timbermark.kernels.training import train_trees


def warm_up() -> None:
    """Run every kernel once on a few rows, so that its machine code lies on disk afterwards."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    label = np.arange(60) % 3
    params = TrainParams(max_iter=2, max_leaf_nodes=4, min_samples_leaf=2)
    with Workers(2) as workers:
        ensemble, state = fit_ensemble(X, label, None, 3, params, workers)
        rebuild_state(ensemble, X, label, None, 3, params, workers)
        update_ensemble(
            ensemble, state, X[:1], label[:1], None, workers, patience=0.0, tolerance=0.0
        )
        predictor = make_predictor(ensemble)
        if predictor is not None:
            predictor.margins(X, workers)
        data = make_data(state.data.bins, X, label // 2, None, 2, workers)
        before = fitting.share_above
        try:
            # The path for two classes and many rows, on few.
            fitting.share_above = 8
            fitting.train(data, params, state.scale, workers)
        finally:
            fitting.share_above = before


def is_cold() -> bool:
    """Whether the first training will have to compile."""
    cache = getattr(train_trees, "_cache", None)
    index = getattr(getattr(cache, "_cache_file", None), "_index_path", None)
    loaded = bool(getattr(train_trees, "signatures", True))
    return index is not None and not loaded and not Path(index).exists()


def notice_if_cold() -> None:
    """Tell a person at a terminal why the first call takes longer."""
    if sys.stderr.isatty() and is_cold():
        print(
            "timbermark: compiling its kernels, once; `timbermark warmup` does it ahead.",
            file=sys.stderr,
        )
