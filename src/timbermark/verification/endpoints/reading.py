"""From the answers of an endpoint to scores or labels of the mark's triggers.

Which kind they are, and on which scale, is settled by the first answers that come, by their form
alone, and stays: evidence that grows question by question allows no second thoughts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from timbermark.dtypes import ClassIndices, Reals
from timbermark.errors import InputError
from timbermark.ownership.labels import UNANSWERED, Label, read_answers, translate_answers
from timbermark.ownership.mark import Mark
from timbermark.ownership.scores import ScoreScale, read_scores
from timbermark.ownership.verdict import (
    Price,
    price_of_assignment,
    price_of_kind,
    price_of_label_map,
)
from timbermark.ownership.verifying import AnswersWanted, price_label_map

_HIGHEST_PROBABILITY = 1.0 + 1e-5


@dataclass(frozen=True, slots=True)
class Reading:
    """How answers are read."""

    kind: Literal["scores", "labels"]
    classes: tuple[Any, ...] | None = None  # of the scores; None: the mark's
    scale: ScoreScale = "probabilities"
    one_score: bool = False  # scores are one number: that of the second class
    by_number: bool = False  # labels are class numbers
    label_map: Mapping[Any, Any] | None = None
    prices: tuple[Price, ...] = ()  # but that of the map, which depends on the answers

    def prices_for(self, answers: Iterable[Any], mark: Mark) -> tuple[Price, ...]:
        """Return the prices of what was chosen by hand, given the answers so far."""
        if self.label_map is None:
            return self.prices
        return (*self.prices, price_label_map(self.label_map, list(answers), mark))

    @property
    def words(self) -> str:
        """Return how the reading is worded in the verdict."""
        if self.kind == "scores":
            one = ", one number each: that of the second class" if self.one_score else ""
            order = "" if one else ", in the order of the mark's classes"
            if self.classes is not None:
                order = ", classes matched by name"
            return f"scores as {self.scale}{one}{order}"
        if self.label_map is not None:
            return "labels through a map given by hand"
        if self.by_number:
            return "class numbers in the order of the mark's classes"
        return "labels, matched by value"


def settle_reading(
    answers: Sequence[Any],
    mark: Mark,
    *,
    wanted: AnswersWanted = "auto",
    classes: Sequence[Any] | None = None,
    scale: str = "auto",
    class_numbers: bool = False,
    label_map: Mapping[Any, Any] | None = None,
) -> Reading | None:
    """Return how answers like these are read; None if there is no answer among them.

    Lists as long as the classes, and objects by class, are scores, everything else is a label;
    with ``wanted="scores"`` a single number is the score of the second of two classes.

    Raises InputError if they are not what was wanted, or neither.
    """
    given = [answer for answer in answers if answer is not None]
    if not given:
        return None
    first = given[0]
    prices: tuple[Price, ...] = ()
    width = len(mark.classes if classes is None else classes)
    if isinstance(first, list | dict):
        if wanted == "labels":
            raise InputError(
                "The suspect answers with scores, not with labels.",
                hint='leave answers="labels" out, or give a path to the labels.',
            )
        if len(first) != width:
            raise InputError(
                f"The suspect answers a question with {len(first)} numbers, and there are {width} "
                "classes.",
                hint="is it a model of the same task? The path to the answers may be wrong.",
            )
    elif wanted == "scores" and (isinstance(first, str | bool) or len(mark.classes) != 2):
        raise InputError(
            f"The suspect answered {str(first)[:40]!r}, which are no scores.",
            hint='leave answers="scores" out, or give a path to the scores.',
        )
    if isinstance(first, list | dict) or wanted == "scores":
        if label_map is not None:
            raise InputError(
                "label_map is given, but the suspect answers with scores.",
                hint='leave it out, or ask with answers="labels".',
            )
        settled: ScoreScale = "margins" if scale == "margins" else "probabilities"
        if scale == "auto":
            settled = "probabilities" if _are_probabilities(given) else "margins"
        else:
            prices = (Price("a scale of scores chosen by hand", 1.0),)
        if classes is not None and not isinstance(first, dict):
            prices += _price_of_order(classes, mark)
        if not isinstance(first, list | dict):
            prices += (price_of_kind(),)  # by the rule it would be a label
        named = tuple(first) if isinstance(first, dict) else classes
        return Reading(
            "scores",
            classes=None if named is None else tuple(named),
            scale=settled,
            one_score=not isinstance(first, list | dict),
            prices=prices,
        )
    if label_map is None and class_numbers and mark.classes != tuple(range(len(mark.classes))):
        prices = (Price("class numbers in place of labels, chosen by hand", 1.0),)
    return Reading("labels", by_number=class_numbers, label_map=label_map, prices=prices)


def place_scores(answers: Mapping[int, Any], reading: Reading, mark: Mark) -> Reals:
    """Return scores [k, K] in the mark's order, NaN for triggers without an answer.

    ``answers``: from the number of a trigger to its answer.

    Raises InputError for an answer that is not like the first one.
    """
    placed = np.full((mark.n_triggers, len(mark.classes)), np.nan)
    given = {trigger: _numbers(answer, reading, mark) for trigger, answer in answers.items()}
    whole = {trigger: row for trigger, row in given.items() if row is not None}
    if whole:
        scores, _ = read_scores(
            list(whole.values()), len(whole), mark.classes, reading.classes, reading.scale
        )
        placed[list(whole)] = scores
    return placed


def place_labels(
    answers: Mapping[int, Any], reading: Reading, mark: Mark
) -> tuple[ClassIndices, list[Any]]:
    """Return class numbers [k] in the mark's order, and the answers as they were given.

    Raises InputError if the answers look like scores.
    """
    shown = [answers.get(trigger) for trigger in range(mark.n_triggers)]
    for answer in answers.values():
        if isinstance(answer, list | dict):
            raise InputError(
                "The suspect answered with labels first and with several numbers later.",
                hint="ask it again, with a new journal.",
            )
    asked = [shown[trigger] for trigger in answers]
    if reading.label_map is not None:
        asked = translate_answers(asked, reading.label_map)
    known: tuple[Label, ...] = mark.classes
    if reading.by_number:
        known = tuple(range(len(mark.classes)))
    placed = np.full(mark.n_triggers, UNANSWERED, dtype=np.int32)
    if answers:
        placed[list(answers)] = read_answers(asked, known)
    return placed, shown


def _numbers(answer: Any, reading: Reading, mark: Mark) -> list[float] | None:
    width = len(mark.classes if reading.classes is None else reading.classes)
    if answer is None:
        return None
    if reading.one_score:
        row = [answer]
    elif isinstance(answer, dict) and set(answer) == set(reading.classes or ()):
        row = [answer[name] for name in reading.classes or ()]
    else:
        row = answer if isinstance(answer, list) and len(answer) == width else [answer, []]
    if any(value is None for value in row):
        return None
    try:
        numbers = [float(value) for value in row]
    except (TypeError, ValueError):
        raise InputError(
            f"The suspect answered {str(answer)[:60]!r}, which are not scores like the first ones.",
            hint="the path to the answers may be wrong.",
        ) from None
    if reading.scale == "probabilities" and not _within(numbers):
        raise InputError(
            f"The suspect answered {str(answer)[:60]!r} after probabilities.",
            hint='if these are raw scores, use scale="margins".',
        )
    if not reading.one_score:
        return numbers
    # The margin of the first class is 0.
    second = numbers[0]
    return [1.0 - second if reading.scale == "probabilities" else 0.0, second]


def _price_of_order(classes: Sequence[Any], mark: Mark) -> tuple[Price, ...]:
    """Return what an order of classes given by hand costs: nothing if it is the mark's."""
    numbers = read_answers(list(classes), mark.classes)
    if numbers.tolist() == list(range(len(mark.classes))):
        return ()
    if sorted(numbers.tolist()) != list(range(len(mark.classes))):
        # Of more scores than classes, whoever names them chooses which ones count.
        return (price_of_assignment(len(classes), len(mark.classes)),)
    bits = price_of_label_map(len(mark.classes)).bits
    return (Price(f"an order of {len(mark.classes)} classes given by hand", bits),)


def _are_probabilities(answers: Sequence[Any]) -> bool:
    values = [
        value
        for answer in answers
        for value in (
            answer.values()
            if isinstance(answer, dict)
            else answer
            if isinstance(answer, list)
            else [answer]
        )
    ]
    numbers = [value for value in values if isinstance(value, int | float)]
    return _within(numbers)


def _within(numbers: Sequence[float]) -> bool:
    return all(0.0 <= number <= _HIGHEST_PROBABILITY for number in numbers)
