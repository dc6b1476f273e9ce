"""Losses of CatBoost: what a model was trained for, and how its margins become answers."""

from __future__ import annotations

import json
from typing import Any

from timbermark.errors import InputError
from timbermark.libraries.catboost.cbm import Contents
from timbermark.libraries.contract import Task
from timbermark.trees.ensemble import Objective

_OBJECTIVES: dict[str, Objective] = {
    "Logloss": "logistic",
    "CrossEntropy": "logistic",
    "MultiClass": "softmax",
    "MultiClassOneVsAll": "sigmoid",
}
_REGRESSION: dict[str, Objective] = {
    **dict.fromkeys(("RMSE", "MAE", "Quantile", "MAPE", "Lq", "Huber", "Expectile"), "identity"),
    "LogCosh": "identity",
    # What CatBoostRegressor.predict takes the exponential of.
    **dict.fromkeys(("Poisson", "Tweedie"), "exponential"),
}
_RANKING = (
    *("YetiRank", "YetiRankPairwise", "PairLogit", "PairLogitPairwise"),
    *("QueryRMSE", "QuerySoftMax", "QueryCrossEntropy", "StochasticRank", "LambdaMart"),
)
_SURVIVAL = ("Cox", "SurvivalAft")
_ESTIMATORS: dict[Task, str] = {
    "classification": "CatBoostClassifier",
    "regression": "CatBoostRegressor",
    "ranking": "CatBoostRanker",
}


def find_loss(contents: Contents) -> str | None:
    """Return the name of the loss that a model was trained with, None if it does not say."""
    loss = _find(contents, "loss_function", "type")
    if loss is None:
        loss = _parse(contents.info.get(b"loss_function", b"{}")).get("type")
    return loss if isinstance(loss, str) else None


def find_task(contents: Contents) -> Task | None:
    """Return the task of a model, by its loss; None if the loss is unknown."""
    loss = find_loss(contents)
    if loss in _OBJECTIVES:
        return "classification"
    return "regression" if loss in _REGRESSION else "ranking" if loss in _RANKING else None


def estimator_of(task: Task | None) -> str:
    """Return the name of CatBoost's class for a task; that of all models if it is not known.

    >>> estimator_of("ranking"), estimator_of(None)
    ('CatBoostRanker', 'CatBoost')
    """
    return "CatBoost" if task is None else _ESTIMATORS[task]


def check_estimator(model: Any, task: Task) -> None:
    """Raise InputError if the class of a model does not match its loss."""
    kinds = _estimators(model)
    if kinds and _ESTIMATORS[task] not in kinds:
        raise InputError(
            f"A {type(model).__name__} with a loss of {task} does not predict what the loss is "
            "for.",
            hint=f"load it as a {_ESTIMATORS[task]}.",
        )


def _estimators(model: Any) -> set[str]:
    """Return which of CatBoost's classes for a task a model belongs to; none for a bare model."""
    return {kind.__name__ for kind in type(model).__mro__} & set(_ESTIMATORS.values())


def find_objective(contents: Contents, model: Any) -> Objective:
    """Return how margins become answers. Raises InputError for losses that cannot be marked."""
    loss = str(find_loss(contents))
    ranking: dict[str, Objective] = dict.fromkeys(_RANKING, "identity")
    objectives = {**_OBJECTIVES, **_REGRESSION, **ranking}
    objective = objectives.get(loss)
    many = contents.trees["ApproxDimension"] > 1
    if loss in _SURVIVAL:
        raise InputError(
            f"The CatBoost model was trained with {loss}, a loss of survival, whose answers are "
            "hazards or times that may be censored.",
            hint="use a loss of classification, regression or ranking.",
        )
    if objective is None or (objective in ("softmax", "sigmoid")) != many:
        if many and (objective is not None or "Multi" in loss or "Uncertainty" in loss):
            raise InputError(
                f"The CatBoost model answers with several numbers at once ({loss}).",
                hint="train one model for each.",
            )
        raise InputError(
            f"The CatBoost model was trained with the loss {loss}.",
            hint=f"supported are {', '.join(objectives)}.",
        )
    # A bare CatBoost gives margins, whatever the loss.
    bare = loss in _REGRESSION and not _estimators(model)
    return "identity" if bare else objective


def refuse_threshold(contents: Contents) -> None:
    """Raise InputError if the model's labels are not the most likely ones."""
    threshold = contents.info.get(b"binclass_probability_threshold")
    if threshold is not None and float(threshold) != 0.5:
        raise InputError(
            f"The CatBoost model decides at the probability {threshold.decode()}, not at 0.5.",
            hint="call set_probability_threshold(0.5), and set it again afterwards.",
        )


def _find(contents: Contents, *keys: str) -> Any:
    """Return a parameter that the model was trained with, or None."""
    found: Any = _parse(contents.info.get(b"params", b"{}"))
    for key in keys:
        found = found.get(key) if isinstance(found, dict) else None
    return found


def _parse(text: bytes) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    return found if isinstance(found, dict) else {}
