"""The records and groups of arrays that kernels pass to each other.

A tree under work is one record array, a row per node, and so is the scratch space beside it:
handing twenty separate arrays from kernel to kernel costs more time, in compilation and at every
call, than most kernels take.

They have other shapes elsewhere: flat arrays in an ensemble, narrow ones in a file.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from timbermark.kernels.compile import kernel

NODE = np.dtype(
    [
        ("g", np.int64),  # sum of gradients
        ("h", np.int64),  # sum of hessians
        ("c", np.int64),  # number of rows
        ("gain", np.float64),  # of the best split, done or not; -1 where there is none
        ("choice", np.int64),  # the best split as best_candidate names it, or one of the below
        ("key", np.uint64),  # what the node's split candidates are drawn from
        ("value", np.float64),  # what a row that ends here gets
        ("left", np.int32),  # left child; the right one is the next; -1 at a leaf
        ("split", np.int32),  # how many splits the tree had before this one; -1 at a leaf
        ("feature", np.int32),  # -1 at a leaf
        ("code", np.int32),  # rows with a code up to this go left
        ("missing_left", np.int32),  # 1: rows without a value go left
        ("unused", np.int32),  # keeps the size a multiple of eight bytes
    ]
)

# Values of ``choice`` that name no candidate.
NONE, OUTSIDE, UNKNOWN = -1, -2, -3  # no split is possible; not among the candidates; not searched

PLACE = np.dtype(
    [
        ("start", np.int64),  # a node's rows are rows[start:stop]
        ("stop", np.int64),
        ("slot", np.int64),  # its histogram, -1: none
        ("twin", np.int64),  # update: the old node it stands for, -1: its rows are listed
        ("first", np.int64),  # update: its touches are order[first:last]
        ("last", np.int64),
        ("middle", np.int64),  # update: those of its left child end here
        ("left_g", np.int64),  # update: the sums of its left child
        ("left_packed", np.int64),
        ("priority", np.float64),  # update: the leaf with the highest is split next
    ]
)

TOUCH = np.dtype(
    [
        ("g", np.int64),  # what a row adds to the sum of gradients
        ("packed", np.int64),  # and to the hessians, shifted, and the count
        ("row", np.int64),
    ]
)

# Places in ``Growth.control``.
N_NODES, N_LEAVES, N_SLOTS, N_SPLITS, N_LISTED, N_MEETINGS = 0, 1, 2, 3, 4, 5
CONTROL_SIZE = 6
SUM_COPIES = 4
"""Copies in which the sums of leaves are added up, see ``refresh_leaves``."""


class Draws(NamedTuple):
    """From which thresholds every candidate is drawn, and what `draw_candidates` needs for that."""

    step: Any  # uint64[c], added to a node's key
    low: Any  # int64[c], the first threshold of a stratum
    width: Any  # uint64[c], how many thresholds it has; 1 where a feature's missing values stand
    inverse: Any  # uint64[c], 2^shift / width, rounded up
    shift: Any  # uint64[c], 31 plus the bits of the width


class Binned(NamedTuple):
    """The training rows as the kernels see them, and how their sums are packed."""

    codes: Any  # uint8|uint16[n, d], row by row: histograms read whole rows
    columns: Any  # uint8|uint16[d, n], the same by column: partitions read one feature
    offsets: Any  # uint64[d], first histogram slot of a feature
    n_thresholds: Any  # int64[d]; code n_thresholds + 1 means missing
    n_strata: Any  # int64[d], split candidates per node
    firsts: Any  # int64[d + 1], first candidate of a feature
    draws: Any  # Draws
    count: Any  # int32[n], how many rows a row stands for
    shift: Any  # int64, a packed sum is that of the hessians, shifted left by this, plus the count
    hessian_bits: Any  # int64; not -1: every row counts once and has the hessian 2^this


class Loss(NamedTuple):
    """What gradients are derived from: the rows' answers, weights, and units of fixed point."""

    label: Any  # int32[n], class numbers; empty in regression
    target: Any  # float64[n], numbers; empty where there are classes
    weight: Any  # float32[n]
    unit: Any  # float32, hessians, and gradients where there are classes, are integers of 1 / unit
    residual_unit: Any  # float64, residuals are integers of 1 / residual_unit
    most: Any  # float64, the largest residual in its units; beyond it they are cut


class Rule(NamedTuple):
    """How sums become splits and leaves; in the units of the sums."""

    l2: Any  # float64, what is added to the hessians of a leaf
    least_hessian: Any  # float64, of a child
    least_rows: Any  # float64, of a child
    least_gain: Any  # float64, of a split
    step: Any  # float64, what a leaf's quotient of gradients and hessians is multiplied by
    limit: Any  # float64, the largest such quotient
    max_leaves: Any  # int64, of a tree


class Fit(NamedTuple):
    """What one tree is grown from."""

    binned: Any  # Binned
    grad: Any  # int32[n]
    hess: Any  # int32[n]; empty where hessian_bits says it all
    rule: Any  # Rule


class Split(NamedTuple):
    """Which rows go left."""

    feature: Any  # int64
    code: Any  # int64, rows with a code up to this
    missing_left: Any  # int64, 1: and rows without a value


class Growth(NamedTuple):
    """Scratch space of one thread."""

    control: Any  # int64[CONTROL_SIZE]
    rows: Any  # uint32[n], row numbers, each node's together
    spare: Any  # uint32[n]
    places: Any  # PLACE[nodes]
    histograms: Any  # int64[slots, words * bins], see kernels/splitting.py
    sums: Any  # int64[slots, 2 * candidates]
    gain: Any  # float64[1 + candidates], see best_candidate
    extra: Any  # int64[words * bins], zeros, see fill_rows


class Team(NamedTuple):
    """One thread among those that grow a tree together.

    Each owns rows, chunks of them in turn, and some features; a thread alone owns all.
    """

    thread: Any  # int64, this thread's number
    n_threads: Any  # int64
    sync: Any  # int64[2], where they meet, see kernels/workers.py
    chunk: Any  # int64, rows of a chunk
    first: Any  # int64, the thread's features are range(first, last)
    last: Any  # int64
    start: Any  # int64, and their words of a histogram range(start, stop)
    stop: Any  # int64
    parts: Any  # int64[threads, words * bins], what each has added up of a node; none: alone
    found: Any  # float64[threads, 2, 2], the best split of each for two nodes: its score and name
    nodes: Any  # NODE[nodes], the tree once more, for all threads but the first
    leaf: Any  # uint8|uint16[trees or 1, n], the node each row ends in; 1: of the tree grown last
    value: Any  # float64[nodes], of the tree grown last


class Trees(NamedTuple):
    """A forest with what the state of its training notes of it."""

    nodes: Any  # NODE[trees, nodes]
    n_nodes: Any  # int64[trees]
    record: Any  # int64[trees, splits, 2 * candidates], no splits: not recorded
    leaf: Any  # uint8|uint16[trees, n], no rows: not wanted


class OldTree(NamedTuple):
    """One tree as it was, with the state of its training."""

    nodes: Any  # NODE[nodes]
    record: Any  # int64[splits, 2 * candidates]
    leaf: Any  # uint8|uint16[n]


class Block(NamedTuple):
    """Room for the gradients of a few rows at a time."""

    margins: Any  # float64[outputs, size]
    label: Any  # int32[size]; empty in regression
    target: Any  # float64[size]; empty where there are classes
    weight: Any  # float32[size]
    grad: Any  # int32[outputs, size]
    hess: Any  # int32[outputs, size]


class Walk(NamedTuple):
    """Scratch space of one thread for the update."""

    growth: Any  # Growth, for what is grown anew
    block: Any  # Block
    grad: Any  # int32[rows], of the rows that are asked for; empty where all are derived ahead
    hess: Any  # int32[rows], likewise
    touches: Any  # TOUCH[w + added]
    order: Any  # uint32[w + added], touches, each node's together
    spare: Any  # uint32[rows]
    delta: Any  # int64[2 * candidates]
    sums: Any  # int64[2 * candidates]
    stratum: Any  # int32[slots], stratum of every code
    found: Any  # uint32[n + 1], old rows in the wanted leaves
    by_leaf: Any  # uint32[n], the same sorted by leaf
    leaf_start: Any  # int64[nodes + 1]
    wanted: Any  # bool[nodes], old leaves
    leaf_sums: Any  # int64[SUM_COPIES * 2 * nodes], gradients and hessians of the old leaves
    stack: Any  # int64[nodes]
    leaves: Any  # int64[nodes]


class Pending(NamedTuple):
    """What the trees renewed last give to rows, until it is added to the margins of all.

    An iteration's place in it is its number modulo ``window``.
    """

    values: Any  # float64[window, outputs, nodes], by the leaf a row ends in
    leaf: Any  # uint8|uint16[window, outputs, n], the leaves of trees that were partly regrown
    is_regrown: Any  # bool[window, outputs]; where not, leaves are those of the old tree
    added: Any  # float64[outputs, added], what the last iteration gives to the added rows


class Source(NamedTuple):
    """Where the gradients of one tree come from."""

    margins: Any  # float64[outputs, rows]
    pending: Any  # Pending
    n_pending: Any  # int64, how many iterations are pending
    leaf: Any  # uint8|uint16[n_pending * outputs, n], of these iterations' old trees
    loss: Any  # Loss
    output: Any  # int64
    is_ahead: Any  # bool, whether the gradients of all rows were derived ahead


class Turn(NamedTuple):
    """The part of one thread in some iterations that several threads do together."""

    thread: Any  # int64, this thread's number
    n_threads: Any  # int64
    sync: Any  # int64[2], where they meet, see kernels/workers.py
    tickets: Any  # int64[iterations], how many trees of each were taken
    first: Any  # int64, the iterations are range(first, last)
    last: Any  # int64


class Training(NamedTuple):
    """What all threads of a training share."""

    binned: Any  # Binned
    loss: Any  # Loss
    rule: Any  # Rule
    keys: Any  # uint64[trees], from which the trees' roots draw their candidates
    margins: Any  # float64[outputs, n]
    grad: Any  # int32[outputs, n]
    hess: Any  # int32[outputs, n], no rows where hessian_bits says it all


class Renewal(NamedTuple):
    """What all threads of an update share; of ``rows`` rows the first n are the old ones.

    Forgotten rows are old rows with a weight and a count of zero.
    """

    binned: Any  # Binned, of all rows
    loss: Any  # Loss, of all rows
    rule: Any  # Rule
    knobs: Any  # Knobs
    margins: Any  # float64[outputs, rows], in the new model but for what is pending
    pending: Any  # Pending
    grad: Any  # int32[outputs, rows]; no rows where gradients are derived as they are asked for
    hess: Any  # int32[outputs, rows], likewise
    watched: Any  # int64[w], old rows that may change what they add to the sums
    past: Any  # Loss, of the watched rows as they were
    past_count: Any  # int32[w]
    before: Any  # float64[outputs, w], margins of the watched rows in the old model
    past_grad: Any  # int32[outputs, w]
    past_hess: Any  # int32[outputs, w]
    moved: Any  # bool[w], whose gradients are out of date
    touching: Any  # int64[w + added], the watched rows, then the added ones
    touch_grad: Any  # int32[outputs, w + added]
    touch_hess: Any  # int32[outputs, w + added]


class Knobs(NamedTuple):
    """How lazy an update is, see :mod:`timbermark.boosting.updating`."""

    patience: Any  # float64
    tolerance: Any  # float64
    largest: Any  # float64, the rows of a node up to which its split is put in question
    every: (
        Any  # int64, only every so-th iteration is thorough: splits and leaves are put in question
    )
    slight: Any  # float64, the share of a node's sums up to which touches are too slight for that
    still: Any  # float64, a leaf is refreshed where touches move its value by more than this


class Flat(NamedTuple):
    """The nodes of all trees, one after the other, as an ensemble holds them."""

    feature: Any  # int32[N]
    threshold: Any  # float64[N]
    left: Any  # int32[N]
    right: Any  # int32[N]
    missing_left: Any  # bool[N]
    value: Any  # float64[N, 1]
    count: Any  # float64[N]
    hessian: Any  # float64[N]
    gain: Any  # float64[N], in the units of the sums


@kernel
def flatten_trees(nodes, n_nodes, values, starts, unit, out):
    """Write the nodes of all trees to ``out``; codes become thresholds.

    IN nodes NODE[T, m]; IN n_nodes int64[T]; IN values float64, the thresholds of all features, and
    starts int64[d + 1], where those of each begin; IN unit float64, of the hessians; OUT out Flat.
    """
    i = 0
    for t in range(n_nodes.shape[0]):
        for j in range(n_nodes[t]):
            node = nodes[t, j]
            left = node["left"]
            out.left[i] = left
            out.missing_left[i] = node["missing_left"] == 1
            out.count[i] = node["c"]
            out.hessian[i] = node["h"] / unit
            if left < 0:
                out.feature[i] = -1
                out.threshold[i] = 0.0
                out.right[i] = -1
                out.value[i, 0] = node["value"]
                out.gain[i] = 0.0
            else:
                f = node["feature"]
                out.feature[i] = f
                # A split of missing values against all others: nothing is above infinity.
                place = starts[f] + node["code"]
                threshold = np.inf
                if node["code"] < 0:
                    threshold = -np.inf
                elif place < starts[f + 1]:
                    threshold = values[place]
                out.threshold[i] = threshold
                out.right[i] = left + 1
                out.value[i, 0] = 0.0
                out.gain[i] = node["gain"]
            i += 1


@kernel
def pack_sums(record, n_splits, kept, shift, g, h, c):
    """Write the sums of all splits apart, and only those of the candidates ``kept``.

    IN record int64[T, splits, 2 * candidates]; IN n_splits int64[T]; IN kept int64[k]; OUT g, h, c
    int32|int64[n, k]. Returns whether every sum fits its array.
    """
    mask = (np.int64(1) << shift) - np.int64(1)
    fits = True
    row = 0
    for t in range(record.shape[0]):
        for s in range(n_splits[t]):
            sums = record[t, s]
            for j in range(kept.shape[0]):
                gradients, packed = sums[2 * kept[j]], sums[2 * kept[j] + 1]
                g[row, j] = gradients
                h[row, j] = packed >> shift
                c[row, j] = packed & mask
                fits &= g[row, j] == gradients and h[row, j] == packed >> shift
            row += 1
    return fits


@kernel
def unpack_sums(g, h, c, n_splits, kept, shift, record):
    """Write sums back to where `pack_sums` took them from; IN and OUT the other way round."""
    row = 0
    for t in range(record.shape[0]):
        for s in range(n_splits[t]):
            sums = record[t, s]
            for j in range(kept.shape[0]):
                sums[2 * kept[j]] = g[row, j]
                sums[2 * kept[j] + 1] = (np.int64(h[row, j]) << shift) + np.int64(c[row, j])
            row += 1


@kernel
def add_by_exponent(bits, out):
    """Add up the mantissas of float64 numbers by their exponents, exactly.

    IN bits int64[n]: finite numbers; INOUT out int64[2047, 2]: the sums of the upper 26 and of the
    lower 27 binary digits. A number is its mantissa times 2 to its exponent less 1074, and the
    exponent 0 stands for that of 1, as in float64 itself.
    """
    digits = (np.int64(1) << 52) - np.int64(1)
    lower = (np.int64(1) << 27) - np.int64(1)
    for i in range(bits.shape[0]):
        own = bits[i]
        exponent = (own >> 52) & np.int64(0x7FF)
        mantissa = own & digits
        if exponent > 0:
            mantissa |= np.int64(1) << 52
        sign = np.int64(-1) if own < 0 else np.int64(1)
        out[exponent, 0] += sign * (mantissa >> 27)
        out[exponent, 1] += sign * (mantissa & lower)


@kernel
def find_counted(record, n_splits, shift, out):
    """Mark the candidates at which some split has counted a row; OUT out bool[candidates]."""
    mask = (np.int64(1) << shift) - np.int64(1)
    for t in range(record.shape[0]):
        for s in range(n_splits[t]):
            sums = record[t, s]
            for j in range(out.shape[0]):
                out[j] |= (sums[2 * j + 1] & mask) != 0


@kernel
def count_leaves(leaf, count, n_nodes, out):
    """Add up how many rows end in each node; return False where a row ends in no node.

    IN leaf uint8|uint16[T, n]; IN count int32[n]; IN n_nodes int64[T]; OUT out int64[T, m].
    """
    for t in range(leaf.shape[0]):
        ends, held = leaf[t], out[t]
        for i in range(ends.shape[0]):
            if ends[i] >= n_nodes[t]:
                return False
            held[ends[i]] += count[i]
    return True
