"""Sums of gradients per bin.

A histogram is int64[2 * slots]: at 2 s the sum of the gradients in slot s, at 2 s + 1 the sum of
the hessians shifted left by ``shift`` plus the number of rows, which fits below the shift. Where
all rows have the same hessian, their number says it all: int64[slots] holds the gradients shifted
left plus the number of rows. It is half as large, filled in less time, and says the same.
"""

import numpy as np

from timbermark.kernels.compile import add_pair, inlined, kernel, part, prefetch

_ONE = np.uint64(1)
_AHEAD = 16
"""Rows that are asked for before their turn: a node's rows lie scattered in memory."""


@inlined
def ask_ahead(codes, later, grad):
    """Prefetch the codes and the gradient of the row ``later``, int64."""
    n_features = codes.shape[1]
    prefetch(grad, later)
    prefetch(codes, later * n_features)
    prefetch(codes, later * n_features + n_features - 1)


@kernel
def fill_rows(binned, rows, start, stop, grad, hess, out):
    """Add ``rows[start:stop]`` to ``out``, in one word or two as ``binned`` says.

    IN binned Binned; IN rows uint32[n]; IN grad, hess int32[n]; OUT out int64[words * slots].
    """
    codes, offsets, count, shift = binned.codes, binned.offsets, binned.count, binned.shift
    n_features = codes.shape[1]
    if binned.hessian_bits >= 0:
        for i in range(start, stop):
            ask_ahead(codes, np.int64(rows[min(i + _AHEAD, stop - 1)]), grad)
            row = rows[i]
            word = (np.int64(grad[row]) << shift) + np.int64(1)
            for f in range(n_features):
                out[offsets[f] + np.uint64(codes[row, f])] += word
        return
    for i in range(start, stop):
        later = np.int64(rows[min(i + _AHEAD, stop - 1)])
        ask_ahead(codes, later, grad)
        prefetch(hess, later)
        prefetch(count, later)
        row = rows[i]
        g = np.int64(grad[row])
        h = (np.int64(hess[row]) << shift) + np.int64(count[row])
        for f in range(n_features):
            add_pair(out, (offsets[f] + np.uint64(codes[row, f])) << _ONE, g, h)


@inlined
def unpack(gradients, packed, binned):
    """Return a slot's two words, made of its one word where ``binned`` says that it has one.

    IN gradients, packed: sums over slots; the same sum where there is one word a slot.
    """
    if binned.hessian_bits < 0:
        return gradients, packed
    count = packed & ((np.int64(1) << binned.shift) - np.int64(1))
    return gradients >> binned.shift, (count << (binned.hessian_bits + binned.shift)) + count


@inlined
def hessians_of(packed, binned):
    """Return the sum of hessians that a packed sum holds."""
    return packed >> binned.shift


@inlined
def count_of(packed, binned):
    """Return the number of rows that a packed sum holds."""
    return packed & ((np.int64(1) << binned.shift) - np.int64(1))


@inlined
def pack(hessians, count, binned):
    """Return a sum of hessians and a number of rows in one word."""
    return (hessians << binned.shift) + count


@part
def subtract_histogram(whole, part):  # INOUT, IN
    """Take ``part`` out of ``whole``: what is left is the other child's histogram."""
    for i in range(whole.shape[0]):
        whole[i] -= part[i]
