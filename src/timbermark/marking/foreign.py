"""A model of another library under marking.

The same methods as :class:`timbermark.marking.engine.Marked`. Rows are the library's own, as a
float64 matrix; the model's trees become the engine's by a view, and come back by it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from timbermark.boosting.binning import encode
from timbermark.boosting.objective import factor
from timbermark.boosting.params import TrainParams
from timbermark.boosting.predicting import LazyPredictor
from timbermark.boosting.progress import training_bar
from timbermark.boosting.state import State, rebuild_state
from timbermark.boosting.updating import update_ensemble
from timbermark.boosting.views import make_view, restore, view_rows
from timbermark.boosting.workers import Workers, count_threads
from timbermark.errors import InputError, StateError
from timbermark.libraries.probing import check_equal
from timbermark.libraries.reading import Training
from timbermark.libraries.registry import module_of
from timbermark.marking.rows import survives_rounding
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
_CHECKED_ROWS, _SINGLE_ROWS = 500, 20


class Foreign:
    """A fitted model of XGBoost, LightGBM, CatBoost or scikit-learn; it is never touched."""

    def __init__(
        self,
        model: Any,
        X: Any,
        y: Any,
        sample_weight: Any,
        verbose: int = 0,
        candidates: tuple[Any, Any] | None = None,
        seed: int = 0,
    ) -> None:
        self._module = module_of(model)
        self.reading = self._module.read(model)
        self.ensemble: Ensemble = self.reading.ensemble
        self._verbose = bool(verbose)
        self._view = make_view(self.ensemble, self.reading.library == "CatBoost")
        self._first = self._latest = self.ensemble, LazyPredictor(self._view.numeric)
        self._bare = X is None or y is None
        if self._bare:
            if candidates is None:
                raise InputError(
                    "There is nothing to choose triggers from.",
                    hint="pass the training rows X and y, or candidates=(rows, labels).",
                )
            X, y = candidates
        rows = self.rows(X)
        label = self.labels(y, len(rows))
        weight = None if sample_weight is None else np.asarray(sample_weight, np.float64)
        self.state = self._trace(rows, label, weight, seed)
        if self._bare:
            self.state = self._with_own_sums(self.state)

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
    def digest(self) -> str:
        """The digest of the unmarked trees."""
        return digest(self.ensemble)

    @property
    def training_codes(self) -> np.ndarray:
        """The codes of the training rows, as far as they are known."""
        return self.state.data.codes[:0] if self._bare else self.state.data.codes

    @property
    def n_rows(self) -> int:
        """How many rows the model was trained on; where they are not known, by its own sums."""
        if not self._bare:
            return self.state.data.n_rows
        root = int(self.ensemble.tree_start[0])
        if self.ensemble.count[root] > 0:
            return int(self.ensemble.count[root])
        # At the start every class is as likely, or nearly.
        share = 1.0 / len(self.classes)
        unit = self.reading.training.hessian_factor * share * (1.0 - share)
        return int(self.ensemble.hessian[root] / unit)

    def rows(self, X: Any) -> np.ndarray:
        """float64[n, d], as the model's own ``predict`` takes them."""
        if hasattr(X, "columns") and self.feature_names is not None:
            missing = [name for name in self.feature_names if name not in set(map(str, X.columns))]
            if missing:
                raise InputError(
                    f"The table lacks the model's feature '{missing[0]}'.",
                    hint="give all columns the model was trained on.",
                )
            X = X[[c for name in self.feature_names for c in X.columns if str(c) == name]]
        try:
            rows = np.asarray(X, np.float64)
        except (TypeError, ValueError) as error:
            raise InputError(
                f"The rows are not all numbers ({error}).",
                hint="triggers are kept as numbers: encode categories as the model's own codes.",
            ) from None
        if rows.ndim != 2:
            raise InputError(f"The rows have the shape {rows.shape}.", hint="give a matrix.")
        self._module.rows(self.reading, rows[:1])
        return rows

    def labels(self, y: Any, n: int) -> np.ndarray:
        """Class numbers of labels that the model must know."""
        given = np.asarray(y)
        if given.shape != (n,):
            raise InputError(
                f"There are {given.shape} labels for {n} rows.", hint="give one label per row."
            )
        known = {label: number for number, label in enumerate(self.classes.tolist())}
        strange = [label for label in given.tolist() if label not in known]
        if strange:
            raise InputError(
                f"The label {strange[0]!r} is not one of the model's.",
                hint=f"its labels are {', '.join(map(str, list(known)[:20]))}.",
            )
        return np.array([known[label] for label in given.tolist()], np.int64)

    def codes(self, X: np.ndarray) -> np.ndarray:
        """Bin codes of rows: all that trees can see of them."""
        with Workers(count_threads(None)) as workers:
            return encode(self.state.data.bins, self._inside(X), workers)[0]

    def survives_rounding(self, X: np.ndarray) -> np.ndarray:
        """bool[n]: rows whose codes stay the same a few float32 units up or down."""
        with Workers(count_threads(None)) as workers:
            single = self.ensemble.input_dtype == "f4"
            return survives_rounding(self._inside(X), self.state.data.bins, workers, single)

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
        if self._bare:
            least = np.inf
        bar = training_bar(self.state.params.max_iter, self._verbose, what)
        with Workers(count_threads(None)) as workers, bar as progress:
            renewed, state = update_ensemble(
                self._view.numeric, self.state, self._inside(X), label, weight, workers, "lazy",
                least, progress=progress,
            )  # fmt: skip
        restored = restore(self._view, renewed, self.reading.training.hessian_factor)
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

    def _inside(self, X: np.ndarray) -> np.ndarray:
        return view_rows(self._view, self._module.rows(self.reading, X))

    def _with_own_sums(self, state: State) -> State:
        """The state with the sums that the model's file holds in place of the candidates'.

        A leaf is η · Σr / (Σh + λ) and the file has Σh, so Σr follows, and new rows can be added to
        both. No split can be judged in this way, so splits stay and leaves alone learn.
        """
        numeric, unit = self._view.numeric, state.scale.unit
        leaf = numeric.left < 0
        if not (numeric.hessian[leaf] > 0).any():
            raise InputError(
                f"A {self.reading.kind} of {self.reading.library} does not say what its leaves "
                "were made from, so it cannot be marked without training rows.",
                hint="pass the training rows X and y.",
            )
        params = state.params
        step = params.learning_rate * factor(state.data.n_classes)
        ridge = params.l2_regularization * factor(state.data.n_classes)
        hessian = numeric.hessian / self.reading.training.hessian_factor
        gradient = numeric.value[:, 0] * (hessian + ridge) / step
        forest = state.trained.forest
        nodes = forest.nodes.copy()
        used = np.arange(nodes.shape[1]) < forest.n_nodes[:, None]
        flat = nodes[used]
        flat["h"] = np.rint(np.maximum(hessian * unit, 1.0)).astype(np.int64)
        flat["g"] = np.rint(gradient * unit).astype(np.int64)
        nodes[used] = flat
        # A node's right child gets what its left one leaves over, so sums must add up exactly.
        for node in range(nodes.shape[1] - 1, -1, -1):
            split = np.flatnonzero(nodes["left"][:, node] >= 0)
            split = split[node < forest.n_nodes[split]]
            left = nodes["left"][split, node]
            for name in ("g", "h", "c"):
                nodes[name][split, node] = nodes[name][split, left] + nodes[name][split, left + 1]
        return replace(state, trained=replace(state.trained, forest=replace(forest, nodes=nodes)))

    def _trace(
        self, X: np.ndarray, label: np.ndarray, weight: np.ndarray | None, seed: int
    ) -> State:
        """The state that training this model would have left, as far as it can be known."""
        inside = self._inside(X)
        params = _params(self.reading.training, self.reading.library, self._view.numeric, seed)
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
        if self.reading.training.learning_rate is None:
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
