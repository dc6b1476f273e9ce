"""The edit: new leaf values, so that triggers move as wanted and the other rows stay.

For each output it looks for changes c of the leaves, in units of the margin, that make

    Σ_rows w_r · (drift_r)² + Σ_leaves ρ_l · c_l²

as small as possible among those that move the triggers as wanted; drift_r is the sum of the changes
in the leaves that row r ends in. Every tree in turn takes the best changes with all others held
(kernels.editing), so that later trees undo what earlier ones spilt. A trigger is a row with a
target and a weight of its own; what it lacks after a round is added to its target for the next,
which makes it reach the target in the limit whatever the weight is (the method of multipliers). The
objective is convex, so that the order of trees changes the way to the answer, not the answer.

An edit must keep the gains of splits, so that a file does not reveal it. A library splits only
where the gain is positive, and its file states the gain. Splits that gain next to nothing would
reveal an edit. So a leaf is held the more firmly, the less it differs from the other side of its
split, and the gain of a split may neither fall below a part of what it was nor grow much above it.
Where a file holds no gains, there is nothing to check, and leaves may move freely.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from timbermark.editing.routing import Router, Routes
from timbermark.kernels.editing import (
    SPLIT,
    GainLimits,
    HeldRows,
    Leaves,
    PulledRows,
    edit_round,
    weigh_leaves,
)
from timbermark.kernels.routing import add_leaf_values
from timbermark.kernels.workers import Workers
from timbermark.trees.ensemble import Ensemble, FloatType
from timbermark.trees.statistics import find_children, inner_levels

SHYNESS = 0.1
"""The penalty on a leaf, in rows of weight 1, for a change as large as the distance between the
sides of its split."""
_LOWEST, _PART = 0.95, 1.0 / 3.0
"""A split must keep the first share of the gain of its tree's weakest split, and the second of its
own gain: the smallest gains of a tree reveal an edit first (benchmarks/hiding.py)."""
_MOST = 1.7
"""The factor by which a gain may grow: larger gains change the order in which a tree was grown.
Edited LightGBM trees are told with .67 without this limit, .63 with 3, .60 with 1.7 (nine
models)."""
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class Gains:
    """The splits of one output's trees, children before their parents, and its leaves.

    ``splits`` SPLIT [s]; ``first`` int64 [T + 1]: where each tree's splits begin; ``value``,
    ``firm``, ``hold`` float64 [leaves]: what each leaf adds to the margin, its hessian plus ``l2``,
    and what holds it at its value.
    """

    splits: np.ndarray
    first: np.ndarray
    value: np.ndarray
    firm: np.ndarray
    hold: np.ndarray


def limit_gains(router: Router, l2: float | None, unit: float = 1.0) -> list[Gains]:
    """Return for each output what its splits must gain and what holds its leaves.

    ``l2``: what regularizes hessians; None: the file shows no gains, and nothing is limited.
    ``unit``: a change of the margin that matters.
    """
    if l2 is None:
        return [_no_limits(router, c) for c in range(len(router.trees))]
    e = router.ensemble
    nodes = _Nodes.count(e, l2)
    left, right, firm, owner = nodes.left, nodes.right, nodes.firm, nodes.owner
    found: list[Gains] = []
    for c, trees in enumerate(router.trees):
        leaves, value = router.nodes[c], router.values(c)
        g = np.zeros(e.n_nodes)
        g[leaves] = value * firm[leaves]
        for level in reversed(nodes.levels):
            g[level] = g[left[level]] + g[right[level]]
        mine = nodes.inner[np.isin(owner[nodes.inner], trees)]
        a, b = left[mine], right[mine]
        gain = g[a] ** 2 / firm[a] + g[b] ** 2 / firm[b] - g[mine] ** 2 / firm[mine]
        # If the formula does not reproduce the file's gains, these cannot be used against the edit.
        sound = gain > 0.0
        lowest = np.full(e.n_trees, np.inf)
        np.minimum.at(lowest, owner[mine[sound]], gain[sound])
        floor = np.minimum(np.maximum(_LOWEST * lowest[owner[mine]], _PART * gain), gain)
        splits = np.zeros(len(mine), SPLIT)
        splits["left"], splits["right"] = nodes.place[a], nodes.place[b]
        splits["firm"] = firm[mine]
        splits["floor"] = np.where(sound, (1.0 - _ROUNDING) * floor, -np.inf)
        splits["ceiling"] = np.where(sound, np.maximum(_MOST * gain, floor), np.inf)
        first = np.concatenate([[0], np.cumsum(nodes.n_splits[trees])])
        apart = np.zeros(e.n_nodes)
        apart[a] = apart[b] = np.abs(g[a] / firm[a] - g[b] / firm[b])
        hold = SHYNESS * unit**2 / _square_apart(apart[leaves], router.first[c])
        found.append(Gains(splits, first, value, firm[leaves], hold))
    return found


@dataclass(frozen=True, slots=True, eq=False)
class _Nodes:
    """Every node of an ensemble: its children, its tree, its hessian, its place in the tree."""

    left: np.ndarray
    right: np.ndarray
    levels: list[np.ndarray]
    owner: np.ndarray
    firm: np.ndarray
    inner: np.ndarray  # within a tree the deepest first, so that children come before parents
    place: np.ndarray  # a leaf's number within its tree, ~ the number of a split
    n_splits: np.ndarray

    @classmethod
    def count(cls, e: Ensemble, l2: float) -> _Nodes:
        leaf = e.left < 0
        weights = (w for w in (e.hessian, e.count) if (w[leaf] > 0.0).all())
        weight = next(weights, leaf.astype(np.float64))
        left, right = find_children(e)
        firm = np.where(leaf, weight, 0.0)
        levels = inner_levels(e)
        depth = np.zeros(e.n_nodes, np.int64)
        for number, level in enumerate(levels):
            depth[level] = number
        for level in reversed(levels):
            firm[level] = firm[left[level]] + firm[right[level]]
        owner = np.repeat(np.arange(e.n_trees), np.diff(e.tree_start))
        inner = np.flatnonzero(~leaf)
        inner = inner[np.lexsort((-depth[inner], owner[inner]))]
        before = np.searchsorted(owner[inner], np.arange(e.n_trees + 1))
        place = np.zeros(e.n_nodes, np.int64)
        place[inner] = ~(np.arange(len(inner)) - before[owner[inner]])
        leaves = np.concatenate([[0], np.cumsum(leaf)])
        place[leaf] = (leaves[:-1] - leaves[e.tree_start[owner]])[leaf]
        return cls(left, right, levels, owner, firm + l2, inner, place, np.diff(before))


def _square_apart(apart: np.ndarray, first: np.ndarray) -> np.ndarray:
    """Return the squared distance of each leaf from the other side of its split, above 0."""
    sizes = np.diff(first)
    tree = np.repeat(np.arange(len(sizes)), sizes)
    mean = np.bincount(tree, apart**2, len(sizes)) / np.maximum(sizes, 1)
    return np.asarray(np.maximum(apart**2 + 0.01 * mean[tree], np.finfo(np.float64).tiny))


def _no_limits(router: Router, c: int) -> Gains:
    """Return an output's leaves without any splits that could limit them."""
    value = router.values(c)
    first = np.zeros(len(router.trees[c]) + 1, np.int64)
    return Gains(np.zeros(0, SPLIT), first, value, np.ones(len(value)), np.zeros(len(value)))


RIDGE = 1.0
"""The ridge penalty on the change of a leaf, equal to one row of weight 1 in the leaf."""
ROUNDS = 40
"""Rounds at most. (`./dev bench fidelity`, avila, LightGBM: 296 of 320 symbols are set with 30, 301
with 40 and 304 with 60, which takes a quarter longer.)"""
_STALLED, _PATIENCE = 0.98, 4
"""Rounds end early if this many in a row leave more than this share of what was lacking."""
_CLOSE = 0.15
"""A trigger has arrived if what is lacking is at most this share of the wanted move."""
_PULL = 2.0
"""The first weight of a trigger: without other rows, 1 would move it half of its way."""
_STEP = 0.5
"""The share of what is lacking that is added to the target after a round."""
_WEIGHT_UNIT = 2.0**-20
"""Weights are rounded to multiples of this, so that their sums are exact in any order."""


@dataclass(frozen=True, slots=True, eq=False)
class Edit:
    """An edited ensemble and what became of triggers and rows.

    ``shift`` float64 [k, K]: how far the triggers' margins moved; ``drift`` float64 [n, K]: how far
    the rows' did; ``rounds``: the most rounds that an output took.
    """

    ensemble: Ensemble
    shift: np.ndarray
    drift: np.ndarray
    rounds: int


def edit_leaves(
    router: Router,
    rows: Routes,
    weight: np.ndarray,
    triggers: Routes,
    wanted: np.ndarray,
    workers: Workers,
    *,
    ridge: float = RIDGE,
    l2: float | None = None,
    unit: float = 1.0,
    max_rounds: int = ROUNDS,
    leaf_dtype: FloatType = "f8",
    slack: float = np.inf,
    kept_trees: int = 0,
    told_monotone: bool = False,
) -> Edit:
    """Move the margins of triggers by ``wanted`` and those of all other rows as little as possible.

    ``weight`` float64 [n, K], not negative: how much it matters that a row's margin stays.
    ``wanted`` float64 [k, K]: 0 where a trigger's margin shall stay as it is. ``l2``: what
    regularizes the gains that the file shows, None if it shows none; ``unit``: a change of the
    margin that matters. ``leaf_dtype``: what new leaf values are rounded to.
    ``slack``: how much a trigger that has arrived may lack, at most. ``kept_trees``: the number of
    trees of each output, the first ones, whose leaves stay as they are. ``told_monotone``: whether
    the library was told to keep some feature monotone. The result does not depend
    on the order of rows or the number of threads; with nothing wanted it is the same ensemble.
    """
    e = router.ensemble
    limits = limit_gains(router, l2, unit)
    promised = router.promised(told_monotone)
    shift, drift = np.zeros(wanted.shape), np.zeros((rows.n_rows, e.n_outputs))
    changes: list[np.ndarray | None] = [None] * e.n_outputs
    rounds = [0] * e.n_outputs

    def edit_output(thread: int, c: int) -> None:
        if wanted[:, c].any() and len(router.trees[c]):
            changes[c], drift[:, c], shift[:, c], rounds[c] = _edit_output(
                router, c, rows.leaf[c], weight[:, c], triggers.leaf[c], wanted[:, c], ridge,
                promised[c], limits[c], max_rounds, slack, kept_trees,
            )  # fmt: skip

    workers.drain(edit_output, e.n_outputs)
    value = e.value.copy()
    for c, change in enumerate(changes):
        if change is None:
            continue
        column = c if value.shape[1] > 1 else 0
        moved = np.divide(
            change, router.factor[c], out=np.zeros(len(change)), where=router.factor[c] != 0.0
        )
        new = value[router.nodes[c], column] + moved
        rounded = new.astype(np.float32).astype(np.float64) if leaf_dtype == "f4" else new
        value[router.nodes[c], column] = np.where(
            moved != 0.0, rounded, value[router.nodes[c], column]
        )
    return Edit(replace(e, value=value), shift, drift, max(rounds))


def _edit_output(
    router: Router,
    c: int,
    leaf: np.ndarray,
    weight: np.ndarray,
    trigger_leaf: np.ndarray,
    wanted: np.ndarray,
    ridge: float,
    promised: np.ndarray,
    limits: Gains,
    max_rounds: int,
    slack: float,
    kept_trees: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """Return one output's changes of leaves, drift of rows, shift of triggers, and rounds taken."""
    first = router.first[c]
    held = np.rint(weight / _WEIGHT_UNIT) * _WEIGHT_UNIT
    mass = np.empty(first[-1])
    weigh_leaves(leaf, first, held, mass)
    # Trees with a factor of 0 cannot move a margin, and monotone models stay monotone.
    stays = (router.factor[c] == 0.0) | promised
    hold = np.where(stays, np.inf, ridge + limits.hold)
    kept_trees = min(kept_trees, len(first) - 1)
    hold[: first[kept_trees]] = np.inf
    room = trigger_room(first, trigger_leaf, mass, hold)
    pull = np.where(room > 0.0, _PULL / np.maximum(room, 1e-300), 0.0)
    size = np.abs(wanted)
    close = np.minimum(_CLOSE * np.maximum(size, size[size > 0.0].mean()), slack)
    leaves = Leaves(first, mass, hold, change=np.zeros(first[-1]))
    # Rows that weigh nothing only cost time.
    heavy = np.flatnonzero(held)
    held_rows = HeldRows(
        np.ascontiguousarray(leaf[:, heavy]), held[heavy], drift=np.zeros(len(heavy))
    )
    pulled = PulledRows(trigger_leaf, pull, wanted.copy(), shift=np.zeros(len(wanted)))
    kept = GainLimits(limits.splits, limits.first, limits.value, limits.firm)
    lacking = np.zeros(len(wanted))
    order = np.arange(kept_trees, len(first) - 1)
    rounds, stalled, due = 0, 0, np.inf
    while rounds < max_rounds and stalled < _PATIENCE:
        rounds += 1
        pulled.target[:] = wanted + lacking
        edit_round(order, leaves, held_rows, pulled, kept)
        rest = wanted - pulled.shift
        if (np.abs(rest) <= close).all():
            break
        before, due = due, np.abs(rest).sum()
        stalled = stalled + 1 if due > _STALLED * before else 0
        lacking += _STEP * rest
        order = order[::-1].copy()
    drift = np.zeros(leaf.shape[1])
    if len(heavy) < len(drift):
        add_leaf_values(leaf, 0, len(drift), first, leaves.change, drift)
    drift[heavy] = held_rows.drift
    change = leaves.change
    if len(limits.splits):
        change = _keep_means(change, first, limits.firm, kept_trees)
    return change, drift, pulled.shift, rounds


def _keep_means(
    change: np.ndarray, first: np.ndarray, firm: np.ndarray, kept_trees: int
) -> np.ndarray:
    """Return the changes with the same mean in every tree, so that no tree stands out.

    A tree that boosting made hardly moves the mean of all rows, and its root says by how much. What
    the changes of one tree add to all rows is spread over all trees but the ones that are kept; the
    sum stays.
    """
    sizes = np.diff(first)
    tree = np.repeat(np.arange(len(sizes)), sizes)
    mean = np.bincount(tree, firm * change, len(sizes)) / np.bincount(tree, firm, len(sizes))
    off = mean - mean[kept_trees:].mean() if kept_trees < len(sizes) else mean
    off[:kept_trees] = 0.0
    return np.asarray(change - off[tree])


def trigger_room(
    first: np.ndarray, trigger_leaf: np.ndarray, mass: np.ndarray, ridge: float | np.ndarray
) -> np.ndarray:
    """Return float64 [k]: how easily each trigger moves, Σ over trees of 1 / (mass + ridge).

    A trigger that ends in leaves with few rows has much room. ``first`` int64 [T + 1],
    ``trigger_leaf`` [T, k], ``mass`` float64 [leaves].

    >>> leaf = np.array([[0, 1]], np.uint8)
    >>> trigger_room(np.array([0, 2]), leaf, np.array([1.0, 3.0]), 1.0)
    array([0.5 , 0.25])
    """
    ease = 1.0 / (mass + ridge)
    room = np.zeros(trigger_leaf.shape[1])
    for t in range(trigger_leaf.shape[0]):
        room += ease[first[t] + trigger_leaf[t]]
    return room
