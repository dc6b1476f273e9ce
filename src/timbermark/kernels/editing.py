"""One round of an edit: every tree in turn gives triggers what is due and undoes what it spilt.

The leaves of one tree share no row, so that the best change of each, all other trees as they are,
is a weighted mean. Going through the trees one after the other is therefore exact coordinate
descent on one convex objective; see `timbermark.editing.leaves`.
"""

import numpy as np

from timbermark.kernels.compile import kernel

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


@kernel
def edit_round(
    leaf, first, order, weight, mass, ridge, most, trigger_leaf, pull, target, drift, shift, change
):
    """Go once through one output's trees and change every leaf to the best value it can have.

    IN leaf uint8|uint16|int32[T, n], of the rows; IN first int64[T + 1]: where each tree's leaves
    begin; IN order int64[T]: the trees in the order of this round; IN weight float64[n], mass
    float64[leaves]: how much each row counts, and their sums; IN ridge float64[leaves]: what holds
    a leaf at its old value; IN most float64[leaves]: how far a leaf may move; IN trigger_leaf as leaf, [T, k]; IN pull float64[k]: how much each
    trigger counts, 0 where nothing is asked of it; IN target float64[k]: how far it shall move;
    INOUT drift float64[n], shift float64[k]: how far rows and triggers have moved; INOUT change
    float64[leaves]: how far leaves have.
    """
    n, k = leaf.shape[1], trigger_leaf.shape[1]
    size = 0
    for t in range(leaf.shape[0]):
        size = max(size, first[t + 1] - first[t])
    above, below, moved = np.zeros(size), np.empty(size), np.zeros(size)
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
            above[j] = above[j] / UNIT - ridge[a + j] * change[a + j]
            below[j] = mass[a + j] + ridge[a + j]
        for i in range(k):
            if pull[i] > 0.0:
                j = trigger_leaf[t, i]
                above[j] += pull[i] * (target[i] - shift[i])
                below[j] += pull[i]
        for j in range(b - a):
            before_move = change[a + j]
            after_move = before_move + (above[j] / below[j] if below[j] > 0.0 else 0.0)
            after_move = min(max(after_move, -most[a + j]), most[a + j])
            moved[j] = after_move - before_move
            change[a + j] = after_move
        for i in range(k):
            shift[i] += moved[trigger_leaf[t, i]]
        before = t
    if before >= 0:
        there = leaf[before]
        for i in range(n):
            drift[i] += moved[there[i]]
