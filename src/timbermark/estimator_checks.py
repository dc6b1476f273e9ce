"""Parameters, rows, answers and weights as the estimators want them, or one clear sentence.

scikit-learn is imported where it is needed: plain arrays need none of its checks, and a command
that reads plain arrays does not wait for it.
"""

from __future__ import annotations

from dataclasses import replace
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from timbermark.boosting.data import PAPER, WHOLE_RANGES, TrainParams, real_problem
from timbermark.errors import InputError

_DEFAULTS = TrainParams()
_REAL = ("learning_rate", "split_sampling", "l2_regularization")


def check_params(estimator: Any) -> TrainParams:
    """Return the estimator's parameters, with a seed drawn where ``random_state`` is no number."""
    preset = getattr(estimator, "preset", None)
    if preset not in (None, "paper"):
        raise InputError(f"preset={preset!r} is not known.", hint="use None or 'paper'.")
    seed = estimator.random_state
    if not isinstance(seed, Integral):
        from sklearn.utils import check_random_state

        seed = check_random_state(seed).randint(2**31 - 1)
    if seed < 0:
        raise InputError(f"random_state={seed} must be at least 0.", hint="0 is a good start.")
    if preset == "paper":
        return replace(PAPER, seed=int(seed))
    values = {name: getattr(estimator, name) for name in (*WHOLE_RANGES, *_REAL)}
    for name, value in values.items():
        if name in _REAL:
            wanted = real_problem(name, float(value) if isinstance(value, Real) else np.nan)
        else:
            least, most = WHOLE_RANGES[name]
            whole = isinstance(value, Integral) and not isinstance(value, bool)
            fits = whole and least <= int(value) <= most
            wanted = "" if fits else f"a whole number from {least} to {most}"
        if wanted:
            raise InputError(
                f"{name}={value!r} must be {wanted}.",
                hint=f"{getattr(_DEFAULTS, name):g} is a good start.",
            )
    numbers: dict[str, Any] = {
        name: float(value) if name in _REAL else int(value) for name, value in values.items()
    }
    return TrainParams(**numbers, seed=int(seed))


def check_knob(name: str, value: Any) -> None:
    """Raise InputError unless ``value`` is a number that is at least 0."""
    if not isinstance(value, Real) or not float(value) >= 0:
        raise InputError(
            f"{name}={value!r} must be at least 0.",
            hint="see the default.",
            code="update.knob",
            parameter=name,
        )


def check_rows(estimator: Any, X: ArrayLike, reset: bool) -> np.ndarray:
    """Return ``X`` as a float64 matrix in C order; NaN is a missing value, infinity an error.

    On ``reset`` the number of features and their names are noted in the estimator, else they must
    be the same as then. Raises InputError.
    """
    if not reset and isinstance(X, np.ndarray) and _is_ready(estimator, X):
        return X
    try:
        rows = _validate(estimator, X, reset)
    except ValueError as error:
        raise InputError(
            str(error),
            hint="pass a table of numbers, NaN for a missing one; texts must be encoded, and a new "
            "category needs a new fit.",
            code="rows.table",
        ) from error
    return rows


def _validate(estimator: Any, X: ArrayLike, reset: bool) -> np.ndarray:
    options: dict[str, Any] = {
        "reset": reset,
        "dtype": np.float64,
        "order": "C",
        "ensure_min_samples": 1 if reset else 0,
    }
    try:
        from sklearn.utils.validation import validate_data
    except ImportError:  # scikit-learn before 1.6
        rows: np.ndarray = estimator._validate_data(X, force_all_finite="allow-nan", **options)
    else:
        rows = validate_data(estimator, X, ensure_all_finite="allow-nan", **options)
    return rows


def _is_ready(estimator: Any, X: np.ndarray) -> bool:
    """Return whether scikit-learn's checks, which take longer than a row's prediction, would pass.

    Where the model knows its columns' names, they warn of rows without.
    """
    return (
        type(X) is np.ndarray
        and X.dtype == np.float64
        and X.ndim == 2
        and X.shape[1] == estimator.n_features_in_
        and X.flags.c_contiguous
        and not hasattr(estimator, "feature_names_in_")
        and not np.isinf(X).any()
    )


def check_weight(sample_weight: ArrayLike | None, n: int) -> np.ndarray | None:
    """Return ``sample_weight`` as float64[n], or None where all rows weigh the same."""
    if sample_weight is None:
        return None
    try:
        weight = np.asarray(sample_weight, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(
            "sample_weight is no list of numbers.",
            hint="pass one weight for each row.",
            code="weights.type",
            parameter="sample_weight",
        ) from None
    if weight.ndim == 0:
        weight = np.full(n, float(weight))
    if weight.shape != (n,):
        raise InputError(
            f"sample_weight has the shape {weight.shape}, expected ({n},).",
            hint="pass one weight for each row.",
            code="weights.shape",
            parameter="sample_weight",
        )
    if not np.isfinite(weight).all() or (weight < 0).any():
        worst = weight[~(np.isfinite(weight) & (weight >= 0))][0]
        raise InputError(
            f"sample_weight holds {worst:g}; weights must be finite and at least 0.",
            hint="a weight of 0 leaves a row out.",
            code="weights.values",
            parameter="sample_weight",
        )
    if n and not weight.any():
        raise InputError(
            "All sample weights are zero, so no row is left.",
            hint="give some row a weight > 0.",
            code="weights.zero",
            parameter="sample_weight",
        )
    return weight


def check_numbers_of_rows(numbers: Any) -> np.ndarray:
    """Return the numbers of rows as int64[m]. Raises InputError for what are none.

    >>> check_numbers_of_rows([3, 1])
    array([3, 1])
    """
    given = np.asarray(numbers)
    if given.size == 0:
        return np.zeros(0, np.int64)
    if given.dtype.kind not in "iu" or (given > np.iinfo(np.int64).max).any():
        raise InputError(
            f"Numbers of rows must be whole, not of the type {given.dtype}.",
            hint="rows are counted from 0; a mask goes through numpy.flatnonzero, and values of "
            "rows are a matrix.",
            code="forget.numbers",
            parameter="rows",
        )
    return given.astype(np.int64)


def check_answers(y: ArrayLike, n: int) -> np.ndarray:
    """Return ``y`` [n] as an array of its own type: one answer for each row, all of them finite."""
    if y is None:
        raise InputError(
            "This estimator requires y to be passed, but the target y is None.",
            hint="pass one answer for each row.",
        )
    if type(y) is np.ndarray and y.ndim == 1 and y.dtype.kind in "biufUO":
        answers = y
    else:
        from sklearn.utils.validation import column_or_1d

        answers = column_or_1d(y, warn=True)
    if answers.dtype == object:
        missing = [c for c in answers if c is None or c != c]
    else:
        missing = list(answers[np.isnan(answers)]) if answers.dtype.kind == "f" else []
    if missing:
        raise InputError(
            f"{len(missing)} labels are missing (NaN or None).",
            hint="leave these rows out or label them.",
        )
    if answers.dtype.kind == "f" and np.isinf(answers).any():
        raise InputError(
            "Input y contains infinity, which is no label.",
            hint="check the label column.",
        )
    if len(answers) != n:
        raise InputError(
            f"There are {n} rows but {len(answers)} labels (inconsistent numbers of samples).",
            hint="pass one label for each row.",
            code="labels.count",
        )
    return answers


def check_labels(y: ArrayLike, n: int, classes: np.ndarray) -> np.ndarray:
    """Return the numbers int64[n] of the labels ``y`` among the ``classes`` of a model.

    Raises InputError for a label that is none of them.
    """
    labels = check_answers(y, n)
    if len(labels) == 0:
        return np.zeros(0, np.int64)
    try:
        place = np.searchsorted(classes, labels).clip(0, len(classes) - 1)
        known = classes[place] == labels
    except TypeError:
        known = np.zeros(len(labels), np.bool_)
    if not np.all(known):
        strange = list(dict.fromkeys(np.asarray(labels)[~known].tolist()))[:5]
        raise InputError(
            f"The model does not know the class {', '.join(map(repr, strange))}.",
            hint=f"its classes are {', '.join(map(repr, classes.tolist()[:12]))}; a new class "
            "needs a new fit.",
            code="labels.unknown",
        )
    return np.asarray(place)


def check_numbers(y: ArrayLike, n: int) -> np.ndarray:
    """Return ``y`` as float64[n]. Raises InputError for what are no numbers."""
    answers = check_answers(y, n)
    try:
        if answers.dtype.kind not in "biufO":
            raise TypeError(f"their type is {answers.dtype}")
        numbers = answers.astype(np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(
            f"A regressor learns numbers, but y holds something else ({error}).",
            hint="use TimberClassifier for labels.",
        ) from None
    if np.isinf(numbers).any():
        raise InputError("Input y contains infinity.", hint="check the target column.")
    return numbers
