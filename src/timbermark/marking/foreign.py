"""A model of another library under marking.

The same methods as :class:`timbermark.marking.engine.Marked`. Rows are the library's own, as a
float64 matrix; the model's trees become the engine's by a view, and come back by it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from timbermark.boosting.binning import encode
from timbermark.boosting.objective import factor
from timbermark.boosting.params import TrainParams
from timbermark.boosting.predicting import LazyPredictor
from timbermark.boosting.progress import training_bar
from timbermark.boosting.state import State, rebuild_state
from timbermark.boosting.updating import TOLERANCE, update_ensemble
from timbermark.boosting.views import make_view, restore, view_rows
from timbermark.errors import InputError, StateError
from timbermark.estimator_checks import check_weight
from timbermark.kernels.workers import Workers, count_threads
from timbermark.libraries.probing import check_equal
from timbermark.libraries.reading import Training
from timbermark.libraries.registry import module_of
from timbermark.marking.given import take_labels, take_rows, take_training
from timbermark.marking.rows import roundings
from timbermark.marking.stand_ins import MOST_ROWS, STAND_INS_PER_ROW, mix_rows
from timbermark.trees import reference
from timbermark.trees.ensemble import Ensemble, digest

# Learning rate, l2 and least hessian where a model does not say: its library's defaults.
_USUAL = {
    "XGBoost": (0.3, 1.0, 1.0),
    "LightGBM": (0.1, 0.0, 1e-3),
    "CatBoost": (0.1, 3.0, 1e-3),
}
_OTHER = (0.1, 0.0, 1e-3)
_SAMPLING = (0.1, 0.05, 0.02, 0.01)
_LEAST_PATIENCE = 0.01
# Rows whose margins move by more than this object to it. Where a trigger can have no leaf of its
# own, or rows only stand in for others, that is worth its time.
_OBJECTION = 0.3
_FEWEST_STAND_INS = 400
_CHECKED_ROWS, _SINGLE_ROWS = 500, 20


class Foreign:
    """A fitted model of XGBoost, LightGBM, CatBoost or scikit-learn; it is never touched.

    Where the training rows ``X`` and ``y`` are None, ``candidates`` (rows, labels) must be given.
    """

    def __init__(
        self,
        model: Any,
        X: Any,
        y: Any,
        sample_weight: Any,
        verbose: int = 0,
        candidates: Any = None,
        seed: int = 0,
        training: Mapping[str, float] | None = None,
    ) -> None:
        self._module = module_of(model)
        self.reading = self._module.read(model)
        self._training = take_training(self.reading.training, training)
        self.ensemble: Ensemble = self.reading.ensemble
        self._verbose = bool(verbose)
        self._view = make_view(self.ensemble, self.reading.library == "CatBoost")
        self._first = self._latest = self.ensemble, LazyPredictor(self._view.numeric)
        self.bare = X is None or y is None
        if self.bare:
            self.state = self._trace_stand_ins(candidates, sample_weight, seed)
        else:
            rows = self.rows(X)
            weight = check_weight(sample_weight, len(rows))
            self.state = self._trace(rows, self.labels(y, len(rows)), weight, seed)

    @property
    def classes(self) -> np.ndarray:
        """The labels, by class number."""
        return np.asarray(self.reading.classes)

    @property
    def feature_names(self) -> list[str] | None:
        """The names of the model's columns, where it knows them."""
        names = self.reading.feature_names
        return None if names is None else list(names)

    @property
    def shares_splits(self) -> bool:
        """Whether the model grows several times if a split of it changes."""
        return bool(self.reading.shares_splits)

    def notes(self, ensemble: Ensemble) -> tuple[str, ...]:
        """What the owner should know of a model with these trees."""
        if not self.shares_splits or ensemble.n_nodes == self.ensemble.n_nodes:
            return ()
        return (
            f"Splits that were shared are so no longer: the model has {ensemble.n_trees} trees and "
            f"{ensemble.n_nodes} nodes, before {self.ensemble.n_trees} and "
            f"{self.ensemble.n_nodes}, and {self.reading.library} predicts batches more slowly.",
        )

    @property
    def digest(self) -> str:
        """The digest of the unmarked trees."""
        return digest(self.ensemble)

    @property
    def training_codes(self) -> np.ndarray:
        """The codes of the training rows, or of those that stand in for them."""
        return self.state.data.codes

    @property
    def n_rows(self) -> int:
        """How many rows the model was trained on; where they are not known, by its own sums."""
        if not self.bare:
            return self.state.data.n_rows
        root = int(self.ensemble.tree_start[0])
        if self.ensemble.count[root] > 0:
            return int(self.ensemble.count[root])
        # At the start every class is as likely, or nearly.
        share = 1.0 / len(self.classes)
        unit = self._training.hessian_factor * share * (1.0 - share)
        known = int(self.ensemble.hessian[root] / unit)
        return known or self.state.data.n_rows // STAND_INS_PER_ROW

    def rows(self, X: Any) -> np.ndarray:
        """float64[n, d], as the model's own ``predict`` takes them; categories are its codes."""
        return take_rows(X, self._module, self.reading)

    def labels(self, y: Any, n: int) -> np.ndarray:
        """Class numbers of labels that the model must know."""
        return take_labels(y, n, self.classes)

    def codes(self, X: np.ndarray) -> np.ndarray:
        """Bin codes of rows: all that trees can see of them."""
        with Workers(count_threads(None)) as workers:
            return encode(self.state.data.bins, self._inside(X), workers)[0]

    def roundings(self, X: np.ndarray) -> tuple[np.ndarray, ...]:
        """What may become of rows on their way to a server; categories are whole numbers."""
        moved = roundings(X, self.ensemble.input_dtype == "f4")
        kept = np.unique(self.ensemble.feature[self.ensemble.category_set >= 0])
        for rows in moved:
            rows[:, kept] = X[:, kept]
        return moved

    def survives_rounding(self, X: np.ndarray) -> np.ndarray:
        """bool[n]: rows that the unmarked model takes the same way a few float32 units off.

        Edges between bins that no tree of the model splits at do not count; what an update splits
        at is seen when triggers are set.
        """
        here = self.margins(X, self.ensemble)
        same = [(self.margins(other, self.ensemble) == here) for other in self.roundings(X)]
        return np.asarray(np.logical_and(*same).all(axis=1))

    def confidence(self, X: np.ndarray, ensemble: Ensemble | None = None) -> np.ndarray:
        """Probabilities [n, K] of rows under the unmarked model, or under another ensemble."""
        given = self.ensemble if ensemble is None else ensemble
        return np.asarray(reference.probabilities(self.margins(X, given), given.objective))

    def margins(self, X: np.ndarray, ensemble: Ensemble) -> np.ndarray:
        """Raw scores [n, outputs] of rows, within roundings of the library's.

        The engine's predictor answers for the model and for the trees last learned: it is several
        times as fast as some libraries are. `wrap` compares the finished model bit for bit.
        """
        both = (self._first, self._latest)
        fast = next((fast for known, fast in both if known is ensemble), None)
        if fast is None:
            return reference.margins(ensemble, self._module.rows(self.reading, X))
        with Workers(count_threads(None)) as workers:
            return fast.margins(self._inside(X), workers)

    def learn(
        self,
        X: np.ndarray,
        label: np.ndarray,
        weight: np.ndarray,
        mode: str = "lazy",
        patience: float | None = None,
        what: str = "learning",
    ) -> tuple[Ensemble, State]:
        """The unmarked model with these rows learned in place; it is never trained again."""
        least = None if patience is None else max(patience, _LEAST_PATIENCE)
        tolerance = _OBJECTION if self.bare or patience == np.inf else TOLERANCE
        bar = training_bar(self.state.params.max_iter, self._verbose, what)
        with Workers(count_threads(None)) as workers, bar as progress:
            renewed, state = update_ensemble(
                self._view.numeric, self.state, self._inside(X), label, weight, workers, "lazy",
                least, tolerance, progress,
            )  # fmt: skip
        factor = self._training.hessian_factor
        restored = restore(self._view, renewed, factor, own_statistics=self.bare)
        if hasattr(self._module, "conform"):
            # What the library cannot express is rounded now, so that it is seen by who asks next.
            restored = self._module.conform(self.reading, restored)
        self._latest = restored, LazyPredictor(renewed)
        return restored, state

    def wrap(self, ensemble: Ensemble, state: State | None, X: np.ndarray) -> Any:
        """A model of the same type around other trees, which answers ``X`` as they do."""
        made = self._module.write(self.reading, ensemble)
        some = X[:_CHECKED_ROWS]
        ours = reference.margins(ensemble, self._module.rows(self.reading, some))
        check_equal(ours, self._module.margins(made, some), self.reading.library)
        for i in range(min(_SINGLE_ROWS, len(some))):
            one = self._module.margins(made, some[i : i + 1])
            check_equal(ours[i : i + 1], one, self.reading.library)
        return made

    def _answers(self, X: np.ndarray) -> np.ndarray:
        """int64[n]: the class numbers that the unmarked model says."""
        return np.asarray(self.confidence(X).argmax(axis=1))

    def _inside(self, X: np.ndarray) -> np.ndarray:
        return view_rows(self._view, self._module.rows(self.reading, X))

    def _trace_stand_ins(self, candidates: Any, sample_weight: Any, seed: int) -> State:
        """A state of rows mixed from the candidates; fewer of them where memory is short."""
        if sample_weight is not None:
            raise InputError(
                "There are sample weights but no training rows they could belong to.",
                hint="pass the training rows X and y, or leave out sample_weight.",
            )
        given = self.rows(candidates[0])
        predicted = self._answers(given)
        most = MOST_ROWS
        while True:
            rows = mix_rows(given, predicted, seed, most)
            if len(rows) == 0:
                raise InputError(
                    "Too little can be mixed from the candidates to stand in for training rows.",
                    hint="give more candidates, that differ in two features at least, or X and y.",
                )
            try:
                return self._trace(rows, self._answers(rows), None, seed)
            except StateError:
                most //= 4
                if most < _FEWEST_STAND_INS:
                    raise InputError(
                        f"A model of {self.ensemble.n_trees} trees is too large to be marked "
                        "without training rows.",
                        hint="pass some of its training rows, X and y.",
                    ) from None

    def _trace(
        self, X: np.ndarray, label: np.ndarray, weight: np.ndarray | None, seed: int
    ) -> State:
        """The state that training this model would have left, as far as it can be known."""
        inside = self._inside(X)
        params = _params(self._training, self.reading.library, self._view.numeric, seed)
        if self.bare:
            # A trigger must get a leaf of its own: no more than that is changed.
            params = replace(params, min_samples_leaf=1, min_hessian=0.0)
        n_classes = len(self.classes)
        bar = training_bar(self.ensemble.n_trees, self._verbose, "reading the model")
        with Workers(count_threads(None)) as workers, bar as progress:
            for sampling in _SAMPLING:
                params = replace(params, split_sampling=sampling)
                try:
                    state = rebuild_state(
                        self._view.numeric, inside, label, weight, n_classes, params, workers,
                        progress, foreign=True,
                    )  # fmt: skip
                    break
                except StateError:
                    if sampling == _SAMPLING[-1]:
                        raise
        if self._training.learning_rate is None:
            rate = params.learning_rate * _rate(state)
            params = replace(state.params, learning_rate=float(np.clip(rate, 1e-3, 1.0)))
            state = replace(state, params=params)
        return state


def _params(training: Training, library: str, numeric: Ensemble, seed: int) -> TrainParams:
    """The engine's parameters under which it grows what the library would."""
    rate, ridge, least = _USUAL.get(library, _OTHER)
    rate = rate if training.learning_rate is None else training.learning_rate
    ridge = ridge if training.l2_regularization is None else training.l2_regularization
    least = least if training.min_hessian is None else training.min_hessian
    # The engine's leaf is rate · f · Σr / (Σh + l2 · f); the library's hessian is another.
    unit = training.hessian_factor * factor(numeric.n_classes)
    largest = int((np.diff(numeric.tree_start).max() + 1) // 2)
    return TrainParams(
        max_iter=numeric.n_trees // numeric.n_outputs,
        learning_rate=rate / unit,
        max_leaf_nodes=max(largest + 1, 4),
        min_samples_leaf=max(training.min_samples_leaf or 1, 1),
        l2_regularization=ridge / unit,
        min_hessian=max(least / unit, 1e-3),
        seed=seed,
    )


def _rate(state: State) -> float:
    """By how much the leaves are larger than the engine would have made them."""
    forest = state.trained.forest
    used = np.arange(forest.nodes.shape[1]) < forest.n_nodes[:, None]
    nodes = forest.nodes[used]
    leaves = nodes[(nodes["left"] < 0) & (nodes["h"] > 0)]
    step = state.params.learning_rate * factor(state.data.n_classes)
    ridge = state.params.l2_regularization * factor(state.data.n_classes) * state.scale.unit
    due = step * leaves["g"] / (leaves["h"] + ridge)
    there = np.abs(due) > 1e-6
    return float(np.median(leaves["value"][there] / due[there])) if there.any() else 1.0
