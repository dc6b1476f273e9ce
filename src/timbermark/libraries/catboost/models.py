"""CatBoost's models and their files: trees, classes, and rows as the trees see them.

The loss says what a model was trained for, and how its margins become answers.
"""

from __future__ import annotations

import json
import os
import re
import string
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from timbermark.dtypes import AnyArray, Reals
from timbermark.errors import FileFormatError, InputError
from timbermark.libraries import contract
from timbermark.libraries.catboost.cbm import MAGIC, Contents, Record, pack, unpack
from timbermark.libraries.catboost.soundness import check_contents
from timbermark.libraries.catboost.trees import (
    Nodes,
    count_derived,
    fixed_borders,
    list_splits,
    move_borders,
    read_nodes,
)
from timbermark.libraries.closing import changed_thresholds
from timbermark.libraries.contract import ForeignModel, PathLike, Task
from timbermark.trees.construction import make_ensemble
from timbermark.trees.ensemble import Ensemble, Objective
from timbermark.trees.reference import check_width
from timbermark.trees.statistics import sum_leaves

_LOSSES: dict[str, tuple[Task, Objective]] = {
    **dict.fromkeys(("Logloss", "CrossEntropy"), ("classification", "logistic")),
    "MultiClass": ("classification", "softmax"),
    "MultiClassOneVsAll": ("classification", "sigmoid"),
    **dict.fromkeys(
        ("RMSE", "MAE", "Quantile", "MAPE", "Lq", "Huber", "Expectile", "LogCosh"),
        ("regression", "identity"),
    ),
    # What CatBoostRegressor.predict takes the exponential of.
    **dict.fromkeys(("Poisson", "Tweedie"), ("regression", "exponential")),
    **dict.fromkeys(
        (
            *("YetiRank", "YetiRankPairwise", "PairLogit", "PairLogitPairwise"),
            *("QueryRMSE", "QuerySoftMax", "QueryCrossEntropy", "StochasticRank", "LambdaMart"),
        ),
        ("ranking", "identity"),
    ),
}
"""What a model is for, and how its margins become answers, by the loss that it was trained with."""
_SURVIVAL = ("Cox", "SurvivalAft")
_MONOTONE = re.compile(r'"monotone_constraints":\s*\{\s*"')
_ESTIMATORS: dict[Task, str] = {
    "classification": "CatBoostClassifier",
    "regression": "CatBoostRegressor",
    "ranking": "CatBoostRanker",
}


def find_loss(contents: Contents) -> str | None:
    """Return the name of the loss that a model was trained with, None if it does not say."""
    loss = _find(contents, "loss_function", "type")
    if loss is None:
        loss = _parse(contents.info.get(b"loss_function", b"{}")).get("type")
    return loss if isinstance(loss, str) else None


def find_task(contents: Contents, model: Any) -> tuple[Task, Objective]:
    """Return what a model is for, and how its margins become answers.

    Raises InputError for losses that cannot be marked, and where the model's class does not match.
    """
    loss = str(find_loss(contents))
    task, objective = _LOSSES.get(loss, (None, None))
    many = contents.trees["ApproxDimension"] > 1
    if loss in _SURVIVAL:
        raise InputError(
            f"The CatBoost model was trained with {loss}, a loss of survival, whose answers are "
            "hazards or times that may be censored.",
            hint="use a loss of classification, regression or ranking.",
        )
    if task is None or objective is None or (objective in ("softmax", "sigmoid")) != many:
        if many and (task is not None or "Multi" in loss or "Uncertainty" in loss):
            raise InputError(
                f"The CatBoost model answers with several numbers at once ({loss}).",
                hint="train one model for each.",
            )
        raise InputError(
            f"The CatBoost model was trained with the loss {loss}.",
            hint=f"supported are {', '.join(_LOSSES)}.",
        )
    kinds = contract.ancestors(model, "catboost") & set(_ESTIMATORS.values())
    if kinds and _ESTIMATORS[task] not in kinds:
        raise InputError(
            f"A {type(model).__name__} with a loss of {task} does not predict what the loss is "
            "for.",
            hint=f"load it as a {_ESTIMATORS[task]}.",
        )
    # A bare CatBoost gives margins, whatever the loss.
    return task, objective if kinds or task != "regression" else "identity"


def refuse_threshold(contents: Contents) -> None:
    """Raise InputError if the model's labels are not the most likely ones."""
    threshold = contents.info.get(b"binclass_probability_threshold")
    if threshold is not None and float(threshold) != 0.5:
        raise InputError(
            f"The CatBoost model decides at the probability {threshold.decode()}, not at 0.5.",
            hint="call set_probability_threshold(0.5), and set it again afterwards.",
        )


def _find(contents: Contents, *keys: str) -> Any:
    """Return a parameter that the model was trained with, or None."""
    found: Any = _parse(contents.info.get(b"params", b"{}"))
    for key in keys:
        found = found.get(key) if isinstance(found, dict) else None
    return found


def _parse(text: bytes) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    return found if isinstance(found, dict) else {}


name = "CatBoost"

_BYTES = "__model"
_CATEGORIES = [*(str(i) for i in range(64)), *string.ascii_letters, "True", "False", "nan", ""]
# The other format of CatBoost's, which is told apart in order to say how to convert it.
_JSON_HEAD = re.compile(
    rb'\s*\{\s*"(?:ctr_data|features_info|model_info|oblivious_trees|scale_and_bias|trees)"\s*:'
)
_HINT = "write it again with CatBoost's save_model."


@dataclass(frozen=True, slots=True, eq=False)
class CatBoostExtra:
    """What only this adapter needs of a model.

    ``categories`` is a model that answers the splits of categories, None if there are none.
    """

    contents: Contents
    n_columns: int  # of the table that the model predicts on
    leaf: AnyArray  # [N] which of CatBoost's leaves a node is, -1 at inner nodes
    categories: Any


def is_model(model: Any) -> bool:
    """Return whether an object is a CatBoost model, fitted or not, without importing CatBoost.

    >>> is_model("model.cbm")
    False
    """
    return "CatBoost" in contract.ancestors(model, "catboost")


def open(model: Any) -> ForeignModel:
    """Return a fitted model as an ensemble; the model itself is not touched.

    The ensemble has a column for each of the table's and then one for each split of a category,
    which `rows` fills.

    Raises InputError if the model is not fitted, not of one of the losses that we know, has
    features of text or embeddings, or decides at another probability than one half.
    """
    if not model.is_fitted():
        raise contract.unfitted(model)
    try:
        contents = _sound(serialize(model))
    except FileFormatError as error:
        raise InputError(error.message, error.hint) from None
    return open_contents(model, None, contents)


def open_contents(model: Any, native: Any, contents: Contents) -> ForeignModel:
    """Return a model whose contents have been checked; ``native`` None asks for a copy.

    Raises InputError as `open` does.
    """
    from timbermark.libraries.catboost import models as adapter

    task, objective = find_task(contents, model)
    refuse_threshold(contents)
    native = revive(model, contents) if native is None else native
    n_columns = _count_columns(contents.trees)
    nodes = read_nodes(contents.trees)
    ensemble = _build_ensemble(contents.trees, nodes, n_columns, objective)
    classes = np.empty(0, np.int64)
    if task == "classification":
        classes = np.asarray(_ask(lambda: native.classes_, "the model"))
    if len(classes) != ensemble.n_classes:
        raise InputError(
            f"The CatBoost model has {len(classes)} classes but outputs for {ensemble.n_classes}.",
            hint="train it on rows of every class that it is given.",
        )
    named = any(
        feature["FeatureId"]
        for kind in ("FloatFeatures", "CatFeatures")
        for feature in contents.trees[kind]
    )
    n_derived = count_derived(contents.trees)
    texts = [each["FlatIndex"] for each in contents.trees["CatFeatures"]]
    return ForeignModel(
        library=name,
        kind=type(model).__name__,
        ensemble=ensemble,
        classes=classes,
        feature_names=tuple(native.feature_names_) if named else None,
        threshold_dtype="f4",
        native=native,
        adapter=adapter,
        extra=CatBoostExtra(
            contents=contents,
            n_columns=n_columns,
            leaf=nodes.leaf,
            categories=_category_model(contents, n_derived) if n_derived else None,
        ),
        text_columns=frozenset(texts),
        known_texts=dict.fromkeys(texts),  # no text is missing, not even an empty one
        task=task,
        shared_thresholds=True,
        fixed_thresholds=fixed_borders(contents.trees, n_columns),
        input_columns=_input_columns(contents.trees, ensemble.n_features),
        told_monotone=_MONOTONE.search(str(dict(native.get_metadata()).get("params"))) is not None,
    )


def rows(foreign: ForeignModel, X: Any) -> Reals:
    """Return what ``predict`` takes as the ensemble's columns, float64 [n, n_features].

    ``X`` is an array, a list of rows, a data frame, a sparse matrix or, if there are no
    categories, a CatBoost Pool.

    Raises InputError if its shape does not fit or a column of numbers holds something else.
    """
    extra: CatBoostExtra = foreign.extra
    trees, n_columns = extra.contents.trees, extra.n_columns
    columns = _take_columns(X, n_columns, [each["FlatIndex"] for each in trees["FloatFeatures"]])
    n_rows = len(next(iter(columns.values()))) if columns else len(X)
    table = np.zeros((n_rows, foreign.ensemble.n_features))
    for column, values in columns.items():
        table[:, column] = values
    if extra.categories is not None:
        table[:, n_columns:] = _ask(lambda: extra.categories.calc_leaf_indexes(X))
    return table


def native_rows(foreign: ForeignModel, rows: Reals) -> AnyArray:
    """Return rows that ``predict`` takes, with the numbers of an ensemble's rows [n, n_features].

    A model does not say which categories it knows, only their hashes. So they are short texts that
    take turns, many of which are categories somewhere.
    """
    extra: CatBoostExtra = foreign.extra
    trees, n_columns = extra.contents.trees, extra.n_columns
    if not trees["CatFeatures"]:
        return rows[:, :n_columns]
    table: AnyArray = rows[:, :n_columns].astype(object)
    for number, feature in enumerate(trees["CatFeatures"]):
        turn = np.arange(len(rows)) * (2 * number + 1) % len(_CATEGORIES)
        table[:, feature["FlatIndex"]] = np.array(_CATEGORIES, dtype=object)[turn]
    return table


def margins(model: Any, X: Any) -> Reals:
    """Return CatBoost's own raw scores, float64 [n, outputs].

    Raises InputError with CatBoost's reason if it does not take ``X``.
    """
    import catboost

    # That of all models, because CatBoostRanker's own predict does not take the type.
    found = np.asarray(_ask(lambda: catboost.CatBoost.predict(model, X, "RawFormulaVal")))
    return found.reshape(len(found), -1) if found.ndim else found.reshape(1, 1)


def close(foreign: ForeignModel, ensemble: Ensemble) -> Any:
    """Return a new model of the same type, with an ensemble's leaf values and thresholds.

    A border is shared by all trees and moves for all of them. Everything else stays.
    """
    extra: CatBoostExtra = foreign.extra
    trees = extra.contents.trees
    values = trees["LeafValues"].reshape(-1, trees["ApproxDimension"]).copy()
    at_leaf = extra.leaf >= 0
    values[extra.leaf[at_leaf]] = ensemble.value[at_leaf]
    edited = {**trees, "LeafValues": values.ravel()}
    moved = changed_thresholds(foreign.ensemble, ensemble)
    if moved.any():
        split = read_nodes(trees).split[moved]
        edited |= move_borders(trees, split, ensemble.threshold[moved])
    return revive(foreign.native, replace(extra.contents, trees=edited))


def serialize(model: Any) -> bytes:
    """Return the bytes of a fitted model's binary file, as they go into a pickle."""
    content: bytes = model.__getstate__()[_BYTES]
    return content


def revive(like: Any, contents: Contents) -> Any:
    """Return a new model of the same type and parameters as another, but with other contents.

    If the other one has feature importances, so has this one, of its own trees.

    Raises InputError with CatBoost's reason if it does not take the contents.
    """
    model: Any = _ask(lambda: _revive(like, contents), "the model")
    return model


def _load(model: Any, contents: Contents) -> None:
    """Let a new model of CatBoost read contents."""
    with tempfile.TemporaryDirectory() as folder:
        # From bytes CatBoost would make a model that only borrows them, that cannot be trained on
        # and does not have the parameters of training.
        path = Path(folder) / "model.cbm"
        path.write_bytes(pack(contents))
        model.load_model(str(path))


def _revive(like: Any, contents: Contents) -> Any:
    model = type(like)()
    _load(model, contents)
    # The parameters that it took from the file are those of training, and not as they were given.
    model._init_params.clear()
    model.__setstate__(like.get_params())
    if hasattr(like, "n_features_in_"):  # a sum of models has none
        model._n_features_in = like.n_features_in_
    known = np.ndim(like.feature_importances_) and model.tree_count_
    if known and _has_all_columns(contents.trees):
        model.get_feature_importance(type="PredictionValuesChange")
    return model


def _build_ensemble(trees: Record, nodes: Nodes, n_columns: int, objective: Objective) -> Ensemble:
    splits = list_splits(trees, n_columns)
    dimension = trees["ApproxDimension"]
    values = trees["LeafValues"].reshape(-1, dimension)
    inner = nodes.split >= 0
    ensemble = make_ensemble(
        n_features=n_columns + len(splits.column) - splits.n_numeric,
        n_outputs=dimension,
        objective=objective,
        tree_start=nodes.tree_start,
        tree_output=np.full(len(nodes.tree_start) - 1, 0 if dimension == 1 else -1),
        feature=_spread(splits.column, nodes, -1),
        threshold=_spread(splits.threshold, nodes, 0.0),
        left=nodes.left,
        right=nodes.right,
        missing_left=_spread(splits.missing_left, nodes, False),
        value=np.where(inner[:, np.newaxis], 0.0, values[nodes.leaf] if len(values) else 0.0),
        init=trees["MultiBias"] if len(trees["MultiBias"]) else np.full(dimension, trees["Bias"]),
        init_last=True,
        scale=trees["Scale"],
        input_dtype="f4",
    )
    if not len(trees["LeafWeights"]):
        return ensemble
    weights = np.where(inner, 0.0, trees["LeafWeights"][nodes.leaf])
    return replace(ensemble, count=sum_leaves(ensemble, weights))


def _count_columns(trees: Record) -> int:
    features = trees["FloatFeatures"] + trees["CatFeatures"]
    return max((feature["FlatIndex"] + 1 for feature in features), default=1)


def _input_columns(trees: Record, n_features: int) -> AnyArray:
    found = np.full(n_features, -1)
    numbers = [feature["FlatIndex"] for feature in trees["FloatFeatures"]]
    found[numbers] = numbers
    return found


def _has_all_columns(trees: Record) -> bool:
    """Return whether no column was dropped; CatBoost writes beyond its memory if one was."""
    return _count_columns(trees) == len(trees["FloatFeatures"]) + len(trees["CatFeatures"])


def _spread(of_splits: AnyArray, nodes: Nodes, at_leaves: Any) -> AnyArray:
    found = np.full(len(nodes.split), at_leaves, dtype=of_splits.dtype)
    inner = nodes.split >= 0
    found[inner] = of_splits[nodes.split[inner]]
    return found


def _category_model(contents: Contents, count: int) -> Any:
    """Return a model with one tree of depth 1 for each split of a category, in their order."""
    import catboost

    trees = contents.trees
    first = sum(len(feature["Borders"]) for feature in trees["FloatFeatures"])
    asking = {
        **trees,
        "TreeSplits": np.arange(first, first + count),
        "TreeSizes": np.ones(count),
        "TreeStartOffsets": np.arange(count),
        "LeafValues": np.zeros(2 * count * trees["ApproxDimension"]),
        "LeafWeights": np.empty(0),
        "NonSymmetricStepNodes": trees["NonSymmetricStepNodes"][:0],
        "NonSymmetricNodeIdToLeafId": np.empty(0),
    }
    return revive(catboost.CatBoost(), Contents(asking, contents.info, contents.tables))


def _take_columns(X: Any, n_columns: int, wanted: list[int]) -> dict[int, Reals]:
    if hasattr(X, "get_features") and not isinstance(X, np.ndarray):
        X = _ask(X.get_features)
    if hasattr(X, "toarray"):
        X = X.toarray()
    if not hasattr(X, "iloc"):
        # CatBoost takes the numbers of a list one by one, so that their types stay.
        X = X if isinstance(X, np.ndarray) else np.asarray(X, dtype=object)
    # CatBoost does not mind columns that the model has no feature for.
    check_width(X.shape, n_columns, wider=True)
    found = {}
    for column in wanted:
        values = X.iloc[:, column] if hasattr(X, "iloc") else X[:, column]
        try:
            found[column] = _as_single(values)
        except (TypeError, ValueError) as error:
            raise InputError(
                f"Column {column} of X is not a column of numbers ({error}).",
                hint="give it as it was in training.",
            ) from None
    return found


def _as_single(values: Any) -> Reals:
    """Return a column as CatBoost sees it, in float64; whole numbers are rounded only once."""
    column = np.asarray(values)
    if column.dtype.kind not in "iu":
        column = np.asarray(values, dtype=np.float64)
    with np.errstate(over="ignore"):
        return column.astype(np.float32).astype(np.float64)


def _ask(question: Callable[[], Any], about: str = "X") -> Any:
    """Return CatBoost's answer, or raise its own error as ours."""
    import catboost

    try:
        return question()
    except catboost.CatBoostError as error:
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise InputError(
            f"CatBoost does not take {about}: {reason}", hint="give it as it was in training."
        ) from None


def is_file(head: bytes) -> bool:
    """Return whether a file that begins with these bytes is one of CatBoost's.

    >>> is_file(b"CBM1..."), is_file(b'{"features_info": {'), is_file(b'{"learner": {')
    (True, True, False)
    """
    return head.startswith(MAGIC) or _JSON_HEAD.match(head) is not None


def open_file(path: PathLike) -> ForeignModel:
    """Return the model in a file, a CatBoostClassifier or what its loss asks for, as neutral trees.

    CatBoost itself sees only what was checked before: it trusts the numbers in a file and would
    end the process.

    Raises FileFormatError if the file is damaged, has an unknown layout, features of text or
    embeddings, or does not hold a supported classifier;
    MissingLibraryError if CatBoost is not installed; OSError if it cannot be opened.
    """
    catboost = contract.import_library("catboost", "to load a CatBoost model")
    name, data = os.fspath(path), Path(path).read_bytes()
    if data.startswith(MAGIC):
        with contract.naming(path):
            return _open_checked(catboost, _sound(data))
    if is_file(data[:256]):
        raise FileFormatError(
            f"{name} is CatBoost's JSON, which rounds leaf values and is not read.",
            hint="convert it with CatBoost:\n"
            f"    model = catboost.CatBoost().load_model({name!r}, format='json')\n"
            f"    model.save_model({os.fspath(Path(name).with_suffix('.cbm'))!r})",
            code="catboost.json",
        )
    raise FileFormatError(f"{name} is not a file of CatBoost.", _HINT)


def save(model: Any, path: PathLike) -> None:
    """Write CatBoost's own binary file.

    Raises InputError if ``path`` ends in .json; OSError if the system refuses.
    """
    if Path(path).suffix.lower() == ".json":
        raise InputError(
            "CatBoost's JSON rounds leaf values, so that it is not written.",
            hint="save the model as .cbm.",
            code="catboost.json",
        )
    Path(path).write_bytes(serialize(model))


def _sound(data: bytes) -> Contents:
    """Return the contents of a model's bytes. Raises FileFormatError unless they are sound."""
    contents = unpack(data)
    check_contents(contents)
    return contents


def _open_checked(catboost: Any, contents: Contents) -> ForeignModel:
    task = _LOSSES.get(str(find_loss(contents)), (None, None))[0]
    model = getattr(catboost, "CatBoost" if task is None else _ESTIMATORS[task])()
    try:
        # Written anew, so that CatBoost meets no offset but ours.
        _load(model, contents)
        return open_contents(model, model, _sound(serialize(model)))
    except (FileFormatError, InputError):
        raise
    except Exception as error:  # whatever CatBoost says, the file is the reason
        reason = " ".join(str(error).split()) or type(error).__name__
        raise FileFormatError(f"CatBoost cannot load it: {reason[:200]}", _HINT) from None
