"""The best split of a node, and the partition of its rows.

In each node and for each feature the thresholds are cut into strata of equal size and one
threshold of each stratum, drawn from the node's key, is a *candidate*. A feature's last candidate
(missing values against all others) stands apart and is there only where values are missing.

    thresholds   0 1 2 3 | 4 5 6 | 7 8 9 10
    candidates       2       4         9          rows with code <= threshold go left
"""

import numpy as np

from timbermark.kernels.compile import inlined, part
from timbermark.kernels.hashing import mix
from timbermark.kernels.histogram import count_of, hessians_of, unpack


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
    return np.float64(g) * np.float64(g) / (np.float64(h) + l2) if h > 0 else 0.0


@part
def collect_candidates(histogram, binned, key, out):
    """Collect the sums to the left of every split candidate of a node.

    IN histogram int64[words * slots]; IN binned Binned; IN key uint64; OUT out int64[2 * c]: for
    each feature its strata in order, without the missing values, then the missing values alone.
    """
    words = 1 if binned.hessian_bits >= 0 else 2
    for f in range(binned.n_thresholds.shape[0]):
        thresholds = binned.n_thresholds[f]
        strata = binned.n_strata[f]
        place = 2 * binned.firsts[f]
        base = words * np.int64(binned.offsets[f])
        g = np.int64(0)
        h = np.int64(0)
        b = np.int64(0)
        for s in range(strata):
            t = candidate(key, f, s, thresholds, strata)
            while b <= t:
                g += histogram[base + words * b]
                h += histogram[base + words * (b + 1) - 1]
                b += 1
            out[place], out[place + 1] = unpack(g, h, binned)
            place += 2
        missing = base + words * (thresholds + 1)
        out[place], out[place + 1] = unpack(
            histogram[missing], histogram[missing + words - 1], binned
        )


@inlined
def split_score(left_g, left_h, left_c, g, h, c, rule):
    """Return both children's scores added up, or -1 where a child would be too small."""
    if (
        left_c < rule.least_rows
        or c - left_c < rule.least_rows
        or left_h < rule.least_hessian
        or h - left_h < rule.least_hessian
        or left_c == 0
        or left_c == c
    ):
        return -1.0
    return score(left_g, left_h, rule.l2) + score(g - left_g, h - left_h, rule.l2)


@part
def best_candidate(node, sums, binned, rule, out):
    """Return the name of the best split among the collected candidates, or -1.

    IN node: a record of NODE, of which the sums are read; IN sums int64[2 * c] of
    :func:`collect_candidates`; IN rule Rule; OUT out float64[1]: the gain. A split's name is twice
    the candidate's place, plus 1 where missing values go left. Of equals the first wins.
    """
    g, h, c = node["g"], node["h"], node["c"]
    parent = score(g, h, rule.l2)
    best = rule.least_gain + parent
    found = np.int64(-1)
    for f in range(binned.n_strata.shape[0]):
        first = binned.firsts[f]
        last = first + binned.n_strata[f]
        missing_g = sums[2 * last]
        missing_h = hessians_of(sums[2 * last + 1], binned)
        missing_c = count_of(sums[2 * last + 1], binned)
        for j in range(first, last):
            left_g = sums[2 * j]
            left_h = hessians_of(sums[2 * j + 1], binned)
            left_c = count_of(sums[2 * j + 1], binned)
            value = split_score(left_g, left_h, left_c, g, h, c, rule)
            if value > best:
                best = value
                found = 2 * j
            if missing_c > 0:
                value = split_score(
                    left_g + missing_g, left_h + missing_h, left_c + missing_c, g, h, c, rule
                )
                if value > best:
                    best = value
                    found = 2 * j + 1
        if missing_c > 0:
            value = split_score(missing_g, missing_h, missing_c, g, h, c, rule)
            if value > best:
                best = value
                found = 2 * last
    out[0] = best - parent
    return found


@part
def rank_split(node, sums, binned, rule, value):
    """Return how many valid candidates score above ``value``, and how many valid ones there are.

    The arguments are those of :func:`best_candidate`.
    """
    g, h, c = node["g"], node["h"], node["c"]
    above = 0
    valid = 0
    for f in range(binned.n_strata.shape[0]):
        first = binned.firsts[f]
        last = first + binned.n_strata[f]
        missing_g = sums[2 * last]
        missing_h = hessians_of(sums[2 * last + 1], binned)
        missing_c = count_of(sums[2 * last + 1], binned)
        for j in range(first, last + 1):
            if j == last and missing_c == 0:
                continue
            left_g = sums[2 * j]
            left_h = hessians_of(sums[2 * j + 1], binned)
            left_c = count_of(sums[2 * j + 1], binned)
            other = split_score(left_g, left_h, left_c, g, h, c, rule)
            if missing_c > 0 and j < last:
                turned = split_score(
                    left_g + missing_g, left_h + missing_h, left_c + missing_c, g, h, c, rule
                )
                other = turned if turned > other else other
            if other >= 0.0:
                valid += 1
            if other > value:
                above += 1
    return above, valid


@part
def partition(column, threshold, missing_code, missing_left, rows, start, stop, spare):
    """Move the rows that go left to the front of ``rows[start:stop]``; both parts stay in order.

    IN column uint8|uint16[n], codes of the split feature; INOUT rows uint32[n]; OUT spare
    uint32[n]. Returns where the right half begins. Without branches: which way a row goes is what
    a processor cannot guess.
    """
    left = np.int64(start)
    right = np.int64(0)
    for i in range(start, stop):
        row = rows[i]
        code = np.int64(column[row])
        goes_left = np.int64(code <= threshold)
        if code == missing_code:
            goes_left = np.int64(missing_left)
        rows[left] = row
        spare[right] = row
        left += goes_left
        right += 1 - goes_left
    for i in range(right):
        rows[left + i] = spare[i]
    return left
