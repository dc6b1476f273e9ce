"""Any JSON in and out: a template for the request, and a path to the answers."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, ClassVar

from timbermark.errors import InputError
from timbermark.verification.endpoints.protocols.contract import (
    Batch,
    check_paths,
    follow,
    list_replies,
    parse_path,
)

_MANY: dict[str, Callable[[Batch], Any]] = {
    "$rows": lambda batch: [list(row) for row in batch.rows],
    "$records": lambda batch: batch.records,
}
_ONE: dict[str, Callable[[Batch], Any]] = {
    "$row": lambda batch: list(batch.rows[0]),
    "$record": lambda batch: batch.records[0],
}
_WORDS: dict[str, Callable[[Batch], Any]] = {
    **_MANY,
    **_ONE,
    "$columns": lambda batch: batch.columns,
}


_NAMED = frozenset({"$records", "$record", "$columns"})


class JsonTemplate:
    """``body``: any JSON value in which texts stand for the questions; ``answer``: a path.

    "$rows" is a list of rows, "$records" a list of objects by column; "$row" and "$record" are one
    of these, for servers that take one question at a time; "$columns" are the names.
    """

    options: ClassVar[tuple[str, ...]] = ("body", "answer")

    def __init__(self, body: Any = None, answer: str = "") -> None:
        self._body, self._steps = body, parse_path(answer)
        words = _find_words(body)
        if len(words & {*_MANY, *_ONE}) != 1:
            raise InputError(
                "The template of the request does not say in one place where the questions go.",
                hint=f"give a body with one of {', '.join((*_MANY, *_ONE))}, as in "
                '\'{"rows": "$rows"}\'.',
            )
        self.one_at_a_time = bool(words & set(_ONE))
        self.sends_names = bool(words & _NAMED)

    @staticmethod
    def speaks_at(path: str) -> bool:
        """Return False: a template has no path of its own."""
        return False

    @staticmethod
    def complete_path(path: str) -> str:
        """Return the path as it is."""
        return path

    def make_body(self, batch: Batch) -> Any:
        """Return the template, filled in."""
        return _fill(self._body, batch)

    def read_reply(self, reply: Any, n: int) -> list[Any]:
        """Return what the path leads to: a list of n, or the one answer to one question."""
        if self._steps:
            check_paths(reply, None if self.one_at_a_time else n)
        found = follow(reply, self._steps)
        return list_replies([found] if self.one_at_a_time else found, n)


def read_template(text: str) -> Any:
    """Return a template from JSON. Raises InputError if it is none.

    >>> read_template('{"rows": "$rows"}')
    {'rows': '$rows'}
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"The template of the request is no JSON ({error}).",
            hint='as in \'{"rows": "$rows"}\'.',
        ) from None


def is_placeholder(value: Any) -> bool:
    """Return whether a value of a template stands for the questions or the names of their columns.

    >>> is_placeholder("$rows"), is_placeholder("rows")
    (True, False)
    """
    return isinstance(value, str) and value in _WORDS


def _find_words(value: Any) -> set[str]:
    if isinstance(value, str):
        return {value} & set(_WORDS)
    inside = value.values() if isinstance(value, dict) else value
    return set().union(*map(_find_words, inside)) if isinstance(value, dict | list) else set()


def _fill(value: Any, batch: Batch) -> Any:
    if isinstance(value, dict):
        return {name: _fill(part, batch) for name, part in value.items()}
    if isinstance(value, list):
        return [_fill(part, batch) for part in value]
    return _WORDS[value](batch) if is_placeholder(value) else value
