"""Calibrated classifiers: one boosted model or several, and what makes probabilities of them.

The calibrators are asked by scikit-learn's own code, with the answers of the models inside in place
of the models.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np

from timbermark.dtypes import AnyArray, Reals
from timbermark.errors import InputError
from timbermark.libraries import scikit_learn
from timbermark.libraries.contract import ForeignModel
from timbermark.libraries.wrappers.contract import Peel, Peeled, refuse_unfitted

KINDS = ("CalibratedClassifierCV",)
TRUSTED = (
    "sklearn.calibration._CalibratedClassifier",
    "sklearn.calibration._SigmoidCalibration",
    "sklearn.calibration._TemperatureScaling",
    "scipy.interpolate._interpolate.interp1d",
)


def is_kind(model: object) -> bool:
    """Return whether an object is a CalibratedClassifierCV, fitted or not.

    >>> is_kind("a text")
    False
    """
    return scikit_learn.is_kind(model, *KINDS)


def peel(model: Any, peel: Peel) -> Peeled:
    """Return the models inside, and the mean of what calibration makes of each."""
    fitted = getattr(model, "calibrated_classifiers_", None)
    if not fitted:
        refuse_unfitted(model)
    parts = [peel(one.estimator) for one in fitted]
    if any(len(part.models) != 1 for part in parts):
        raise InputError(
            "The CalibratedClassifierCV is around another one with several models.",
            hint="calibrate once.",
        )
    # A frozen estimator is shared by all calibrators.
    numbers = {id(part.models[0]): number for number, part in reversed(list(enumerate(parts)))}
    distinct = [parts[number] for number in sorted(numbers.values())]
    place = {id(part.models[0]): number for number, part in enumerate(distinct)}
    places = [place[id(part.models[0])] for part in parts]

    def rows(X: Any) -> tuple[Any, ...]:
        return tuple(given for part in distinct for given in part.rows(X))

    def scores(models: Sequence[ForeignModel], margins: Sequence[Reals]) -> Reals:
        total: Any = 0.0
        for one, part, number in zip(fitted, parts, places, strict=True):
            response = _respond(one.estimator, part, models[number], margins[number])
            total = total + _with_response(one, response)
        return np.asarray(total / len(fitted))

    frozen = {id(each): each for part in parts for each in part.frozen}
    return Peeled(
        models=tuple(part.models[0] for part in distinct),
        rows=rows,
        scores=scores,
        classes=np.asarray(model.classes_),
        steps=parts[0].steps,
        frozen=tuple(frozen.values()),
    )


class _Response:
    """What a model inside answers, by the method that calibration asks for."""

    def __init__(self, method: str, values: AnyArray) -> None:
        self.method, self.values = method, values


def _respond(estimator: Any, part: Peeled, model: ForeignModel, margins: Reals) -> _Response:
    if hasattr(estimator, "decision_function"):
        return _Response("decision_function", margins if margins.shape[1] > 1 else margins[:, 0])
    if part.scores is not None:
        return _Response("predict_proba", part.scores([model], [margins]))
    return _Response("predict_proba", model.confidence(margins))


def _with_response(one: Any, response: _Response) -> Reals:
    """Return the probabilities of one calibrated model whose estimator answers as given."""
    from sklearn.base import BaseEstimator, ClassifierMixin

    class Echo(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
        """Answers with what it is given."""

    def respond(self: Any, X: Any) -> Any:
        return X

    respond.__name__ = response.method  # by which scikit-learn tells margins from probabilities
    setattr(Echo, response.method, respond)
    echo = Echo()
    echo.classes_ = one.estimator.classes_
    calibrated = copy.copy(one)
    calibrated.estimator = echo
    return np.asarray(calibrated.predict_proba(response.values), dtype=np.float64)
