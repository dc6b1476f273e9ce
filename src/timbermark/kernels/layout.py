"""The records and groups of arrays that kernels pass to each other.

A tree under work is one record array, a row per node, and so is the scratch space beside it:
handing twenty separate arrays from kernel to kernel costs more time, in compilation and at every
call, than most kernels take.
"""

from typing import Any, NamedTuple

import numpy as np

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
    histograms: Any  # int64[slots, words * bins], see kernels/histogram.py
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
    leaf: Any  # uint8|uint16[n], the node each row ends in, where nobody else wants to know
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


class Walk(NamedTuple):
    """Scratch space of one thread for the update."""

    growth: Any  # Growth, for what is grown anew
    touches: Any  # TOUCH[rows]; the first rows are the old ones, the added ones follow
    order: Any  # uint32[rows], touches, each node's together
    spare: Any  # uint32[rows]
    delta: Any  # int64[2 * candidates]
    sums: Any  # int64[2 * candidates]
    codes: Any  # int64[candidates], threshold codes of a node's candidates
    stratum: Any  # int32[slots], stratum of every code
    by_leaf: Any  # uint32[n], old rows sorted by leaf
    leaf_start: Any  # int64[nodes + 1]; [0] is -1 while the rows are not sorted
    stack: Any  # int64[nodes]
    leaves: Any  # int64[nodes]
    table: Any  # float64[2, nodes], values of the old leaves, before and after


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
    """What all threads of an update share; of ``rows`` rows the first n are the old ones."""

    binned: Any  # Binned, of all rows
    loss: Any  # Loss, of all rows
    rule: Any  # Rule
    patience: Any  # float64, see timbermark.boosting.updating
    tolerance: Any  # float64
    before: Any  # float64[outputs, n], margins of the old rows in the old model
    after: Any  # float64[outputs, rows], margins of all rows in the new one
    grad: Any  # int32[outputs, rows]
    hess: Any  # int32[outputs, rows]
    old_grad: Any  # int32[outputs, n], no rows where the tolerance is infinite: nothing moves then
    old_hess: Any  # int32[outputs, n], likewise
    moved: Any  # bool[n], old rows whose gradients are out of date
