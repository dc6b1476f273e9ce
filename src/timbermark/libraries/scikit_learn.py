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
from timbermark.libraries.contract import Task, ancestors, unfitted
from timbermark.trees.ensemble import Objective

name = "scikit-learn"
HISTOGRAM_KINDS = ("HistGradientBoostingClassifier", "HistGradientBoostingRegressor")
GRADIENT_KINDS = ("GradientBoostingClassifier", "GradientBoostingRegressor")

_OBJECTIVES: dict[str, Objective] = {
    "HalfBinomialLoss": "logistic",
    "HalfMultinomialLoss": "softmax",
    **dict.fromkeys(("HalfSquaredError", "AbsoluteError", "PinballLoss", "HuberLoss"), "identity"),
    **dict.fromkeys(("HalfPoissonLoss", "HalfGammaLoss"), "exponential"),
}


def is_kind(model: object, kind: str) -> bool:
    """Return whether an object is of a type of scikit-learn, or of one derived from it.

    >>> is_kind("a text", "GradientBoostingClassifier")
    False
    """
    return kind in ancestors(model, "sklearn")


def names_of(model: Any) -> tuple[str, ...] | None:
    """Return the names of a model's features, None if it does not know any."""
    names = getattr(model, "feature_names_in_", None)
    return None if names is None else tuple(str(name) for name in names)


def check_form(model: Any, kinds: tuple[str, str], trees: str, needs: Iterable[str]) -> str:
    """Return the kind of a fitted model that has all the named attributes, with a known loss.

    ``trees`` names the attribute that holds its trees. Classifiers have one tree per iteration and
    class, or one for two classes.

    Raises InputError for any other model.
    """
    kind = next((kind for kind in kinds if is_kind(model, kind)), None)
    if kind is None:
        raise InputError(
            f"{type(model).__name__} is not a {kinds[0]}.",
            hint=f"give a fitted {' or '.join(kinds)}.",
        )
    if not hasattr(model, trees) and not hasattr(model, "classes_"):
        raise unfitted(model)
    labels = task_of(kind) == "classification"
    for name in (trees, *needs, *(("classes_",) if labels else ())):
        if not hasattr(model, name):
            refuse_form(kind, f"it has no {name}")
    n_outputs, n_classes = model.n_trees_per_iteration_, len(model.classes_) if labels else 2
    if n_classes < 2:
        raise InputError(f"This {kind} knows {n_classes} class.", hint="two are needed to decide.")
    if n_outputs != (1 if n_classes == 2 else n_classes):
        refuse_form(kind, f"it has {n_outputs} trees per iteration for {n_classes} classes")
    if objective_of(model, kind) is None:
        raise InputError(
            f"loss={model.loss!r} ({type(model._loss).__name__}) gives other answers than its "
            "margins tell.",
            hint=f"train with loss='{'log_loss' if labels else 'squared_error'}'.",
        )
    return kind


def task_of(kind: str) -> Task:
    """Return the task of models of a kind.

    >>> task_of("GradientBoostingRegressor")
    'regression'
    """
    return "regression" if kind.endswith("Regressor") else "classification"


def objective_of(model: Any, kind: str) -> Objective | None:
    """Return what margins become under a model's loss, None if they do not tell its answers."""
    found = _OBJECTIVES.get(type(model._loss).__name__)
    fitting: tuple[Objective, ...] = ("identity", "exponential")
    if task_of(kind) == "classification":
        fitting = ("logistic",) if model.n_trees_per_iteration_ == 1 else ("softmax",)
    return found if found in fitting else None


def classes_of(model: Any, kind: str) -> AnyArray:
    """Return the labels of a classifier, none of a regressor."""
    return model.classes_.copy() if task_of(kind) == "classification" else np.empty(0, np.int64)


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
