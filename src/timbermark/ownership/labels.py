"""Labels in other clothes: what a suspect answers, read as classes of the mark.

How answers are read depends on the classes alone, never on the symbols, so that however generous a
reading is, chance matches no more often than the verdict says.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NoReturn, TypeAlias

import numpy as np

from timbermark.dtypes import CLASS_INDEX, AnyArray, ClassIndices
from timbermark.errors import InputError
from timbermark.ownership.plain import freeze

Label: TypeAlias = bool | int | float | str

UNKNOWN = -1
UNANSWERED = -2
_LABEL_TYPES = (bool, int, float, str)
_MISSING_TYPES = ("NAType", "NaTType", "MaskedConstant")
_MISSING_TEXTS = ("", "nan", "none", "null", "<na>")
_LABELS_PLEASE = "answer with one label per row, as predict does, not predict_proba."


def check_classes(given: Iterable[Any]) -> tuple[Label, ...]:
    """Return the labels of a model as Python values, in the given order.

    Raises InputError unless there are at least two, distinct, and all bool, int, float or str.

    >>> check_classes(np.array([3, 5]))
    (3, 5)
    """
    classes: tuple[Any, ...] = tuple(freeze(label, "classes") for label in given)
    kinds = {type(label) for label in classes}
    if len(kinds) > 1 or not kinds <= set(_LABEL_TYPES):
        named = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise InputError(
            f"The classes are of the types {named}.",
            hint="labels are all booleans, all whole numbers, all numbers or all texts.",
        )
    if len(classes) < 2 or len(set(classes)) < len(classes):
        raise InputError(
            f"{len(classes)} classes, of which {len(set(classes))} are distinct, are not enough.",
            hint="give every label of the model once.",
        )
    return classes


def list_answers(response: Any, n: int) -> list[Any]:
    """Return a suspect's response as a list of n answers, Python values where possible.

    Takes lists, arrays [n] or [n, 1], columns of data frames, iterators.

    Raises InputError if it is a matrix, has another length or is no list at all.

    >>> list_answers(np.array([[1], [2]]), 2)
    [1, 2]
    """
    if response is None or isinstance(response, str | bytes | Mapping | set | frozenset):
        _refuse(f"The suspect answered with {type(response).__name__}, not with labels.")
    if np.ma.isMaskedArray(response):
        answers = np.array(response.tolist(), dtype=object)
    elif isinstance(response, list | tuple):
        answers = _array_of(response)
    elif hasattr(response, "__array__") or hasattr(response, "__len__"):
        answers = np.asarray(response)
    elif hasattr(response, "__iter__"):
        answers = _array_of(list(response))
    else:
        answers = np.asarray(None)
    if answers.ndim == 0:
        _refuse(f"The suspect answered with one {type(response).__name__}, not with labels.")
    if answers.ndim > 2 or (answers.ndim == 2 and answers.shape[1] != 1):
        _refuse(
            f"The suspect answered with a matrix of shape {answers.shape}, "
            "which looks like probabilities or one column per class."
        )
    if len(answers) != n:
        raise InputError(
            f"The suspect gave {len(answers)} answers to {n} rows.", hint=_LABELS_PLEASE
        )
    return [_plain(answer) for answer in answers.reshape(n).tolist()]


def read_answers(answers: Sequence[Any], classes: tuple[Label, ...]) -> ClassIndices:
    """Return the class number of each answer, int32 [n]: UNKNOWN if none, UNANSWERED if missing.

    '3', 3.0 and b'3' are the class 3; 1 and 'true' are the class True; 3 and 3.0 are the class '3'.

    Raises InputError if most answers are fractions and no class is: those are scores.

    >>> read_answers(["3", 5.0, 7, None], (3, 5))
    array([ 0,  1, -1, -2], dtype=int32)
    """
    _refuse_scores(answers, classes)
    readings = _READINGS[type(classes[0])]
    table: dict[Any, int] = {label: number for number, label in enumerate(classes)}
    if isinstance(classes[0], float):
        for number, label in enumerate(classes):
            table.setdefault(float(np.float32(label)), number)
    numbers = [_number(answer, table, readings) for answer in answers]
    return np.array(numbers, dtype=CLASS_INDEX)


def _number(answer: Any, table: Mapping[Any, int], readings: Callable[[Any], Iterator[Any]]) -> int:
    for reading in readings(answer):
        if reading in table:
            return table[reading]
    return UNANSWERED if _is_missing(answer) else UNKNOWN


def _as_bool(answer: Any) -> Iterator[bool]:
    if isinstance(answer, str) and answer.strip().lower() in ("true", "false"):
        yield answer.strip().lower() == "true"
    number = _as_number(answer)
    if number in (0, 1):
        yield bool(number)


def _as_int(answer: Any) -> Iterator[int]:
    number = _as_number(answer)
    if isinstance(number, int):
        yield int(number)
    elif number is not None and number.is_integer():
        yield int(number)


def _as_float(answer: Any) -> Iterator[float]:
    number = _as_number(answer)
    if number is not None:
        yield number


def _as_text(answer: Any) -> Iterator[str]:
    if isinstance(answer, str):
        yield answer
        yield answer.strip()
    elif isinstance(answer, bool):
        yield str(answer)
        yield str(answer).lower()
    for whole in _as_int(answer):
        yield str(whole)
        yield f"{whole}.0"
    number = _as_number(answer)
    if number is not None:
        yield repr(number)


_READINGS: dict[type, Callable[[Any], Iterator[Any]]] = {
    bool: _as_bool,
    int: _as_int,
    float: _as_float,
    str: _as_text,
}


def _as_number(answer: Any) -> int | float | None:
    if isinstance(answer, int | float):
        return answer
    if isinstance(answer, str):
        for convert in (int, float):
            try:
                return convert(answer)
            except ValueError:
                continue
    return None


def _is_missing(answer: Any) -> bool:
    if isinstance(answer, str):
        return answer.strip().lower() in _MISSING_TEXTS
    if isinstance(answer, float):
        return answer != answer
    return answer is None or type(answer).__name__ in _MISSING_TYPES


def _plain(answer: Any) -> Any:
    if isinstance(answer, np.generic):
        answer = answer.item()
    if isinstance(answer, bytes):
        return answer.decode(errors="replace")
    if isinstance(answer, list | tuple | Mapping | np.ndarray):
        _refuse(f"The suspect answered a row with {type(answer).__name__}, not with a label.")
    return answer


def _array_of(response: Sequence[Any]) -> AnyArray:
    try:
        # As objects, or else [1, None] would become text.
        return np.array(response, dtype=object)
    except ValueError:
        _refuse("The suspect answered with lists of different lengths, not with labels.")


def _refuse_scores(answers: Sequence[Any], classes: tuple[Label, ...]) -> None:
    if any(_is_fraction(label) for label in classes):
        return
    if 2 * sum(map(_is_fraction, answers)) > len(answers):
        _refuse("Most answers are fractions and no class is: these look like scores.")


def _is_fraction(answer: Any) -> bool:
    number = _as_number(answer)
    return isinstance(number, float) and number == number and not number.is_integer()


def _refuse(message: str) -> NoReturn:
    raise InputError(message, hint=_LABELS_PLEASE)
