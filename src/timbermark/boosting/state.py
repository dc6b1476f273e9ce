"""What an in-place update must know of a model's training.

The state holds facts about training rows: it is a thing of its own, kept beside the model and
never part of the file that ships.

A state stays at the last full training (its *base*) and lists the rows that were learnt since, and
those of the base that were forgotten since. Every lazy update starts again from the base with all
of them. So learning rows in two steps gives the same trees as learning them in one, nothing drifts,
and a row learnt on trial and forgotten leaves no trace.

Rows are numbered in the order in which they came, training rows first, and keep their number for
ever: the number of a forgotten row is never given to another.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from timbermark.boosting.data import (
    Bins,
    TrainingData,
    TrainParams,
    empty_data,
    encode,
    find_bins,
    join_data,
    make_data,
    take_rows,
)
from timbermark.boosting.fitting import (
    Progress,
    Trained,
    leaf_dtype,
    make_growth,
    no_progress,
    train,
    tree_key,
)
from timbermark.boosting.forest import Forest, from_ensemble, joined_bins, to_ensemble
from timbermark.boosting.objective import Scale, choose_scale, make_objective
from timbermark.errors import InputError, StateError
from timbermark.kernels.gradients import derive_gradients
from timbermark.kernels.layout import Fit
from timbermark.kernels.updating import add_leaves, trace_tree
from timbermark.kernels.workers import Workers
from timbermark.trees.ensemble import MISSING_NONE, MISSING_ZERO, Ensemble, digest

_MOST_BYTES = 2 * 2**30
"""Beyond this the sums are not kept: an update then trains again."""


def number_rows(n_rows: int, weight: np.ndarray | None) -> np.ndarray:
    """Return the numbers of the rows that `make_data` keeps: those of weight zero are left out.

    >>> number_rows(3, np.array([1.0, 0.0, 2.0]))
    array([0, 2])
    """
    return np.arange(n_rows) if weight is None else np.flatnonzero(weight.astype(np.float32))


@dataclass(frozen=True, slots=True)
class History:
    """Which rows a model has learnt and forgotten.

    ``numbers`` int64, ascending: those of the base's rows, then of the rows added since; ``gone``
    bool, which rows of the base were forgotten since; ``n_learnt``: how many numbers were given;
    ``scale``: that of the first training, which later ones keep while the rows allow it.
    """

    numbers: np.ndarray
    gone: np.ndarray
    n_learnt: int
    scale: Scale

    @classmethod
    def start(cls, n_rows: int, scale: Scale, weight: np.ndarray | None = None) -> History:
        """Return the history of a first training; rows of weight zero have a number, too."""
        numbers = number_rows(n_rows, weight)
        return cls(numbers, np.zeros(len(numbers), np.bool_), n_rows, scale)


@dataclass(frozen=True, slots=True)
class State:
    """A model's training: base rows, base trees with their sums, rows learnt and forgotten since.

    ``owner`` is the ensemble the state belongs to, or its digest where it was read from a file.
    """

    params: TrainParams
    scale: Scale
    data: TrainingData
    trained: Trained
    added: TrainingData
    history: History
    owner: Ensemble | str

    @property
    def model(self) -> str:
        """Return the digest of the ensemble the state belongs to."""
        return self.owner if isinstance(self.owner, str) else digest(self.owner)

    @property
    def has_sums(self) -> bool:
        """Return whether a lazy update is possible; if not, the next update trains again."""
        return bool(self.trained.record.shape[1] > 0 and self.trained.leaf.shape[1] > 0)

    @property
    def n_rows(self) -> int:
        """Return the number of rows that the model has learnt and not forgotten."""
        return len(self.history.numbers) - int(self.history.gone.sum())

    @property
    def left(self) -> np.ndarray:
        """Return bool: which of the base's rows, and of those added since, are not forgotten."""
        return np.concatenate([~self.history.gone, np.ones(self.added.n_rows, np.bool_)])

    def find(self, numbers: np.ndarray) -> np.ndarray:
        """Return the places of rows, among the base's and those added since, by their numbers.

        Raises InputError for a number that was never given, is given twice, or was forgotten.
        """
        known, n = self.history.numbers, self.history.n_learnt
        strange = numbers[(numbers < 0) | (numbers >= n)]
        if len(strange):
            raise InputError(
                f"There is no row {strange[0]} to forget: the model has learnt {n} rows.",
                hint=f"rows are counted from 0 to {n - 1}, training rows first, then those learnt "
                "by updates in their order.",
                code="forget.unknown",
                parameter="rows",
            )
        values, times = np.unique(numbers, return_counts=True)
        if (times > 1).any():
            raise InputError(
                f"Row {values[times > 1][0]} is to be forgotten twice.",
                hint="name it once.",
                code="forget.twice",
                parameter="rows",
            )
        place = np.searchsorted(known, numbers).clip(0, len(known) - 1)
        missing = numbers[(known[place] != numbers) | ~self.left[place]]
        if len(missing):
            raise InputError(
                f"Row {missing[0]} was forgotten before, or never learnt because its weight was 0.",
                hint="leave it out; the numbers of the other rows have not changed.",
                code="forget.gone",
                parameter="rows",
            )
        return place

    def match(self, X: np.ndarray, label: np.ndarray | None, workers: Workers) -> np.ndarray:
        """Return the numbers of rows, by their float64 values and, if given, their answers.

        Rows are the same where they fall into the same bins; of these the one learnt last is taken,
        and a row that is given twice takes two. Raises InputError for a row that the model has not
        learnt, and where rows of the same values have different answers and none is given.
        """
        codes, _ = encode(self.data.bins, X, workers)
        left = self.left
        learnt = join_data(self.data, self.added)
        kept = take_rows(learnt, left)
        numbers = self.history.numbers[left]
        wanted = _row_keys(codes, label)
        rows: dict[bytes, list[int]] = {key: [] for key in wanted}
        for place, key in enumerate(_row_keys(kept.codes, None if label is None else kept.label)):
            if key in rows:
                rows[key].append(place)
        found = []
        for i, key in enumerate(wanted):
            same = rows[key]
            if not same:
                raise InputError(
                    f"Row {i} of the rows to forget was never learnt, or forgotten before.",
                    hint="give rows and answers as they were learnt, or their numbers.",
                    code="forget.never-learnt",
                    parameter="rows",
                )
            if label is None and len(np.unique(kept.label[same])) > 1:
                raise InputError(
                    f"Row {i} of the rows to forget was learnt with different answers.",
                    hint="give the answers as well, or the numbers of the rows.",
                    code="forget.answers",
                    parameter="y",
                )
            found.append(numbers[same.pop()])
        return np.array(found, np.int64)

    def check(self, ensemble: Ensemble) -> None:
        """Raise StateError unless this is the state of ``ensemble``."""
        # Whoever made the file could name any model: rows and labels of this one must fit, too.
        fits = (
            ensemble.n_features == self.data.bins.n_features
            and ensemble.n_classes == self.data.n_classes
            and ensemble.n_outputs == self.data.n_outputs
            and ensemble.n_trees == self.trained.forest.n_trees
        )
        if not fits or (ensemble is not self.owner and digest(ensemble) != self.model):
            raise StateError(
                "This state belongs to another model.",
                hint="load the state that was saved with this model, or rebuild one from the "
                "training data.",
                code="state.other",
            )


def _row_keys(codes: np.ndarray, label: np.ndarray | None) -> list[bytes]:
    """Return for every row bytes that are equal where its codes and its answer are."""
    # Sums of answers are not wanted here: -0.0 and 0.0 are the same answer.
    parts = [codes] if label is None else [codes, (label + 0.0)[:, None]]
    rows = [np.ascontiguousarray(part).view(np.uint8).reshape(len(codes), -1) for part in parts]
    return [row.tobytes() for row in np.concatenate(rows, axis=1)]


def fits_in_memory(data: TrainingData, params: TrainParams) -> bool:
    """Return whether the sums of a training on ``data`` are worth keeping."""
    n_trees = params.max_iter * data.n_outputs
    candidates = int(data.binned(params).firsts[-1])
    sums = 16 * candidates * (params.max_leaf_nodes - 1)
    return n_trees * (sums + 2 * data.n_rows) <= _MOST_BYTES


def fit_ensemble(
    X: np.ndarray,
    label: np.ndarray,
    weight: np.ndarray | None,
    n_classes: int,
    params: TrainParams,
    workers: Workers,
    keep_sums: bool = True,
    progress: Progress = no_progress,
) -> tuple[Ensemble, State]:
    """Train on float64 rows and class numbers, or numbers if ``n_classes`` is 0.

    Returns the model and its state.
    """
    bins = _find_bins(X, weight, n_classes, params, workers)
    data = make_data(bins, X, label, weight, n_classes, workers)
    scale = choose_scale(data)
    history = History.start(len(X), scale, weight)
    return fit_data(data, params, scale, workers, keep_sums, progress, history)


def _find_bins(
    X: np.ndarray, weight: np.ndarray | None, n_classes: int, params: TrainParams, workers: Workers
) -> Bins:
    # Prices and measures pile up at round numbers: on diamonds heavy values apart lower the RMSE
    # from 560 to 546. The bins of classes stay those of the published figures.
    heavy_apart = n_classes == 0
    return find_bins(X, weight, params.max_bins, params.seed, workers, heavy_apart)


def fit_data(
    data: TrainingData,
    params: TrainParams,
    scale: Scale,
    workers: Workers,
    keep_sums: bool = True,
    progress: Progress = no_progress,
    history: History | None = None,
) -> tuple[Ensemble, State]:
    """Train on rows that are already in bins; return the model and its state."""
    keep = keep_sums and fits_in_memory(data, params)
    trained = train(data, params, scale, workers, record=keep, progress=progress)
    ensemble = to_ensemble(trained.forest, data.bins, data.n_classes, scale)
    history = history or History.start(data.n_rows, scale)
    return ensemble, State(params, scale, data, trained, empty_data(data), history, ensemble)


def rebuild_state(
    ensemble: Ensemble,
    X: np.ndarray,
    label: np.ndarray,
    weight: np.ndarray | None,
    n_classes: int,
    params: TrainParams,
    workers: Workers,
    progress: Progress = no_progress,
) -> State:
    """Rebuild the state of a model that has none by sending its training data through it.

    The model's own thresholds join the bins, so that every split of it can be expressed. For a
    model of our own and the data it was fitted on this is the state that ``fit`` kept.
    """
    kinds = ensemble.missing_kind[ensemble.left >= 0]
    if (kinds == MISSING_ZERO).any() or ((kinds == MISSING_NONE).any() and np.isnan(X).any()):
        raise StateError(
            "The model has rules for missing values that an in-place update cannot follow.",
            hint="fill in the missing values and train again.",
        )
    bins = joined_bins(_find_bins(X, weight, n_classes, params, workers), ensemble)
    data = make_data(bins, X, label, weight, n_classes, workers)
    params = replace(params, max_iter=ensemble.n_trees // data.n_outputs)
    scale = choose_scale(data, float(ensemble.init[0]) if n_classes == 0 else None)
    forest = from_ensemble(ensemble, bins, params.max_leaf_nodes)
    trained = trace(forest, ensemble.init, data, params, scale, workers, progress)
    history = History.start(len(X), scale, weight)
    return State(params, scale, data, trained, empty_data(data), history, ensemble)


def trace(
    forest: Forest,
    init: np.ndarray,
    data: TrainingData,
    params: TrainParams,
    scale: Scale,
    workers: Workers,
    progress: Progress = no_progress,
) -> Trained:
    """Return sums, leaf numbers and margins of ``data`` in ``forest``, whose sums are filled in."""
    n, outputs, leaves = data.n_rows, data.n_outputs, params.max_leaf_nodes
    binned = data.binned(params, scale.shift)
    objective = make_objective(data, params, scale)
    leaf = np.empty((forest.n_trees, n), leaf_dtype(leaves))
    record = np.empty((forest.n_trees, leaves - 1, 2 * int(binned.firsts[-1])), np.int64)
    margins = np.repeat(np.asarray(init, np.float64)[:, None], n, axis=1)
    grad = np.empty((outputs, n), np.int32)
    hess = np.empty((outputs, n), np.int32)
    growths = [make_growth(binned, leaves) for _ in range(workers.n_threads)]

    for iteration in range(forest.n_trees // outputs):

        def derive(thread: int, start: int, stop: int) -> None:
            derive_gradients(margins, objective.loss, start, stop, grad, hess)

        def trace_one(thread: int, output: int, iteration: int = iteration) -> None:
            t = iteration * outputs + output
            trace_tree(
                Fit(binned, grad[output], hess[output], objective.rule),
                tree_key(params.seed, t), forest.n_nodes[t], forest.nodes[t], growths[thread],
                record[t], leaf[t],
            )  # fmt: skip
            add_leaves(forest.nodes[t], leaf[t], margins[output])

        workers.split(derive, n)
        workers.drain(trace_one, outputs)
        progress(iteration + 1)
    return Trained(forest, leaf, record, margins)
