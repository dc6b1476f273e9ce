"""HistGradientBoosting models of scikit-learn, opened as an Ensemble and closed again.

The ensemble's columns are those that the trees see. With category features scikit-learn puts these
first, as codes 0, 1, …, and the others after them; `rows` does the same, `native_rows` undoes it.
A category that was not seen in training is missing there, and goes where missing values go.

A model's file is a ``.skops`` archive; whatever comes from one is checked as every model is in
`open`, see `timbermark.libraries.skops_files`.
"""

from __future__ import annotations

import copy
import functools
from typing import Any

import numpy as np

from timbermark.dtypes import AnyArray, Flags, Reals
from timbermark.libraries import scikit_learn, skops_files
from timbermark.libraries.closing import changed_leaves, changed_thresholds, check_margins
from timbermark.libraries.contract import ForeignModel, PathLike, ancestors, find_texts
from timbermark.trees.construction import make_ensemble
from timbermark.trees.ensemble import Ensemble
from timbermark.trees.statistics import find_children, sum_leaves

name, margins = scikit_learn.name, scikit_learn.margins

_NEEDED = (
    *("_baseline_prediction", "_bin_mapper", "_preprocess_X", "_preprocessor"),
    *("_loss", "n_trees_per_iteration_", "n_features_in_"),
)
_FIELDS = {
    *("value", "count", "gain", "depth", "is_leaf", "left", "right", "feature_idx"),
    *("num_threshold", "missing_go_to_left", "bin_threshold", "is_categorical", "bitset_idx"),
}
_WORDS = 8  # of 32 bits each, in a set of categories


def is_model(model: object) -> bool:
    """Return whether an object is a HistGradientBoosting model, fitted or not.

    >>> is_model("a text")
    False
    """
    return not ancestors(model, "sklearn").isdisjoint(scikit_learn.HISTOGRAM_KINDS)


def open_file(path: PathLike) -> ForeignModel:
    """Return the model in a ``.skops`` file, checked as `open` checks it.

    Raises FileFormatError if it is another file, damaged, or holds anything but a plain model,
    MissingLibraryError without skops, OSError if the file cannot be opened.
    """
    return skops_files.open_file(path, scikit_learn.HISTOGRAM_KINDS, open)


def open(model: Any) -> ForeignModel:
    """Return a fitted model as neutral trees.

    Raises InputError if it is not such a model, not fitted, knows one class only, uses another
    loss, or is kept in a form that is not known; StateError if its margins are not ours.
    """
    from timbermark.libraries import histogram_boosting as adapter

    kind = _check_form(model)
    native = copy.deepcopy(model)
    trees = [tree for iteration in native._predictors for tree in iteration]
    nodes = np.concatenate([tree.nodes for tree in trees])
    start = np.cumsum([0, *(len(tree.nodes) for tree in trees)])
    leaf = nodes["is_leaf"].astype(bool)
    by_category = ~leaf & nodes["is_categorical"].astype(bool)
    category_set, sets = _category_sets_of(native, by_category)
    names = scikit_learn.names_of(native)
    columns = _columns_of(native)
    named = zip(columns.tolist(), _categories_of(native), strict=False)
    categories = {column: known.tolist() for column, known in named}
    texts = find_texts(categories)
    ensemble = make_ensemble(
        n_features=int(native.n_features_in_),
        n_outputs=int(native.n_trees_per_iteration_),
        objective=scikit_learn.objective_of(native, kind),
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
    foreign = ForeignModel(
        library=name,
        kind=type(model).__name__,
        ensemble=ensemble,
        classes=scikit_learn.classes_of(native, kind),
        feature_names=names,
        native=native,
        adapter=adapter,
        notes=("train_score_ and validation_score_ stay those of the model as it was trained.",),
        extra=columns,
        text_columns=frozenset(texts),
        known_texts=texts,
        takes_frames=bool(categories) and names is not None,
        task=scikit_learn.task_of(kind),
        input_columns=np.where(np.arange(len(columns)) < len(categories), -1, columns),
        told_monotone=native.monotonic_cst is not None,
    )
    check_margins(foreign, ensemble, native)
    return foreign


def rows(foreign: ForeignModel, X: Any) -> Reals:
    """Return what ``predict`` takes as columns of the ensemble, float64 [n, d].

    Raises InputError if scikit-learn does not take ``X``.
    """
    try:
        return np.asarray(foreign.native._preprocess_X(X, reset=False), dtype=np.float64)
    except (ValueError, TypeError) as error:
        scikit_learn.refuse_rows(foreign.kind, error)


def native_rows(foreign: ForeignModel, rows: Reals) -> Any:
    """Return an ``X`` for ``predict`` that stands for rows of the ensemble, float64 [n, d].

    A code that no category has becomes a missing value. Returns a DataFrame if the model knows
    names of features and pandas is installed, else an array, of objects if categories are.
    """
    native, columns = foreign.native, foreign.extra
    X: AnyArray = np.empty(rows.shape)
    X[:, columns] = rows
    for column, categories in zip(columns, _categories_of(native), strict=False):
        codes = X[:, column].astype(object)
        known = np.isin(X[:, column], np.arange(len(categories)))
        codes[~known] = np.nan
        codes[known] = categories[codes[known].astype(np.int64)]
        if categories.dtype.kind not in "biuf":
            X = X.astype(object)
        X[:, column] = codes
    return scikit_learn.name_columns(native, X)


def close(foreign: ForeignModel, ensemble: Ensemble) -> Any:
    """Return a model of the type that was opened, with the ensemble's leaf values and thresholds.

    Values of inner nodes move by the mean change of the leaves below them. The model counts rows
    but keeps no hessians, so that means are by counts. A gain changes as the variance between both
    sides of its split does. A root has the value 0, whatever its leaves are.
    """
    old = foreign.ensemble
    model = copy.deepcopy(foreign.native)
    rate = float(foreign.native.learning_rate)
    (before, spread), (after, new_spread) = (_means_and_spreads(e, rate) for e in (old, ensemble))
    start, inner = ensemble.tree_start, ensemble.left >= 0
    changed = np.unique(
        np.searchsorted(start, np.flatnonzero(changed_leaves(old, ensemble)), side="right") - 1
    )
    trees = [tree for iteration in model._predictors for tree in iteration]
    for number in changed.tolist():
        at = slice(int(start[number]), int(start[number + 1]))
        nodes, split = trees[number].nodes, inner[at]
        nodes["value"][1:][split[1:]] += (after - before)[at][1:][split[1:]]
        nodes["value"][~split] = ensemble.value[at, 0][~split]
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            gain = nodes["gain"][split] * (new_spread[at] / spread[at])[split]
        known = np.isfinite(gain) & (gain >= 0)
        nodes["gain"][split] = np.where(known, gain, nodes["gain"][split])
    if changed_thresholds(old, ensemble).any():
        _move_thresholds(model, old, ensemble)
    return model


def _move_thresholds(model: Any, old: Ensemble, new: Ensemble) -> None:
    """Write thresholds into a model's nodes, and let bins and the bin mapper follow.

    ``predict`` compares numbers with ``num_threshold``. Training that goes on (``warm_start``) asks
    the trees by bins instead, and bins the rows with edges found anew: so a split keeps its bin
    until its threshold passes an edge. The mapper's own edges are never asked again, but a
    threshold that is no edge would show that it was moved, and from where: so edges move along.
    """
    trees = [tree for iteration in model._predictors for tree in iteration]
    bins = np.concatenate([tree.nodes["bin_threshold"] for tree in trees]).astype(np.int64)
    moved = changed_thresholds(old, new)
    numeric = (new.left >= 0) & (new.category_set < 0) & np.isfinite(new.threshold)
    edges = list(model._bin_mapper.bin_thresholds_)
    for feature in np.unique(new.feature[moved]).tolist():
        here = np.flatnonzero(numeric & (new.feature == feature))
        known = np.asarray(edges[feature], dtype=np.float64)
        if bins[here].max() < len(known):  # else it is no mapper that scikit-learn made
            bins[here], edges[feature] = _rebin(known, bins[here], new.threshold[here])
    model._bin_mapper.bin_thresholds_ = edges
    for tree, first in zip(trees, new.tree_start.tolist(), strict=False):
        nodes = slice(first, first + len(tree.nodes))
        tree.nodes["num_threshold"][moved[nodes]] = new.threshold[nodes][moved[nodes]]
        tree.nodes["bin_threshold"] = bins[nodes]


def _rebin(edges: Reals, bins: AnyArray, threshold: Reals) -> tuple[AnyArray, Reals]:
    """Return the bins of splits of one feature, [n], and the edges of bins, for new thresholds.

    Splits with one threshold get one bin, and its edge is their threshold, as far as edges still
    rise: more thresholds between two edges than there were cannot all be edges.
    """
    at, group = np.unique(threshold, return_inverse=True)
    last_below = np.searchsorted(edges, at, side="right") - 1
    first_above = np.searchsorted(edges, at, side="left")
    lowest = np.full(len(at), len(edges))
    np.minimum.at(lowest, group, bins)
    # One of the two edges next to it, and the split's own where it is one of them.
    chosen = np.clip(lowest, last_below, first_above)
    found = edges.copy()
    found[chosen] = at
    while (falls := np.flatnonzero(np.diff(found) <= 0)).size:
        kept = np.union1d(falls, falls + 1)
        found[kept] = edges[kept]
    return chosen[group], found


def _means_and_spreads(e: Ensemble, rate: float) -> tuple[Reals, Reals]:
    """Return the mean weight below each node by counts, and the variance between its children."""
    leaf = e.left < 0
    count = sum_leaves(e, np.where(leaf, e.count, 0.0))
    total = sum_leaves(e, np.where(leaf, e.count * e.value[:, 0] / rate, 0.0))
    mean = np.divide(total, count, out=np.zeros(e.n_nodes), where=count > 0)
    left, right = (np.where(leaf, 0, side) for side in find_children(e))
    share = np.divide(count[left] * count[right], count, out=np.zeros(e.n_nodes), where=count > 0)
    return mean, np.where(leaf, 0.0, share * (mean[left] - mean[right]) ** 2)


def save(model: Any, path: PathLike) -> None:
    """Write a model to a ``.skops`` file.

    The scorer of early stopping is left out, which only continued training would need.

    Raises InputError if the name does not end in .skops or the model holds what skops cannot
    write, MissingLibraryError without skops, OSError if the system refuses.
    """
    skops_files.save(scikit_learn.without_scorer(model), path, type(model).__name__)


def _check_form(model: Any) -> str:
    """Return which kind a model is.

    Raises InputError unless this module knows how to read the model, and it is safe to run.
    """
    kind = scikit_learn.check_form(model, scikit_learn.HISTOGRAM_KINDS, "_predictors", _NEEDED)
    n_outputs = model.n_trees_per_iteration_
    baseline = model._baseline_prediction
    if baseline.dtype != np.float64 or baseline.shape != (1, n_outputs):
        scikit_learn.refuse_form(kind, "its baseline is not one number per class")
    if len(model._predictors) == 0 or any(len(i) != n_outputs for i in model._predictors):
        scikit_learn.refuse_form(kind, "its iterations do not have one tree per class")
    for tree in (tree for iteration in model._predictors for tree in iteration):
        _check_tree(tree, kind)
    _check_columns(model)
    return kind


def _check_tree(tree: Any, kind: str) -> None:
    nodes, bits = tree.nodes, tree.raw_left_cat_bitsets
    if nodes.ndim != 1 or nodes.size == 0 or _FIELDS - set(nodes.dtype.names or ()):
        scikit_learn.refuse_form(kind, "the nodes of its trees have other fields")
    if bits.dtype != np.uint32 or bits.ndim != 2 or bits.shape[1] != _WORDS:
        scikit_learn.refuse_form(kind, "the category sets of its trees have another form")
    by_category = (nodes["is_categorical"] != 0) & (nodes["is_leaf"] == 0)
    if (nodes["bitset_idx"][by_category] >= len(bits)).any():
        scikit_learn.refuse_form(kind, "a node names a category set that does not exist")


def _columns_of(model: Any) -> AnyArray:
    """Return which feature of ``predict`` each column of the trees is, int64 [d]."""
    if model._preprocessor is None:
        return np.arange(model.n_features_in_)
    return np.argsort(~np.asarray(model.is_categorical_, dtype=bool), kind="stable")


def _categories_of(model: Any) -> list[AnyArray]:
    """Return the categories of each category column, by code; a missing one has no code."""
    if model._preprocessor is None:
        return []
    found = []
    for categories in model._preprocessor.named_transformers_["encoder"].categories_:
        missing = len(categories) and categories[-1] != categories[-1]
        found.append(categories[:-1] if missing else categories)
    return found


def _category_sets_of(model: Any, by_category: Flags) -> tuple[AnyArray, list[tuple[int, ...]]]:
    """Return each node's set, int64 [N], -1 for none, and the members of each set."""
    trees = [tree for iteration in model._predictors for tree in iteration]
    sizes = [len(categories) for categories in _categories_of(model)]
    category_set = np.full(len(by_category), -1)
    numbers: dict[tuple[int, ...], int] = {}
    offset = 0
    for tree in trees:
        octets = tree.raw_left_cat_bitsets.astype("<u4").view(np.uint8)
        for node in np.flatnonzero(by_category[offset : offset + len(tree.nodes)]):
            feature, number = int(tree.nodes["feature_idx"][node]), tree.nodes["bitset_idx"][node]
            if not 0 <= feature < len(sizes):
                scikit_learn.refuse_form(
                    type(model).__name__, f"it splits column {feature} by categories"
                )
            # A split of the only category against missing ones names set 0, even if that belongs
            # to another split of another column: scikit-learn predicts so, hence it is read so.
            bits = np.unpackbits(octets[number], bitorder="little")[: sizes[feature]]
            members = tuple(np.flatnonzero(bits).tolist())
            category_set[offset + node] = numbers.setdefault(members, len(numbers))
        offset += len(tree.nodes)
    return category_set, list(numbers)


def _check_columns(model: Any) -> None:
    """Raise InputError unless the columns that the trees see are those that `_columns_of` says."""
    n_features, mapper, kind = model.n_features_in_, model._bin_mapper, type(model).__name__
    flags = np.zeros(n_features, dtype=bool)
    if model._preprocessor is not None:
        flags[: np.count_nonzero(model.is_categorical_)] = True
        (_, encoder, first), (_, numbers, second) = model._preprocessor.transformers_[:2]
        known = (
            np.shape(model.is_categorical_) == (n_features,)
            and np.array_equal(first, model.is_categorical_)
            and np.array_equal(second, np.logical_not(model.is_categorical_))
            and [t[1] for t in model._preprocessor.transformers_[2:]] in ([], ["drop"])
            and type(model._preprocessor).__name__ == "ColumnTransformer"
            and type(encoder).__name__ == "OrdinalEncoder"
            and bool(np.isnan(encoder.unknown_value))
            and type(numbers).__name__ == "FunctionTransformer"
            and isinstance(numbers.func, functools.partial)
            and numbers.func.func.__name__ == "check_array"
        )
        if not known:
            scikit_learn.refuse_form(kind, "its columns are prepared in another way")
    if not np.array_equal(mapper.is_categorical_, flags):
        scikit_learn.refuse_form(kind, "its trees see other category features than its columns are")
    for feature, categories in enumerate(_categories_of(model)):
        if not np.array_equal(mapper.bin_thresholds_[feature], np.arange(len(categories))):
            scikit_learn.refuse_form(kind, f"its trees know other categories of column {feature}")
