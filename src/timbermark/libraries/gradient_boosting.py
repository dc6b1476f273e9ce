"""GradientBoostingClassifier of scikit-learn: read into an Ensemble, and written back.

Its leaves hold steps before shrinkage: a margin is the start plus learning_rate · leaf, tree after
tree, so the learning rate is the ensemble's tree weight. Rows are cast to float32; missing values
and infinities are refused by the library.

A model's file is a ``.skops`` archive; whatever comes from one is checked as every model is in
`read`, see `timbermark.libraries.skops_files`.
"""

from __future__ import annotations

import copy
import os
from dataclasses import replace
from typing import Any

import numpy as np

from timbermark.dtypes import AnyArray, Reals
from timbermark.errors import InputError
from timbermark.libraries import skops_files
from timbermark.libraries.node_statistics import count_and_average, order_nodes, same_nodes, span
from timbermark.libraries.reading import Reading, Training
from timbermark.libraries.scikit_learn import (
    NAME,
    TRUSTED,
    check_ensemble,
    check_fitted,
    check_margins,
    check_outputs,
    has_log_loss,
    is_kind,
    margins,
    name_columns,
    refuse_form,
    refuse_rows,
    refuse_trees,
)
from timbermark.libraries.skops_files import is_file
from timbermark.trees.ensemble import MISSING_ZERO, Ensemble
from timbermark.trees.making import make_ensemble
from timbermark.trees.validation import validate_ensemble

__all__ = [
    "KIND",
    "NAME",
    "holds",
    "is_file",
    "is_model",
    "load",
    "margins",
    "native_rows",
    "read",
    "rows",
    "save",
    "write",
]

KIND = "GradientBoostingClassifier"

_NEEDED = (
    *("init_", "_loss", "_raw_predict_init", "classes_", "n_estimators_"),
    *("n_trees_per_iteration_", "n_features_in_"),
)
_FIELDS = {
    *("left_child", "right_child", "feature", "threshold", "impurity", "n_node_samples"),
    *("weighted_n_node_samples", "missing_go_to_left"),
}
_NO_CHILD, _NO_SPLIT = -1, -2  # what scikit-learn writes at leaves
_LARGEST = float(np.finfo(np.float32).max)
_TRUSTED = ("sklearn.tree._tree.Tree", *TRUSTED)


def is_model(model: object) -> bool:
    """Return whether an object is a GradientBoostingClassifier, fitted or not.

    >>> is_model("a text")
    False
    """
    return is_kind(model, KIND)


def holds(path: str | os.PathLike[str]) -> bool:
    """Return whether a skops archive holds a GradientBoostingClassifier.

    Raises FileFormatError if it is no skops archive, OSError if it cannot be opened.
    """
    return skops_files.kind_of(path) == KIND


def load(path: str | os.PathLike[str]) -> Any:
    """Return the model in a ``.skops`` file, checked as `read` checks it.

    Raises FileFormatError if it is another file, damaged, or holds anything but a plain model,
    MissingLibraryError without skops, OSError if the file cannot be opened.
    """
    return skops_files.load(path, KIND, _TRUSTED, read)


def read(model: Any) -> Reading:
    """Return a fitted model as neutral trees.

    ``gain`` is what a split adds to ``feature_importances_`` before these are made to sum to 1.
    With K > 2 classes scikit-learn shortens its steps by (K - 1) / K, hence the hessian factor.

    Raises InputError if it is not such a model, not fitted, uses another loss or an ``init`` that
    looks at the rows, or is kept in a form that is not known; StateError if its margins are not
    ours.
    """
    _check_form(model)
    native = copy.deepcopy(model)
    trees = [estimator.tree_ for estimator in native.estimators_.ravel()]
    nodes = np.concatenate([tree.__getstate__()["nodes"] for tree in trees])
    start = np.cumsum([0, *(tree.node_count for tree in trees)])
    leaf = nodes["left_child"] == _NO_CHILD
    n_outputs, n_classes = int(native.n_trees_per_iteration_), len(native.classes_)
    names = getattr(native, "feature_names_in_", None)
    ensemble = make_ensemble(
        n_features=int(native.n_features_in_),
        n_outputs=n_outputs,
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
    reading = Reading(
        library=NAME,
        kind=type(model).__name__,
        ensemble=ensemble,
        classes=native.classes_.copy(),
        feature_names=None if names is None else tuple(str(name) for name in names),
        training=Training(
            learning_rate=float(native.learning_rate),
            l2_regularization=0.0,
            min_samples_leaf=_whole(native.min_samples_leaf),
            max_leaf_nodes=_whole(native.max_leaf_nodes),
            max_depth=_whole(native.max_depth),
            hessian_factor=1.0 if n_outputs == 1 else n_classes / (n_classes - 1),
        ),
        native=native,
        notes=("train_score_ and oob_scores_ stay those of the model as it was trained.",),
    )
    check_margins(reading, native, ensemble, rows, native_rows)
    return reading


def rows(reading: Reading, X: Any) -> Reals:
    """Return what ``predict`` takes, dense or sparse, as columns of the ensemble, float64 [n, d].

    Raises InputError if scikit-learn does not take ``X``, for instance with missing values.
    """
    keywords = {"dtype": np.float32, "order": "C", "accept_sparse": "csr", "reset": False}
    try:
        from sklearn.utils.validation import validate_data
    except ImportError:  # before 1.6 it was a method
        validate_data = type(reading.native)._validate_data
    try:
        # A number beyond float32 becomes infinite, and is refused as such.
        with np.errstate(over="ignore"):
            checked = validate_data(reading.native, X, **keywords)
    except (ValueError, TypeError) as error:
        refuse_rows(KIND, error)
    dense = checked.toarray() if hasattr(checked, "toarray") else checked
    return np.asarray(dense, dtype=np.float64)


def native_rows(reading: Reading, rows: AnyArray) -> Any:
    """Return an ``X`` for ``predict`` that stands for rows of the ensemble, float64 [n, d].

    The library takes no missing values: they become 0. What is beyond float32 becomes its largest
    number. Returns a DataFrame if the model knows names of features and pandas is installed.
    """
    X = np.clip(np.where(np.isnan(rows), 0.0, rows), -_LARGEST, _LARGEST)
    return name_columns(reading.native, X)


def write(reading: Reading, ensemble: Ensemble) -> Any:
    """Return a model of the type that was read, with the trees of ``ensemble``.

    A tree whose splits and statistics are those that were read keeps all but its leaves. In others
    the counts of inner nodes are those of their leaves (of which none counts less than 1, so that
    every share is defined), inner values are the means of their leaves, and impurities are such
    that ``feature_importances_`` adds up the gains.

    Raises InputError if the ensemble is not sound or is not for this model: scikit-learn has no
    place for another start, other weights or categories; StateError if the written model's margins
    are not those of the ensemble.
    """
    validate_ensemble(ensemble)
    _check_fits(reading, ensemble)
    model = copy.deepcopy(reading.native)
    old = list(model.estimators_.ravel())
    estimators = np.empty(ensemble.n_trees, dtype=object)
    for t in range(ensemble.n_trees):
        estimators[t] = old[t] if t < len(old) else copy.deepcopy(old[-1])
        tree = estimators[t].tree_
        if t < len(old) and _same_splits(reading.ensemble, ensemble, t):
            leaf = tree.children_left == _NO_CHILD
            tree.value[leaf, 0, 0] = ensemble.value[span(ensemble, t), 0][leaf]
        else:
            estimators[t].tree_ = _build(ensemble, t, tree)
    model.estimators_ = estimators.reshape(-1, ensemble.n_outputs)
    model.n_estimators_ = len(model.estimators_)
    for name in ("train_score_", "oob_improvement_", "oob_scores_"):
        if len(scores := getattr(model, name, ())):
            room = max(0, model.n_estimators_ - len(scores))
            setattr(model, name, np.pad(scores, (0, room), "edge")[: model.n_estimators_])
    check_margins(reading, model, ensemble, rows, native_rows)
    return model


def save(model: Any, path: str | os.PathLike[str]) -> None:
    """Write a model to a ``.skops`` file.

    Raises InputError if the name does not end in .skops or the model holds what skops cannot
    write, MissingLibraryError without skops, OSError if the system refuses.
    """
    skops_files.save(model, path, KIND)


def _check_form(model: Any) -> None:
    """Raise InputError unless this module knows how to read the model, and it is safe to run."""
    check_fitted(model, KIND, "estimators_", _NEEDED)
    check_outputs(model, KIND)
    if not has_log_loss(model):
        raise InputError(
            f"loss={model.loss!r} gives other probabilities than its margins tell.",
            hint="train with loss='log_loss'.",
        )
    if model.estimators_.ndim != 2 or model.estimators_.shape[1] != model.n_trees_per_iteration_:
        refuse_form(KIND, "its iterations do not have one tree per class")
    if model.estimators_.size == 0:
        refuse_form(KIND, "it has no trees")
    for estimator in model.estimators_.ravel():
        if type(estimator).__name__ != "DecisionTreeRegressor":
            refuse_form(KIND, f"one of its trees is a {type(estimator).__name__}")
        tree = estimator.tree_
        # Reading the arrays of a tree that lies about its size reads foreign memory.
        if not (type(tree).__name__ == "Tree" and 1 <= tree.node_count <= tree.capacity):
            refuse_form(KIND, "a tree has another size than it says")
        if (tree.n_features, tree.n_outputs, tree.max_n_classes) != (model.n_features_in_, 1, 1):
            refuse_form(KIND, "a tree has other features or outputs than the model")
        if _FIELDS - set(tree.__getstate__()["nodes"].dtype.names):
            refuse_form(KIND, "the nodes of its trees have other fields")
    _check_init(model)


def _check_init(model: Any) -> None:
    constant = isinstance(model.init_, str) and model.init_ == "zero"
    if type(model.init_).__name__ == "DummyClassifier":
        constant = type(model.init_).__module__.startswith("sklearn.")
        constant = constant and model.init_.strategy == "prior"
    if not constant:
        raise InputError(
            f"init={model.init!r} gives every row a start of its own, which trees cannot hold.",
            hint="train with init=None or init='zero'.",
        )
    if _start(model).shape != (model.n_trees_per_iteration_,):
        refuse_form(KIND, "its start is not one number per class")


def _check_fits(reading: Reading, ensemble: Ensemble) -> None:
    # Without category splits it does not matter where categories would go.
    check_ensemble(reading.ensemble, ensemble, KIND, free=("categories_go",))
    if not np.array_equal(ensemble.init, reading.ensemble.init):
        refuse_trees(KIND, "it starts from other margins")
    if not (ensemble.tree_weight == reading.native.learning_rate).all():
        refuse_trees(KIND, f"its trees weigh other than {reading.native.learning_rate}")
    inner = ensemble.left >= 0
    if (ensemble.category_set[inner] >= 0).any():
        refuse_trees(KIND, "it splits by categories")
    if (ensemble.missing_kind[inner] == MISSING_ZERO).any():
        refuse_trees(KIND, "zeros count as missing")


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


def _same_splits(old: Ensemble, new: Ensemble, tree: int) -> bool:
    """Return whether all but the values of a tree is the same."""
    names = ("feature", "threshold", "left", "right", "missing_left", "count", "gain")
    return same_nodes(old, new, tree, names)


def _build(e: Ensemble, tree: int, old: Any) -> Any:
    """Return a new tree of scikit-learn's for one of the ensemble; ``old`` is one to go by."""
    at = span(e, tree)
    left, right = e.left[at].astype(np.int64), e.right[at].astype(np.int64)
    order, depth = order_nodes(left, right)
    inner = left >= 0
    count, value = count_and_average(order, left, right, e.count[at], e.value[at, 0])
    weight = count * (old.weighted_n_node_samples[0] / max(old.n_node_samples[0], 1) or 1.0)
    gain = np.where(np.isfinite(e.gain[at]), np.maximum(e.gain[at], 0.0), 0.0)
    impurity = np.zeros(len(left))
    for node in reversed(order):
        if inner[node]:
            both = [left[node], right[node]]
            weight[node] = weight[both].sum()
            impurity[node] = (gain[node] + weight[both] @ impurity[both]) / weight[node]
    nodes = np.zeros(len(left), dtype=old.__getstate__()["nodes"].dtype)
    nodes["left_child"], nodes["right_child"] = left, right
    nodes["feature"] = np.where(inner, e.feature[at], _NO_SPLIT)
    nodes["threshold"] = np.where(inner, e.threshold[at], float(_NO_SPLIT))
    nodes["n_node_samples"], nodes["weighted_n_node_samples"] = count, weight
    nodes["impurity"], nodes["missing_go_to_left"] = impurity, inner & e.missing_left[at]
    if (left[inner] <= np.flatnonzero(inner)).any() or (
        right[inner] <= np.flatnonzero(inner)
    ).any():
        # scikit-learn finds depths in one pass, which takes parents that come before children.
        place = np.empty(len(left), dtype=np.int64)
        place[order] = np.arange(len(order))
        nodes["left_child"][inner], nodes["right_child"][inner] = (
            place[left[inner]],
            place[right[inner]],
        )
        nodes, value = nodes[order], value[order]
    kind, arguments, _ = old.__reduce__()
    built = kind(*arguments)
    built.__setstate__(
        {
            "max_depth": int(depth.max()),
            "node_count": len(nodes),
            "nodes": nodes,
            "values": np.ascontiguousarray(value.reshape(-1, 1, 1)),
        }
    )
    return built


def _whole(number: Any) -> int | None:
    # scikit-learn also takes shares of the rows as floats: the model does not say of how many.
    return int(number) if isinstance(number, int | np.integer) else None
