"""LightGBM's models: which they are, what they predict, and how they are opened and closed."""

from __future__ import annotations

import contextlib
import copy
import json
import sys
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import DTypeLike

from timbermark.dtypes import AnyArray, Reals, Rows
from timbermark.errors import FileFormatError, InputError
from timbermark.libraries import contract
from timbermark.libraries.contract import ForeignModel, PathLike, Task
from timbermark.libraries.lightgbm.text import OBJECTIVES, Blocks, Frame, parse_text, print_text
from timbermark.libraries.lightgbm.trees import (
    edit_trees,
    keep_best_first,
    regularization,
    to_ensemble,
    with_finite_statistics,
)
from timbermark.trees.construction import first_trees
from timbermark.trees.ensemble import ZERO_RANGE, Ensemble
from timbermark.trees.reference import check_width

name = "LightGBM"

_MODELS = frozenset({"Booster", "CVBooster", "LGBMModel"})
_ESTIMATORS: dict[str, Task] = {
    "LGBMClassifier": "classification",
    "LGBMRegressor": "regression",
    "LGBMRanker": "ranking",
}
# LightGBM writes one format only, and these endings promise another.
_OTHER_FORMATS = frozenset({".json", ".onnx", ".pkl", ".pickle", ".joblib"})


@dataclass(frozen=True, slots=True, eq=False)
class LightGBMExtra:
    """What only this adapter needs of a model: its text, taken apart."""

    frame: Frame
    blocks: Blocks  # all trees, also those that predict does not use
    categories: dict[int, list[Any]]  # those that pandas named, by column


def is_model(model: object) -> bool:
    """Return whether an object is a model of LightGBM, supported or not.

    >>> is_model("a text")
    False
    """
    return not _MODELS.isdisjoint(_ancestors(model))


def is_file(head: bytes) -> bool:
    """Return whether a file that begins with these bytes is LightGBM's.

    >>> is_file(b"tree\\nversion=v4\\nnum_class=1\\n"), is_file(b"trees are green")
    (True, False)
    """
    return head.startswith((b"tree\nversion=", b"tree\r\nversion="))


def open_file(path: PathLike) -> ForeignModel:
    """Return the `Booster` in a text file, whose labels, if any, are 0, 1, …, as neutral trees.

    The library sees a text that was printed anew from checked values, never the file.

    Raises FileFormatError if the file is damaged, of another layout or no supported objective,
    MissingLibraryError without LightGBM, OSError if the file cannot be opened.
    """
    frame, blocks = parse_text(_read_text(path))
    ensemble = to_ensemble(frame, blocks)
    frame, blocks = _plain(frame), with_finite_statistics(blocks)
    basic = contract.import_library("lightgbm", "to read a LightGBM model").basic
    try:
        # The library prints its warnings, but standard output is for results.
        with contextlib.redirect_stdout(sys.stderr):
            booster = basic.Booster(model_str=print_text(frame, blocks))
            # Early versions leave this to those who read from a file.
            booster.params = booster.params or booster._get_loaded_param()
    except (basic.LightGBMError, ValueError) as error:
        raise FileFormatError(
            f"LightGBM does not accept the file ({' '.join(str(error).split())}).",
            hint="get the file again from where it came.",
        ) from None
    return _opened(booster, booster, frame, blocks, ensemble)


def open_trees(path: PathLike) -> ForeignModel | None:
    """Return the model in a text file as trees alone, which can be asked but not changed.

    LightGBM is not needed and not imported. None if the model has categories of pandas.

    Raises FileFormatError if the file is damaged, of another layout or no supported objective;
    OSError if it cannot be opened.
    """
    frame, blocks = parse_text(_read_text(path))
    if json.loads(frame.pandas_categorical):
        return None
    return _opened(None, None, frame, blocks, to_ensemble(frame, blocks))


def _read_text(path: PathLike) -> str:
    try:
        return Path(path).read_bytes().decode("utf-8")
    except UnicodeDecodeError:
        raise FileFormatError(
            "The LightGBM model is damaged: it is not text.",
            hint="get the file again from where it came.",
        ) from None


def open(model: Any) -> ForeignModel:
    """Return a `Booster`, classifier, regressor or ranker as trees, as far as ``predict`` uses it.

    That is up to the best iteration if training stopped early. Estimators of a Dask cluster become
    their local counterparts.

    Raises InputError if the model is not fitted or not supported.
    """
    if "_DaskLGBMModel" in _ancestors(model) and _inner(model) is not None:
        model = model.to_local()
    booster = _booster(model)
    text = booster.model_to_string(num_iteration=-1)
    try:
        frame, blocks = parse_text(text)
        ensemble = to_ensemble(frame, blocks)
    except FileFormatError as error:
        raise InputError(error.message, hint=error.hint) from None
    blocks = with_finite_statistics(blocks)
    return _opened(model, _rebuilt(model, text), frame, blocks, ensemble)


def _opened(
    model: Any, native: Any, frame: Frame, blocks: Blocks, ensemble: Ensemble
) -> ForeignModel:
    from timbermark.libraries.lightgbm import models as adapter

    all_iterations = ensemble.n_trees // ensemble.n_outputs
    best = 0 if model is None else int(_booster(model).best_iteration or 0)
    n_iterations = min(best, all_iterations)
    if n_iterations <= 0:
        n_iterations = all_iterations
    ensemble = first_trees(ensemble, n_iterations * ensemble.n_outputs)
    task = OBJECTIVES[frame.objective][0]
    classes = _classes(model, ensemble, task)
    names = frame.feature_names
    automatic = names == tuple(f"Column_{i}" for i in range(len(names)))
    categories = _named_categories(native, frame)
    texts = contract.find_texts(categories)
    share = 1 / max(n_iterations, 1) if frame.average_output else 1.0
    return ForeignModel(
        library=name,
        kind="Booster" if model is None else type(model).__name__,
        ensemble=ensemble,
        classes=classes,
        feature_names=None if automatic else names,
        margin_scale=frame.sigmoid * share,
        native=native,
        adapter=adapter,
        notes=tuple(_notes(frame, classes, n_iterations, all_iterations)),
        l2=regularization(frame),
        extra=LightGBMExtra(frame, blocks, categories),
        text_columns=frozenset(texts),
        known_texts=texts,
        takes_frames=bool(categories),
        task=task,
        input_columns=contract.plain_columns(ensemble, categories),
        stores_labels="LGBMClassifier" in _ancestors(model),
        told_monotone=bool(frame.parameters.get("monotone_constraints", "").strip()),
    )


def rows(foreign: ForeignModel, X: Any) -> Rows:
    """Return float64 [n, d]: what the model's ``predict`` makes of ``X``.

    ``X`` is an array, a list of lists, a sparse matrix, or a table of pandas, pyarrow or polars.
    Categories of pandas become their numbers in the training data. Whole numbers in an array go
    through float32, as in the library: above 2^24 they are rounded.

    Raises InputError if ``X`` cannot be used or has another number of columns.
    """
    extra: LightGBMExtra = foreign.extra
    X = contract.with_categories(X, extra.categories, extra.frame.feature_names, strict=False)
    # scikit-learn makes float64 of objects before the library sees them.
    objects = np.float64 if "LGBMModel" in _ancestors(foreign.native) else np.float32
    known = getattr(_inner(foreign.native), "pandas_categorical", None)
    numbers = to_numbers(X, known, objects)
    check_width(numbers.shape, foreign.ensemble.n_features)
    return numbers


def native_rows(foreign: ForeignModel, rows: Reals) -> Rows:
    """Return the rows themselves, which ``predict`` takes as they are."""
    return rows


def margins(model: Any, X: Any) -> Reals:
    """Return float64 [n, outputs]: the raw scores of the model's own ``predict``.

    Raises InputError if the model is not fitted or not supported; what the library raises about
    ``X`` passes through.
    """
    booster = _booster(model)
    n_outputs = int(booster.num_model_per_iteration())
    categories = _named_categories(model, None)
    X = contract.with_categories(X, categories, booster.feature_name(), strict=False)
    if (X.shape[0] if hasattr(X, "shape") else len(X)) == 0:
        return np.empty((0, n_outputs))
    with warnings.catch_warnings():
        # scikit-learn's about names of columns: columns are told apart by their place.
        warnings.simplefilter("ignore", category=UserWarning)
        scores = model.predict(X, raw_score=True)
    return np.asarray(scores, dtype=np.float64).reshape(-1, n_outputs)


def close(foreign: ForeignModel, ensemble: Ensemble) -> Any:
    """Return a model of the type that was opened, with the ensemble's leaf values and thresholds.

    ``internal_value`` and ``split_gain`` follow the leaves, and splits stay numbered from the best
    one down; all else stays as it is in the model.
    """
    extra: LightGBMExtra = foreign.extra
    blocks = edit_trees(extra.frame, extra.blocks, foreign.ensemble, ensemble)
    blocks = keep_best_first(extra.blocks, blocks)
    return _rebuilt(foreign.native, print_text(extra.frame, blocks, extra.blocks))


def save(model: Any, path: PathLike) -> None:
    """Write the library's text file, up to the best iteration if there is one.

    The labels of an `LGBMClassifier` are not part of it: `load` gives a `Booster`.

    Raises InputError if the model is not fitted or not supported, or if ``path`` ends like a
    format that LightGBM does not have; OSError if the system refuses.
    """
    ending = Path(path).suffix.lower()
    if ending in _OTHER_FORMATS:
        raise InputError(
            f"LightGBM has no {ending} files that it could read again.",
            hint="its format is text, for example model.txt.",
        )
    Path(path).write_bytes(_booster(model).model_to_string().encode("utf-8"))


def _ancestors(model: object) -> frozenset[str]:
    return contract.ancestors(model, "lightgbm")


def _inner(model: Any) -> Any:
    """Return the `Booster` that a model is or holds, None if it is not fitted."""
    return model if "Booster" in _ancestors(model) else getattr(model, "_Booster", None)


def _booster(model: Any) -> Any:
    """Return the trained `Booster` in a supported model."""
    kinds = _ancestors(model)
    if "Booster" in kinds:
        return model
    if "CVBooster" in kinds:
        _refuse_model(model, "holds several boosters", "give one of its boosters.")
    if "_DaskLGBMModel" in kinds and _inner(model) is not None:
        _refuse_model(model, "belongs to a Dask cluster", "give what its to_local() returns.")
    if not kinds & _ESTIMATORS.keys():
        _refuse_model(
            model,
            "is no classifier, regressor or ranker",
            f"give a Booster, {', '.join(_ESTIMATORS)}.",
        )
    booster = _inner(model)
    if booster is None:
        raise contract.unfitted(model)
    if model.get_params().get("pred_early_stop"):
        _refuse_model(
            model, "leaves out trees when it predicts (pred_early_stop)", "switch that off."
        )
    return booster


def _refuse_model(model: Any, why: str, hint: str) -> NoReturn:
    raise InputError(f"The {type(model).__name__} {why}.", hint=hint)


def _classes(model: Any, ensemble: Ensemble, task: Task) -> AnyArray:
    wrapped = _ancestors(model) & _ESTIMATORS.keys()
    labels = "LGBMClassifier" in wrapped
    if wrapped and labels != (task == "classification"):
        _refuse_model(
            model,
            f"has an objective of {task}, which is not what its predict is for",
            "give its booster_ instead.",
        )
    if not labels:
        return np.arange(ensemble.n_classes)
    classes = np.array(model.classes_)
    if len(classes) != ensemble.n_classes:
        _refuse_model(
            model,
            f"has {len(classes)} labels for {ensemble.n_classes} classes",
            "train it on data of at least two classes, with an objective that goes with them.",
        )
    return classes


def _named_categories(model: Any, frame: Frame | None) -> dict[int, list[Any]]:
    """Return the pandas categories of training, by column; none if they are ambiguous.

    Without a ``frame`` the model is asked for its text only if it has any.
    """
    named = getattr(_inner(model), "pandas_categorical", None)
    if not named:
        return {}
    if frame is None:
        frame = parse_text(_inner(model).model_to_string(num_iteration=1))[0]
    stated = frame.parameters.get("categorical_feature", "")
    places = [int(place) for place in stated.split(",") if place.strip().isdigit()]
    return dict(zip(places, named, strict=True)) if len(places) == len(named) else {}


def _notes(frame: Frame, classes: AnyArray, n_iterations: int, all_iterations: int) -> list[str]:
    notes = []
    if n_iterations < all_iterations:
        notes.append(
            f"Training stopped early: only the first {n_iterations} of {all_iterations} "
            "iterations predict, the others stay as they are."
        )
    if frame.average_output:
        notes.append("A random forest: its margins are sums, but its answers come from means.")
    elif frame.sigmoid != 1:
        notes.append(
            f"Its probabilities are those of margins times sigmoid={frame.sigmoid:g}; "
            "labels are the same."
        )
    if classes.tolist() != list(range(len(classes))):
        notes.append(
            "LightGBM's file does not hold the labels: a model loaded from it says "
            f"0 to {len(classes) - 1}."
        )
    return notes


def _rebuilt(model: Any, text: str) -> Any:
    """Return a copy of a model, with another text in place of its trees."""
    booster = _inner(model)
    # A Booster's own copy forgets the best iteration and, in early versions, the parameters. What
    # pickle takes is complete, and holds the text where the trees are.
    left_out = ("_handle", "train_set", "valid_sets", "_Booster__init_predictor")
    state = {key: value for key, value in booster.__dict__.items() if key not in left_out}
    state = copy.deepcopy(state)
    state |= {"_handle": text, "_network": False}
    kind: Any = type(booster)
    rebuilt = kind.__new__(kind)
    with contextlib.redirect_stdout(sys.stderr):
        rebuilt.__setstate__(state)
    # Copies everything around the booster but takes the one that is already there.
    return rebuilt if booster is model else copy.deepcopy(model, {id(booster): rebuilt})


def _plain(frame: Frame) -> Frame:
    """Return a frame whose parameters the library can put into JSON without quoting."""
    return replace(
        frame,
        parameters={
            key: value
            for key, value in frame.parameters.items()
            if '"' not in value and "\\" not in value
        },
    )


def to_numbers(X: Any, categories: list[list[Any]] | None, objects: DTypeLike) -> Rows:
    """Return a table as float64 in C order, with zero for what the library makes zero.

    ``X`` is an array, a list of lists, a sparse matrix, or a table of pandas, pyarrow or polars.
    ``categories`` are those of pandas at training, for each column that had any; None if the model
    does not know. ``objects`` is the type that an array of objects is converted to.

    Raises InputError if ``X`` is not numeric or has other columns of categories.

    >>> to_numbers([[1, 2**24 + 1]], None, np.float32)  # whole numbers go through float32
    array([[1.0000000e+00, 1.6777216e+07]])
    """
    module = type(X).__module__.partition(".")[0]
    kept = False  # whether numbers next to zero stay as they are
    try:
        if module == "pandas" and hasattr(X, "dtypes"):
            numbers = _from_pandas(X, categories)
        elif module == "scipy":
            numbers, kept = X.toarray(), X.format != "csc"
        elif module == "pyarrow":
            columns = [column.cast("float64", safe=False) for column in X.itercolumns()]
            numbers = _side_by_side([column.to_numpy() for column in columns], len(X))
            kept = True
        elif module == "polars":
            numbers, kept = X.to_numpy(), True
        else:
            numbers = _from_array(np.asarray(X), objects)
        if not kept:
            numbers = np.where(np.abs(numbers) <= ZERO_RANGE, 0.0, numbers)
        return np.ascontiguousarray(numbers, dtype=np.float64)
    except InputError:
        raise
    except (TypeError, ValueError) as error:
        raise InputError(
            f"X is not a table of numbers ({error}).", hint="encode text as numbers first."
        ) from None


def _from_array(array: AnyArray, objects: DTypeLike) -> AnyArray:
    if array.dtype in (np.float32, np.float64):
        return array
    if array.dtype.kind not in "biufO":
        raise TypeError(f"its type is {array.dtype}")
    return array.astype(objects if array.dtype.kind == "O" else np.float32)


def _from_pandas(frame: Any, categories: list[list[Any]] | None) -> AnyArray:
    import pandas

    by_category = [isinstance(dtype, pandas.CategoricalDtype) for dtype in frame.dtypes]
    if categories is not None and len(categories) != sum(by_category):
        raise InputError(
            f"X has {sum(by_category)} columns of categories, the model {len(categories)}.",
            hint="give the columns the types that they had in training.",
        )
    trained = iter(categories or [])
    columns = []
    for place, is_category in enumerate(by_category):
        column = frame.iloc[:, place]
        if is_category:
            names = next(trained, None)
            if names is not None and list(column.cat.categories) != names:
                column = column.cat.set_categories(names)
            codes = column.cat.codes.to_numpy(dtype=np.float64)
            columns.append(np.where(codes < 0, np.nan, codes))
        else:
            columns.append(column.to_numpy(dtype=np.float64, na_value=np.nan))
    return _side_by_side(columns, len(frame))


def _side_by_side(columns: list[AnyArray], n_rows: int) -> AnyArray:
    return np.column_stack(columns) if columns else np.empty((n_rows, 0))
