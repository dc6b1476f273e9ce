"""HistGradientBoostingClassifier of scikit-learn: read into an Ensemble, and written back.

The ensemble's columns are those that the trees see. With category features scikit-learn puts these
first, as codes 0, 1, …, and the others after them; `rows` does the same, `native_rows` undoes it.
A category that was not seen in training is missing there, and goes where missing values go.

A model's file is a ``.skops`` archive, which runs no code when it is read. `is_file` knows any such
archive by its beginning, `holds` looks inside for the type of its model. skops checks types only,
and scikit-learn follows a tree's child numbers without looking; so whatever comes from a file is
checked node by node, as every model is in `read`, before it predicts anything.
"""

from __future__ import annotations

import copy
import functools
import importlib
import io
import json
import os
import re
import zipfile
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from timbermark.dtypes import AnyArray, Flags, Reals
from timbermark.errors import FileFormatError, InputError, MissingLibraryError
from timbermark.files.limits import most_unpacked
from timbermark.libraries.probing import check_equal, probe_rows
from timbermark.libraries.reading import Reading, Training
from timbermark.trees import reference
from timbermark.trees.ensemble import MISSING_NAN, MISSING_NONE, Ensemble
from timbermark.trees.making import make_ensemble
from timbermark.trees.validation import validate_ensemble

NAME = "scikit-learn"
KIND = "HistGradientBoostingClassifier"

_LOSSES = {1: "HalfBinomialLoss"}  # by the number of trees per iteration; else:
_LOSS_OF_MANY = "HalfMultinomialLoss"
_MIN_HESSIAN = 1e-3  # a constant in scikit-learn's grower
_FIELDS = {
    *("value", "count", "gain", "depth", "is_leaf", "left", "right", "feature_idx"),
    *("num_threshold", "missing_go_to_left", "bin_threshold", "is_categorical", "bitset_idx"),
}
_WORDS = 8  # of 32 bits each, in a set of categories
_SINGLE_ROWS = 3  # how many probes are also asked one by one

_SKOPS_HEAD = re.compile(rb"PK\x03\x04.{26}(?:schema\.json|[0-9a-f-]+\.(?:npy|npz|bin))", re.DOTALL)
_OLDEST_SKOPS = (0, 15)  # earlier ones call functions of numpy.random that a file names
# Beyond what skops trusts by itself; some of these only its newer versions do.
_TRUSTED = (
    "functools.partial",
    "sklearn.utils.validation.check_array",
    "sklearn.compose._column_transformer._RemainderColsList",  # a list, of 1.5 and 1.6
    "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
    "sklearn.ensemble._hist_gradient_boosting.binning._BinMapper",
    "sklearn._loss.loss.HalfBinomialLoss",
    "sklearn._loss.loss.HalfMultinomialLoss",
    "sklearn._loss._loss.CyHalfMultinomialLoss",
    "sklearn._loss.link.LogitLink",
    "sklearn._loss.link.MultinomialLogit",
    "sklearn._loss.link.Interval",
)


def is_model(model: object) -> bool:
    """Return whether an object is a HistGradientBoostingClassifier, fitted or not.

    >>> is_model("a text")
    False
    """
    return any(
        c.__name__ == KIND and c.__module__.startswith("sklearn.") for c in type(model).__mro__
    )


def is_file(head: bytes) -> bool:
    """Return whether a file that begins with ``head`` is a skops archive; `holds` says of what.

    >>> is_file(b"CBM1")
    False
    """
    return _SKOPS_HEAD.match(head) is not None


def holds(path: str | os.PathLike[str]) -> bool:
    """Return whether a skops archive holds a HistGradientBoostingClassifier.

    Raises FileFormatError if it is no skops archive, OSError if it cannot be opened.
    """
    return _kind_of(Path(path).read_bytes(), os.fspath(path)) == KIND


def load(path: str | os.PathLike[str]) -> Any:
    """Return the model in a ``.skops`` file, checked as `read` checks it.

    Raises FileFormatError if it is another file, damaged, or holds anything but a plain model,
    MissingLibraryError without skops, OSError if the file cannot be opened.
    """
    name, data = os.fspath(path), Path(path).read_bytes()
    found = _kind_of(data, name)
    if found != KIND:
        raise FileFormatError(f"{name} holds a {found}, not a {KIND}.", hint="give another file.")
    skops_io = _skops("to read a .skops file")
    try:
        model = skops_io.loads(data, trusted=list(_TRUSTED))
        read(model)
    except Exception as error:  # a hostile file can make any constructor raise anything
        raise FileFormatError(
            f"{name} does not hold a sound {KIND} ({getattr(error, 'message', error)}).",
            hint="it may be of another version of scikit-learn; if not, do not trust it.",
        ) from error
    return model


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
    category_set, sets = _category_sets(native, by_category)
    names = getattr(native, "feature_names_in_", None)
    columns = _columns(native)
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
    _check_margins(reading, native, ensemble)
    return reading


def rows(reading: Reading, X: Any) -> Reals:
    """Return what ``predict`` takes as columns of the ensemble, float64 [n, d].

    Raises InputError if scikit-learn does not take ``X``.
    """
    try:
        return np.asarray(reading.native._preprocess_X(X, reset=False), dtype=np.float64)
    except (ValueError, TypeError) as error:
        raise InputError(
            f"{KIND} does not take these rows ({error}).", hint="give what predict takes."
        ) from error


def native_rows(reading: Reading, rows: AnyArray) -> Any:
    """Return an ``X`` for ``predict`` that stands for rows of the ensemble, float64 [n, d].

    A code that no category has becomes a missing value. Returns a DataFrame if the model knows
    names of features and pandas is installed, else an array, of objects if categories are.
    """
    native, columns = reading.native, reading.extra["columns"]
    X: AnyArray = np.empty(rows.shape)
    X[:, columns] = rows
    for column, categories in zip(columns, _categories(native), strict=False):
        codes = X[:, column].astype(object)
        known = np.isin(X[:, column], np.arange(len(categories)))
        codes[~known] = np.nan
        codes[known] = categories[codes[known].astype(np.int64)]
        if categories.dtype.kind not in "biuf":
            X = X.astype(object)
        X[:, column] = codes
    if getattr(native, "feature_names_in_", None) is not None:
        try:
            import pandas as pd
        except ImportError:
            return X
        return pd.DataFrame(X, columns=native.feature_names_in_, dtype=X.dtype)
    return X


def margins(model: Any, X: Any) -> Reals:
    """Return the model's own raw scores, float64 [n, outputs]."""
    scores: Reals = np.asarray(model.decision_function(X), dtype=np.float64)
    return scores.reshape(len(scores), -1)


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
        leaf_values = ensemble.value[_span(ensemble, t), 0] * ensemble.tree_weight[t]
        if t < len(old) and _same_splits(reading.ensemble, ensemble, t):
            leaf = old[t].nodes["is_leaf"].astype(bool)
            old[t].nodes["value"][leaf] = leaf_values[leaf]
            trees.append(old[t])
        else:
            trees.append(_build(model, ensemble, t, leaf_values, type(old[0]), old[0].nodes.dtype))
    step = ensemble.n_outputs
    model._predictors = [trees[i : i + step] for i in range(0, len(trees), step)]
    model._baseline_prediction = ensemble.init.reshape(1, -1).copy()
    _check_margins(reading, model, ensemble)
    return model


def save(model: Any, path: str | os.PathLike[str]) -> None:
    """Write a model to a ``.skops`` file.

    The scorer of early stopping is left out, which only continued training would need.

    Raises InputError if the name does not end in .skops or the model holds what skops cannot
    write, MissingLibraryError without skops, OSError if the system refuses.
    """
    target = Path(path)
    if target.suffix != ".skops":
        raise InputError(
            f"{target.name} does not end in .skops, the one file of a {KIND} that is safe to read.",
            hint="name it so, or pickle the model yourself.",
        )
    skops_io = _skops("to write a .skops file")
    plain = object.__new__(type(model))
    plain.__dict__.update(vars(model))
    # Training with a scorer leaves a method of the model in the model, a circle for skops.
    plain.__dict__.pop("_raw_predict", None)
    if getattr(plain, "_scorer", None) is not None:
        plain._scorer = None
    try:
        data = skops_io.dumps(plain)
    except Exception as error:
        raise InputError(
            f"skops cannot write this {KIND} ({error}).",
            hint="look for parameters that are objects or functions of your own.",
        ) from error
    target.write_bytes(data)


def _check_form(model: Any) -> None:
    """Raise InputError unless this module knows how to read the model, and it is safe to run."""
    kind = type(model).__name__
    if not is_model(model):
        what = "a regressor" if kind.endswith("Regressor") else f"not a {KIND}"
        raise InputError(f"{kind} is {what}.", hint=f"give a fitted {KIND}.")
    if not hasattr(model, "_predictors") and not hasattr(model, "classes_"):
        raise InputError(f"This {KIND} is not fitted.", hint="call its fit first.")
    for name in (
        *("_predictors", "_baseline_prediction", "_bin_mapper", "_preprocess_X", "_preprocessor"),
        *("_loss", "classes_", "n_trees_per_iteration_", "n_features_in_"),
    ):
        if not hasattr(model, name):
            _refuse_form(f"it has no {name}")
    if len(model.classes_) < 2:
        raise InputError(
            f"This {KIND} knows {len(model.classes_)} class.", hint="two are needed to decide."
        )
    n_outputs, loss = model.n_trees_per_iteration_, type(model._loss).__name__
    if n_outputs != (1 if len(model.classes_) == 2 else len(model.classes_)):
        _refuse_form(f"it has {n_outputs} trees per iteration for {len(model.classes_)} classes")
    if loss != _LOSSES.get(n_outputs, _LOSS_OF_MANY):
        raise InputError(
            f"loss={loss} gives other probabilities than its margins tell.", hint="use log_loss."
        )
    baseline = model._baseline_prediction
    if baseline.dtype != np.float64 or baseline.shape != (1, n_outputs):
        _refuse_form("its baseline is not one number per class")
    if len(model._predictors) == 0 or any(len(i) != n_outputs for i in model._predictors):
        _refuse_form("its iterations do not have one tree per class")
    for tree in (tree for iteration in model._predictors for tree in iteration):
        _check_tree(tree)
    _check_columns(model)


def _check_tree(tree: Any) -> None:
    nodes, bits = tree.nodes, tree.raw_left_cat_bitsets
    if nodes.ndim != 1 or nodes.size == 0 or _FIELDS - set(nodes.dtype.names or ()):
        _refuse_form("the nodes of its trees have other fields")
    if bits.dtype != np.uint32 or bits.ndim != 2 or bits.shape[1] != _WORDS:
        _refuse_form("the category sets of its trees have another form")
    by_category = (nodes["is_categorical"] != 0) & (nodes["is_leaf"] == 0)
    if (nodes["bitset_idx"][by_category] >= len(bits)).any():
        _refuse_form("a node names a category set that does not exist")


def _check_columns(model: Any) -> None:
    """Raise InputError unless the columns that the trees see are those that `_columns` says."""
    n_features, mapper = model.n_features_in_, model._bin_mapper
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
            _refuse_form("its columns are prepared in another way")
    if not np.array_equal(mapper.is_categorical_, flags):
        _refuse_form("its trees see other category features than its columns are")
    for feature, categories in enumerate(_categories(model)):
        if not np.array_equal(mapper.bin_thresholds_[feature], np.arange(len(categories))):
            _refuse_form(f"its trees know other categories of column {feature}")


def _check_category_splits(model: Any, ensemble: Ensemble) -> None:
    """Raise InputError if a split asks for categories that its column does not have."""
    sizes = np.zeros(ensemble.n_features, dtype=np.int64)
    categories = _categories(model)
    sizes[: len(categories)] = [len(c) for c in categories]
    for node in np.flatnonzero(ensemble.category_set >= 0).tolist():
        feature, members = ensemble.feature[node], _members(ensemble, node)
        if feature >= len(categories) or members.max(initial=-1) >= sizes[feature]:
            raise InputError(
                f"A split of column {feature} asks for category {members.max(initial=0)}, which "
                f"it does not have.",
                hint="give the ensemble that was read, with other leaves or subtrees.",
            )


def _check_fits(reading: Reading, ensemble: Ensemble) -> None:
    old = reading.ensemble
    for name in (
        *("n_features", "n_outputs", "objective", "categories_go", "init_last", "scale"),
        *("strict", "input_dtype", "sum_dtype", "zero_is_positive"),
    ):
        mine, given = getattr(old, name), getattr(ensemble, name)
        if mine != given:
            raise InputError(
                f"{name}={given!r}, but a {KIND} needs {mine!r}.",
                hint="start from the ensemble that was read.",
            )
    turns = np.arange(ensemble.n_trees) % ensemble.n_outputs
    if not (ensemble.n_trees and turns[-1] == ensemble.n_outputs - 1):
        _refuse_trees(f"{ensemble.n_trees} trees are not whole iterations")
    if ensemble.value.shape[1] != 1 or not np.array_equal(ensemble.tree_output, turns):
        _refuse_trees("its trees do not take turns over the classes")
    inner = (ensemble.left >= 0) & (ensemble.category_set < 0)
    if not np.isin(ensemble.missing_kind[inner], (MISSING_NAN, MISSING_NONE)).all():
        _refuse_trees("zeros count as missing")
    _check_category_splits(reading.native, ensemble)


def _refuse_trees(reason: str) -> NoReturn:
    raise InputError(
        f"A {KIND} cannot hold this ensemble: {reason}.",
        hint="start from the ensemble that was read.",
    )


def _refuse_form(reason: str) -> NoReturn:
    import sklearn

    raise InputError(
        f"This {KIND} is kept in a form that is not known: {reason}.",
        hint=f"scikit-learn 1.4 to 1.9 are supported, this is {sklearn.__version__}; "
        "fit the model anew if it comes from an older one.",
    )


def _check_margins(reading: Reading, model: Any, ensemble: Ensemble) -> None:
    # Thresholds beyond float32 are asked as infinities, which is no reason for a warning.
    with np.errstate(over="ignore"):
        X = native_rows(reading, probe_rows(ensemble, n_rows=128))
    ours = reference.margins(ensemble, rows(reading, X))
    check_equal(ours, margins(model, X), NAME)
    for i in range(_SINGLE_ROWS):
        check_equal(ours[i : i + 1], margins(model, X[i : i + 1]), NAME)


def _columns(model: Any) -> AnyArray:
    """Return which feature of ``predict`` each column of the trees is, int64 [d]."""
    if model._preprocessor is None:
        return np.arange(model.n_features_in_)
    return np.argsort(~np.asarray(model.is_categorical_, dtype=bool), kind="stable")


def _categories(model: Any) -> list[AnyArray]:
    """Return the categories of each category column, by code; a missing one has no code."""
    if model._preprocessor is None:
        return []
    found = []
    for categories in model._preprocessor.named_transformers_["encoder"].categories_:
        missing = len(categories) and categories[-1] != categories[-1]
        found.append(categories[:-1] if missing else categories)
    return found


def _category_sets(model: Any, by_category: Flags) -> tuple[AnyArray, list[tuple[int, ...]]]:
    """Return each node's set, int64 [N], -1 for none, and the members of each set."""
    trees = [tree for iteration in model._predictors for tree in iteration]
    sizes = [len(categories) for categories in _categories(model)]
    category_set = np.full(len(by_category), -1)
    numbers: dict[tuple[int, ...], int] = {}
    offset = 0
    for tree in trees:
        octets = tree.raw_left_cat_bitsets.astype("<u4").view(np.uint8)
        for node in np.flatnonzero(by_category[offset : offset + len(tree.nodes)]):
            feature, number = int(tree.nodes["feature_idx"][node]), tree.nodes["bitset_idx"][node]
            if not 0 <= feature < len(sizes):
                _refuse_form(f"it splits column {feature} by categories")
            # A split of the only category against missing ones names set 0, even if that belongs
            # to another split of another column: scikit-learn predicts so, hence it is read so.
            bits = np.unpackbits(octets[number], bitorder="little")[: sizes[feature]]
            members = tuple(np.flatnonzero(bits).tolist())
            category_set[offset + node] = numbers.setdefault(members, len(numbers))
        offset += len(tree.nodes)
    return category_set, list(numbers)


def _members(ensemble: Ensemble, node: int) -> AnyArray:
    number = ensemble.category_set[node]
    first, last = ensemble.category_offsets[number : number + 2]
    return ensemble.category_values[first:last]


def _span(ensemble: Ensemble, tree: int) -> slice:
    return slice(int(ensemble.tree_start[tree]), int(ensemble.tree_start[tree + 1]))


def _same_splits(old: Ensemble, new: Ensemble, tree: int) -> bool:
    """Return whether all but the values of a tree is the same."""
    mine, given = _span(old, tree), _span(new, tree)
    names = ("feature", "threshold", "left", "right", "missing_left", "missing_kind")
    for name in (*names, "count", "gain"):
        if not np.array_equal(getattr(old, name)[mine], getattr(new, name)[given]):
            return False
    sets = (old.category_set[mine] >= 0, new.category_set[given] >= 0)
    return np.array_equal(*sets) and all(
        np.array_equal(_members(old, mine.start + node), _members(new, given.start + node))
        for node in np.flatnonzero(sets[0]).tolist()
    )


def _build(
    model: Any, e: Ensemble, tree: int, leaf_values: Reals, kind: type, dtype: np.dtype[Any]
) -> Any:
    """Return a new tree of scikit-learn's ``kind`` for one of the ensemble."""
    span = _span(e, tree)
    left, right, feature = e.left[span], e.right[span], e.feature[span]
    leaf, by_category = left < 0, e.category_set[span] >= 0
    nodes = np.zeros(len(left), dtype=dtype)
    order, depth = [0], np.zeros(len(left), dtype=np.int64)
    for node in order:
        if not leaf[node]:
            children = [int(left[node]), int(right[node])]
            depth[children] = depth[node] + 1
            order += children
    count, value = np.maximum(np.rint(e.count[span]), 1.0), leaf_values.copy()
    for node in reversed(order):
        if not leaf[node]:
            both = [left[node], right[node]]
            count[node] = count[both].sum()
            value[node] = np.average(value[both], weights=count[both])
    nodes["value"], nodes["count"], nodes["depth"] = value, count, depth
    nodes["gain"] = np.where(leaf, -1.0, np.where(np.isfinite(e.gain[span]), e.gain[span], 0.0))
    nodes["is_leaf"], nodes["is_categorical"] = leaf, by_category
    nodes["left"], nodes["right"] = np.where(leaf, 0, left), np.where(leaf, 0, right)
    nodes["feature_idx"] = np.where(leaf, 0, feature)
    nodes["num_threshold"] = np.where(leaf | by_category, 0.0, e.threshold[span])
    # Where nothing is missing NaN counts as 0, which is a side known beforehand.
    as_zero = (e.missing_kind[span] == MISSING_NONE) & ~by_category
    nodes["missing_go_to_left"] = ~leaf & np.where(
        as_zero, e.threshold[span] >= 0.0, e.missing_left[span]
    )
    for node in np.flatnonzero(~leaf & ~by_category).tolist():
        # Only continued training looks at bins; the nearest one below is as good as it gets.
        edges, edge = model._bin_mapper.bin_thresholds_[feature[node]], e.threshold[span][node]
        below = len(edges) if edge == np.inf else np.searchsorted(edges, edge, side="right") - 1
        nodes["bin_threshold"][node] = max(int(below), 0)
    bits = np.zeros((np.count_nonzero(by_category), _WORDS * 32), dtype=np.uint8)
    for number, node in enumerate(np.flatnonzero(by_category).tolist()):
        nodes["bitset_idx"][node] = number
        bits[number, _members(e, span.start + node)] = 1
    words = np.packbits(bits, axis=1, bitorder="little").view("<u4").astype(np.uint32)
    # A category's bin has its code as number, so that both sets are the same.
    return kind(nodes, words.copy(), words)


def _whole(number: Any) -> int | None:
    return None if number is None else int(number)


def _skops(purpose: str) -> Any:
    try:
        version = importlib.import_module("skops").__version__
        skops_io = importlib.import_module("skops.io")
    except ImportError:
        raise MissingLibraryError.for_extra("skops", purpose) from None
    if tuple(int(n) for n in re.findall(r"\d+", version)[:2]) < _OLDEST_SKOPS:
        raise MissingLibraryError(
            f"skops {version} is too old {purpose}: what it lets pass is not always safe.",
            hint='pip install --upgrade "timbermark[skops]"',
        )
    return skops_io


def _kind_of(data: bytes, name: str) -> str:
    """Return the type of the object in a skops archive, without building it."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            unpacked = sum(info.file_size for info in archive.infolist())
            if unpacked > most_unpacked(len(data)):
                raise ValueError(f"it would unpack to {unpacked} bytes")
            schema = json.loads(archive.read("schema.json"))
        kind, module = schema["__class__"], schema["__module__"]
        return str(kind) if str(module).startswith("sklearn.") else f"{module}.{kind}"
    except Exception as error:
        raise FileFormatError(
            f"{name} is not a skops archive ({error}).",
            hint="pickle and joblib files are not read, since reading them can run any code; load "
            "the model yourself if you trust it, and give that.",
        ) from error
