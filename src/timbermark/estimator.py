"""The scikit-learn classifier and regressor over the engine.

They turn any answers into what the engine learns and any table into float64 rows, and say in one
sentence what is wrong where that cannot be done.
"""

from __future__ import annotations

import os
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets

from timbermark.errors import InputError
from timbermark.estimator_base import TimberEstimator
from timbermark.estimator_checks import check_answers, check_labels, check_numbers
from timbermark.files import container_kind
from timbermark.trees import reference
from timbermark.trees.model_file import CLASSIFIER, REGRESSOR


class TimberClassifier(ClassifierMixin, TimberEstimator):
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
    >>> clf = clf.update(X[1000:1005], [1, 2, 3, 4, 5], sample_weight=[3] * 5, mode="exact")
    >>> clf.predict(X[1000:1005])
    array([1, 2, 3, 4, 5])
    """

    file_kind: ClassVar[str] = CLASSIFIER

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
        # scikit-learn reads the parameters off this signature: it must name them all.
        super().__init__(
            max_iter=max_iter,
            learning_rate=learning_rate,
            max_leaf_nodes=max_leaf_nodes,
            min_samples_leaf=min_samples_leaf,
            l2_regularization=l2_regularization,
            max_bins=max_bins,
            split_sampling=split_sampling,
            keep_state=keep_state,
            n_jobs=n_jobs,
            random_state=random_state,
            verbose=verbose,
        )
        self.preset = preset

    def decision_function(self, X: ArrayLike) -> np.ndarray:
        """Return margins: [n, K], or [n] for two classes."""
        margins = self._margins(X)
        return margins[:, 0] if len(self.classes_) == 2 else margins

    def predict_proba(self, X: ArrayLike) -> np.ndarray:
        """Return probabilities [n, K], columns in the order of ``classes_``."""
        return reference.probabilities(self._margins(X), self.ensemble_.objective)

    def predict(self, X: ArrayLike) -> np.ndarray:
        """Return the most likely class of each row."""
        margins = self._margins(X)
        chosen: np.ndarray = self.classes_[reference.labels(margins, self.ensemble_)]
        return chosen

    def _learn_answers(
        self, y: ArrayLike, n: int, weight: np.ndarray | None
    ) -> tuple[np.ndarray, int]:
        labels = check_answers(y, n)
        check_classification_targets(labels)
        classes, label = np.unique(labels, return_inverse=True)
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
        self.classes_ = classes
        return label, len(classes)

    def _known_answers(self, y: ArrayLike, n: int) -> np.ndarray:
        return check_labels(y, n, self.classes_)


class TimberRegressor(RegressorMixin, TimberEstimator):
    """Gradient-boosted trees for numbers (squared error) that can learn new rows in place.

    Parameters are those of :class:`TimberClassifier`, without its preset; ``split_sampling`` is 0.3
    by default, chosen on diamonds: 540.6 RMSE, 546.0 with 0.1 (docs/engine.md).
    ``tolerance`` of :meth:`update` is in the unit of the target.

    Predictions begin at the mean of the target and residuals are kept in fixed point, as fine as
    single precision is at the target's largest distance from it; so the trees are the same for any
    number of threads, and rows can be learned in place. An :meth:`update` keeps both, unless a
    target lies more than twice as far out as any before: then it trains again.

    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = TimberRegressor(max_iter=40, random_state=0).fit(X[:300], y[:300])
    >>> bool(model.score(X[300:], y[300:]) > 0.3)
    True
    >>> before = model.predict(X[300:301])[0]
    >>> model = model.update(X[300:301], [before + 90], sample_weight=[10])
    >>> bool(model.predict(X[300:301])[0] > before + 30)
    True
    """

    file_kind: ClassVar[str] = REGRESSOR

    def predict(self, X: ArrayLike) -> np.ndarray:
        """Return the number for each row, float64 [n]."""
        return self._margins(X)[:, 0]

    def _learn_answers(
        self, y: ArrayLike, n: int, weight: np.ndarray | None
    ) -> tuple[np.ndarray, int]:
        return self._known_answers(y, n), 0

    def _known_answers(self, y: ArrayLike, n: int) -> np.ndarray:
        return check_numbers(y, n)


def load_estimator(path: str | os.PathLike[str]) -> Any:
    """Return the classifier or regressor in a file of timbermark's own.

    Raises FileFormatError for anything else.

    >>> import tempfile
    >>> model = TimberRegressor(max_iter=2).fit([[0.0], [1.0]], [3.0, 3.0])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model.save(f"{folder}/three.timber")
    ...     load_estimator(f"{folder}/three.timber").predict([[0.5]])
    array([3.])
    """
    is_regressor = container_kind(path) == REGRESSOR
    return (TimberRegressor if is_regressor else TimberClassifier).load(os.fspath(path))
