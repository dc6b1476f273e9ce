"""Sums of gradients per bin.

A histogram is int64[2 * slots]: at 2 s the sum of the gradients in slot s, at 2 s + 1 the sum of
the hessians shifted left by ``shift`` plus the number of rows, which fits below the shift.
"""

import numpy as np

from timbermark.kernels.compile import add_pair, kernel, part

_ONE = np.uint64(1)


@kernel
def fill_histogram(codes, offsets, rows, start, stop, grad, hess, count, shift, out):
    """Add the rows ``rows[start:stop]`` to the histogram ``out``.

    IN codes uint8|uint16[n, d], row by row; IN offsets uint64[d], first slot of a feature;
    IN rows uint32[n]; IN grad, hess int32[n]; IN count int32[n]; OUT out int64[2 * slots].
    """
    n_features = codes.shape[1]
    for i in range(start, stop):
        row = rows[i]
        g = np.int64(grad[row])
        h = (np.int64(hess[row]) << shift) + np.int64(count[row])
        for f in range(n_features):
            add_pair(out, (offsets[f] + np.uint64(codes[row, f])) << _ONE, g, h)


@part
def subtract_histogram(whole, part):  # INOUT, IN
    """Take ``part`` out of ``whole``: what is left is the other child's histogram."""
    for i in range(whole.shape[0]):
        whole[i] -= part[i]
