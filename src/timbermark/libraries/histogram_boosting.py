"""HistGradientBoostingClassifier of scikit-learn: read into an Ensemble, and written back.

The ensemble's columns are those that the trees see. With category features scikit-learn puts these
first, as codes 0, 1, …, and the others after them; `rows` does the same, `native_rows` undoes it.
A category that was not seen in training is missing there, and goes where missing values go.

A model's file is a ``.skops`` archive; whatever comes from one is checked as every model is in
`read`, see `timbermark.libraries.skops_files`.
"""

from __future__ import annotations

import copy
import os
from typing import Any

import numpy as np

from timbermark.dtypes import AnyArray, Reals
from timbermark.errors import InputError
from timbermark.libraries import skops_files
from timbermark.libraries.histogram_columns import (
    KIND,
    categories_of,
    category_sets_of,
    check_category_splits,
    check_columns,
    columns_of,
    members_of,
)
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
from timbermark.trees.ensemble import MISSING_NAN, MISSING_NONE, Ensemble
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

_MIN_HESSIAN = 1e-3  # a constant in scikit-learn's grower
_NEEDED = (
    *("_baseline_prediction", "_bin_mapper", "_preprocess_X", "_preprocessor"),
    *("_loss", "classes_", "n_trees_per_iteration_", "n_features_in_"),
)
_FIELDS = {
    *("value", "count", "gain", "depth", "is_leaf", "left", "right", "feature_idx"),
    *("num_threshold", "missing_go_to_left", "bin_threshold", "is_categorical", "bitset_idx"),
}
_WORDS = 8  # of 32 bits each, in a set of categories
# Beyond what skops trusts by itself; some of these only its newer versions do.
_TRUSTED = (
    "functools.partial",
    "sklearn.utils.validation.check_array",
    "sklearn.compose._column_transformer._RemainderColsList",  # a list, of 1.5 and 1.6
    "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
    "sklearn.ensemble._hist_gradient_boosting.binning._BinMapper",
    *TRUSTED,
)


def is_model(model: object) -> bool:
    """Return whether an object is a HistGradientBoostingClassifier, fitted or not.

    >>> is_model("a text")
    False
    """
    return is_kind(model, KIND)


def holds(path: str | os.PathLike[str]) -> bool:
    """Return whether a skops archive holds a HistGradientBoostingClassifier.

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
    """Return a fitted model as neutral trees; ``extra["columns"]`` says which feature each is.

    Raises InputError if it is not such a model, not fitted, knows one class only, uses another
    loss, or is kept in a form that is not known; StateError if its margins are not ours.
    """
    _check_form(model)
    native = copy.deepcopy(model)
    trees = [tree for iteration in native._predictors for tree in iteration]
    nodes = np.concatenate([tree.nodes for tree in trees])
    start = np.cumsum([0, *(len(tree.nodes) for tree in trees)])
    leaf = nodes["is_leaf"].astype(bool)
    by_category = ~leaf & nodes["is_categorical"].astype(bool)
    category_set, sets = category_sets_of(native, by_category)
    names = getattr(native, "feature_names_in_", None)
    columns = columns_of(native)
    ensemble = make_ensemble(
        n_features=int(native.n_features_in_),
        n_outputs=int(native.n_trees_per_iteration_),
        tree_start=start,
        feature=np.where(leaf, -1, nodes["feature_idx"]),
        threshold=np.where(leaf | by_category, 0.0, nodes["num_threshold"]),
        left=np.where(leaf, -1, nodes["left"].astype(np.int64)),
        right=np.where(leaf, -1, nodes["right"].astype(np.int64)),
        missing_left=~leaf & nodes["missing_go_to_left"].astype(bool),
        category_set=category_set,
        category_offsets=np.cumsum([0, *map(len, sets)]),
        category_values=np.array([c for members in sets for c in members], dtype=np.int32),
        value=nodes["value"],
        count=nodes["count"],
        gain=np.where(leaf, 0.0, nodes["gain"]),
        init=native._baseline_prediction[0],
    )
    reading = Reading(
        library=NAME,
        kind=type(model).__name__,
        ensemble=ensemble,
        classes=native.classes_.copy(),
        feature_names=None if names is None else tuple(str(names[c]) for c in columns),
        training=Training(
            learning_rate=float(native.learning_rate),
            l2_regularization=float(native.l2_regularization),
            min_hessian=_MIN_HESSIAN,
            min_samples_leaf=int(native.min_samples_leaf),
            max_leaf_nodes=_whole(native.max_leaf_nodes),
            max_depth=_whole(native.max_depth),
        ),
        native=native,
        notes=("train_score_ and validation_score_ stay those of the model as it was trained.",),
        extra={"columns": columns},
    )
    check_margins(reading, native, ensemble, rows, native_rows)
    return reading


def rows(reading: Reading, X: Any) -> Reals:
    """Return what ``predict`` takes as columns of the ensemble, float64 [n, d].

    Raises InputError if scikit-learn does not take ``X``.
    """
    try:
        return np.asarray(reading.native._preprocess_X(X, reset=False), dtype=np.float64)
    except (ValueError, TypeError) as error:
        refuse_rows(KIND, error)


def native_rows(reading: Reading, rows: AnyArray) -> Any:
    """Return an ``X`` for ``predict`` that stands for rows of the ensemble, float64 [n, d].

    A code that no category has becomes a missing value. Returns a DataFrame if the model knows
    names of features and pandas is installed, else an array, of objects if categories are.
    """
    native, columns = reading.native, reading.extra["columns"]
    X: AnyArray = np.empty(rows.shape)
    X[:, columns] = rows
    for column, categories in zip(columns, categories_of(native), strict=False):
        codes = X[:, column].astype(object)
        known = np.isin(X[:, column], np.arange(len(categories)))
        codes[~known] = np.nan
        codes[known] = categories[codes[known].astype(np.int64)]
        if categories.dtype.kind not in "biuf":
            X = X.astype(object)
        X[:, column] = codes
    return name_columns(native, X)


def write(reading: Reading, ensemble: Ensemble) -> Any:
    """Return a model of the type that was read, with the trees of ``ensemble``.

    A tree whose splits and statistics are those that were read keeps all but its leaves. In others
    the counts of inner nodes are those of their leaves (of which none counts less than 1, so that
    every share is defined), and inner values are the means of their leaves.

    Raises InputError if the ensemble is not sound or is not for this model: scikit-learn has no
    place for other shapes, comparisons or kinds of missing values; StateError if the written
    model's margins are not those of the ensemble.
    """
    validate_ensemble(ensemble)
    _check_fits(reading, ensemble)
    model = copy.deepcopy(reading.native)
    old = [tree for iteration in model._predictors for tree in iteration]
    trees = []
    for t in range(ensemble.n_trees):
        leaf_values = ensemble.value[span(ensemble, t), 0] * ensemble.tree_weight[t]
        if t < len(old) and _same_splits(reading.ensemble, ensemble, t):
            leaf = old[t].nodes["is_leaf"].astype(bool)
            old[t].nodes["value"][leaf] = leaf_values[leaf]
            trees.append(old[t])
        else:
            trees.append(_build(model, ensemble, t, leaf_values, type(old[0]), old[0].nodes.dtype))
    step = ensemble.n_outputs
    model._predictors = [trees[i : i + step] for i in range(0, len(trees), step)]
    model._baseline_prediction = ensemble.init.reshape(1, -1).copy()
    check_margins(reading, model, ensemble, rows, native_rows)
    return model


def save(model: Any, path: str | os.PathLike[str]) -> None:
    """Write a model to a ``.skops`` file.

    The scorer of early stopping is left out, which only continued training would need.

    Raises InputError if the name does not end in .skops or the model holds what skops cannot
    write, MissingLibraryError without skops, OSError if the system refuses.
    """
    skops_files.save(model, path, KIND, strip=_without_scorer)


def _without_scorer(model: Any) -> Any:
    plain = object.__new__(type(model))
    plain.__dict__.update(vars(model))
    # Training with a scorer leaves a method of the model in the model, a circle for skops.
    plain.__dict__.pop("_raw_predict", None)
    if getattr(plain, "_scorer", None) is not None:
        plain._scorer = None
    return plain


def _check_form(model: Any) -> None:
    """Raise InputError unless this module knows how to read the model, and it is safe to run."""
    check_fitted(model, KIND, "_predictors", _NEEDED)
    if len(model.classes_) < 2:
        raise InputError(
            f"This {KIND} knows {len(model.classes_)} class.", hint="two are needed to decide."
        )
    check_outputs(model, KIND)
    if not has_log_loss(model):
        raise InputError(
            f"loss={type(model._loss).__name__} gives other probabilities than its margins tell.",
            hint="use log_loss.",
        )
    n_outputs = model.n_trees_per_iteration_
    baseline = model._baseline_prediction
    if baseline.dtype != np.float64 or baseline.shape != (1, n_outputs):
        refuse_form(KIND, "its baseline is not one number per class")
    if len(model._predictors) == 0 or any(len(i) != n_outputs for i in model._predictors):
        refuse_form(KIND, "its iterations do not have one tree per class")
    for tree in (tree for iteration in model._predictors for tree in iteration):
        _check_tree(tree)
    check_columns(model)


def _check_tree(tree: Any) -> None:
    nodes, bits = tree.nodes, tree.raw_left_cat_bitsets
    if nodes.ndim != 1 or nodes.size == 0 or _FIELDS - set(nodes.dtype.names or ()):
        refuse_form(KIND, "the nodes of its trees have other fields")
    if bits.dtype != np.uint32 or bits.ndim != 2 or bits.shape[1] != _WORDS:
        refuse_form(KIND, "the category sets of its trees have another form")
    by_category = (nodes["is_categorical"] != 0) & (nodes["is_leaf"] == 0)
    if (nodes["bitset_idx"][by_category] >= len(bits)).any():
        refuse_form(KIND, "a node names a category set that does not exist")


def _check_fits(reading: Reading, ensemble: Ensemble) -> None:
    check_ensemble(reading.ensemble, ensemble, KIND)
    inner = (ensemble.left >= 0) & (ensemble.category_set < 0)
    if not np.isin(ensemble.missing_kind[inner], (MISSING_NAN, MISSING_NONE)).all():
        refuse_trees(KIND, "zeros count as missing")
    check_category_splits(reading.native, ensemble)


def _same_splits(old: Ensemble, new: Ensemble, tree: int) -> bool:
    """Return whether all but the values of a tree is the same."""
    names = ("feature", "threshold", "left", "right", "missing_left", "missing_kind")
    if not same_nodes(old, new, tree, (*names, "count", "gain")):
        return False
    mine, given = span(old, tree), span(new, tree)
    sets = (old.category_set[mine] >= 0, new.category_set[given] >= 0)
    return np.array_equal(*sets) and all(
        np.array_equal(members_of(old, mine.start + node), members_of(new, given.start + node))
        for node in np.flatnonzero(sets[0]).tolist()
    )


def _build(
    model: Any, e: Ensemble, tree: int, leaf_values: Reals, kind: type, dtype: np.dtype[Any]
) -> Any:
    """Return a new tree of scikit-learn's ``kind`` for one of the ensemble."""
    at = span(e, tree)
    left, right, feature = e.left[at], e.right[at], e.feature[at]
    leaf, by_category = left < 0, e.category_set[at] >= 0
    nodes = np.zeros(len(left), dtype=dtype)
    order, depth = order_nodes(left, right)
    count, value = count_and_average(order, left, right, e.count[at], leaf_values)
    nodes["value"], nodes["count"], nodes["depth"] = value, count, depth
    nodes["gain"] = np.where(leaf, -1.0, np.where(np.isfinite(e.gain[at]), e.gain[at], 0.0))
    nodes["is_leaf"], nodes["is_categorical"] = leaf, by_category
    nodes["left"], nodes["right"] = np.where(leaf, 0, left), np.where(leaf, 0, right)
    nodes["feature_idx"] = np.where(leaf, 0, feature)
    nodes["num_threshold"] = np.where(leaf | by_category, 0.0, e.threshold[at])
    # Where nothing is missing NaN counts as 0, which is a side known beforehand.
    as_zero = (e.missing_kind[at] == MISSING_NONE) & ~by_category
    nodes["missing_go_to_left"] = ~leaf & np.where(
        as_zero, e.threshold[at] >= 0.0, e.missing_left[at]
    )
    for node in np.flatnonzero(~leaf & ~by_category).tolist():
        # Only continued training looks at bins; the nearest one below is as good as it gets.
        edges, edge = model._bin_mapper.bin_thresholds_[feature[node]], e.threshold[at][node]
        below = len(edges) if edge == np.inf else np.searchsorted(edges, edge, side="right") - 1
        nodes["bin_threshold"][node] = max(int(below), 0)
    bits = np.zeros((np.count_nonzero(by_category), _WORDS * 32), dtype=np.uint8)
    for number, node in enumerate(np.flatnonzero(by_category).tolist()):
        nodes["bitset_idx"][node] = number
        bits[number, members_of(e, at.start + node)] = 1
    words = np.packbits(bits, axis=1, bitorder="little").view("<u4").astype(np.uint32)
    # A category's bin has its code as number, so that both sets are the same.
    return kind(nodes, words.copy(), words)


def _whole(number: Any) -> int | None:
    return None if number is None else int(number)
