"""From values to codes, and to margins of many rows without following a path through any tree.

The leaves of a tree are numbered from left to right and each row starts with all of them. A split
that sends a row right takes away the leaves of its left side, whether or not the row comes by;
the lowest leaf that remains is the one the row falls in. So every split is one comparison with a
constant over a block of rows, which a processor does for many rows at a time, and there is no
branch to guess wrongly.

    leaves           c b a        split 1 (root): a | b c     split 2: b | c
    split 1 right    1 1 0
    split 2 right    1 0 1        row right, then right: 1 1 0 & 1 0 1 = 1 0 0 -> c
"""

import numpy as np

from timbermark.kernels.compile import float_to_bits, inlined, kernel

_BLOCK = 128
_SEARCHED = 256
_ALL = np.int32(0x7FFFFFFF)
MOST_LEAVES = 31
"""As many as there are bits in a mask."""


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
def lowest_bit(mask):
    """Return the number of the lowest bit set in a positive int32: the exponent of a float32."""
    return (float_to_bits(np.float32(mask & -mask)) >> np.int32(23)) - np.int32(127)


@kernel
def add_margins(
    codes, start, stop, split_start, column, code, mask, leaf_start, value, output, out
):
    """Add all trees to the margins of the rows ``start`` to ``stop``, in the order of the trees.

    IN codes uint8|uint16[columns, n]; IN split_start int64[T + 1]: splits of a tree; IN column
    int32[s], code int32[s]: right if codes[column] > code; IN mask int32[s]: the leaves that are
    left then; IN leaf_start int64[T]; IN value float64[leaves]; IN output int64[T]; INOUT out
    float64[outputs, n].
    """
    alive = np.empty(_BLOCK, dtype=np.int32)
    for a in range(start, stop, _BLOCK):
        b = min(a + _BLOCK, stop)
        for t in range(output.shape[0]):
            for i in range(_BLOCK):
                alive[i] = _ALL
            for s in range(split_start[t], split_start[t + 1]):
                values = codes[column[s], a:b]
                at = codes.dtype.type(code[s])
                rest = mask[s]
                for i in range(b - a):
                    alive[i] &= rest if values[i] > at else _ALL
            row = out[output[t], a:b]
            leaves = value[leaf_start[t] : leaf_start[t + 1]]
            for i in range(b - a):
                row[i] += leaves[lowest_bit(alive[i])]


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
    for a in range(start, stop, _BLOCK):
        b = min(a + _BLOCK, stop)
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
