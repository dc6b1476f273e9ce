"""Searches for parameters, which predict with the best estimator that they found."""

from __future__ import annotations

from typing import Any

from timbermark.errors import InputError
from timbermark.libraries import scikit_learn
from timbermark.libraries.wrappers.contract import Peel, Peeled, refuse_unfitted

KINDS = ("GridSearchCV", "RandomizedSearchCV", "HalvingGridSearchCV", "HalvingRandomSearchCV")
TRUSTED = (
    "sklearn.metrics._scorer._PassthroughScorer",
    "sklearn.model_selection._split.StratifiedKFold",
    "sklearn.model_selection._split.KFold",
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
