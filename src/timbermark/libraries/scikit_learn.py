"""What the boosting models of scikit-learn have in common: form, margins, refusals.

``kinds`` are the names of their types, which are the same for classes derived from them: that of a
classifier and that of a regressor.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn

import numpy as np

from timbermark.dtypes import AnyArray, Reals
from timbermark.errors import InputError
from timbermark.libraries import skops_files
from timbermark.libraries.contract import PathLike, Task
from timbermark.trees.ensemble import Objective

name = "scikit-learn"
# Types in the files of both, beyond what skops trusts by itself; some only its newer versions do.
TRUSTED = (
    "sklearn._loss.loss.HalfBinomialLoss",
    "sklearn._loss.loss.HalfMultinomialLoss",
    "sklearn._loss._loss.CyHalfMultinomialLoss",
    "sklearn._loss.link.LogitLink",
    "sklearn._loss.link.MultinomialLogit",
    "sklearn._loss.link.Interval",
    "sklearn._loss.loss.HalfSquaredError",
    "sklearn._loss.loss.AbsoluteError",
    "sklearn._loss.loss.PinballLoss",
    "sklearn._loss.loss.HuberLoss",
    "sklearn._loss.loss.HalfPoissonLoss",
    "sklearn._loss.loss.HalfGammaLoss",
    "sklearn._loss._loss.CyHalfSquaredError",
    "sklearn._loss._loss.CyAbsoluteError",
    "sklearn._loss._loss.CyPinballLoss",
    "sklearn._loss._loss.CyHuberLoss",
    "sklearn._loss._loss.CyHalfPoissonLoss",
    "sklearn._loss._loss.CyHalfGammaLoss",
    "sklearn._loss.link.IdentityLink",
    "sklearn._loss.link.LogLink",
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

HISTOGRAM_KINDS = ("HistGradientBoostingClassifier", "HistGradientBoostingRegressor")
GRADIENT_KINDS = ("GradientBoostingClassifier", "GradientBoostingRegressor")

_LOSSES = {1: "HalfBinomialLoss"}  # by the number of trees per iteration; else:
_LOSS_OF_MANY = "HalfMultinomialLoss"
_NUMBERS: dict[str, Objective] = {
    **dict.fromkeys(("HalfSquaredError", "AbsoluteError", "PinballLoss", "HuberLoss"), "identity"),
    **dict.fromkeys(("HalfPoissonLoss", "HalfGammaLoss"), "exponential"),
}


def is_kind(model: object, kind: str) -> bool:
    """Return whether an object is of a type of scikit-learn, or of one derived from it.

    >>> is_kind("a text", "GradientBoostingClassifier")
    False
    """
    return any(
        c.__name__ == kind and c.__module__.startswith("sklearn.") for c in type(model).__mro__
    )


def is_any_kind(model: object, kinds: tuple[str, str]) -> bool:
    """Return whether an object is of one of the kinds, fitted or not.

    >>> is_any_kind("a text", GRADIENT_KINDS)
    False
    """
    return any(is_kind(model, kind) for kind in kinds)


def holds_kind(path: PathLike, kinds: tuple[str, str]) -> bool:
    """Return whether a skops archive holds a model of one of the kinds.

    Raises FileFormatError if it is no skops archive, OSError if it cannot be opened.
    """
    return skops_files.kind_of(path) in kinds


def names_of(model: Any) -> tuple[str, ...] | None:
    """Return the names of a model's features, None if it does not know any."""
    names = getattr(model, "feature_names_in_", None)
    return None if names is None else tuple(str(name) for name in names)


def find_kind(model: object, kinds: tuple[str, str]) -> str:
    """Return the kind of a model.

    Raises InputError if it is neither.
    """
    for kind in kinds:
        if is_kind(model, kind):
            return kind
    raise InputError(
        f"{type(model).__name__} is not a {kinds[0]}.", hint=f"give a fitted {' or '.join(kinds)}."
    )


def check_fitted(model: Any, kind: str, trees: str, needs: Iterable[str]) -> None:
    """Raise InputError unless a model of the kind is fitted and has all the named attributes.

    ``trees`` names the attribute that holds its trees.
    """
    if not hasattr(model, trees) and not hasattr(model, "classes_"):
        raise InputError(f"This {kind} is not fitted.", hint="call its fit first.")
    for name in (trees, *needs):
        if not hasattr(model, name):
            refuse_form(kind, f"it has no {name}")


def check_outputs(model: Any, kind: str) -> None:
    """Raise InputError unless a model has one tree per iteration and class, or one for two."""
    if task_of(kind) != "classification":
        if model.n_trees_per_iteration_ != 1:
            refuse_form(kind, f"it has {model.n_trees_per_iteration_} trees per iteration")
        return
    n_outputs, n_classes = model.n_trees_per_iteration_, len(model.classes_)
    if n_outputs != (1 if n_classes == 2 else n_classes):
        refuse_form(kind, f"it has {n_outputs} trees per iteration for {n_classes} classes")


def task_of(kind: str) -> Task:
    """Return the task of models of a kind.

    >>> task_of("GradientBoostingRegressor")
    'regression'
    """
    return "regression" if kind.endswith("Regressor") else "classification"


def objective_of(model: Any, kind: str) -> Objective | None:
    """Return what margins become under a model's loss, None if they do not tell its answers."""
    if task_of(kind) == "regression":
        return _NUMBERS.get(type(model._loss).__name__)
    if not _has_log_loss(model):
        return None
    return "logistic" if model.n_trees_per_iteration_ == 1 else "softmax"


def classes_of(model: Any, kind: str) -> AnyArray:
    """Return the labels of a classifier, none of a regressor."""
    return model.classes_.copy() if task_of(kind) == "classification" else np.empty(0, np.int64)


def _has_log_loss(model: Any) -> bool:
    expected = _LOSSES.get(model.n_trees_per_iteration_, _LOSS_OF_MANY)
    return bool(type(model._loss).__name__ == expected)


def margins(model: Any, X: Any) -> Reals:
    """Return the model's own raw scores, float64 [n, outputs]."""
    ask = model.predict
    if hasattr(model, "decision_function"):
        ask = model.decision_function
    elif hasattr(model, "_baseline_prediction"):
        # Only the histogram kind has regressors with a link: predict would apply it.
        ask = model._raw_predict
    # scikit-learn adds up all values to see whether one is not finite.
    with np.errstate(over="ignore", invalid="ignore"):
        scores: Reals = np.asarray(ask(X), dtype=np.float64)
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
