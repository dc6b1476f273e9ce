"""A model of our own under marking: what embedding asks of it.

:class:`timbermark.marking.foreign.Foreign` has the same methods for models of other libraries.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from timbermark.boosting.binning import encode
from timbermark.boosting.predicting import LazyPredictor
from timbermark.boosting.progress import training_bar
from timbermark.boosting.state import State
from timbermark.boosting.updating import update_ensemble
from timbermark.errors import InputError
from timbermark.estimator import TimberClassifier
from timbermark.estimator_checks import check_rows
from timbermark.kernels.workers import Workers, count_threads
from timbermark.marking.rows import survives_rounding
from timbermark.trees import reference
from timbermark.trees.ensemble import Ensemble, digest


class Marked:
    """A fitted TimberClassifier and its state; the classifier itself is never touched."""

    bare = False  # its training rows, or what they left, are always at hand
    shares_splits = False  # no tree costs more in another shape

    def __init__(
        self, model: TimberClassifier, X: Any, y: Any, sample_weight: Any, verbose: int = 0
    ) -> None:
        if not hasattr(model, "ensemble_"):
            raise InputError("The model is not fitted.", hint="call fit first, or load a model.")
        self.model = copy.copy(model)
        self.model._state = model._state
        self._verbose = bool(verbose)
        if self.model._state is None:
            if X is None or y is None:
                raise InputError(
                    "The model has no training state and no training data was given.",
                    hint="pass X and y, or load the state with model.load_state(path).",
                )
            self.model.rebuild_state(X, y, sample_weight)
        self.ensemble: Ensemble = self.model.ensemble_
        self._fast = LazyPredictor(self.ensemble)

    @property
    def state(self) -> State:
        """The training state."""
        return self.model._need_state()

    @property
    def classes(self) -> np.ndarray:
        """The labels, by class number."""
        return np.asarray(self.model.classes_)

    @property
    def feature_names(self) -> list[str] | None:
        """The names of the model's columns, where it knows them."""
        names = getattr(self.model, "feature_names_in_", None)
        return None if names is None else [str(name) for name in names]

    @property
    def digest(self) -> str:
        """The digest of the unmarked trees."""
        return digest(self.ensemble)

    def rows(self, X: Any) -> np.ndarray:
        """float64[n, d], checked against the model's features."""
        return check_rows(self.model, X, reset=False)

    def labels(self, y: Any, n: int) -> np.ndarray:
        """Class numbers of labels that the model must know."""
        return self.model._known_labels(y, n)

    def codes(self, X: np.ndarray) -> np.ndarray:
        """Bin codes [n, d] of float64 rows: all that trees can see of them."""
        with Workers(count_threads(self.model.n_jobs)) as workers:
            return encode(self.state.data.bins, X, workers)[0]

    def notes(self, ensemble: Ensemble) -> tuple[str, ...]:
        """Nothing: our own models stay as they are in every respect."""
        return ()

    def roundings(self, X: np.ndarray) -> tuple[np.ndarray, ...]:
        """Nothing: rows that survive rounding keep their codes, so that no tree can tell."""
        return ()

    def survives_rounding(self, X: np.ndarray) -> np.ndarray:
        """bool[n]: rows whose codes stay the same a few float32 units up or down."""
        with Workers(count_threads(self.model.n_jobs)) as workers:
            return survives_rounding(X, self.state.data.bins, workers)

    @property
    def training_codes(self) -> np.ndarray:
        """The codes of the training rows."""
        return self.state.data.codes

    @property
    def n_rows(self) -> int:
        """How many rows the model was trained on."""
        return self.state.data.n_rows

    def confidence(self, X: np.ndarray, ensemble: Ensemble | None = None) -> np.ndarray:
        """Probabilities [n, K] of rows under the unmarked model, or under another ensemble."""
        given = self.ensemble if ensemble is None else ensemble
        two_or_more = reference.probabilities(self.margins(X, given), given.objective)
        return np.asarray(two_or_more)

    def margins(self, X: np.ndarray, ensemble: Ensemble) -> np.ndarray:
        """Raw scores [n, outputs] of float64 rows."""
        if self._fast.ensemble is not ensemble:
            self._fast = LazyPredictor(ensemble)
        with Workers(count_threads(self.model.n_jobs)) as workers:
            return self._fast.margins(X, workers)

    def learn(
        self,
        X: np.ndarray,
        label: np.ndarray,
        weight: np.ndarray,
        mode: str = "lazy",
        patience: float | None = None,
        what: str = "learning",
    ) -> tuple[Ensemble, State]:
        """The unmarked model with these rows learned in place; ``what`` names the progress bar."""
        n_threads = count_threads(self.model.n_jobs)
        bar = training_bar(self.state.params.max_iter, self._verbose, what)
        with Workers(n_threads) as workers, bar as progress:
            return update_ensemble(
                self.ensemble, self.state, X, label, weight, workers, mode, patience,
                progress=progress,
            )  # fmt: skip

    def wrap(
        self, ensemble: Ensemble, state: State | None, X: np.ndarray | None = None
    ) -> TimberClassifier:
        """A model of the same type around other trees; ``X`` is for those that must be checked."""
        made = copy.copy(self.model)
        made._install(ensemble, state)
        return made
