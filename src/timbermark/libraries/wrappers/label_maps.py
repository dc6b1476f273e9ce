"""A model together with a fitted LabelEncoder: what is deployed answers with the encoder's labels.

XGBoost takes class numbers only, so that many services map labels around it. Such a pair is given
as ``(model, encoder)``; an encoder is whatever has ``classes_`` and ``inverse_transform``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from timbermark.errors import InputError
from timbermark.libraries.wrappers.contract import Peel, Peeled

KINDS = ("tuple",)
TRUSTED = ()


def is_kind(model: object) -> bool:
    """Return whether an object is a pair of a model and an encoder of labels.

    >>> from sklearn.preprocessing import LabelEncoder
    >>> is_kind(("model", LabelEncoder())), is_kind(("model", "encoder"))
    (True, False)
    """
    return isinstance(model, tuple) and len(model) == 2 and hasattr(model[1], "inverse_transform")


def peel(model: Any, peel: Peel) -> Peeled:
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
