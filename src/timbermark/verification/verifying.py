"""Verification of any suspect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from timbermark.ownership.mark import Mark
from timbermark.ownership.verdict import Verdict
from timbermark.ownership.verifying import AnswersWanted
from timbermark.ownership.verifying import verify as verify_opened
from timbermark.verification.suspects import open_suspect


def verify(
    suspect: Any,
    mark: Mark,
    *,
    answers: AnswersWanted = "auto",
    feature_names: Sequence[str] | None = None,
    label_map: Mapping[Any, Any] | None = None,
) -> Verdict:
    """Ask a suspect the triggers of a mark and return what its answers prove.

    ``suspect``: a fitted model, a function from rows to labels or scores, or a model file of
    timbermark, XGBoost, LightGBM, CatBoost or skops. The other arguments are those of
    :func:`timbermark.ownership.verify`.

    Raises InputError where it cannot be asked, FileFormatError for a file that is no model.

    >>> import numpy as np
    >>> from timbermark import OwnerKey
    >>> mark = Mark.make(
    ...     OwnerKey.generate(), owner="Ann", model_digest="0" * 64, classes=[0, 1],
    ...     triggers=np.arange(64.0)[:, None], alphabets=[[0, 1]] * 64,
    ...     reference=np.full((64, 2), 0.5),
    ... )
    >>> verify(lambda X: np.zeros(len(X), int), mark).level
    'none'
    """
    return verify_opened(
        open_suspect(suspect), mark, answers=answers, feature_names=feature_names,
        label_map=label_map,
    )  # fmt: skip
