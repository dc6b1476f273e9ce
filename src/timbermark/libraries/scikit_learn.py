"""What the two boosting classifiers of scikit-learn have in common: form, margins, refusals.

``kind`` is the name of a classifier's type, which is the same for classes derived from it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn

import numpy as np

from timbermark.dtypes import AnyArray, Reals
from timbermark.errors import InputError

name = "scikit-learn"
# Types in the files of both, beyond what skops trusts by itself; some only its newer versions do.
TRUSTED = (
    "sklearn._loss.loss.HalfBinomialLoss",
    "sklearn._loss.loss.HalfMultinomialLoss",
    "sklearn._loss._loss.CyHalfMultinomialLoss",
    "sklearn._loss.link.LogitLink",
    "sklearn._loss.link.MultinomialLogit",
    "sklearn._loss.link.Interval",
)

GRADIENT_TYPES = ("sklearn.tree._tree.Tree", *TRUSTED)
HISTOGRAM_TYPES = (
    "functools.partial",
    "sklearn.utils.validation.check_array",
    "sklearn.compose._column_transformer._RemainderColsList",  # a list, of 1.5 and 1.6
    "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
    "sklearn.ensemble._hist_gradient_boosting.binning._BinMapper",
    *TRUSTED,
)

_LOSSES = {1: "HalfBinomialLoss"}  # by the number of trees per iteration; else:
_LOSS_OF_MANY = "HalfMultinomialLoss"


def is_kind(model: object, kind: str) -> bool:
    """Return whether an object is of a type of scikit-learn, or of one derived from it.

    >>> is_kind("a text", "GradientBoostingClassifier")
    False
    """
    return any(
        c.__name__ == kind and c.__module__.startswith("sklearn.") for c in type(model).__mro__
    )


def check_fitted(model: Any, kind: str, trees: str, needs: Iterable[str]) -> None:
    """Raise InputError unless a model is a fitted one of the kind, with all the named attributes.

    ``trees`` names the attribute that holds its trees.
    """
    given = type(model).__name__
    if not is_kind(model, kind):
        what = "a regressor" if given.endswith("Regressor") else f"not a {kind}"
        raise InputError(f"{given} is {what}.", hint=f"give a fitted {kind}.")
    if not hasattr(model, trees) and not hasattr(model, "classes_"):
        raise InputError(f"This {kind} is not fitted.", hint="call its fit first.")
    for name in (trees, *needs):
        if not hasattr(model, name):
            refuse_form(kind, f"it has no {name}")


def check_outputs(model: Any, kind: str) -> None:
    """Raise InputError unless a model has one tree per iteration and class, or one for two."""
    n_outputs, n_classes = model.n_trees_per_iteration_, len(model.classes_)
    if n_outputs != (1 if n_classes == 2 else n_classes):
        refuse_form(kind, f"it has {n_outputs} trees per iteration for {n_classes} classes")


def has_log_loss(model: Any) -> bool:
    """Return whether a model's loss is that of logistic margins, or of softmax if it has many."""
    expected = _LOSSES.get(model.n_trees_per_iteration_, _LOSS_OF_MANY)
    return bool(type(model._loss).__name__ == expected)


def margins(model: Any, X: Any) -> Reals:
    """Return the model's own raw scores, float64 [n, outputs]."""
    scores: Reals = np.asarray(model.decision_function(X), dtype=np.float64)
    return scores.reshape(len(scores), -1)


def name_columns(model: Any, X: AnyArray) -> Any:
    """Return a DataFrame if the model knows names of features and pandas is installed, else X."""
    if getattr(model, "feature_names_in_", None) is not None:
        try:
            import pandas as pd
        except ImportError:
            return X
        return pd.DataFrame(X, columns=model.feature_names_in_, dtype=X.dtype)
    return X


def without_scorer(model: Any) -> Any:
    """Return a model without the scorer of early stopping, which skops cannot write.

    Only continued training would need it. The model that is given stays as it is.
    """
    plain = object.__new__(type(model))
    plain.__dict__.update(vars(model))
    # Training with a scorer leaves a method of the model in the model, a circle for skops.
    plain.__dict__.pop("_raw_predict", None)
    if getattr(plain, "_scorer", None) is not None:
        plain._scorer = None
    return plain


def refuse_rows(kind: str, error: Exception) -> NoReturn:
    """Raise InputError for rows that scikit-learn does not take."""
    raise InputError(
        f"{kind} does not take these rows ({error}).", hint="give what predict takes."
    ) from error


def refuse_form(kind: str, reason: str) -> NoReturn:
    """Raise InputError for a model that cannot be read."""
    import sklearn

    raise InputError(
        f"This {kind} is kept in a form that is not known: {reason}.",
        hint=f"scikit-learn 1.4 to 1.9 are supported, this is {sklearn.__version__}; "
        "fit the model anew if it comes from an older one.",
    )
