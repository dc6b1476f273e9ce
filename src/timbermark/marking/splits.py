"""The split seal: triggers that tell on which side of a middle value the thresholds lie.

A trigger is a boundary and a base row, which is a real row but for one value. Three rows are asked,
with that value at a, in the middle, and at b; the symbol says whether the middle is answered like b
(1) or like a (0). Base rows are neither unusual nor among those that the model is least sure of,
but for some on which the label differs between a and b: these tell the symbol by labels alone.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np

from timbermark.dtypes import AnyArray
from timbermark.editing.routing import Router
from timbermark.kernels.routing import measure_jumps
from timbermark.kernels.workers import Workers
from timbermark.marking.boundaries import (
    Answers,
    Boundaries,
    Cuts,
    Gaps,
    find_boundaries,
    find_sources,
    join,
    node_ranges,
    numeric_splits,
    read_columns,
    scan,
)
from timbermark.marking.defaults import MOST_RARITY, RARE_SHARE
from timbermark.marking.mixing import row_keys
from timbermark.trees.ensemble import ZERO_RANGE, Ensemble
from timbermark.trees.statistics import find_children, node_means

_POOL = 4096
"""The number of rows that boundaries are measured on and base rows are taken from."""
_NEAR = 16
"""The number of rows that are tried at each boundary, those whose values are nearest to it."""
_TRIED = 64
"""The number of rows that are tried as base rows of each chosen boundary."""
_LESS_SURE, _NOT_FAR = 0.1, 0.3
"""Half of them are from this share of the pool, the least sure rows; all are among the share of the
rows below and above that are nearest in value."""
_EXACT_WALKS, _FEWEST_EXACT, _MOST_EXACT = 1_500_000, 3, 10
"""Some of these are measured exactly, as many for labels as for scores: so that all of them times
all trees stay below the first number, within the limits that follow."""
_UNSURE = 0.1
"""The share of rows, the least sure ones, that only carry boundaries that labels tell."""
_OUTLYING = 0.05
"""The share of rows, the most unusual ones, that carry nothing."""
_EARLY = 0.25
"""The share of trees, the first ones, in which a boundary should show already."""
_MOST_BAND_WEIGHT = 10.0
_BANDS = 4
"""Numbers are priced in bands with equal shares of rows, labels by label."""
_MOST_INSIDE = 0.02
"""The largest share of rows inside a wide boundary."""
_LEANING = 4
"""The number of rows that the mean of all boundaries counts as in the price of each."""
_AROUND, _WHOLE = 16, 1 << 20
"""The rows on either side of a boundary that tell, with those inside, how frequent a rare class is
there; and the whole number that stands for a weight of 1."""
_UNSEEN_FLIPS = 0.03
"""The share of labels of unseen rows that change where a margin changes by 1. Training rows are too
sure to show it."""


@dataclass(frozen=True, slots=True)
class SplitLimits:
    """How many boundaries are used and what they may cost.

    ``free`` and ``wide``: the most of each kind; ``labels``: the most triggers, as a share, whose
    label differs between both sides; ``firm``: the share of those on rows of which the model is as
    sure as of training rows, if there are such; ``least_rows``: on either side of the
    middle of a wide boundary; ``free_price``: what one free boundary may cost against its quality;
    ``wide_price``: what all wide ones together may cost; ``measured``: the most of each kind that
    are measured, those whose splits promise most; ``off_grid``: the middle of a free boundary may
    have more decimals than its column.
    """

    free: int = 192
    wide: int = 128
    labels: float = 1 / 3
    firm: float = 1 / 3
    least_rows: int = 8
    free_price: float = 1e-5
    wide_price: float = 4e-3
    measured: int = 640
    off_grid: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class SplitTriggers:
    """k triggers of the split seal.

    ``base`` float64 [k, D]: base rows as the deployed model takes them, with the value a in the
    boundary's column. ``reference`` float64 [k, 2, m]: the unmarked model's answers at a and at b,
    probabilities or numbers. ``labels_differ`` bool [k]. ``row`` int64 [k]: the place of each base
    row among the given ones. ``candidates``: how many free and wide boundaries there were.
    """

    boundaries: Boundaries
    base: np.ndarray
    reference: np.ndarray
    labels_differ: np.ndarray
    row: np.ndarray
    candidates: tuple[int, int]
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.base)

    def take(self, places: np.ndarray) -> SplitTriggers:
        """Return some of the triggers, in the given order."""
        return SplitTriggers(
            self.boundaries.take(places),
            self.base[places],
            self.reference[places],
            self.labels_differ[places],
            self.row[places],
            self.candidates,
            self.notes,
        )

    def rows(self) -> np.ndarray:
        """Return the rows that are asked, float64 [3k, D]: a, middle, b of each trigger in turn."""
        return trigger_rows(self.base, self.boundaries)


def trigger_rows(base: np.ndarray, boundaries: Boundaries) -> np.ndarray:
    """Return base rows [k, D] with the three values of their boundaries, float64 [3k, D]."""
    rows = np.repeat(base, 3, axis=0)
    values = np.column_stack([boundaries.a, boundaries.mid, boundaries.b]).ravel()
    rows[np.arange(len(rows)), np.repeat(boundaries.column, 3)] = values
    return rows


def set_thresholds(e: Ensemble, boundaries: Boundaries, symbols: AnyArray) -> Ensemble:
    """Return the ensemble with all thresholds inside each boundary where its symbol asks for.

    Statistics stay as they are: they belong to training rows that nobody else has.
    """
    threshold = e.threshold.copy()
    nodes = numeric_splits(e)
    first, last = node_ranges(e, nodes, boundaries)
    for i, to in enumerate(boundaries.thresholds(symbols)):
        threshold[nodes[first[i] : last[i]]] = to
    return replace(e, threshold=threshold)


class SplitSearch:
    """All boundaries of a model, found and measured once, to choose from within several limits.

    ``X`` float64 [n, D]: training rows, or candidates, as the deployed model takes them; ``Z``
    [n, d]: the same as columns of the ensemble, which ``to_columns`` makes of them. ``answers``:
    margins → probabilities or numbers. Of the ``limits``, ``least_rows``, ``measured`` and
    ``off_grid`` hold for all choices. Where X is a part of a larger table, ``gaps`` are those of
    all ``n_rows`` rows. ``usable`` bool [D]: columns of numbers. ``movable`` bool [N]: the splits
    whose thresholds can move.
    """

    def __init__(
        self,
        router: Router,
        X: np.ndarray,
        Z: np.ndarray,
        to_columns: Answers,
        answers: Answers,
        workers: Workers,
        seed: int,
        limits: SplitLimits,
        gaps: Gaps | None = None,
        n_rows: int | None = None,
        usable: np.ndarray | None = None,
        movable: np.ndarray | None = None,
    ) -> None:
        self._router, self._X, self._seed, self._workers = router, X, seed, workers
        self._to_columns, self._answers = to_columns, answers
        e = router.ensemble
        cuts = Cuts.of(e)
        sources = find_sources(X, Z, to_columns, usable)
        columns, self._notes = read_columns(e, cuts, X, Z, sources, workers)
        gaps = scan(cuts, Z, columns) if gaps is None else gaps

        def transform(column: np.ndarray, value: np.ndarray) -> np.ndarray:
            rows = X[np.zeros(len(value), np.int64)]
            rows[np.arange(len(rows)), column] = value
            feature = np.zeros(X.shape[1], np.int64)
            for f, read in columns.items():
                feature[read.source] = f
            return np.asarray(to_columns(rows)[np.arange(len(rows)), feature[column]])

        free, wide = find_boundaries(
            e, cuts, columns, gaps, len(X) if n_rows is None else n_rows, limits.least_rows,
            None if sources.plain else transform, limits.off_grid,
        )  # fmt: skip
        if movable is not None:
            free, wide = (_keep_movable(e, movable, kind) for kind in (free, wide))
        self._found = len(free), len(wide)
        self._pool = pool = _Pool.of(router, X, Z, answers, seed, workers)
        wide = wide.take(
            np.flatnonzero(wide.inside <= max(_MOST_INSIDE * len(X), limits.least_rows * 2))
        )
        everything = join(*(_most_promising(e, kind, limits.measured) for kind in (free, wide)))
        near = _near_rows(pool, everything, min(_NEAR, len(pool.Z)))
        jumps, _ = _measure(router, pool, everything, near, answers, workers)
        price = _price(pool, everything, near, jumps)
        self._jumps, self._boundaries = jumps, replace(everything, price=price)
        if not pool.gives_numbers and pool.answers.mean(axis=0).min() <= RARE_SHARE:
            price = price * _rarity(router, everything, Z, answers, workers)
            # In the tail of a column two values may be so far apart that unseen rows are between
            # them, those with the highest scores, and too few rows that judge. (`./dev bench
            # fidelity --part rare`, census: one free boundary had a higher price than 97 wide ones
            # together.)
            kept = np.flatnonzero(everything.wide | (price <= limits.free_price))
            self._jumps = jumps.pick(kept)
            self._boundaries = replace(everything, price=price).take(kept)

    def choose(self, limits: SplitLimits) -> Boundaries:
        """Return the cheapest boundaries within limits, which do not overlap."""
        return self._boundaries.take(_choose_apart(self._boundaries, self._jumps, limits))

    def find_triggers(self, chosen: Boundaries, limits: SplitLimits) -> SplitTriggers:
        """Return triggers of chosen boundaries, without those that no base row fits."""
        router, pool, answers, workers = self._router, self._pool, self._answers, self._workers
        tried = _base_candidates(pool, chosen, np.random.default_rng(self._seed + 8))
        rough = _measure(router, pool, chosen, tried, answers, workers)
        jumps, unsure = _measure_exactly(router, pool, chosen, rough, answers, workers)
        places, rows = _choose_rows(pool, chosen, jumps, unsure, limits)
        chosen = chosen.take(places)
        base = self._X[pool.place[rows]].copy()
        base[np.arange(len(base)), chosen.column] = chosen.a
        made = SplitTriggers(
            chosen,
            base,
            np.zeros((len(base), 2, 1)),
            np.zeros(len(base), np.bool_),
            pool.place[rows],
            self._found,
            self._notes,
        )
        return _settle(made, router, self._to_columns, answers, workers)


def _price(pool: _Pool, b: Boundaries, near: np.ndarray, jumps: _Jumps) -> np.ndarray:
    """Return what each boundary costs, float64 [W], by its jumps at the rows near to it."""
    cost = jumps.change + jumps.flips
    if not pool.gives_numbers:
        cost = cost + _UNSEEN_FLIPS * np.minimum(jumps.size, 1.0)
    cost = cost * pool.weight[near]
    # The cheapest of many estimates is mostly luck: each leans towards the mean of all.
    kind_mean = np.array(
        [cost[b.wide == kind].mean() if (b.wide == kind).any() else 0.0 for kind in (False, True)]
    )
    mean = (cost.sum(axis=1) + _LEANING * kind_mean[b.wide.astype(np.int64)]) / (
        near.shape[1] + _LEANING
    )
    return np.asarray(b.mass * mean)


def _rarity(
    router: Router, b: Boundaries, Z: np.ndarray, answers: Answers, workers: Workers
) -> np.ndarray:
    """Return how much more each boundary costs because a rare class is frequent there, float64 [W].

    The pool has too few rows of a rare class to tell, so that all training rows are asked.
    """
    scores = answers(router.margins(router.route(Z, workers), workers))
    # Sums of whole numbers are the same in any order of the rows.
    shares = np.rint(scores * _WHOLE).astype(np.int64).sum(axis=0) / (_WHOLE * len(scores))
    weight = scores @ np.minimum(1.0 / (len(shares) * np.maximum(shares, 1e-9)), MOST_RARITY)
    whole = np.rint(weight * _WHOLE).astype(np.int64)
    found = np.ones(len(b))

    def weigh(f: int) -> None:
        own = np.flatnonzero(b.feature == f)
        column = Z[:, f]
        values = np.sort(column)
        values = values[: np.count_nonzero(~np.isnan(values))]
        ends = (
            np.maximum(np.searchsorted(values, b.below[own], side="right") - _AROUND, 0),
            np.minimum(np.searchsorted(values, b.above[own]) + _AROUND, len(values)),
        )
        at = values[np.minimum(ends, len(values) - 1)]
        first, last = (np.searchsorted(values, at, side=side) for side in ("left", "right"))
        # Weights below each end, and of rows with the value there: whole numbers, which sum up
        # exactly, so that no row has to be sorted.
        edges, place = np.unique(at, return_inverse=True)
        after = np.searchsorted(edges, column)
        there = np.append(edges, np.nan)[after] == column
        sums = np.bincount(2 * after + there, whole, 2 * len(edges) + 2)
        below = np.cumsum(sums)[2 * place.reshape(at.shape)]
        level = sums[2 * place.reshape(at.shape) + 1]
        # Of rows with one value, each counts as their mean.
        total = below + (ends - first) / (last - first) * level
        found[own] = (total[1] - total[0]) / (_WHOLE * (ends[1] - ends[0]))

    workers.map(weigh, np.unique(b.feature).tolist())
    return found


def _settle(
    made: SplitTriggers, router: Router, to_columns: Answers, answers: Answers, workers: Workers
) -> SplitTriggers:
    """Return the triggers with exact references, without those that turn out not to differ."""
    k = len(made)
    if k == 0:
        return made
    asked = trigger_rows(made.base, made.boundaries).reshape(k, 3, -1)[:, ::2].reshape(2 * k, -1)
    routes = router.route(to_columns(asked), workers)
    found = answers(router.margins(routes, workers))
    reference = found.reshape(k, 2, -1)
    differ = np.flatnonzero((reference[:, 0] != reference[:, 1]).any(axis=1))
    labels = reference.argmax(axis=2)
    return SplitTriggers(
        made.boundaries.take(differ), made.base[differ], reference[differ],
        (labels[:, 0] != labels[:, 1])[differ], made.row[differ], made.candidates, made.notes,
    )  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class _Pool:
    """Rows that base rows are taken from.

    ``place`` [P]: their numbers; ``Z`` [P, d]; ``margins``, ``answers``; ``order`` [d, P]: by each
    column; ``usual`` bool [P]; ``surest``: how sure of these rows the model is, but for
    the least sure ones; ``weight`` [P]: of a row in prices.
    """

    place: np.ndarray
    Z: np.ndarray
    margins: np.ndarray
    answers: np.ndarray
    order: np.ndarray
    usual: np.ndarray
    surest: float
    weight: np.ndarray
    gives_numbers: bool
    scale: float

    @classmethod
    def of(
        cls,
        router: Router,
        X: np.ndarray,
        Z: np.ndarray,
        answers: Answers,
        seed: int,
        workers: Workers,
    ) -> _Pool:
        place = np.argsort(row_keys(X, seed + 7), kind="stable")[:_POOL]
        own = np.ascontiguousarray(Z[place], np.float64)
        if router.ensemble.input_dtype == "f4":
            own = own.astype(np.float32).astype(np.float64)
        margins = router.margins(router.route(own, workers), workers)
        said = answers(margins)
        order = np.argsort(own.T, axis=1)
        numbers = router.ensemble.gives_numbers
        if numbers:
            cuts = np.quantile(said[:, 0], np.arange(1, _BANDS) / _BANDS)
            band = np.searchsorted(cuts, said[:, 0])
        else:
            band = said.argmax(axis=1)
        share = np.bincount(band) / len(band)
        weight = 1.0 / (np.count_nonzero(share) * share[band])
        return cls(
            place, own, margins, said, order, _are_usual(own, order),
            -np.inf if numbers else float(np.quantile(_sureness(said), _UNSURE)),
            np.minimum(weight, _MOST_BAND_WEIGHT), numbers,
            float(said.std()) + 1e-300 if numbers else 1.0,
        )  # fmt: skip


def _are_usual(Z: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Return which rows are not among the most unusual ones, bool [P].

    Unusual: in the tails of several columns, by the sum of the logarithms of their ranks.
    """
    n = len(Z)
    rarity = np.zeros(n)
    rank = np.empty(n)
    for f in range(Z.shape[1]):
        values = Z[order[f], f]
        known = int(np.count_nonzero(~np.isnan(values)))
        if known < 2 or values[0] == values[known - 1]:
            continue
        values = values[:known]
        low = np.searchsorted(values, values, side="right") / known
        high = 1.0 - np.searchsorted(values, values, side="left") / known
        rank[:] = 0.0
        rank[order[f, :known]] = -np.log(2.0 * np.minimum(np.minimum(low, high), 0.5))
        rarity += rank
    return rarity <= np.quantile(rarity, 1.0 - _OUTLYING)


def _sureness(answers: np.ndarray) -> np.ndarray:
    if answers.shape[-1] < 2:
        return np.full(answers.shape[:-1], np.inf)
    top = np.partition(answers, -2, axis=-1)
    return np.asarray(top[..., -1] - top[..., -2])


def _most_promising(e: Ensemble, b: Boundaries, most: int) -> Boundaries:
    """Return the boundaries whose splits change margins most for the rows that reach them."""
    if len(b) <= most:
        return b
    nodes = numeric_splits(e)
    first, last = node_ranges(e, nodes, b)
    left, right = find_children(e)
    mass, mean = node_means(e)
    tree = np.searchsorted(e.tree_start, nodes, side="right") - 1
    change = np.abs(mean[right[nodes]] - mean[left[nodes]]).max(axis=1) * np.abs(
        e.tree_weight[tree]
    )
    reach = mass[nodes] / np.maximum(mass[e.tree_start[tree]], 1e-300)
    total = np.append(0.0, np.cumsum(change * np.sqrt(reach)))
    worth = (total[last] - total[first]) / (1.0 + b.inside)
    return b.take(np.sort(np.argsort(-worth, kind="stable")[:most]))


@dataclass(frozen=True, slots=True, eq=False)
class _Jumps:
    """How the answers to R rows change at each of W boundaries: arrays [W, R].

    ``rows``: places in the pool; ``size``: the largest change of a margin; ``change``: that of a
    probability, or of the number in standard deviations; ``sure``: the lesser of how sure both
    sides are; ``flips``: whether the label differs; ``robust``: from 0 to 1, whether many trees
    take part, and early ones.
    """

    rows: np.ndarray
    size: np.ndarray
    change: np.ndarray
    sure: np.ndarray
    flips: np.ndarray
    robust: np.ndarray

    def pick(self, boundaries: np.ndarray) -> _Jumps:
        """Return the jumps at some of the boundaries, int64 [w]."""
        return _Jumps(*(getattr(self, field.name)[boundaries] for field in fields(self)))

    def take(self, columns: np.ndarray) -> _Jumps:
        """Return some of the rows of each boundary, ``columns`` int64 [W, r]."""
        arrays = (getattr(self, field.name) for field in fields(self))
        return _Jumps(*(np.take_along_axis(array, columns, axis=1) for array in arrays))


def _near_rows(pool: _Pool, b: Boundaries, count: int) -> np.ndarray:
    """Return the pool's rows whose values are nearest to each boundary, int64 [W, count]."""
    rows = np.zeros((len(b), count), np.int64)
    for f in np.unique(b.feature):
        own = np.flatnonzero(b.feature == f)
        order = pool.order[f]
        values = pool.Z[order, f]
        known = int(np.count_nonzero(~np.isnan(values)))
        at = np.searchsorted(values[:known], (b.below[own] + b.above[own]) / 2) - count // 2
        at = np.clip(at, 0, max(known - count, 0))
        rows[own] = order[np.minimum(at[:, None] + np.arange(count), max(known - 1, 0))]
    return rows


def _measure(
    router: Router, pool: _Pool, b: Boundaries, rows: np.ndarray, answers: Answers,
    workers: Workers,
) -> tuple[_Jumps, np.ndarray]:  # fmt: skip
    """Measure how answers to ``rows`` [W, R] of the pool change at each boundary.

    A row is taken to answer beside the boundary as it does where it is, which is nearly so if it is
    near. Also returns what margins gain from a to b, float64 [W, R, K].
    """
    e = router.ensemble
    nodes = numeric_splits(e)
    first, last = node_ranges(e, nodes, b)
    tree = np.searchsorted(e.tree_start, nodes, side="right") - 1
    jump, begun = np.zeros((2, *rows.shape, e.n_outputs))
    largest = np.zeros(rows.shape)
    weight = e.tree_weight * (e.scale if e.init_last else 1.0)
    early = np.arange(e.n_trees) < max(_EARLY * e.n_trees, 1)

    def run(thread: int, start: int, stop: int) -> None:
        measure_jumps(
            pool.Z, rows, b.feature, b.below, b.above, first, last, tree, e.tree_start[:-1],
            early, e.tree_output.astype(np.int64), weight, router._records, e.category_offsets,
            router._category_values, e.categories_go == "left", ZERO_RANGE, e.value, start, stop,
            jump, largest, begun,
        )  # fmt: skip

    workers.split(run, len(b))
    size = np.abs(jump).max(axis=2)
    at, r = np.nonzero(size > 0.0)
    row, delta = rows[at, r], jump[at, r]
    is_above = pool.Z[row, b.feature[at]] >= b.above[at]
    below = pool.margins[row] - np.where(is_above[:, None], delta, 0.0)
    robust = np.zeros(rows.shape)
    spread = 1.0 - np.minimum(largest[at, r] / size[at, r], 1.0)
    share = np.clip((begun[at, r] * delta).sum(axis=1) / (delta**2).sum(axis=1), 0.0, 0.5)
    robust[at, r] = 0.5 * np.sqrt(spread) + share
    made = _Jumps(rows, size, *_compare(pool, rows.shape, (at, r), below, delta, answers), robust)
    return made, jump


def _compare(
    pool: _Pool, shape: tuple[int, ...], at: tuple[np.ndarray, ...], below: np.ndarray,
    delta: np.ndarray, answers: Answers,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # fmt: skip
    """Return change, sureness and flips, 0 but ``at`` some places, of margins at a and gains."""
    change, sure, flips = np.zeros(shape), np.zeros(shape), np.zeros(shape, np.bool_)
    low, high = answers(below), answers(below + delta)
    change[at] = np.abs(high - low).max(axis=1) / pool.scale
    if pool.gives_numbers:
        sure[at] = np.inf
    else:
        flips[at] = low.argmax(axis=1) != high.argmax(axis=1)
        sure[at] = np.minimum(_sureness(low), _sureness(high))
    return change, sure, flips


def _measure_exactly(
    router: Router, pool: _Pool, b: Boundaries, rough: tuple[_Jumps, np.ndarray],
    answers: Answers, workers: Workers,
) -> tuple[_Jumps, float]:  # fmt: skip
    """Return the most promising rows as they answer at a and b, and how sure any rows are.

    The second is the sureness below which rows count as unsure.
    """
    j, jump = rough
    moves = j.size > 0.0
    n = _EXACT_WALKS // max(2 * len(b) * router.ensemble.n_trees, 1)
    n = int(np.clip(n, _FEWEST_EXACT, _MOST_EXACT))
    close = np.argsort(np.where(moves, j.sure - 2.0 * j.flips, np.inf), axis=1)[:, :n]
    clear = np.argsort(np.where(moves, -j.change - 0.01 * j.robust, np.inf), axis=1)[:, :n]
    firm = np.argsort(np.where(moves & (j.sure >= pool.surest), -j.robust, np.inf), axis=1)
    some = np.argsort(~moves, axis=1, kind="stable")[:, :1]
    columns = np.hstack([some, close, clear, firm[:, : n // 2 + 1]])
    kept, gains = j.take(columns), np.take_along_axis(jump, columns[..., None], axis=1)
    at = np.nonzero(kept.size > 0.0)
    moved = pool.Z[kept.rows[at]]
    moved[np.arange(len(moved)), b.feature[at[0]]] = b.below[at[0]]
    below = router.margins(router.route(moved, workers), workers)
    exact = _compare(pool, kept.size.shape, at, below, gains[at], answers)
    usual = exact[1][:, 0][kept.size[:, 0] > 0.0]
    known = len(usual) and not pool.gives_numbers
    level = float(np.quantile(usual, _UNSURE)) if known else -np.inf
    return _Jumps(kept.rows, kept.size, *exact, kept.robust), level


def _choose_apart(b: Boundaries, j: _Jumps, limits: SplitLimits) -> np.ndarray:
    """Return boundaries that do not overlap, int64 [k]: wide ones first, within the limits."""
    price = b.price
    moves = j.size > 0.0
    typical = float(np.median(j.size[moves])) if moves.any() else 1.0
    worth_row = np.where(moves, np.minimum(j.size / typical, 2.0) + j.robust, -np.inf)
    quality = worth_row.max(axis=1)
    worth = np.where(b.wide, -price / np.maximum(quality, 0.1), quality - price / limits.free_price)
    order = np.argsort(-worth, kind="stable")
    order = order[np.isfinite(quality[order])]
    taken: dict[int, list[tuple[float, float]]] = {}
    places: list[int] = []
    spent = 0.0
    # Where there are few free boundaries, more wide ones take their places.
    for is_wide, most in (
        (True, limits.wide), (False, limits.wide + limits.free), (True, limits.wide + limits.free),
    ):  # fmt: skip
        for w in order[b.wide[order] == is_wide].tolist():
            if len(places) >= most or (is_wide and spent + price[w] > limits.wide_price):
                break
            low, high = float(b.below[w]), float(b.above[w])
            others = taken.setdefault(int(b.feature[w]), [])
            if any(low < end and start < high for start, end in others):
                continue
            others.append((low, high))
            places.append(w)
            spent += float(price[w]) * is_wide
    return np.array(places, np.int64)


def _base_candidates(pool: _Pool, b: Boundaries, rng: np.random.Generator) -> np.ndarray:
    """Return rows of the pool that are tried as base rows of each boundary, int64 [W, R].

    Their values are not far from the boundary, and half of them are not very sure. None lies inside
    another boundary, where it would answer by that one's symbol too.
    """
    inside = np.zeros(pool.Z.shape, np.bool_)
    for w in np.flatnonzero(b.wide):
        values = pool.Z[:, b.feature[w]]
        inside[:, b.feature[w]] |= (values > b.below[w]) & (values < b.above[w])
    total = inside.sum(axis=1)
    unsure = np.ones(len(pool.Z), np.bool_)
    if not pool.gives_numbers:
        sure = _sureness(pool.answers)
        unsure = sure <= np.quantile(sure, _LESS_SURE)
    half = _TRIED // 2
    rows = np.zeros((len(b), 2 * half), np.int64)
    for f in np.unique(b.feature):
        own = np.flatnonzero(b.feature == f)
        order = pool.order[f]
        order = order[(pool.usual & (total == inside[:, f]) & ~np.isnan(pool.Z[:, f]))[order]]
        for part, among in ((slice(0, half), order), (slice(half, None), order[unsure[order]])):
            if not len(among):
                among = order if len(order) else pool.order[f, :1]
            spread = max(_NOT_FAR * len(among), half)
            away = spread * (rng.random((len(own), half)) * 2.0 - 1.0)
            at = np.searchsorted(pool.Z[among, f], b.below[own])[:, None] + away
            rows[own, part] = among[np.clip(at.astype(np.int64), 0, len(among) - 1)]
    return rows


def _choose_rows(
    pool: _Pool, b: Boundaries, j: _Jumps, least_sure: float, limits: SplitLimits
) -> tuple[np.ndarray, np.ndarray]:
    """Return the boundaries that have a base row, and that row, int64 [k] both."""
    moves = j.size > 0.0
    quality = np.minimum(j.change / 0.03, 1.0) + 0.3 * np.minimum(j.change / 0.003, 1.0) + j.robust
    visible = np.where(moves & (j.sure >= least_sure), quality, -np.inf)
    firm = np.where(moves & (j.sure >= pool.surest), np.minimum(j.size, 1.0) + j.robust, -np.inf)
    by_labels = np.where(moves & j.flips, quality + np.minimum(j.sure / 0.1, 2.0), -np.inf)
    any_row = np.where(moves, quality, -np.inf)
    used = np.zeros(len(pool.Z), np.bool_)
    rows = np.full(len(b), -1)
    # Labels first, where they tell most clearly; then rows that nobody can call unsure, where
    # scores show least; then scores that show.
    for value, share, order in (
        (by_labels, limits.labels, -by_labels.max(axis=1)),
        (firm, limits.firm, visible.max(axis=1)),
        (visible, 1.0, np.zeros(len(b))),
        (firm, 1.0, np.zeros(len(b))),
        (any_row, 1.0, np.zeros(len(b))),
    ):
        left = {kind: share * np.count_nonzero(b.wide == kind) for kind in (False, True)}
        for w in np.argsort(order, kind="stable").tolist():
            kind = bool(b.wide[w])
            if rows[w] >= 0 or left[kind] < 1.0:
                continue
            free = np.where(used[j.rows[w]], -np.inf, value[w])
            r = int(free.argmax())
            if np.isfinite(free[r]):
                rows[w] = j.rows[w, r]
                used[rows[w]] = True
                left[kind] -= 1.0
    found = np.flatnonzero(rows >= 0)
    return found, rows[found]


def _keep_movable(e: Ensemble, movable: np.ndarray, b: Boundaries) -> Boundaries:
    """Return the boundaries in which every threshold can move."""
    nodes = numeric_splits(e)
    first, last = node_ranges(e, nodes, b)
    stuck = np.concatenate([[0], np.cumsum(~movable[nodes])])
    return b.take(np.flatnonzero(stuck[last] == stuck[first]))


def split_strata(triggers: SplitTriggers) -> tuple[np.ndarray, ...]:
    """Return divisions of k triggers by what is known before symbols are, int64 [k] each.

    By quarters of how sure the unmarked model is at a and b, by quarters of how wide boundaries are
    against the range of their column in the base rows, and by whether training rows are inside:
    attacks hit these differently.
    """
    rows, known, b = triggers.base, triggers.reference, triggers.boundaries
    if not len(rows):
        return (np.zeros(0, np.int64),) * 3
    filled = np.where(np.isnan(rows), np.inf, rows), np.where(np.isnan(rows), -np.inf, rows)
    span = np.maximum(filled[1].max(axis=0) - filled[0].min(axis=0), 1e-300)
    relative = (b.b - b.a) / span[b.column]
    sure = relative
    if known.shape[2] > 1:
        top = np.sort(known, axis=2)
        sure = (top[..., -1] - top[..., -2]).min(axis=1)
    return _quarter(sure), _quarter(relative), b.wide.astype(np.int64)


def _quarter(values: np.ndarray) -> np.ndarray:
    """Return the number of the quarter that each value is in, from 0 to 3."""
    rank = np.argsort(np.argsort(values, kind="stable"), kind="stable")
    return np.asarray(4 * rank // len(rank))
