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
        ("least", np.float64),  # what the split may gain after the edit
        ("most", np.float64),
        ("share", np.float64),  # of the left side in the mean of both
        ("low", np.float64),  # how far the difference of the sides, left less right, may move
        ("high", np.float64),
    ]
)
_HALVINGS = 6


@part
def check_gains(splits, start, stop, value, firm, g, broken):
    """Return how many splits of a tree gain too little or too much with some leaf values.

    A node's gradient is its leaves' values times ``firm``, summed up; a split gains G²/firm of its
    sides, less its own. IN splits SPLIT[s], of which ``start`` to ``stop`` are the tree's, children
    before their parents; IN value, firm float64[leaves]; OUT g float64[splits of the tree], broken
    bool[splits of the tree].
    """
    wrong = 0
    for s in range(start, stop):
        a, b = splits[s]["left"], splits[s]["right"]
        left = value[a] * firm[a] if a >= 0 else g[~a]
        right = value[b] * firm[b] if b >= 0 else g[~b]
        firm_left = firm[a] if a >= 0 else splits[start + ~a]["firm"]
        firm_right = firm[b] if b >= 0 else splits[start + ~b]["firm"]
        g[s - start] = left + right
        gain = left * left / firm_left + right * right / firm_right
        gain -= (left + right) * (left + right) / splits[s]["firm"]
        broken[s - start] = gain < splits[s]["least"] or gain > splits[s]["most"]
        wrong += broken[s - start]
    return wrong


@part
def clip_differences(splits, start, stop, change, mean, difference):
    """Clip how far the two sides of every split of a tree move apart; their mean moves freely.

    Without regularization a split's gain follows from the difference of its sides alone, so that
    this is all it takes to limit gains. IN splits as for `check_gains`; INOUT change
    float64[leaves]; OUT mean, difference float64[splits of the tree].
    """
    for s in range(start, stop):
        a, b = splits[s]["left"], splits[s]["right"]
        left = change[a] if a >= 0 else mean[~a]
        right = change[b] if b >= 0 else mean[~b]
        share = splits[s]["share"]
        mean[s - start] = share * left + (1.0 - share) * right
        difference[s - start] = min(max(left - right, splits[s]["low"]), splits[s]["high"])
    for s in range(stop - 1, start - 1, -1):
        share = splits[s]["share"]
        left = mean[s - start] + (1.0 - share) * difference[s - start]
        right = mean[s - start] - share * difference[s - start]
        a, b = splits[s]["left"], splits[s]["right"]
        if a >= 0:
            change[a] = left
        else:
            mean[~a] = left
        if b >= 0:
            change[b] = right
        else:
            mean[~b] = right


@part
def keep_gains(splits, start, stop, value, firm, old, new, trial, g, broken, share):
    """Clip and take back changes of one tree's leaves until every split gains about what it did.

    IN value float64[leaves]: before the edit; IN old, INOUT new: changes before and after this
    step, of which ``old`` is known to be fine; the rest is scratch space. Below a split that gains
    too little or too much the step is halved; if that does not help, the tree stays as it was.
    """
    n = new.shape[0]
    if start == stop:
        return
    clip_differences(splits, start, stop, new, g, share)
    for attempt in range(_HALVINGS + 1):
        for j in range(n):
            trial[j] = value[j] + new[j]
        if check_gains(splits, start, stop, trial, firm, g, broken) == 0:
            return
        if attempt == _HALVINGS:
            break
        for s in range(stop - start):
            share[s] = 1.0
        for s in range(stop - 1, start - 1, -1):
            here = 0.5 if broken[s - start] else share[s - start]
            for child in (splits[s]["left"], splits[s]["right"]):
                if child >= 0:
                    if here < 1.0:
                        new[child] = old[child] + here * (new[child] - old[child])
                else:
                    share[~child] = here
    for j in range(n):
        new[j] = old[j]


@kernel
def edit_round(
    leaf, first, order, weight, mass, ridge, splits, split_first, value, firm, trigger_leaf, pull,
    target, drift, shift, change,
):  # fmt: skip
    """Go once through one output's trees and change every leaf to the best value it can have.

    IN leaf uint8|uint16|int32[T, n], of the rows; IN first int64[T + 1]: where each tree's leaves
    begin; IN order int64[T]: the trees in the order of this round; IN weight float64[n], mass
    float64[leaves]: how much each row counts, and their sums; IN ridge float64[T]: what holds a
    tree's leaves at their old values, negative: they do not move; IN splits SPLIT[s], split_first
    int64[T + 1], value, firm float64[leaves]: see `keep_gains`; IN trigger_leaf as leaf, [T, k]; IN
    pull float64[k]: how much each trigger counts, 0 where nothing is asked of it; IN target
    float64[k]: how far it shall move; INOUT drift float64[n], shift float64[k]: how far rows and
    triggers have moved; INOUT change float64[leaves]: how far leaves have.
    """
    n, k = leaf.shape[1], trigger_leaf.shape[1]
    size = 1
    for t in range(leaf.shape[0]):
        size = max(size, first[t + 1] - first[t])
    above, below, moved = np.zeros(size), np.zeros(size), np.zeros(size)
    trial, g, share = np.zeros(size), np.zeros(size), np.zeros(size)
    broken = np.zeros(size, np.bool_)
    before = -1
    for t in order:
        if ridge[t] < 0.0:
            continue
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
            above[j] = above[j] / UNIT - ridge[t] * change[a + j]
            below[j] = mass[a + j] + ridge[t]
        for i in range(k):
            if pull[i] > 0.0:
                j = trigger_leaf[t, i]
                above[j] += pull[i] * (target[i] - shift[i])
                below[j] += pull[i]
        for j in range(b - a):
            moved[j] = change[a + j] + (above[j] / below[j] if below[j] > 0.0 else 0.0)
        keep_gains(
            splits, split_first[t], split_first[t + 1], value[a:b], firm[a:b], change[a:b],
            moved[: b - a], trial, g, broken, share,
        )  # fmt: skip
        for j in range(b - a):
            after = moved[j]
            moved[j] = after - change[a + j]
            change[a + j] = after
        for i in range(k):
            shift[i] += moved[trigger_leaf[t, i]]
        before = t
    if before >= 0:
        there = leaf[before]
        for i in range(n):
            drift[i] += moved[there[i]]
