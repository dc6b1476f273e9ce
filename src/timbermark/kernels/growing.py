"""Best-first growth of one tree, and the pass that hands its leaves back to the rows.

The kernel is a coroutine: where a node holds so many rows that several threads should share its
histogram, or divide its rows, it returns and says so; the caller does that and calls again. Small
nodes are done in place. Both ways give the same sums, so both give the same tree.
"""

import numpy as np

from timbermark.kernels.compile import kernel, part
from timbermark.kernels.hashing import mix
from timbermark.kernels.histogram import (
    count_of,
    fill_rows,
    hessians_of,
    subtract_histogram,
    unpack,
)
from timbermark.kernels.layout import (
    DIVIDE,
    DONE,
    EVALUATE,
    EVALUATE_ROOT,
    N_LEAVES,
    N_NODES,
    N_SLOTS,
    N_SPLITS,
    PHASE,
    SPLIT,
    START,
    UNKNOWN,
    WAITING,
    Split,
)
from timbermark.kernels.splitting import (
    best_candidate,
    candidate,
    collect_candidates,
    partition,
)


@part
def chosen_split(node, binned, sums):
    """Return the Split that a node's choice names, and the left child's gradients and packed sum.

    IN node: a record of NODE; IN sums int64[2 * candidates], the node's.
    """
    choice = node["choice"]
    place = choice >> 1
    f = np.int64(0)
    while binned.firsts[f + 1] <= place:
        f += 1
    last = binned.firsts[f] + binned.n_strata[f]
    g, packed = sums[2 * place], sums[2 * place + 1]
    if place == last:
        # Missing values against all others: the others go left.
        others = (node["h"] << binned.shift) + node["c"] - packed
        return Split(f, binned.n_thresholds[f], np.int64(0)), node["g"] - g, others
    code = candidate(
        node["key"], f, place - binned.firsts[f], binned.n_thresholds[f], binned.n_strata[f]
    )
    missing_left = choice & 1
    if missing_left == 1:
        g += sums[2 * last]
        packed += sums[2 * last + 1]
    elif count_of(sums[2 * last + 1], binned) == 0:
        # Nothing was learned about missing values: they follow the larger child.
        missing_left = np.int64(2 * count_of(packed, binned) >= node["c"])
    return Split(f, code, missing_left), g, packed


@part
def search_split(node, nodes, fit, growth):
    """Find the best split of ``node`` from its histogram."""
    slot = growth.places[node]["slot"]
    sums = growth.sums[slot]
    collect_candidates(growth.histograms[slot], fit.binned, nodes[node]["key"], sums)
    choice = best_candidate(nodes[node], sums, fit.binned, fit.rule, growth.gain)
    nodes[node]["choice"] = choice
    nodes[node]["gain"] = growth.gain[0] if choice >= 0 else -1.0


@part
def start_tree(key, nodes, growth):
    """Start a tree of one node, without rows so far."""
    control = growth.control
    control[N_NODES] = 1
    control[N_LEAVES] = 1
    control[N_SLOTS] = 0
    control[N_SPLITS] = 0
    control[WAITING] = 0
    zero = np.int64(0)
    new_node(zero, zero, zero, zero, key, nodes, growth)


@part
def list_all_rows(growth):
    """Give the root all rows and a clean histogram."""
    n = growth.rows.shape[0]
    for i in range(n):
        growth.rows[i] = i
    growth.places[0]["start"] = 0
    growth.places[0]["stop"] = n
    growth.places[0]["slot"] = 0
    growth.histograms[0, :] = 0
    growth.control[N_SLOTS] = 1


@part
def new_node(node, g, h, c, key, nodes, growth):
    """Write a fresh leaf at ``node``, with sums but no rows so far."""
    nodes[node]["feature"] = -1
    nodes[node]["code"] = 0
    nodes[node]["missing_left"] = 0
    nodes[node]["left"] = -1
    nodes[node]["g"] = g
    nodes[node]["h"] = h
    nodes[node]["c"] = c
    nodes[node]["gain"] = -1.0
    nodes[node]["choice"] = UNKNOWN
    nodes[node]["split"] = -1
    nodes[node]["key"] = key
    growth.places[node]["start"] = 0
    growth.places[node]["stop"] = 0
    growth.places[node]["slot"] = -1


@part
def best_leaf(nodes, n_nodes):
    """Return the leaf with the highest gain, the first of equals; -1 where none can be split."""
    found = -1
    highest = 0.0
    for node in range(n_nodes):
        if nodes[node]["split"] < 0 and nodes[node]["gain"] > highest:
            highest = nodes[node]["gain"]
            found = node
    return found


@part
def split_node(node, nodes, binned, growth, record):
    """Carry out the best split of ``node``: make its children, divide its rows among them.

    The candidates' sums go to ``record`` unless that has no rows. Returns the left child.
    """
    take_split(node, nodes, binned, growth, record)
    divide_rows(node, nodes, binned, growth)
    return nodes[node]["left"]


@part
def take_split(node, nodes, binned, growth, record):
    """Make ``node`` a split with two children, whose rows are not known yet."""
    sums = growth.sums[growth.places[node]["slot"]]
    split, g, packed = chosen_split(nodes[node], binned, sums)
    if record.shape[0] > 0:
        kept = record[growth.control[N_SPLITS]]
        for j in range(sums.shape[0]):
            kept[j] = sums[j]
    link_children(node, split, g, packed, nodes, binned, growth)


@kernel
def divide_part(node, nodes, binned, rows, start, stop, spare):
    """Move those of ``rows[start:stop]`` that go left at a split to the front, as `partition` does.

    IN nodes NODE[m]; IN binned Binned; INOUT rows uint32[n]; OUT spare uint32[stop - start].
    Returns where the right half begins.
    """
    f = nodes[node]["feature"]
    return partition(
        binned.columns[f], nodes[node]["code"], binned.n_thresholds[f] + 1,
        nodes[node]["missing_left"], rows, start, stop, spare,
    )  # fmt: skip


@part
def divide_rows(node, nodes, binned, growth):
    """Give the rows of ``node``, a split, to its children."""
    start, stop = growth.places[node]["start"], growth.places[node]["stop"]
    middle = divide_part(node, nodes, binned, growth.rows, start, stop, growth.spare)
    left = nodes[node]["left"]
    growth.places[left]["start"] = start
    growth.places[left]["stop"] = middle
    growth.places[left + 1]["start"] = middle
    growth.places[left + 1]["stop"] = stop


@part
def link_children(node, split, g, packed, nodes, binned, growth):
    """Make ``node`` a split and write its children; ``g, packed`` are the left one's sums.

    Returns the left child.
    """
    control = growth.control
    left = control[N_NODES]
    nodes[node]["feature"] = split.feature
    nodes[node]["code"] = split.code
    nodes[node]["missing_left"] = split.missing_left
    nodes[node]["left"] = left
    nodes[node]["split"] = control[N_SPLITS]
    key = nodes[node]["key"]
    h, c = hessians_of(packed, binned), count_of(packed, binned)
    new_node(left, g, h, c, mix(key, np.uint64(0)), nodes, growth)
    new_node(
        left + 1, nodes[node]["g"] - g, nodes[node]["h"] - h, nodes[node]["c"] - c,
        mix(key, np.uint64(1)), nodes, growth,
    )  # fmt: skip
    control[N_NODES] += 2
    control[N_LEAVES] += 1
    control[N_SPLITS] += 1
    return left


@part
def assign_slots(left, slot, growth):
    """Give the larger child its parent's histogram and the smaller one, returned, a clean one."""
    control = growth.control
    middle = growth.places[left]["stop"]
    is_larger = middle - growth.places[left]["start"] > growth.places[left + 1]["stop"] - middle
    small = left + 1 if is_larger else left
    growth.places[2 * left + 1 - small]["slot"] = slot
    growth.places[small]["slot"] = control[N_SLOTS]
    growth.histograms[control[N_SLOTS], :] = 0
    control[N_SLOTS] += 1
    control[WAITING] = small
    return small


@part
def fill_node(node, fit, growth):
    """Add all rows of ``node`` to its histogram."""
    place = growth.places[node]
    fill_rows(
        fit.binned, growth.rows, place["start"], place["stop"], fit.grad, fit.hess,
        growth.histograms[place["slot"]],
    )  # fmt: skip


@part
def can_split(node, nodes, rule):
    """Return whether ``node`` has rows enough for two children."""
    return nodes[node]["c"] >= 2 * rule.least_rows


@part
def search_children(small, nodes, fit, growth):
    """Search the best splits of ``small``, whose histogram is filled, and of its sibling."""
    large = small + 1 if small % 2 == 1 else small - 1
    subtract_histogram(
        growth.histograms[growth.places[large]["slot"]],
        growth.histograms[growth.places[small]["slot"]],
    )
    for node in (small, large):
        if can_split(node, nodes, fit.rule):
            search_split(node, nodes, fit, growth)


@part
def sum_node(node, nodes, binned, growth):
    """Read a node's own sums off its histogram: any feature's bins hold all rows."""
    histogram = growth.histograms[growth.places[node]["slot"]]
    g = np.int64(0)
    packed = np.int64(0)
    words = 1 if binned.hessian_bits >= 0 else 2
    for b in range(binned.n_thresholds[0] + 2):
        g += histogram[words * b]
        packed += histogram[words * (b + 1) - 1]
    g, packed = unpack(g, packed, binned)
    nodes[node]["g"] = g
    nodes[node]["h"] = hessians_of(packed, binned)
    nodes[node]["c"] = count_of(packed, binned)


@part
def split_best_leaf(nodes, fit, growth, record):
    """Split the leaf with the highest gain: its rows wait to be divided, DIVIDE.

    Where no leaf can be split, the tree is DONE.
    """
    control = growth.control
    node = best_leaf(nodes, control[N_NODES])
    if node < 0 or control[N_LEAVES] >= fit.rule.max_leaves:
        control[PHASE] = DONE
        return
    take_split(node, nodes, fit.binned, growth, record)
    control[WAITING] = node
    control[PHASE] = DIVIDE


@part
def want_histogram(nodes, fit, growth):
    """Return the child of the node just split whose histogram is wanted next.

    -1 where none is: the children are too small to be split, or the tree is DONE.
    """
    control = growth.control
    node = control[WAITING]
    left = nodes[node]["left"]
    if control[N_LEAVES] >= fit.rule.max_leaves:
        control[PHASE] = DONE
        return np.int64(-1)
    if not can_split(left, nodes, fit.rule) and not can_split(left + 1, nodes, fit.rule):
        control[PHASE] = SPLIT
        return np.int64(-1)
    return np.int64(assign_slots(left, growth.places[node]["slot"], growth))


@kernel
def grow(fit, key, share_above, nodes, growth, record):
    """Grow a tree until it is done or work on over ``share_above`` rows is wanted.

    IN fit Fit; IN key uint64; INOUT nodes NODE[m]; INOUT growth Growth; OUT record
    int64[splits, 2 * candidates], the candidates' sums of every split made (no rows: not
    recorded). ``growth.control[PHASE]`` must be START at first. When it comes back as EVALUATE or
    EVALUATE_ROOT, the caller fills the histogram of the node ``growth.control[WAITING]`` and calls
    again; as DIVIDE, it divides the rows of that node among its children; at DONE the tree is
    whole.
    """
    control = growth.control
    root = np.int64(0)  # typed: a literal would be compiled for apart
    if control[PHASE] == START:
        start_tree(key, nodes, growth)
        list_all_rows(growth)
        control[PHASE] = EVALUATE_ROOT
        if growth.rows.shape[0] > share_above:
            return
        fill_node(root, fit, growth)
    if control[PHASE] == EVALUATE_ROOT:
        sum_node(root, nodes, fit.binned, growth)
        search_split(root, nodes, fit, growth)
        control[PHASE] = SPLIT
    while control[PHASE] != DONE:
        if control[PHASE] == SPLIT:
            split_best_leaf(nodes, fit, growth, record)
            if control[PHASE] == DONE:
                return
            waiting = growth.places[control[WAITING]]
            if waiting["stop"] - waiting["start"] > share_above:
                return
            divide_rows(control[WAITING], nodes, fit.binned, growth)
        if control[PHASE] == DIVIDE:
            small = want_histogram(nodes, fit, growth)
            if small < 0:
                continue
            control[PHASE] = EVALUATE
            if growth.places[small]["stop"] - growth.places[small]["start"] > share_above:
                return
            fill_node(small, fit, growth)
        search_children(control[WAITING], nodes, fit, growth)
        control[PHASE] = SPLIT


@kernel
def finish_tree(nodes, rule, growth, leaf, margin):
    """Set the values of a tree's leaves, note each row's leaf, and add the tree to the margins.

    INOUT nodes NODE[m]; IN rule Rule; OUT leaf uint8|uint16[n] (empty: not wanted); INOUT margin
    float64[n].
    """
    set_values(nodes, rule, growth)
    finish_rows(nodes, growth, 0, growth.rows.shape[0], leaf, margin)


@kernel
def set_values(nodes, rule, growth):
    """Set the values of all nodes of a tree; arguments as of `finish_tree`."""
    for node in range(growth.control[N_NODES]):
        nodes[node]["value"] = leaf_value(nodes[node]["g"], nodes[node]["h"], rule)


@kernel
def finish_rows(nodes, growth, start, stop, leaf, margin):
    """Add the leaves of ``growth.rows[start:stop]`` to their margins, and note them.

    Arguments as of `finish_tree`.
    """
    for node in range(growth.control[N_NODES]):
        if nodes[node]["split"] < 0:
            first = max(np.int64(growth.places[node]["start"]), start)
            last = min(np.int64(growth.places[node]["stop"]), stop)
            for i in range(first, last):
                row = growth.rows[i]
                margin[row] += nodes[node]["value"]
                if leaf.shape[0] > 0:
                    leaf[row] = node


@part
def leaf_value(g, h, rule):
    """Return step * g / (h + l2), with the quotient held within +-limit."""
    if h <= 0:
        return 0.0
    return rule.step * min(max(np.float64(g) / (np.float64(h) + rule.l2), -rule.limit), rule.limit)
