"""Tables that are passed over rather than held: how their blocks become rows, and a few of these.

The few rows that marking holds in memory are those with the lowest hashes. The lowest of each part
merge into the lowest of all, so that it does not matter what the parts are. Up to `LARGE` rows the
hash is of the row itself, and marking is what it is with all rows in memory; beyond, it is of the
row's number, because many equal rows would otherwise be taken or left together.

`take_input_tables` does this for all tables that a user gives along with a model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from timbermark.errors import InputError
from timbermark.files.tables import read_labels
from timbermark.libraries.contract import ForeignModel
from timbermark.marking.inputs import as_frame, take_parts, take_rows
from timbermark.marking.mixing import row_keys
from timbermark.marking.tasks import Task
from timbermark.marking.text_codes import Schema, take_tables
from timbermark.partitions import (
    Block,
    Parts,
    hash_limit,
    is_in_parts,
    memory_parts,
    open_parts,
    place_keys,
    run_pass,
)

LARGE = 200_000
"""The number of rows above which the edit uses a weighted sample and a pass measures the cost."""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, eq=False)
class LargeTable:
    """A table in parts, and what turns its blocks into rows of numbers and targets.

    ``what``: what its rows are called in messages; ``encoded``: blocks are rows and targets
    already; ``from_files``: labels are cells of a file.
    """

    parts: Parts
    task: Task
    schema: Schema
    what: str
    encoded: bool = False
    from_files: bool = False

    @property
    def n_rows(self) -> int:
        """Return the number of rows."""
        return self.parts.n_rows

    @property
    def is_large(self) -> bool:
        """Return whether the table is so large that it is sampled and measured in passes."""
        return self.n_rows > LARGE

    def bare(self) -> LargeTable:
        """Return the table without its parts, which is all that a pass needs."""
        return replace(self, parts=Parts((), True, self.parts.labelled))

    def rows(self, block: Block) -> np.ndarray:
        """Return a block's rows, float64 [n, d]. Raises InputError for rows that cannot be used."""
        if self.encoded:
            return np.asarray(block.rows)
        return take_rows(self.schema.foreign, block.rows, self.what)

    def targets(self, block: Block) -> np.ndarray | None:
        """Return a block's true answers as the task takes them, None if there are none."""
        if block.labels is None or self.encoded:
            return None if block.labels is None else np.asarray(block.labels)
        what = self.what.removesuffix(" rows").replace("candidates", "candidates'")
        cells = np.asarray(block.labels)
        if self.schema.foreign.task != "classification":
            return self.task.take_targets(cells, len(cells), what)
        names, place = _distinct(cells)
        if self.from_files:
            names = read_labels(names.tolist(), self.schema.foreign.classes)
        return np.asarray(self.task.take_targets(names, len(names), what)[place])


class Thinned(NamedTuple):
    """Some rows of a table in the order of their hashes: rows, true answers, numbers of rows."""

    rows: np.ndarray
    target: np.ndarray | None
    place: np.ndarray
    key: np.ndarray

    @classmethod
    def lowest(cls, found: Sequence[Thinned], k: int) -> Thinned:
        """Return the ``k`` rows with the lowest hashes; of equal hashes, the first rows."""
        known = [part.target for part in found if part.target is not None]
        key, place = (np.concatenate([getattr(p, n) for p in found]) for n in ("key", "place"))
        order = np.lexsort((place, key))[:k]
        rows = np.concatenate([part.rows for part in found])[order]
        target = np.concatenate(known)[order] if known else None
        return cls(rows, target, place[order], key[order])


def open_large(
    foreign: ForeignModel, task: Task, X: Any, y: Any, what: str, groups: Any = None
) -> LargeTable:
    """Return a table of Dask or in Parquet files. Raises InputError for groups or texts.

    ``y``: its labels, or the name of the label column in files.
    """
    if groups is not None:
        raise InputError(
            "Groups of rows are not taken with tables in parts.",
            hint="give rankers rows that fit in memory, or leave the groups out.",
        )
    if foreign.inside or foreign.takes_frames or foreign.text_columns != frozenset():
        raise InputError(
            f"The {foreign.kind} takes texts or has transformers, and tables in parts hold the "
            "numbers that trees see.",
            hint="give rows that fit in memory, or the boosted model inside with its own rows.",
        )
    parts = open_parts(X, y, foreign.feature_names, what)
    if parts.n_rows == 0:
        raise InputError(f"There are no {what}.", hint="give some, or leave them out altogether.")
    from_files = isinstance(y, str)
    schema = Schema(foreign, (None,) * foreign.ensemble.n_features)
    return LargeTable(parts, task, schema, what, from_files=from_files)


def hold_large(
    schema: Schema, task: Task, rows: np.ndarray, target: np.ndarray | None, what: str
) -> LargeTable | None:
    """Return rows in memory as a large table, None if they are few or have groups."""
    if len(rows) <= LARGE or (target is not None and target.ndim > 1):
        return None
    return LargeTable(memory_parts(rows, target), task, schema, what, encoded=True)


def thin(table: LargeTable, k: int, seed: int, by_place: bool, say: Say) -> Thinned:
    """Return the ``k`` rows with the lowest hashes, of rows or, ``by_place``, of their numbers.

    Every row is looked at, so that whatever cannot be used is refused now.
    """
    limit = hash_limit(k, table.n_rows) if by_place else None
    found = run_pass(table.parts, _Thinning(table.bare(), k, seed, by_place, limit), say)
    assert len(found.key) >= min(k, table.n_rows)
    return found


def take_some(
    foreign: ForeignModel, task: Task, X: Any, y: Any, what: str, k: int, seed: int, say: Say
) -> tuple[np.ndarray, np.ndarray | None, int]:
    """Return at most ``k`` rows of a table in parts, their true answers, and how many rows it has.

    Raises InputError for a table that cannot be used.
    """
    table = open_large(foreign, task, X, y, what)
    found = thin(table, k, seed, True, say)
    return found.rows, found.target, table.n_rows


@dataclass(frozen=True, slots=True, eq=False)
class _Thinning:
    """The pass that keeps the rows with the lowest hashes."""

    table: LargeTable
    k: int
    seed: int
    by_place: bool
    limit: int | None
    title = "pass 1: reading the rows"

    def look(self, block: Block) -> Thinned:
        rows, target = self.table.rows(block), self.table.targets(block)
        if self.by_place:
            keys = place_keys(block.start, len(rows), self.seed)
        else:
            keys = row_keys(rows, self.seed)
        kept = np.arange(len(rows))
        if self.limit is not None:
            kept = np.flatnonzero(keys <= np.uint64(self.limit))
        own = None if target is None else target[kept]
        return self.merge([Thinned(rows[kept], own, block.start + kept, keys[kept])])

    def merge(self, results: Sequence[Thinned]) -> Thinned:
        return Thinned.lowest(results, self.k)


def _distinct(cells: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct labels and the number of each cell's label. Raises InputError for NaN."""
    if cells.dtype == object:
        names = list(dict.fromkeys(cells.tolist()))
        number = {name: i for i, name in enumerate(names)}
        empty = any(name is None or name != name for name in names)
        place = np.array([number[cell] for cell in cells.tolist()], np.int64)
        found = np.array(names) if not empty else np.empty(0)
    else:
        found, place = np.unique(cells, return_inverse=True)
        empty = found.dtype.kind == "f" and bool(np.isnan(found).any())
    if empty:
        raise InputError("There are rows without a label.", hint="label them, or leave them out.")
    return found, place


TRAINING, CANDIDATES, VALIDATION = "training rows", "candidates", "validation rows"
LEAST_HELD = 40
"""The fewest rows that judge and report."""


@dataclass(frozen=True, slots=True, eq=False)
class InputTable:
    """A table, or the rows of it that are in memory.

    ``place``: their numbers, where they are not all; ``passed``: the whole table where it has so
    many rows that it is sampled and measured in passes.
    """

    rows: np.ndarray
    target: np.ndarray | None
    n_rows: int
    place: np.ndarray | None = None
    passed: LargeTable | None = None


@dataclass(frozen=True, slots=True, eq=False)
class InputTables:
    """``holding``: rows that hold the model; ``source``: other candidates; ``validation``."""

    schema: Schema
    holding: InputTable
    source: InputTable | None
    validation: InputTable | None
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Limits:
    """How many rows are held in memory of tables that are read in passes."""

    holding: int
    source: int
    validation: int
    seed: int


def take_input_tables(
    foreign: ForeignModel,
    task: Task,
    X: Any,
    y: Any,
    candidates: Any,
    validation: Any,
    groups: Any,
    most: tuple[int, int, int],
    seed: int,
    say: Say,
) -> InputTables:
    """Return the tables as rows of numbers; of tables read in passes, a sample of rows.

    ``most``: rows of such tables that hold the model, make candidates, and measure. Raises
    InputError for tables, labels and groups that do not fit the model or each other.
    """
    if X is None and y is not None:
        raise InputError("There are labels y but no rows X.", hint="give both, or neither.")
    if y is None and groups is not None:
        raise InputError("There are groups but no y.", hint="give both, or neither.")
    if X is None and candidates is None:
        raise InputError(
            "There is nothing to choose triggers from.",
            hint="pass the training rows X, or rows of their kind as candidates.",
            code="rows.none",
            parameter="X",
        )
    tables: dict[str, Any] = {}
    targets: dict[str, tuple[Any, Any]] = {}
    if X is not None:
        tables[TRAINING], targets[TRAINING] = as_frame(X), (y, groups)
    for what, given in ((CANDIDATES, candidates), (VALIDATION, validation)):
        if given is not None:
            table, *own = take_parts(given, what.partition(" ")[0])
            tables[what] = as_frame(table)
            targets[what] = (own[0], own[1])
    limits = _Limits(*most, seed)
    taken: dict[str, InputTable] = {}
    opened = {
        what: open_large(foreign, task, table, targets[what][0], what, targets[what][1])
        for what, table in tables.items()
        if is_in_parts(table)
    }
    here = {what: table for what, table in tables.items() if what not in opened}
    schema, rows = _take_here(foreign, here, opened)
    for what, X_here in rows.items():
        taken[what] = _hold(schema, task, X_here, *targets[what], what, X is None, limits, say)
    for what, table in opened.items():
        taken[what] = _thin(table, what, X is None, limits, say)
    held = taken.get(VALIDATION)
    if held is not None and held.n_rows < LEAST_HELD:
        raise InputError(
            f"{held.n_rows} validation rows are too few to judge and report by.",
            hint=f"give {LEAST_HELD} at least, or leave them out.",
        )
    width = next(iter(taken.values())).rows.shape[1]
    if opened:
        schema = Schema(foreign, (None,) * width)
    holding = taken[CANDIDATES if X is None else TRAINING]
    source = None if X is None else taken.get(CANDIDATES)
    return InputTables(schema, holding, source, held, tuple(_notes(opened.values())))


def _take_here(
    foreign: ForeignModel, here: dict[str, Any], opened: dict[str, LargeTable]
) -> tuple[Schema, dict[str, np.ndarray]]:
    """Return the encoding of rows in memory, and the encoded rows."""
    if not opened:
        return take_tables(foreign, here)
    schema = next(iter(opened.values())).schema
    return schema, {what: take_rows(foreign, table, what) for what, table in here.items()}


def _hold(
    schema: Schema,
    task: Task,
    rows: np.ndarray,
    labels: Any,
    groups: Any,
    what: str,
    alone: bool,
    limits: _Limits,
    say: Say,
) -> InputTable:
    """Return a table that is in memory; of a large one only some rows take part."""
    if rows.size and np.isnan(rows).all():
        raise InputError(
            f"All values of the {what} are missing.",
            hint="check the names of the columns and how missing values are written.",
            code="rows.missing",
        )
    target = None
    if labels is not None:
        said = {TRAINING: "training", CANDIDATES: "candidates'", VALIDATION: "validation"}[what]
        target = task.take_targets(labels, len(rows), said, groups)
    passed = hold_large(schema, task, rows, target, what)
    if passed is None:
        return InputTable(rows, target, len(rows))
    if what == VALIDATION:
        return InputTable(rows, target, len(rows), passed=passed)
    return _thin(passed, what, alone, limits, say)


def _thin(table: LargeTable, what: str, alone: bool, limits: _Limits, say: Say) -> InputTable:
    """Return the sample of rows that is held in memory of a table read in passes."""
    seed, by_place = limits.seed, table.is_large
    k = limits.holding
    if what == VALIDATION:
        # The rows must be those that would be chosen if the whole table were in memory.
        k, seed, by_place = limits.validation, limits.seed + 1, False
    elif what == CANDIDATES and not alone:
        k = limits.source if table.is_large else LARGE
    found = thin(table, k, seed, by_place, say)
    rows, target, place = found.rows, found.target, found.place
    if what == CANDIDATES and not alone and not table.is_large:
        order = np.argsort(place)
        rows, target, place = rows[order], None, place[order]
    return InputTable(rows, target, table.n_rows, place, table if table.is_large else None)


def _notes(opened: Sequence[LargeTable] | Any) -> list[str]:
    return [
        f"{table.parts.n_empty} of {len(table.parts.parts)} parts of the {table.what} are empty."
        for table in opened
        if table.parts.n_empty
    ]
