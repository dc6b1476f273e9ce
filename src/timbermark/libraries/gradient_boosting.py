"""GradientBoosting models of scikit-learn, opened as an Ensemble and closed again.

Its leaves hold steps before shrinkage: a margin is the start plus learning_rate · leaf, tree after
tree, so the learning rate is the ensemble's tree weight. Rows are cast to float32; missing values
and infinities are refused by the library.

A model's file is a ``.skops`` archive; whatever comes from one is checked as every model is in
`open`, see `timbermark.libraries.skops_files`.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np

from timbermark.dtypes import AnyArray, Reals
from timbermark.errors import InputError
from timbermark.libraries import scikit_learn, skops_files
from timbermark.libraries.closing import check_margins
from timbermark.libraries.contract import ForeignModel, PathLike, ancestors, plain_columns
from timbermark.trees.construction import make_ensemble
from timbermark.trees.ensemble import Ensemble

name, margins = scikit_learn.name, scikit_learn.margins

_NEEDED = (
    *("init_", "_loss", "_raw_predict_init", "n_estimators_"),
    *("n_trees_per_iteration_", "n_features_in_"),
)
_FIELDS = {
    *("left_child", "right_child", "feature", "threshold", "impurity", "n_node_samples"),
    *("weighted_n_node_samples", "missing_go_to_left"),
}
_CONSTANT = {
    "DummyClassifier": ("prior",),
    "DummyRegressor": ("mean", "median", "quantile", "constant"),
}
_NO_CHILD = -1  # what scikit-learn writes at leaves
_LARGEST = float(np.finfo(np.float32).max)


def is_model(model: object) -> bool:
    """Return whether an object is a GradientBoosting model, fitted or not.

    >>> is_model("a text")
    False
    """
    return not ancestors(model, "sklearn").isdisjoint(scikit_learn.GRADIENT_KINDS)


def open_file(path: PathLike) -> ForeignModel:
    """Return the model in a ``.skops`` file, checked as `open` checks it.

    Raises FileFormatError if it is another file, damaged, or holds anything but a plain model,
    MissingLibraryError without skops, OSError if the file cannot be opened.
    """
    return skops_files.open_file(path, scikit_learn.GRADIENT_KINDS, open)


def open(model: Any) -> ForeignModel:
    """Return a fitted model as neutral trees.

    ``gain`` is what a split adds to ``feature_importances_`` before these are made to sum to 1.

    Raises InputError if it is not such a model, not fitted, uses another loss or an ``init`` that
    looks at the rows, or is kept in a form that is not known; StateError if its margins are not
    ours.
    """
    from timbermark.libraries import gradient_boosting as adapter

    kind = _check_form(model)
    native = copy.deepcopy(model)
    trees = [estimator.tree_ for estimator in native.estimators_.ravel()]
    nodes = np.concatenate([tree.__getstate__()["nodes"] for tree in trees])
    start = np.cumsum([0, *(tree.node_count for tree in trees)])
    leaf = nodes["left_child"] == _NO_CHILD
    names = scikit_learn.names_of(native)
    ensemble = make_ensemble(
        n_features=int(native.n_features_in_),
        n_outputs=int(native.n_trees_per_iteration_),
        objective=scikit_learn.objective_of(native, kind),
        tree_start=start,
        tree_weight=np.full(len(trees), float(native.learning_rate)),
        feature=np.where(leaf, -1, nodes["feature"]),
        threshold=np.where(leaf, 0.0, nodes["threshold"]),
        left=nodes["left_child"],
        right=np.where(leaf, -1, nodes["right_child"]),
        missing_left=~leaf & nodes["missing_go_to_left"].astype(bool),
        value=np.concatenate([tree.value[:, 0, 0] for tree in trees]),
        count=nodes["n_node_samples"],
        init=_start(native),
        input_dtype="f4",
        zero_is_positive=True,
    )
    ensemble = replace(ensemble, gain=_gains(ensemble, nodes))
    foreign = ForeignModel(
        library=name,
        kind=type(model).__name__,
        ensemble=ensemble,
        classes=scikit_learn.classes_of(native, kind),
        feature_names=names,
        native=native,
        adapter=adapter,
        notes=("train_score_ and oob_scores_ stay those of the model as it was trained.",),
        task=scikit_learn.task_of(kind),
        input_columns=plain_columns(ensemble),
    )
    check_margins(foreign, ensemble, native)
    return foreign


def rows(foreign: ForeignModel, X: Any) -> Reals:
    """Return what ``predict`` takes, dense or sparse, as columns of the ensemble, float64 [n, d].

    Raises InputError if scikit-learn does not take ``X``, for instance with missing values.
    """
    keywords = {"dtype": np.float32, "order": "C", "accept_sparse": "csr", "reset": False}
    try:
        from sklearn.utils.validation import validate_data
    except ImportError:  # before 1.6 it was a method
        validate_data = type(foreign.native)._validate_data
    try:
        # A number beyond float32 becomes infinite, and is refused as such; sums may, and are not.
        with np.errstate(over="ignore", invalid="ignore"):
            checked = validate_data(foreign.native, X, **keywords)
    except (ValueError, TypeError) as error:
        scikit_learn.refuse_rows(foreign.kind, error)
    dense = checked.toarray() if hasattr(checked, "toarray") else checked
    return np.asarray(dense, dtype=np.float64)


def native_rows(foreign: ForeignModel, rows: Reals) -> Any:
    """Return an ``X`` for ``predict`` that stands for rows of the ensemble, float64 [n, d].

    The library takes no missing values: they become 0. What is beyond float32 becomes its largest
    number. Returns a DataFrame if the model knows names of features and pandas is installed.
    """
    X = np.clip(np.where(np.isnan(rows), 0.0, rows), -_LARGEST, _LARGEST)
    return scikit_learn.name_columns(foreign.native, X)


def close(foreign: ForeignModel, ensemble: Ensemble) -> Any:
    """Return a model of the type that was opened, with the ensemble's leaf values and thresholds.

    Everything else stays: what scikit-learn keeps at inner nodes does not follow from its leaves.
    """
    model = copy.deepcopy(foreign.native)
    start = ensemble.tree_start.tolist()
    for estimator, first, last in zip(model.estimators_.ravel(), start, start[1:], strict=False):
        tree, leaf = estimator.tree_, ensemble.left[first:last] < 0
        tree.value[leaf, 0, 0] = ensemble.value[first:last, 0][leaf]
        tree.threshold[~leaf] = ensemble.threshold[first:last][~leaf]
    return model


def save(model: Any, path: PathLike) -> None:
    """Write a model to a ``.skops`` file.

    Raises InputError if the name does not end in .skops or the model holds what skops cannot
    write, MissingLibraryError without skops, OSError if the system refuses.
    """
    skops_files.save(model, path, type(model).__name__)


def _check_form(model: Any) -> str:
    """Return which kind a model is.

    Raises InputError unless this module knows how to read the model, and it is safe to run.
    """
    kind = scikit_learn.check_form(model, scikit_learn.GRADIENT_KINDS, "estimators_", _NEEDED)
    if model.estimators_.ndim != 2 or model.estimators_.shape[1] != model.n_trees_per_iteration_:
        scikit_learn.refuse_form(kind, "its iterations do not have one tree per class")
    if model.estimators_.size == 0:
        scikit_learn.refuse_form(kind, "it has no trees")
    for estimator in model.estimators_.ravel():
        if type(estimator).__name__ != "DecisionTreeRegressor":
            scikit_learn.refuse_form(kind, f"one of its trees is a {type(estimator).__name__}")
        tree = estimator.tree_
        # Reading the arrays of a tree that lies about its size reads foreign memory.
        if not (type(tree).__name__ == "Tree" and 1 <= tree.node_count <= tree.capacity):
            scikit_learn.refuse_form(kind, "a tree has another size than it says")
        if (tree.n_features, tree.n_outputs, tree.max_n_classes) != (model.n_features_in_, 1, 1):
            scikit_learn.refuse_form(kind, "a tree has other features or outputs than the model")
        if _FIELDS - set(tree.__getstate__()["nodes"].dtype.names):
            scikit_learn.refuse_form(kind, "the nodes of its trees have other fields")
    _check_init(model, kind)
    return kind


def _check_init(model: Any, kind: str) -> None:
    constant = isinstance(model.init_, str) and model.init_ == "zero"
    strategies = _CONSTANT.get(type(model.init_).__name__, ())
    if strategies and type(model.init_).__module__.startswith("sklearn."):
        constant = model.init_.strategy in strategies
    if not constant:
        raise InputError(
            f"init={model.init!r} gives every row a start of its own, which trees cannot hold.",
            hint="train with init=None or init='zero'.",
        )
    if _start(model).shape != (model.n_trees_per_iteration_,):
        scikit_learn.refuse_form(kind, "its start is not one number per class")


def _start(model: Any) -> Reals:
    """Return where the margins of every row start, float64 [outputs]."""
    row = np.zeros((1, model.n_features_in_), dtype=np.float32)
    start: Reals = np.asarray(model._raw_predict_init(row)[0], dtype=np.float64)
    return start


def _gains(ensemble: Ensemble, nodes: AnyArray) -> Reals:
    """Return by how much each split lowers the impurity of its rows, by weight, float64 [N]."""
    total = nodes["weighted_n_node_samples"] * nodes["impurity"]
    base = np.repeat(ensemble.tree_start[:-1], np.diff(ensemble.tree_start))
    lower = total[base + ensemble.left] + total[base + ensemble.right]
    gains: Reals = np.where(ensemble.left >= 0, total - lower, 0.0)
    return np.where(np.isfinite(gains), gains, 0.0)
