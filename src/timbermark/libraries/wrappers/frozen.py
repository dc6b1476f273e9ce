"""Estimators that are kept from being fitted again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from timbermark.libraries import scikit_learn
from timbermark.libraries.wrappers.contract import Peel, Peeled

KINDS = ("FrozenEstimator",)
TRUSTED = ()


def is_kind(model: object) -> bool:
    """Return whether an object is a FrozenEstimator.

    >>> is_kind("a text")
    False
    """
    return scikit_learn.is_kind(model, *KINDS)


def peel(model: Any, peel: Peel) -> Peeled:
    """Return what is inside the frozen estimator."""
    inside = peel(model.estimator)
    return replace(inside, frozen=(*inside.frozen, model))
