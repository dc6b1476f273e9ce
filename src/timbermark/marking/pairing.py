"""Pairs of rows that carry a symbol where answers are numbers.

Two models of the same task differ on a row by as much as they err, far more than a mark may change.
They hardly differ in how their answer changes from one row to a neighbour of it. A trigger is
therefore a pair: a row, and the same row with one value replaced by the next one in the data that
some tree tells from it, or one text by another. The symbol is in the difference of both answers,
which survives whatever moves both alike: averaging with another model, leaves that are fitted
again, another unit.
"""

from __future__ import annotations

import numpy as np

from timbermark.editing.leaves import RIDGE
from timbermark.editing.routing import Routes
from timbermark.errors import InputError
from timbermark.kernels.workers import Workers
from timbermark.marking.choosing import (
    Candidates,
    first_of_equals,
    make_pool,
    pool_size,
    survive_rounding,
    too_few,
)
from timbermark.marking.joint_price import order_by_joint_price
from timbermark.marking.large_tables import Say
from timbermark.marking.mixing import row_keys
from timbermark.marking.preparing import Prepared
from timbermark.marking.prices import find_room

_MOST_FIRST = 40_000
"""The most rows that pairs are made of: of more, those whose leaves hold the least weight.
(`./dev bench models`, diamonds, averaged half and half: 180,000 pairs of any rows left 29 to 80
bits, 600,000 pairs 77 to 133, and these as many in half of the time.)"""
_TRIES = 3
"""Pairs that are made of each row, each with another feature changed."""
_MOST_ASKED = 2_000
"""The most values of a feature that are transformed to find out which ones the trees separate."""


def find_pairs(
    prepared: Prepared,
    kind: str,
    k: int,
    least: int,
    q: int,
    workers: Workers,
    say: Say = lambda said: None,
) -> Candidates:
    """Return up to ``k`` pairs of rows with alphabets of ``q`` levels, cheapest first.

    ``kind``: "mixed" makes the first rows out of two given ones, "rows" takes given ones; the
    second rows are made in either case. No row is in two pairs. Of large tables, the rows in
    memory make them, and ``say`` has nothing to say.

    Raises InputError if there are fewer than ``least`` pairs.
    """
    router, task = prepared.router, prepared.task
    pool, base = make_pool(prepared, kind, 2 * pool_size(prepared))
    if len(pool) > _MOST_FIRST:
        seen, takes = prepared.schema.try_columns(pool)
        room = find_room(router, prepared.mass, router.route(seen, workers), workers)[:, 0]
        easy = np.argsort(np.where(takes, -room, np.inf), kind="stable")[:_MOST_FIRST]
        pool, base = pool[easy], base[easy]
    rng = np.random.default_rng(prepared.seed + 6)
    X, source = step_rows(pool, prepared, rng)
    base = base[source]
    if len(X) == 0:
        raise too_few(0, least, kind, "pairs of rows")
    seen, takes = prepared.schema.try_columns(X)
    routes = router.route(seen, workers)
    margins = router.margins(routes, workers)
    room = pair_room(prepared, routes)
    first, second = np.arange(0, len(X), 2), np.arange(1, len(X), 2)
    usable = (room > 0.0) & takes[first] & takes[second]
    usable &= first_of_equals(margins[first]) & first_of_equals(margins[second])
    taken = row_keys(prepared.margins, 0)
    # If no tree separates a row from a given one, the edit would change that one as well.
    usable &= ~np.isin(row_keys(margins[second], 0), taken)
    if kind == "mixed":
        usable &= ~np.isin(row_keys(margins[first], 0), taken)
    # Shadow models are slow, so that they are asked only about usable pairs.
    places = np.flatnonzero(usable)
    both = np.column_stack([2 * places, 2 * places + 1]).ravel()
    alphabets = np.full((len(room), q), np.inf)
    alphabets[places] = task.find_alphabets(seen[both], margins[both], q, room[places])
    price = alphabets[:, -1] ** 2 / np.maximum(room, 1e-12)
    order = np.argsort(price, kind="stable")
    order = order[np.isfinite(price[order])][: 8 * k]
    both = np.column_stack([2 * order, 2 * order + 1]).ravel()
    same = survive_rounding(prepared, X[both], routes.take(both), workers).reshape(-1, 2)
    order = order[same.all(axis=1)]
    _, once = np.unique(base[order], return_index=True)
    chosen = order[np.sort(once)][:k]
    if len(chosen) < least:
        raise too_few(len(chosen), least, kind, "pairs of rows")
    both = np.column_stack([2 * chosen, 2 * chosen + 1]).ravel()
    ease = [1.0 / (mass + RIDGE) for mass in prepared.mass]
    chosen = chosen[
        order_by_joint_price(
            price[chosen], -(-k // 3), routes.take(both), router, ease, workers, in_pairs=True
        )
    ]
    both = np.column_stack([2 * chosen, 2 * chosen + 1]).ravel()
    return Candidates(
        X[both], routes.take(both), margins[both], alphabets[chosen], len(once), in_pairs=True
    )


def step_rows(
    pool: np.ndarray, prepared: Prepared, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return pairs of rows, float64 [2n, d], and which row of the pool each pair is made of [n].

    The second row of a pair has another value of one feature: of all values in the data that lie
    beyond the nearest threshold of that feature, upwards or downwards, the nearest. Of texts it is
    the next one in their order.
    """
    n = len(pool)
    places = np.tile(np.arange(n), _TRIES)
    feature, step = rng.integers(pool.shape[1], size=len(places)), rng.random(len(places)) < 0.5
    second = pool[places].copy()
    made = np.zeros(len(places), np.bool_)
    thresholds, order = _thresholds(prepared), _column_order(prepared)
    for j in range(pool.shape[1]):
        at = np.flatnonzero(feature == j)
        values = np.unique(prepared.source[:, j])
        values = values[np.isfinite(values)]
        if len(values) < 2 or not len(at):
            continue
        if order is not None:
            zone = np.searchsorted(thresholds[order[j]], values)
        else:
            values = _thin(values)
            zone = _ask_zones(prepared, j, values, thresholds)
        own = pool[places[at], j]
        place = np.searchsorted(values, np.where(np.isfinite(own), own, values[0]))
        here = zone[np.minimum(place, len(values) - 1)]
        above = np.searchsorted(zone, here, side="right")
        below = np.searchsorted(zone, here, side="left") - 1
        pick = np.where(step[at], above, below)
        good = np.isfinite(own) & (pick >= 0) & (pick < len(values))
        second[at[good], j] = values[pick[good]]
        made[at[good]] = True
    pairs = np.empty((2 * int(made.sum()), pool.shape[1]))
    pairs[::2], pairs[1::2] = pool[places[made]], second[made]
    return pairs, places[made]


def pair_room(prepared: Prepared, routes: Routes) -> np.ndarray:
    """Return float64 [n]: how easily the difference within each of n pairs changes.

    Only trees that tell the rows of a pair from each other can change it: the sum over these of
    1 / (mass + ridge) of both leaves.
    """
    room = np.zeros(routes.n_rows // 2)
    ease, first = 1.0 / (prepared.mass[0] + RIDGE), prepared.router.first[0]
    for t, leaf in enumerate(routes.leaf[0]):
        a, b = leaf[::2], leaf[1::2]
        differ = np.flatnonzero(a != b)
        room[differ] += ease[first[t] + a[differ]] + ease[first[t] + b[differ]]
    return room


def _thresholds(prepared: Prepared) -> list[np.ndarray]:
    """Return the thresholds of each column of the ensemble, rising; categories have none."""
    e = prepared.foreign.ensemble
    inner = np.flatnonzero((e.left >= 0) & (e.category_set < 0))
    inner = inner[np.argsort(e.feature[inner], kind="stable")]
    first = np.searchsorted(e.feature[inner], np.arange(1, e.n_features))
    return [np.unique(e.threshold[nodes]) for nodes in np.split(inner, first)]


def _column_order(prepared: Prepared) -> np.ndarray | None:
    """Return the column of the ensemble that each column of rows becomes, found by probing.

    None where columns of the ensemble are others than those of rows: texts and what transformers
    make.
    """
    schema, d = prepared.schema, prepared.source.shape[1]
    if schema.foreign.inside or not schema.is_plain or schema.foreign.ensemble.n_features < d:
        return None
    row = prepared.source[:1].copy()
    plain = schema.columns(row)[0]
    order = np.arange(d)
    for j in range(d):
        others = prepared.source[:, j]
        differ = others[np.isfinite(others) & (others != row[0, j])]
        if not len(differ):
            continue
        moved = row.copy()
        moved[0, j] = differ[0]
        changed = np.flatnonzero(schema.columns(moved)[0] != plain)
        changed = changed[~np.isnan(plain[changed])]
        if len(changed) == 1:
            order[j] = changed[0]
    return order


def _thin(values: np.ndarray) -> np.ndarray:
    """Return a limited number of values that represent all given ones."""
    if len(values) <= _MOST_ASKED:
        return values
    return np.asarray(values[np.linspace(0, len(values) - 1, _MOST_ASKED).astype(np.int64)])


def _ask_zones(
    prepared: Prepared, j: int, values: np.ndarray, thresholds: list[np.ndarray]
) -> np.ndarray:
    """Return int64 [n], rising: values of one column that no threshold tells apart have one number.

    Transformers are asked with a row in which only that column changes. Texts have no thresholds:
    each has its own number.
    """
    if prepared.schema.named[j]:
        return np.arange(len(values))
    rows = prepared.source[np.zeros(len(values), np.int64)]
    rows[:, j] = values
    try:
        seen, _ = prepared.schema.try_columns(rows)
    except InputError:
        return np.zeros(len(values), np.int64)
    differ = np.zeros(len(values), np.bool_)
    for column in np.flatnonzero((seen != seen[:1]).any(axis=0)):
        zone = np.searchsorted(thresholds[column], seen[:, column])
        differ[1:] |= zone[1:] != zone[:-1]
    return np.cumsum(differ)
