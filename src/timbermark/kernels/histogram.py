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
def fill_histogram(codes, offsets, rows, start, stop, grad, hess, count, shift, out):
    """Add the rows ``rows[start:stop]`` to the histogram ``out``.

    IN codes uint8|uint16[n, d], row by row; IN offsets uint64[d], first slot of a feature;
    IN rows uint32[n]; IN grad, hess int32[n]; IN count int32[n]; OUT out int64[2 * slots].
    """
    n_features = codes.shape[1]
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


@part
def fill_counted(codes, offsets, rows, start, stop, grad, shift, out):
    """The same for rows that count once and have equal hessians; OUT out int64[slots]."""
    n_features = codes.shape[1]
    for i in range(start, stop):
        ask_ahead(codes, np.int64(rows[min(i + _AHEAD, stop - 1)]), grad)
        row = rows[i]
        word = (np.int64(grad[row]) << shift) + np.int64(1)
        for f in range(n_features):
            out[offsets[f] + np.uint64(codes[row, f])] += word


@kernel
def fill_rows(binned, rows, start, stop, grad, hess, shift, out):
    """Add ``rows[start:stop]`` to ``out``, in one word or two as ``binned`` says."""
    if binned.hessian_bits >= 0:
        fill_counted(binned.codes, binned.offsets, rows, start, stop, grad, shift, out)
    else:
        fill_histogram(
            binned.codes, binned.offsets, rows, start, stop, grad, hess, binned.count, shift, out
        )


@inlined
def unpack(gradients, packed, hessian_bits, shift):
    """A slot's two words from what its one word is, or from the two: see the module.

    IN gradients, packed: sums over slots; the same sum where there is one word a slot.
    """
    if hessian_bits < 0:
        return gradients, packed
    count = packed & ((np.int64(1) << shift) - np.int64(1))
    return gradients >> shift, (count << (hessian_bits + shift)) + count


@part
def subtract_histogram(whole, part):  # INOUT, IN
    """Take ``part`` out of ``whole``: what is left is the other child's histogram."""
    for i in range(whole.shape[0]):
        whole[i] -= part[i]
