"""Read answers: from whatever a suspect said to scores, labels or numbers of a mark's rows.

There is one reader for models, functions, endpoints and tables. Every response first becomes a list
of answers, one for each row: a label, a number, a list of scores, scores by class, or None. How
they are read is settled by the form of the first answer, never by the symbols, so that however
generous a reading is, chance matches no more often than the verdict says. Where a later answer
contradicts the first one (a fraction after whole numbers, a negative score after probabilities),
the reading is settled again, which costs a bit. Few answers of another form count as missing, so
that no single odd answer keeps a suspect from being judged.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from timbermark.dtypes import CLASS_INDEX, ClassIndices, Reals
from timbermark.errors import InputError
from timbermark.ownership.evidence import (
    UNANSWERED,
    UNKNOWN,
    AnswerKind,
    Answers,
    Price,
)
from timbermark.ownership.mark import Mark
from timbermark.ownership.seals import Label
from timbermark.verification.refusals import check_choice, refusal
from timbermark.verification.verdict import log2_factorial

AnswersWanted: TypeAlias = Literal["auto", "labels", "scores", "numbers"]
Scale: TypeAlias = Literal["auto", "probabilities", "margins"]

HIGHEST_PROBABILITY = 1.0 + 1e-5
"""Sums of float32 numbers pass 1 by a few units in the last place."""
_FEW_ODD = 8
_MISSING_TYPES = ("NAType", "NaTType", "MaskedConstant")
_MISSING_TEXTS = ("", "nan", "none", "null", "<na>", "na", "n/a", "inf", "infinity")


def list_answers(response: Any, n: int) -> list[Any]:
    """Return a response as a list of n answers: labels, numbers, lists or dictionaries of scores.

    Takes lists, iterators, arrays [n], [n, 1] or [n, K], data frames and tables of Arrow. Where a
    table names its columns, these are the names of classes; columns that are only counted are taken
    by place.

    Raises InputError if it is no list or has another length.

    >>> list_answers(np.array([[1], [2]]), 2), list_answers([[0.25, 0.75]], 1)
    ([1, 2], [[0.25, 0.75]])
    """
    if response is None or isinstance(response, str | bytes | Mapping | set | frozenset):
        raise refusal("answers.unreadable:type", given=type(response).__name__)
    try:
        listed = _list_rows(response)
    except InputError:
        raise
    except Exception as error:  # the conversion may be the suspect's own code
        raise refusal(
            "answers.unreadable:no-list", given=type(response).__name__, why=error
        ) from error
    if len(listed) != n:
        raise refusal("answers.count", given=len(listed), rows=n)
    return [simplify(answer) for answer in listed]


def _list_rows(response: Any) -> list[Any]:
    columns = frame_columns(response)
    if columns is not None:
        rows = zip(*columns.values(), strict=True)
        if type(getattr(response, "columns", None)).__name__ == "RangeIndex" or len(columns) == 1:
            return list(map(list, rows))
        return [dict(zip(map(_plain, columns), row, strict=True)) for row in rows]
    if np.ma.isMaskedArray(response):
        return list(response.tolist())
    if hasattr(response, "__array__"):
        array = np.asarray(response)
        if array.ndim not in (1, 2):
            raise refusal("answers.unreadable:dimensions", dimensions=array.ndim)
        return list(array.tolist())
    return list(response)


def frame_columns(given: Any) -> dict[Any, list[Any]] | None:
    """Return the cells of a data frame of pandas or polars, or a table of Arrow, by column.

    None for anything else.

    >>> frame_columns([[0.5, 1.0]]) is None
    True
    """
    if isinstance(given, type):
        return None
    if hasattr(given, "to_pydict"):  # Arrow
        return dict(given.to_pydict())
    if hasattr(given, "iter_columns"):  # polars
        return {column.name: column.to_list() for column in given.iter_columns()}
    if hasattr(given, "iloc") and hasattr(given, "columns"):  # pandas
        return {name: given.iloc[:, i].tolist() for i, name in enumerate(given.columns)}
    return None


def simplify(answer: Any) -> Any:
    """Return one answer in its simplest form: a list or dictionary of one item is that item.

    >>> simplify(["a"]), simplify({"label": 3}), simplify(np.float32(0.5)), simplify(b"a")
    ('a', 3, 0.5, 'a')
    """
    if isinstance(answer, np.ndarray):
        answer = answer.tolist()
    if isinstance(answer, tuple):
        answer = list(answer)
    if isinstance(answer, list | Mapping) and len(answer) == 1:
        answer = next(iter(answer.values())) if isinstance(answer, Mapping) else answer[0]
    if isinstance(answer, Mapping):
        return {name: _plain(value) for name, value in answer.items()}
    if isinstance(answer, list):
        return [_plain(value) for value in answer]
    return _plain(answer)


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, list | tuple | Mapping | np.ndarray):
        raise refusal("answers.unreadable:nested")
    return None if type(value).__name__ in _MISSING_TYPES else value


@dataclass(frozen=True, slots=True)
class Reading:
    """How answers are read."""

    kind: AnswerKind
    classes: tuple[Any, ...] | None = None  # of the scores; None: the mark's
    scale: Scale = "probabilities"
    one_score: bool = False  # scores are one number: that of the second class
    by_number: bool = False  # labels are class numbers
    label_map: Mapping[Any, Any] | None = None
    strange: tuple[str, ...] = ()  # classes of the suspect that the mark does not know
    prices: tuple[Price, ...] = ()

    @property
    def facts(self) -> dict[str, Any]:
        """Return the reading for the verdict, in codes."""
        if self.kind == "numbers":
            return {"kind": "numbers"}
        if self.kind == "scores":
            order = "by-place" if self.classes is None else "by-name"
            return {
                "kind": "scores",
                "scale": self.scale,
                "classes": "second-class" if self.one_score else order,
            }
        how = "by-number" if self.by_number else "by-value"
        return {"kind": "labels", "classes": how if self.label_map is None else "by-map"}


@dataclass(frozen=True, slots=True)
class ReadingRules:
    """What decides how a suspect's answers are read, fixed before any of them is known.

    ``classes``: labels of the suspect's scores, in their order; ``class_numbers``: labels are
    numbers from 0 in the order of the mark's classes; ``scale``: that of scores. ``by_hand``:
    whether somebody chose these, which has a price; a model's own have none. ``prices`` are those
    of the rules.
    """

    wanted: AnswersWanted = "auto"
    classes: tuple[Any, ...] | None = None
    class_numbers: bool = False
    scale: Scale = "auto"
    by_hand: bool = True
    label_map: Mapping[Any, Any] | None = None
    prices: tuple[Price, ...] = ()


def choose_kind(
    wanted: Any, offers: Sequence[str], mark: Mark, suspect: str
) -> tuple[AnswersWanted, tuple[Price, ...]]:
    """Return the kind of answers to ask for, chosen before any of them is known, and its price.

    ``wanted``: what whoever asks wants; ``offers``: what the suspect can be asked for, best first,
    nothing if that is not known. Raises InputError if these do not fit each other or the mark.
    """
    check_choice("answers", wanted, get_args(AnswersWanted))
    fitting = ("numbers",) if mark.answers == "numbers" else ("scores", "labels")
    strange = [kind for kind in (wanted, *offers) if kind not in ("auto", *fitting)]
    if strange:
        raise refusal("answers.other-task", is_one=mark.answers, said=strange[0], suspect=suspect)
    if not offers:
        return wanted, ()
    if wanted not in ("auto", *offers):
        raise refusal("answers.not-offered", suspect=suspect, wanted=wanted, offered=offers[0])
    if wanted in ("auto", offers[0]):
        return offers[0], ()  # type: ignore[return-value]
    return wanted, (Price("kind", 1.0),)


def check_label_map(given: Any, mark: Mark) -> Mapping[Any, Any] | None:
    """Return a map from a suspect's labels to classes of the mark. Raises InputError if it is none.

    >>> check_label_map(None, mark=None) is None
    True
    """
    if given is None:
        return None
    if mark.answers == "numbers":
        raise refusal("option.unfit", name="label_map", what="a mark of classes")
    if not isinstance(given, Mapping) or not given:
        raise refusal("label-map.type")
    targets = match_labels(list(given.values()), mark.classes)
    if (targets < 0).any() or len(set(targets.tolist())) < len(given):
        sources = match_labels(list(given), mark.classes)
        turned = bool((sources >= 0).all()) and len(set(sources.tolist())) == len(given)
        raise refusal("label-map.reversed" if turned else "label-map.targets")
    return dict(given)


def settle_classes(own: Sequence[Any], mark: Mark, stores_labels: bool) -> tuple[Any, ...] | None:
    """Return the classes of a suspect's scores; None if they are numbers that count the mark's.

    This depends on the suspect's kind and on the classes alone, so that nobody can choose. Labels
    are matched by value. Where a library stores no labels, its numbers are matched by value if one
    side knows all classes of the other; otherwise, if there are as many, they count the classes of
    the mark.

    Raises InputError where numbers from 0 on and the mark's classes have only some in common.
    """
    labels = tuple(_plain(label) for label in own)
    found = match_labels(labels, mark.classes)
    count = len(mark.classes)
    if (found >= 0).all() or set(range(count)) <= set(found.tolist()):
        return labels
    if not stores_labels and len(own) == count:
        return None
    counted = len(own) == count and list(labels) == list(range(count))
    if not stores_labels or (counted and (found >= 0).any()):
        raise refusal("classes.ambiguous", own=len(own), count=count, classes=mark.classes)
    return labels


def most_odd(n: int) -> int:
    """Return how many of ``n`` answers may be refused, or unlike the first one, and count as none.

    >>> most_odd(0), most_odd(100)
    (8, 33)
    """
    return _FEW_ODD + n // 4


def _form(answer: Any) -> Any:
    """Return what all scores of a suspect have in common: their classes, or how many they are."""
    if isinstance(answer, dict):
        return frozenset(answer)
    return len(answer) if isinstance(answer, list) else None


def settle(answers: Sequence[Any], mark: Mark, rules: ReadingRules) -> Reading | None:
    """Return how answers, in the order of asking, are read; None if there is none among them.

    Raises InputError if they are not what was wanted, or nothing that can be read.

    >>> from timbermark.ownership import OwnerKey
    >>> mark = Mark.make(
    ...     OwnerKey.generate(), owner="Ann", model_digest="0" * 64, classes=["no", "yes"],
    ...     triggers=[[0.5]], alphabets=[[0, 1]], reference=[[0.9, 0.1]],
    ... )
    >>> settle(["yes"], mark, ReadingRules()).kind, settle([0.7], mark, ReadingRules()).one_score
    ('labels', True)
    """
    given = [answer for answer in answers if not is_missing(answer, mark)]
    if not given:
        return None
    if mark.answers == "numbers":
        return Reading("numbers", prices=rules.prices)
    first = given[0]
    alike = [answer for answer in given if _form(answer) == _form(first)]
    if len(given) - len(alike) > most_odd(len(given)):
        odd = next(answer for answer in given if _form(answer) != _form(first))
        if not isinstance(first, list | dict):
            raise refusal("answers.unreadable:mixed")
        raise refusal("answers.unlike-first", said=str(odd)[:60])
    given = alike
    if isinstance(first, list | dict):
        if rules.wanted == "labels":
            raise refusal("answers.scores")
        return _settle_scores(given, mark, rules)
    if rules.wanted == "scores":
        # By the rule a whole number is a label.
        chosen = () if _is_share(first, mark) else (Price("kind", 1.0),)
        return _settle_scores(given, mark, rules, chosen)
    by_rule = rules.wanted == "auto" and rules.label_map is None
    if by_rule and _is_share(first, mark):
        return _settle_scores(given, mark, rules)
    if by_rule and not rules.class_numbers:
        later = [answer for answer in given if _is_share(answer, mark)]
        if later and all(_as_number(answer) is not None for answer in given):
            return _settle_scores(given, mark, rules, (Price("settled-again", 1.0),))
    _refuse_fractions(given, mark)
    prices = rules.prices
    if rules.label_map is not None:
        prices += (_price_label_map(rules.label_map, given, mark),)
    elif rules.by_hand and rules.class_numbers and mark.classes != tuple(range(len(mark.classes))):
        prices += (Price("class-numbers", 1.0),)
    return Reading(
        "labels", by_number=rules.class_numbers, label_map=rules.label_map, prices=prices
    )


def _settle_scores(
    given: Sequence[Any], mark: Mark, rules: ReadingRules, more: tuple[Price, ...] = ()
) -> Reading:
    """Return how scores are read: one for each class, or one number for the second of two."""
    first = given[0]
    is_one = not isinstance(first, list | dict)
    if is_one and (len(mark.classes) != 2 or _as_number(first) is None or isinstance(first, bool)):
        raise refusal("answers.no-scores", said=str(first)[:40])
    if rules.label_map is not None:
        raise refusal("label-map.scores")
    named, strange, order = (None, (), ()) if is_one else _settle_names(first, mark, rules)
    scale, of_scale = _settle_scale([_values(answer) for answer in given], rules)
    prices = (*rules.prices, *more, *order, *of_scale)
    return Reading(
        "scores", classes=named, scale=scale, one_score=is_one, strange=strange, prices=prices
    )


def _settle_names(
    first: Any, mark: Mark, rules: ReadingRules
) -> tuple[tuple[Any, ...] | None, tuple[str, ...], tuple[Price, ...]]:
    """Return the classes of scores, those that the mark does not know, and what naming costs."""
    named = tuple(first) if isinstance(first, dict) else rules.classes
    width = len(mark.classes if named is None else named)
    if len(first) != width:
        raise refusal("answers.width", numbers=len(first), width=width)
    if named is None:
        return None, (), ()
    numbers = match_labels([_plain(label) for label in named], mark.classes)
    known = numbers[numbers >= 0].tolist()
    if not known:
        raise refusal("classes.none", own=named, classes=mark.classes)
    if len(set(known)) < len(known):
        raise refusal("classes.twice", own=named)
    strange = tuple(str(c) for c, i in zip(named, numbers, strict=True) if i < 0)
    by_hand = rules.by_hand and not isinstance(first, dict)
    return named, strange, _price_of_order(numbers.tolist(), mark) if by_hand else ()


def _settle_scale(
    given: Sequence[Sequence[Any]], rules: ReadingRules
) -> tuple[Scale, tuple[Price, ...]]:
    if rules.scale != "auto":
        return rules.scale, (Price("scale", 1.0),) if rules.by_hand else ()
    within = [_are_within(row) for row in given]
    if not within[0]:
        return "margins", ()
    return ("probabilities", ()) if all(within) else ("margins", (Price("settled-again", 1.0),))


def read(
    answers: Mapping[int, Any], reading: Reading, mark: Mark
) -> tuple[Answers, list[Any] | None]:
    """Return answers to rows of a mark as `Answers`, and labels as they were given.

    ``answers``: from the number of a row to its answer; rows that are not in it were not answered.

    Raises InputError for an answer that is not like the first one.
    """
    there = {row: a for row, a in answers.items() if not is_missing(a, mark)}
    if reading.kind == "numbers":
        values = np.full(mark.n_rows, np.nan)
        for row, answer in there.items():
            values[row] = _read_number(answer)
        if there and not np.isfinite(values).any():
            shown = ", ".join(dict.fromkeys(f"{a!s:.30}" for a in list(there.values())[:5]))
            raise refusal("answers.no-number", shown=shown)
        values[~np.isfinite(values)] = np.nan
        return Answers("numbers", values), None
    if reading.kind == "scores":
        return Answers("scores", _read_scores(there, reading, mark)), None
    there = {row: answer for row, answer in there.items() if _form(answer) is None}
    listed = list(there.values())
    if reading.label_map is not None:
        listed = [_translate(answer, reading.label_map) for answer in listed]
    known: tuple[Label, ...] = mark.classes
    if reading.by_number:
        known = tuple(range(len(mark.classes)))
    placed = np.full(mark.n_rows, UNANSWERED, dtype=CLASS_INDEX)
    if there:
        placed[list(there)] = match_labels(listed, known)
    return Answers("labels", placed), [answers.get(row) for row in range(mark.n_rows)]


def _read_scores(answers: Mapping[int, Any], reading: Reading, mark: Mark) -> Reals:
    placed = np.full((mark.n_rows, len(mark.classes)), np.nan)
    if not answers:
        return placed
    rows = [_score_row(answer, reading, mark) for answer in answers.values()]
    odd = [answer for answer, row in zip(answers.values(), rows, strict=True) if row is None]
    if len(odd) > most_odd(len(rows)):
        raise refusal("answers.unlike-first", said=str(odd[0])[:60])
    width = len(mark.classes if reading.classes is None else reading.classes)
    values = np.array([row or [np.nan] * width for row in rows], dtype=np.float64)
    shares = reading.scale == "probabilities"
    values = np.clip(values, 0.0, 1.0) if shares else softmax(values)
    if reading.classes is not None:
        numbers = match_labels([_plain(c) for c in reading.classes], mark.classes)
        known = numbers >= 0
        matched = np.zeros((len(values), len(mark.classes)))
        matched[:, numbers[known]] = values[:, known]
        matched[np.isnan(values).any(axis=1)] = np.nan
        values = matched
    placed[list(answers)] = values
    return placed


def _score_row(answer: Any, reading: Reading, mark: Mark) -> list[float] | None:
    """Return the scores in an answer; None if these are none like those of the first one."""
    width = len(mark.classes if reading.classes is None else reading.classes)
    if reading.one_score:
        row = [answer]
    elif isinstance(answer, dict) and reading.classes and set(answer) == set(reading.classes):
        row = [answer[name] for name in reading.classes]
    else:
        row = answer if isinstance(answer, list) and len(answer) == width else [[]]
    try:
        numbers = [float(value) for value in row]
    except (TypeError, ValueError, OverflowError):
        return None
    if reading.scale == "probabilities" and not _are_within(numbers):
        raise refusal("answers.no-probabilities", said=str(answer)[:60])
    if not reading.one_score:
        return numbers
    # The margin of the first class is 0.
    second = numbers[0]
    return [1.0 - second if reading.scale == "probabilities" else 0.0, second]


def softmax(margins: Any) -> Reals:
    """Return raw scores [n, K] as probabilities; log-probabilities give back their own.

    A row with NaN, with positive infinity or without any finite score becomes NaN: no answer.

    >>> softmax([[0.0, 0.0], [-np.inf, 3.0], [np.nan, 1.0]])
    array([[0.5, 0.5],
           [0. , 1. ],
           [nan, nan]])
    """
    raw = np.array(margins, dtype=np.float64)
    top = raw.max(axis=1, keepdims=True)
    raw[~np.isfinite(top[:, 0])] = np.nan
    with np.errstate(invalid="ignore", over="ignore"):
        powers = np.exp(raw - top)
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def match_labels(answers: Sequence[Any], classes: Sequence[Label]) -> ClassIndices:
    """Return the class number of each answer, int32 [n]: UNKNOWN if none, UNANSWERED if missing.

    '3', 3.0 and b'3' are the class 3; 1 and 'true' are the class True; 3 and 3.0 are the class '3'.

    >>> match_labels(["3", 5.0, 7, None], (3, 5))
    array([ 0,  1, -1, -2], dtype=int32)
    """
    if not classes:
        return np.full(len(answers), UNKNOWN, dtype=CLASS_INDEX)
    readings = _READINGS[type(classes[0])]
    table: dict[Any, int] = {label: number for number, label in enumerate(classes)}
    if isinstance(classes[0], float):
        for number, label in enumerate(classes):
            # A suspect that counts in single precision answers 0.1 with another number.
            table.setdefault(_single(float(label)), number)
    numbers = [_match(_plain(answer), table, readings) for answer in answers]
    return np.array(numbers, dtype=CLASS_INDEX)


def _match(answer: Any, table: Mapping[Any, int], readings: Callable[[Any], Iterator[Any]]) -> int:
    for reading in readings(answer):
        if reading in table:
            return table[reading]
    return UNANSWERED if _looks_missing(answer) else UNKNOWN


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
    try:
        with np.errstate(over="ignore"):
            return float(np.float32(number))
    except OverflowError:  # a whole number of more than 308 digits
        return math.inf


def _looks_missing(answer: Any) -> bool:
    if isinstance(answer, str):
        return answer.strip().lower() in _MISSING_TEXTS
    if isinstance(answer, float):
        # The logarithm of probability 0 is an answer; nothing else that is not finite is one.
        return answer != answer or answer == math.inf
    return answer is None


def is_missing(answer: Any, mark: Mark) -> bool:
    """Return whether an answer is none; a text like "None" may be a class of the mark.

    Scores are an answer if all of them are there.
    """
    if isinstance(answer, list | dict):
        return any(map(_looks_missing, _values(answer)))
    if not isinstance(answer, str):
        return _looks_missing(answer)
    return _looks_missing(answer) and answer.strip() not in mark.classes


def _is_share(answer: Any, mark: Mark) -> bool:
    """Return whether one number must be the score of the second of two classes: a fraction."""
    if len(mark.classes) != 2 or any(_is_fraction(label) for label in mark.classes):
        return False
    return _is_fraction(answer)


def _is_fraction(answer: Any) -> bool:
    number = _as_number(answer)
    return isinstance(number, float) and math.isfinite(number) and not number.is_integer()


def _refuse_fractions(answers: Sequence[Any], mark: Mark) -> None:
    if any(_is_fraction(label) for label in mark.classes):
        return
    if 2 * sum(map(_is_fraction, answers)) > len(answers):
        raise refusal("answers.unreadable:fractions")


def _values(answer: Any) -> list[Any]:
    if isinstance(answer, dict):
        return list(answer.values())
    return answer if isinstance(answer, list) else [answer]


def _are_within(values: Sequence[Any]) -> bool:
    """Return whether all numbers among values can be probabilities."""
    numbers = [_as_number(value) for value in values]
    return all(n is None or n != n or 0.0 <= n <= HIGHEST_PROBABILITY for n in numbers)


def _read_number(answer: Any) -> float:
    if isinstance(answer, list | dict):
        raise refusal("answers.no-number", shown=f"{answer!s:.30}")
    number = _as_number(answer)
    try:
        return math.nan if number is None or isinstance(answer, bool) else float(number)
    except OverflowError:
        return math.nan


def _translate(answer: Any, label_map: Mapping[Any, Any]) -> Any:
    """Return an answer translated by a map; what the map does not hold fits no class."""
    try:
        if answer in label_map:
            return label_map[answer]
    except TypeError:  # it cannot be looked up
        return object()
    return label_map.get(str(answer), object())


def _price_label_map(label_map: Mapping[Any, Any], answers: Sequence[Any], mark: Mark) -> Price:
    """Return what a map of labels costs, given the labels that a suspect has answered with so far.

    If all of them are in the map, it is one of at most K! maps. Where some are left out, whoever
    made the map also chose which answers count, and each label was one of K classes or none.
    """
    count = len(mark.classes)
    given = {str(answer): answer for answer in answers}
    left_out = sum(type(_translate(a, label_map)) is object for a in given.values())
    if not left_out:
        return Price("label-map", log2_factorial(count), {"labels": count})
    bits = 1.0 + len(given) * math.log2(count + 1)
    return Price("label-map", bits, {"labels": len(given), "left_out": left_out})


def _price_of_order(numbers: Sequence[int], mark: Mark) -> tuple[Price, ...]:
    """Return what an order of classes given by hand costs: nothing if it is the mark's."""
    count = len(mark.classes)
    if list(numbers) == list(range(count)):
        return ()
    if sorted(numbers) == list(range(count)):
        return (Price("class-order", log2_factorial(count), {"classes": count}),)
    # Of more scores than classes, whoever names them chooses which ones count: each may be any
    # class that no other is, or none.
    given, most = len(numbers), min(len(numbers), count)
    ways = sum(math.comb(given, k) * math.perm(count, k) for k in range(most + 1))
    return (Price("class-order", math.log2(ways), {"classes": count, "scores": given}),)
