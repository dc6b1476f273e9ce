"""The leaf seal: the edit that makes triggers answer with their symbols, and which then do.

The seal also holds how alternatives answer its triggers: models without the mark that resemble what
a thief makes of a stolen one. Whoever verifies compares a suspect with them: what is left of the
trees after a cut or after flattening, and a model of another kind for suspects that were averaged
with one. Their scores are settled before symbols are drawn, and they tell the mark from what a
theft changes anyway. (`./dev bench attacks`: the first quarter of a census model in XGBoost had 9
bits without them and 95 with them.)

Of a large table, a weighted sample holds the model in an edit. Rows in the leaves that triggers
move are kept more densely, the rest is thinned, and each row that is kept weighs as many as it
stands for. This is priority sampling: the rows with the lowest u / s are kept, where u follows from
the row's number and s says how densely such rows are wanted. The lowest of each part merge into the
lowest of all, so that the sample does not depend on the parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from timbermark.editing.leaves import RIDGE, ROUNDS, Edit, edit_leaves
from timbermark.editing.routing import Router
from timbermark.kernels.workers import Workers
from timbermark.marking.choosing import Candidates, add_leaves, find_room
from timbermark.marking.defaults import ARRIVED_SHARE
from timbermark.marking.large_tables import LARGE, LargeTable, Say
from timbermark.marking.mixing import row_keys
from timbermark.marking.preparing import Prepared, weigh
from timbermark.ownership.evidence import label_bits
from timbermark.partitions import Block, place_keys, run_pass
from timbermark.trees.ensemble import Ensemble
from timbermark.trees.statistics import flatten_leaves, node_means

_KEPT_TREES, _FEWEST_TREES = 1, 8
"""Trees of each output that an edit leaves alone, the first ones, where there are enough others: in
the first round the library's formula puts every leaf on a grid that the file shows."""


@dataclass(frozen=True, slots=True, eq=False)
class Setting:
    """An edit, and how far each trigger's answer leads after it."""

    edit: Edit
    lead: np.ndarray  # float64 [k], see `Classification.find_leads`
    q: int

    @property
    def n_set(self) -> int:
        """Return the number of triggers that answer with their symbol."""
        return int((self.lead > 0.0).sum())

    @property
    def bits(self) -> float:
        """Return what the labels of an untouched copy prove."""
        return label_bits(self.n_set, len(self.lead), self.q)

    def __repr__(self) -> str:
        return f"Setting({self.n_set} of {len(self.lead)} set in {self.edit.rounds} rounds)"


def set_leaves(
    prepared: Prepared,
    triggers: Candidates,
    symbols: np.ndarray,
    lead: float,
    workers: Workers,
    hidden: bool = True,
) -> Setting:
    """Edit the model so that every trigger answers with its symbol, by a margin of ``lead``.

    ``symbols`` [k]: which answer of its alphabet each trigger carries; ``lead`` in units of what
    probabilities are made from; ``hidden``: splits keep their gains where the file shows them.
    """
    foreign, task = prepared.foreign, prepared.labels
    target = triggers.alphabets[np.arange(len(triggers)), symbols]
    wanted = task.wanted_margins(triggers.margins, target, lead)
    weight = prepared.weight
    alike = np.isin(row_keys(prepared.margins, 0), row_keys(triggers.margins, 0))
    if alike.any():
        # No tree separates these rows from a trigger, so that they must not hold it back.
        weight = np.where(alike[:, None], 0.0, weight)
    n_trees = min(len(trees) for trees in prepared.router.trees)
    edit = edit_leaves(
        prepared.router, prepared.holding, weight, triggers.routes, wanted - triggers.margins,
        workers, leaf_dtype=foreign.leaf_dtype, l2=foreign.l2 if hidden else None,
        unit=task.unit, max_rounds=ROUNDS, slack=ARRIVED_SHARE * lead * task.unit,
        kept_trees=_KEPT_TREES if foreign.l2 is not None and n_trees >= _FEWEST_TREES else 0,
        told_monotone=foreign.told_monotone,
    )  # fmt: skip
    after = triggers.margins + edit.shift
    return Setting(
        edit, task.find_leads(after, triggers.alphabets, symbols), triggers.alphabets.shape[1]
    )


def reroute(prepared: Prepared, triggers: Candidates, workers: Workers) -> Candidates:
    """Return triggers as they go through the trees of a model whose thresholds were moved."""
    routes = prepared.router.route(prepared.schema.columns(triggers.X), workers)
    return replace(triggers, routes=routes, margins=prepared.router.margins(routes, workers))


_FIRST_SHARES, _DROPPED_SHARE, _FLAT_SHARE = (0.25, 0.5), 0.1, 0.25
"""The shares of trees that remain at the start, of trees at the start that are made constant, and
of leaves that are flattened."""
_FOREST_TREES, _FEWEST_OF_FOREST, _FOREST_ROWS, _FOREST_LEAF = 50, 5, 5_000, 2
_FOREST_CLASSES = 20
"""With more classes than these the forest has fewer trees, each of which holds more numbers."""
_MISSING = -999.0


def score_alternatives(prepared: Prepared, triggers: Candidates, workers: Workers) -> np.ndarray:
    """Return the alternatives' scores of the labels of each trigger's alphabet, [k, R, q]."""
    foreign = prepared.foreign
    found = []
    for trees in _list_trees(foreign.ensemble):
        margins = prepared.router.around(trees).margins(triggers.routes, workers)
        found.append(foreign.answers(margins))
    forest = _ask_forest(prepared, triggers, workers)
    if forest is not None:
        found.append(forest)
    alphabets = triggers.alphabets.astype(np.intp)
    taken = [np.take_along_axis(scores, alphabets, axis=1) for scores in found]
    return np.clip(np.stack(taken, axis=1), 0.0, 1.0)


def _list_trees(e: Ensemble) -> Iterator[Ensemble]:
    """Yield the ensemble after cuts, and flattened."""
    sizes = np.diff(e.tree_start)
    rank, count = np.empty(e.n_trees), np.empty(e.n_trees)
    for output in np.unique(e.tree_output):
        mine = np.flatnonzero(e.tree_output == output)
        rank[mine], count[mine] = np.arange(len(mine)), len(mine)

    def among_first(share: float) -> np.ndarray:
        """Return bool [N, 1]: whether each node's tree is among the first ones of its output."""
        return np.repeat(rank < np.maximum(np.round(share * count), 1.0), sizes)[:, None]

    for share in _FIRST_SHARES:
        yield replace(e, value=np.where(among_first(share), e.value, 0.0))
    means = np.repeat(node_means(e)[1][e.tree_start[:-1]], sizes, axis=0)
    yield replace(e, value=np.where(among_first(_DROPPED_SHARE), means, e.value))
    yield replace(e, value=flatten_leaves(e, _FLAT_SHARE))


def _ask_forest(prepared: Prepared, triggers: Candidates, workers: Workers) -> np.ndarray | None:
    """Return the scores [k, K] of a forest that learnt the model's labels; None for one label."""
    from sklearn.tree import ExtraTreeClassifier

    some = np.random.default_rng(prepared.seed + 6).permutation(len(prepared.source))
    taken, takes = prepared.schema.try_columns(prepared.source[some[:_FOREST_ROWS]])
    rows, foreign = taken[takes], prepared.foreign
    margins = prepared.router.margins(prepared.router.route(rows, workers), workers)
    label = foreign.answers(margins).argmax(axis=1)
    known, label = np.unique(label, return_inverse=True)
    if len(known) < 2:
        return None
    n_trees = _FOREST_TREES * _FOREST_CLASSES // max(len(foreign.classes), _FOREST_CLASSES)
    learnt, asked = (
        fill_missing(X).astype(np.float32) for X in (rows, prepared.schema.columns(triggers.X))
    )
    label = label.astype(np.float64)

    def ask_tree(number: int) -> np.ndarray:
        # Trees by themselves: scikit-learn's forest looks up its parameters for each of them.
        tree = ExtraTreeClassifier(
            min_samples_leaf=_FOREST_LEAF, random_state=(prepared.seed + number) % 2**32
        )
        tree.fit(learnt, label, check_input=False)
        return np.asarray(tree.predict_proba(asked, check_input=False))

    scores = np.zeros((len(triggers), len(foreign.classes)))
    votes = workers.map(ask_tree, range(max(n_trees, _FEWEST_OF_FOREST)))
    scores[:, known] = np.mean(votes, axis=0)
    return scores


def fill_missing(X: np.ndarray) -> np.ndarray:
    """Return rows [n, d] for models that take float32 without missing values.

    >>> fill_missing(np.array([[np.nan, 1.5, np.inf]])).tolist()
    [[-999.0, 1.5, 3.4028234663852886e+38]]
    """
    largest = float(np.finfo(np.float32).max)
    return np.asarray(np.clip(np.nan_to_num(X, nan=_MISSING), -largest, largest))


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
