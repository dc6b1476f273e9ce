"""One round of an edit: every tree in turn gives triggers what is due and undoes what it spilt.

The leaves of one tree share no row, so that the best change of each, all other trees as they are,
is a weighted mean. Going through the trees one after the other is therefore coordinate descent on
one convex objective; see `timbermark.editing.leaves`.
"""

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


@kernel
def edit_round(
    leaf, first, order, weight, mass, ridge, splits, split_first, value, firm, trigger_leaf, pull,
    target, drift, shift, change,
):  # fmt: skip
    """Go once through one output's trees and change every leaf to the best value it can have.

    IN leaf uint8|uint16|int32[T, n], of the rows; IN first int64[T + 1]: where each tree's leaves
    begin; IN order int64[T]: the trees in the order of this round; IN weight float64[n], mass
    float64[leaves]: how much each row counts, and their sums; IN ridge float64[leaves]: what holds
    each leaf at its old value, infinite: it does not move; IN splits SPLIT[s], split_first
    int64[T + 1], value, firm float64[leaves]: see `part_sides`; IN trigger_leaf as leaf, [T, k];
    IN pull float64[k]: how much each trigger counts, 0 where nothing is asked of it; IN target
    float64[k]: how far it shall move; INOUT drift float64[n], shift float64[k]: how far rows and
    triggers have moved; INOUT change float64[leaves]: how far leaves have.
    """
    n, k = leaf.shape[1], trigger_leaf.shape[1]
    size = 1
    for t in range(leaf.shape[0]):
        size = max(size, first[t + 1] - first[t])
    above, below, moved = np.zeros(size), np.zeros(size), np.zeros(size)
    before_parting, parted = np.zeros(size), np.zeros(size)
    g, sums, off = np.zeros(size), np.zeros(size), np.zeros((size, 2))
    before = -1
    for t in order:
        a, b = first[t], first[t + 1]
        above[: b - a] = 0.0
        here = leaf[t]
        # The last tree's change is added to the drift on the way: one pass per tree, not two.
        if before >= 0:
            there = leaf[before]
            for i in range(n):
                d = drift[i] + moved[there[i]]
                drift[i] = d
                above[here[i]] -= np.rint(UNIT * weight[i] * d)
        else:
            for i in range(n):
                above[here[i]] -= np.rint(UNIT * weight[i] * drift[i])
        for j in range(b - a):
            below[j] = mass[a + j] + ridge[a + j]
            above[j] = above[j] / UNIT
            if below[j] < np.inf:
                above[j] -= ridge[a + j] * change[a + j]
        for i in range(k):
            if pull[i] > 0.0:
                j = trigger_leaf[t, i]
                above[j] += pull[i] * (target[i] - shift[i])
                below[j] += pull[i]
        for j in range(b - a):
            moved[j] = above[j] / below[j] if below[j] > 0.0 else 0.0
        if split_first[t] < split_first[t + 1]:
            for j in range(b - a):
                before_parting[j] = value[a + j] + change[a + j] + moved[j]
                parted[j] = before_parting[j]
            part_sides(
                splits, split_first[t], split_first[t + 1], firm[a:b], parted, g, sums, off
            )  # fmt: skip
            for j in range(b - a):
                moved[j] += parted[j] - before_parting[j]
        for j in range(b - a):
            change[a + j] += moved[j]
        for i in range(k):
            shift[i] += moved[trigger_leaf[t, i]]
        before = t
    if before >= 0:
        there = leaf[before]
        for i in range(n):
            drift[i] += moved[there[i]]
