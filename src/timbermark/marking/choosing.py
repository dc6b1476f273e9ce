"""Choose triggers of the leaf seal: candidates that carry a symbol at the least cost.

Triggers of the split seal are chosen in `timbermark.marking.splits`.

A candidate is cheap where little has to change (its best labels are close) and where that disturbs
few (it ends in leaves with little weight of other rows). Both are known before any symbol is.

Of a table that is read in passes, every row, or a mixture of it, is tried. Each row makes one
mixture, with a second row and a choice of values that follow from its number. The cheapest of each
part merge into the cheapest of all, whatever the parts are. A mark of a large model can only afford
short leads, so that candidates are compared at a short one: it is then decisive how undecided the
model is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from timbermark.editing.leaves import RIDGE
from timbermark.editing.routing import Router, Routes
from timbermark.errors import InputError
from timbermark.kernels.hashing import mix_cells
from timbermark.kernels.routing import add_leaf_values
from timbermark.kernels.workers import Workers
from timbermark.marking.boundaries import are_inside
from timbermark.marking.defaults import EXPECTED_LEAD, LONGEST_SHORT_LEAD, SHORT_LEAD
from timbermark.marking.large_tables import LargeTable, Say
from timbermark.marking.mixing import mix_rows, row_keys, share_parts
from timbermark.marking.preparing import Prepared
from timbermark.marking.strategies import SOURCES, Pool, propose_rows
from timbermark.marking.tasks import Classification
from timbermark.partitions import Block, place_keys, run_pass

_POOL_CELLS = 30_000_000
_SMALLEST_POOL, _LARGEST_POOL = 4_000, 100_000
"""The size of the pool of candidates: rows times trees, and rows times columns, stay below the
first number, within these limits on rows. (`./dev bench attacks`, census, LightGBM, 200 triggers
with a lead of 0.6: 0.59 % of labels changed with 12,000 candidates, 0.31 % with 60,000.)"""
_LARGEST_TRANSFORMED = 20_000
"""The most rows in the pool of a model that transforms texts or tables first, which takes long.
(`./dev bench bank`, churn, LightGBM: 5.9 s with 100,000.)"""
_SPARE = 2
"""Candidates per trigger that must be outside all boundaries of the split seal; where there are
fewer, those inside may be triggers as well. Strategies of the paper propose as many."""
_LOOKED_AT = 8
"""Candidates per trigger that are examined closely: those that are closest to another answer."""


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """Rows that could carry a symbol, cheapest first.

    ``X`` float64 [m, d] as the model takes them; ``routes`` and ``margins`` [m, K] under the
    unmarked model; ``alphabets`` [m, q]: class numbers, the model's own answer first; ``usable``:
    how many of the pool were.
    """

    X: np.ndarray
    routes: Routes
    margins: np.ndarray
    alphabets: np.ndarray
    usable: int

    def __len__(self) -> int:
        return len(self.alphabets)

    def __repr__(self) -> str:
        return f"Candidates({len(self)} of {self.usable} usable, q={self.alphabets.shape[1]})"

    def take(self, places: np.ndarray) -> Candidates:
        """Return some of the candidates, in the given order."""
        return Candidates(
            self.X[places],
            self.routes.take(places),
            self.margins[places],
            self.alphabets[places],
            self.usable,
        )


class Asked(NamedTuple):
    """Rows to choose from, as the model takes and answers them.

    ``base`` int64 [n]: the given row that most of each comes from; ``free`` bool [n]: whether an
    edit would change no other row with it; ``routes`` and ``margins``: under the unmarked model.
    """

    X: np.ndarray
    base: np.ndarray
    free: np.ndarray
    routes: Routes
    margins: np.ndarray


def ask_pool(
    prepared: Prepared, kind: str, k: int, least: int, q: int, workers: Workers, say: Say
) -> Asked:
    """Return the rows to choose ``k`` candidates from, which do not depend on any lead.

    Raises InputError if there are none.
    """
    router = prepared.router
    if kind in SOURCES:
        pool, base = _propose(prepared, kind, _SPARE * k, least, workers)
    elif is_passed(prepared):
        pool, base, _ = find_best(prepared, kind, q, workers, say)
    else:
        pool, base = make_pool(prepared, kind, pool_size(prepared))
    if len(pool) == 0:
        raise too_few(0, least, kind)
    seen, takes = prepared.schema.try_columns(pool)
    routes = router.route(seen, workers)
    margins = router.margins(routes, workers)
    free = first_of_equals(margins) & takes
    if kind == "mixed":
        # If no tree separates a mixture from a row, the edit would change that row as well.
        free &= ~np.isin(_fingerprints(margins), _fingerprints(prepared.margins))
    if prepared.boundaries is not None:
        # Moved thresholds would send these elsewhere, where nobody asked what a symbol costs.
        single = router.ensemble.input_dtype == "f4"
        apart = free & ~are_inside(seen, prepared.boundaries, single)
        free = apart if np.count_nonzero(apart) >= _SPARE * k else free
    return Asked(pool, base, free, routes, margins)


def is_passed(prepared: Prepared) -> bool:
    """Return whether candidates come from a table that is read in passes."""
    return prepared.large is not None and prepared.large.candidates is not None


def find_candidates(
    prepared: Prepared,
    kind: str,
    k: int,
    least: int,
    q: int,
    workers: Workers,
    say: Say = lambda said: None,
    lead: float = EXPECTED_LEAD,
    asked: Asked | None = None,
) -> Candidates:
    """Return up to ``k`` candidates with alphabets of ``q`` answers, cheapest first.

    ``kind``: "mixed" makes new rows out of the given ones, "rows" takes the given ones themselves;
    a strategy of the paper takes those given ones that it prefers; ``lead``: what they are compared
    at; ``asked``: what `ask_pool` said of them before. Two candidates never share most of their
    values.

    Raises InputError if there are fewer than ``least``.
    """
    task = prepared.labels
    if asked is None:
        asked = ask_pool(prepared, kind, k, least, q, workers, say)
    pool, base, free, routes, margins = asked
    lead = SHORT_LEAD if is_passed(prepared) and kind not in SOURCES else lead
    alphabets = task.find_alphabets(margins, q)
    effort = np.where(free, mean_effort(task, margins, alphabets, None, lead), np.inf)
    near = np.argsort(effort, kind="stable")[: max(_LOOKED_AT * k, 500)]
    near = near[np.isfinite(effort[near])]
    room = find_room(prepared.router, prepared.mass, routes.take(near), workers)
    price = mean_effort(task, margins[near], alphabets[near], room, lead)
    order = near[np.argsort(price, kind="stable")]
    _, first = np.unique(base[order], return_index=True)
    order, usable = order[np.sort(first)], len(first)
    chosen = order[:0]
    while len(chosen) < k and len(order):
        # Most candidates survive rounding, so that few have to be checked.
        some, order = order[:k], order[k:]
        survive = survive_rounding(prepared, pool[some], routes.take(some), workers)
        usable -= int((~survive).sum())
        chosen = np.append(chosen, some[survive])[:k]
    if len(chosen) < least:
        raise too_few(len(chosen), least, kind)
    return Candidates(pool[chosen], routes.take(chosen), margins[chosen], alphabets[chosen], usable)


def _propose(
    prepared: Prepared, kind: str, n: int, least: int, workers: Workers
) -> tuple[np.ndarray, np.ndarray]:
    """Return up to ``n`` given rows that a strategy of the paper prefers, and their numbers.

    They are at most half of all rows where ``least`` are enough, or it would have no choice. Rows
    without labels count as predicted rightly. Raises InputError where a strategy needs them.
    """
    strategy = next(name for name in SOURCES if name == kind)
    seen, takes = prepared.schema.try_columns(prepared.source)
    margins = prepared.router.margins(prepared.router.route(seen, workers), workers)
    confidence, label = prepared.foreign.answers(margins), prepared.source_target
    if label is None:
        if kind == "wrong":
            raise InputError(
                "triggers='wrong' needs the labels of rows to know which are predicted wrongly.",
                hint="give labels with the rows, or use triggers='confidence'.",
                code="triggers.labels",
                parameter="triggers",
            )
        label = confidence.argmax(axis=1)
    pool = Pool(prepared.source, label, confidence, takes & first_of_equals(margins))
    n = min(n, max(len(label) // 2, _SPARE * least))
    found = propose_rows(strategy, pool, n, prepared.seed, least=0).order
    return prepared.source[found], found


def comparison_lead(lead: float) -> float:
    """Return the lead at which candidates for a mark with this one are compared.

    >>> comparison_lead(2.0), comparison_lead(0.1)
    (1.0, 0.2)
    """
    return SHORT_LEAD if lead <= LONGEST_SHORT_LEAD else EXPECTED_LEAD


def pool_size(prepared: Prepared) -> int:
    """Return the number of rows to choose from: more for fewer trees and narrower rows."""
    n_trees = sum(len(trees) for trees in prepared.router.trees)
    width = max(n_trees, prepared.source.shape[1], prepared.foreign.ensemble.n_features, 1)
    largest = _LARGEST_POOL if prepared.schema.is_plain else _LARGEST_TRANSFORMED
    return int(np.clip(_POOL_CELLS // width, _SMALLEST_POOL, largest))


def make_pool(prepared: Prepared, kind: str, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows to choose from, and the given row that most of each one comes from."""
    if kind == "mixed":
        mixed = mix_rows(prepared.source, size, np.random.default_rng(prepared.seed + 2))
        return mixed.X, mixed.base
    order = np.argsort(row_keys(prepared.source, prepared.seed + 2), kind="stable")[:size]
    return prepared.source[order], order


def survive_rounding(
    prepared: Prepared, X: np.ndarray, routes: Routes, workers: Workers
) -> np.ndarray:
    """Return bool [n]: rows whose leaves stay the same under rounding to float32 and printing."""
    same = np.ones(len(X), np.bool_)
    with np.errstate(over="ignore"):
        single = X.astype(np.float32).astype(np.float64)
    for moved in (single, *roundings(X)):
        taken, takes = prepared.schema.try_columns(moved)
        same &= takes & prepared.router.route(taken, workers).same(routes)
    return same


def _fingerprints(margins: np.ndarray) -> np.ndarray:
    return row_keys(margins, 0)


def first_of_equals(margins: np.ndarray) -> np.ndarray:
    """Return bool [n]: which rows are the first with their margins."""
    _, first = np.unique(_fingerprints(margins), return_index=True)
    chosen = np.zeros(len(margins), np.bool_)
    chosen[first] = True
    return chosen


def too_few(found: int, k: int, kind: str) -> InputError:
    """Return the error for rows from which too few candidates can be made."""
    found_by = {"mixed": "mixtures of the rows", "rows": "rows"}
    what = found_by.get(kind, f"rows of the {kind} strategy")
    return InputError(
        f"{k} triggers are wanted, but only {found} {what} can carry a symbol.",
        hint=f"ask for at most {found}, or give more rows that differ from each other."
        if found
        else "give more rows that differ from each other"
        + ("." if kind == "mixed" else ", or leave triggers at its default, 'mixed'."),
        code="triggers.too-few",
        parameter="triggers",
    )


def mean_effort(
    task: Classification,
    margins: np.ndarray,
    alphabets: np.ndarray,
    room: np.ndarray | None,
    lead: float = EXPECTED_LEAD,
) -> np.ndarray:
    """Return float64 [n]: Σ shift² / room over outputs, on average over a candidate's answers."""
    total = np.zeros(len(margins))
    for a in range(alphabets.shape[1]):
        shift = task.wanted_margins(margins, alphabets[:, a], lead) - margins
        total += (shift**2 / (1.0 if room is None else np.maximum(room, 1e-12))).sum(axis=1)
    return np.asarray(total / alphabets.shape[1])


def find_room(
    router: Router, mass: Sequence[np.ndarray], routes: Routes, workers: Workers
) -> np.ndarray:
    """Return float64 [n, K]: how easily the margins of routed rows move.

    ``mass`` [K] of float64 [leaves]: how much weight of other rows is in each leaf.
    """
    return add_leaves(router, [1.0 / (own + RIDGE) for own in mass], routes, workers)


def add_leaves(
    router: Router, values: Sequence[np.ndarray], routes: Routes, workers: Workers
) -> np.ndarray:
    """Return float64 [n, K]: the sums of ``values`` [K] over the leaves that rows end in."""
    out = np.zeros((len(routes.leaf), routes.n_rows))

    def add(thread: int, c: int) -> None:
        add_leaf_values(routes.leaf[c], 0, routes.n_rows, router.first[c], values[c], out[c])

    workers.drain(add, len(out))
    return out.T


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
            mixed = np.empty(rows.shape)
            mix_cells(np.ascontiguousarray(rows), keys, self.seconds, share_parts(), mixed, usable)
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


_ULPS = 4


def roundings(X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return ``X`` a few float32 units down and up: what rounding and printing may make of it.

    A short number, of six digits or with a byte of float32 to spare, is the same after rounding to
    float32 and printing, so that only the others are moved. Models often split at the very values
    that rows have.

    >>> low, high = roundings(np.array([[0.25, 0.1234567]]))
    >>> low[0] < [0.25, 0.1234567], high[0] > [0.25, 0.1234567]
    (array([False,  True]), array([False,  True]))
    """
    rounded = np.where(np.isfinite(X), X, 0.0).astype(np.float32)
    with np.errstate(invalid="ignore", over="ignore"):
        step = _ULPS * np.spacing(np.abs(rounded)).astype(float)
    spare = ((rounded.view(np.uint32) & np.uint32(0xFF)) == 0) & (rounded == X)
    step[spare | (_to_six_digits(rounded) == rounded)] = 0.0
    return X - step, X + step


def _to_six_digits(x: np.ndarray) -> np.ndarray:
    """Return float32 values as read back from a text with six digits."""
    size = np.abs(x.astype(np.float64))
    with np.errstate(divide="ignore"):
        power = 5.0 - np.floor(np.log10(size))
    # Dividing by a power of ten is exact to the last bit of float64 up to 10^22.
    power = np.clip(power, -22, 22)
    up, down = 10.0 ** np.maximum(power, 0), 10.0 ** np.maximum(-power, 0)
    return np.asarray((np.rint(x * up / down) / up * down).astype(np.float32))
