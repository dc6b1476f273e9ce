"""Answers that came as a table: a file that somebody filled in, a data frame, a dictionary.

Answers are known by the ids of their questions. How much is left out matters: whoever fills in a
table could leave out what does not suit him.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from timbermark.errors import InputError
from timbermark.files.small_tables import read_columns
from timbermark.files.tables import is_parquet
from timbermark.ownership.columns import join_words
from timbermark.ownership.judging_answers import Inquiry, judge
from timbermark.ownership.labels import UNANSWERED, read_answers
from timbermark.ownership.mark import Mark
from timbermark.ownership.scores import read_scores, settle_scale
from timbermark.ownership.verdict import Price, Verdict, price_of_kind
from timbermark.ownership.verifying import AnswersWanted, check_label_map
from timbermark.verification.endpoints.reading import Reading, place_labels, settle_reading
from timbermark.verification.question_files import column_names, id_column
from timbermark.verification.questions import question_id, refuse_numbers

_ENDINGS = (".csv", ".csv.gz", ".parquet")
_MISSING = frozenset({"", "NA", "N/A", "<NA>", "NaN", "nan", "NULL", "null", "None"})
_LABEL_NAMES = ("label", "answer", "prediction", "class")


@dataclass(frozen=True, slots=True, eq=False)
class AnswerTable:
    """Columns of cells by name; which of them are what, only a mark can tell."""

    name: str  # what it is
    columns: Mapping[str, Sequence[Any]]
    digest: str | None = None  # SHA-256 of its file, if it is one

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> AnswerTable:
        """Return the table of a CSV or Parquet file.

        Raises InputError if it is none, or far larger than any table of answers.
        """
        name = os.fspath(path)
        with open(path, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        return cls(f"answers {name}", read_columns(path), digest)

    @classmethod
    def from_frame(cls, frame: Any) -> AnswerTable:
        """Return the table of a data frame; ids may be its index."""
        cells = {str(name): frame[name].tolist() for name in frame.columns}
        index = getattr(frame.index, "name", None)
        if index is not None and str(index) not in cells:
            cells[str(index)] = frame.index.tolist()
        return cls(f"answers in a table of {len(frame)} rows", cells)

    @classmethod
    def from_mapping(cls, answers: Mapping[Any, Any]) -> AnswerTable:
        """Return the table of a dictionary from ids to labels, or to dictionaries of scores."""
        ids = [str(name) for name in answers]
        given = list(answers.values())
        what = f"answers to {len(ids)} questions"
        if given and all(isinstance(answer, Mapping) for answer in given):
            names = dict.fromkeys(str(name) for answer in given for name in answer)
            rows = [{str(name): score for name, score in answer.items()} for answer in given]
            return cls(what, {"question": ids, **{n: [r.get(n) for r in rows] for n in names}})
        return cls(what, {"question": ids, "label": given})


def is_answer_file(path: str | os.PathLike[str]) -> bool:
    """Return whether a path is that of a table rather than of a model.

    >>> is_answer_file("answers.csv"), is_answer_file("model.json.that.is.not.there")
    (True, False)
    """
    name = os.fspath(path).lower()
    return name.endswith(_ENDINGS) or (os.path.isfile(path) and is_parquet(path))


def judge_table(
    table: AnswerTable,
    mark: Mark,
    *,
    answers: AnswersWanted = "auto",
    label_map: Mapping[Any, Any] | None = None,
) -> Verdict:
    """Return what the answers in a table prove.

    Columns that are called like classes of the mark hold scores, one other column holds labels;
    scores are used where there are any, ``answers="labels"`` then costs 1 bit. Columns of the
    questions themselves are ignored.

    If all triggers are answered, labels are judged by the exact tail. If those that are answered
    are the first ones in the order of the questions, asking just stopped there, and the evidence
    that allows for it is taken. Otherwise somebody chose: a label that is missing counts against
    the mark, and leaving out h of n scores costs log₂ of the number of such choices.

    Raises InputError if the table does not hold answers to the questions of the mark.
    """
    refuse_numbers(mark)
    translation = check_label_map(label_map, mark)
    triggers = _find_triggers(table, mark)
    names, scored = _answer_columns(table, mark)
    label = _label_column(names, scored, table)
    one_score = label is not None and not scored and answers == "scores"
    if answers == "scores" and not scored and (label is None or len(mark.classes) != 2):
        raise InputError(
            f"{table.name} holds no scores.", hint="call their columns like the classes."
        )
    kind = "scores" if (scored and answers != "labels") or one_score else "labels"
    if kind == "labels" and label is None:
        raise InputError(f"{table.name} holds no labels.", hint="call their column 'label'.")
    chosen = (price_of_kind(),) if scored and label is not None and answers == "labels" else ()
    if kind == "labels":
        assert label is not None
        cells = table.columns[label]
        given = {trigger: _cell(cells[row]) for trigger, row in triggers.items()}
        return _judge_labels(table, mark, given, translation, chosen)
    if translation is not None:
        raise InputError(
            "label_map is given, but the answers are scores.",
            hint='leave it out, or use answers="labels".',
        )
    assert label is not None or scored
    return _judge_scores(table, mark, triggers, scored or [label or ""])


def _judge_labels(
    table: AnswerTable,
    mark: Mark,
    given: Mapping[int, Any],
    translation: Mapping[Any, Any] | None,
    chosen: tuple[Price, ...],
) -> Verdict:
    there = {trigger: answer for trigger, answer in given.items() if answer is not None}
    reading = settle_reading(list(there.values()), mark, wanted="labels", label_map=translation)
    reading = reading or Reading("labels")
    placed, shown = place_labels(there, reading, mark)
    answered = {int(trigger) for trigger in np.flatnonzero(placed != UNANSWERED)}
    stopped = len(answered) < mark.n_triggers and _are_first(answered, mark)
    inquiry = _inquiry(
        table,
        mark,
        reading=reading.words,
        prices=(*chosen, *reading.prices_for(there.values(), mark)),
        asked=len(answered) if stopped else None,
    )
    return judge(mark, inquiry, labels=placed, shown=shown, one_by_one=stopped)


def _judge_scores(
    table: AnswerTable, mark: Mark, triggers: Mapping[int, int], columns: Sequence[str]
) -> Verdict:
    places = list(triggers)
    matrix = np.array(
        [[_number(table, table.columns[c][row]) for c in columns] for row in triggers.values()]
    ).reshape(len(places), len(columns))
    classes: tuple[Any, ...] | None = tuple(columns)
    reading = f"scores as {settle_scale(matrix, 'auto')}, classes matched by name"
    if len(columns) == 1:
        second = matrix[:, 0]
        are_shares = np.isnan(second) | ((second >= 0.0) & (second <= 1.0))
        first = 1.0 - second if are_shares.all() else np.zeros_like(second)
        matrix = np.column_stack([first, second])
        classes, reading = None, "scores, one number each: that of the second class"
    read, _ = read_scores(matrix, len(places), mark.classes, classes, "auto")
    placed = np.full((mark.n_triggers, len(mark.classes)), np.nan)
    placed[places] = read
    answered = {int(t) for t in np.flatnonzero(~np.isnan(placed).any(axis=1))}
    stopped = _are_first(answered, mark)
    # By the rule a single column holds labels.
    prices: tuple[Price, ...] = (price_of_kind(),) if len(columns) == 1 else ()
    if answered and not stopped:
        last = max(_order(mark).index(trigger) for trigger in answered) + 1
        left_out = last - len(answered)
        ways = math.log2(math.comb(last, left_out))
        prices += (Price(f"{left_out} of {last} answers left out", ways),)
    inquiry = _inquiry(
        table, mark, reading=reading, prices=prices, asked=len(answered) if stopped else None
    )
    return judge(mark, inquiry, scores=placed)


def _inquiry(table: AnswerTable, mark: Mark, **more: Any) -> Inquiry:
    return Inquiry(
        suspect=table.name,
        asked_through="a table of answers",
        suspect_digest=table.digest,
        columns="by name",
        column_names=mark.feature_names or (),
        **more,
    )


def _find_triggers(table: AnswerTable, mark: Mark) -> dict[int, int]:
    """Return the row of each trigger that is in the table."""
    name = id_column(mark)
    if name not in table.columns:
        raise InputError(
            f"{table.name} has no column '{name}'.",
            hint="keep the ids of the questions beside the answers.",
        )
    number = {question_id(mark, "trigger", i): i for i in range(mark.n_triggers)}
    found: dict[int, int] = {}
    seen: set[str] = set()
    for row, cell in enumerate(table.columns[name]):
        known = str(cell).strip().lower()
        if known in seen and known in number:
            raise InputError(
                f"{table.name} answers the question '{known}' twice.", hint="answer it once."
            )
        seen.add(known)
        if known in number:
            found[number[known]] = row
    if not found:
        raise InputError(
            f"{table.name} answers none of the questions of this mark.",
            hint="are they the questions of another mark, or were the ids changed?",
        )
    return found


def _answer_columns(table: AnswerTable, mark: Mark) -> tuple[list[str], list[str]]:
    """Return the columns that are not part of the questions, and those of scores among them."""
    asked = {id_column(mark), "", *column_names(mark)}
    # The suspect's names may have blanks where LightGBM wrote underscores.
    names = [n for n in table.columns if n not in asked and join_words(n) not in asked]
    scored = []
    if names:
        numbers = read_answers(names, mark.classes)
        scored = [name for name, number in zip(names, numbers, strict=True) if number >= 0]
    return names, scored if len(scored) > 1 else []


def _label_column(names: list[str], scored: list[str], table: AnswerTable) -> str | None:
    others = [name for name in names if name not in scored]
    if len(others) == 1:
        return others[0]
    called = [name for name in others if name.lower() in _LABEL_NAMES]
    if len(called) == 1:
        return called[0]
    if not others and scored:
        return None
    if scored and not called:
        return None
    raise InputError(
        f"{table.name} does not tell which column holds the answers.",
        hint="call it 'label', or call columns of scores like the classes.",
    )


def _are_first(answered: set[int], mark: Mark) -> bool:
    return set(_order(mark)[: len(answered)]) == answered


def _order(mark: Mark) -> list[int]:
    """Return the triggers in the order of the questions."""
    return [int(trigger) for trigger in mark.order]


def _cell(cell: Any) -> Any:
    if cell is None or (isinstance(cell, float) and cell != cell):
        return None
    return None if isinstance(cell, str) and cell.strip() in _MISSING else cell


def _number(table: AnswerTable, cell: Any) -> float:
    known = _cell(cell)
    try:
        return math.nan if known is None else float(known)
    except (TypeError, ValueError):
        raise InputError(
            f"{table.name} holds {str(cell)[:40]!r} among scores.", hint="scores are numbers."
        ) from None
