"""The kinds of deployed models around boosted ones: how rows get in and how answers come out.

| kind | what is deployed |
|---|---|
| pipelines | transformers, `ColumnTransformer` among them, before the model |
| searches | searches for parameters, which predict with the best estimator that they found |
| frozen | estimators that are kept from being fitted again |
| calibration | one boosted model or several, and what makes probabilities of them |
| label maps | ``(model, encoder)``: the model answers with the labels of a fitted LabelEncoder |
| targets | regressors whose targets are transformed: numbers are those after transforming back |

Each kind peels one layer off; `WrapperKind.peel` is given the function that peels the next.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn, TypeAlias

import numpy as np

from timbermark.dtypes import AnyArray, Reals
from timbermark.errors import InputError
from timbermark.libraries import scikit_learn
from timbermark.libraries.contract import ForeignModel

Scores: TypeAlias = Callable[[Sequence[ForeignModel], Sequence[Reals]], Reals]


@dataclass(frozen=True, slots=True, eq=False)
class Peeled:
    """The boosted models in a deployed one, the way in and the way out.

    ``scores`` makes answers [n, classes] of the opened models and their margins, in their order;
    None where they are those of the only model inside. ``numbers`` makes the numbers that the
    deployed model gives of those of the only model inside; None where they are the same.
    ``steps``: the fitted transformers that rows pass on their way to the first model, in order.
    ``frozen``: wrappers that a copy must be made of by hand.
    """

    models: tuple[Any, ...]
    rows: Callable[[Any], tuple[Any, ...]]  # what predict takes -> what each model takes
    scores: Scores | None = None
    numbers: Callable[[Reals], Reals] | None = None
    classes: AnyArray | None = None  # None: those of the only model inside
    steps: tuple[Any, ...] = ()
    frozen: tuple[Any, ...] = ()


Peel: TypeAlias = Callable[[Any], Peeled]


@dataclass(frozen=True, slots=True)
class WrapperKind:
    """A kind of wrapper: the names of its types, and how to get at what is inside.

    ``peel`` returns what is inside a fitted wrapper; it is given the wrapper and the function that
    does so for what is inside it, and raises InputError if the wrapper is not fitted or not
    supported. ``trusted``: types in files of this kind, beyond what skops trusts by itself.
    """

    names: tuple[str, ...]
    peel: Callable[[Any, Peel], Peeled]
    trusted: tuple[str, ...] = ()

    def matches(self, model: object) -> bool:
        """Return whether an object is such a wrapper, fitted or not."""
        if isinstance(model, tuple):  # an encoder is whatever maps numbers back to labels
            pair = len(model) == 2 and hasattr(model[1], "inverse_transform")
            return pair and "tuple" in self.names
        return any(scikit_learn.is_kind(model, name) for name in self.names)


def _refuse_unfitted(model: Any) -> NoReturn:
    """Raise InputError for a wrapper that is not fitted."""
    raise InputError(f"The {type(model).__name__} is not fitted.", hint="call its fit first.")


_PIPELINE_TYPES = (
    "numpy.dtype",
    # By which columns are selected.
    *("builtins.object", "numpy.number", "numpy.integer", "numpy.floating"),
    # Of SplineTransformer; they are checked before they are asked, because what they say about
    # their size is believed by compiled code.
    "scipy.interpolate._bsplines.BSpline",
    "scipy._lib.array_api_compat.numpy._aliases.asarray",
    "scipy._external.array_api_compat.numpy._aliases.asarray",
    "sklearn.compose._column_transformer.make_column_selector",
    "sklearn.compose._column_transformer._RemainderColsList",
)


def _peel_pipelines(model: Any, peel: Peel) -> Peeled:
    """Return what is inside the last step; rows pass through the others first."""
    if not model.steps or model.steps[-1][1] in (None, "passthrough"):
        raise InputError("The Pipeline has no model at its end.", hint="give a whole pipeline.")
    inside = peel(model.steps[-1][1])
    before = model[:-1]
    if all(step in (None, "passthrough") for _, step in before.steps):
        return inside
    steps = tuple(step for _, step in before.steps)
    return replace(
        inside,
        rows=lambda X: inside.rows(before.transform(X)),
        steps=(*steps, *inside.steps),
    )


# Functions that compare answers and rules that split rows: nothing in them runs when a file is
# read, and what they are given to run must be trusted by itself.
_METRICS = {
    "classification": (
        *("accuracy_score", "balanced_accuracy_score", "brier_score_loss", "cohen_kappa_score"),
        *("d2_brier_score", "d2_log_loss_score", "f1_score", "fbeta_score", "jaccard_score"),
        *("log_loss", "matthews_corrcoef", "precision_score", "recall_score"),
    ),
    "ranking": (
        *("average_precision_score", "dcg_score", "ndcg_score", "roc_auc_score"),
        "top_k_accuracy_score",
    ),
    "regression": (
        *("d2_absolute_error_score", "d2_pinball_score", "d2_tweedie_score", "max_error"),
        *("explained_variance_score", "mean_absolute_error", "mean_absolute_percentage_error"),
        *("mean_gamma_deviance", "mean_pinball_loss", "mean_poisson_deviance", "r2_score"),
        *("mean_squared_error", "mean_squared_log_error", "mean_tweedie_deviance"),
        *("median_absolute_error", "root_mean_squared_error", "root_mean_squared_log_error"),
    ),
    "scorer": (
        *("_MultimetricScorer", "_PassthroughScorer", "_PredictScorer", "_ProbaScorer"),
        *("_Scorer", "_ThresholdScorer"),
    ),
}
_SPLITTERS = (
    *("GroupKFold", "GroupShuffleSplit", "KFold", "LeaveOneGroupOut", "LeaveOneOut"),
    *("LeavePGroupsOut", "LeavePOut", "PredefinedSplit", "RepeatedKFold"),
    *("RepeatedStratifiedKFold", "ShuffleSplit", "StratifiedGroupKFold", "StratifiedKFold"),
    *("StratifiedShuffleSplit", "TimeSeriesSplit"),
)
_SEARCHES = ("GridSearchCV", "RandomizedSearchCV", "HalvingGridSearchCV", "HalvingRandomSearchCV")
_SEARCH_TYPES = (
    *(f"sklearn.metrics._{module}.{name}" for module, names in _METRICS.items() for name in names),
    *(f"sklearn.model_selection._split.{name}" for name in _SPLITTERS),
)


def _peel_searches(model: Any, peel: Peel) -> Peeled:
    """Return what is inside the best estimator."""
    best = getattr(model, "best_estimator_", None)
    if best is None:
        if not model.refit:
            raise InputError(
                f"The {type(model).__name__} keeps no model (refit=False).",
                hint="search with refit=True, or give the model that you deploy.",
            )
        _refuse_unfitted(model)
    return peel(best)


def _peel_frozen(model: Any, peel: Peel) -> Peeled:
    """Return what is inside the frozen estimator."""
    inside = peel(model.estimator)
    return replace(inside, frozen=(*inside.frozen, model))


_CALIBRATION_TYPES = (
    "sklearn.calibration._CalibratedClassifier",
    "sklearn.calibration._SigmoidCalibration",
    "sklearn.calibration._TemperatureScaling",
    "scipy.interpolate._interpolate.interp1d",
)


def _peel_calibration(model: Any, peel: Peel) -> Peeled:
    """Return the models inside, and the mean of what calibration makes of each."""
    fitted = getattr(model, "calibrated_classifiers_", None)
    if not fitted:
        _refuse_unfitted(model)
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


def _peel_label_maps(model: Any, peel: Peel) -> Peeled:
    """Return what is inside the model, with the labels of the encoder."""
    inner, encoder = model
    if getattr(encoder, "classes_", None) is None:
        raise InputError(
            f"The {type(encoder).__name__} is not fitted.", hint="fit it on the labels first."
        )
    inside = peel(inner)
    numbers = np.asarray(getattr(inner, "classes_", np.arange(len(encoder.classes_))))
    try:
        labels = np.asarray(encoder.inverse_transform(numbers))
    except (ValueError, TypeError, IndexError) as error:
        raise InputError(
            f"The {type(encoder).__name__} does not know the model's classes ({error}).",
            hint="give the encoder that made the labels which the model was trained on.",
        ) from None
    return replace(inside, classes=labels)


def _peel_targets(model: Any, peel: Peel) -> Peeled:
    """Return what is inside the regressor, and the inverse transformation of its numbers."""
    inner, transformer = (getattr(model, name, None) for name in ("regressor_", "transformer_"))
    if inner is None or transformer is None:
        _refuse_unfitted(model)
    inside = peel(inner)
    before = inside.numbers

    def transform_back(given: Reals) -> Reals:
        # Numbers beyond what can be transformed back are not finite, which the caller sees.
        with np.errstate(all="ignore"):
            taken = given if before is None else before(given)
            made = transformer.inverse_transform(taken.reshape(-1, 1))
        return np.asarray(made, dtype=np.float64)

    def numbers(given: Reals) -> Reals:
        return transform_back(given).reshape(given.shape)

    try:
        width = transform_back(np.array([[0.5], [1.0]])).reshape(2, -1).shape
    except Exception as error:
        raise InputError(
            f"The {type(model).__name__} does not transform numbers back ({error}).",
            hint="give an inverse_func or a transformer that takes a column of numbers.",
        ) from error
    if width != (2, 1):
        raise InputError(
            f"The {type(model).__name__} gives {width[-1]} numbers for each row.",
            hint="mark a model that gives one; train one for each target.",
        )
    return replace(inside, numbers=numbers)


KINDS = (
    WrapperKind(("Pipeline",), _peel_pipelines, _PIPELINE_TYPES),
    WrapperKind(_SEARCHES, _peel_searches, _SEARCH_TYPES),
    WrapperKind(("FrozenEstimator",), _peel_frozen),
    WrapperKind(("CalibratedClassifierCV",), _peel_calibration, _CALIBRATION_TYPES),
    WrapperKind(("tuple",), _peel_label_maps),
    WrapperKind(("TransformedTargetRegressor",), _peel_targets),
)
