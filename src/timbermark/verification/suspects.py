"""Opening suspects of every kind: addresses, answers, files and objects of any library.

Files are read into trees and never executed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from timbermark import libraries
from timbermark.errors import InputError
from timbermark.libraries.contract import ForeignModel
from timbermark.libraries.wrappers import is_wrapper
from timbermark.ownership.suspects import Suspect
from timbermark.ownership.suspects import open_suspect as open_estimator
from timbermark.trees import reference
from timbermark.verification.answer_tables import AnswerTable, is_answer_file
from timbermark.verification.endpoints.endpoint import Endpoint, is_url
from timbermark.verification.file_digests import open_with_digest

_OURS = b"timbermark "
_XGBOOST = "XGBoost"


def open_suspect(suspect: Any) -> Any:
    """Return a suspect opened: an `Endpoint`, an `AnswerTable`, or what ownership takes.

    A text is an address if it begins with http:// or https://, otherwise the path of a file: a
    table of answers if it ends in .csv, .csv.gz or .parquet or is a Parquet file, otherwise a
    model. Files of other libraries and bare boosters, whose ``predict`` gives no labels, become
    trees; so do models that want tables with categories, where a mark has texts or the model's
    codes, and models of CatBoost, which name their columns in their own way and, once loaded, count
    none. A pair of a model and an encoder of labels is asked through both. Data frames and
    dictionaries are answers. Everything else, all other deployed models included,
    `timbermark.ownership` opens.

    Raises InputError or FileFormatError if an address, a file or a booster cannot be used.

    >>> open_suspect(len) is len
    True
    >>> open_suspect("http://localhost:5000/invocations")
    Endpoint(http://localhost:5000/invocations, protocol='mlflow')
    """
    if isinstance(suspect, Endpoint | AnswerTable):
        return suspect
    if is_url(suspect):
        return Endpoint(suspect)
    if isinstance(suspect, str | os.PathLike):
        if is_answer_file(suspect):
            return AnswerTable.from_file(suspect)
        with open(suspect, "rb") as file:
            if file.read(len(_OURS)) == _OURS:
                return suspect
        foreign, digest = open_with_digest(suspect)
        return _suspect(foreign, f"file {os.fspath(suspect)}", "file", digest)
    if isinstance(suspect, tuple) and is_wrapper(suspect):
        return _pair(*suspect)
    if isinstance(suspect, Mapping):
        return AnswerTable.from_mapping(suspect)
    if hasattr(suspect, "columns") and hasattr(suspect, "iloc"):
        return AnswerTable.from_frame(suspect)
    if _is_booster(suspect) or _is_catboost(suspect) or _takes_categories(suspect):
        return _suspect(libraries.open(suspect), type(suspect).__name__, "object", None)
    if _library(suspect) == "xgboost" and hasattr(suspect, "predict_proba"):
        return replace(open_estimator(suspect), stores_no_labels=True)
    return suspect


def _suspect(foreign: ForeignModel, what: str, through: str, digest: str | None) -> Suspect:
    trees, classes = foreign.ensemble, foreign.classes
    # Models of XGBoost, and bare boosters of LightGBM, have no labels of their own.
    numbered = foreign.library == _XGBOOST
    counts = foreign.kind == "Booster" and not numbered

    def margins(X: Any) -> np.ndarray:
        try:
            rows = foreign.rows(X)
        except InputError:
            raise
        except Exception as error:
            raise InputError(
                f"{foreign.library} does not take the triggers ({error}).",
                hint="the model wants other features than the mark has.",
            ) from error
        return np.asarray(reference.margins(trees, rows))

    def labels(X: Any) -> np.ndarray:
        found = margins(X)
        if foreign.scores is not None:
            numbers = foreign.confidence(found.astype(np.float64)).argmax(axis=1)
        else:
            numbers = reference.labels(found, trees)
        return numbers if counts else np.asarray(classes[numbers])

    names = foreign.feature_names
    if foreign.task != "classification":
        return Suspect(
            description=what,
            answer_numbers=lambda X: foreign.answers(margins(X).astype(np.float64))[:, 0],
            feature_names=names,
            n_features=None if names is None else len(names),
            takes_frames=foreign.takes_frames,
            asked_through=through,
            digest=digest,
        )
    return Suspect(
        description=what,
        answer_scores=lambda X: foreign.confidence(margins(X).astype(np.float64)),
        answer_labels=labels,
        score_classes=None if counts else tuple(classes.tolist()),
        feature_names=names,
        n_features=None if names is None else len(names),
        takes_frames=foreign.takes_frames,
        answers_class_numbers=counts,
        stores_no_labels=numbered,
        asked_through=through,
        digest=digest,
    )


def _pair(model: Any, encoder: Any) -> Suspect:
    """Return a model whose class numbers an encoder turns into labels."""
    asked = open_estimator(model)
    labels, numbers = asked.answer_labels, asked.score_classes
    return replace(
        asked,
        answer_labels=None if labels is None else lambda X: encoder.inverse_transform(labels(X)),
        score_classes=None if numbers is None else tuple(encoder.inverse_transform(numbers)),
    )


def _library(suspect: Any) -> str:
    """Return the name of the package that an object's type comes from."""
    return type(suspect).__module__.partition(".")[0]


def _is_booster(suspect: Any) -> bool:
    """Return whether an object is a library's bare booster."""
    return type(suspect).__name__ == "Booster" and _library(suspect) in ("xgboost", "lightgbm")


def _is_catboost(suspect: Any) -> bool:
    """Return whether an object is a model of CatBoost, trained or loaded."""
    return _library(suspect) == "catboost" and hasattr(suspect, "save_model")


def _takes_categories(suspect: Any) -> bool:
    """Return whether a classifier wants tables with categories."""
    library = _library(suspect)
    try:
        if library == "xgboost":
            return "c" in (suspect.get_booster().feature_types or ())
        if library == "lightgbm":
            return bool(suspect.booster_.pandas_categorical)
    except Exception:  # not fitted, or no classifier: it is asked like any other, and says so
        return False
    return False
