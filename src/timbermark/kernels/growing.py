"""Best-first growth of one tree, and the pass that hands its leaves back to the rows.

The kernel is a coroutine: where a node holds so many rows that several threads should share its
histogram, it returns and says so; the caller fills the histogram and calls again. Small nodes are
done in place. Both ways give the same sums, so both give the same tree.
"""

import numpy as np

from timbermark.kernels.compile import kernel, part
from timbermark.kernels.hashing import mix
from timbermark.kernels.histogram import fill_rows, subtract_histogram, unpack
from timbermark.kernels.layout import (
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
)
from timbermark.kernels.splitting import (
    best_candidate,
    candidate,
    collect_candidates,
    partition,
)


@part
def child_sums(node, binned, sums, shift):
    """Feature, code, missing_left and the left child's sums of a node's chosen split.

    IN node: a record of NODE; IN sums int64[2 * candidates], the node's.
    """
    choice = node["choice"]
    place = choice >> 1
    f = 0
    while binned.firsts[f + 1] <= place:
        f += 1
    last = binned.firsts[f] + binned.n_strata[f]
    mask = (np.int64(1) << shift) - np.int64(1)
    g, packed = sums[2 * place], sums[2 * place + 1]
    if place == last:
        # Missing values against all others: the others go left.
        h, c = node["h"] - (packed >> shift), node["c"] - (packed & mask)
        return f, binned.n_thresholds[f], 0, node["g"] - g, h, c
    code = candidate(
        node["key"], f, place - binned.firsts[f], binned.n_thresholds[f], binned.n_strata[f]
    )
    missing_left = choice & 1
    if missing_left == 1:
        g += sums[2 * last]
        packed += sums[2 * last + 1]
    elif (sums[2 * last + 1] & mask) == 0:
        # Nothing was learned about missing values: they follow the larger child.
        missing_left = np.int64(2 * (packed & mask) >= node["c"])
    return f, code, missing_left, g, packed >> shift, packed & mask


@part
def search_split(node, nodes, binned, growth, shift, rule):
    """Find the best split of ``node`` from its histogram."""
    slot = growth.places[node]["slot"]
    sums = growth.sums[slot]
    collect_candidates(growth.histograms[slot], binned, shift, nodes[node]["key"], sums)
    nodes[node]["choice"] = best_candidate(
        sums,
        binned.n_strata,
        binned.firsts,
        nodes[node]["g"],
        nodes[node]["h"],
        nodes[node]["c"],
        shift,
        rule,
        growth.gain,
    )
    nodes[node]["gain"] = growth.gain[0] if nodes[node]["choice"] >= 0 else -1.0


@part
def start_tree(key, nodes, growth):
    """A tree of one node, without rows so far."""
    control = growth.control
    control[N_NODES] = 1
    control[N_LEAVES] = 1
    control[N_SLOTS] = 0
    control[N_SPLITS] = 0
    control[WAITING] = 0
    zero = np.int64(0)
    new_node(zero, zero, zero, zero, key, nodes, growth)


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
    growth.places[node]["depth"] = 0


@part
def best_leaf(nodes, n_nodes):
    """The leaf with the highest gain, the first of equals; -1 where no leaf can be split."""
    found = -1
    highest = 0.0
    for node in range(n_nodes):
        if nodes[node]["split"] < 0 and nodes[node]["gain"] > highest:
            highest = nodes[node]["gain"]
            found = node
    return found


@part
def split_node(node, nodes, binned, growth, shift, record):
    """Carry out the best split of ``node``: partition its rows, make its children.

    The candidates' sums go to ``record`` unless that has no rows. Returns the left child.
    """
    control = growth.control
    sums = growth.sums[growth.places[node]["slot"]]
    f, code, missing_left, g, h, c = child_sums(nodes[node], binned, sums, shift)
    if record.shape[0] > 0:
        kept = record[control[N_SPLITS]]
        for j in range(sums.shape[0]):
            kept[j] = sums[j]
    middle = partition(
        binned.columns[f], code, binned.n_thresholds[f] + 1, missing_left,
        growth.rows, growth.places[node]["start"], growth.places[node]["stop"], growth.spare,
    )  # fmt: skip
    left = link_children(node, f, code, missing_left, g, h, c, nodes, growth)
    growth.places[left]["start"] = growth.places[node]["start"]
    growth.places[left]["stop"] = middle
    growth.places[left + 1]["start"] = middle
    growth.places[left + 1]["stop"] = growth.places[node]["stop"]
    return left


@part
def link_children(node, f, code, missing_left, g, h, c, nodes, growth):
    """Make ``node`` a split and write its two children; ``g, h, c`` are the left one's sums."""
    control = growth.control
    left = control[N_NODES]
    nodes[node]["feature"] = f
    nodes[node]["code"] = code
    nodes[node]["missing_left"] = missing_left
    nodes[node]["left"] = left
    nodes[node]["split"] = control[N_SPLITS]
    key = nodes[node]["key"]
    new_node(left, g, h, c, mix(key, np.uint64(0)), nodes, growth)
    new_node(
        left + 1, nodes[node]["g"] - g, nodes[node]["h"] - h, nodes[node]["c"] - c,
        mix(key, np.uint64(1)), nodes, growth,
    )  # fmt: skip
    for child in range(left, left + 2):
        growth.places[child]["depth"] = growth.places[node]["depth"] + 1
    control[N_NODES] += 2
    control[N_LEAVES] += 1
    control[N_SPLITS] += 1
    return left


@part
def assign_slots(left, slot, growth):
    """Give the larger child its parent's histogram and the smaller one, returned, a clean one."""
    control = growth.control
    small = left
    if (
        growth.places[left]["stop"] - growth.places[left]["start"]
        > growth.places[left + 1]["stop"] - growth.places[left + 1]["start"]
    ):
        small = left + 1
    growth.places[2 * left + 1 - small]["slot"] = slot
    growth.places[small]["slot"] = control[N_SLOTS]
    growth.histograms[control[N_SLOTS], :] = 0
    control[N_SLOTS] += 1
    control[WAITING] = small
    return small


@part
def fill_node(node, binned, grad, hess, shift, growth):
    """Add all rows of ``node`` to its histogram."""
    place = growth.places[node]
    fill_rows(
        binned, growth.rows, place["start"], place["stop"], grad, hess, shift,
        growth.histograms[place["slot"]],
    )  # fmt: skip


@part
def search_children(small, nodes, binned, growth, shift, rule):
    """Best splits of ``small``, whose histogram is filled, and of its sibling."""
    large = small + 1 if small % 2 == 1 else small - 1
    subtract_histogram(
        growth.histograms[growth.places[large]["slot"]],
        growth.histograms[growth.places[small]["slot"]],
    )
    for node in (small, large):
        if nodes[node]["c"] >= 2 * rule[2]:
            search_split(node, nodes, binned, growth, shift, rule)


@part
def sum_root(node, nodes, binned, growth, shift):
    """A node's own sums, read off its histogram (any feature's bins hold all rows)."""
    histogram = growth.histograms[growth.places[node]["slot"]]
    mask = (np.int64(1) << shift) - np.int64(1)
    g = np.int64(0)
    packed = np.int64(0)
    words = 1 if binned.hessian_bits >= 0 else 2
    for b in range(binned.n_thresholds[0] + 2):
        g += histogram[words * b]
        packed += histogram[words * (b + 1) - 1]
    g, packed = unpack(g, packed, binned.hessian_bits, shift)
    nodes[node]["g"] = g
    nodes[node]["h"] = packed >> shift
    nodes[node]["c"] = packed & mask


@kernel
def grow(binned, grad, hess, shift, rule, max_leaves, key, share_above, nodes, growth, record):
    """Grow a tree until it is done or a histogram of over ``share_above`` rows is wanted.

    IN binned Binned; IN grad, hess int32[n]; IN rule as in :func:`best_candidate`; IN key uint64;
    INOUT nodes NODE[m]; INOUT growth Growth; OUT record int64[splits, 2 * candidates], the
    candidates' sums of every split made (no rows: not recorded). ``growth.control[PHASE]`` must
    be START at first. When it comes back as EVALUATE or EVALUATE_ROOT, the caller fills the
    histogram of the node ``growth.control[WAITING]`` and calls again; at DONE the tree is whole.
    """
    control = growth.control
    root = np.int64(0)  # typed: a literal would be compiled for apart
    if control[PHASE] == START:
        n = growth.rows.shape[0]
        for i in range(n):
            growth.rows[i] = i
        start_tree(key, nodes, growth)
        growth.places[0]["stop"] = n
        growth.places[0]["slot"] = 0
        growth.histograms[0, :] = 0
        control[N_SLOTS] = 1
        control[PHASE] = EVALUATE_ROOT
        if n > share_above:
            return
        fill_node(root, binned, grad, hess, shift, growth)
    if control[PHASE] == EVALUATE_ROOT:
        sum_root(root, nodes, binned, growth, shift)
        search_split(root, nodes, binned, growth, shift, rule)
        control[PHASE] = SPLIT
    while True:
        if control[PHASE] == SPLIT:
            node = best_leaf(nodes, control[N_NODES])
            if node < 0 or control[N_LEAVES] >= max_leaves:
                control[PHASE] = DONE
                return
            slot = growth.places[node]["slot"]
            left = split_node(node, nodes, binned, growth, shift, record)
            if control[N_LEAVES] >= max_leaves:
                control[PHASE] = DONE
                return
            if max(nodes[left]["c"], nodes[left + 1]["c"]) < 2 * rule[2]:
                continue
            small = assign_slots(left, slot, growth)
            control[PHASE] = EVALUATE
            if growth.places[small]["stop"] - growth.places[small]["start"] > share_above:
                return
            fill_node(small, binned, grad, hess, shift, growth)
        search_children(control[WAITING], nodes, binned, growth, shift, rule)
        control[PHASE] = SPLIT


@kernel
def finish_tree(nodes, growth, scale, l2, limit, leaf, margin):
    """Leaf values, each row's leaf, and the margins with this tree added.

    INOUT nodes NODE[m]; IN scale float64: learning rate times the objective's factor; IN l2,
    limit float64: the regularisation and the largest |G / (H + l2)|; OUT leaf uint8|uint16[n]
    (empty: not wanted); INOUT margin float64[n].
    """
    for node in range(growth.control[N_NODES]):
        v = leaf_value(nodes[node]["g"], nodes[node]["h"], scale, l2, limit)
        nodes[node]["value"] = v
        if nodes[node]["split"] < 0:
            for i in range(growth.places[node]["start"], growth.places[node]["stop"]):
                row = growth.rows[i]
                margin[row] += v
                if leaf.shape[0] > 0:
                    leaf[row] = node


@part
def leaf_value(g, h, scale, l2, limit):
    """scale * g / (h + l2), with the quotient held within +-limit."""
    if h <= 0:
        return 0.0
    return scale * min(max(np.float64(g) / (np.float64(h) + l2), -limit), limit)
