"""Sums of gradients per bin.

A histogram is int64[2 * slots]: at 2 s the sum of the gradients in slot s, at 2 s + 1 the sum of
the hessians shifted left by ``shift`` plus the number of rows, which fits below the shift. Where
all rows have the same hessian, their number says it all: int64[slots] holds the gradients shifted
left plus the number of rows. It is half as large, filled in less time, and says the same.
"""

import numpy as np

from timbermark.kernels.compile import add_pair, inlined, part, prefetch

_ONE = np.uint64(1)
_AHEAD = 16
"""Rows that are asked for before their turn: a node's rows lie scattered in memory."""
_CACHED = 2**18
"""Tables of fewer codes lie in the processor's cache, where asking ahead takes time for nothing."""
_SMALL = 2560
"""Histograms of fewer words are filled in two copies: rows that follow each other fall into the
same bins, and one would wait for the other. (ns an addition, one copy and two: 2304 words 0.56 and
0.51, 3232 words 0.54 and 0.57.)"""


@inlined
def ask_ahead(binned, later, grad, hess):
    """Prefetch the codes and the gradient of the row ``later``, int64."""
    n_features = binned.codes.shape[1]
    prefetch(grad, later)
    prefetch(binned.codes, later * n_features)
    prefetch(binned.codes, later * n_features + n_features - 1)
    if binned.hessian_bits < 0:
        prefetch(hess, later)
        prefetch(binned.count, later)


@inlined
def source_of(row, binned, grad, hess):
    """Return what a row adds to its bins: two words, or one word twice."""
    g = np.int64(grad[row])
    if binned.hessian_bits >= 0:
        word = (g << binned.shift) + np.int64(1)
        return word, word
    return g, (np.int64(hess[row]) << binned.shift) + np.int64(binned.count[row])


@inlined
def add_row(codes, row, offsets, g, h, one_word, out):
    """Add one row to its bins."""
    for f in range(codes.shape[1]):
        slot = offsets[f] + np.uint64(codes[row, f])
        if one_word:
            out[slot] += g
        else:
            add_pair(out, slot << _ONE, g, h)


@part
def fill_rows(binned, rows, start, stop, grad, hess, out, extra):
    """Add ``rows[start:stop]`` to ``out``, in one word or two as ``binned`` says.

    IN binned Binned; IN rows uint32[n]; IN grad, hess int32[n]; OUT out int64[words * slots];
    extra int64[words * slots]: zeros, before and after. Four rows at a time, whose additions do not
    wait for each other.
    """
    codes, offsets = binned.codes, binned.offsets
    n_features = codes.shape[1]
    is_large = codes.size > _CACHED
    one_word = binned.hessian_bits >= 0
    two_copies = out.shape[0] <= _SMALL and (stop - start) * n_features > out.shape[0]
    other = extra if two_copies else out
    most = stop - 1
    end = start + (stop - start) // 4 * 4
    for i in range(start, end, 4):
        if is_large:
            for j in range(i + _AHEAD, i + _AHEAD + 4):
                ask_ahead(binned, np.int64(rows[min(j, most)]), grad, hess)
        a, b, c, d = rows[i], rows[i + 1], rows[i + 2], rows[i + 3]
        a_g, a_h = source_of(a, binned, grad, hess)
        b_g, b_h = source_of(b, binned, grad, hess)
        c_g, c_h = source_of(c, binned, grad, hess)
        d_g, d_h = source_of(d, binned, grad, hess)
        if one_word:
            for f in range(n_features):
                first = offsets[f]
                out[first + np.uint64(codes[a, f])] += a_g
                other[first + np.uint64(codes[b, f])] += b_g
                out[first + np.uint64(codes[c, f])] += c_g
                other[first + np.uint64(codes[d, f])] += d_g
        else:
            for f in range(n_features):
                first = offsets[f]
                add_pair(out, (first + np.uint64(codes[a, f])) << _ONE, a_g, a_h)
                add_pair(other, (first + np.uint64(codes[b, f])) << _ONE, b_g, b_h)
                add_pair(out, (first + np.uint64(codes[c, f])) << _ONE, c_g, c_h)
                add_pair(other, (first + np.uint64(codes[d, f])) << _ONE, d_g, d_h)
    for i in range(end, stop):
        g, h = source_of(rows[i], binned, grad, hess)
        add_row(codes, rows[i], offsets, g, h, one_word, out)
    if two_copies:
        for j in range(out.shape[0]):
            out[j] += extra[j]
            extra[j] = 0


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
