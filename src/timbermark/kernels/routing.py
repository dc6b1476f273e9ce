"""Sending rows down the trees of any ensemble, of whatever library, to the leaves they end in."""

import numpy as np

from timbermark.kernels.compile import inlined, kernel, part

ROUTE = np.dtype(
    [
        ("threshold", np.float64),  # rows up to this go left
        ("feature", np.int32),  # -1 at a leaf
        ("left", np.int32),  # counted over all trees
        ("right", np.int32),
        ("category_set", np.int32),  # -1: compare with the threshold
        ("leaf", np.int32),  # the number of a leaf within its tree
        ("missing", np.int32),  # MISSING_LEFT plus what counts as missing, times two
    ]
)
MISSING_LEFT = 1
"""The bit of ``missing`` that sends missing values left."""
_BLOCK = 64


@part
def is_member(values, first, last, x):
    """Return whether the whole part of ``x`` is among ``values[first:last]``, which ascend."""
    whole = np.trunc(x)
    while first < last:
        middle = (first + last) // 2
        if values[middle] < whole:
            first = middle + 1
        else:
            last = middle
    return first < values.shape[0] and values[first] == whole


@inlined
def turns_left(x, node, offsets, values, in_set_left, zero_range):
    """Return whether a value goes left at a split, one record of ROUTE."""
    missing = node["missing"]
    by_set = node["category_set"]
    if by_set >= 0:
        if x != x:
            return (missing & 1) == 1
        last = offsets[by_set + 1]
        return is_member(values[:last], offsets[by_set], last, x) == in_set_left
    if x != x and missing >> 1 == 0:  # what is missing counts as 0
        return node["threshold"] >= 0.0
    if x != x or (missing >> 1 == 1 and abs(x) <= zero_range):
        return (missing & 1) == 1
    return x <= node["threshold"]


@kernel
def route_rows(X, start, stop, roots, nodes, offsets, values, in_set_left, zero_range, out):
    """Find the leaf that each of the rows ``start`` to ``stop`` ends in, in every tree.

    IN X float64[n, d]; IN roots int64[T]; IN nodes ROUTE[N]; IN offsets int64[S + 1], values
    float64: the category sets, ascending within each; IN in_set_left bool: where members go; IN
    zero_range float64: what counts as zero where zeros are missing; OUT out uint8|uint16|int32
    [T, n]: the number of the leaf within its tree.
    """
    for a in range(start, stop, _BLOCK):
        b = min(a + _BLOCK, stop)
        for t in range(roots.shape[0]):
            for i in range(a, b):
                node = roots[t]
                feature = nodes[node]["feature"]
                while feature >= 0:
                    x = X[i, feature]
                    at = nodes[node]
                    goes_left = turns_left(x, at, offsets, values, in_set_left, zero_range)
                    node = nodes[node]["left"] if goes_left else nodes[node]["right"]
                    feature = nodes[node]["feature"]
                out[t, i] = nodes[node]["leaf"]


@kernel
def route_plain_rows(X, start, stop, roots, depth, feature, threshold, child, leaf, out):
    """Do what `route_rows` does where no value is missing and all splits are by thresholds.

    The rows of a block go down a tree together, a level at a time, and none of them branches, which
    is more than twice as fast. IN X float64[n, d]; IN roots, depth int64[T]: of the trees; IN
    feature int32[N], threshold float64[N], child int32[N, 2], leaf int32[N]: of every node; child 1
    is for rows up to the threshold, and both children of a leaf are the leaf; OUT out as in
    `route_rows`.
    """
    here = np.empty(_BLOCK, np.int32)
    for a in range(start, stop, _BLOCK):
        n = min(_BLOCK, stop - a)
        for t in range(roots.shape[0]):
            for i in range(n):
                here[i] = roots[t]
            for _ in range(depth[t]):
                for i in range(n):
                    node = here[i]
                    below = np.int64(X[a + i, feature[node]] <= threshold[node])
                    here[i] = child[node, below]
            for i in range(n):
                out[t, a + i] = leaf[here[i]]


@kernel
def add_leaf_values(leaf, start, stop, first, value, out):
    """Add one output's trees to the margins of the rows ``start`` to ``stop``, tree after tree.

    IN leaf uint8|uint16|int32[T, n]; IN first int64[T + 1]: where each tree's leaves begin; IN
    value float64: of all leaves; INOUT out float64[n].
    """
    for a in range(start, stop, 1024):
        b = min(a + 1024, stop)
        for t in range(leaf.shape[0]):
            here = leaf[t]
            values = value[first[t] : first[t + 1]]
            for i in range(a, b):
                out[i] += values[here[i]]


@kernel
def add_shared_leaves(leaf, row, first, ease, out):
    """Add for every row the ease of the leaves that it shares with one of them.

    IN leaf uint8|uint16|int32[T, n]; IN row int; IN first int64[T + 1]: where each tree's leaves
    begin; IN ease float64: of all leaves; INOUT out float64[n].
    """
    for t in range(leaf.shape[0]):
        here = leaf[t]
        own = here[row]
        worth = ease[first[t] + own]
        for i in range(here.shape[0]):
            if here[i] == own:
                out[i] += worth
