"""Regressors whose targets are transformed: what is deployed answers on the scale of the targets.

``TransformedTargetRegressor`` trains the model inside on transformed targets (logarithms of prices)
and applies the inverse transformation to its numbers. A mark is read from the numbers that the
whole gives.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from timbermark.dtypes import Reals
from timbermark.errors import InputError
from timbermark.libraries import scikit_learn
from timbermark.libraries.wrappers.contract import Peel, Peeled, refuse_unfitted

KINDS = ("TransformedTargetRegressor",)
TRUSTED = ()


def is_kind(model: object) -> bool:
    """Return whether an object is a TransformedTargetRegressor, fitted or not.

    >>> is_kind("a text")
    False
    """
    return scikit_learn.is_kind(model, *KINDS)


def peel(model: Any, peel: Peel) -> Peeled:
    """Return what is inside the regressor, and the inverse transformation of its numbers."""
    inner, transformer = (getattr(model, name, None) for name in ("regressor_", "transformer_"))
    if inner is None or transformer is None:
        refuse_unfitted(model)
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
