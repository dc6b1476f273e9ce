"""Reading the numbers that a suspect answers with, and what they say about pairs of rows."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from timbermark.dtypes import Flags, Reals
from timbermark.errors import InputError
from timbermark.ownership.labels import list_answers

_HINT = "answer with one number for each row, as a regressor's predict does."
_FEWEST_TOLD = 20  # pairs, below which a correlation says nothing
_UNLIKE = 0.3


def read_numbers(response: Any, n: int) -> Reals:
    """Return a suspect's response as numbers, float64 [n]: NaN where there is none.

    Texts that are numbers are taken; infinity and missing values are no answers.

    Raises InputError if it is no list of n numbers, or if not a single one is given.

    >>> read_numbers(["1.5", None, 2], 3)
    array([1.5, nan, 2. ])
    """
    listed = list_answers(response, n)
    numbers = np.array([_number(answer) for answer in listed], np.float64)
    if not np.isfinite(numbers).any():
        shown = ", ".join(dict.fromkeys(f"{answer!s:.30}" for answer in listed[:5]))
        raise InputError(f"No answer of the suspect is a number: it says {shown}.", hint=_HINT)
    return np.where(np.isfinite(numbers), numbers, np.nan)


def _number(answer: Any) -> float:
    try:
        return float(answer)
    except (TypeError, ValueError):
        return float("nan")


@dataclass(frozen=True, slots=True, eq=False)
class PairAnswers:
    """What a suspect said about k pairs of rows.

    ``difference`` float64 [k]: its second number minus its first, NaN where one is missing;
    ``answered`` and ``matched`` bool [k]: both are there; the nearest level is the one asked for.
    """

    difference: Reals
    answered: Flags
    matched: Flags


def compare_pairs(numbers: ArrayLike, levels: Reals, symbols: ArrayLike) -> PairAnswers:
    """Return what numbers [2k], one pair after the other, say about levels [k, q].

    Raises InputError if there are not two numbers for each trigger.

    >>> pairs = compare_pairs([1.0, 3.1, 5.0, np.nan], np.array([[0.0, 2.0], [1.0, 2.0]]), [1, 0])
    >>> pairs.difference, pairs.matched
    (array([2.1, nan]), array([ True, False]))
    """
    given = np.asarray(numbers, dtype=np.float64)
    if given.shape != (2 * len(levels),):
        raise InputError(
            f"Numbers of shape {given.shape} are not two for each of {len(levels)} triggers.",
            hint="give the answers to both rows of each pair, in the mark's order.",
        )
    difference = given[1::2] - given[::2]
    answered = np.isfinite(difference)
    nearest = np.abs(np.where(answered, difference, 0.0)[:, np.newaxis] - levels).argmin(axis=1)
    matched = answered & (nearest == np.asarray(symbols))
    return PairAnswers(np.where(answered, difference, np.nan), answered, matched)


def are_unlike(numbers: ArrayLike, reference: Reals) -> bool:
    """Return whether numbers [2k] hardly go with the unmarked model's [k, 2]: probably misread.

    Models of the same task rise and fall together, whoever made them.

    >>> are_unlike(np.arange(100.0), np.arange(100.0).reshape(50, 2))
    False
    >>> are_unlike(-np.arange(100.0), np.arange(100.0).reshape(50, 2))
    True
    """
    given, known = np.asarray(numbers, np.float64), reference.reshape(-1)
    told = np.isfinite(given)
    if told.sum() < 2 * _FEWEST_TOLD or np.ptp(given[told]) == 0.0 or np.ptp(known[told]) == 0.0:
        return False
    ranks = [values[told].argsort().argsort() for values in (given, known)]
    return bool(np.corrcoef(ranks[0], ranks[1])[0, 1] < _UNLIKE)
