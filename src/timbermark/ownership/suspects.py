"""Suspects: a function, an estimator or a model file, opened so that it can be asked."""

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from timbermark.dtypes import AnyArray, Reals, Rows
from timbermark.errors import FileFormatError, InputError
from timbermark.files import container_kind, read_container
from timbermark.ownership.columns import Column, plain_rows
from timbermark.ownership.scores import ScoreScale
from timbermark.trees import model_file, reference
from timbermark.trees.ensemble import Ensemble

# What TimberClassifier.save and TimberRegressor.save write; their modules cannot be imported here
# without the engine.
_CLASSIFIER, _REGRESSOR = "classifier", "regressor"
_MODEL_VERSION = 1
_TREES = "trees_"
_FIRST_BYTES = 80
_OURS = b"timbermark "


@dataclass(frozen=True, slots=True)
class Suspect:
    """What `verify` must know of a suspect in order to ask it.

    At least one of the four functions is given. Each takes rows, [n, d] in the suspect's columns:
    float64, of objects if the mark has columns of texts, or a data frame with ``takes_frames``.
    """

    description: str
    answer_scores: Callable[[Any], Any] | None = None  # rows -> scores [n, number of its classes]
    answer_labels: Callable[[Any], Any] | None = None  # rows -> labels [n]
    answer_either: Callable[[Any], Any] | None = None  # rows -> either; the shape tells
    answer_numbers: Callable[[Any], Any] | None = None  # rows -> numbers [n]
    score_classes: tuple[Any, ...] | None = None  # of the scores' columns; None: the mark's
    score_scale: ScoreScale = "auto"  # whether scores are probabilities or margins
    feature_names: tuple[str, ...] | None = None  # of its columns, in its order
    n_features: int | None = None
    takes_frames: bool = False  # complains about columns without names
    answers_class_numbers: bool = False  # numbers from 0 in the order of the mark's classes
    stores_no_labels: bool = False  # its classes are numbers from 0, whatever the labels were
    asked_through: str = "object"  # "file", "object", "function", an address
    digest: str | None = None  # SHA-256 of its file, if it is one


def open_suspect(suspect: Any) -> Suspect:
    """Return anything that can be asked as a `Suspect`.

    A path is opened as a model file, with the reference predictor, and never executed. An object
    with ``predict_proba`` or ``predict`` is asked through that, any other callable is called.

    Raises InputError for anything else, FileFormatError if the file is no model of timbermark,
    OSError if it cannot be opened.

    >>> open_suspect(len).description
    'function len'
    """
    if isinstance(suspect, Suspect):
        return suspect
    if isinstance(suspect, str | os.PathLike):
        return _open_file(suspect)
    if not isinstance(suspect, type):
        if any(callable(_attribute(suspect, name)) for name in ("predict_proba", "predict")):
            return _open_estimator(suspect)
        if callable(suspect):
            name = getattr(suspect, "__name__", type(suspect).__name__)
            return Suspect(f"function {name}", answer_either=suspect, asked_through="function")
    raise InputError(
        f"{suspect!r:.80} cannot be asked.",
        hint="give a function from rows to labels or scores, a fitted model with predict, or a "
        "model file.",
    )


def _open_estimator(model: Any) -> Suspect:
    names = _attribute(model, "feature_names_in_")
    count = _attribute(model, "n_features_in_")
    known = None if names is None else tuple(str(name) for name in names)
    probabilities, labels = _attribute(model, "predict_proba"), _attribute(model, "predict")
    return Suspect(
        description=type(model).__name__,
        answer_scores=probabilities if callable(probabilities) else None,
        answer_labels=labels if callable(labels) else None,
        score_classes=_list_classes(_attribute(model, "classes_")),
        feature_names=known,
        # A pickled CatBoost model says that it takes no columns.
        n_features=len(known) if known is not None else int(count or 0) or None,
        takes_frames=known is not None,
    )


def _list_classes(classes: Any) -> tuple[Any, ...] | None:
    if classes is None or np.ndim(classes) != 1:
        return None
    return tuple(np.asarray(classes).tolist())


def _attribute(model: Any, name: str) -> Any:
    try:
        return getattr(model, name, None)
    except Exception:  # a property of a foreign class may raise anything
        return None


@dataclass(frozen=True, slots=True, eq=False)
class OwnModel:
    """The model in a file of timbermark's own, read without the engine."""

    trees: Ensemble
    classes: AnyArray | None  # None for bare trees, which have no labels of their own, and numbers
    feature_names: tuple[str, ...] | None
    file_digest: str  # SHA-256


def is_own_file(path: str | os.PathLike[str]) -> bool:
    """Return whether a file is one of timbermark's own. Raises OSError if it cannot be opened."""
    with open(path, "rb") as file:
        return file.read(len(_OURS)) == _OURS


def read_own_model(path: str | os.PathLike[str]) -> OwnModel:
    """Return the model in a file that timbermark wrote.

    Raises FileFormatError if it is no model of timbermark, OSError if it cannot be opened.
    """
    name = os.fspath(path)
    with open(path, "rb") as file:
        is_ensemble = file.read(_FIRST_BYTES).startswith(b"timbermark ensemble ")
        file.seek(0)
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if is_ensemble:
        return OwnModel(model_file.load_ensemble(path), None, None, digest)
    kind = _REGRESSOR if container_kind(path) == _REGRESSOR else _CLASSIFIER
    _, meta, arrays = read_container(path, kind, _MODEL_VERSION)
    if not isinstance(meta.get("ensemble"), dict):
        raise _incomplete(name, "ensemble")
    trees = model_file.ensemble_from_arrays(meta["ensemble"], arrays, prefix=_TREES)
    if trees.gives_numbers != (kind == _REGRESSOR):
        raise _incomplete(name, "objective")
    classes = arrays.get("classes") if kind == _CLASSIFIER else None
    if kind == _CLASSIFIER and (classes is None or classes.shape != (trees.n_classes,)):
        raise _incomplete(name, "classes")
    names = meta.get("feature_names")
    if names is not None and not _are_names(names, trees.n_features):
        raise _incomplete(name, "feature_names")
    return OwnModel(trees, classes, None if names is None else tuple(names), digest)


def _open_file(path: str | os.PathLike[str]) -> Suspect:
    model = read_own_model(path)
    trees, classes = model.trees, model.classes
    if trees.gives_numbers:
        return Suspect(
            description=f"file {os.fspath(path)}",
            answer_numbers=lambda X: _numbers(trees, X),
            feature_names=model.feature_names,
            n_features=trees.n_features,
            asked_through="file",
            digest=model.file_digest,
        )
    return Suspect(
        description=f"file {os.fspath(path)}",
        answer_scores=lambda X: _scores(trees, X),
        answer_labels=lambda X: (
            _class_numbers(trees, X) if classes is None else classes[_class_numbers(trees, X)]
        ),
        score_classes=None if classes is None else tuple(classes.tolist()),
        score_scale="probabilities",
        feature_names=model.feature_names,
        n_features=trees.n_features,
        answers_class_numbers=classes is None,
        asked_through="file",
        digest=model.file_digest,
    )


def _scores(trees: Ensemble, X: Rows) -> Reals:
    return reference.probabilities(reference.margins(trees, X), trees.objective)


def _numbers(trees: Ensemble, X: Rows) -> Reals:
    return reference.numbers(reference.margins(trees, X), trees.objective)[:, 0]


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


def ask(
    suspect: Suspect, answer: Callable[[Any], Any], columns: Sequence[Column], order: AnyArray
) -> Any:
    """Return the suspect's response to the triggers in the given order, whatever it is.

    ``columns`` are those of the suspect, ``answer`` is one of its functions.

    Raises InputError if the suspect raises anything, with that as its cause.

    >>> positive = open_suspect(lambda X: X[:, 0] > 0)
    >>> columns = [np.array([-1.0, 1.0])]
    >>> ask(positive, positive.answer_either, columns, np.array([1, 0]))
    array([ True, False])
    """
    places = np.asarray(order)
    asked = [
        column[places] if isinstance(column, np.ndarray) else tuple(column[i] for i in places)
        for column in columns
    ]
    try:
        return answer(plain_rows(asked, suspect.feature_names if suspect.takes_frames else None))
    except Exception as error:
        said = " ".join(str(error).split())[:300]
        raise InputError(
            f"The suspect ({suspect.description}) could not answer: "
            f"{type(error).__name__}{': ' if said else ''}{said}",
            hint="call it with a few rows of your own; it is given a matrix of the triggers' "
            "values.",
        ) from error
