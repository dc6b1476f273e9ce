"""The scikit-learn classifier over the engine.

It turns any labels into class numbers and any table into float64 rows, and says in one sentence
what is wrong where that cannot be done; a call that fails leaves the classifier as it was.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d

from timbermark.boosting.params import TrainParams
from timbermark.boosting.predicting import LazyPredictor
from timbermark.boosting.progress import training_bar
from timbermark.boosting.state import State, fit_ensemble, rebuild_state
from timbermark.boosting.state_file import load_state, save_state
from timbermark.boosting.updating import TOLERANCE, update_ensemble
from timbermark.boosting.warmup import notice_if_cold
from timbermark.errors import FileFormatError, InputError, StateError
from timbermark.estimator_checks import check_knob, check_params, check_rows, check_weight
from timbermark.files import read_container, write_container
from timbermark.kernels.workers import Workers, count_threads
from timbermark.trees import reference
from timbermark.trees.ensemble import Ensemble
from timbermark.trees.model_file import ensemble_from_arrays, ensemble_to_arrays

KIND = "classifier"
FORMAT_VERSION = 1
"""Raised whenever a file written by the new code cannot be read by the old."""
_TREES = "trees_"
_ALONE = 256
"""Rows up to which a second thread is not worth waking."""


class TimberClassifier(ClassifierMixin, BaseEstimator):
    """Gradient-boosted trees whose trees can learn new rows in place.

    Parameters are named as in scikit-learn's HistGradientBoostingClassifier; these are new:

    ``split_sampling``: the share of a feature's thresholds that are split candidates in a node,
    drawn anew in each node. 0.1 is both faster and more accurate than 1.0 on most data.
    ``keep_state``: keep what :meth:`update` needs in memory, outside the model: it is neither
    saved by :meth:`save` nor pickled. ``n_jobs``: threads, all cores by default; the trees are
    the same for any number. ``preset="paper"``: the engine of the paper, whatever the other
    parameters say but ``n_jobs``, ``random_state`` and ``verbose``.

    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> clf = TimberClassifier(max_iter=20, random_state=0).fit(X[:1000], y[:1000])
    >>> bool(clf.score(X[1000:], y[1000:]) > 0.85)
    True
    >>> clf = clf.update(X[1000:1005], [1, 2, 3, 4, 5], sample_weight=[3] * 5)
    >>> clf.predict(X[1000:1005])
    array([1, 2, 3, 4, 5])
    """

    _state: State | None

    def __init__(
        self,
        max_iter: int = 200,
        learning_rate: float = 0.1,
        max_leaf_nodes: int = 20,
        min_samples_leaf: int = 10,
        l2_regularization: float = 0.0,
        max_bins: int = 255,
        split_sampling: float = 0.1,
        keep_state: bool = True,
        preset: Literal["paper"] | None = None,
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
        self.preset = preset
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def fit(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> TimberClassifier:
        """Train on rows ``X`` [n, d] with labels ``y`` [n] of any type.

        A weight of w acts like w copies of a row; a weight of zero like its absence. Missing
        values are NaN. Raises InputError for anything that cannot be trained on.
        """
        before = dict(self.__dict__)
        try:
            return self._fit(X, y, sample_weight)
        except BaseException:
            # The checks note the table's features as they go.
            self.__dict__.clear()
            self.__dict__.update(before)
            raise

    def _fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None) -> TimberClassifier:
        params = check_params(self)
        rows = check_rows(self, X, reset=True)
        classes, label = self._encode_labels(y, len(rows))
        weight = check_weight(sample_weight, len(rows))
        present = np.unique(label if weight is None else label[weight > 0])
        if len(present) < len(classes):
            classes = classes[present]
            label = np.searchsorted(present, label).clip(0, len(present) - 1)
        if len(classes) < 2:
            named = ", ".join(map(repr, classes.tolist())) or "none"
            raise InputError(
                f"A classifier needs at least 2 classes; the labels have only one class: {named}.",
                hint="check the label column and the sample weights.",
            )
        notice_if_cold()
        with Workers(count_threads(self.n_jobs)) as workers, self._bar(params) as progress:
            ensemble, state = fit_ensemble(
                rows, label, weight, len(classes), params, workers, bool(self.keep_state), progress
            )
        self.classes_ = classes
        self._install(ensemble, state if self.keep_state else None)
        return self

    def update(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        mode: Literal["exact", "lazy"] = "lazy",
        patience: float | None = None,
        tolerance: float = TOLERANCE,
    ) -> TimberClassifier:
        """Learn more rows in place: no tree is added, none gets more leaves than its budget.

        ``exact`` gives the model that training on old and new rows together gives, with the same
        bins and seeds. ``lazy`` keeps a split while at most a share of ``patience`` (0.1, below
        1000 rows 0.03) of its node's candidates beats it, and refreshes an old row's gradients
        once its margin moved by more than ``tolerance``; with both at zero it equals ``exact``.
        Values beyond the range seen in training fall into the outermost bins. On any error the
        model stays as it was.
        """
        check_is_fitted(self)
        if mode not in ("exact", "lazy"):
            raise InputError(f"mode={mode!r} is not known.", hint="use 'lazy' or 'exact'.")
        if patience is not None:
            check_knob("patience", patience)
        check_knob("tolerance", tolerance)
        state = self._need_state()
        rows = check_rows(self, X, reset=False)
        label = self._known_labels(y, len(rows))
        weight = check_weight(sample_weight, len(rows))
        with Workers(count_threads(self.n_jobs)) as workers, self._bar(state.params) as progress:
            ensemble, state = update_ensemble(
                self.ensemble_, state, rows, label, weight, workers, mode, patience,
                float(tolerance), progress,
            )  # fmt: skip
        self._install(ensemble, state)
        return self

    def decision_function(self, X: ArrayLike) -> np.ndarray:
        """Margins: [n, K], or [n] for two classes."""
        margins = self._margins(X)
        return margins[:, 0] if len(self.classes_) == 2 else margins

    def predict_proba(self, X: ArrayLike) -> np.ndarray:
        """Probabilities [n, K], columns in the order of ``classes_``."""
        return reference.probabilities(self._margins(X), self.ensemble_.objective)

    def predict(self, X: ArrayLike) -> np.ndarray:
        """The most likely class of each row."""
        margins = self._margins(X)
        chosen: np.ndarray = self.classes_[reference.labels(margins, self.ensemble_)]
        return chosen

    def save(self, path: str | Path) -> None:
        """Write the model, without any trace of its training rows, to ``path``."""
        check_is_fitted(self)
        if self.classes_.dtype.kind not in "biufU" and not all(
            isinstance(c, str) for c in self.classes_
        ):
            raise InputError(
                f"Labels of type {self.classes_.dtype} cannot be saved.",
                hint="use numbers or strings as labels.",
            )
        meta, arrays = ensemble_to_arrays(self.ensemble_, prefix=_TREES)
        labels = self.classes_.astype(str) if self.classes_.dtype == object else self.classes_
        names = getattr(self, "feature_names_in_", None)
        meta = {
            "ensemble": meta,
            "params": {k: v for k, v in self.get_params().items() if _is_plain(v)},
            "feature_names": None if names is None else [str(name) for name in names],
            "object_labels": self.classes_.dtype == object,
        }
        arrays = {**arrays, "classes": labels}
        write_container(path, KIND, FORMAT_VERSION, meta, arrays)

    @classmethod
    def load(cls, path: str | Path) -> TimberClassifier:
        """Read what :meth:`save` wrote. Raises FileFormatError for anything else."""
        _, meta, arrays = read_container(path, KIND, FORMAT_VERSION)
        try:
            ensemble = ensemble_from_arrays(meta["ensemble"], arrays, prefix=_TREES)
            classes = arrays["classes"]
            model = cls(**meta["params"])
            if classes.shape != (ensemble.n_classes,):
                raise KeyError("classes")
            if meta["object_labels"]:
                classes = classes.astype(object)
            model.classes_ = classes
            if meta["feature_names"] is not None:
                model.feature_names_in_ = np.array(meta["feature_names"], dtype=object)
        except (KeyError, TypeError) as error:
            raise FileFormatError(
                f"The model file is not complete ({error}).", hint="save the model again."
            ) from error
        model.n_features_in_ = ensemble.n_features
        model._install(ensemble, None)
        return model

    def save_state(self, path: str | Path) -> None:
        """Write the training state: facts about training rows, for :meth:`update` alone."""
        check_is_fitted(self)
        save_state(path, self._need_state())

    def load_state(self, path: str | Path) -> TimberClassifier:
        """Take up the state that :meth:`save_state` wrote beside this model."""
        check_is_fitted(self)
        state = load_state(path)
        state.check(self.ensemble_)
        self._state = state
        return self

    def rebuild_state(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> TimberClassifier:
        """Make the state anew by sending the training data through the model."""
        check_is_fitted(self)
        rows = check_rows(self, X, reset=False)
        label = self._known_labels(y, len(rows))
        weight = check_weight(sample_weight, len(rows))
        params = check_params(self)
        with Workers(count_threads(self.n_jobs)) as workers, self._bar(params) as progress:
            self._state = rebuild_state(
                self.ensemble_, rows, label, weight, len(self.classes_), params, workers, progress
            )
        return self

    def _install(self, ensemble: Ensemble, state: State | None) -> None:
        """Take over a finished model; nothing before this line has changed the old one."""
        self.ensemble_ = ensemble
        self.n_iter_ = ensemble.n_trees // ensemble.n_outputs
        self._state = state
        self._fast = LazyPredictor(ensemble)

    def _margins(self, X: ArrayLike) -> np.ndarray:
        check_is_fitted(self)
        rows = check_rows(self, X, reset=False)
        with Workers(count_threads(self.n_jobs) if len(rows) > _ALONE else 1) as workers:
            return self._fast.margins(rows, workers)

    def _encode_labels(self, y: ArrayLike, n: int) -> tuple[np.ndarray, np.ndarray]:
        labels = _label_column(y, n)
        check_classification_targets(labels)
        classes, label = np.unique(labels, return_inverse=True)
        return classes, label

    def _known_labels(self, y: ArrayLike, n: int) -> np.ndarray:
        labels = _label_column(y, n)
        if len(labels) == 0:
            return np.zeros(0, np.int64)
        try:
            place = np.searchsorted(self.classes_, labels).clip(0, len(self.classes_) - 1)
            known = self.classes_[place] == labels
        except TypeError:
            known = np.zeros(len(labels), np.bool_)
        if not np.all(known):
            strange = list(dict.fromkeys(np.asarray(labels)[~known].tolist()))[:5]
            raise InputError(
                f"The model does not know the class {', '.join(map(repr, strange))}.",
                hint=f"its classes are {', '.join(map(repr, self.classes_.tolist()[:12]))}; a new "
                "class needs a new fit.",
            )
        return np.asarray(place)

    def _need_state(self) -> State:
        if self._state is None:
            raise StateError(
                "This model has no training state, which update needs.",
                hint="use load_state(path), or rebuild_state(X, y) with the training data.",
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


def _label_column(y: ArrayLike, n: int) -> np.ndarray:
    if y is None:
        raise InputError(
            "This classifier requires y to be passed, but the target y is None.",
            hint="pass one label for each row.",
        )
    labels: np.ndarray = column_or_1d(y, warn=True)
    if labels.dtype == object:
        missing = [c for c in labels if c is None or c != c]
    else:
        missing = list(labels[np.isnan(labels)]) if labels.dtype.kind == "f" else []
    if missing:
        raise InputError(
            f"{len(missing)} labels are missing (NaN or None).",
            hint="leave these rows out or label them.",
        )
    if labels.dtype.kind == "f" and np.isinf(labels).any():
        raise InputError(
            "Input y contains infinity, which is no label.",
            hint="check the label column.",
        )
    if len(labels) != n:
        raise InputError(
            f"There are {n} rows but {len(labels)} labels (inconsistent numbers of samples).",
            hint="pass one label for each row.",
        )
    return labels


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, bool | int | float | str)
