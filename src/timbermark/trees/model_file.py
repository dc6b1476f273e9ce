"""A model of our own as a file: its trees, its classes, its columns' names and its parameters.

It holds no trace of training rows. Reading it takes neither scikit-learn nor the compiler.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from timbermark.errors import FileFormatError, InputError
from timbermark.files import read_container, write_container
from timbermark.files.reading import Meta
from timbermark.trees.ensemble import Ensemble
from timbermark.trees.ensemble_file import ensemble_from_arrays, ensemble_to_arrays

CLASSIFIER, REGRESSOR = "classifier", "regressor"
"""What the first line of a model's file says it is."""
FORMAT_VERSION = 1
"""Raised whenever a file written by the new code cannot be read by the old."""
_TREES = "trees_"


@dataclass(frozen=True, slots=True)
class SavedModel:
    """What a model's file holds.

    ``classes`` [K], None in regression; ``names`` of the columns, None where they have none;
    ``params``: the estimator's parameters, of which a file keeps those that are plain values.
    """

    ensemble: Ensemble
    classes: np.ndarray | None
    names: list[str] | None
    params: Mapping[str, Any]


def write_model(path: str | Path, model: SavedModel) -> None:
    """Write ``model`` to ``path``. Raises InputError for labels that no file can hold."""
    trees, arrays = ensemble_to_arrays(model.ensemble, prefix=_TREES)
    meta: Meta = {
        "ensemble": trees,
        "params": {k: v for k, v in model.params.items() if _is_plain(v)},
        "feature_names": model.names,
    }
    if model.classes is None:
        write_container(path, REGRESSOR, FORMAT_VERSION, meta, arrays)
        return
    are_texts = model.classes.dtype == object
    if model.classes.dtype.kind not in "biufU" and not all(
        isinstance(c, str) for c in model.classes
    ):
        raise InputError(
            f"Labels of type {model.classes.dtype} cannot be saved.",
            hint="use numbers or strings as labels.",
        )
    meta["object_labels"] = are_texts
    arrays["classes"] = model.classes.astype(str) if are_texts else model.classes
    write_container(path, CLASSIFIER, FORMAT_VERSION, meta, arrays)


def read_model(path: str | os.PathLike[str], kind: str) -> SavedModel:
    """Read what :func:`write_model` wrote. Raises FileFormatError for anything else."""
    _, meta, arrays = read_container(path, kind, FORMAT_VERSION)
    try:
        ensemble = ensemble_from_arrays(meta["ensemble"], arrays, prefix=_TREES)
        classes = None
        if kind == CLASSIFIER:
            classes = arrays["classes"]
            if ensemble.n_classes == 0 or classes.shape != (ensemble.n_classes,):
                raise KeyError("classes")
            classes = classes.astype(object) if meta["object_labels"] else classes
        elif ensemble.objective != "identity":
            raise KeyError("objective")
        names = meta["feature_names"]
        if names is not None and not _are_names(names, ensemble.n_features):
            raise KeyError("feature_names")
        return SavedModel(ensemble, classes, names, dict(meta["params"]))
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, FileFormatError):
            raise
        raise not_complete(error) from error


def not_complete(error: Exception) -> FileFormatError:
    """Return the error for a file that lacks something, or has it in another form."""
    return FileFormatError(
        f"The model file is not complete ({error}).",
        hint="save the model again.",
        code="file.incomplete",
    )


def _are_names(names: Any, n_features: int) -> bool:
    if not isinstance(names, list) or len(names) != n_features:
        return False
    return all(isinstance(name, str) for name in names)


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, bool | int | float | str)
