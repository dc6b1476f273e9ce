"""The in-place update (Algorithm 1 of the paper): new rows, the same trees.

``exact`` trains again on old and new rows with the same bins and seeds. ``lazy`` walks the old
trees and regrows only what the new rows overturn. Its two knobs:

- *patience* (σ): a split is kept while at most this share of its node's candidates beats it;
- *tolerance* (ε): an old row's gradients are refreshed once a margin of it moved by more.

With both at zero, lazy gives exactly the trees of exact.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from timbermark.boosting.data import TrainingData, join_data, make_data
from timbermark.boosting.fitting import Progress, Trained, make_growth, no_progress, take_turns
from timbermark.boosting.forest import Forest, empty_forest, to_ensemble
from timbermark.boosting.objective import make_objective
from timbermark.boosting.params import TrainParams
from timbermark.boosting.scale import Scale, check_scale, choose_scale, fits_scale
from timbermark.boosting.state import State, fit_data
from timbermark.kernels.layout import TOUCH, Binned, Renewal, Turn, Walk
from timbermark.kernels.updating import renew_trees
from timbermark.kernels.workers import Workers
from timbermark.trees.ensemble import Ensemble

PATIENCE, SMALL_PATIENCE = 0.1, 0.03
"""The default σ, and that below 1000 rows, where one row weighs more. With these marks take as with
training again and test accuracy stays within half a point; see ``./dev bench update``."""
_FEW_ROWS = 1000
TOLERANCE = float("inf")
"""The default ε. Refreshing old rows cost half the speed and gained no accuracy in measurement."""
_LARGE_SHARE = 0.025
"""Share of new rows from which training again is as fast as walking, and exact."""


def update_ensemble(
    ensemble: Ensemble,
    state: State,
    X: np.ndarray,
    label: np.ndarray,
    weight: np.ndarray | None,
    workers: Workers,
    mode: str = "lazy",
    patience: float | None = None,
    tolerance: float = TOLERANCE,
    progress: Progress = no_progress,
) -> tuple[Ensemble, State]:
    """Learn the float64 rows ``X`` with answers ``label`` in the trees of ``ensemble``.

    Gives a new model and its state; what was given is left as it was. A lazy update trains again
    where that is as fast: with many new rows, or where the state holds no sums.

    Raises StateError where the state is another model's, InputError for weights that are too
    heavy.
    """
    state.check(ensemble)
    if patience is None:
        patience = PATIENCE if state.data.n_rows >= _FEW_ROWS else SMALL_PATIENCE
    fresh = make_data(state.data.bins, X, label, weight, state.data.n_classes, workers)
    check_scale(state.scale, fresh)
    added = join_data(state.added, fresh)
    fits = fits_scale(state.scale, state.data, added)
    is_exact = patience == tolerance == 0.0
    is_small = added.n_rows <= _LARGE_SHARE * state.data.n_rows
    if mode != "lazy" or not state.has_sums or not fits or not (is_small or is_exact):
        whole = join_data(state.data, added)
        scale = state.scale if fits else choose_scale(whole)
        return fit_data(whole, state.params, scale, workers, progress=progress)
    if added.n_rows == 0:
        return ensemble, state
    forest = renew(
        state.trained, state.data, added, state.params, state.scale, patience, tolerance,
        workers, progress, ensemble.init,
    )  # fmt: skip
    renewed = to_ensemble(forest, state.data.bins, state.data.n_classes, state.scale)
    if ensemble.init.any():
        renewed = replace(renewed, init=ensemble.init)
    return renewed, replace(state, added=added, owner=renewed)


def renew(
    trained: Trained,
    data: TrainingData,
    added: TrainingData,
    params: TrainParams,
    scale: Scale,
    patience: float,
    tolerance: float,
    workers: Workers,
    progress: Progress = no_progress,
    init: np.ndarray | None = None,
) -> Forest:
    """Return the forest of ``trained`` after the rows ``added`` came in; nothing given is changed.

    ``trained`` must hold the record of its training on ``data``. ``init`` float64[outputs]: the
    margins that the trees are added to, by default those of the training.
    """
    start = np.full(data.n_outputs, scale.start) if init is None else init
    renewal = _start_renewal(data, added, params, scale, patience, tolerance, start)
    forest = empty_forest(trained.forest.n_trees, params.max_leaf_nodes, data.n_outputs)
    n_threads = min(workers.n_threads, data.n_outputs)
    walks = [
        make_walk(renewal.binned, params.max_leaf_nodes, data.n_rows) for _ in range(n_threads)
    ]

    def work(turn: Turn) -> None:
        renew_trees(turn, renewal, trained.trees, forest.nodes, forest.n_nodes, walks[turn.thread])

    take_turns(work, params.max_iter, n_threads, workers, progress)
    return forest


def _start_renewal(
    data: TrainingData,
    added: TrainingData,
    params: TrainParams,
    scale: Scale,
    patience: float,
    tolerance: float,
    start: np.ndarray,
) -> Renewal:
    """Return what the threads of an update share, as it is before the first iteration."""
    whole, outputs = join_data(data, added), data.n_outputs
    objective = make_objective(whole, params, scale)
    n_compared = data.n_rows if np.isfinite(tolerance) else 0
    return Renewal(
        binned=whole.binned(params, scale.shift),
        loss=objective.loss,
        rule=objective.rule,
        patience=float(patience),
        tolerance=float(tolerance),
        before=np.repeat(start[:, None], data.n_rows, axis=1),
        after=np.repeat(start[:, None], whole.n_rows, axis=1),
        grad=np.empty((outputs, whole.n_rows), np.int32),
        hess=np.empty((outputs, whole.n_rows), np.int32),
        old_grad=np.empty((outputs, n_compared), np.int32),
        old_hess=np.empty((outputs, n_compared), np.int32),
        moved=np.zeros(data.n_rows, np.bool_),
    )


def make_walk(binned: Binned, max_leaves: int, n_old: int) -> Walk:
    """Return scratch space for one thread; the first ``n_old`` rows are the old ones."""
    n_nodes, n_all = 2 * max_leaves - 1, len(binned.count)
    candidates = int(binned.firsts[-1])
    return Walk(
        growth=make_growth(binned, max_leaves),
        touches=np.zeros(n_all, TOUCH),
        order=np.zeros(n_all, np.uint32),
        spare=np.zeros(n_all, np.uint32),
        delta=np.zeros(2 * candidates, np.int64),
        sums=np.zeros(2 * candidates, np.int64),
        codes=np.zeros(candidates, np.int64),
        stratum=_strata_of_codes(binned),
        by_leaf=np.zeros(n_old, np.uint32),
        leaf_start=np.zeros(n_nodes + 1, np.int64),
        stack=np.zeros(n_nodes, np.int64),
        leaves=np.zeros(n_nodes, np.int64),
        table=np.zeros((2, n_nodes)),
    )


def _strata_of_codes(binned: Binned) -> np.ndarray:
    """Return int32[slots]: the stratum each code's own threshold belongs to."""
    parts = []
    for thresholds, strata in zip(binned.n_thresholds, binned.n_strata, strict=True):
        bounds = np.arange(1, strata + 1) * thresholds // max(strata, 1)
        parts.append(np.searchsorted(bounds, np.arange(thresholds + 2), side="right"))
    return np.concatenate(parts).astype(np.int32)
