"""The in-place update of one tree: walk it again, keep what still holds, regrow what does not.

A node of the old tree is known by its sums alone: totals, and for a split the sums at all its
candidates. Rows enter or change as *touches*: a row number and what it adds to the sums. A touch
costs its path through the tree; rows nobody touched cost nothing, until a node must be regrown:
then its rows are looked up and it goes on as in :mod:`timbermark.kernels.growing`.

A node of the new tree is either a *twin* of an old node (same path, same rows but for touches) or
*live* (its rows are listed, its histogram is filled).

In all kernels here: IN old NODE[m], record int64[splits, 2 * candidates], leaf uint8|uint16[n]
are the old tree and the state of its training; IN binned holds old rows and added ones; IN grad,
hess int32[rows] are up to date; OUT nodes NODE[m] is the new tree; walk and growth are scratch.
"""

import numpy as np

from timbermark.kernels.compile import part
from timbermark.kernels.growing import (
    assign_slots,
    child_sums,
    fill_node,
    leaf_value,
    link_children,
    search_children,
    search_split,
    split_node,
    start_tree,
    sum_root,
)
from timbermark.kernels.layout import (
    N_LEAVES,
    N_NODES,
    N_SLOTS,
    UNKNOWN,
)
from timbermark.kernels.split_checks import goes_left, is_slight, keeps_split, touched_sums
from timbermark.kernels.splitting import best_candidate

_FIRST = 1e300
"""Priority of kept splits: they come before all others, in their old order."""
_LARGE = 10.0
"""How much more patience the root gets than a leaf, for to regrow a node costs time for each row.
Chosen by measurement."""


@part
def sort_by_leaf(leaf, walk):
    """Fill ``walk.by_leaf`` and ``walk.leaf_start``."""
    starts = walk.leaf_start
    starts[:] = 0
    for i in range(leaf.shape[0]):
        starts[np.int64(leaf[i]) + 1] += 1
    for node in range(1, starts.shape[0]):
        starts[node] += starts[node - 1]
    for i in range(leaf.shape[0]):
        node = np.int64(leaf[i])
        walk.by_leaf[starts[node]] = i
        starts[node] += 1
    for node in range(starts.shape[0] - 1, 0, -1):
        starts[node] = starts[node - 1]
    starts[0] = 0


@part
def leaves_under(top, old, stack, out):
    """Write the leaves of the old tree under ``top`` to ``out``; returns how many there are."""
    stack[0] = top
    size = 1
    found = 0
    while size > 0:
        size -= 1
        node = stack[size]
        left = old[node]["left"]
        if left < 0:
            out[found] = node
            found += 1
        else:
            stack[size] = left + 1
            stack[size + 1] = left
            size += 2
    return found


@part
def make_live(node, n_live, nodes, old, leaf, binned, grad, hess, shift, rule, walk, growth):
    """List the rows of a twin behind the ``n_live`` listed so far, and search its best split.

    Returns how many rows are listed now.
    """
    if walk.leaf_start[0] < 0:
        sort_by_leaf(leaf, walk)
    place = growth.places[node]
    place["start"] = n_live
    found = leaves_under(place["twin"], old, walk.stack, walk.leaves)
    for j in range(found):
        o = walk.leaves[j]
        for i in range(walk.leaf_start[o], walk.leaf_start[o + 1]):
            growth.rows[n_live] = walk.by_leaf[i]
            n_live += 1
    for i in range(place["first"], place["last"]):
        row = walk.touches[walk.order[i]]["row"]
        if row >= leaf.shape[0]:
            growth.rows[n_live] = row
            n_live += 1
    place["stop"] = n_live
    place["slot"] = growth.control[N_SLOTS]
    place["twin"] = -1
    growth.histograms[growth.control[N_SLOTS], :] = 0
    growth.control[N_SLOTS] += 1
    fill_node(node, binned, grad, hess, shift, growth)
    sum_root(node, nodes, binned, growth, shift)
    search_split(node, nodes, binned, growth, shift, rule)
    place["priority"] = nodes[node]["gain"]
    return n_live


@part
def assess(node, nodes, old, record, binned, shift, rule, patience, walk, growth):
    """Decide what becomes of a fresh twin; returns True where it must be regrown.

    ``patience`` is the share of the candidates that may beat the old split before it is given up;
    at 0 every decision is the one that growing from nothing would take.
    """
    new, place = nodes[node], growth.places[node]
    was = old[place["twin"]]
    touched = place["last"] > place["first"]
    new["choice"] = was["choice"]
    new["gain"] = was["gain"]
    place["priority"] = was["gain"]
    if was["split"] < 0:
        if patience > 0.0:
            place["priority"] = -1.0
            return False
        return (touched or was["choice"] == UNKNOWN) and new["c"] >= 2 * rule[2]
    new["feature"] = was["feature"]
    new["code"] = was["code"]
    new["missing_left"] = was["missing_left"]
    place["priority"] = new["gain"] if patience == 0.0 else _FIRST / (1.0 + was["split"])
    # Infinite patience: splits stay and leaves alone learn.
    if not touched or patience == np.inf:
        return False
    if patience > 0.0 and is_slight(was, place, shift, patience, walk):
        return False
    touched_sums(new["key"], place, record[was["split"]], binned, walk)
    if patience > 0.0:
        share = new["c"] / nodes[0]["c"]
        kept, gain = keeps_split(
            new, place, old, binned, shift, rule, patience * (1.0 + _LARGE * share), walk
        )
        new["gain"] = gain
    else:
        found = best_candidate(
            walk.sums, binned.n_strata, binned.firsts, new["g"], new["h"], new["c"], shift,
            rule, growth.gain,
        )  # fmt: skip
        new["gain"] = growth.gain[0]
        kept = found == new["choice"]
    if not kept:
        return True
    if patience == 0.0:
        # The majority may lie on the other side by now. With patience the split stays as it is.
        if new["choice"] >= 0:
            new["missing_left"] = child_sums(new, binned, walk.sums, shift)[2]
        place["priority"] = new["gain"]
    return False


@part
def split_twin(node, nodes, old, binned, shift, walk, growth):
    """Carry out the kept split of a twin: its children are twins, its touches are divided.

    Returns the left child.
    """
    place = growth.places[node]
    f, code = np.int64(nodes[node]["feature"]), np.int64(nodes[node]["code"])
    missing_left = np.int64(nodes[node]["missing_left"])
    order, spare = walk.order, walk.spare
    was = old[old[place["twin"]]["left"]]
    g = was["g"]
    packed = (was["h"] << shift) + was["c"]
    middle = place["first"]
    right = np.int64(0)
    for i in range(place["first"], place["last"]):
        touch = order[i]
        row = walk.touches[touch]["row"]
        if goes_left(nodes[node], np.int64(binned.codes[row, f]), binned.n_thresholds[f]):
            order[middle] = touch
            middle += 1
            g += walk.touches[touch]["g"]
            packed += walk.touches[touch]["packed"]
        else:
            spare[right] = touch
            right += 1
    for i in range(right):
        order[middle + i] = spare[i]
    mask = (np.int64(1) << shift) - np.int64(1)
    left = link_children(
        node, f, code, missing_left, g, packed >> shift, packed & mask, nodes, growth
    )
    for child in range(2):
        growth.places[left + child]["twin"] = old[place["twin"]]["left"] + child
        growth.places[left + child]["priority"] = -1.0
    growth.places[left]["first"] = place["first"]
    growth.places[left]["last"] = middle
    growth.places[left + 1]["first"] = middle
    growth.places[left + 1]["last"] = place["last"]
    return left


@part
def renew_root(n_touches, nodes, old, shift, walk, growth):
    """Start the new tree: its root is the twin of the old one, with all touches."""
    start_tree(old[0]["key"], nodes, growth)
    mask = (np.int64(1) << shift) - np.int64(1)
    g = old[0]["g"]
    packed = (old[0]["h"] << shift) + old[0]["c"]
    for i in range(n_touches):
        walk.order[i] = i
        g += walk.touches[i]["g"]
        packed += walk.touches[i]["packed"]
    nodes[0]["g"] = g
    nodes[0]["h"] = packed >> shift
    nodes[0]["c"] = packed & mask
    growth.places[0]["twin"] = 0
    growth.places[0]["first"] = 0
    growth.places[0]["last"] = n_touches
    walk.leaf_start[0] = -1


@part
def renew_tree(
    n_touches, old, record, leaf, binned, grad, hess, shift, rule, patience, max_leaves,
    max_depth, nodes, walk, growth,
):  # fmt: skip
    """The old tree, updated; no tree gets more than ``max_leaves`` leaves.

    No new split is made at ``max_depth``; old ones that are kept may be.
    """
    control, places = growth.control, growth.places
    renew_root(n_touches, nodes, old, shift, walk, growth)
    no_record = record[:0]
    n_live = np.int64(0)
    fresh = np.int64(0)
    n_fresh = 1
    while True:
        for node in range(fresh, fresh + n_fresh):
            if assess(node, nodes, old, record, binned, shift, rule, patience, walk, growth):
                n_live = make_live(
                    node, n_live, nodes, old, leaf, binned, grad, hess, shift, rule, walk, growth
                )
                if places[node]["depth"] >= max_depth:
                    places[node]["priority"] = -1.0
        n_fresh = 0
        node = np.int64(-1)
        highest = 0.0
        for other in range(control[N_NODES]):
            if nodes[other]["split"] < 0 and places[other]["priority"] > highest:
                highest = places[other]["priority"]
                node = other
        if node < 0 or control[N_LEAVES] >= max_leaves:
            return
        if places[node]["twin"] >= 0 and old[places[node]["twin"]]["split"] >= 0:
            fresh = split_twin(node, nodes, old, binned, shift, walk, growth)
            n_fresh = 2 if control[N_LEAVES] < max_leaves else 0
            continue
        if places[node]["twin"] >= 0:
            n_live = make_live(
                node, n_live, nodes, old, leaf, binned, grad, hess, shift, rule, walk, growth
            )
        slot = places[node]["slot"]
        left = split_node(node, nodes, binned, growth, shift, no_record)
        for child in range(left, left + 2):
            places[child]["twin"] = -1
            places[child]["priority"] = -1.0
        if (
            control[N_LEAVES] < max_leaves
            and places[left]["depth"] < max_depth
            and max(nodes[left]["c"], nodes[left + 1]["c"]) >= 2 * rule[2]
        ):
            small = assign_slots(left, slot, growth)
            fill_node(small, binned, grad, hess, shift, growth)
            search_children(small, nodes, binned, growth, shift, rule)
            for child in range(left, left + 2):
                places[child]["priority"] = nodes[child]["gain"]


@part
def finish_renewal(old, leaf, nodes, scale, l2, limit, walk, growth, before, after, compare):
    """Leaf values of the renewed tree, and both margins with the tree added.

    INOUT before float64[n], the margins of the old rows in the old model, kept up only where they
    are to ``compare`` with; INOUT after float64[rows], all rows in the new one.
    """
    n = before.shape[0]
    table = walk.table
    for node in range(old.shape[0]):
        table[0, node] = old[node]["value"]
        table[1, node] = 0.0
    for node in range(growth.control[N_NODES]):
        v = leaf_value(nodes[node]["g"], nodes[node]["h"], scale, l2, limit)
        place = growth.places[node]
        if place["twin"] >= 0:
            was = old[place["twin"]]
            due = leaf_value(was["g"], was["h"], scale, l2, limit)
            if due != was["value"]:
                # Not a leaf of our own training: it moves by as much as one of ours would.
                v = was["value"] + (v - due)
        nodes[node]["value"] = v
        if nodes[node]["split"] >= 0:
            continue
        # A split may have been kept in mind but not carried out, for want of leaves.
        nodes[node]["feature"] = -1
        nodes[node]["code"] = 0
        nodes[node]["missing_left"] = 0
        if place["twin"] < 0:
            for i in range(place["start"], place["stop"]):
                after[growth.rows[i]] += v
            continue
        found = leaves_under(place["twin"], old, walk.stack, walk.leaves)
        for j in range(found):
            table[1, walk.leaves[j]] = v
        for i in range(place["first"], place["last"]):
            row = walk.touches[walk.order[i]]["row"]
            if row >= n:
                after[row] += v
    for i in range(n):
        after[i] += table[1, leaf[i]]
    if compare:
        for i in range(n):
            before[i] += table[0, leaf[i]]
