"""What training would have noted down about a tree that is already there.

Rows are sent through the tree as it is; on the way the sums of every node and of all its split
candidates are collected. So a state can be had for any tree, whoever grew it.
"""

import numpy as np

from timbermark.kernels.compile import kernel, part
from timbermark.kernels.growing import (
    assign_slots,
    fill_node,
    search_split,
    sum_root,
)
from timbermark.kernels.hashing import mix
from timbermark.kernels.histogram import subtract_histogram
from timbermark.kernels.layout import N_SLOTS, NONE, OUTSIDE, UNKNOWN
from timbermark.kernels.splitting import (
    candidate,
    collect_candidates,
    partition,
    score,
    split_score,
)


@part
def name_split(node, binned, sums, shift):
    """The name of a node's split among its candidates, OUTSIDE where it is none of them."""
    f, code = node["feature"], np.int64(node["code"])
    first, strata = binned.firsts[f], binned.n_strata[f]
    missing = sums[2 * (first + strata) + 1] & ((np.int64(1) << shift) - np.int64(1))
    if code == binned.n_thresholds[f]:
        return 2 * (first + strata)
    for s in range(strata):
        if candidate(node["key"], f, s, binned.n_thresholds[f], strata) == code:
            return 2 * (first + s) + (node["missing_left"] if missing > 0 else 0)
    return OUTSIDE


@kernel
def trace_tree(
    binned, grad, hess, shift, rule, max_leaves, key, n_nodes, nodes, growth, record, leaf
):
    """Fill in the sums, gains, choices and keys of a tree whose splits and values are given.

    IN max_leaves int64, 0: nobody will ask for the best splits of leaves;
    IN key uint64, the root's; IN n_nodes int64; INOUT nodes NODE[m]: feature, code, missing_left,
    left, split and value are read, the rest is written; splits are numbered parents first; OUT
    record int64[splits, 2 * candidates]; OUT leaf uint8|uint16[n].
    """
    n = growth.rows.shape[0]
    places = growth.places
    for i in range(n):
        growth.rows[i] = i
    places[0]["start"] = 0
    places[0]["stop"] = n
    places[0]["slot"] = 0
    growth.control[N_SLOTS] = 1
    growth.histograms[0, :] = 0
    nodes[0]["key"] = key
    root = np.int64(0)
    fill_node(root, binned, grad, hess, shift, growth)
    sum_root(root, nodes, binned, growth, shift)
    n_splits = n_nodes // 2
    for split in range(n_splits):
        node = 0
        while nodes[node]["split"] != split:
            node += 1
        here, place = nodes[node], places[node]
        slot = place["slot"]
        collect_candidates(growth.histograms[slot], binned, shift, here["key"], record[split])
        here["choice"] = name_split(here, binned, record[split], shift)
        f, code = np.int64(here["feature"]), np.int64(here["code"])
        middle = partition(
            binned.columns[f], code, binned.n_thresholds[f] + 1, np.int64(here["missing_left"]),
            growth.rows, place["start"], place["stop"], growth.spare,
        )  # fmt: skip
        left = np.int64(here["left"])
        places[left]["start"] = place["start"]
        places[left]["stop"] = middle
        places[left + 1]["start"] = middle
        places[left + 1]["stop"] = place["stop"]
        small = assign_slots(left, slot, growth)
        large = 2 * left + 1 - small
        fill_node(small, binned, grad, hess, shift, growth)
        subtract_histogram(growth.histograms[slot], growth.histograms[places[small]["slot"]])
        for side in range(2):
            nodes[left + side]["key"] = mix(here["key"], np.uint64(side))
        sum_root(small, nodes, binned, growth, shift)
        nodes[large]["g"] = here["g"] - nodes[small]["g"]
        nodes[large]["h"] = here["h"] - nodes[small]["h"]
        nodes[large]["c"] = here["c"] - nodes[small]["c"]
        here["gain"] = split_score(
            nodes[left]["g"], nodes[left]["h"], nodes[left]["c"], here["g"], here["h"], here["c"],
            rule,
        ) - score(here["g"], here["h"], rule[0])  # fmt: skip
    for node in range(n_nodes):
        if nodes[node]["split"] < 0:
            nodes[node]["choice"] = UNKNOWN
            nodes[node]["gain"] = NONE
            # The children of the last split of a full tree were never searched.
            searched = max_leaves > 0 and (n_splits + 1 < max_leaves or node < n_nodes - 2)
            if node > 0 and nodes[node]["c"] < 2 * rule[2]:
                searched = False
            if searched:
                search_split(node, nodes, binned, growth, shift, rule)
            for i in range(places[node]["start"], places[node]["stop"]):
                leaf[growth.rows[i]] = node


@kernel
def add_leaves(nodes, leaf, margin):
    """Add a tree's leaf values to the margins: IN leaf uint8|uint16[n]; INOUT margin float64[n]."""
    for i in range(leaf.shape[0]):
        margin[i] += nodes[leaf[i]]["value"]
