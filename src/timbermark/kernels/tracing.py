"""What training would have noted down about a tree that is already there.

Rows are sent through the tree as it is; on the way the sums of every node and of all its split
candidates are collected. So a state can be had for any tree, whoever grew it.
"""

import numpy as np

from timbermark.kernels.compile import kernel, part
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
from timbermark.kernels.histogram import count_of, subtract_histogram
from timbermark.kernels.layout import NONE, OUTSIDE, UNKNOWN
from timbermark.kernels.splitting import candidate, collect_candidates, score, split_score


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
