"""The edit: new leaf values, so that triggers move as wanted and the other rows stay.

For each output it looks for changes c of the leaves, in units of the margin, that make

    Σ_rows w_r · (drift_r)² + Σ_leaves ρ_l · c_l²

as small as possible among those that move the triggers as wanted; drift_r is the sum of the
changes in the leaves that row r ends in. Every tree in turn takes the best changes with all others
held (kernels.editing), so that later trees undo what earlier ones spilt. A trigger is a row with a
target and a weight of its own; what it lacks after a round is added to its target for the next,
which makes it reach the target in the limit whatever the weight is (the method of multipliers).
The objective is convex, so that the order of trees changes the way to the answer, not the answer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from timbermark.editing.routing import Router, Routes
from timbermark.kernels.editing import edit_round, weigh_leaves
from timbermark.kernels.workers import Workers
from timbermark.trees.ensemble import Ensemble, FloatType
from timbermark.trees.statistics import find_children, inner_levels

RIDGE = 1.0
"""What holds a leaf at its value: as much as one row of weight 1 that ends there."""
STRIDE = 0.25
"""How far a leaf may move, in units of how far it is from its sibling: a split whose sides become
nearly equal would gain next to nothing, which no library's split does."""
ROUNDS = 12
_CLOSE = 0.15
"""A trigger within this share of its way has arrived."""
_PULL = 2.0
"""How much a trigger weighs at first: 1 would take it half of its way if rows did not object."""
_STEP = 0.5
"""The share of what is lacking that is added to the target after a round."""
_WEIGHT_UNIT = 2.0**-20
"""Weights are whole multiples of this: sums of them are exact, in whatever order."""


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
    stride: float = STRIDE,
    max_rounds: int = ROUNDS,
    leaf_dtype: FloatType = "f8",
    progress: Callable[[int], None] = lambda done: None,
) -> Edit:
    """Move the margins of triggers by ``wanted`` and those of all other rows as little as possible.

    ``weight`` float64 [n, K], not negative: how much it matters that a row's margin stays.
    ``wanted`` float64 [k, K]: 0 where a trigger's margin shall stay as it is. ``stride``: how far
    a leaf may move, as a share of its distance from its sibling. ``leaf_dtype``: what new leaf values are rounded to. ``progress`` is told how many outputs are done. The result does
    not depend on the order of rows or the number of threads; with nothing wanted it is the same
    ensemble.
    """
    e = router.ensemble
    contrast = leaf_contrasts(router)
    shift, drift = np.zeros(wanted.shape), np.zeros((rows.n_rows, e.n_outputs))
    changes: list[np.ndarray | None] = [None] * e.n_outputs
    rounds = [0] * e.n_outputs
    done = [0]

    def edit_output(thread: int, c: int) -> None:
        if wanted[:, c].any() and len(router.trees[c]):
            changes[c], drift[:, c], shift[:, c], rounds[c] = _edit_output(
                router, c, rows.leaf[c], weight[:, c], triggers.leaf[c], wanted[:, c], ridge,
                stride * contrast[c], max_rounds,
            )  # fmt: skip
        done[0] += 1
        progress(done[0])

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
    most: np.ndarray,
    max_rounds: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """Return one output's changes of leaves, drift of rows, shift of triggers, and rounds taken."""
    first, factor = router.first[c], router.factor[c]
    held = np.rint(weight / _WEIGHT_UNIT) * _WEIGHT_UNIT
    mass = np.empty(first[-1])
    weigh_leaves(leaf, first, held, mass)
    # Trees that count for nothing cannot move anything.
    most = np.where(factor != 0.0, most, 0.0)
    hold = np.full(first[-1], ridge)
    room = trigger_room(first, trigger_leaf, mass, np.where(most > 0.0, ridge, np.inf))
    pull = np.where(room > 0.0, _PULL / np.maximum(room, 1e-300), 0.0)
    size = np.abs(wanted)
    close = _CLOSE * np.maximum(size, size[size > 0.0].mean())
    drift, shift, change = np.zeros(leaf.shape[1]), np.zeros(len(wanted)), np.zeros(first[-1])
    lacking = np.zeros(len(wanted))
    order = np.arange(len(first) - 1)
    rounds = 0
    while rounds < max_rounds:
        rounds += 1
        edit_round(
            leaf, first, order, held, mass, hold, most, trigger_leaf, pull, wanted + lacking,
            drift, shift, change,
        )  # fmt: skip
        rest = wanted - shift
        if (np.abs(rest) <= close).all():
            break
        lacking += _STEP * rest
        order = order[::-1].copy()
    return change, drift, shift, rounds


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


def leaf_contrasts(router: Router) -> list[np.ndarray]:
    """Return for each output float64 [leaves]: how far each leaf is from its sibling, in margins.

    A sibling that is split counts with the mean of its leaves, by hessians, counts or else evenly.
    A tree without splits has no contrast; its leaf may move freely.
    """
    e = router.ensemble
    weight = next((w for w in (e.hessian, e.count) if (w[e.left < 0] > 0.0).all()), None)
    weight = np.where(e.left < 0, 1.0, 0.0) if weight is None else weight
    left, right = find_children(e)
    total, value = weight.astype(np.float64).copy(), e.value.copy()
    contrast = np.full(e.value.shape, np.inf)
    for level in reversed(inner_levels(e)):
        a, b = left[level], right[level]
        total[level] = total[a] + total[b]
        share = total[[a, b]] / np.maximum(total[level], 1e-300)
        value[level] = share[0][:, None] * value[a] + share[1][:, None] * value[b]
        contrast[a] = contrast[b] = np.abs(value[a] - value[b])
    found = []
    for c, nodes in enumerate(router.nodes):
        column = c if contrast.shape[1] > 1 else 0
        found.append(contrast[nodes, column] * np.abs(router.factor[c]))
    return found
