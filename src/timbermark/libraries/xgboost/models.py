"""XGBoost's models: which they are, how they are opened and closed, and rows as they take them."""

from __future__ import annotations

import copy
import json
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from timbermark.dtypes import AnyArray, Margins, Reals, Rows
from timbermark.errors import FileFormatError, InputError, MissingLibraryError
from timbermark.libraries import contract
from timbermark.libraries.closing import Steps
from timbermark.libraries.contract import ForeignModel, PathLike, Task
from timbermark.libraries.xgboost.document import (
    CUT_NAMES,
    OBJECTIVES,
    Outline,
    encode_key,
    outline,
    parse,
    patched,
    with_trees,
)
from timbermark.libraries.xgboost.forest import (
    Forest,
    edited_trees,
    find_steps,
    has_empty_sets,
    to_forest,
    write_trees,
)
from timbermark.trees.construction import first_trees, make_ensemble
from timbermark.trees.ensemble import Ensemble
from timbermark.trees.reference import check_width

_MANY_ROWS = 4096
_JSON_HEAD = re.compile(rb'\s*\{\s*"(learner|version)"\s*:')
_PREFIX = re.compile(r"^\[[0-9:]+\] \S+: (Check failed: )?")
_MONOTONE = re.compile(r'"monotone_constraints":"\([^)]*[1-9]')
"""Constraints in a configuration, which models that were read from a file have lost."""


def to_rows(library: Callable[[], ModuleType], known: Outline, X: Any, missing: float) -> Rows:
    """Return what a model predicts from as numbers, float64 [n, d]; NaN is missing.

    Categories become the numbers that the model knows them by. ``library`` returns XGBoost, which
    arrays do without.

    Raises InputError if it is no table of numbers and categories of the model's width and names.
    """
    if isinstance(X, np.ndarray | list | tuple):
        found = _from_array(X, missing)
    else:
        xgb = library()
        matrix = as_matrix(xgb, known.feature_names, X, missing)
        found = _from_matrix(xgb, known, matrix)
    check_width(found.shape, known.n_features)
    return found


def as_matrix(xgb: ModuleType, expected: tuple[str, ...] | None, X: Any, missing: float) -> Any:
    """Return rows as XGBoost's own matrix; columns without names get the model's.

    Raises InputError if XGBoost refuses them, or if the columns have other names.
    """
    matrix = X
    try:
        if not isinstance(X, xgb.DMatrix):
            # For few rows, threads take longer to start than to work.
            threads = 1 if getattr(X, "shape", (_MANY_ROWS,))[0] < _MANY_ROWS else None
            matrix = xgb.DMatrix(X, missing=missing, enable_categorical=True, nthread=threads)
            if matrix.feature_names is None and expected is not None:
                matrix.feature_names = list(expected)
        names = matrix.feature_names
    except (ValueError, TypeError) as error:
        raise refused(error) from error
    if expected is not None and tuple(names or ()) != expected:
        raise InputError(
            f"The columns are {list(names or ())!r:.200}, the model's are {list(expected)!r:.200}.",
            hint="give the columns that the model was trained with, in the same order.",
        )
    return matrix


def refused(error: Exception) -> InputError:
    """Return the error for rows that XGBoost does not take, with what it says about them.

    >>> print(refused(ValueError("[00:11:13] a/b.cc:12: Check failed: Bad.\\nStack trace:")))
    XGBoost does not take these rows: Bad. Hint: give what the model's own predict takes.
    """
    lines = str(error).strip().splitlines() or [type(error).__name__]
    said = _PREFIX.sub("", lines[0])[:300].rstrip(".")
    return InputError(
        f"XGBoost does not take these rows: {said}.",
        hint="give what the model's own predict takes.",
    )


def _from_array(X: Any, missing: float) -> Rows:
    try:
        given = np.asarray(X)
        if given.dtype.kind not in "biufO":
            raise TypeError(f"their type is {given.dtype}")
        # XGBoost rounds a whole number to float32 at once, not by way of float64.
        narrow = np.float32 if given.dtype.kind in "iu" else np.float64
        found = given.astype(narrow).astype(np.float64, copy=False)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"The rows are not a matrix of numbers ({error}).", hint="encode text as numbers first."
        ) from None
    if not np.isnan(missing):
        with np.errstate(over="ignore"):
            found[found.astype(np.float32) == np.float32(missing)] = np.nan
    return found


def _from_matrix(xgb: ModuleType, known: Outline, matrix: Any) -> Rows:
    try:
        sparse = matrix.get_data()
    except (ValueError, TypeError) as error:
        raise refused(error) from error
    found = np.full(sparse.shape, np.nan)
    row = np.repeat(np.arange(sparse.shape[0]), np.diff(sparse.indptr))
    found[row, sparse.indices] = sparse.data
    types = matrix.feature_types
    if known.most_categories and types is not None and sparse.shape[1] == known.n_features:
        columns = [number for number, kind in enumerate(types) if kind == "c"]
        if columns and len(found):
            found[:, columns] = _category_numbers(xgb, known, matrix, found, columns)
    return found


def _category_numbers(
    xgb: ModuleType, known: Outline, matrix: Any, found: Rows, columns: list[int]
) -> AnyArray:
    """Return the numbers that the model knows the categories of a frame by, [n, len(columns)].

    A frame numbers its categories in an order of its own, and XGBoost translates by name when it
    predicts. It says the result to nobody, but a tree can ask: one tree per binary digit, with a
    set of all the numbers that have it.
    """
    highest = known.most_categories
    digits = max(int(highest - 1).bit_length(), 1)
    every = np.arange(highest)
    # The last tree of a column asks for any number at all: a name not known has none.
    sets = [every[every >> digit & 1 == 1] for digit in range(digits)] + [every]
    asked = np.repeat(columns, len(sets))
    ensemble = _asking(known, asked, np.tile(np.arange(len(sets)), len(columns)), sets)
    trees = write_trees(ensemble)
    rounds = np.arange(0, len(trees) + 1, known.n_outputs * known.n_parallel)
    raw = with_trees(known, trees, ensemble.tree_output, rounds)
    booster = xgb.Booster({"nthread": 1})
    booster.load_model(bytearray(raw))
    try:
        leaves = booster.predict(matrix, pred_leaf=True, validate_features=False)
    except (ValueError, TypeError) as error:
        raise refused(error) from error
    answers = leaves.reshape(len(found), -1)[:, : len(asked)] == 2
    answers = answers.reshape(len(found), len(columns), len(sets))
    number = answers[:, :, :-1] @ (1 << np.arange(digits))
    number = np.where(answers[:, :, -1], number, -1.0)
    return np.where(np.isnan(found[:, columns]), np.nan, number)


def _asking(known: Outline, columns: AnyArray, chosen: AnyArray, sets: list[AnyArray]) -> Ensemble:
    """Return one tree per question, which goes right if the column's category is in the set.

    Trees without a split fill the last round.
    """
    n_questions = len(columns)
    fill = -n_questions % (known.n_outputs * known.n_parallel)
    n_trees = n_questions + fill
    nodes = 3 * n_questions + fill
    root = 3 * np.arange(n_questions)
    feature, left, right, category_set = (np.full(nodes, -1) for _ in range(4))
    feature[root], category_set[root] = columns, chosen
    left[root], right[root] = 1, 2
    return make_ensemble(
        n_features=known.n_features,
        n_outputs=known.n_outputs,
        tree_start=np.append(3 * np.arange(n_questions + 1), 3 * n_questions + 1 + np.arange(fill)),
        tree_output=np.arange(n_trees) // known.n_parallel % known.n_outputs,
        feature=feature,
        threshold=np.zeros(nodes),
        left=left,
        right=right,
        value=np.zeros(nodes),
        category_set=category_set,
        category_offsets=np.cumsum([0, *map(len, sets)]),
        category_values=np.concatenate(sets),
        categories_go="right",
        strict=True,
        input_dtype="f4",
        sum_dtype="f4",
    )


name = "XGBoost"
_ENDINGS = (".json", ".ubj")
_ESTIMATORS: dict[Task, str] = {
    "classification": "XGBClassifier",
    "regression": "XGBRegressor",
    "ranking": "XGBRanker",
}


@dataclass(frozen=True, slots=True, eq=False)
class XGBoostExtra:
    """What only this adapter needs of a model."""

    raw: bytes  # the document that the outline was read from, as UBJ
    outline: Outline
    forest: Forest  # all trees, also those that predict does not use
    steps: Steps | None = None  # None, as config, if the file was read as trees alone
    config: str | None = None  # what save_config gives
    missing: float = float("nan")  # the number that stands for a missing value


def is_model(model: object) -> bool:
    """Return whether an object is one of XGBoost's models, fitted or not, of whatever kind.

    >>> is_model("a text")
    False
    """
    return not contract.ancestors(model, "xgboost").isdisjoint(("Booster", "XGBModel"))


def is_file(head: bytes) -> bool:
    """Return whether a file that begins with these bytes may be XGBoost's, in JSON or UBJ.

    >>> is_file(b'{"learner":{"attributes":{}'), is_file(b"PK")
    (True, False)
    """
    return head.startswith(b"{" + encode_key("learner")) or _JSON_HEAD.match(head) is not None


def open_file(path: PathLike) -> ForeignModel:
    """Return the model in a file, an estimator like ``XGBClassifier`` or a ``Booster``, as trees.

    The content decides whether it is JSON or UBJ. XGBoost is given a document written anew from
    what was found sound. It is an ``XGBRegressor`` or ``XGBRanker`` where the objective is theirs.
    The model is a ``Booster`` only where ``XGBClassifier.predict`` gives no labels, that is for
    ``binary:logitraw`` and for ``multi:softprob`` with two classes, or where a ``Booster`` wrote it
    with a ``best_iteration`` that it does not care about itself.

    Raises FileFormatError if the file is damaged, of an unknown layout or a newer version than the
    installed one, or of no supported objective; OSError if it cannot be opened;
    MissingLibraryError without XGBoost.
    """
    xgb = _library("to load an XGBoost model")
    raw = Path(path).read_bytes()
    with contract.naming(path):
        known = outline(parse(raw))
        _check_version(known, xgb)
        forest = to_forest(known)
        trees = write_trees(forest.ensemble, forest.weight)
        document = with_trees(known, trees, known.tree_output, known.round_start)
        try:
            model = getattr(xgb, _kind_in_file(known))()
            model.load_model(bytearray(document))
            known = outline(parse(document))
            # The trees are the same unless they had to be written in another way.
            forest = to_forest(known) if has_empty_sets(forest.ensemble) else forest.in_order()
            return _opened(xgb, model, model, document, known, forest)
        except FileFormatError:
            raise
        except Exception as error:  # whatever XGBoost still finds wrong, in whatever way it says so
            said = refused(error).message.partition(": ")[2]
            raise FileFormatError(
                f"XGBoost does not take the model: {said}",
                hint="get the file again from where it came.",
            ) from error


def open_trees(path: PathLike) -> ForeignModel | None:
    """Return the model in a file as trees alone, which can be asked but not changed or trained.

    XGBoost is not needed and not imported; what it would refuse, such as a file of a newer version,
    is read if it is sound. The first summand of margins may differ by a rounding from what XGBoost
    computes. None if the model has categories: their names are XGBoost's to translate.

    Raises FileFormatError if the file is damaged, of an unknown layout or of no supported
    objective; OSError if it cannot be opened.
    """
    raw = Path(path).read_bytes()
    with contract.naming(path):
        known = outline(parse(raw))
        if known.most_categories or "c" in (known.feature_types or ()):
            return None
        foreign = _as_trees(raw, known, to_forest(known), _kind_in_file(known))
    return None if (foreign.ensemble.category_set >= 0).any() else foreign


def open(model: Any) -> ForeignModel:
    """Return a model of XGBoost as neutral trees, with a copy of itself.

    Estimators of a Dask cluster become their local counterparts.

    Raises InputError if it is not fitted, not made of trees, or of no supported objective.
    """
    xgb = _library("to read an XGBoost model")
    model = _local_model(xgb, model)
    booster = _fitted_booster(model)
    try:
        raw = bytes(booster.save_raw("ubj"))
    except ValueError as error:
        raise InputError(
            f"The {type(model).__name__} cannot be saved ({refused(error).message}).",
            hint="train it first, with xgboost.train.",
        ) from error
    try:
        known = outline(parse(raw))
        forest = to_forest(known)
        _check_task(model, booster, known)
        if model is not booster and not _answers_by_wrapper(known):
            raise InputError(
                f"XGBClassifier.predict gives no labels for {known.objective} with two classes.",
                hint="use binary:logistic, or give model.get_booster() instead.",
            )
        native = _rebuilt(xgb, model, raw, booster.save_config())
        return _opened(xgb, model, native, raw, known, forest)
    except FileFormatError as error:
        raise InputError(error.message, error.hint, error.code) from None


def _opened(
    xgb: ModuleType, model: Any, native: Any, raw: bytes, known: Outline, forest: Forest
) -> ForeignModel:
    booster = _fitted_booster(native)
    wrapped = native is not booster
    foreign = _as_trees(raw, known, forest, type(model).__name__ if wrapped else "Booster")
    config = booster.save_config()
    classes = foreign.classes
    if wrapped and known.task == "classification" and len(model.classes_) == len(classes):
        classes = np.asarray(model.classes_)
    missing = float("nan") if not wrapped or model.missing is None else float(model.missing)
    steps = find_steps(forest.ensemble, config, known.n_parallel)
    return replace(
        foreign,
        kind=type(model).__name__,
        ensemble=replace(foreign.ensemble, init=_find_init(xgb, known, forest.ensemble)),
        classes=classes,
        native=native,
        l2=steps.l2,
        told_monotone=_MONOTONE.search(config) is not None,
        extra=XGBoostExtra(raw, known, forest, steps, config, missing),
    )


def _as_trees(raw: bytes, known: Outline, forest: Forest, kind: str) -> ForeignModel:
    """Return what a document says of a model; only with the library can it be changed."""
    from timbermark.libraries.xgboost import models as adapter

    wrapped = kind != "Booster"
    ensemble = first_trees(forest.ensemble, _counted_trees(known, by_best_round=wrapped))
    ensemble = replace(ensemble, init=_computed_init(known))
    return ForeignModel(
        library=name,
        kind=kind,
        ensemble=ensemble,
        classes=np.arange(ensemble.n_classes),
        native=None,
        adapter=adapter,
        feature_names=known.feature_names,
        leaf_dtype="f4",
        threshold_dtype="f4",
        notes=_list_notes(known, ensemble, wrapped),
        extra=XGBoostExtra(raw, known, forest),
        text_columns=frozenset(known.categories),
        known_texts={place: frozenset(texts) for place, texts in known.categories.items()},
        takes_frames=bool(known.categories),
        task=known.task,
        input_columns=contract.plain_columns(ensemble, known.categories),
        stores_labels=False,
    )


def rows(foreign: ForeignModel, X: Any) -> Rows:
    """Return what the model's ``predict`` takes as columns of the ensemble, float64 [n, d].

    ``X`` is an array, a sparse matrix, a data frame or a ``DMatrix``. What the model counts as
    missing is NaN. Categories of a frame become the numbers that the model knows them by.

    Raises InputError if it is none of these, or has another width or other names.
    """
    extra: XGBoostExtra = foreign.extra
    X = _take_categories(extra.outline, X)
    library = partial(_library, "to read rows as XGBoost does")
    found = to_rows(library, extra.outline, X, extra.missing)
    e = foreign.ensemble
    types = extra.outline.feature_types or ()
    stated = [number for number, kind in enumerate(types) if kind == "c"]
    for column in {*stated, *e.feature[e.category_set >= 0].tolist()}:
        # Only here is the whole part of a number not what XGBoost looks for.
        part = found[:, column]
        part[(part > -1) & (part < 0)] = -1.0
    return found


def native_rows(foreign: ForeignModel, rows: Reals) -> Rows:
    """Return the rows themselves: NaN is missing, whatever else the model counts as missing."""
    return rows


def margins(model: Any, X: Any) -> Margins:
    """Return the raw scores that the model itself gives, float64 [n, outputs].

    Raises InputError if the model is not fitted or does not take such rows.
    """
    xgb = _library("to predict with an XGBoost model")
    booster = _fitted_booster(model)
    wrapped = model is not booster
    learner = json.loads(booster.save_config())["learner"]
    is_dart = learner["gradient_booster"]["name"] == "dart"
    n_outputs = max(int(learner["learner_model_param"]["num_class"]), 1)
    if getattr(X, "shape", (1,))[0] == 0:
        return np.empty((0, n_outputs))  # XGBoost gives no or one column, some with a warning
    X = _with_named_categories(booster, X)
    try:
        if wrapped and not is_dart and not isinstance(X, xgb.DMatrix):
            found = model.predict(X, output_margin=True)
        else:
            found = _predict_matrix(xgb, model, booster, X)
    except InputError:
        raise
    except (ValueError, TypeError) as error:
        raise refused(error) from error
    scores = np.asarray(found, dtype=np.float64)
    return scores.reshape(scores.size // n_outputs, n_outputs)


def close(foreign: ForeignModel, ensemble: Ensemble) -> Any:
    """Return the model with an ensemble's leaf values and thresholds, a new one of the same type.

    ``base_weights`` and ``loss_changes`` follow the leaves; all else stays as it is in the model.
    """
    xgb = _library("to write an XGBoost model")
    extra: XGBoostExtra = foreign.extra
    assert extra.steps is not None  # it was opened with the library
    assert extra.config is not None
    old = extra.outline.model["trees"]
    new = edited_trees(old, extra.forest, extra.steps, foreign.ensemble, ensemble)
    return _rebuilt(xgb, foreign.native, patched(extra.raw, old, new), extra.config)


def save(model: Any, path: PathLike) -> None:
    """Write XGBoost's own file, JSON or UBJ, as the path ends in ``.json`` or ``.ubj``.

    Raises InputError for any other ending or a model that is not fitted.
    """
    _fitted_booster(model)
    target = Path(path)
    if target.suffix not in _ENDINGS:
        raise InputError(
            f"{target.name} does not end in {' or '.join(_ENDINGS)}.",
            hint="the ending decides the format; .ubj is the smaller one.",
        )
    try:
        model.save_model(os.fspath(target))
    except (ValueError, TypeError) as error:
        said = refused(error).message.partition(": ")[2]
        raise InputError(
            f"XGBoost cannot save the model: {said}",
            hint="it must be trained, and an old XGBoost needs an old scikit-learn.",
        ) from error


def _library(purpose: str) -> ModuleType:
    try:
        import xgboost
    except ImportError:
        raise MissingLibraryError(
            f"xgboost is needed {purpose}.",
            hint='pip install "timbermark[xgboost]", or "timbermark[xgboost-cpu]", which does '
            "without GPU libraries.",
        ) from None
    library: ModuleType = xgboost
    return library


def _local_model(xgb: ModuleType, model: Any) -> Any:
    """Return an estimator of a Dask cluster as one that needs none, any other model as it is."""
    kinds = contract.ancestors(model, "xgboost")
    found = next((name for name in _ESTIMATORS.values() if f"Dask{name}" in kinds), None)
    if found is None:
        return model
    if not model.__sklearn_is_fitted__():
        raise contract.unfitted(model)
    booster = model.get_booster()
    local = getattr(xgb, found)(**model.get_params())
    local.load_model(bytearray(booster.save_raw("ubj")))
    local.get_booster().load_config(booster.save_config())
    return local


def _fitted_booster(model: Any) -> Any:
    kinds = contract.ancestors(model, "xgboost")
    if "Booster" in kinds:
        return model
    if kinds.isdisjoint(_ESTIMATORS.values()):
        raise InputError(
            f"A {type(model).__name__} is not a model of XGBoost that can be read.",
            hint=f"give a Booster, {', '.join(_ESTIMATORS.values())}.",
        )
    if not model.__sklearn_is_fitted__():
        raise contract.unfitted(model)
    return model.get_booster()


def _rebuilt(xgb: ModuleType, model: Any, raw: bytes | bytearray, config: str) -> Any:
    """Return a copy of a model around another document."""
    booster = xgb.Booster()
    booster.load_model(bytearray(raw))
    # A document has no configuration, which further training starts from.
    booster.load_config(config)
    if isinstance(model, xgb.Booster):
        return booster
    # In this copy of the wrapper, the place of its booster is taken already.
    return copy.deepcopy(model, {id(model.get_booster()): booster})


def _predict_matrix(xgb: ModuleType, model: Any, booster: Any, X: Any) -> Any:
    wrapped = model is not booster
    names = booster.feature_names
    missing = float("nan") if not wrapped or model.missing is None else float(model.missing)
    best = booster.attr("best_iteration") if wrapped else None
    matrix = as_matrix(xgb, None if names is None else tuple(names), X, missing)
    return booster.predict(
        matrix, output_margin=True, iteration_range=(0, 0 if best is None else int(best) + 1)
    )


def _with_named_categories(booster: Any, X: Any) -> Any:
    """Return rows with the booster's categories where they are texts."""
    if "c" not in (booster.feature_types or ()) or isinstance(X, list | tuple):
        return X
    return _take_categories(outline(parse(bytes(booster.save_raw("ubj")))), X)


def _take_categories(known: Outline, X: Any) -> Any:
    """Return rows with the model's categories where they are texts."""
    try:
        return contract.with_categories(X, known.categories, known.feature_names, strict=True)
    except InputError as error:
        if all(text.isascii() for texts in known.categories.values() for text in texts):
            raise
        raise InputError(error.message, hint=CUT_NAMES, code="categories.cut") from None


def _check_version(known: Outline, xgb: ModuleType) -> None:
    """Raise FileFormatError if a newer XGBoost than the installed one wrote a document."""
    installed = tuple(int(part) for part in xgb.__version__.split(".")[:2])
    # An older XGBoost reads a newer file without a word and predicts something else.
    if known.version[:2] > installed:
        raise FileFormatError(
            f"It was written by XGBoost {'.'.join(map(str, known.version))}, "
            f"and {xgb.__version__} is installed.",
            hint="pip install --upgrade xgboost",
        )


def _check_task(model: Any, booster: Any, known: Outline) -> None:
    """Raise InputError if a wrapper was trained with an objective that is not its own."""
    labels = "XGBClassifier" in contract.ancestors(model, "xgboost")
    if model is not booster and labels != (known.task == "classification"):
        raise InputError(
            f"A {type(model).__name__} with the objective {known.objective} does not predict what "
            "the objective is for.",
            hint=f"use {_ESTIMATORS[known.task]}, or give model.get_booster() instead.",
        )


def _kind_in_file(known: Outline) -> str:
    """Return which of XGBoost's classes a document is opened as; see `open_file`."""
    same = known.by_wrapper or _counted_trees(known, by_best_round=True) == known.n_trees
    return _ESTIMATORS[known.task] if same and _answers_by_wrapper(known) else "Booster"


def _answers_by_wrapper(known: Outline) -> bool:
    """Return whether ``predict`` of the wrapper gives labels where it should.

    For softprob with two classes it takes them for two questions with one answer each. It compares
    the raw scores of logitraw with 0.5.
    """
    if known.objective == "multi:softprob":
        return known.n_outputs > 2
    return known.objective != "binary:logitraw"


def _counted_trees(known: Outline, *, by_best_round: bool) -> int:
    """Return how many trees a model predicts with."""
    if known.best_round is None or not by_best_round:
        return known.n_trees
    if known.best_round + 1 >= len(known.round_start):
        raise FileFormatError(
            f"best_iteration={known.best_round} is not among the "
            f"{len(known.round_start) - 1} rounds.",
            hint="get the model again from where it came.",
        )
    return int(known.round_start[known.best_round + 1])


def _list_notes(known: Outline, ensemble: Ensemble, wrapped: bool) -> tuple[str, ...]:
    """Return what a user should know of how a model predicts, in sentences."""
    notes = []
    rest = known.n_trees - ensemble.n_trees
    if rest:
        notes.append(
            f"Prediction stops at best_iteration={known.best_round}: the {rest} trees after it "
            "stay as they are."
        )
    elif (
        not wrapped
        and known.best_round is not None
        and known.best_round + 2 < len(known.round_start)
    ):
        notes.append(
            f"best_iteration={known.best_round} is set, but Booster.predict uses all rounds: all "
            "of them count here, too."
        )
    if wrapped and known.booster == "dart":
        notes.append(
            "XGBClassifier.predict rounds sums of dart trees a little otherwise than "
            "Booster.predict; the margins here are those of the latter."
        )
    return tuple(notes)


def _computed_init(known: Outline) -> Reals:
    """Return where the sums start, float64 [outputs], by the formulas that XGBoost has for it."""
    text = known.content["learner"]["learner_model_param"]["base_score"]
    base = np.array(text.strip("[]").split(","), dtype=np.float32)
    if known.objective in ("binary:logistic", "reg:logistic"):
        # Rounded to float32 after each step, the logarithm too.
        odds = np.float32(1.0) / base - np.float32(1.0)
        base = -np.log(odds.astype(np.float64)).astype(np.float32)
    elif OBJECTIVES[known.objective][1] == "exponential":
        base = np.log(base.astype(np.float64)).astype(np.float32)
    return np.broadcast_to(base.astype(np.float64), (known.n_outputs,)).copy()


def _find_init(xgb: ModuleType, known: Outline, ensemble: Ensemble) -> Reals:
    """Return where the sums start, by asking for the margins of a first round with leaves of 0.

    From the base score XGBoost computes it in float32, with roundings of its own.
    """
    flat = first_trees(ensemble, int(known.round_start[1]))
    flat = replace(flat, value=np.zeros_like(flat.value))
    booster = xgb.Booster({"nthread": 1})
    raw = with_trees(known, write_trees(flat), flat.tree_output, known.round_start[:2])
    booster.load_model(bytearray(raw))
    row = xgb.DMatrix(np.zeros((1, known.n_features)), nthread=1)
    found = booster.predict(row, output_margin=True, validate_features=False)
    return np.asarray(found, dtype=np.float64).reshape(known.n_outputs)
