"""Asking a suspect and counting its matches: the whole of verification."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from timbermark.dtypes import ClassIndices
from timbermark.errors import InputError
from timbermark.ownership.labels import UNANSWERED, UNKNOWN, Label, list_answers, read_answers
from timbermark.ownership.mark import Mark
from timbermark.ownership.suspects import Suspect, ask, open_suspect
from timbermark.ownership.symbols import query_order
from timbermark.ownership.verdict import Answer, Verdict


def verify(suspect: Any, mark: Mark, *, feature_names: Sequence[str] | None = None) -> Verdict:
    """Ask a suspect the triggers of a mark and say what its answers prove.

    ``suspect`` is a function from rows (float64 [k, d]) to labels, a fitted model with ``predict``,
    or the path of a timbermark model file. Labels are all that is needed: '3' and 3.0 count as 3.
    If the suspect knows its features by name, it gets the columns in its own order;
    ``feature_names`` says that order for one that does not. Triggers are asked all at once, in an
    order that only the mark knows.

    A missing answer (None, NaN) is a trial without a match, and so is a label outside the alphabet.

    Raises InputError if the suspect raises anything, wants other columns, or does not answer with
    one label per row; FileFormatError if the file is no model of timbermark, OSError if it cannot
    be opened.

    >>> from timbermark.ownership import OwnerKey
    >>> mark = Mark.make(
    ...     OwnerKey.generate(), owner="Ann", model_digest="0" * 64, classes=["no", "yes"],
    ...     triggers=np.arange(100.0).reshape(100, 1), alphabets=np.tile([0, 1], (100, 1)),
    ... )
    >>> memory = dict(zip(mark.triggers[:, 0], mark.expected, strict=True))
    >>> print(verify(lambda X: [memory[x] for x in X[:, 0]], mark))
    marked: 100 of 100 symbols match, evidence 2^-100 (level public)
    >>> verify(lambda X: ["no"] * len(X), mark).level
    'none'
    """
    if not isinstance(mark, Mark):
        raise InputError(
            f"{type(mark).__name__} is not a mark.", hint="load one with Mark.load(path)."
        )
    opened = open_suspect(suspect)
    columns = _match_columns(opened, mark, feature_names)
    order = query_order(mark.secret, mark.digest, mark.n_triggers)
    rows = np.ascontiguousarray(mark.triggers[order][:, columns])
    asked = list_answers(ask(opened, rows), mark.n_triggers)
    answers: list[Any] = [None] * mark.n_triggers
    for place, answer in zip(order, asked, strict=True):
        answers[place] = answer
    known = range(len(mark.classes)) if opened.answers_class_numbers else mark.classes
    return _judge(read_answers(answers, tuple(known)), answers, mark, opened.description)


def _judge(numbers: ClassIndices, answers: list[Any], mark: Mark, description: str) -> Verdict:
    """Compare the class numbers [k] that a suspect answered with those the symbols ask for."""
    expected = mark.expected_numbers
    matched = numbers == expected
    inside = (numbers[:, np.newaxis] == mark.alphabets).any(axis=1)
    unanswered = numbers == UNANSWERED
    return Verdict(
        owner=mark.owner,
        mark_id=mark.mark_id.hex(),
        suspect=description,
        matched=int(matched.sum()),
        trials=mark.n_triggers,
        q=mark.q,
        outside=int((~inside & ~unanswered).sum()),
        unknown=int((numbers == UNKNOWN).sum()),
        unanswered=int(unanswered.sum()),
        answers=tuple(
            Answer(
                trigger=trigger,
                expected=mark.classes[expected[trigger]],
                response=_response(number, answers[trigger], mark),
                matched=bool(matched[trigger]),
            )
            for trigger, number in enumerate(numbers.tolist())
        ),
    )


def _response(number: int, answer: Any, mark: Mark) -> Label | None:
    if number >= 0:
        return mark.classes[number]
    return None if number == UNANSWERED else f"{answer!s:.80}"


def _match_columns(
    suspect: Suspect, mark: Mark, feature_names: Sequence[str] | None
) -> Sequence[int]:
    """Return which feature of the mark each column of the suspect is."""
    wanted = suspect.feature_names
    if feature_names is not None:
        wanted = tuple(feature_names)
        if mark.feature_names is None:
            raise InputError(
                "feature_names are given, but the mark knows no names.",
                hint="leave them out and let the suspect take the columns in the mark's order.",
            )
        if suspect.n_features not in (None, len(wanted)):
            raise InputError(
                f"{len(wanted)} feature_names are given, but the suspect takes "
                f"{suspect.n_features} columns.",
                hint="name each of its columns once, in its order.",
            )
    known = mark.feature_names
    if wanted is None or known is None or (feature_names is None and not set(wanted) & set(known)):
        # Names with nothing in common (f0, Column_0) were made up by a library: the place counts.
        n_wanted = suspect.n_features if wanted is None else len(wanted)
        if n_wanted not in (None, mark.n_features):
            raise InputError(
                f"The suspect takes {n_wanted} columns, the mark's rows have {mark.n_features}.",
                hint="is it a model of the same data? A function can choose the columns.",
            )
        return range(mark.n_features)
    strange = [name for name in wanted if name not in known]
    if strange or len(set(wanted)) < len(wanted):
        shown = ", ".join(map(repr, strange[:5])) or "one of them twice"
        raise InputError(
            f"The suspect wants columns that the mark does not have: {shown}.",
            hint="give feature_names: the mark's names in the order of the suspect's columns.",
        )
    place = {name: number for number, name in enumerate(known)}
    return [place[name] for name in wanted]
