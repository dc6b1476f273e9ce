"""The in-place update (Algorithm 1 of the paper): rows come and go, the trees stay.

``exact`` trains again on the rows that are left, with the same bins and seeds. ``lazy`` walks the
old trees and regrows only what the rows that come and go overturn. Its two knobs:

- *patience* (σ): a split is kept while at most this share of its node's candidates beats it. The
  splits of large nodes are not put in question at all, the less so the fewer rows come and go;
- *tolerance* (ε): an old row's part in the sums of split candidates is refreshed once a margin of
  it moved by more.

With both at zero, lazy gives exactly the trees of exact. Leaves whose value moves are always added
up anew from the gradients of all their rows.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from timbermark.boosting.data import TrainingData, TrainParams, join_data, make_data, take_rows
from timbermark.boosting.fitting import (
    Progress,
    Trained,
    leaf_dtype,
    make_growth,
    no_progress,
    take_turns,
)
from timbermark.boosting.forest import Forest, empty_forest, to_ensemble
from timbermark.boosting.objective import (
    Scale,
    check_scale,
    choose_scale,
    fits_scale,
    make_objective,
)
from timbermark.boosting.state import History, State, fit_data, number_rows
from timbermark.errors import InputError
from timbermark.kernels.layout import (
    SUM_COPIES,
    TOUCH,
    Binned,
    Block,
    Knobs,
    Pending,
    Renewal,
    Turn,
    Walk,
)
from timbermark.kernels.updating import renew_trees
from timbermark.kernels.workers import Workers
from timbermark.trees.ensemble import Ensemble

PATIENCE = 0.005
"""The default σ. This and what follows was chosen with seeds 0 to 2 of ``./dev bench update``: as
many rows take as with training again, and test accuracy stays. Figures: docs/engine.md."""
TOLERANCE = float("inf")
"""The default ε. Refreshing the sums of candidates, too, cost half the speed and gained no accuracy
in measurement."""
_LARGE_SHARE = 0.15
"""Share of rows that come and go from which training again is as fast as walking, and exact."""
_GOING = 0.25
"""What a row that goes counts for against one that comes, in all that follows: there is nothing to
be learnt from it."""
_FEW_TOUCHED = 0.003
"""Share of rows that come and go up to which gradients are derived as they are asked for, and no
leaf is added up anew: so few rows push few others."""
_MANY_TOUCHED = 0.03
"""Share of rows from which splits are put in question in every iteration, not in every other."""
_LEAST_QUESTIONED, _QUESTIONED, _MOST_QUESTIONED = 0.025, 8.0, 0.4
"""The share of all rows that a node may hold for its split to be put in question: the first plus
the second times the share of rows that come and go, but no more than the third. Large nodes cost
most and matter least."""
_FEW_ROWS, _SMALL_TABLE = 256, 2000
"""Nodes of up to the first are always cheap to regrow. In tables of fewer rows than the second, so
are nodes four times as large, and there it pays: five rows with wrong labels cost the digits of
scikit-learn (1000 rows) 0.8 points of accuracy without this, and nothing with it."""
_FEW_TREES = 150
"""With fewer iterations every tree counts: the same, and all iterations regrow. (Rows that took of
140, 20 iterations, ratio 0.01: 98 without, 130 with, 140 with training again.)"""
_SLIGHT = 0.03
"""Share of a node's sums below which rows that come and go do not put its split in question."""
_STILL = 0.01
"""Share of a leaf's step by which its value must move for it to be added up anew."""
_BLOCK = 64
_NO_ROWS = np.zeros(0, np.int64)


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
    forget: np.ndarray = _NO_ROWS,
) -> tuple[Ensemble, State]:
    """Learn the float64 rows ``X`` with answers ``label`` in the trees of ``ensemble``.

    ``forget``: the numbers of rows to forget, among those learnt before. Gives a new model and its
    state; what was given is left as it was. A lazy update trains again where that is as fast: with
    many rows that come and go, or where the state holds no sums.

    Raises StateError where the state is another model's, InputError for weights that are too
    heavy, for rows that cannot be forgotten, and where no row would be left.
    """
    state.check(ensemble)
    fresh = make_data(state.data.bins, X, label, weight, state.data.n_classes, workers)
    check_scale(state.history.scale, fresh)
    changed = _change_rows(state, fresh, number_rows(len(X), weight), len(X), forget)
    if changed.n_rows == 0:
        raise InputError(
            "Forgetting these rows would leave the model without any.",
            hint="keep some rows, or learn others in the same update.",
            code="forget.all",
            parameter="rows",
        )
    patience = PATIENCE if patience is None else patience
    scale = _exact_scale(changed)
    if mode != "lazy" or not _can_walk(changed, scale, patience == tolerance == 0.0):
        return _train_again(changed, scale, workers, progress)
    if fresh.n_rows == 0 and len(forget) == 0:
        return ensemble, state
    forest = renew(
        state.trained, state.data, changed.added, state.params, state.scale, patience, tolerance,
        workers, progress, ensemble.init, changed.history.gone,
    )  # fmt: skip
    renewed = to_ensemble(forest, state.data.bins, state.data.n_classes, state.scale)
    if ensemble.init.any():
        renewed = replace(renewed, init=ensemble.init)
    return renewed, replace(changed, owner=renewed)


def _change_rows(
    state: State, fresh: TrainingData, numbers: np.ndarray, n_given: int, forget: np.ndarray
) -> State:
    """Return the state with rows added and taken away, for trees that do not know of it yet."""
    history, n = state.history, state.data.n_rows
    places = state.find(forget)
    kept = np.ones(len(history.numbers), np.bool_)
    kept[places] = False
    added = join_data(take_rows(state.added, kept[n:]), fresh)
    # Rows of the base keep their place: its sums hold them still.
    known = np.concatenate([history.numbers[:n], history.numbers[n:][kept[n:]]])
    return replace(
        state,
        added=added,
        history=replace(
            history,
            numbers=np.concatenate([known, history.n_learnt + numbers]),
            gone=history.gone | ~kept[:n],
            n_learnt=history.n_learnt + n_given,
        ),
    )


def _exact_scale(state: State) -> Scale:
    """Return the scale of training on the rows that are left: it depends on nothing else."""
    first, data, kept = state.history.scale, state.data, ~state.history.gone
    # Answers and weights are all it takes.
    left = replace(
        data, codes=data.codes[:0], columns=data.columns[:, :0], label=data.label[kept],
        weight=data.weight[kept],
    )  # fmt: skip
    return first if fits_scale(first, left, state.added) else choose_scale(_rows_left(state))


def _rows_left(state: State) -> TrainingData:
    return join_data(take_rows(state.data, ~state.history.gone), state.added)


def _can_walk(state: State, scale: Scale, is_exact: bool) -> bool:
    """Return whether a walk from the base to the rows of ``state`` is possible and pays."""
    touched = state.added.n_rows + int(state.history.gone.sum())
    pays = touched <= _LARGE_SHARE * state.data.n_rows or is_exact
    # All sums, with the rows that are gone and those that came, must fit the base's scale.
    fits = scale == state.scale or (
        not is_exact and fits_scale(state.scale, state.data, state.added)
    )
    return state.has_sums and pays and fits


def _train_again(
    state: State, scale: Scale, workers: Workers, progress: Progress
) -> tuple[Ensemble, State]:
    whole, history = _rows_left(state), state.history
    history = History(
        history.numbers[state.left],
        np.zeros(whole.n_rows, np.bool_),
        history.n_learnt,
        history.scale,
    )
    return fit_data(whole, state.params, scale, workers, progress=progress, history=history)


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
    gone: np.ndarray | None = None,
) -> Forest:
    """Return the forest of ``trained`` after rows came and went; nothing given is changed.

    ``trained`` must hold the record of its training on ``data``. ``added``: rows that came;
    ``gone`` bool[n]: rows of ``data`` that went. ``init`` float64[outputs]: the margins that the
    trees are added to, by default those of the training.
    """
    gone = np.zeros(data.n_rows, np.bool_) if gone is None else gone
    if added.n_rows == 0 and not gone.any():
        return trained.forest
    start = np.full(data.n_outputs, scale.start) if init is None else init
    renewal = _start_renewal(data, added, gone, params, scale, patience, tolerance, start)
    forest = empty_forest(trained.forest.n_trees, params.max_leaf_nodes, data.n_outputs)
    n_threads = min(workers.n_threads, data.n_outputs)
    walks = [make_walk(renewal, params.max_leaf_nodes, data.n_rows) for _ in range(n_threads)]

    def work(turn: Turn) -> None:
        renew_trees(turn, renewal, trained.trees, forest.nodes, forest.n_nodes, walks[turn.thread])

    take_turns(work, params.max_iter, n_threads, workers, progress)
    return forest


def _start_renewal(
    data: TrainingData,
    added: TrainingData,
    gone: np.ndarray,
    params: TrainParams,
    scale: Scale,
    patience: float,
    tolerance: float,
    start: np.ndarray,
) -> Renewal:
    """Return what the threads of an update share, as it is before the first iteration."""
    whole, outputs, n = join_data(data, added), data.n_outputs, data.n_rows
    # A row without weight adds nothing to any sum: it is there and is not.
    whole.weight[:n][gone] = 0.0
    objective = make_objective(whole, params, scale)
    watched = np.flatnonzero(gone) if np.isinf(tolerance) else np.arange(n)
    past = take_rows(data, watched)
    share = (added.n_rows + _GOING * gone.sum()) / n
    lazy = patience > 0 and np.isinf(tolerance)
    is_short = params.max_iter < _FEW_TREES
    every = 2 if lazy and share <= _MANY_TOUCHED and not is_short else 1
    ahead = not lazy or share > _FEW_TOUCHED
    n_ahead, n_watched = whole.n_rows if ahead else 0, len(watched)
    n_touching = n_watched + added.n_rows
    return Renewal(
        binned=whole.binned(params, scale.shift),
        loss=objective.loss,
        rule=objective.rule,
        knobs=Knobs(
            patience=float(patience),
            tolerance=float(tolerance),
            largest=_largest_questioned(float(share), n, is_short or n < _SMALL_TABLE),
            every=every,
            slight=_SLIGHT,
            still=_STILL * _usual_step(params, scale),
        ),
        margins=np.repeat(start[:, None], whole.n_rows, axis=1),
        pending=make_pending(every, outputs, params.max_leaf_nodes, n, added.n_rows),
        grad=np.empty((outputs, n_ahead), np.int32),
        hess=np.empty((outputs, n_ahead), np.int32),
        watched=watched,
        past=make_objective(past, params, scale).loss,
        past_count=past.count,
        before=np.repeat(start[:, None], n_watched, axis=1),
        past_grad=np.empty((outputs, n_watched), np.int32),
        past_hess=np.empty((outputs, n_watched), np.int32),
        moved=np.zeros(n_watched, np.bool_),
        touching=np.concatenate([watched, np.arange(n, whole.n_rows)]),
        touch_grad=np.empty((outputs, n_touching), np.int32),
        touch_hess=np.empty((outputs, n_touching), np.int32),
    )


def _largest_questioned(share: float, n: int, is_small: bool) -> float:
    """Return how many of ``n`` rows a node may hold for its split to be put in question."""
    most = min(_LEAST_QUESTIONED + _QUESTIONED * share, _MOST_QUESTIONED)
    return max(most * n, float(4 * _FEW_ROWS if is_small else _FEW_ROWS))


def _usual_step(params: TrainParams, scale: Scale) -> float:
    """Return what a leaf adds to a margin where its gradients and hessians are alike.

    In regression: where the residuals of its rows are a thousandth of the largest there can be.
    """
    if scale.residuals is None:
        return params.learning_rate
    return params.learning_rate * 2.0 ** (scale.residuals.top - 10) / scale.residuals.unit


def make_pending(window: int, outputs: int, max_leaves: int, n: int, n_added: int) -> Pending:
    """Return room for what the trees of ``window`` iterations give to rows."""
    return Pending(
        values=np.zeros((window, outputs, 2 * max_leaves - 1)),
        leaf=np.zeros((window, outputs, n), leaf_dtype(max_leaves)),
        is_regrown=np.zeros((window, outputs), np.bool_),
        added=np.zeros((outputs, n_added)),
    )


def make_walk(renewal: Renewal, max_leaves: int, n_old: int) -> Walk:
    """Return scratch space for one thread; the first ``n_old`` rows are the old ones."""
    binned, outputs = renewal.binned, renewal.margins.shape[0]
    n_nodes, n_all = 2 * max_leaves - 1, len(binned.count)
    candidates = int(binned.firsts[-1])
    is_regression = len(renewal.loss.target) > 0
    return Walk(
        growth=make_growth(binned, max_leaves),
        block=Block(
            margins=np.zeros((outputs, _BLOCK)),
            label=np.zeros(0 if is_regression else _BLOCK, np.int32),
            target=np.zeros(_BLOCK if is_regression else 0),
            weight=np.zeros(_BLOCK, np.float32),
            grad=np.zeros((outputs, _BLOCK), np.int32),
            hess=np.zeros((outputs, _BLOCK), np.int32),
        ),
        grad=np.zeros(n_all, np.int32),
        hess=np.zeros(n_all, np.int32),
        touches=np.zeros(len(renewal.touching), TOUCH),
        order=np.zeros(len(renewal.touching), np.uint32),
        spare=np.zeros(len(renewal.touching), np.uint32),
        delta=np.zeros(2 * candidates, np.int64),
        sums=np.zeros(2 * candidates, np.int64),
        stratum=_strata_of_codes(binned),
        # One more: the search for rows writes before it looks.
        found=np.zeros(n_old + 1, np.uint32),
        by_leaf=np.zeros(n_old, np.uint32),
        leaf_start=np.zeros(n_nodes + 1, np.int64),
        wanted=np.zeros(n_nodes, np.bool_),
        leaf_sums=np.zeros(SUM_COPIES * 2 * n_nodes, np.int64),
        stack=np.zeros(n_nodes, np.int64),
        leaves=np.zeros(n_nodes, np.int64),
    )


def _strata_of_codes(binned: Binned) -> np.ndarray:
    """Return int32[slots]: the stratum each code's own threshold belongs to."""
    parts = []
    for thresholds, strata in zip(binned.n_thresholds, binned.n_strata, strict=True):
        bounds = np.arange(1, strata + 1) * thresholds // max(strata, 1)
        parts.append(np.searchsorted(bounds, np.arange(thresholds + 2), side="right"))
    return np.concatenate(parts).astype(np.int32)
