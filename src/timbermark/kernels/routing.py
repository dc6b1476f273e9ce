"""Sending rows down the trees of any ensemble, to the leaves they end in and the margins they get.

Three ways: from node to node; only where one value crosses the thresholds of a boundary; and, for
many rows by their codes, without following a path through any tree. There, the leaves of a tree are
numbered from left to right and each row starts with all of them. A split that sends a row right
takes away the leaves of its left side, whether or not the row comes by; the lowest leaf that
remains is the one the row falls in. So every split is one comparison with a constant over a block
of rows, which a processor does for many rows at a time, and there is no branch to guess wrongly.

    leaves           c b a        split 1 (root): a | b c     split 2: b | c
    split 1 right    1 1 0
    split 2 right    1 0 1        row right, then right: 1 1 0 & 1 0 1 = 1 0 0 -> c

Masks are cut into bytes of eight leaves, and a split is compared once for every byte that it takes
leaves from, mostly one: codes are bytes too, so that a processor compares four times as many rows
at a time as with masks of 32 bits. Four bytes together are a word, in which the lowest leaf is
found.
"""

from __future__ import annotations

import numpy as np

from timbermark.kernels.compile import float_to_bits, inlined, kernel, part, wrapping

_ROWS = 512
_ALL = np.uint8(0xFF)
_SEARCHED = 256

BYTES = 4
"""The bytes of eight leaves in a word."""
MOST_LEAVES = 1024
"""Trees with more are walked. (With 1,023 leaves masks take half of the time, with 31 a fifth.)"""


@kernel
def assign_codes(values, thresholds, missing_code, out):
    """Write the code of each value: how many thresholds are below it; NaN: ``missing_code``.

    IN values float64[n]; IN thresholds float64[t], ascending; OUT out uint8|uint16[n]. A value
    equal to a threshold lies below it (``x <= t`` goes left).
    """
    n_thresholds = thresholds.shape[0]
    low = np.empty(_SEARCHED, np.int64)
    for a in range(0, values.shape[0], _SEARCHED):
        b = min(a + _SEARCHED, values.shape[0])
        block = values[a:b]
        low[:] = 0
        size = n_thresholds
        # Many searches in step, each step conditional instead of a branch: a processor need neither
        # guess which way one goes nor wait for one before it goes on with the next.
        while size > 1:
            half = size // 2
            for i in range(b - a):
                low[i] += half if thresholds[low[i] + half - 1] < block[i] else 0
            size -= half
        for i in range(b - a):
            x = block[i]
            if np.isnan(x):
                out[a + i] = missing_code
            else:
                out[a + i] = low[i] + 1 if size == 1 and thresholds[low[i]] < x else low[i]


@inlined
@wrapping
def lowest_bit(word):
    """Return the number of the lowest bit set in an int32, -127 for none.

    It is the exponent of a float32.
    """
    exponent = float_to_bits(np.float32(word & -word)) >> np.int32(23)
    return (exponent & np.int32(0xFF)) - np.int32(127)


@inlined
def find_leaves(codes, a, b, first, last, cut, column, code, rest, alive, found):
    """Write the leaf of one tree that each of the rows ``a`` to ``b`` ends in to ``found``.

    ``first`` and ``last``: the tree's words; ``alive`` uint8[BYTES, rows] is overwritten.
    """
    n = b - a
    for word in range(last - 1, first - 1, -1):  # so that what the lower words say stays
        for byte in range(BYTES):
            here = alive[byte]
            for i in range(here.shape[0]):
                here[i] = _ALL
            for s in range(cut[BYTES * word + byte], cut[BYTES * word + byte + 1]):
                values = codes[column[s], a:b]
                at = codes.dtype.type(code[s])
                kept = rest[s]
                for i in range(n):
                    here[i] &= kept if values[i] > at else _ALL
        base = np.int32(8 * BYTES * (word - first))
        for i in range(n):
            left = np.int32(
                np.uint32(alive[0, i])
                | np.uint32(alive[1, i]) << np.uint32(8)
                | np.uint32(alive[2, i]) << np.uint32(16)
                | np.uint32(alive[3, i]) << np.uint32(24)
            )
            found[i] = base + lowest_bit(left) if left != 0 else found[i]


@kernel
def add_margins(codes, start, stop, words, cut, column, code, rest, leaf_start, value, output, out):
    """Add all trees to the margins of the rows ``start`` to ``stop``, in the order of the trees.

    IN codes uint8|uint16[columns, n]; IN words int64[T + 1]: where each tree's begin; IN cut
    int64[BYTES * words + 1]: where the comparisons of each byte begin; IN column int32[c], code
    int32[c]: right if codes[column] > code; IN rest uint8[c]: the byte's leaves that are left then;
    IN leaf_start int64[T]; IN value float64[leaves]; IN output int64[T]; INOUT out
    float64[outputs, n].
    """
    alive = np.empty((BYTES, _ROWS), np.uint8)
    found = np.zeros(_ROWS, np.int32)
    for a in range(start, stop, _ROWS):
        b = min(a + _ROWS, stop)
        for t in range(output.shape[0]):
            find_leaves(codes, a, b, words[t], words[t + 1], cut, column, code, rest, alive, found)
            row = out[output[t], a:b]
            leaves = value[leaf_start[t] : leaf_start[t + 1]]
            for i in range(b - a):
                row[i] += leaves[found[i]]


STEP = np.dtype(
    [
        ("threshold", np.float64),  # rows up to this go left; at a leaf its value, weighted
        ("feature", np.int32),
        ("left", np.int32),  # left child, counted over all trees; the right one is next; -1: a leaf
    ]
)
# Where a missing value goes: left, right, or where zero goes.
LEFT, RIGHT, ZERO = 0, 1, 2


@kernel
def walk_margins(X, start, stop, roots, steps, missing, output, out):
    """Add all trees to the margins of the rows ``start`` to ``stop``, each from root to leaf.

    For few rows, which are not worth being turned into codes, and for trees of any size. IN X
    float64[n, d]; IN roots int64[T]; IN steps STEP[nodes]; IN missing int8[nodes]; IN output
    int64[T]; INOUT out float64[outputs, n].
    """
    for a in range(start, stop, _ROWS):
        b = min(a + _ROWS, stop)
        for t in range(output.shape[0]):
            for i in range(a, b):
                node = np.uint64(roots[t])
                left = steps[node]["left"]
                while left >= 0:
                    x = X[i, np.uint32(steps[node]["feature"])]
                    threshold = steps[node]["threshold"]
                    goes_left = x <= threshold
                    if x != x:
                        rule = missing[node]
                        goes_left = rule == LEFT or (rule == ZERO and threshold >= 0.0)
                    node = np.uint64(left) + np.uint64(not goes_left)
                    left = steps[node]["left"]
                out[output[t], i] += steps[node]["threshold"]


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
def route_masked_rows(
    codes, start, stop, trees, words, cut, column, code, rest, leaf_start, leaf, out
):
    """Do what `route_rows` does, by masks: for small trees whose splits are all by thresholds.

    IN codes uint8|uint16[columns, n]; IN trees int64[T]: whose rows of ``out`` these are; IN
    words, cut int64, column, code int32, rest uint8, leaf_start int64: as `add_margins` takes them;
    IN leaf int32: the numbers of leaves from left to right; OUT out as in `route_rows`.
    """
    alive = np.empty((BYTES, _ROWS), np.uint8)
    found = np.zeros(_ROWS, np.int32)
    for a in range(start, stop, _ROWS):
        b = min(a + _ROWS, stop)
        for k in range(trees.shape[0]):
            t = trees[k]
            find_leaves(codes, a, b, words[t], words[t + 1], cut, column, code, rest, alive, found)
            row = out[k, a:b]
            numbers = leaf[leaf_start[t] : leaf_start[t + 1]]
            for i in range(b - a):
                row[i] = numbers[found[i]]


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


@part
def _find_leaf(
    row, column, replaced, beyond, node, nodes, offsets, values, in_set_left, zero_range
):
    """Return the leaf below ``node`` in which a row ends whose ``column`` is ``replaced``.

    Also returns the first node on the way at which ``beyond``, a larger value, goes right; or -1.
    """
    parts = -1
    feature = nodes[node]["feature"]
    while feature >= 0:
        own = feature == column
        x = replaced if own else row[feature]
        at = nodes[node]
        goes_left = turns_left(x, at, offsets, values, in_set_left, zero_range)
        if own and parts < 0 and goes_left and beyond > at["threshold"]:
            parts = node
        node = nodes[node]["left"] if goes_left else nodes[node]["right"]
        feature = nodes[node]["feature"]
    return node, parts


@kernel
def measure_jumps(
    Z, rows, column, below, above, first, last, tree, root, early, output, weight, nodes,
    offsets, values, in_set_left, zero_range, value, start, stop, jump, largest, begun,
):  # fmt: skip
    """Measure how margins change from one side of a boundary to the other.

    IN Z float64[n, d]; IN rows int64[W, R]: the rows that are tried at each of W boundaries; IN
    column int64[W], below, above float64[W]: the value that is replaced and its two values; IN
    first, last int64[W]: the boundary's splits, a range of ``tree`` int64[S], the tree of each
    split; IN root int64[T], early bool[T], output int64[T] (-1: all), weight float64[T]: of the
    trees; IN nodes ROUTE[N], offsets, values, in_set_left, zero_range: as in
    `timbermark.kernels.routing.route_rows`; IN value float64[N, m]; IN start, stop: which
    boundaries; OUT jump float64[W, R, K]: what the margins gain from ``below`` to ``above``;
    largest float64[W, R]: the largest part of a single tree; begun float64[W, R, K]: the part of
    early trees. All OUT are zero before.
    """
    seen = np.full(root.shape[0], -1, np.int64)
    for w in range(start, stop):
        f, a, b = column[w], below[w], above[w]
        for s in range(first[w], last[w]):
            t = tree[s]
            if seen[t] == w:
                continue
            seen[t] = w
            for r in range(rows.shape[1]):
                row = Z[rows[w, r]]
                low, at = _find_leaf(
                    row, f, a, b, root[t], nodes, offsets, values, in_set_left, zero_range
                )
                if at < 0:
                    continue
                high, _ = _find_leaf(
                    row, f, b, b, nodes[at]["right"], nodes, offsets, values, in_set_left,
                    zero_range,
                )  # fmt: skip
                for c in range(value.shape[1]):
                    moved = weight[t] * (value[high, c] - value[low, c])
                    k = c if output[t] < 0 else output[t]
                    jump[w, r, k] += moved
                    if early[t]:
                        begun[w, r, k] += moved
                    largest[w, r] = max(largest[w, r], abs(moved))
