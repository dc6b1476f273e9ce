"""Reading the labels that a suspect answers with as classes of the mark.

How answers are read depends on the classes alone, never on the symbols, so that however generous a
reading is, chance matches no more often than the verdict says.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn, TypeAlias

import numpy as np

from timbermark.dtypes import CLASS_INDEX, AnyArray, ClassIndices
from timbermark.errors import InputError
from timbermark.ownership.encoding import freeze

Label: TypeAlias = bool | int | float | str

UNKNOWN = -1
UNANSWERED = -2
_LABEL_TYPES = (bool, int, float, str)
_MISSING_TYPES = ("NAType", "NaTType", "MaskedConstant")
_MISSING_TEXTS = ("", "nan", "none", "null", "<na>")
_LABELS_PLEASE = (
    "answer with one label for each row, as predict does, or with one score for each class of the "
    "mark, as predict_proba does."
)


def check_classes(given: Any) -> tuple[Label, ...]:
    """Return the labels of a model as Python values, in the given order.

    Raises InputError unless it is a list, tuple or array of at least two, all distinct, and all
    bool, all int, all float or all str.

    >>> check_classes(np.array([3, 5]))
    (3, 5)
    """
    if not isinstance(given, list | tuple | np.ndarray):
        raise InputError("The classes are no list of labels.", hint="give them in their order.")
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
    try:
        answers = _array_of(response)
    except Exception as error:  # the conversion may be the suspect's own code
        raise InputError(
            f"The suspect's answer, {type(response).__name__}, is no list of labels ({error}).",
            hint=_LABELS_PLEASE,
        ) from error
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


def unroll(response: Any) -> Any:
    """Return a response that can be looked at more than once: iterators become lists.

    Raises InputError if the iterator raises anything.

    >>> unroll(iter([1, 2]))
    [1, 2]
    """
    if not hasattr(response, "__next__"):
        return response
    try:
        return list(response)
    except Exception as error:  # the suspect's own code
        raise InputError(
            f"The suspect's answer, {type(response).__name__}, is no list ({error}).",
            hint=_LABELS_PLEASE,
        ) from error


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
            # A suspect that counts in single precision answers 0.1 with another number.
            table.setdefault(_single(float(label)), number)
    numbers = [_number(answer, table, readings) for answer in answers]
    return np.array(numbers, dtype=CLASS_INDEX)


def translate_answers(answers: Sequence[Any], label_map: Mapping[Any, Any]) -> list[Any]:
    """Return answers translated by a map; what the map does not hold fits no class.

    Texts and numbers are looked up as they are, and then as texts. Missing answers stay missing.

    >>> translate_answers(["b", 1, None, "x"], {"b": "birch", "1": "oak"})[:3]
    ['birch', 'oak', None]
    """
    return [answer if _is_missing(answer) else _translate(answer, label_map) for answer in answers]


def count_mapped(answers: Sequence[Any], label_map: Mapping[Any, Any]) -> tuple[int, int]:
    """Return how many different labels answers hold, and how many of them a map does not know.

    >>> count_mapped(["b", 1, None, "x", "b"], {"b": "birch", "1": "oak"})
    (3, 1)
    """
    given = {str(answer): answer for answer in answers if not _is_missing(answer)}
    strange = [a for a in given.values() if type(_translate(a, label_map)) is object]
    return len(given), len(strange)


def _translate(answer: Any, label_map: Mapping[Any, Any]) -> Any:
    try:
        if answer in label_map:
            return label_map[answer]
    except TypeError:  # it cannot be looked up
        return object()
    return label_map.get(str(answer), object())


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
    if isinstance(number, int) or (number is not None and number.is_integer()):
        yield int(number)


def _as_float(answer: Any) -> Iterator[float]:
    number = _as_number(answer)
    if number is not None:
        yield number
        yield _single(number)


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


def _single(number: float) -> float:
    with np.errstate(over="ignore"):
        return float(np.float32(number))


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


def _array_of(response: Any) -> AnyArray:
    if np.ma.isMaskedArray(response):
        response = response.tolist()
    elif hasattr(response, "__array__"):
        return np.asarray(response)
    elif hasattr(response, "__iter__"):
        response = list(response)
    # As objects, or else [1, None] would become text.
    return np.array(response, dtype=object)


def _refuse_scores(answers: Sequence[Any], classes: tuple[Label, ...]) -> None:
    if any(_is_fraction(label) for label in classes):
        return
    if 2 * sum(map(_is_fraction, answers)) > len(answers):
        _refuse("Most answers are fractions and no class is: these look like scores.")


def _is_fraction(answer: Any) -> bool:
    number = _as_number(answer)
    return isinstance(number, float) and math.isfinite(number) and not number.is_integer()


def _refuse(message: str) -> NoReturn:
    raise InputError(message, hint=_LABELS_PLEASE)
