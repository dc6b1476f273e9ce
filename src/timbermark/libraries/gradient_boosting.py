"""GradientBoostingClassifier of scikit-learn: read into an Ensemble, and written back.

Its leaves hold steps before shrinkage: a margin is the start plus learning_rate · leaf, tree after
tree, so the learning rate is the ensemble's tree weight. Rows are cast to float32; missing values
and infinities are refused by the library.

A model's file is a ``.skops`` archive, which runs no code when it is read. `is_file` knows any such
archive by its beginning, `holds` looks inside for the type of its model. skops checks types only,
and scikit-learn follows a tree's child numbers without looking; so whatever comes from a file is
checked node by node, as every model is in `read`, before it predicts anything.
"""

from __future__ import annotations

import copy
import importlib
import io
import json
import os
import re
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from timbermark.dtypes import AnyArray, Reals
from timbermark.errors import FileFormatError, InputError, MissingLibraryError
from timbermark.files.limits import most_unpacked
from timbermark.libraries.probing import check_equal, probe_rows
from timbermark.libraries.reading import Reading, Training
from timbermark.trees import reference
from timbermark.trees.ensemble import MISSING_ZERO, Ensemble
from timbermark.trees.making import make_ensemble
from timbermark.trees.validation import validate_ensemble

NAME = "scikit-learn"
KIND = "GradientBoostingClassifier"

_LOSSES = {1: "HalfBinomialLoss"}  # by the number of trees per iteration; else:
_LOSS_OF_MANY = "HalfMultinomialLoss"
_FIELDS = {
    *("left_child", "right_child", "feature", "threshold", "impurity", "n_node_samples"),
    *("weighted_n_node_samples", "missing_go_to_left"),
}
_NO_CHILD, _NO_SPLIT = -1, -2  # what scikit-learn writes at leaves
_LARGEST = float(np.finfo(np.float32).max)
_SINGLE_ROWS = 3  # how many probes are also asked one by one

_SKOPS_HEAD = re.compile(rb"PK\x03\x04.{26}(?:schema\.json|[0-9a-f-]+\.(?:npy|npz|bin))", re.DOTALL)
_OLDEST_SKOPS = (0, 15)  # earlier ones call functions of numpy.random that a file names
# Beyond what skops trusts by itself; some of these only its newer versions do.
_TRUSTED = (
    "sklearn.tree._tree.Tree",
    "sklearn._loss.loss.HalfBinomialLoss",
    "sklearn._loss.loss.HalfMultinomialLoss",
    "sklearn._loss._loss.CyHalfMultinomialLoss",
    "sklearn._loss.link.LogitLink",
    "sklearn._loss.link.MultinomialLogit",
    "sklearn._loss.link.Interval",
)


def is_model(model: object) -> bool:
    """Return whether an object is a GradientBoostingClassifier, fitted or not.

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
    """Return whether a skops archive holds a GradientBoostingClassifier.

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
    _check_margins(reading, native, ensemble)
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
        raise InputError(
            f"{KIND} does not take these rows ({error}).", hint="give what predict takes."
        ) from error
    dense = checked.toarray() if hasattr(checked, "toarray") else checked
    return np.asarray(dense, dtype=np.float64)


def native_rows(reading: Reading, rows: AnyArray) -> Any:
    """Return an ``X`` for ``predict`` that stands for rows of the ensemble, float64 [n, d].

    The library takes no missing values: they become 0. What is beyond float32 becomes its largest
    number. Returns a DataFrame if the model knows names of features and pandas is installed.
    """
    X = np.clip(np.where(np.isnan(rows), 0.0, rows), -_LARGEST, _LARGEST)
    if getattr(reading.native, "feature_names_in_", None) is not None:
        try:
            import pandas as pd
        except ImportError:
            return X
        return pd.DataFrame(X, columns=reading.native.feature_names_in_)
    return X


def margins(model: Any, X: Any) -> Reals:
    """Return the model's own raw scores, float64 [n, outputs]."""
    scores: Reals = np.asarray(model.decision_function(X), dtype=np.float64)
    return scores.reshape(len(scores), -1)


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
            tree.value[leaf, 0, 0] = ensemble.value[_span(ensemble, t), 0][leaf]
        else:
            estimators[t].tree_ = _build(ensemble, t, tree)
    model.estimators_ = estimators.reshape(-1, ensemble.n_outputs)
    model.n_estimators_ = len(model.estimators_)
    for name in ("train_score_", "oob_improvement_", "oob_scores_"):
        if len(scores := getattr(model, name, ())):
            room = max(0, model.n_estimators_ - len(scores))
            setattr(model, name, np.pad(scores, (0, room), "edge")[: model.n_estimators_])
    _check_margins(reading, model, ensemble)
    return model


def save(model: Any, path: str | os.PathLike[str]) -> None:
    """Write a model to a ``.skops`` file.

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
    try:
        data = skops_io.dumps(model)
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
    if not hasattr(model, "estimators_") and not hasattr(model, "classes_"):
        raise InputError(f"This {KIND} is not fitted.", hint="call its fit first.")
    for name in (
        *("estimators_", "init_", "_loss", "_raw_predict_init", "classes_", "n_estimators_"),
        *("n_trees_per_iteration_", "n_features_in_"),
    ):
        if not hasattr(model, name):
            _refuse_form(f"it has no {name}")
    n_outputs, loss = model.n_trees_per_iteration_, type(model._loss).__name__
    if n_outputs != (1 if len(model.classes_) == 2 else len(model.classes_)):
        _refuse_form(f"it has {n_outputs} trees per iteration for {len(model.classes_)} classes")
    if loss != _LOSSES.get(n_outputs, _LOSS_OF_MANY):
        raise InputError(
            f"loss={model.loss!r} gives other probabilities than its margins tell.",
            hint="train with loss='log_loss'.",
        )
    if model.estimators_.ndim != 2 or model.estimators_.shape[1] != n_outputs:
        _refuse_form("its iterations do not have one tree per class")
    if model.estimators_.size == 0:
        _refuse_form("it has no trees")
    for estimator in model.estimators_.ravel():
        if type(estimator).__name__ != "DecisionTreeRegressor":
            _refuse_form(f"one of its trees is a {type(estimator).__name__}")
        tree = estimator.tree_
        # Reading the arrays of a tree that lies about its size reads foreign memory.
        if not (type(tree).__name__ == "Tree" and 1 <= tree.node_count <= tree.capacity):
            _refuse_form("a tree has another size than it says")
        if (tree.n_features, tree.n_outputs, tree.max_n_classes) != (model.n_features_in_, 1, 1):
            _refuse_form("a tree has other features or outputs than the model")
        if _FIELDS - set(tree.__getstate__()["nodes"].dtype.names):
            _refuse_form("the nodes of its trees have other fields")
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
        _refuse_form("its start is not one number per class")


def _check_fits(reading: Reading, ensemble: Ensemble) -> None:
    old = reading.ensemble
    for name in (
        *("n_features", "n_outputs", "objective", "init_last", "scale"),
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
    if not np.array_equal(ensemble.init, old.init):
        _refuse_trees("it starts from other margins")
    if not (ensemble.tree_weight == reading.native.learning_rate).all():
        _refuse_trees(f"its trees weigh other than {reading.native.learning_rate}")
    inner = ensemble.left >= 0
    if (ensemble.category_set[inner] >= 0).any():
        _refuse_trees("it splits by categories")
    if (ensemble.missing_kind[inner] == MISSING_ZERO).any():
        _refuse_trees("zeros count as missing")


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


def _span(ensemble: Ensemble, tree: int) -> slice:
    return slice(int(ensemble.tree_start[tree]), int(ensemble.tree_start[tree + 1]))


def _same_splits(old: Ensemble, new: Ensemble, tree: int) -> bool:
    """Return whether all but the values of a tree is the same."""
    names = ("feature", "threshold", "left", "right", "missing_left", "count", "gain")
    mine, given = _span(old, tree), _span(new, tree)
    return all(np.array_equal(getattr(old, n)[mine], getattr(new, n)[given]) for n in names)


def _build(e: Ensemble, tree: int, old: Any) -> Any:
    """Return a new tree of scikit-learn's for one of the ensemble; ``old`` is one to go by."""
    span = _span(e, tree)
    left, right = e.left[span].astype(np.int64), e.right[span].astype(np.int64)
    order, depth = [0], np.zeros(len(left), dtype=np.int64)
    for node in order:
        if left[node] >= 0:
            children = [int(left[node]), int(right[node])]
            depth[children] = depth[node] + 1
            order += children
    inner = left >= 0
    count, value = np.maximum(np.rint(e.count[span]), 1.0), e.value[span, 0].copy()
    weight = count * (old.weighted_n_node_samples[0] / max(old.n_node_samples[0], 1) or 1.0)
    gain = np.where(np.isfinite(e.gain[span]), np.maximum(e.gain[span], 0.0), 0.0)
    impurity = np.zeros(len(left))
    for node in reversed(order):
        if inner[node]:
            both = [left[node], right[node]]
            count[node], weight[node] = count[both].sum(), weight[both].sum()
            value[node] = np.average(value[both], weights=count[both])
            impurity[node] = (gain[node] + weight[both] @ impurity[both]) / weight[node]
    nodes = np.zeros(len(left), dtype=old.__getstate__()["nodes"].dtype)
    nodes["left_child"], nodes["right_child"] = left, right
    nodes["feature"] = np.where(inner, e.feature[span], _NO_SPLIT)
    nodes["threshold"] = np.where(inner, e.threshold[span], float(_NO_SPLIT))
    nodes["n_node_samples"], nodes["weighted_n_node_samples"] = count, weight
    nodes["impurity"], nodes["missing_go_to_left"] = impurity, inner & e.missing_left[span]
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
