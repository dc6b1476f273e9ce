"""Histograms, the best split of a node, and the partition of its rows.

In each node and for each feature the thresholds are cut into strata of equal size and one threshold
of each stratum, drawn from the node's key, is a *candidate*. A feature's last candidate (missing
values against all others) stands apart and is there only where values are missing.

    thresholds   0 1 2 3 | 4 5 6 | 7 8 9 10
    candidates       2       4         9          rows with code <= threshold go left

A histogram is int64[2 * slots]: at 2 s the sum of the gradients in slot s, at 2 s + 1 the sum of
the hessians shifted left by ``shift`` plus the number of rows, which fits below the shift. Where
all rows have the same hessian, their number says it all: int64[slots] holds the gradients shifted
left plus the number of rows. It is half as large, filled in less time, and says the same.
"""

from __future__ import annotations

import numpy as np

from timbermark.kernels.compile import add_pair, inlined, part, prefetch, wrapping
from timbermark.kernels.hashing import mix, scramble

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


@inlined
def candidate(key, feature, stratum, n_thresholds, n_strata):
    """Return the threshold that stands for ``stratum`` of ``feature`` in the node with ``key``."""
    low = stratum * n_thresholds // n_strata
    high = (stratum + 1) * n_thresholds // n_strata
    if high - low == 1:
        return low
    drawn = mix(key, (np.uint64(feature) << np.uint64(20)) + np.uint64(stratum)) >> np.uint64(33)
    return low + np.int64(drawn) % (high - low)


@inlined
def score(g, h, l2):
    """Return twice what a leaf with these sums takes away from the loss, in gradient units."""
    # Selected, not branched on: the search is vectorised.
    whole = np.float64(h) + l2 if h > 0 else 1.0
    value = np.float64(g) * np.float64(g) / whole
    return value if h > 0 else 0.0


@part
@wrapping
def draw_candidates(key, binned, first, last, out):
    """Draw the thresholds of the candidates ``first`` to ``last``, each as `candidate` does.

    IN binned Binned; OUT out int64[2 * c]: the threshold of candidate j goes to 2 j + 1. Without a
    division: the remainder comes from a multiplication with the width's inverse, which is exact
    for the 31 bits that are drawn.
    """
    step, low = binned.draws.step[first:last], binned.draws.low[first:last]
    width, inverse = binned.draws.width[first:last], binned.draws.inverse[first:last]
    shift = binned.draws.shift[first:last]
    pairs = out[2 * first : 2 * last]
    for j in range(last - first):
        drawn = scramble(key + step[j]) >> np.uint64(33)
        rest = drawn - ((drawn * inverse[j]) >> shift[j]) * width[j]
        pairs[2 * j] = 0
        pairs[2 * j + 1] = low[j] + np.int64(rest)


@part
def collect_candidates(histogram, binned, key, out):
    """Collect the sums to the left of every split candidate of a node.

    IN histogram int64[words * slots]; IN binned Binned; IN key uint64; OUT out int64[2 * c]: for
    each feature its strata in order, without the missing values, then the missing values alone.
    """
    collect_features(histogram, binned, key, 0, binned.n_thresholds.shape[0], out)


@part
def collect_features(histogram, binned, key, first, last, out):
    """Do what `collect_candidates` does for the features ``first`` to ``last`` alone."""
    draw_candidates(key, binned, binned.firsts[first], binned.firsts[last], out)
    words = 1 if binned.hessian_bits >= 0 else 2
    for f in range(first, last):
        strata = binned.n_strata[f]
        sums = out[2 * binned.firsts[f] : 2 * binned.firsts[f + 1]]
        # Unsigned: nobody need ask whether an index counts from the end.
        place = np.uint64(words) * binned.offsets[f]
        second = np.uint64(words - 1)
        g = np.int64(0)
        h = np.int64(0)
        b = np.int64(0)
        for s in range(strata):
            t = sums[2 * s + 1]
            while b <= t:
                g += histogram[place]
                h += histogram[place + second]
                place += np.uint64(words)
                b += 1
            sums[2 * s], sums[2 * s + 1] = unpack(g, h, binned)
        missing = np.uint64(words) * (binned.offsets[f] + np.uint64(binned.n_thresholds[f] + 1))
        sums[2 * strata], sums[2 * strata + 1] = unpack(
            histogram[missing], histogram[missing + second], binned
        )


@inlined
def split_score(left_g, left_h, left_c, g, h, c, rule):
    """Return both children's scores added up, or -1 where a child would be too small."""
    right_h, right_c = h - left_h, c - left_c
    enough = (
        (left_c >= rule.least_rows)
        & (right_c >= rule.least_rows)
        & (left_h >= rule.least_hessian)
        & (right_h >= rule.least_hessian)
        & (left_c > 0)
        & (right_c > 0)
    )
    value = score(left_g, left_h, rule.l2) + score(g - left_g, right_h, rule.l2)
    return value if enough else -1.0


@part
def best_candidate(node, sums, binned, rule, out):
    """Return the name of the best split among the collected candidates, or -1.

    IN node: a record of NODE, of which the sums are read; IN sums int64[2 * c] of
    :func:`collect_candidates`; IN rule Rule; OUT out float64[1 + c]: the gain, and scratch. A
    split's name is twice the candidate's place, plus 1 where missing values go left. Of equals the
    first wins.
    """
    found = best_of_features(node, sums, binned, rule, 0, binned.n_strata.shape[0], out)
    out[0] -= score(node["g"], node["h"], rule.l2)
    return found


@part
def best_of_features(node, sums, binned, rule, first_feature, last_feature, out):
    """Do what `best_candidate` does for some features; ``out[0]`` is the score, not the gain."""
    g, h, c = node["g"], node["h"], node["c"]
    best = rule.least_gain + score(g, h, rule.l2)
    found = np.int64(-1)
    start = binned.firsts[first_feature]
    count = binned.firsts[last_feature] - start
    pairs = sums[2 * start : 2 * (start + count)]
    values = out[1 : 1 + count]
    # All scores at once, which is vectorised, and then the search among them, which is not.
    for j in range(count):
        left_h = hessians_of(pairs[2 * j + 1], binned)
        left_c = count_of(pairs[2 * j + 1], binned)
        values[j] = split_score(pairs[2 * j], left_h, left_c, g, h, c, rule)
    for f in range(first_feature, last_feature):
        first = binned.firsts[f]
        last = binned.firsts[f + 1] - 1
        missing_c = count_of(sums[2 * last + 1], binned)
        if missing_c == 0:
            for j in range(first, last):
                if values[j - start] > best:
                    best = values[j - start]
                    found = 2 * j
            continue
        missing_g = sums[2 * last]
        missing_h = hessians_of(sums[2 * last + 1], binned)
        for j in range(first, last + 1):
            if values[j - start] > best:
                best = values[j - start]
                found = 2 * j
            if j == last:
                continue
            left_g = sums[2 * j] + missing_g
            left_h = hessians_of(sums[2 * j + 1], binned) + missing_h
            left_c = count_of(sums[2 * j + 1], binned) + missing_c
            value = split_score(left_g, left_h, left_c, g, h, c, rule)
            if value > best:
                best = value
                found = 2 * j + 1
    out[0] = best
    return found


@part
@wrapping
def partition(column, threshold, missing_code, missing_left, rows, start, stop, spare):
    """Move the rows that go left to the front of ``rows[start:stop]``; both parts stay in order.

    IN column uint8|uint16[n], codes of the split feature; INOUT rows uint32[n]; OUT spare
    uint32[n]. Returns where the right half begins. Without branches: which way a row goes is what
    a processor cannot guess.
    """
    if threshold < 0 and missing_left == 0:
        return start
    kind = column.dtype.type
    # Codes turned until the missing one comes first: one comparison does for both.
    turned = np.int64(missing_code) if missing_left == 1 else np.int64(0)
    turn = kind(turned)
    most = kind((np.int64(threshold) - turned) & ((1 << 8 * column.itemsize) - 1))
    # Unsigned: nobody need ask whether an index counts from the end.
    left, i, end = np.uint64(start), np.uint64(start), np.uint64(stop)
    while i < end:
        row = rows[i]
        rows[left] = row
        spare[i - left] = row
        left += np.uint64(kind(column[row] - turn) <= most)
        i += np.uint64(1)
    for i in range(end - left):
        rows[left + i] = spare[i]
    return np.int64(left)
