"""What our classifier and our regressor have in common: all but what an answer is.

A call that fails leaves the model as it was.
"""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from timbermark.boosting.data import TrainParams
from timbermark.boosting.predicting import LazyPredictor
from timbermark.boosting.progress import training_bar
from timbermark.boosting.state import State, fit_ensemble, rebuild_state
from timbermark.boosting.state_file import load_state, save_state
from timbermark.boosting.updating import TOLERANCE, update_ensemble
from timbermark.errors import InputError, StateError
from timbermark.estimator_checks import (
    check_knob,
    check_numbers_of_rows,
    check_params,
    check_rows,
    check_weight,
)
from timbermark.kernels.compile import notice_if_cold
from timbermark.kernels.growing import train_trees
from timbermark.kernels.workers import Workers, count_threads
from timbermark.trees.ensemble import Ensemble
from timbermark.trees.model_file import SavedModel, not_complete, read_model, write_model

_ALONE = 256
"""Rows up to which a second thread is not worth waking."""


class TimberEstimator(BaseEstimator):
    """Gradient-boosted trees that can learn new rows in place; subclasses say what an answer is."""

    file_kind: ClassVar[str]
    """What the first line of a model's file says it is."""
    ensemble_: Ensemble
    _state: State | None

    def __init__(
        self,
        max_iter: int = 200,
        learning_rate: float = 0.1,
        max_leaf_nodes: int = 20,
        min_samples_leaf: int = 10,
        l2_regularization: float = 0.0,
        max_bins: int = 255,
        split_sampling: float = 0.3,
        keep_state: bool = True,
        n_jobs: int | None = None,
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
    ) -> None:
        self.max_iter = max_iter
        self.learning_rate = learning_rate
        self.max_leaf_nodes = max_leaf_nodes
        self.min_samples_leaf = min_samples_leaf
        self.l2_regularization = l2_regularization
        self.max_bins = max_bins
        self.split_sampling = split_sampling
        self.keep_state = keep_state
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    @abstractmethod
    def _learn_answers(
        self, y: ArrayLike, n: int, weight: np.ndarray | None
    ) -> tuple[np.ndarray, int]:
        """Return the answers of ``n`` training rows for the engine, and how many classes there are.

        May note in the model what answers there are.
        """

    @abstractmethod
    def _known_answers(self, y: ArrayLike, n: int) -> np.ndarray:
        """Return the answers of ``n`` more rows as the engine takes them."""

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Train on rows ``X`` [n, d] with answers ``y`` [n].

        A weight of w acts like w copies of a row; a weight of zero like its absence. Missing
        values are NaN. Raises InputError for anything that cannot be trained on.
        """
        before = dict(self.__dict__)
        try:
            params = check_params(self)
            rows = check_rows(self, X, reset=True)
            weight = check_weight(sample_weight, len(rows))
            answers, n_classes = self._learn_answers(y, len(rows), weight)
            notice_if_cold(train_trees)
            with Workers(count_threads(self.n_jobs)) as workers, self._bar(params) as progress:
                ensemble, state = fit_ensemble(
                    rows, answers, weight, n_classes, params, workers, bool(self.keep_state),
                    progress,
                )  # fmt: skip
            self._install(ensemble, state if self.keep_state else None)
        except BaseException:
            # The checks note the table's features as they go.
            self.__dict__.clear()
            self.__dict__.update(before)
            raise
        return self

    def update(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        mode: Literal["exact", "lazy"] = "lazy",
        patience: float | None = None,
        tolerance: float = TOLERANCE,
        forget: Any = None,
    ) -> Self:
        """Learn more rows in place: no tree is added, none gets more leaves than its budget.

        ``forget``: rows to forget at the same time, as :meth:`forget` takes them, or rows and their
        answers as a tuple.

        ``exact`` gives the model that training on the rows that are left gives, with the same
        bins and seeds (and for numbers the same start and scale), whatever was learnt and forgotten
        before. ``lazy`` keeps a split while at most a share of ``patience`` (0.005) of its node's
        candidates beats it, and does not put the splits of large nodes in question; it refreshes an
        old row's part in the candidates' sums once its margin moved by more than ``tolerance``;
        with both at zero it equals ``exact``. Many rows are trained on again even so.
        Values beyond the range seen in training fall into the outermost bins. On any error the
        model stays as it was.
        """
        check_is_fitted(self)
        rows = check_rows(self, X, reset=False)
        answers = self._known_answers(y, len(rows))
        weight = check_weight(sample_weight, len(rows))
        return self._change(rows, answers, weight, forget, mode, patience, tolerance)

    def forget(
        self,
        rows: Any,
        y: ArrayLike | None = None,
        mode: Literal["exact", "lazy"] = "lazy",
        patience: float | None = None,
        tolerance: float = TOLERANCE,
    ) -> Self:
        """Forget learnt rows in place: the model is as if it had not met them.

        ``rows``: their numbers [m], or their values [m, d], with their answers ``y`` where rows of
        the same values have different ones. Rows are numbered as they came: training rows from 0
        on, then those of each update; a number stays a row's own when others are forgotten. By
        value, rows are the same where they fall into the same bins, and the one learnt last goes
        first.

        ``exact`` gives the model that training without these rows gives, bit for bit. ``lazy``
        takes them out of the sums of the trees and regrows what does not hold. Rows of an update
        that are forgotten by the next one leave no trace: the model is bit for bit what it was
        before, in exact mode always, in lazy mode if no update in between has trained again. After
        a lazy call the forgotten rows are out of the model, but the state keeps them until it
        trains again; ``mode="exact"`` removes them from both. Arguments are those of
        :meth:`update`.
        """
        check_is_fitted(self)
        nothing = np.empty((0, self.n_features_in_))
        given = rows if y is None else (rows, y)
        return self._change(nothing, np.zeros(0), None, given, mode, patience, tolerance)

    def _change(
        self,
        rows: np.ndarray,
        answers: np.ndarray,
        weight: np.ndarray | None,
        forget: Any,
        mode: str,
        patience: float | None,
        tolerance: float,
    ) -> Self:
        """Learn and forget checked rows."""
        if mode not in ("exact", "lazy"):
            raise InputError(
                f"mode={mode!r} is not known.",
                hint="use 'lazy' or 'exact'.",
                code="update.mode",
                parameter="mode",
            )
        if patience is not None:
            check_knob("patience", patience)
        check_knob("tolerance", tolerance)
        state = self._need_state()
        state.check(self.ensemble_)
        with Workers(count_threads(self.n_jobs)) as workers, self._bar(state.params) as progress:
            ensemble, state = update_ensemble(
                self.ensemble_, state, rows, answers, weight, workers, mode, patience,
                float(tolerance), progress, self._rows_to_forget(forget, state, workers),
            )  # fmt: skip
        self._install(ensemble, state)
        return self

    def _rows_to_forget(self, given: Any, state: State, workers: Workers) -> np.ndarray:
        """Return the numbers of the rows that a caller named by number or by value."""
        if given is None:
            return np.zeros(0, np.int64)
        values, answers = given if isinstance(given, tuple) else (given, None)
        shape = np.shape(values)
        if len(shape) == 1 and answers is None:
            return check_numbers_of_rows(values)
        if len(shape) != 2:
            raise InputError(
                f"The rows to forget have the shape {shape}.",
                hint="give their numbers [m], or their values [m, features].",
                code="forget.shape",
                parameter="rows",
            )
        rows = check_rows(self, values, reset=False)
        label = None if answers is None else self._known_answers(answers, len(rows))
        return state.match(rows, label, workers)

    def save(self, path: str | Path) -> None:
        """Write the model, without any trace of its training rows, to ``path``."""
        check_is_fitted(self)
        names = getattr(self, "feature_names_in_", None)
        names = None if names is None else [str(name) for name in names]
        classes = getattr(self, "classes_", None)
        write_model(path, SavedModel(self.ensemble_, classes, names, self.get_params()))

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read what :meth:`save` wrote. Raises FileFormatError for anything else."""
        saved = read_model(path, cls.file_kind)
        try:
            model = cls(**saved.params)
        except TypeError as error:
            raise not_complete(error) from error
        if saved.classes is not None:
            model.classes_ = saved.classes
        if saved.names is not None:
            model.feature_names_in_ = np.array(saved.names, dtype=object)
        model.n_features_in_ = saved.ensemble.n_features
        model._install(saved.ensemble, None)
        return model

    def save_state(self, path: str | Path) -> None:
        """Write the training state: facts about training rows, for :meth:`update` alone."""
        check_is_fitted(self)
        save_state(path, self._need_state())

    def load_state(self, path: str | Path) -> Self:
        """Take up the state that :meth:`save_state` wrote beside this model."""
        check_is_fitted(self)
        state = load_state(path)
        state.check(self.ensemble_)
        self._state = state
        return self

    def rebuild_state(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Make the state anew by sending the training data through the model."""
        check_is_fitted(self)
        rows = check_rows(self, X, reset=False)
        answers = self._known_answers(y, len(rows))
        weight = check_weight(sample_weight, len(rows))
        params, n_classes = check_params(self), self.ensemble_.n_classes
        with Workers(count_threads(self.n_jobs)) as workers, self._bar(params) as progress:
            self._state = rebuild_state(
                self.ensemble_, rows, answers, weight, n_classes, params, workers, progress
            )
        return self

    def _install(self, ensemble: Ensemble, state: State | None) -> None:
        """Take over a finished model; nothing before this line has changed the old one."""
        self.ensemble_ = ensemble
        self.n_iter_ = ensemble.n_trees // ensemble.n_outputs
        self._state = state
        self._fast = LazyPredictor(ensemble)

    def _margins(self, X: ArrayLike) -> np.ndarray:
        if "_fast" not in self.__dict__:
            check_is_fitted(self)
        rows = check_rows(self, X, reset=False)
        with Workers(count_threads(self.n_jobs) if len(rows) > _ALONE else 1) as workers:
            return self._fast.margins(rows, workers)

    def count_rows(self) -> int:
        """Return the number of rows that the model has learnt and not forgotten."""
        check_is_fitted(self)
        return self._need_state().n_rows

    def _need_state(self) -> State:
        if self._state is None:
            raise StateError(
                "This model has no training state, which update needs.",
                hint="use load_state(path), or rebuild_state(X, y) with the training data.",
                code="state.none",
            )
        return self._state

    def _bar(self, params: TrainParams) -> Any:
        return training_bar(params.max_iter, bool(self.verbose))

    def __getstate__(self) -> dict[str, Any]:
        # The state holds facts about training rows; a pickled model may leave the house.
        kept: dict[str, Any] = dict(super().__getstate__())
        if "_state" in kept:
            kept["_state"] = None
        return kept

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def _more_tags(self) -> dict[str, bool]:
        return {"allow_nan": True}
