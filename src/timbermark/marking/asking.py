"""Verification of any suspect: what :mod:`timbermark.ownership` can ask, and foreign models too.

Ownership knows timbermark's own files, functions and estimators, and nothing of other libraries.
Their files, and their boosters that predict no labels, are read here and asked through the
reference predictor, without the engine.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from timbermark.errors import InputError
from timbermark.libraries.registry import load_model, module_of
from timbermark.marking.models import is_ours
from timbermark.ownership.mark import Mark
from timbermark.ownership.verdict import Verdict
from timbermark.ownership.verifying import verify as verify_plain
from timbermark.trees import reference


def verify(suspect: Any, mark: Mark, *, feature_names: Sequence[str] | None = None) -> Verdict:
    """Ask a suspect the triggers of a mark and judge its answers; see :class:`Verdict`.

    ``suspect``: a fitted model, a function from rows to labels, or a model file of timbermark,
    XGBoost, LightGBM, CatBoost or skops. ``feature_names``: the order of its columns, where the
    suspect does not know them by name.

    Raises InputError where it cannot be asked, FileFormatError for a file that is no model.

    >>> import numpy as np
    >>> from timbermark import OwnerKey
    >>> mark = Mark.make(
    ...     OwnerKey.generate(), owner="Ann", model_digest="0" * 64, classes=[0, 1],
    ...     triggers=np.arange(64.0)[:, None], alphabets=[[0, 1]] * 64,
    ... )
    >>> verify(lambda X: np.zeros(len(X), int), mark).level
    'none'
    """
    given, names = suspect, feature_names
    if isinstance(suspect, str | os.PathLike):
        if not is_ours(suspect):
            given, own = _ask_trees(load_model(suspect))
            names = names or _common(own, mark)
    elif _is_booster(suspect) or _takes_categories(suspect):
        given, own = _ask_trees(suspect)
        names = names or _common(own, mark)
    return verify_plain(given, mark, feature_names=names)


def _common(own: Sequence[str] | None, mark: Mark) -> Sequence[str] | None:
    """The suspect's own names, unless it made them up: then the place counts."""
    known = getattr(mark, "feature_names", None)
    return own if own and known and set(own) & set(known) else None


def _is_booster(suspect: Any) -> bool:
    """Whether an object is a library's bare booster: it has a ``predict`` that gives no labels."""
    kind = type(suspect)
    return kind.__name__ == "Booster" and kind.__module__.partition(".")[0] in (
        "xgboost",
        "lightgbm",
    )


def _takes_categories(suspect: Any) -> bool:
    """Whether a classifier wants tables with categories, where a mark has the model's codes."""
    library = type(suspect).__module__.partition(".")[0]
    try:
        if library == "xgboost":
            return "c" in (suspect.get_booster().feature_types or ())
        if library == "lightgbm":
            return bool(suspect.booster_.pandas_categorical)
    except Exception:  # not fitted, or no classifier: it is asked like any other, and says so
        return False
    return False


def _ask_trees(
    model: Any,
) -> tuple[Callable[[np.ndarray], np.ndarray], Sequence[str] | None]:
    """A function from rows to labels, and the names of its columns."""
    module = module_of(model)
    reading = module.read(model)
    trees, classes = reading.ensemble, np.asarray(reading.classes)

    def answer(X: np.ndarray) -> np.ndarray:
        try:
            rows = module.rows(reading, X)
        except InputError:
            raise
        except Exception as error:
            raise InputError(
                f"{reading.library} does not take the triggers ({error}).",
                hint="the model wants other features than the mark has.",
            ) from error
        return np.asarray(classes[reference.labels(reference.margins(trees, rows), trees)])

    return answer, reading.feature_names
