"""The in-place update of one tree: walk it again, keep what still holds, regrow what does not.

A node of the old tree is known by its sums alone: totals, and for a split the sums at all its
candidates. Rows enter or change as *touches*: a row number and what it adds to the sums. A touch
costs its path through the tree; rows nobody touched cost nothing, until a node must be regrown:
then its rows are looked up and it goes on as in :mod:`timbermark.kernels.growing`.

A node of the new tree is either a *twin* of an old node (same path, same rows but for touches) or
*live* (its rows are listed, its histogram is filled).

In all kernels here: IN fit Fit holds old rows and added ones with gradients that are up to date;
IN old OldTree is the old tree with the state of its training; OUT nodes NODE[m] is the new tree;
walk Walk is scratch.
"""

import numpy as np

from timbermark.kernels.compile import part
from timbermark.kernels.growing import (
    assign_slots,
    can_split,
    chosen_split,
    fill_node,
    leaf_value,
    link_children,
    search_children,
    search_split,
    split_node,
    start_tree,
    sum_node,
)
from timbermark.kernels.histogram import count_of, hessians_of, pack
from timbermark.kernels.layout import N_LEAVES, N_LISTED, N_NODES, N_SLOTS, UNKNOWN, Split
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
    """Write the leaves of the old tree under ``top`` to ``out``; return how many there are."""
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
def make_live(node, nodes, fit, old, walk):
    """List the rows of a twin behind those listed so far, and search its best split."""
    growth = walk.growth
    if walk.leaf_start[0] < 0:
        sort_by_leaf(old.leaf, walk)
    place = growth.places[node]
    listed = growth.control[N_LISTED]
    place["start"] = listed
    for j in range(leaves_under(place["twin"], old.nodes, walk.stack, walk.leaves)):
        o = walk.leaves[j]
        for i in range(walk.leaf_start[o], walk.leaf_start[o + 1]):
            growth.rows[listed] = walk.by_leaf[i]
            listed += 1
    for i in range(place["first"], place["last"]):
        row = walk.touches[walk.order[i]]["row"]
        if row >= old.leaf.shape[0]:
            growth.rows[listed] = row
            listed += 1
    growth.control[N_LISTED] = listed
    place["stop"] = listed
    place["slot"] = growth.control[N_SLOTS]
    place["twin"] = -1
    growth.histograms[growth.control[N_SLOTS], :] = 0
    growth.control[N_SLOTS] += 1
    fill_node(node, fit, growth)
    sum_node(node, nodes, fit.binned, growth)
    search_split(node, nodes, fit, growth)
    place["priority"] = nodes[node]["gain"]


@part
def assess(node, nodes, fit, old, patience, walk):
    """Decide what becomes of a fresh twin; return True where it must be regrown.

    ``patience`` is the share of the candidates that may beat the old split before it is given up;
    at 0 every decision is the one that growing from nothing would take.
    """
    new, place = nodes[node], walk.growth.places[node]
    was = old.nodes[place["twin"]]
    touched = place["last"] > place["first"]
    new["choice"] = was["choice"]
    new["gain"] = was["gain"]
    place["priority"] = was["gain"]
    if was["split"] < 0:
        if patience > 0.0:
            place["priority"] = -1.0
            return False
        return (touched or was["choice"] == UNKNOWN) and can_split(node, nodes, fit.rule)
    new["feature"] = was["feature"]
    new["code"] = was["code"]
    new["missing_left"] = was["missing_left"]
    if patience > 0.0:
        place["priority"] = _FIRST / (1.0 + was["split"])
    # Infinite patience: splits stay and leaves alone learn.
    if not touched or patience == np.inf:
        return False
    if patience > 0.0 and is_slight(was, place, fit.binned, patience, walk):
        return False
    touched_sums(new["key"], place, old.record[was["split"]], fit.binned, walk)
    if patience > 0.0:
        share = new["c"] / nodes[0]["c"]
        enough = patience * (1.0 + _LARGE * share)
        kept, gain = keeps_split(new, place, old.nodes, fit, enough, walk)
        new["gain"] = gain
        return not kept
    found = best_candidate(new, walk.sums, fit.binned, fit.rule, walk.growth.gain)
    new["gain"] = walk.growth.gain[0]
    place["priority"] = new["gain"]
    if found != new["choice"]:
        return True
    # The majority may lie on the other side by now. With patience the split stays as it is.
    if found >= 0:
        new["missing_left"] = chosen_split(new, fit.binned, walk.sums)[0].missing_left
    return False


@part
def split_twin(node, nodes, binned, old, walk):
    """Carry out the kept split of a twin: its children are twins, its touches are divided.

    Returns the left child.
    """
    places, order, spare = walk.growth.places, walk.order, walk.spare
    place = places[node]
    f = np.int64(nodes[node]["feature"])
    split = Split(f, np.int64(nodes[node]["code"]), np.int64(nodes[node]["missing_left"]))
    old_left = old.nodes[place["twin"]]["left"]
    was = old.nodes[old_left]
    g = was["g"]
    packed = pack(was["h"], was["c"], binned)
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
    left = link_children(node, split, g, packed, nodes, binned, walk.growth)
    for child in range(2):
        places[left + child]["twin"] = old_left + child
        places[left + child]["priority"] = -1.0
    places[left]["first"] = place["first"]
    places[left]["last"] = middle
    places[left + 1]["first"] = middle
    places[left + 1]["last"] = place["last"]
    return left


@part
def split_live(node, nodes, fit, walk):
    """Carry out the best split of a live node and, where they may be split, search its children."""
    growth = walk.growth
    slot = growth.places[node]["slot"]
    no_record = growth.sums[:0]
    left = split_node(node, nodes, fit.binned, growth, no_record)
    for child in range(left, left + 2):
        growth.places[child]["twin"] = -1
        growth.places[child]["priority"] = -1.0
    if growth.control[N_LEAVES] >= fit.rule.max_leaves:
        return
    if not can_split(left, nodes, fit.rule) and not can_split(left + 1, nodes, fit.rule):
        return
    small = assign_slots(left, slot, growth)
    fill_node(small, fit, growth)
    search_children(small, nodes, fit, growth)
    for child in range(left, left + 2):
        growth.places[child]["priority"] = nodes[child]["gain"]


@part
def renew_root(n_touches, nodes, binned, old, walk):
    """Start the new tree: its root is the twin of the old one, with all touches."""
    root = old.nodes[0]
    start_tree(root["key"], nodes, walk.growth)
    walk.growth.control[N_LISTED] = 0
    g = root["g"]
    packed = pack(root["h"], root["c"], binned)
    for i in range(n_touches):
        walk.order[i] = i
        g += walk.touches[i]["g"]
        packed += walk.touches[i]["packed"]
    nodes[0]["g"] = g
    nodes[0]["h"] = hessians_of(packed, binned)
    nodes[0]["c"] = count_of(packed, binned)
    place = walk.growth.places[0]
    place["twin"] = 0
    place["first"] = 0
    place["last"] = n_touches
    walk.leaf_start[0] = -1


@part
def next_leaf(nodes, growth):
    """Return the leaf with the highest priority, the first of equals; -1 where none has any."""
    found = np.int64(-1)
    highest = 0.0
    for node in range(growth.control[N_NODES]):
        if nodes[node]["split"] < 0 and growth.places[node]["priority"] > highest:
            highest = growth.places[node]["priority"]
            found = node
    return found


@part
def renew_tree(n_touches, nodes, fit, old, patience, walk):
    """Update the old tree to the first ``n_touches`` of ``walk.touches``."""
    control, places = walk.growth.control, walk.growth.places
    renew_root(n_touches, nodes, fit.binned, old, walk)
    fresh = np.int64(0)
    n_fresh = 1
    while True:
        for node in range(fresh, fresh + n_fresh):
            if assess(node, nodes, fit, old, patience, walk):
                make_live(node, nodes, fit, old, walk)
        n_fresh = 0
        node = next_leaf(nodes, walk.growth)
        if node < 0 or control[N_LEAVES] >= fit.rule.max_leaves:
            return
        twin = places[node]["twin"]
        if twin >= 0 and old.nodes[twin]["split"] >= 0:
            fresh = split_twin(node, nodes, fit.binned, old, walk)
            n_fresh = 2 if control[N_LEAVES] < fit.rule.max_leaves else 0
        else:
            if twin >= 0:
                make_live(node, nodes, fit, old, walk)
            split_live(node, nodes, fit, walk)


@part
def renewed_value(node, place, rule, old):
    """Return the value of a node of the renewed tree."""
    v = leaf_value(node["g"], node["h"], rule)
    if place["twin"] >= 0:
        was = old.nodes[place["twin"]]
        due = leaf_value(was["g"], was["h"], rule)
        if due != was["value"]:
            # Not a leaf of our own training: it moves by as much as one of ours would.
            v = was["value"] + (v - due)
    return v


@part
def finish_renewal(nodes, rule, old, walk, before, after, compare):
    """Set the values of the renewed tree's leaves and add the tree to both margins.

    INOUT before float64[n], the margins of the old rows in the old model, kept up only where they
    are to ``compare`` with; INOUT after float64[rows], all rows in the new one.
    """
    n = before.shape[0]
    growth, table = walk.growth, walk.table
    for node in range(old.nodes.shape[0]):
        table[0, node] = old.nodes[node]["value"]
        table[1, node] = 0.0
    for node in range(growth.control[N_NODES]):
        place = growth.places[node]
        v = renewed_value(nodes[node], place, rule, old)
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
        found = leaves_under(place["twin"], old.nodes, walk.stack, walk.leaves)
        for j in range(found):
            table[1, walk.leaves[j]] = v
        for i in range(place["first"], place["last"]):
            row = walk.touches[walk.order[i]]["row"]
            if row >= n:
                after[row] += v
    for i in range(n):
        after[i] += table[1, old.leaf[i]]
    if compare:
        for i in range(n):
            before[i] += table[0, old.leaf[i]]
