"""A weighted sample of a large table that holds the model in an edit.

Rows in the leaves that triggers move are kept more densely, the rest is thinned, and each row that
is kept weighs as many as it stands for. This is priority sampling: the rows with the lowest u / s
are kept, where u follows from the row's number and s says how densely such rows are wanted. The
lowest of each part merge into the lowest of all, so that the sample does not depend on the parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from timbermark.editing.leaves import RIDGE
from timbermark.editing.routing import Router
from timbermark.kernels.workers import Workers
from timbermark.marking.choosing import Candidates, add_leaves, find_room
from timbermark.marking.large_tables import LARGE, LargeTable, Say
from timbermark.marking.preparing import Prepared, weigh
from timbermark.partitions import Block, place_keys, run_pass

FIRST_SIZE, _LARGEST_SIZE, _MOST_CELLS = LARGE, 8 * LARGE, 1_000_000_000
"""The first and the largest size of a sample, in rows; the size is also limited by how many leaf
numbers (rows times trees) the edit may hold in memory."""
_DENSEST = 20.0
"""The effect of triggers on a row counts up to this multiple of the average. A row without any
effect has the density 0.5, the average row 1, and no row more than 10.5."""
_LIMIT_FACTOR = 1.1
"""By which the estimated limit on u / s is raised, so that one pass mostly finds enough rows."""


class Sample(NamedTuple):
    """Rows of a sample: rows, their numbers, u / s, and s."""

    rows: np.ndarray
    place: np.ndarray
    score: np.ndarray
    density: np.ndarray


@dataclass(frozen=True, slots=True, eq=False)
class Hold:
    """What holds the model in the edits of ``triggers``: all rows in memory, or a sample.

    ``first``: as it was prepared, before any sample was taken; ``size``: of the sample.
    """

    prepared: Prepared
    first: Prepared
    triggers: Candidates
    size: int

    @classmethod
    def begin(cls, prepared: Prepared, triggers: Candidates, workers: Workers, say: Say) -> Hold:
        """Take the first sample if the table is large."""
        if prepared.large is None or prepared.large.holding is None:
            return cls(prepared, prepared, triggers, prepared.holding.n_rows)
        held = hold_by_sample(prepared, triggers, FIRST_SIZE, workers, say)
        return cls(held, prepared, triggers, FIRST_SIZE)

    def doubled(self, workers: Workers, say: Say) -> Hold | None:
        """Return a hold with twice as many rows, None where there are no more to take."""
        large = self.first.large
        n_trees = sum(len(trees) for trees in self.first.router.trees)
        most = min(_LARGEST_SIZE, max(FIRST_SIZE, _MOST_CELLS // max(n_trees, 1)))
        if large is None or large.holding is None:
            return None
        size = min(2 * self.size, most)
        if size <= self.size or self.size >= large.holding.n_rows:
            return None
        held = hold_by_sample(self.first, self.triggers, size, workers, say)
        return Hold(held, self.first, self.triggers, size)


def hold_by_sample(
    prepared: Prepared, triggers: Candidates, size: int, workers: Workers, say: Say
) -> Prepared:
    """Return the prepared model with ``size`` weighted rows of the whole table as holding rows.

    Their weights sum up to as much as those of the rows before: what holds leaves at their values
    is measured in these.
    """
    assert prepared.large is not None
    assert prepared.large.holding is not None
    table = prepared.large.holding
    router, task = prepared.router, prepared.labels
    pressure = _pressures(prepared, triggers, workers)
    pressed = add_leaves(router, pressure, prepared.holding, workers)
    usual = float(pressed.sum(axis=1).mean())
    bare = _Sampling(
        table.bare(), router, pressure, max(usual, 1e-300), prepared.large.held,
        prepared.seed + 7, size + 1, np.inf,
    )  # fmt: skip
    density = bare.densities(pressed)
    limit = _LIMIT_FACTOR * (size + 1) / (table.n_rows * float(density.mean()))
    found = run_pass(table.parts, replace(bare, limit=limit), say)
    if len(found.score) < min(size + 1, table.n_rows - len(prepared.large.held)):
        found = run_pass(table.parts, bare, say)
    last = found.score[size] if len(found.score) > size else np.inf
    rows, density = found.rows[:size], found.density[:size]
    stands_for = 1.0 / np.minimum(1.0, density * last)
    seen, takes = prepared.schema.try_columns(rows)
    columns = seen[takes]
    routes = router.route(columns, workers)
    margins = router.margins(routes, workers)
    stands_for = stands_for[takes] * (prepared.holding.n_rows / stands_for[takes].sum())
    weight = task.weigh_rows(margins) * stands_for[:, None]
    return replace(
        prepared, holding=routes, columns=columns, margins=margins, weight=weight,
        mass=weigh(router, routes, weight, workers),
    )  # fmt: skip


def _pressures(
    prepared: Prepared, triggers: Candidates, workers: Workers
) -> tuple[np.ndarray, ...]:
    """Return for each output how much its leaves move for the triggers: their shares of the way."""
    router, routes = prepared.router, triggers.routes
    room = find_room(router, prepared.mass, routes, workers)
    found = []
    for c, first in enumerate(router.first):
        ease = 1.0 / (prepared.mass[c] + RIDGE)
        pull = np.zeros(len(ease))
        for t, leaf in enumerate(routes.leaf[c]):
            np.add.at(pull, first[t] + leaf.astype(np.int64), 1.0 / room[:, c])
        found.append(pull * ease)
    return tuple(found)


@dataclass(frozen=True, slots=True, eq=False)
class _Sampling:
    """The pass that keeps the rows with the lowest u / s."""

    table: LargeTable
    router: Router
    pressure: tuple[np.ndarray, ...]
    usual: float
    left_out: np.ndarray  # numbers of rows that judge and report, rising
    seed: int
    k: int
    limit: float
    title = "pass 3: sampling rows"

    def densities(self, pressed: np.ndarray) -> np.ndarray:
        """Return s [n], 1 for the average row, given how triggers move rows, [n, K]."""
        return np.asarray(0.5 + 0.5 * np.minimum(pressed.sum(axis=1) / self.usual, _DENSEST))

    def look(self, block: Block) -> Sample:
        rows = self.table.rows(block)
        seen, takes = self.table.schema.try_columns(rows)
        with Workers(1) as workers:
            routes = self.router.route(seen, workers)
            density = self.densities(add_leaves(self.router, self.pressure, routes, workers))
        keys = place_keys(block.start, len(rows), self.seed)
        score = (keys >> np.uint64(11)).astype(np.float64) * 2.0**-53 / density
        kept = takes & (score <= self.limit)
        places = block.start + np.flatnonzero(kept)
        kept = (places - block.start)[~np.isin(places, self.left_out)]
        return self.merge([Sample(rows[kept], block.start + kept, score[kept], density[kept])])

    def merge(self, results: Sequence[Sample]) -> Sample:
        rows, place, score, density = (np.concatenate(part) for part in zip(*results, strict=True))
        order = np.lexsort((place, score))[: self.k]
        return Sample(rows[order], place[order], score[order], density[order])
