"""The questions of an inquiry: triggers among decoys, in an order that only the mark knows."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from timbermark.dtypes import AnyArray
from timbermark.errors import InputError
from timbermark.ownership.mark import Mark
from timbermark.verification.decoys import list_rows, make_decoys

DECOY = -1
MOST_DECOYS = 100
"""Decoys for each trigger."""
_ID_DOMAIN = b"timbermark/question/1"
_DIGEST_DOMAIN = b"timbermark/questions/1"
# Letters only: a spreadsheet would turn 1234e567 into a number.
_LETTERS = "abcdefghjkmnprst"
_ID_BYTES = 8


@dataclass(frozen=True, slots=True)
class Questions:
    """n questions in the order in which they are asked."""

    ids: tuple[str, ...]  # n names that tell nothing
    triggers: tuple[int, ...]  # n numbers of triggers, DECOY for a decoy
    rows: tuple[list[Any], ...]  # n rows in the mark's columns: numbers, texts, None if missing
    whole: tuple[bool, ...]  # d: whether a column holds whole numbers only

    def __len__(self) -> int:
        return len(self.ids)

    def digest(self, mark: Mark) -> str:
        """Return what identifies these questions without telling anything about them."""
        seen = hmac.new(mark.secret, _DIGEST_DOMAIN + mark.digest, hashlib.sha256)
        for name, row in zip(self.ids, self.rows, strict=True):
            seen.update(json.dumps([name, row]).encode())
        return seen.hexdigest()


def make_questions(mark: Mark, decoys: int = 1, table: Any = None) -> Questions:
    """Return the triggers among ``decoys`` decoys for each of them, in keyed order.

    ``table``: rows to take the values of decoys from, instead of the triggers. One mark always
    gives the same questions, and triggers have the same ids and order, that of the mark, whatever
    the decoys.

    Raises InputError if ``decoys`` is no whole number from 0 to 100, the table does not fit, or the
    mark is one of numbers.

    >>> from timbermark.ownership import OwnerKey
    >>> mark = Mark.make(
    ...     OwnerKey.generate(), owner="Ann", model_digest="0" * 64, classes=[0, 1],
    ...     triggers=np.arange(40.0).reshape(20, 2), alphabets=[[0, 1]] * 20,
    ...     reference=[[0.9, 0.1]] * 20,
    ... )
    >>> len(make_questions(mark, decoys=2)), len(make_questions(mark, decoys=0))
    (60, 20)
    """
    check_decoys(decoys)
    refuse_numbers(mark)
    rows = list_rows(mark.columns)
    made = make_decoys(mark, decoys, table)
    # Evidence from scores predicts answers from earlier ones, in the order of the mark.
    numbers = [int(number) for number in mark.order_numbers]
    listed = [(numbers[i], question_id(mark, "trigger", i), i, r) for i, r in enumerate(rows)]
    listed += [
        (_decoy_number(mark, i), question_id(mark, "decoy", i), DECOY, row)
        for i, row in enumerate(made)
        if row
    ]
    listed.sort(key=lambda question: question[0])
    _, ids, triggers, asked = zip(*listed, strict=True)
    return Questions(ids, triggers, asked, tuple(_is_whole(column) for column in mark.columns))


def refuse_numbers(mark: Mark) -> None:
    """Raise InputError for a mark of numbers: its pairs of rows are no questions of their own."""
    if mark.in_pairs:
        raise InputError(
            "The mark is one of numbers, and endpoints and tables of answers are asked for labels "
            "or scores.",
            hint="verify the model, its file, or in Python a function from rows to numbers.",
        )


def check_decoys(decoys: Any) -> None:
    """Raise InputError unless ``decoys`` is a number of decoys for each trigger.

    >>> check_decoys(2)
    """
    # A trigger without a decoy of its own would stand out from the families of the others.
    if type(decoys) is not int or not 0 <= decoys <= MOST_DECOYS:
        raise InputError(
            f"decoys={decoys!r} is no whole number from 0 to {MOST_DECOYS}.",
            hint="1 asks as many decoys as triggers, 0 none.",
        )


def question_id(mark: Mark, kind: str, number: int) -> str:
    """Return the id of a trigger or a decoy: 16 letters that only the mark can tell apart.

    >>> from timbermark.ownership import OwnerKey
    >>> mark = Mark.make(
    ...     OwnerKey.generate(), owner="Ann", model_digest="0" * 64, classes=[0, 1],
    ...     triggers=[[0.5]], alphabets=[[0, 1]], reference=[[0.9, 0.1]],
    ... )
    >>> len(question_id(mark, "trigger", 0))
    16
    """
    tag = _tag(mark, f"/{kind}/{number}")
    return "".join(_LETTERS[b >> 4] + _LETTERS[b & 15] for b in tag[:_ID_BYTES])


def _decoy_number(mark: Mark, number: int) -> int:
    """Return where a decoy stands among the triggers: a number like those of `order_numbers`."""
    return int.from_bytes(_tag(mark, f"/order/{number}")[:8], "little")


def _tag(mark: Mark, name: str) -> bytes:
    said = _ID_DOMAIN + mark.digest + name.encode()
    return hmac.new(mark.secret, said, hashlib.sha256).digest()


def wire_rows(questions: Questions, first: int, count: int, places: Sequence[int]) -> list[Any]:
    """Return some questions as JSON values, in the columns that a suspect takes.

    ``places`` are the features of the mark in the suspect's order. Numbers of columns that hold
    whole numbers only become whole numbers: servers that check types want them so.

    >>> asked = Questions(("a",), (0,), ([1.0, 0.5, None],), (True, False, False))
    >>> wire_rows(asked, 0, 1, [1, 0, 2])
    [[0.5, 1, None]]
    """
    return [
        [
            int(row[place]) if questions.whole[place] and row[place] is not None else row[place]
            for place in places
        ]
        for row in questions.rows[first : first + count]
    ]


def _is_whole(column: AnyArray | tuple[str | None, ...]) -> bool:
    if isinstance(column, tuple):
        return False
    known = column[~np.isnan(column)]
    return bool(known.size and (known == np.floor(known)).all() and np.abs(known).max() < 2**53)
