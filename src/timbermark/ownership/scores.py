"""Reading a suspect's scores as probabilities of the mark's classes."""

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import numpy as np

from timbermark.dtypes import AnyArray, Reals
from timbermark.errors import InputError
from timbermark.ownership.evidence import softmax
from timbermark.ownership.labels import Label, read_answers

ScoreScale: TypeAlias = Literal["auto", "probabilities", "margins"]

# Sums of float32 numbers pass 1 by a few units in the last place.
_HIGHEST_PROBABILITY = 1.0 + 1e-5
_HINT = "answer with a matrix of one row for each question and one column for each class."


def are_scores(response: Any, n: int, n_classes: int) -> bool:
    """Return whether a response has the shape of scores, [n, K], rather than that of labels.

    >>> are_scores([[0.2, 0.8], [0.5, 0.5]], 2, 2), are_scores([0, 1], 2, 2)
    (True, False)
    """
    try:
        return bool(np.shape(response) == (n, n_classes))
    except Exception:  # the conversion may be the suspect's own code
        return False


def read_scores(
    response: Any,
    n: int,
    mark_classes: Sequence[Label],
    score_classes: Sequence[Any] | None,
    scale: ScoreScale = "auto",
) -> tuple[Reals, tuple[Any, ...]]:
    """Return a response as probabilities [n, K] of the mark's classes, and the strange classes.

    ``score_classes`` are the labels of the response's columns; None says that they are the mark's,
    in its order. A class that the suspect does not know has the probability 0; a class that the
    mark does not know is strange and left out. A row with NaN becomes NaN: not answered.

    Where the response names its columns (a data frame, a table), the names are the classes, in
    whatever order; columns that are only counted are taken by place.

    ``scale`` "margins" stands for raw scores and logarithms of probabilities, which go through
    softmax; "auto" takes the values as probabilities if all are from 0 to 1, otherwise as margins.
    Where answers come one by one the scale must be fixed before, because the rule looks at all.

    Raises InputError if it is no such matrix, if no class is one of the mark's, or if its columns
    have names that are no classes.

    >>> read_scores([[0.2, 0.8]], 1, ("no", "yes"), ("yes", "no"))
    (array([[0.8, 0.2]]), ())
    >>> import pandas as pd
    >>> read_scores(pd.DataFrame({"yes": [0.2], "no": [0.8]}), 1, ("no", "yes"), None)
    (array([[0.8, 0.2]]), ())
    """
    width = len(mark_classes) if score_classes is None else len(score_classes)
    values = _matrix(response, n, width)
    named = _places_by_name(response, mark_classes if score_classes is None else score_classes)
    if named is not None:
        values = values[:, named]
    if score_classes is None:
        return _probabilities(values, scale), ()
    numbers = read_answers([_plain(label) for label in score_classes], tuple(mark_classes))
    known = numbers >= 0
    if not known.any():
        raise InputError(
            f"No class of the suspect ({_show(score_classes)}) is one of the mark "
            f"({_show(mark_classes)}).",
            hint="is it a model of the same task? Otherwise give label_map={theirs: yours} and "
            'answers="labels".',
        )
    if len(set(numbers[known].tolist())) < known.sum():
        raise InputError(
            f"Two classes of the suspect ({_show(score_classes)}) are the same class of the mark.",
            hint="give its labels the type that they had when the model was marked.",
        )
    probabilities = _probabilities(values, scale)
    placed = np.zeros((n, len(mark_classes)))
    placed[:, numbers[known]] = probabilities[:, known]
    placed[np.isnan(probabilities).any(axis=1)] = np.nan
    strange = (label for label, is_known in zip(score_classes, known, strict=True) if not is_known)
    return placed, tuple(strange)


def settle_scale(response: Any, scale: ScoreScale) -> ScoreScale:
    """Return the scale on which `read_scores` reads a response: "probabilities" or "margins".

    >>> settle_scale([[0.2, 0.8]], "auto"), settle_scale([[-1.5, 2.0]], "auto")
    ('probabilities', 'margins')
    """
    if scale != "auto":
        return scale
    return "probabilities" if _are_within(np.asarray(response, dtype=np.float64)) else "margins"


def has_names(response: Any) -> bool:
    """Return whether the columns of a response have names, which are then those of classes.

    >>> has_names([[0.2, 0.8]])
    False
    """
    return _column_names(response) is not None


def _matrix(response: Any, n: int, width: int) -> AnyArray:
    try:
        values = np.asarray(response, dtype=np.float64)
    except Exception as error:  # the conversion may be the suspect's own code
        raise InputError(
            f"The suspect's answer, {type(response).__name__}, is no matrix of scores ({error}).",
            hint=_HINT,
        ) from error
    if values.shape != (n, width):
        raise InputError(
            f"The suspect answered with scores of shape {values.shape}, expected {(n, width)}.",
            hint=_HINT,
        )
    return values


def _places_by_name(response: Any, classes: Sequence[Any]) -> list[int] | None:
    """Return the column of each class, or None if columns have no names."""
    names = _column_names(response)
    if names is None:
        return None
    known = tuple(_plain(label) for label in classes)
    numbers = read_answers(list(names), known).tolist()
    if sorted(numbers) != list(range(len(known))):
        raise InputError(
            f"The columns of the suspect's scores are called {_show(names)}, the classes "
            f"{_show(known)}.",
            hint="name each column like its class, or answer with a matrix in the order of the "
            "mark's classes.",
        )
    return [numbers.index(number) for number in range(len(known))]


def _column_names(response: Any) -> Sequence[Any] | None:
    """Return the names of a table's columns; None for a matrix, or if pandas counted them."""
    names = getattr(response, "column_names", None)  # pyarrow
    if names is None:
        names = getattr(response, "columns", None)  # pandas, polars
    if names is None or type(names).__name__ == "RangeIndex":
        return None
    return list(names)


def _probabilities(values: AnyArray, scale: ScoreScale) -> Reals:
    if settle_scale(values, scale) == "probabilities":
        missing = np.isnan(values)
        probabilities = np.clip(values, 0.0, 1.0)
        probabilities[missing.any(axis=1)] = np.nan
        return np.asarray(probabilities)
    return softmax(values)


def _are_within(values: AnyArray) -> bool:
    within = np.isnan(values) | ((values >= 0) & (values <= _HIGHEST_PROBABILITY))
    return bool(within.all())


def _plain(label: Any) -> Any:
    return label.item() if isinstance(label, np.generic) else label


def _show(classes: Sequence[Any]) -> str:
    shown = ", ".join(repr(_plain(label)) for label in classes[:5])
    return shown + (", …" if len(classes) > 5 else "")
