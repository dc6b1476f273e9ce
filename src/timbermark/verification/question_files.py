"""Questions as a file, for suspects that no program can reach: somebody fills in the answers."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

from timbermark.errors import InputError, MissingLibraryError
from timbermark.files import atomic_write
from timbermark.ownership.columns import match_names
from timbermark.ownership.mark import Mark
from timbermark.verification.questions import Questions, make_questions, wire_rows

ID_COLUMN = "question"


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

    The first column has the ids, by which `timbermark.verify` knows the answers again, whatever
    their order. ``columns`` are the mark's names in the order that the suspect wants, with blanks
    where LightGBM wrote underscores if it has them or, where the mark knows no names, those of the
    suspect. The other arguments are those of `make_questions`.

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
    writers: dict[str, Callable[[list[str], list[list[Any]]], bytes]] = {
        ".csv": _csv,
        ".parquet": _parquet,
    }
    ending = Path(path).suffix.lower()
    if ending not in writers:
        raise InputError(
            f"Questions cannot be written as {os.fspath(path)}.",
            hint="use a name that ends in .csv or .parquet.",
        )
    names, places = _order(mark, columns)
    questions = make_questions(mark, decoys, decoys_from)
    header = [id_column(mark), *names]
    if len(set(header)) < len(header):
        raise InputError(
            f"'{header[0]}' is the name of the column of ids.", hint="name that column otherwise."
        )
    content = writers[ending](header, _lines(questions, places))
    # Until it is asked, nobody else may know a trigger.
    atomic_write(path, content, mode=0o600)
    return len(questions)


def _order(mark: Mark, columns: Sequence[str] | None) -> tuple[Sequence[str], Sequence[int]]:
    known = column_names(mark)
    if columns is None:
        return known, range(len(known))
    places = match_names(columns, known)
    if places is not None:
        return columns, places
    if mark.feature_names is None and len(set(columns)) == len(columns) == len(known):
        return columns, range(len(known))
    raise InputError(
        "The columns are not the features of the mark in another order.",
        hint=f"name each once: {', '.join(known[:20])}{', …' if len(known) > 20 else ''}.",
    )


def _lines(questions: Questions, places: Sequence[int]) -> list[list[Any]]:
    rows = wire_rows(questions, 0, len(questions), places)
    return [[name, *row] for name, row in zip(questions.ids, rows, strict=True)]


def _csv(header: list[str], lines: list[list[Any]]) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows([["" if cell is None else cell for cell in line] for line in lines])
    return text.getvalue().encode()


def _parquet(header: list[str], lines: list[list[Any]]) -> bytes:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise MissingLibraryError.for_extra("parquet", "to write Parquet files") from None
    columns = [list(column) for column in zip(*lines, strict=True)]
    table = pyarrow.table(dict(zip(header, columns, strict=True)))
    file: IO[bytes] = io.BytesIO()
    parquet.write_table(table, file)
    file.seek(0)
    return file.read()
