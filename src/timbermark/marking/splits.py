"""The split seal: triggers that tell on which side of a middle value the thresholds lie.

A trigger is a boundary and a base row, which is a real row but for one value. Three rows are asked,
with that value at a, in the middle, and at b; the symbol says whether the middle is answered like b
(1) or like a (0). Base rows are neither unusual nor among those that the model is least sure of,
but for some on which the label differs between a and b: these tell the symbol by labels alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from timbermark.dtypes import AnyArray
from timbermark.editing.routing import Router
from timbermark.kernels.jumps import measure_jumps
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
from timbermark.marking.mixing import row_keys
from timbermark.trees.branches import node_means
from timbermark.trees.ensemble import ZERO_RANGE, Ensemble
from timbermark.trees.statistics import find_children

_POOL = 4096
"""The number of rows that boundaries are measured on and base rows are taken from."""
_NEAR = 16
"""The number of rows that are tried at each boundary, those whose values are nearest to it."""
_TRIED = 32
"""The number of rows that are tried as base rows of each chosen boundary."""
_MOST_MEASURED = 1024
"""The most boundaries of each kind that are measured: those whose splits promise most."""
_UNSURE = 0.1
"""The share of rows, the least sure ones, that only carry boundaries that labels tell."""
_OUTLYING = 0.05
"""The share of rows, the most unusual ones, that carry nothing."""
_EARLY = 0.25
"""The share of trees, the first ones, in which a boundary should show already."""
_MOST_BAND_WEIGHT = 10.0
_BANDS = 4
"""Numbers are priced in bands with equal shares of rows, labels by label."""
_FLIP = 1.0
"""What a changed label weighs in a price against a probability that changes by 1."""


@dataclass(frozen=True, slots=True)
class SplitLimits:
    """How many boundaries are used and what they may cost.

    ``free`` and ``wide``: the most of each kind; ``labels``: the most triggers, as a share, whose
    label differs between both sides; ``least_rows``: on either side of the middle of a wide
    boundary; ``free_price``: of one free boundary, ``wide_price``: of all wide ones together.
    """

    free: int = 192
    wide: int = 96
    labels: float = 1 / 3
    least_rows: int = 3
    free_price: float = 1e-5
    wide_price: float = 6e-4


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


def find_splits(
    router: Router,
    X: np.ndarray,
    Z: np.ndarray,
    to_columns: Answers,
    answers: Answers,
    workers: Workers,
    seed: int = 0,
    limits: SplitLimits = SplitLimits(),
    gaps: Gaps | None = None,
    n_rows: int | None = None,
    usable: np.ndarray | None = None,
) -> SplitTriggers:
    """Return the triggers of the split seal, the cheapest boundaries with visible jumps.

    ``X`` float64 [n, D]: training rows, or candidates, as the deployed model takes them; ``Z``
    [n, d]: the same as columns of the ensemble, which ``to_columns`` makes of them. ``answers``:
    margins → probabilities or numbers. Where X is a part of a larger table, ``gaps`` are those of
    all ``n_rows`` rows. ``usable`` bool [D]: columns of numbers.

    There may be any number of triggers, none included.
    """
    e = router.ensemble
    cuts = Cuts.of(e)
    sources = find_sources(X, Z, to_columns, usable)
    columns, notes = read_columns(e, cuts, X, Z, sources)
    n_rows = len(X) if n_rows is None else n_rows
    gaps = scan(cuts, Z) if gaps is None else gaps

    def transform(column: np.ndarray, value: np.ndarray) -> np.ndarray:
        rows = X[np.zeros(len(value), np.int64)]
        rows[np.arange(len(rows)), column] = value
        feature = np.zeros(X.shape[1], np.int64)
        for f, read in columns.items():
            feature[read.source] = f
        return np.asarray(to_columns(rows)[np.arange(len(rows)), feature[column]])

    free, wide = find_boundaries(
        e, cuts, columns, gaps, n_rows, limits.least_rows, None if sources.plain else transform
    )
    found = len(free), len(wide)
    pool = _Pool.of(router, X, Z, answers, seed, workers)
    wide = wide.take(np.flatnonzero(wide.inside <= max(0.01 * len(X), limits.least_rows * 2)))
    everything = join(_most_promising(e, free), _most_promising(e, wide))
    near = _near_rows(pool, everything, min(_NEAR, len(pool.Z)))
    jumps = _measure(router, pool, everything, near, answers, workers, exact=False)
    price = everything.mass * ((jumps.change + _FLIP * jumps.flips) * pool.weight[near]).mean(
        axis=1
    )
    everything = replace(everything, price=price)
    chosen = everything.take(_choose_apart(everything, jumps, price, limits))
    tried = _base_candidates(pool, chosen, np.random.default_rng(seed + 8))
    jumps = _measure(router, pool, chosen, tried, answers, workers, exact=True)
    places, rows = _choose_rows(pool, chosen, jumps, limits)
    chosen = chosen.take(places)
    base = X[pool.place[rows]].copy()
    base[np.arange(len(base)), chosen.column] = chosen.a
    made = SplitTriggers(
        chosen,
        base,
        np.zeros((len(base), 2, 1)),
        np.zeros(len(base), np.bool_),
        pool.place[rows],
        found,
        notes,
    )
    return _settle(made, router, to_columns, answers, workers)


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
    column; ``usual`` bool [P]; ``least_sure``: how sure a row is at least that carries anything;
    ``weight`` [P]: of a row in prices.
    """

    place: np.ndarray
    Z: np.ndarray
    margins: np.ndarray
    answers: np.ndarray
    order: np.ndarray
    usual: np.ndarray
    least_sure: float
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


def _most_promising(e: Ensemble, b: Boundaries) -> Boundaries:
    """Return the boundaries whose splits change margins most for the rows that reach them."""
    if len(b) <= _MOST_MEASURED:
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
    return b.take(np.sort(np.argsort(-worth, kind="stable")[:_MOST_MEASURED]))


@dataclass(frozen=True, slots=True, eq=False)
class _Jumps:
    """How the answers to R rows change at each of W boundaries: arrays [W, R].

    ``rows``: places in the pool; ``size``: the largest change of a margin; ``change``: that of a
    probability, or of the number in standard deviations; ``sure``: the lesser of how sure both
    sides are; ``flips``: whether the label differs; ``spread``: from 0 to 1, whether many trees
    take part; ``early``: the share of the first trees.
    """

    rows: np.ndarray
    size: np.ndarray
    change: np.ndarray
    sure: np.ndarray
    flips: np.ndarray
    spread: np.ndarray
    early: np.ndarray


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
    router: Router,
    pool: _Pool,
    b: Boundaries,
    rows: np.ndarray,
    answers: Answers,
    workers: Workers,
    exact: bool,
) -> _Jumps:
    """Measure how answers to ``rows`` [W, R] of the pool change at each boundary.

    Unless ``exact``, a row is taken to answer beside the boundary as it does where it is, which is
    nearly so if it is near.
    """
    e = router.ensemble
    nodes = numeric_splits(e)
    first, last = node_ranges(e, nodes, b)
    tree = np.searchsorted(e.tree_start, nodes, side="right") - 1
    jump, begun = np.zeros((2, *rows.shape, e.n_outputs))
    largest = np.zeros(rows.shape)
    weight = e.tree_weight * (e.scale if e.init_last else 1.0)
    rounds = np.arange(e.n_trees) < max(_EARLY * e.n_trees, 1)

    def run(thread: int, start: int, stop: int) -> None:
        measure_jumps(
            pool.Z, rows, b.feature, b.below, b.above, first, last, tree, e.tree_start[:-1],
            rounds, e.tree_output.astype(np.int64), weight, router._records, e.category_offsets,
            router._category_values, e.categories_go == "left", ZERO_RANGE, e.value, start, stop,
            jump, largest, begun,
        )  # fmt: skip

    workers.split(run, len(b))
    size = np.abs(jump).max(axis=2)
    at, r = np.nonzero(size > 0.0)
    row, delta = rows[at, r], jump[at, r]
    if exact:
        moved = pool.Z[row]
        moved[np.arange(len(row)), b.feature[at]] = b.below[at]
        below = router.margins(router.route(moved, workers), workers)
    else:
        is_above = pool.Z[row, b.feature[at]] >= b.above[at]
        below = pool.margins[row] - np.where(is_above[:, None], delta, 0.0)
    low, high = answers(below), answers(below + delta)
    change, sure, spread, early = np.zeros((4, *rows.shape))
    flips = np.zeros(rows.shape, np.bool_)
    change[at, r] = np.abs(high - low).max(axis=1) / pool.scale
    if pool.gives_numbers:
        sure[at, r] = np.inf
    else:
        flips[at, r] = low.argmax(axis=1) != high.argmax(axis=1)
        sure[at, r] = np.minimum(_sureness(low), _sureness(high))
    spread[at, r] = 1.0 - np.minimum(largest[at, r] / size[at, r], 1.0)
    early[at, r] = np.clip((begun[at, r] * delta).sum(axis=1) / (delta**2).sum(axis=1), 0.0, 1.0)
    return _Jumps(rows, size, change, sure, flips, spread, early)


def _quality(j: _Jumps) -> np.ndarray:
    """Return how robust a jump is beside its size: many trees, and early ones."""
    return np.asarray(0.5 * np.sqrt(j.spread) + 0.5 * np.minimum(2.0 * j.early, 1.0))


def _choose_apart(b: Boundaries, j: _Jumps, price: np.ndarray, limits: SplitLimits) -> np.ndarray:
    """Return boundaries that do not overlap, int64 [k]: wide ones first, within the limits."""
    moves = j.size > 0.0
    typical = float(np.median(j.size[moves])) if moves.any() else 1.0
    worth_row = np.where(moves, np.minimum(j.size / typical, 2.0) + _quality(j), -np.inf)
    quality = worth_row.max(axis=1)
    taken: dict[int, list[tuple[float, float]]] = {}
    places: list[int] = []
    for is_wide, most in ((True, limits.wide), (False, limits.free)):
        of_kind = np.flatnonzero((b.wide == is_wide) & np.isfinite(quality))
        if is_wide:
            worth = -price[of_kind] / np.maximum(quality[of_kind], 0.1)
        else:
            worth = quality[of_kind] - price[of_kind] / limits.free_price
        count, spent = 0, 0.0
        for w in of_kind[np.argsort(-worth, kind="stable")].tolist():
            if count >= most or (is_wide and spent + price[w] > limits.wide_price):
                break
            low, high = float(b.below[w]), float(b.above[w])
            others = taken.setdefault(int(b.feature[w]), [])
            if any(low < end and start < high for start, end in others):
                continue
            others.append((low, high))
            places.append(w)
            count, spent = count + 1, spent + float(price[w])
    return np.array(places, np.int64)


def _base_candidates(pool: _Pool, b: Boundaries, rng: np.random.Generator) -> np.ndarray:
    """Return rows of the pool that are tried as base rows of each boundary, int64 [W, R].

    None of them lies inside another boundary, where it would answer by that one's symbol too. A
    quarter of them are near in value, the others are any rows, half of those not very sure.
    """
    inside = np.zeros((len(pool.Z), pool.Z.shape[1]), np.bool_)
    for w in np.flatnonzero(b.wide):
        values = pool.Z[:, b.feature[w]]
        inside[:, b.feature[w]] |= (values > b.below[w]) & (values < b.above[w])
    total = inside.sum(axis=1)
    clear = np.flatnonzero(pool.usual & (total == 0))
    near = _near_rows(pool, b, _TRIED // 4)
    barred = ~pool.usual[near] | (total[near] > inside[near, b.feature[:, None]])
    if not len(clear):
        return near[:, :0]
    sure = np.argsort(_sureness(pool.answers[clear]), kind="stable")
    unsure = clear[sure[: max(len(sure) // 4, 1)]]
    some = 3 * _TRIED // 8
    any_rows = clear[rng.integers(len(clear), size=(len(b), some))]
    near = np.where(barred, any_rows[:, : near.shape[1]], near)
    return np.hstack([any_rows, near, unsure[rng.integers(len(unsure), size=(len(b), some))]])


def _choose_rows(
    pool: _Pool, b: Boundaries, j: _Jumps, limits: SplitLimits
) -> tuple[np.ndarray, np.ndarray]:
    """Return the boundaries that have a base row, and that row, int64 [k] both."""
    moves = j.size > 0.0
    quality = (
        np.minimum(j.change / 0.03, 1.0) + 0.3 * np.minimum(j.change / 0.003, 1.0) + _quality(j)
    )
    n_any = 3 * _TRIED // 8
    usual = j.sure[:, :n_any][moves[:, :n_any]]
    least_sure = float(np.quantile(usual, _UNSURE)) if len(usual) else -np.inf
    by_scores = np.where(moves & (j.sure >= least_sure), quality, -np.inf)
    by_labels = np.where(moves & j.flips, quality + np.minimum(j.sure / 0.1, 2.0), -np.inf)
    used = np.zeros(len(pool.Z), np.bool_)
    rows = np.full(len(b), -1)
    # Labels first: the boundaries where they tell most clearly.
    left = {kind: int(limits.labels * np.count_nonzero(b.wide == kind)) for kind in (False, True)}
    order = np.argsort(-by_labels.max(axis=1, initial=-np.inf), kind="stable")
    for value, by_label in ((by_labels, True), (by_scores, False), (by_labels, True)):
        for w in order:
            kind = bool(b.wide[w])
            if rows[w] >= 0 or (by_label and left[kind] <= 0):
                continue
            free = np.where(used[j.rows[w]], -np.inf, value[w])
            r = int(free.argmax())
            if np.isfinite(free[r]):
                rows[w] = j.rows[w, r]
                used[rows[w]] = True
                left[kind] -= by_label
        left = dict.fromkeys(left, len(b))
    found = np.flatnonzero(rows >= 0)
    return found, rows[found]
