"""The tables that a user gives along with a model, and which of their rows are held in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from timbermark.errors import InputError
from timbermark.libraries.contract import ForeignModel
from timbermark.marking.inputs import as_frame, take_parts, take_rows
from timbermark.marking.large_tables import LARGE, LargeTable, Say, hold_large, open_large, thin
from timbermark.marking.tasks import Task
from timbermark.marking.text_codes import Schema, take_tables
from timbermark.partitions import is_in_parts

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
