"""Searches for parameters, which predict with the best estimator that they found."""

from __future__ import annotations

from typing import Any

from timbermark.errors import InputError
from timbermark.libraries import scikit_learn
from timbermark.libraries.wrappers.contract import Peel, Peeled, refuse_unfitted

KINDS = ("GridSearchCV", "RandomizedSearchCV", "HalvingGridSearchCV", "HalvingRandomSearchCV")
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
TRUSTED = (
    *(f"sklearn.metrics._{module}.{name}" for module, names in _METRICS.items() for name in names),
    *(f"sklearn.model_selection._split.{name}" for name in _SPLITTERS),
)


def is_kind(model: object) -> bool:
    """Return whether an object is a search for parameters, fitted or not.

    >>> is_kind("a text")
    False
    """
    return any(scikit_learn.is_kind(model, kind) for kind in KINDS)


def peel(model: Any, peel: Peel) -> Peeled:
    """Return what is inside the best estimator."""
    best = getattr(model, "best_estimator_", None)
    if best is None:
        if not model.refit:
            raise InputError(
                f"The {type(model).__name__} keeps no model (refit=False).",
                hint="search with refit=True, or give the model that you deploy.",
            )
        refuse_unfitted(model)
    return peel(best)
