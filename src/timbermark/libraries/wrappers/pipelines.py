"""Pipelines: transformers, `ColumnTransformer` among them, before the model."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from timbermark.errors import InputError
from timbermark.libraries import scikit_learn
from timbermark.libraries.wrappers.contract import Peel, Peeled

KINDS = ("Pipeline",)
TRUSTED = (
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


def is_kind(model: object) -> bool:
    """Return whether an object is a Pipeline, fitted or not.

    >>> is_kind("a text")
    False
    """
    return scikit_learn.is_kind(model, *KINDS)


def peel(model: Any, peel: Peel) -> Peeled:
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
