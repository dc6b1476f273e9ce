"""Choose: candidates that carry a symbol at the least cost.

A candidate is cheap where little has to change (its best labels are close) and where that disturbs
few (it ends in leaves with little weight of other rows). Both are known before any symbol is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from timbermark.editing.routing import Routes
from timbermark.errors import InputError
from timbermark.kernels.workers import Workers
from timbermark.marking.best_candidates import find_best
from timbermark.marking.defaults import EXPECTED_LEAD, LONGEST_SHORT_LEAD, SHORT_LEAD
from timbermark.marking.large_tables import Say
from timbermark.marking.mixing import mix_rows, row_keys
from timbermark.marking.preparing import Prepared
from timbermark.marking.prices import find_room, mean_effort
from timbermark.marking.rounding import roundings

_POOL_CELLS = 30_000_000
_SMALLEST_POOL, _LARGEST_POOL = 4_000, 100_000
"""The size of the pool of candidates: rows times trees, and rows times columns, stay below the
first number, within these limits on rows. (`./dev bench attacks`, census, LightGBM, 200 triggers
with a lead of 0.6: 0.59 % of labels changed with 12,000 candidates, 0.31 % with 60,000.)"""
_LARGEST_TRANSFORMED = 20_000
"""The most rows in the pool of a model that transforms texts or tables first, which takes long.
(`./dev bench bank`, churn, LightGBM: 5.9 s with 100,000.)"""
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


def find_candidates(
    prepared: Prepared,
    kind: str,
    k: int,
    least: int,
    q: int,
    workers: Workers,
    say: Say = lambda said: None,
    lead: float = EXPECTED_LEAD,
) -> Candidates:
    """Return up to ``k`` candidates with alphabets of ``q`` answers, cheapest first.

    ``kind``: "mixed" makes new rows out of the given ones, "rows" takes the given ones themselves;
    ``lead``: what they are compared at. Two candidates never share most of their values.

    Raises InputError if there are fewer than ``least``.
    """
    task, router = prepared.labels, prepared.router
    if prepared.large is None or prepared.large.candidates is None:
        pool, base = make_pool(prepared, kind, pool_size(prepared))
    else:
        pool, base, _ = find_best(prepared, kind, q, workers, say)
        lead = SHORT_LEAD
    if len(pool) == 0:
        raise too_few(0, least, kind)
    seen, takes = prepared.schema.try_columns(pool)
    routes = router.route(seen, workers)
    margins = router.margins(routes, workers)
    free = first_of_equals(margins) & takes
    if kind == "mixed":
        # If no tree separates a mixture from a row, the edit would change that row as well.
        free &= ~np.isin(_fingerprints(margins), _fingerprints(prepared.margins))
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


def too_few(found: int, k: int, kind: str, what: str = "") -> InputError:
    """Return the error for rows from which too few candidates can be made."""
    what = what or ("mixtures of the rows" if kind == "mixed" else "rows")
    return InputError(
        f"{k} triggers are wanted, but only {found} {what} can carry a symbol.",
        hint=f"ask for at most {found}, or give more rows that differ from each other.",
    )
