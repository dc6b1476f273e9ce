"""Several iterations of the in-place update on several threads, as in training.

In an iteration every thread brings the margins and gradients of its own rows up to date, meets the
others, and takes trees to renew until none is left. What a renewed tree gives to rows is *pending*
until the next iteration that needs the margins of all. Where few rows come or go, the gradients of
all others are derived only as they are asked for, see :mod:`timbermark.kernels.regrowing`.

It also recovers what training would have noted down about a tree that is already there: rows are
sent through the tree, and on the way the sums of every node and of all its split candidates are
collected. So a state can be had for any tree, whoever grew it. Subtrees are regrown in
:mod:`timbermark.kernels.regrowing`.
"""

from __future__ import annotations

import numpy as np

from timbermark.kernels.compile import kernel, part
from timbermark.kernels.gradients import gradients_of_rows
from timbermark.kernels.growing import (
    assign_slots,
    can_split,
    divide_rows,
    fill_node,
    list_all_rows,
    search_split,
    sum_node,
)
from timbermark.kernels.hashing import mix
from timbermark.kernels.layout import N_NODES, NONE, OUTSIDE, UNKNOWN, Fit, OldTree, Source
from timbermark.kernels.regrowing import (
    derive_block,
    finish_renewal,
    gather_block,
    refresh_leaves,
    renew_tree,
)
from timbermark.kernels.splitting import (
    candidate,
    collect_candidates,
    count_of,
    pack,
    score,
    split_score,
    subtract_histogram,
)
from timbermark.kernels.workers import meet, own_rows, take

_ROWS = 1024
"""Rows whose margins and gradients are brought up to date at a time."""


@part
def name_split(node, binned, sums):
    """Return the name of a node's split among its candidates, OUTSIDE where it is none of them."""
    f, code = node["feature"], np.int64(node["code"])
    first, strata = binned.firsts[f], binned.n_strata[f]
    if code == binned.n_thresholds[f]:
        return 2 * (first + strata)
    missing = count_of(sums[2 * (first + strata) + 1], binned)
    for s in range(strata):
        if candidate(node["key"], f, s, binned.n_thresholds[f], strata) == code:
            return 2 * (first + s) + (node["missing_left"] if missing > 0 else 0)
    return OUTSIDE


@part
def trace_split(node, nodes, fit, growth, record):
    """Fill in what training notes of a split; its children get their sums, keys and rows.

    OUT record int64[2 * candidates].
    """
    binned = fit.binned
    here = nodes[node]
    slot = growth.places[node]["slot"]
    collect_candidates(growth.histograms[slot], binned, here["key"], record)
    here["choice"] = name_split(here, binned, record)
    left = np.int64(here["left"])
    divide_rows(node, nodes, binned, growth)
    small = assign_slots(left, slot, growth)
    large = 2 * left + 1 - small
    fill_node(small, fit, growth)
    subtract_histogram(growth.histograms[slot], growth.histograms[growth.places[small]["slot"]])
    for side in range(2):
        nodes[left + side]["key"] = mix(here["key"], np.uint64(side))
    sum_node(small, nodes, binned, growth)
    nodes[large]["g"] = here["g"] - nodes[small]["g"]
    nodes[large]["h"] = here["h"] - nodes[small]["h"]
    nodes[large]["c"] = here["c"] - nodes[small]["c"]
    both = split_score(
        nodes[left]["g"], nodes[left]["h"], nodes[left]["c"], here["g"], here["h"], here["c"],
        fit.rule,
    )  # fmt: skip
    here["gain"] = both - score(here["g"], here["h"], fit.rule.l2)


@kernel
def trace_tree(fit, key, n_nodes, nodes, growth, record, leaf):
    """Fill in the sums, gains, choices and keys of a tree whose splits and values are given.

    IN fit Fit; IN key uint64, the root's; IN n_nodes int64; INOUT nodes NODE[m]: feature, code,
    missing_left, left, split and value are read, the rest is written; splits are numbered parents
    first; OUT record int64[splits, 2 * candidates]; OUT leaf uint8|uint16[n].
    """
    root = np.int64(0)
    list_all_rows(growth)
    nodes[root]["key"] = key
    fill_node(root, fit, growth)
    sum_node(root, nodes, fit.binned, growth)
    n_splits = n_nodes // 2
    for split in range(n_splits):
        node = root
        while nodes[node]["split"] != split:
            node += 1
        trace_split(node, nodes, fit, growth, record[split])
    for node in range(n_nodes):
        if nodes[node]["split"] >= 0:
            continue
        nodes[node]["choice"] = UNKNOWN
        nodes[node]["gain"] = NONE
        # The children of the last split of a full tree were never searched.
        in_time = n_splits + 1 < fit.rule.max_leaves or node < n_nodes - 2
        if in_time and (node == 0 or can_split(node, nodes, fit.rule)):
            search_split(node, nodes, fit, growth)
        for i in range(growth.places[node]["start"], growth.places[node]["stop"]):
            leaf[growth.rows[i]] = node


@kernel
def add_leaves(nodes, leaf, margin):
    """Add a tree's leaf values to the margins: IN leaf uint8|uint16[n]; INOUT margin float64[n]."""
    for i in range(leaf.shape[0]):
        margin[i] += nodes[leaf[i]]["value"]


@part
def derive_touching(renewal, margins, start, stop, block):
    """Derive the gradients of ``renewal.touching[start:stop]`` from the margins as they are."""
    size = block.weight.shape[0]
    for first in range(start, stop, size):
        last = min(first + size, stop)
        gather_block(renewal.touching, first, last, margins, renewal.loss, block)
        derive_block(last - first, renewal.loss, block)
        for output in range(margins.shape[0]):
            for i in range(last - first):
                renewal.touch_grad[output, first + i] = block.grad[output, i]
                renewal.touch_hess[output, first + i] = block.hess[output, i]


@part
def find_moved(before, watched, margins, tolerance, start, stop, out):
    """Mark the watched rows whose margin moved by more than ``tolerance`` in any output.

    IN before float64[outputs, w]; IN watched int64[w]; IN margins float64[outputs, rows]; OUT out
    bool[w].
    """
    for j in range(start, stop):
        moved = False
        for output in range(before.shape[0]):
            moved |= abs(before[output, j] - margins[output, watched[j]]) > tolerance
        out[j] = moved


@part
def list_touches(renewal, output, out):
    """List the touches of one tree. Returns how many there are.

    Added rows enter, forgotten rows leave, rows that have moved change. OUT out TOUCH[w + added].
    """
    binned, watched = renewal.binned, renewal.watched
    n_watched = watched.shape[0]
    grad, hess = renewal.touch_grad[output], renewal.touch_hess[output]
    n = 0
    for j in range(n_watched, grad.shape[0]):
        row = renewal.touching[j]
        out[n]["row"] = row
        out[n]["g"] = np.int64(grad[j])
        out[n]["packed"] = pack(np.int64(hess[j]), np.int64(binned.count[row]), binned)
        n += 1
    for j in range(n_watched):
        row = watched[j]
        c = np.int64(binned.count[row]) - np.int64(renewal.past_count[j])
        if renewal.moved[j] or c != 0:
            g = np.int64(grad[j]) - np.int64(renewal.past_grad[output, j])
            h = np.int64(hess[j]) - np.int64(renewal.past_hess[output, j])
            if g != 0 or h != 0 or c != 0:
                out[n]["row"] = row
                out[n]["g"] = g
                out[n]["packed"] = pack(h, c, binned)
                n += 1
    return n


@kernel
def renew_trees(turn, renewal, trees, nodes, n_nodes, walk):
    """Do what `take_part` does, called from Python."""
    take_part(turn, renewal, trees, nodes, n_nodes, walk)


@part
def add_pending(renewal, leaf, n_pending, start, stop):
    """Add what is pending to the margins of the old rows ``start`` to ``stop``.

    IN leaf uint8|uint16[n_pending * outputs, n]: the leaves of the old trees. Two iterations at a
    time: margins are read and written once for both.
    """
    pending, n_outputs = renewal.pending, renewal.margins.shape[0]
    for output in range(n_outputs):
        margins = renewal.margins[output, start:stop]
        for place in range(0, n_pending, 2):
            row = place * n_outputs + output
            first, values = leaf[row, start:stop], pending.values[place, output]
            if pending.is_regrown[place, output]:
                first = pending.leaf[place, output, start:stop]
            if place + 1 == n_pending:
                for i in range(stop - start):
                    margins[i] += values[first[i]]
                break
            second, more = leaf[row + n_outputs, start:stop], pending.values[place + 1, output]
            if pending.is_regrown[place + 1, output]:
                second = pending.leaf[place + 1, output, start:stop]
            for i in range(stop - start):
                margins[i] = margins[i] + values[first[i]] + more[second[i]]


@part
def advance_rows(renewal, leaf, n_pending, start, stop):
    """Update the margins of old rows and, where all are wanted, their gradients.

    In blocks that stay in the cache.
    """
    n, n_ahead = leaf.shape[1], renewal.grad.shape[1]
    size = _ROWS if n_ahead > 0 else max(stop - start, 1)
    for first in range(start, stop, size):
        last = min(first + size, stop)
        if first < n:
            add_pending(renewal, leaf, n_pending, first, min(last, n))
        if n_ahead > 0:
            gradients_of_rows(
                renewal.margins, renewal.loss, first, last, renewal.grad, renewal.hess
            )


@part
def first_from(rows, least):
    """Return the place of the first of ascending ``rows`` that is at least ``least``."""
    low, high = 0, rows.shape[0]
    while low < high:
        middle = (low + high) // 2
        if rows[middle] < least:
            low = middle + 1
        else:
            high = middle
    return low


@part
def take_part(turn, renewal, trees, nodes, n_nodes, walk):
    """Do one thread's part of renewing the trees of some iterations.

    IN turn Turn; INOUT renewal Renewal; IN trees Trees, the forest and the state of its training on
    the old rows; OUT nodes NODE[trees, m], n_nodes int64[trees]: the renewed forest; walk Walk,
    this thread's own.
    """
    watched, before, knobs = renewal.watched, renewal.before, renewal.knobs
    margins, pending = renewal.margins, renewal.pending
    n_outputs, n_old = margins.shape[0], trees.leaf.shape[1]
    # Nobody else reads or writes the margins of a thread's own rows before the first meeting.
    start, stop = own_rows(turn, margins.shape[1])
    touch_start, touch_stop = (
        first_from(renewal.touching, start),
        first_from(renewal.touching, stop),
    )
    past_start, past_stop = first_from(watched, start), first_from(watched, stop)
    for iteration in range(turn.first, turn.last):
        place = iteration % knobs.every
        is_thorough = place == 0
        for row in range(max(start, n_old), stop if iteration > 0 else 0):
            for output in range(n_outputs):
                margins[output, row] += pending.added[output, row - n_old]
        if is_thorough:
            n_pending = min(iteration, knobs.every)
            late = trees.leaf[(iteration - n_pending) * n_outputs : iteration * n_outputs]
            advance_rows(renewal, late, n_pending, start, stop)
        derive_touching(renewal, margins, touch_start, touch_stop, walk.block)
        if past_start < past_stop:
            gradients_of_rows(
                before, renewal.past, past_start, past_stop, renewal.past_grad, renewal.past_hess
            )
            find_moved(
                before, watched, margins, knobs.tolerance, past_start, past_stop, renewal.moved
            )
        if not meet(turn.sync, 2 * (iteration - turn.first) + 1, turn.n_threads):
            return
        late = trees.leaf[(iteration - place) * n_outputs : iteration * n_outputs]
        output = take(turn.tickets, iteration)
        while output < n_outputs:
            t = iteration * n_outputs + output
            old = OldTree(trees.nodes[t, : trees.n_nodes[t]], trees.record[t], trees.leaf[t])
            is_ahead = is_thorough and renewal.grad.shape[1] > 0
            source = Source(margins, pending, place, late, renewal.loss, output, is_ahead)
            grad, hess = walk.grad, walk.hess
            if is_ahead:
                grad, hess = renewal.grad[output], renewal.hess[output]
            fit = Fit(renewal.binned, grad, hess, renewal.rule)
            n_touches = list_touches(renewal, output, walk.touches)
            patience = knobs.patience if is_thorough else np.inf
            renew_tree(n_touches, nodes[t], fit, old, source, patience, knobs, walk)
            if is_ahead and knobs.tolerance > 0.0:
                refresh_leaves(nodes[t], fit, old, knobs.still, walk)
            finish_renewal(nodes[t], fit.rule, old, walk, pending, place, output)
            for j in range(watched.shape[0]):
                before[output, j] += old.nodes[old.leaf[watched[j]]]["value"]
            n_nodes[t] = walk.growth.control[N_NODES]
            output = take(turn.tickets, iteration)
        if not meet(turn.sync, 2 * (iteration - turn.first) + 2, turn.n_threads):
            return
