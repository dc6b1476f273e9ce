"""Codes for texts: marking works on matrices of numbers, in which each text has a code.

A deployed model takes numbers and texts, in a data frame if it finds its columns by name. Marking
mixes, hashes and compares rows, for which a code is as good as a text. A `Schema` knows the text of
each code and passes rows to the model in the form in which `timbermark.verify` will ask them.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from timbermark.errors import InputError
from timbermark.libraries.contract import ForeignModel
from timbermark.marking.inputs import Column, Columns, read_columns, take_rows
from timbermark.ownership.columns import plain_rows

_BLOCK = 8192
_CHECKED, _ALONE = 200, 5
"""Rows that are transformed again to check that the result is the same; how many of them alone."""
_MOST_REFUSALS = 200
_FEWEST_ASKED, _MOST_ASKED = 5, 10_000
"""The fewest rows per column, and the most in all, that test whether a model uses a column."""

Codes: TypeAlias = tuple[str, ...] | None


@dataclass(frozen=True, slots=True, eq=False)
class Schema:
    """How rows of numbers stand for what a model takes.

    ``texts``: for each column the texts that codes 0, 1, … stand for, None if it holds numbers;
    none where the model does not look at a column of texts, whose values are all missing.
    """

    foreign: ForeignModel
    texts: tuple[Codes, ...]

    @property
    def is_plain(self) -> bool:
        """Return whether the model takes the encoded rows as they are."""
        return not self.foreign.takes_frames and all(known is None for known in self.texts)

    @property
    def named(self) -> np.ndarray:
        """Return which columns hold texts, bool [d]."""
        return np.array([known is not None for known in self.texts])

    def decode(self, rows: np.ndarray) -> Any:
        """Return rows as the model is asked: a matrix of numbers or objects, or a frame."""
        if self.is_plain:
            return rows
        columns: list[Any] = []
        for place, known in enumerate(self.texts):
            values = rows[:, place]
            if known is None:
                columns.append(np.ascontiguousarray(values))
                continue
            lookup = np.array([*known, None], dtype=object)
            codes = np.where(np.isnan(values), len(known), values).astype(np.int64)
            columns.append(tuple(lookup[codes]))
        return plain_rows(columns, self.foreign.feature_names)

    def columns(self, rows: np.ndarray) -> np.ndarray:
        """Return rows as columns of the ensemble, float64 [n, n_features].

        Raises InputError if the model does not take them.
        """
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about names, which a matrix has none of
            if self.is_plain and not self.foreign.inside:
                return self.foreign.rows(rows)
            starts = range(0, max(len(rows), 1), _BLOCK)
            blocks = [self.foreign.rows(self.decode(rows[i : i + _BLOCK])) for i in starts]
        return np.concatenate(blocks)

    def try_columns(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return rows as columns of the ensemble, and which of them the model takes, bool [n].

        Transformers may refuse a mixture. Raises InputError if they refuse every one.
        """
        if self.is_plain and not self.foreign.inside:
            return self.columns(rows), np.ones(len(rows), np.bool_)
        out = np.zeros((len(rows), self.foreign.ensemble.n_features))
        takes = np.zeros(len(rows), np.bool_)
        refusal: InputError | None = None
        waiting, refusals = [(0, len(rows))], 0
        while waiting:
            first, last = waiting.pop()
            try:
                out[first:last] = self.columns(rows[first:last])
                takes[first:last] = True
            except InputError as error:
                refusal, refusals = error, refusals + 1
                middle = (first + last) // 2
                if last - first > 1 and refusals < _MOST_REFUSALS:
                    waiting += [(first, middle), (middle, last)]
        if refusal is not None and not takes.any():
            raise InputError(
                f"No row that could be a trigger is taken. {refusal.message}", hint=refusal.hint
            )
        return out, takes


def take_tables(
    foreign: ForeignModel, tables: Mapping[str, Any]
) -> tuple[Schema, dict[str, np.ndarray]]:
    """Return how rows are encoded, and every table as float64 [n, d], by what it is called.

    Raises InputError for tables that the model does not take, or not in the same way each time.
    """
    if not foreign.takes_frames and foreign.text_columns == frozenset():
        rows = {what: take_rows(foreign, X, what) for what, X in tables.items()}
        width = next(iter(rows.values())).shape[1]
        return Schema(foreign, (None,) * width), rows
    deployed = partial(_leaves_out, foreign) if foreign.inside else lambda table, place: False
    read = {what: read_columns(foreign, X, what, deployed) for what, X in tables.items()}
    schema = Schema(foreign, _find_texts(list(read.values())))
    rows = {what: _encode(schema, columns, what) for what, columns in read.items()}
    if foreign.inside:
        # Columns that the model ignores, such as names of customers, are left out of triggers.
        unseen = [find_ignored(schema, encoded) for encoded in rows.values()]
        ignored = np.logical_and.reduce(unseen)
        for encoded in rows.values():
            encoded[:, ignored] = np.nan
        kept = zip(schema.texts, ignored.tolist(), strict=True)
        schema = Schema(foreign, tuple(() if texts and out else texts for texts, out in kept))
    for what, X in tables.items():
        _check_transform(schema, X, rows[what], what)
    return schema, rows


def find_ignored(schema: Schema, rows: np.ndarray) -> np.ndarray:
    """Return which columns a deployed model does not look at, bool [d].

    It sees the same in rows with other values of such a column, and with none.
    """
    d = rows.shape[1]
    each = max(_FEWEST_ASKED, min(_CHECKED, _MOST_ASKED // d))
    asked = [_differing(rows[:, place], each) for place in range(d)]
    sizes = [len(one) for one, _ in asked]
    given = rows[np.concatenate([one for one, _ in asked])]
    changed, first = given.copy(), np.cumsum([0, *sizes])
    for place, (_, others) in enumerate(asked):
        changed[first[place] : first[place + 1], place] = rows[others, place]
    ignored = np.zeros(d, np.bool_)
    try:
        seen, other = schema.columns(given), schema.columns(changed)
    except InputError:
        return ignored
    same = (seen == other) | (np.isnan(seen) & np.isnan(other))
    for place in range(d):
        part = slice(first[place], first[place + 1])
        if not same[part].all():
            continue
        without = given[part].copy()
        without[:, place] = np.nan
        try:
            ignored[place] = _same(seen[part], schema.columns(without))
        except InputError:
            continue  # the model uses the column
    return ignored


def _differing(values: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return up to ``n`` places of distinct values, and for each a place of another value."""
    _, places = np.unique(values, return_index=True)
    places = places[np.linspace(0, len(places) - 1, min(n, len(places))).astype(np.int64)]
    return places, np.roll(places, 1)


def _leaves_out(foreign: ForeignModel, table: Any, place: int) -> bool:
    """Return whether a deployed model does not look at a column that a mark cannot keep."""
    if not hasattr(table, "iloc"):
        return False
    given = table.iloc[:_CHECKED]
    without = given.copy()
    without.isetitem(place, np.nan)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about names, which a matrix has none of
            return _same(foreign.rows(given), foreign.rows(without))
    except InputError:
        return False


def _find_texts(tables: list[Columns]) -> tuple[Codes, ...]:
    width = len(tables[0].values)
    if any(len(table.values) != width for table in tables):
        raise InputError(
            "The tables have different numbers of columns.", hint="give the same columns in all."
        )
    found: list[Codes] = []
    for place in range(width):
        texts: set[str] = set()
        for table in tables:
            column = table.values[place]
            if not isinstance(column, np.ndarray):
                texts.update(text for text in column if text is not None)
        found.append(tuple(sorted(texts)) if texts else None)
    return tuple(found)


def _encode(schema: Schema, table: Columns, what: str) -> np.ndarray:
    encoded = np.empty((table.n_rows, len(table.values)))
    for place, (column, known) in enumerate(zip(table.values, schema.texts, strict=True)):
        encoded[:, place] = _encode_column(column, known, table.name(place), what)
    return encoded


def _encode_column(column: Column, known: Codes, name: str, what: str) -> np.ndarray:
    if known is None:
        return np.asarray(
            column if isinstance(column, np.ndarray) else np.full(len(column), np.nan)
        )
    if isinstance(column, np.ndarray):
        if not np.isnan(column).all():
            raise InputError(
                f"Column {name} of the {what} holds numbers, and texts in another table.",
                hint="give it as the model was trained on it.",
            )
        return column
    code: dict[str | None, float] = {text: float(i) for i, text in enumerate(known)}
    code[None] = np.nan
    return np.array([code[text] for text in column])


def _check_transform(schema: Schema, X: Any, rows: np.ndarray, what: str) -> None:
    """Raise InputError unless the model sees the same in rows as given, kept, again and alone."""
    foreign, some = schema.foreign, rows[:_CHECKED]
    seen = schema.columns(some)
    if not _same(seen, schema.columns(some)):
        raise InputError(
            f"The {foreign.kind} makes other numbers of the same {what} each time.",
            hint="a mark needs a model that always answers alike: give random steps a fixed "
            "random_state, or leave them out.",
        )
    for i in range(min(_ALONE, len(some))):
        if not _same(seen[i : i + 1], schema.columns(some[i : i + 1])):
            raise InputError(
                f"The {foreign.kind} makes other numbers of a row when it is alone.",
                hint="use transformers that were fitted before, not on the rows they are given.",
            )
    if foreign.takes_frames and not hasattr(X, "iloc"):
        given = seen  # the table has no names of columns; only the schema has
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about names, which a matrix has none of
            table = read_columns(foreign, X, what, lambda table, place: True)
            given = foreign.rows(table.head(_CHECKED))
    if not _same(seen, given):
        raise InputError(
            f"The {foreign.kind} sees something else in the {what} once they are kept as numbers "
            "and texts.",
            hint="give columns of numbers and of texts, with NaN where a value is missing.",
        )
    # Refused rows in the last block raise an error now; those before it are left out later.
    schema.columns(rows[-_BLOCK:])


def _same(first: np.ndarray, second: np.ndarray) -> bool:
    return first.shape == second.shape and np.array_equal(first, second, equal_nan=True)
