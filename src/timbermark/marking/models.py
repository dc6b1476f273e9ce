"""Model files of any supported library, by what they hold and not by how they are called."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from timbermark.errors import InputError
from timbermark.libraries.registry import load_model, module_of, save_model

_OURS = b"timbermark "


def load(path: str | os.PathLike[str]) -> Any:
    """The model in a file: a TimberClassifier, or a model of the library that wrote the file.

    Raises FileFormatError for anything else, MissingLibraryError where the library is not
    installed, OSError where the file cannot be opened.

    >>> import tempfile
    >>> from sklearn.datasets import load_iris
    >>> from timbermark import TimberClassifier
    >>> model = TimberClassifier(max_iter=3, random_state=0).fit(*load_iris(return_X_y=True))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(model, f"{folder}/iris.timber")
    ...     type(load(f"{folder}/iris.timber")).__name__
    'TimberClassifier'
    """
    if is_ours(path):
        from timbermark.estimator import TimberClassifier

        return TimberClassifier.load(Path(path))
    return load_model(path)


def save(model: Any, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
    """Write a model to its own library's file, whole or not at all.

    A foreign model's file is read back by its library and compared, bit for bit, before it takes
    its place. Raises InputError where the file exists, unless ``overwrite``, or for a model that
    is not supported; StateError where the file predicts something else.
    """
    from timbermark.estimator import TimberClassifier

    if not isinstance(model, TimberClassifier):
        save_model(model, path, overwrite=overwrite)
        return
    if not overwrite and Path(path).exists():
        raise InputError(f"{path} exists.", hint="give another name, or ask to overwrite it.")
    model.save(Path(path))


def is_ours(path: str | os.PathLike[str]) -> bool:
    """Whether a file is timbermark's own, by its first line."""
    with open(path, "rb") as file:
        return file.read(len(_OURS)) == _OURS


def feature_names(model: Any) -> list[str] | None:
    """The names of a model's columns, where it knows them."""
    from timbermark.estimator import TimberClassifier

    if isinstance(model, TimberClassifier):
        names = getattr(model, "feature_names_in_", None)
    else:
        names = module_of(model).read(model).feature_names
    return None if names is None else [str(name) for name in names]
