"""Models of every kind behind one contract, timbermark's own included, and their files."""

from __future__ import annotations

import copy
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from timbermark import libraries
from timbermark.errors import InputError
from timbermark.libraries.closing import check_edit
from timbermark.libraries.contract import ForeignModel, plain_columns
from timbermark.libraries.wrappers import WrapperAdapter, is_wrapper
from timbermark.trees import reference
from timbermark.trees.ensemble import Ensemble
from timbermark.trees.statistics import node_statistics

NAME = "timbermark"
_OURS = b"timbermark "


class OwnAdapter:
    """The `timbermark.libraries.Adapter` of timbermark's own estimators."""

    name = NAME

    def is_model(self, model: object) -> bool:
        """Return whether an object is a TimberClassifier or a TimberRegressor."""
        from timbermark.estimator import TimberClassifier, TimberRegressor

        return isinstance(model, TimberClassifier | TimberRegressor)

    def is_file(self, head: bytes) -> bool:
        """Return whether a file that begins with these bytes is timbermark's."""
        return head.startswith(_OURS)

    def open_file(self, path: str | os.PathLike[str]) -> ForeignModel:
        """Return the model in a file. Raises FileFormatError if it holds anything else."""
        from timbermark.estimator import load_estimator

        return self.open(load_estimator(path))

    def open(self, model: Any) -> ForeignModel:
        """Return a fitted estimator's trees. Raises InputError if it is not fitted."""
        if not hasattr(model, "ensemble_"):
            raise InputError("The model is not fitted.", hint="call fit first, or load a model.")
        names = getattr(model, "feature_names_in_", None)
        labels = not model.ensemble_.gives_numbers
        return ForeignModel(
            library=NAME,
            kind=type(model).__name__,
            ensemble=model.ensemble_,
            classes=np.asarray(model.classes_) if labels else np.empty(0, np.int64),
            feature_names=None if names is None else tuple(str(name) for name in names),
            margin_scale=1.0,
            leaf_dtype="f8",
            threshold_dtype="f8",
            native=model,
            adapter=self,
            task="classification" if labels else "regression",
            input_columns=plain_columns(model.ensemble_),
        )

    def rows(self, foreign: ForeignModel, X: Any) -> np.ndarray:
        """Return rows as float64 [n, d], checked against the model's features."""
        from timbermark.estimator_checks import check_rows

        return np.asarray(check_rows(foreign.native, X, reset=False))

    def native_rows(self, foreign: ForeignModel, rows: np.ndarray) -> Any:
        """Return the rows, which predict takes as they are."""
        return rows

    def margins(self, model: Any, X: Any) -> np.ndarray:
        """Return the margins, float64 [n, outputs]."""
        return np.asarray(reference.margins(model.ensemble_, X))

    def close(self, foreign: ForeignModel, ensemble: Ensemble) -> Any:
        """Return a copy with other leaves and thresholds, and without a training state.

        The fast predictor makes its codes of the new thresholds, and a state that is rebuilt later
        has them among its bins.
        """
        old, sums = foreign.ensemble, foreign.ensemble.hessian
        before, after = (
            node_statistics(trees, trees.value[:, 0], hessian=sums, l2=0.0).gain
            for trees in (old, ensemble)
        )
        grown = np.divide(after, before, out=np.ones(len(after)), where=before > 0.0)
        made = copy.copy(foreign.native)
        made._install(replace(ensemble, gain=old.gain * grown), None)
        return made

    def save(self, model: Any, path: str | os.PathLike[str]) -> None:
        """Write the model's own file."""
        model.save(Path(path))


OWN = OwnAdapter()


def open_model(source: Any) -> ForeignModel:
    """Return a model, or the model in a file, as trees with all that it takes to go back.

    What is open already is given back as it is.

    Raises InputError if it is not supported or not fitted, FileFormatError for other files.

    >>> from sklearn.datasets import load_iris
    >>> from timbermark import TimberClassifier
    >>> open_model(TimberClassifier(max_iter=3).fit(*load_iris(return_X_y=True))).library
    'timbermark'
    """
    if isinstance(source, ForeignModel):
        return source
    if isinstance(source, str | os.PathLike):
        return OWN.open_file(source) if is_ours(source) else libraries.open(source)
    return adapter_of(source).open(source)


def adapter_of(model: object) -> libraries.Adapter:
    """Return the adapter of a model; deployed models may have one of timbermark's own inside.

    Raises InputError if it is not supported.
    """
    if OWN.is_model(model):
        return OWN
    return WrapperAdapter(adapter_of) if is_wrapper(model) else libraries.adapter_of(model)


def close_model(foreign: ForeignModel, ensemble: Ensemble) -> Any:
    """Return a new model of the type that was opened, around other leaf values and thresholds.

    Raises what `timbermark.libraries.close` raises.
    """
    if foreign.adapter is OWN:
        # It predicts from the ensemble itself, so that there is nothing to compare afterwards.
        check_edit(foreign, ensemble)
        return OWN.close(foreign, ensemble)
    return libraries.close(foreign, ensemble)


def load(path: str | os.PathLike[str]) -> Any:
    """Return the model in a file: one of our own, or a model of the library that wrote it.

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
        from timbermark.estimator import load_estimator

        return load_estimator(path)
    return libraries.load(path)


def save(model: Any, path: str | os.PathLike[str], *, force: bool = False) -> None:
    """Write a model to its own library's file, whole or not at all.

    A foreign model's file is read back by its library and compared, bit for bit, before it takes
    its place. Raises InputError where the file exists, unless ``force``, or for a model that
    is not supported; StateError where the file predicts something else.
    """
    from timbermark.estimator_base import TimberEstimator

    if is_wrapper(model):
        WrapperAdapter(adapter_of).check_file(model)
    if not isinstance(model, TimberEstimator):
        libraries.save(model, path, force=force)
        return
    if not force and Path(path).exists():
        raise InputError(
            f"{path} exists.", hint="give another name, or force=True to overwrite it."
        )
    model.save(Path(path))


def is_ours(path: str | os.PathLike[str]) -> bool:
    """Return whether the first line of a file says that it is timbermark's own."""
    with open(path, "rb") as file:
        return file.read(len(_OURS)) == _OURS
