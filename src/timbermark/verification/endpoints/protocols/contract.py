"""What every protocol offers, and the reading of replies that they share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

MOST_PATHS = 1024
"""Places in a reply that a path to the answers may lead to; log₂ of it is the price of a path."""
_LONGEST_LABEL = 10_000


class ReplyError(Exception):
    """A reply that does not hold the answers."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows that are asked together, as JSON values, and the names of their columns if known."""

    rows: Sequence[Sequence[Any]]
    names: Sequence[str] | None

    @property
    def records(self) -> list[dict[str, Any]]:
        """Return each row by the names of its columns; "0", "1", … where there are none."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]

    @property
    def columns(self) -> list[str]:
        """Return the names of the columns; "0", "1", … where there are none."""
        if self.names is not None:
            return list(self.names)
        return [str(number) for number in range(len(self.rows[0]))]


class Dialect(Protocol):
    """A protocol with its options."""

    options: ClassVar[tuple[str, ...]]
    one_at_a_time: bool  # takes one row in each request
    sends_names: bool  # whether a server may find columns by their names

    def __init__(self, **options: Any) -> None: ...

    @staticmethod
    def speaks_at(path: str) -> bool:
        """Return whether the path of an address tells that this protocol is spoken there."""
        ...

    @staticmethod
    def complete_path(path: str) -> str:
        """Return the path that questions go to."""
        ...

    def make_body(self, batch: Batch) -> Any:
        """Return the request for some rows, a JSON value."""
        ...

    def read_reply(self, reply: Any, n: int) -> list[Any]:
        """Return n answers: a label, a list of scores or scores by name, or None.

        Raises ReplyError if the reply does not hold them.
        """
        ...


def parse_path(path: str) -> tuple[str, ...]:
    """Return the steps of a path to the answers, as in "outputs.0.data" or "results.*.label".

    >>> parse_path("results.*.label")
    ('results', '*', 'label')
    """
    return tuple(path.split(".")) if path else ()


def follow(value: Any, steps: Sequence[str]) -> Any:
    """Return what is found in a JSON value by names, numbers and * for every item.

    Raises ReplyError if a step leads nowhere.

    >>> follow({"results": [{"label": "a"}, {"label": "b"}]}, ["results", "*", "label"])
    ['a', 'b']
    """
    for place, step in enumerate(steps):
        if step == "*" and isinstance(value, list):
            return [follow(item, steps[place + 1 :]) for item in value]
        if isinstance(value, dict) and step in value:
            value = value[step]
        elif isinstance(value, list) and step.isdecimal() and int(step) < len(value):
            value = value[int(step)]
        else:
            known = f", but {', '.join(map(repr, list(value)[:5]))}" if type(value) is dict else ""
            raise ReplyError(f"there is no '{step}' in it{known}")
    return value


def check_paths(reply: Any, n: int | None) -> None:
    """Raise ReplyError if a path to n answers could lead to too many places in a reply.

    ``n`` is None where the reply as a whole is about one question, so that any place will do. A
    path that is chosen by hand among more places than `MOST_PATHS` would be worth more than its
    price.

    >>> check_paths({"results": [{"label": "a"}, {"label": "b"}]}, 2)
    """
    try:
        count = _count_paths(reply, n, MOST_PATHS)
    except RecursionError:
        raise ReplyError("it is nested too deeply") from None
    if count > MOST_PATHS:
        raise ReplyError(
            f"a path to the answers could lead to more than {MOST_PATHS:,} places in it, and "
            "choosing one of so many proves nothing"
        )


def _count_paths(value: Any, n: int | None, limit: int) -> int:
    """Return how many paths lead to a list of n answers, or anywhere if n is None.

    The count may stop as soon as it is above ``limit``.
    """
    found = int(n is None or (isinstance(value, list) and len(value) == n))
    parts = value.values() if isinstance(value, dict) else value
    if isinstance(value, dict | list):
        for part in parts:
            if found > limit:
                return found
            found += _count_paths(part, n, limit - found)
    if isinstance(value, list) and value and (n is None or len(value) == n):
        # A path through every item exists at most where it exists in the first one.
        found += _count_paths(value[0], None, limit - found)
    return found


def list_replies(value: Any, n: int) -> list[Any]:
    """Return n answers out of a list of n.

    >>> list_replies([[0.25, 0.75], {"label": "a"}], 2)
    [[0.25, 0.75], 'a']
    """
    if not isinstance(value, list):
        raise ReplyError(f"the answers are no list, but {_name(value)}")
    if len(value) != n:
        raise ReplyError(f"it holds {len(value)} answers to {n} questions")
    return [_answer(item) for item in value]


def _answer(item: Any) -> Any:
    """Return one answer in its simplest form; NaN and infinity count as no answer."""
    if isinstance(item, list | dict) and len(item) == 1:
        item = next(iter(item.values())) if isinstance(item, dict) else item[0]
    if isinstance(item, dict):
        return {str(name): _score(value) for name, value in item.items()}
    if isinstance(item, list):
        return [_score(value) for value in item]
    if isinstance(item, str) and len(item) > _LONGEST_LABEL:
        raise ReplyError(f"an answer is a text of {len(item)} characters")
    return _score(item)


def _score(value: Any) -> Any:
    if isinstance(value, list | dict):
        raise ReplyError("an answer is nested too deeply")
    if isinstance(value, float) and (value != value or abs(value) == float("inf")):
        # The logarithm of probability 0 is an answer, everything else that is not finite is none.
        return -1e308 if value == float("-inf") else None
    if isinstance(value, int) and abs(value) > 2**63:
        raise ReplyError("an answer is a number of more than 64 bits")
    return value


def _name(value: Any) -> str:
    names = {dict: "an object", str: "a text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")
