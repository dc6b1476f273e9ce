"""The questions of an inquiry: rows of triggers among decoys, in an order that only the mark knows.

A trigger and its decoys are a family. A row in their middle, which is never asked, is the trigger
with a few values drawn anew; each decoy is that row with a few values drawn anew. Seen from the
middle all members of the family are made alike, so that none of them looks more like the trigger
than the others; and as few values differ, a model is about as sure of all of them. The decoys of a
trigger in splits are such rows with the column and the three values of another trigger.

New values come from the same column of other triggers, or of a table that the owner gives. Those
of triggers are moved towards a neighbour, in the same precision, where a column has many values:
copied, they would tell the rows that they were copied from. Everything follows from the secret of
the mark.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from timbermark.dtypes import AnyArray
from timbermark.ownership.columns import Column
from timbermark.ownership.mark import Mark
from timbermark.ownership.seals import HIGH, Seal, SplitSeal
from timbermark.verification.refusals import check_number, refusal

DECOY = -1
MOST_DECOYS = 100
"""Decoys for each trigger."""
_TOGETHER = {"leaves": 1, "splits": 2}
"""Triggers whose rows are asked in one block, in keyed order: the rows of a trigger in splits are
not asked one after the other."""
_ID_DOMAIN = b"timbermark/question/2"
_DECOY_DOMAIN = b"timbermark/decoys/2"
# Letters only: a spreadsheet would turn 1234e567 into a number.
_LETTERS = "abcdefghjkmnprst"
_ID_BYTES = 8
_TRIES = 20
_SAMPLED = 20_000
"""Rows of a table in parts that values are taken from."""
_FEW_VALUES = 16
_MOST_DECIMALS = 8
_WHOLE = 2.0**64
# Share of the values that are drawn anew in each of the two steps, and at least how many of them.
# `./dev bench endpoint decoys` chose them: a forest tells triggers from decoys by their values no
# better than chance, and the model's own confidence hardly; it tells mixtures of two rows well.
_RENEWED = 0.06
_FEWEST_RENEWED = 2.0


@dataclass(frozen=True, slots=True)
class Question:
    """One row to ask: a name that tells nothing, and the row of the mark it is, or DECOY."""

    id: str
    row: int
    values: list[Any]  # in the mark's columns: numbers, texts, None if missing
    # Of a row at b, the names of those at a and in the middle: where they settle it, b is not asked
    pair: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Questions:
    """The questions of one seal, in blocks, each of which completes some triggers."""

    seal: str
    blocks: tuple[tuple[Question, ...], ...]

    def __len__(self) -> int:
        return sum(map(len, self.blocks))


def list_questions(parts: Mapping[str, Questions]) -> list[Question]:
    """Return the questions of all seals, in the order of asking.

    >>> list_questions({})
    []
    """
    return [q for part in parts.values() for block in part.blocks for q in block]


def make_questions(mark: Mark, decoys: int = 0, table: Any = None) -> dict[str, Questions]:
    """Return the questions of each seal: triggers among ``decoys`` decoys for each of them.

    ``table``: rows to take the values of decoys from, instead of the triggers. One mark always
    gives the same questions, and triggers have the same ids and order, that of the mark, whatever
    the decoys.

    Raises InputError if ``decoys`` is no whole number from 0 to 100 or the table does not fit.

    >>> from timbermark.ownership import OwnerKey
    >>> mark = Mark.make(
    ...     OwnerKey.generate(), owner="Ann", model_digest="0" * 64, classes=[0, 1],
    ...     triggers=np.arange(40.0).reshape(20, 2), alphabets=[[0, 1]] * 20,
    ...     reference=[[0.9, 0.1]] * 20,
    ... )
    >>> len(make_questions(mark, decoys=2)["leaves"]), len(make_questions(mark)["leaves"])
    (60, 20)
    """
    # A trigger without a decoy of its own would stand out from the families of the others.
    check_number("decoys", decoys, 0, MOST_DECOYS, whole=True)
    sources = None
    if decoys and table is not None:
        sources = [_Source(column, moves=False) for column in _read_table(mark, table)]
    found, first = {}, 0
    for seal in mark.seals:
        found[seal.name] = _question_seal(mark, seal, first, decoys, sources)
        first += len(seal.columns[0]) * seal.rows_each
    return found


def _question_seal(
    mark: Mark, seal: Seal, first: int, decoys: int, sources: list[_Source] | None
) -> Questions:
    rows = list_rows(seal.rows())
    width = seal.rows_each
    families = _make_decoys(mark, seal, decoys, sources)
    order = mark.order(seal.name).tolist()
    together = _TOGETHER[seal.name]
    blocks = []
    for at in range(0, len(order), together):
        block: list[Question] = []
        for trigger in order[at : at + together]:
            begin = width * trigger
            own = [(first + begin + part, rows[begin + part]) for part in range(width)]
            block += _name_rows(mark, f"{seal.name}/{trigger}", own)
            for number, decoy in enumerate(families[trigger]):
                name = f"{seal.name}/{trigger}/decoy/{number}"
                block += _name_rows(mark, name, [(DECOY, row) for row in decoy])
        block.sort(key=lambda question: _tag(mark, "order/" + question.id))
        blocks.append(tuple(block))
    return Questions(seal.name, tuple(blocks))


def _name_rows(mark: Mark, what: str, rows: Sequence[tuple[int, list[Any]]]) -> list[Question]:
    """Return the questions of one trigger or decoy: one row, or three at a, the middle and b."""
    ids = [question_id(mark, f"{what}/{part}") for part in range(len(rows))]
    return [
        Question(name, row, values, tuple(ids[:HIGH]) if part == HIGH else ())
        for part, (name, (row, values)) in enumerate(zip(ids, rows, strict=True))
    ]


def question_id(mark: Mark, what: str) -> str:
    """Return the id of a row: 16 letters that only the mark can tell apart.

    >>> from timbermark.ownership import OwnerKey
    >>> mark = Mark.make(
    ...     OwnerKey.generate(), owner="Ann", model_digest="0" * 64, classes=[0, 1],
    ...     triggers=[[0.5]], alphabets=[[0, 1]], reference=[[0.9, 0.1]],
    ... )
    >>> len(question_id(mark, "leaves/0/0"))
    16
    """
    tag = _tag(mark, what)
    return "".join(_LETTERS[b >> 4] + _LETTERS[b & 15] for b in tag[:_ID_BYTES])


def _tag(mark: Mark, name: str) -> bytes:
    said = _ID_DOMAIN + mark.digest + name.encode()
    return hmac.new(mark.secret, said, hashlib.sha256).digest()


def whole_columns(mark: Mark) -> tuple[bool, ...]:
    """Return which columns of a mark hold whole numbers only, for servers that check types."""
    return tuple(_is_whole(column) for column in mark.columns)


def _is_whole(column: Column) -> bool:
    if isinstance(column, tuple):
        return False
    known = column[~np.isnan(column)]
    return bool(known.size and (known == np.floor(known)).all() and np.abs(known).max() < 2**53)


def wire_row(values: Sequence[Any], places: Sequence[int], whole: Sequence[bool]) -> list[Any]:
    """Return a row as JSON values, in the columns that a suspect takes.

    ``places`` are the features of the mark in the suspect's order. Numbers of columns that hold
    whole numbers only become whole numbers: servers that check types want them so.

    >>> wire_row([1.0, 0.5, None], [1, 0, 2], [True, False, False])
    [0.5, 1, None]
    """
    return [
        int(values[place]) if whole[place] and values[place] is not None else values[place]
        for place in places
    ]


def list_rows(columns: Sequence[Column]) -> list[list[Any]]:
    """Return columns as rows of Python values, None for a missing one.

    >>> list_rows([np.array([1.0, np.nan]), ("a", None)])
    [[1.0, 'a'], [None, None]]
    """
    plain = [
        list(column)
        if isinstance(column, tuple)
        else [None if x != x else x for x in column.tolist()]
        for column in columns
    ]
    return [list(row) for row in zip(*plain, strict=True)]


def _make_decoys(
    mark: Mark, seal: Seal, each: int, sources: list[_Source] | None
) -> list[list[list[list[Any]]]]:
    """Return the rows of each of ``each`` decoys for every trigger of a seal.

    All decoys are distinct, and none is a trigger; some are missing where there are too few rows.
    """
    triggers = list_rows(seal.columns)
    families: list[list[list[list[Any]]]] = [[] for _ in triggers]
    if not each:
        return families
    known = sources or [_Source(column, moves=True) for column in seal.columns]
    taken = {tuple(row) for row in triggers}
    share = min(1.0, max(_RENEWED, _FEWEST_RENEWED / len(known)))
    salt = seal.name.encode()
    gaps = _draw_gaps(mark, len(triggers), each)
    middles = [_renew(mark, salt + b"m", i, row, known, share) for i, row in enumerate(triggers)]
    for number in range(each * len(triggers)):
        trigger = number % len(triggers)
        for attempt in range(_TRIES):
            more = min(1.0, share * (1 + attempt))
            row = _renew(mark, salt + b"d%d" % attempt, number, middles[trigger], known, more)
            if tuple(row) not in taken:
                taken.add(tuple(row))
                families[trigger].append(_spread(seal, row, gaps[number]))
                break
    return families


def _draw_gaps(mark: Mark, n: int, each: int) -> list[int]:
    """Return whose gap each decoy of a trigger in splits has.

    Every gap is drawn equally often: one that occurs once would tell its trigger.
    """
    drawn: list[int] = []
    for time in range(each):
        drawn += sorted(range(n), key=lambda i: _tag(mark, f"gap/{time}/{i}"))
    return drawn


def _spread(seal: Seal, row: list[Any], gap: int) -> list[list[Any]]:
    """Return the rows of a decoy: itself, or three that differ in the column of some trigger."""
    if not isinstance(seal, SplitSeal):
        return [row]
    feature, values = int(seal.features[gap]), seal.values[gap].tolist()
    return [[*row[:feature], value, *row[feature + 1 :]] for value in values]


class _Source:
    """Where the values of one column come from."""

    def __init__(self, column: Column, moves: bool) -> None:
        self.values = [row[0] for row in list_rows([column])]
        self.grid: AnyArray | None = None
        if not moves or isinstance(column, tuple):
            return
        distinct = np.unique(column[np.isfinite(column)])
        # Few values are codes or grades, and nothing lies between two of them.
        if len(distinct) > max(_FEW_VALUES, len(column) // 4):
            self.grid, self.decimals = distinct, _decimals(distinct)
            self.single = bool((distinct.astype(np.float32) == distinct).all())

    def draw(self, number: int, share: float) -> Any:
        """Return a value that ``number`` selects; ``share`` of the way to the next one."""
        value = self.values[number % len(self.values)]
        if self.grid is None or value is None:
            return value
        at = int(np.searchsorted(self.grid, value))
        neighbour = self.grid[at + 1 if at + 1 < len(self.grid) else at - 1]
        moved = value + share * (float(neighbour) - value)
        if self.decimals is not None:
            return round(moved, self.decimals) + 0.0
        return float(np.float32(moved)) if self.single else float(moved)


def _renew(
    mark: Mark, kind: bytes, number: int, row: list[Any], sources: list[_Source], share: float
) -> list[Any]:
    """Return a row in which a share of the values is drawn anew."""
    start = _DECOY_DOMAIN + mark.secret + mark.digest + kind + number.to_bytes(8)
    draws = np.frombuffer(hashlib.shake_256(start).digest(24 * len(sources)), "<u8")
    return [
        source.draw(which, along / _WHOLE) if chance / _WHOLE < share else value
        for value, source, (chance, which, along) in zip(
            row, sources, draws.reshape(-1, 3).tolist(), strict=True
        )
    ]


def _decimals(values: AnyArray) -> int | None:
    for decimals in range(_MOST_DECIMALS + 1):
        if np.array_equal(np.round(values, decimals), values):
            return decimals
    return None


def sample_rows(table: Any, feature_names: Sequence[str] | None) -> Any:
    """Return some rows of a table in parts, float64 [m, d]; any other table as it is.

    ``feature_names``: the columns to take of files. Which rows they are does not depend on the
    parts. Raises InputError for a table that cannot be read.

    >>> sample_rows([[1.0, 2.0]], None)
    [[1.0, 2.0]]
    """
    if not _is_in_parts(table):
        return table
    from timbermark.partitions import open_parts, pick_rows

    return pick_rows(open_parts(table, None, feature_names, "rows for decoys"), _SAMPLED, seed=0)


def _is_in_parts(table: Any) -> bool:
    """Return whether rows are in files or of Dask, without importing Numba."""
    names = table if isinstance(table, list) else [table]
    if names and all(isinstance(name, str | os.PathLike) for name in names):
        return True
    dask = sys.modules.get("dask")
    return dask is not None and bool(dask.is_dask_collection(table))


def _read_table(mark: Mark, table: Any) -> list[Column]:
    names = getattr(table, "columns", None)
    if names is not None and mark.feature_names is not None:
        missing = [name for name in mark.feature_names if name not in set(names)]
        if missing:
            raise refusal("decoys-from.lacks", feature=missing[0])
        table = table[list(mark.feature_names)]
    table = sample_rows(table, mark.feature_names)
    cells = np.asarray(table) if hasattr(table, "__array__") else np.array(table, dtype=object)
    if cells.ndim != 2 or cells.shape[1] != mark.n_features or not len(cells):
        raise refusal("decoys-from.shape", shape=cells.shape, features=mark.n_features)
    # The model ignores columns that the mark has no value of: decoys have none, either.
    return [
        own if _is_missing(own) else _read_column(cells[:, j], isinstance(own, tuple))
        for j, own in enumerate(mark.columns)
    ]


def _is_missing(column: Column) -> bool:
    return all(value is None or value != value for value in column)


def _read_column(cells: AnyArray, texts: bool) -> Column:
    if texts:
        return tuple(None if x is None or x != x else str(x) for x in cells.tolist())
    try:
        column = cells.astype(np.float64)
    except (TypeError, ValueError):
        raise refusal("decoys-from.texts") from None
    column[~np.isfinite(column)] = np.nan
    return np.asarray(column)
