"""Questions as a file, and answers that came back as a table: for suspects no program can reach.

Answers are known by the ids of their questions, whatever their order.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from timbermark.files import atomic_write
from timbermark.files.tables import csv_bytes, is_parquet, parquet_bytes, read_columns
from timbermark.ownership.evidence import Price
from timbermark.ownership.mark import Mark
from timbermark.verification.answers import frame_columns, match_labels, simplify
from timbermark.verification.columns import match_names, share_names
from timbermark.verification.inquiry import Facts, Inquiry
from timbermark.verification.questions import (
    DECOY,
    list_questions,
    make_questions,
    whole_columns,
    wire_row,
)
from timbermark.verification.refusals import refusal
from timbermark.verification.transcript import Context

ID_COLUMN = "question"
_ENDINGS = (".csv", ".csv.gz", ".parquet")
_ANSWER_NAMES = ("label", "answer", "prediction", "class", "score", "probability", "number")


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
        """Return the table of a data frame (of pandas, polars or Arrow); ids may be its index."""
        cells = {str(name): column for name, column in (frame_columns(frame) or {}).items()}
        index = getattr(frame, "index", None)
        name = getattr(index, "name", None)
        if index is not None and name is not None:
            cells.setdefault(str(name), index.tolist())
        return cls(f"answers in a table of {len(frame)} rows", cells)

    @classmethod
    def from_mapping(cls, answers: Mapping[Any, Any]) -> AnswerTable:
        """Return the table of a dictionary from ids to answers, or to dictionaries of scores."""
        ids = [str(name) for name in answers]
        given = list(answers.values())
        what = f"answers to {len(ids)} questions"
        if given and all(isinstance(answer, Mapping) for answer in given):
            names = dict.fromkeys(str(name) for answer in given for name in answer)
            rows = [{str(name): score for name, score in answer.items()} for answer in given]
            return cls(what, {ID_COLUMN: ids, **{n: [r.get(n) for r in rows] for n in names}})
        return cls(what, {ID_COLUMN: ids, "label": given})

    @property
    def facts(self) -> Facts:
        """Return what is known of the answers before a mark tells which they are."""
        return Facts(context=Context(self.name, "table", self.digest))

    def ask(self, inquiry: Inquiry) -> Iterator[Mapping[int, Any]]:
        """Yield the answers that the table holds, in the order of the questions.

        Columns that are called like classes of the mark hold scores, one other column holds labels,
        scores of the second class or numbers. Columns of the questions themselves are ignored.

        Raises InputError if the table does not hold answers to the questions of the mark.
        """
        mark = inquiry.mark
        asked = list_questions(inquiry.questions)
        known = {q.id: q.row for q in asked if q.row != DECOY}
        found = self._find_rows(mark, known)
        names, scored = self._answer_columns(mark)
        alone = self._answer_column(names, scored)
        labels_wanted = inquiry.rules.wanted in ("labels", "numbers")
        if scored and alone is not None and labels_wanted:
            inquiry.add(Price("kind", 1.0))  # by the rule scores count
        answers = {}
        for row, line in found.items():
            if scored and not labels_wanted:
                answers[row] = {name: self.columns[name][line] for name in scored}
            elif alone is not None:
                answers[row] = simplify(self.columns[alone][line])
            else:
                raise refusal("table.no-labels", table=self.name)
        # The first answer in the order of asking settles how all are read.
        order = [row for row in known.values() if row in answers]
        yield {row: answers[row] for row in order}

    def _find_rows(self, mark: Mark, known: Mapping[str, int]) -> dict[int, int]:
        """Return the line of each row of the mark that is in the table."""
        name = id_column(mark)
        if name not in self.columns:
            raise refusal("table.no-ids", table=self.name, name=name)
        found: dict[int, int] = {}
        for line, cell in enumerate(self.columns[name]):
            row = known.get(str(cell).strip().lower())
            if row is None:
                continue
            if row in found:
                raise refusal("table.twice", table=self.name, cell=cell)
            found[row] = line
        if not found:
            raise refusal("table.other-questions", table=self.name)
        return found

    def _answer_columns(self, mark: Mark) -> tuple[list[str], list[str]]:
        """Return the columns that are not part of the questions, and those of scores among them."""
        features = column_names(mark)
        names = [
            n
            for n in self.columns
            if n not in (id_column(mark), "") and not share_names([n], features)
        ]
        scored = []
        if names and mark.classes:
            numbers = match_labels(names, mark.classes)
            scored = [name for name, number in zip(names, numbers, strict=True) if number >= 0]
        return names, scored if len(scored) > 1 else []

    def _answer_column(self, names: list[str], scored: list[str]) -> str | None:
        others = [name for name in names if name not in scored]
        if len(others) == 1:
            return others[0]
        called = [name for name in others if name.lower() in _ANSWER_NAMES]
        if len(called) == 1:
            return called[0]
        if scored and not called:
            return None
        raise refusal("table.which-column", table=self.name)


def is_answer_file(path: str | os.PathLike[str]) -> bool:
    """Return whether a path is that of a table rather than of a model.

    >>> is_answer_file("answers.csv"), is_answer_file("model.json.that.is.not.there")
    (True, False)
    """
    name = os.fspath(path).lower()
    return name.endswith(_ENDINGS) or (os.path.isfile(path) and is_parquet(path))


def id_column(mark: Mark) -> str:
    """Return the name of the column of ids: "question", or more where a feature is called so.

    >>> from timbermark.ownership import OwnerKey
    >>> id_column(Mark.make(
    ...     OwnerKey.generate(), owner="Ann", model_digest="0" * 64, classes=[0, 1],
    ...     triggers=[[0.5]], alphabets=[[0, 1]], reference=[[0.9, 0.1]],
    ...     feature_names=["question"],
    ... ))
    'question_'
    """
    name = ID_COLUMN
    while name in (mark.feature_names or ()):
        name += "_"
    return name


def column_names(mark: Mark) -> tuple[str, ...]:
    """Return the names of the features; x0, x1, … where the mark does not know them."""
    if mark.feature_names is not None:
        return mark.feature_names
    return tuple(f"x{number}" for number in range(mark.n_features))


def write_questions(
    mark: Mark,
    path: str | os.PathLike[str],
    *,
    decoys: int = 1,
    decoys_from: Any = None,
    columns: Sequence[str] | None = None,
) -> int:
    """Write triggers among decoys as CSV, or as Parquet if ``path`` ends so; return how many.

    The first column has the ids, by which `timbermark.verify` knows the answers again. ``columns``
    are the mark's names in the order that the suspect wants, with blanks where a library wrote
    underscores if it has them or, where the mark knows no names, those of the suspect. The other
    arguments are those of `make_questions`.

    Raises InputError if the columns or decoys do not fit or the file cannot be such a one,
    MissingLibraryError without pyarrow for Parquet.

    >>> import tempfile
    >>> from timbermark.ownership import OwnerKey
    >>> mark = Mark.make(
    ...     OwnerKey.generate(), owner="Ann", model_digest="0" * 64, classes=[0, 1],
    ...     triggers=[[0.5, 3], [1.5, 4]], alphabets=[[0, 1]] * 2, reference=[[0.9, 0.1]] * 2,
    ... )
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_questions(mark, folder + "/questions.csv", decoys=0)
    ...     Path(folder + "/questions.csv").read_text().splitlines()[0]
    2
    'question,x0,x1'
    """
    writers = {".csv": csv_bytes, ".parquet": parquet_bytes}
    ending = Path(path).suffix.lower()
    if ending not in writers:
        raise refusal("questions.ending", path=os.fspath(path))
    names, places = _order(mark, columns)
    listed = sorted(list_questions(make_questions(mark, decoys, decoys_from)), key=lambda q: q.id)
    header = [id_column(mark), *names]
    if len(set(header)) < len(header):
        raise refusal("questions.id-column", name=header[0])
    whole = whole_columns(mark)
    lines = [[q.id, *wire_row(q.values, places, whole)] for q in listed]
    # Until it is asked, nobody else may know a trigger.
    atomic_write(path, writers[ending](header, lines), mode=0o600)
    return len(listed)


def _order(mark: Mark, columns: Sequence[str] | None) -> tuple[Sequence[str], Sequence[int]]:
    known = column_names(mark)
    if columns is None:
        return known, range(len(known))
    places = match_names(columns, known)
    if places is not None:
        return columns, places
    if mark.feature_names is None and len(set(columns)) == len(columns) == len(known):
        return columns, range(len(known))
    raise refusal("columns.by-hand", parameter="columns", features=len(known))
