"""One round of an edit: every tree in turn gives triggers what is due and undoes what it spilt.

The leaves of one tree share no row, so that the best change of each, all other trees as they are,
is a weighted mean. Going through the trees one after the other is therefore coordinate descent on
one convex objective; see `timbermark.editing.leaves`.
"""

from typing import Any, NamedTuple

import numpy as np

from timbermark.kernels.compile import kernel, part

UNIT = 2.0**32
"""Products are rounded to whole parts of this, so that their sums do not depend on the order."""


@kernel
def weigh_leaves(leaf, first, weight, out):
    """Add up the weights of the rows in each leaf of one output's trees.

    IN leaf uint8|uint16|int32[T, n]; IN first int64[T + 1]; IN weight float64[n]; OUT out
    float64[leaves].
    """
    for t in range(leaf.shape[0]):
        sums = out[first[t] : first[t + 1]]
        sums[:] = 0.0
        here = leaf[t]
        for i in range(here.shape[0]):
            sums[here[i]] += weight[i]


SPLIT = np.dtype(
    [
        ("left", np.int64),  # a leaf's number within the tree, or ~ the number of a split of it
        ("right", np.int64),
        ("firm", np.float64),  # the sum of hessians plus what regularizes it
        ("floor", np.float64),  # what the split must gain
        ("ceiling", np.float64),  # and what it may
    ]
)
_PASSES = 3


class Leaves(NamedTuple):
    """The leaves of one output's trees, tree after tree."""

    first: Any  # int64[T + 1], where each tree's leaves begin
    mass: Any  # float64[leaves], the weights of the rows in each
    ridge: Any  # float64[leaves], what holds each at its old value; infinite: it does not move
    change: Any  # float64[leaves], INOUT: how far each has moved


class HeldRows(NamedTuple):
    """Rows that shall stay where they are."""

    leaf: Any  # uint8|uint16|int32[T, n], the leaf of each within its tree
    weight: Any  # float64[n], how much each counts
    drift: Any  # float64[n], INOUT: how far each has moved


class PulledRows(NamedTuple):
    """Triggers, which shall move."""

    leaf: Any  # as that of HeldRows, [T, k]
    pull: Any  # float64[k], how much each counts, 0 where nothing is asked of it
    target: Any  # float64[k], how far each shall move
    shift: Any  # float64[k], INOUT: how far each has moved


class GainLimits(NamedTuple):
    """What the gains that a file shows ask of the splits; no splits: nothing."""

    splits: Any  # SPLIT[s], children before their parents
    first: Any  # int64[T + 1], where each tree's splits begin
    value: Any  # float64[leaves], as they were
    firm: Any  # float64[leaves], sums of hessians plus what regularizes them


@part
def part_sides(splits, start, stop, firm, value, g, below, off):
    """Move the sides of a tree's splits that would gain less than they must or more than they may.

    A node's gradient G is the sum over its leaves of value times ``firm``; a split gains G²/firm of
    its sides, less its own. The sides move so that G of the split, and with it all above, stays:
    then the gain is κ·D² plus a constant, with D the difference of the sides and κ the product of
    their firms over the sum. D keeps the sign that it has. IN splits SPLIT[s], of which ``start``
    to ``stop`` are the tree's, children before their parents; IN firm, INOUT value
    float64[leaves of the tree]; g, below float64[splits], off float64[splits, 2]: scratch space.
    """
    for _ in range(_PASSES):
        wrong = 0
        for s in range(start, stop):
            a, b = splits[s]["left"], splits[s]["right"]
            left = value[a] * firm[a] if a >= 0 else g[~a]
            right = value[b] * firm[b] if b >= 0 else g[~b]
            firm_left = firm[a] if a >= 0 else splits[start + ~a]["firm"]
            firm_right = firm[b] if b >= 0 else splits[start + ~b]["firm"]
            leaves_left = firm[a] if a >= 0 else below[~a]
            leaves_right = firm[b] if b >= 0 else below[~b]
            own = s - start
            g[own] = left + right
            below[own] = leaves_left + leaves_right
            off[own, 0] = 0.0
            off[own, 1] = 0.0
            gain = left * left / firm_left + right * right / firm_right
            gain -= (left + right) * (left + right) / splits[s]["firm"]
            bound = min(max(gain, splits[s]["floor"]), splits[s]["ceiling"])
            if bound != gain:
                kappa = firm_left * firm_right / (firm_left + firm_right)
                apart = left / firm_left - right / firm_right
                wanted = np.sqrt(max(apart * apart + (bound - gain) / kappa, 0.0))
                moved = kappa * (wanted - apart if apart >= 0.0 else -wanted - apart)
                off[own, 0] = moved / leaves_left
                off[own, 1] = -moved / leaves_right
                wrong += 1
        if wrong == 0:
            return
        for s in range(stop - 1, start - 1, -1):
            for side in range(2):
                child = splits[s]["left"] if side == 0 else splits[s]["right"]
                move = off[s - start, side]
                if move == 0.0:
                    continue
                if child >= 0:
                    value[child] += move
                else:
                    off[~child, 0] += move
                    off[~child, 1] += move


@part
def push_back(t, before, moved, rows, above):
    """Sum up, for each leaf of tree ``t``, how far its rows must move to be back in their place.

    The change that the tree ``before`` made is added to their drift on the way: one pass per tree,
    not two. OUT above float64[leaves of the tree], in parts of UNIT.
    """
    here, weight, drift = rows.leaf[t], rows.weight, rows.drift
    above[:] = 0.0
    if before >= 0:
        there = rows.leaf[before]
        for i in range(drift.shape[0]):
            d = drift[i] + moved[there[i]]
            drift[i] = d
            above[here[i]] -= np.rint(UNIT * weight[i] * d)
    else:
        for i in range(drift.shape[0]):
            above[here[i]] -= np.rint(UNIT * weight[i] * drift[i])


@kernel
def edit_round(order, leaves, rows, triggers, limits):
    """Go once through one output's trees and change every leaf to the best value it can have.

    IN order int64[T]: the trees in the order of this round; leaves Leaves; rows HeldRows; triggers
    PulledRows; IN limits GainLimits.
    """
    first, mass, ridge, change = leaves.first, leaves.mass, leaves.ridge, leaves.change
    pull, target, shift = triggers.pull, triggers.target, triggers.shift
    size = 1
    for t in range(rows.leaf.shape[0]):
        size = max(size, first[t + 1] - first[t])
    above, below, moved = np.zeros(size), np.zeros(size), np.zeros(size)
    before_parting, parted = np.zeros(size), np.zeros(size)
    g, sums, off = np.zeros(size), np.zeros(size), np.zeros((size, 2))
    before = -1
    for t in order:
        a, b = first[t], first[t + 1]
        push_back(t, before, moved, rows, above[: b - a])
        for j in range(b - a):
            below[j] = mass[a + j] + ridge[a + j]
            above[j] = above[j] / UNIT
            if below[j] < np.inf:
                above[j] -= ridge[a + j] * change[a + j]
        for i in range(pull.shape[0]):
            if pull[i] > 0.0:
                j = triggers.leaf[t, i]
                above[j] += pull[i] * (target[i] - shift[i])
                below[j] += pull[i]
        for j in range(b - a):
            moved[j] = above[j] / below[j] if below[j] > 0.0 else 0.0
        start, stop = limits.first[t], limits.first[t + 1]
        if start < stop:
            for j in range(b - a):
                before_parting[j] = limits.value[a + j] + change[a + j] + moved[j]
                parted[j] = before_parting[j]
            part_sides(limits.splits, start, stop, limits.firm[a:b], parted, g, sums, off)
            for j in range(b - a):
                if below[j] < np.inf:
                    moved[j] += parted[j] - before_parting[j]
        for j in range(b - a):
            change[a + j] += moved[j]
        for i in range(pull.shape[0]):
            shift[i] += moved[triggers.leaf[t, i]]
        before = t
    if before >= 0:
        there = rows.leaf[before]
        for i in range(rows.drift.shape[0]):
            rows.drift[i] += moved[there[i]]
