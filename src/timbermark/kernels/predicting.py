"""Margins of many rows, without following a path through any tree.

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
_ALL = np.int32(0x7FFFFFFF)
MOST_LEAVES = 31
"""As many as there are bits in a mask."""


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


@kernel
def add_margins_by_path(codes, start, stop, node_start, column, code, left, value, output, out):
    """Add trees of any size to the margins: follow each row from the root to its leaf.

    IN node_start int64[T + 1]; IN column, code, left int32[nodes], children numbered within their
    tree, the right one next to the left one, left -1 at a leaf; IN value float64[nodes].
    """
    for a in range(start, stop, _BLOCK):
        b = min(a + _BLOCK, stop)
        for t in range(output.shape[0]):
            root = node_start[t]
            for i in range(a, b):
                node = root
                while left[node] >= 0:
                    right = np.int64(codes[column[node], i]) > code[node]
                    node = root + left[node] + np.int64(right)
                out[output[t], i] += value[node]
