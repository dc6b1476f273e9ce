"""The best candidates of a table that is read in passes: every row, or a mixture of it, is tried.

Each row makes one mixture, with a second row and a choice of values that follow from its number.
The cheapest of each part merge into the cheapest of all, whatever the parts are. A mark of a large
model can only afford short leads, so that candidates are compared at a short one: it is then
decisive how undecided the model is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from timbermark.editing.routing import Router
from timbermark.kernels.hashing import mix_cells
from timbermark.kernels.workers import Workers
from timbermark.marking.classification import Classification
from timbermark.marking.defaults import SHORT_LEAD
from timbermark.marking.large_tables import LargeTable, Say
from timbermark.marking.mixing import SHARES
from timbermark.marking.preparing import Prepared
from timbermark.marking.prices import find_room, mean_effort
from timbermark.partitions import Block, place_keys, run_pass

_KEPT = 8_000
_SECONDS = 4_096
"""The number of rows from which the second row of every mixture is taken."""
_MOST_ROOM = 0.999
"""The quantile of rows at which room is capped, so that outliers are not preferred as triggers."""
_ENOUGH = 50
"""The fewest rows in memory that must be below the limit on prices, by which most rows are dropped
where they are read."""


class Best(NamedTuple):
    """The cheapest candidates: rows, the number of the row that each is made of, and its price."""

    rows: np.ndarray
    place: np.ndarray
    price: np.ndarray


def find_best(prepared: Prepared, kind: str, q: int, workers: Workers, say: Say) -> Best:
    """Return the cheapest candidates among all rows, or among the mixtures of all rows."""
    assert prepared.large is not None
    assert prepared.large.candidates is not None
    table = prepared.large.candidates
    some = prepared.source
    taken = prepared.schema.try_columns(some)[0]
    room = find_room(prepared.router, prepared.mass, prepared.router.route(taken, workers), workers)
    asking = _Asking(
        table.bare(), prepared.router, prepared.labels, prepared.mass,
        np.quantile(room, _MOST_ROOM, axis=0), some[:_SECONDS] if kind == "mixed" else None,
        q, prepared.seed + 2, _KEPT, np.inf,
    )  # fmt: skip
    price = np.sort(asking.look(Block(some, None, 0), encoded=True).price)
    expected = int(np.ceil(4.0 * _KEPT / table.n_rows * len(some)))
    place = max(expected, _ENOUGH)
    if place < len(price):
        limited = asking.limited(float(price[place]))
        found = run_pass(table.parts, limited, say)
        if len(found.price) >= _KEPT:
            return found
    return run_pass(table.parts, asking, say)


@dataclass(frozen=True, slots=True, eq=False)
class _Asking:
    """The pass that asks the model about every row, or a mixture of it."""

    table: LargeTable
    router: Router
    task: Classification
    mass: tuple[np.ndarray, ...]
    most_room: np.ndarray
    seconds: np.ndarray | None
    q: int
    seed: int
    k: int
    limit: float
    title = "pass 2: asking for candidates"

    def limited(self, limit: float) -> _Asking:
        """Return the same pass without candidates that cost more than a limit."""
        return _Asking(
            self.table, self.router, self.task, self.mass, self.most_room, self.seconds, self.q,
            self.seed, self.k, limit,
        )  # fmt: skip

    def look(self, block: Block, encoded: bool = False) -> Best:
        rows = np.asarray(block.rows) if encoded else self.table.rows(block)
        usable = np.ones(len(rows), np.bool_)
        if self.seconds is not None:
            keys = place_keys(block.start, len(rows), self.seed)
            shares = (np.asarray(SHARES) * 2.0**64).astype(np.uint64)
            mixed = np.empty(rows.shape)
            mix_cells(np.ascontiguousarray(rows), keys, self.seconds, shares, mixed, usable)
            rows = mixed
        seen, takes = self.table.schema.try_columns(rows)
        with Workers(1) as workers:
            routes = self.router.route(seen, workers)
            margins = self.router.margins(routes, workers)
            room = find_room(self.router, self.mass, routes, workers)
        alphabets = self.task.find_alphabets(margins, self.q)
        room = np.minimum(room, self.most_room)
        price = mean_effort(self.task, margins, alphabets, room, SHORT_LEAD)
        usable &= takes & np.isfinite(price) & (price <= self.limit)
        kept = np.flatnonzero(usable)
        return self.merge([Best(rows[kept], block.start + kept, price[kept])])

    def merge(self, results: Sequence[Best]) -> Best:
        rows, place, price = (np.concatenate(part) for part in zip(*results, strict=True))
        order = np.lexsort((place, price))[: self.k]
        return Best(rows[order], place[order], price[order])
