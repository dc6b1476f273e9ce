"""Anything that can be asked: a function, an estimator, a model file."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from timbermark.dtypes import AnyArray, Rows
from timbermark.errors import FileFormatError, InputError
from timbermark.files import read_container
from timbermark.trees import model_file, reference
from timbermark.trees.ensemble import Ensemble

# What TimberClassifier.save writes; its module cannot be imported here without the engine.
_CLASSIFIER = "classifier"
_CLASSIFIER_VERSION = 1
_TREES = "trees_"
_FIRST_BYTES = 80


@dataclass(frozen=True, slots=True)
class Suspect:
    """What `verify` must know of a suspect in order to ask it."""

    description: str
    answer: Callable[[Any], Any]  # rows [n, d] -> labels [n]
    feature_names: tuple[str, ...] | None = None  # of its columns, in its order
    n_features: int | None = None
    takes_frames: bool = False  # complains about columns without names
    answers_class_numbers: bool = False  # rather than labels


def open_suspect(suspect: Any) -> Suspect:
    """Return anything that can be asked as a `Suspect`.

    A path is opened as a model file, with the reference predictor. An object with ``predict`` is
    asked through that, any other callable is called.

    Raises InputError for anything else, FileFormatError if the file is no model of timbermark,
    OSError if it cannot be opened.

    >>> open_suspect(len).description
    'function len'
    """
    if isinstance(suspect, str | os.PathLike):
        return _open_file(suspect)
    if not isinstance(suspect, type):
        if callable(_attribute(suspect, "predict")):
            return _open_estimator(suspect)
        if callable(suspect):
            name = getattr(suspect, "__name__", type(suspect).__name__)
            return Suspect(f"function {name}", suspect)
    raise InputError(
        f"{suspect!r:.80} cannot be asked.",
        hint="give a function from rows to labels, a fitted model with predict, or a model file.",
    )


def _open_estimator(model: Any) -> Suspect:
    names = _attribute(model, "feature_names_in_")
    count = _attribute(model, "n_features_in_")
    known = None if names is None else tuple(str(name) for name in names)
    return Suspect(
        description=type(model).__name__,
        answer=model.predict,
        feature_names=known,
        n_features=len(known) if known is not None else None if count is None else int(count),
        takes_frames=known is not None,
    )


def _attribute(model: Any, name: str) -> Any:
    try:
        return getattr(model, name, None)
    except Exception:  # a property of a foreign class may raise anything
        return None


def _open_file(path: str | os.PathLike[str]) -> Suspect:
    name = os.fspath(path)
    with open(path, "rb") as file:
        is_ensemble = file.read(_FIRST_BYTES).startswith(b"timbermark ensemble ")
    if is_ensemble:
        trees = model_file.load_ensemble(path)
        return Suspect(
            description=f"file {name}",
            answer=lambda X: _class_numbers(trees, X),
            n_features=trees.n_features,
            answers_class_numbers=True,
        )
    _, meta, arrays = read_container(path, _CLASSIFIER, _CLASSIFIER_VERSION)
    if not isinstance(meta.get("ensemble"), dict):
        raise _incomplete(name, "ensemble")
    trees = model_file.ensemble_from_arrays(meta["ensemble"], arrays, prefix=_TREES)
    classes = arrays.get("classes")
    if classes is None or classes.shape != (trees.n_classes,):
        raise _incomplete(name, "classes")
    names = meta.get("feature_names")
    if names is not None and not _are_names(names, trees.n_features):
        raise _incomplete(name, "feature_names")
    return Suspect(
        description=f"file {name}",
        answer=lambda X: classes[_class_numbers(trees, X)],
        feature_names=None if names is None else tuple(names),
        n_features=trees.n_features,
    )


def _class_numbers(trees: Ensemble, X: Rows) -> AnyArray:
    return reference.labels(reference.margins(trees, X), trees)


def _are_names(names: object, n_features: int) -> bool:
    return (
        isinstance(names, list)
        and len(names) == n_features
        and all(isinstance(name, str) for name in names)
    )


def _incomplete(name: str, part: str) -> FileFormatError:
    return FileFormatError(f"{name} is not complete ({part}).", hint="save the model again.")


def ask(suspect: Suspect, rows: Rows) -> Any:
    """Return the suspect's response to the rows, whatever it is.

    Raises InputError if the suspect raises anything, with that as its cause.

    >>> import numpy as np
    >>> ask(open_suspect(lambda X: X[:, 0] > 0), np.array([[1.0], [-1.0]]))
    array([ True, False])
    """
    try:
        return suspect.answer(_named(rows, suspect) if suspect.takes_frames else rows)
    except Exception as error:
        said = " ".join(str(error).split())[:300]
        raise InputError(
            f"The suspect ({suspect.description}) could not answer: "
            f"{type(error).__name__}{': ' if said else ''}{said}",
            hint="call it with a few rows of your own; it is given a float64 matrix.",
        ) from error


def _named(rows: Rows, suspect: Suspect) -> Any:
    try:
        import pandas as pd
    except ImportError:
        return rows
    return pd.DataFrame(rows, columns=list(suspect.feature_names or ()))
