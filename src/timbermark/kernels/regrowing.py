"""The in-place update of one tree: walk it again, keep what still holds, regrow what does not.

A node of the old tree is known by its sums alone: totals, and for a split the sums at all its
candidates. Rows that come, go or change are *touches*: a row number and what it adds to the sums.
A touch costs its path through the tree; rows nobody touched cost nothing, until a node must be
regrown: then its rows are looked up and it goes on as in :mod:`timbermark.kernels.growing`.

A node of the new tree is either a *twin* of an old node (same path, same rows but for touches) or
*live* (its rows are listed, its histogram is filled).

Where few rows come and go, the gradients of old rows are wanted in live nodes only, and are derived
there. Where more do, leaves whose value the touches move are *refreshed*: their sums are added up
anew, so that old rows which were pushed push back.

A tree is renewed (`renew_tree`) in one of two ways. Without patience, `renew_exactly` carries out
the splits that growing from nothing would, in the same order: twins are assessed one by one, and
those whose best split is another one are made live. With patience, `keep_splits` copies the whole
tree and takes the touches down their paths; only splits that do not stand are cut off
(`drop_subtrees`) and regrown. In both, nodes that shall become live wait until `rouse` looks up the
rows of all of them at once. `timbermark.kernels.keeping` decides whether a split holds.

In all kernels here: IN fit Fit holds old rows and added ones, forgotten ones with a count of zero;
IN old OldTree is the old tree with the state of its training; OUT nodes NODE[m] is the new tree;
IN source Source says where gradients come from; IN knobs Knobs; walk Walk is scratch.
"""

import numpy as np

from timbermark.kernels.compile import add_pair, part
from timbermark.kernels.gradients import gradients_of_rows
from timbermark.kernels.growing import (
    assign_slots,
    can_split,
    fill_node,
    leaf_value,
    link_children,
    search_children,
    search_split,
    split_node,
    start_tree,
    sum_node,
)
from timbermark.kernels.keeping import assess, divide_touches, stands
from timbermark.kernels.layout import (
    N_LEAVES,
    N_LISTED,
    N_NODES,
    N_SLOTS,
    N_SPLITS,
    SUM_COPIES,
    Loss,
    Split,
)
from timbermark.kernels.splitting import (
    count_of,
    hessians_of,
    pack,
)

_WAITING = -2.0
"""Priority of twins that are to be regrown."""


@part
def gather_block(rows, start, stop, margins, loss, block):
    """Copy what the gradients of ``rows[start:stop]`` are derived from to ``block``.

    IN rows integers, at most as many as ``block`` has room for; IN margins float64[outputs, n]; IN
    loss Loss; OUT block Block.
    """
    size = stop - start
    for output in range(margins.shape[0]):
        row = margins[output]
        for i in range(size):
            block.margins[output, i] = row[np.int64(rows[start + i])]
    for i in range(size):
        block.weight[i] = loss.weight[np.int64(rows[start + i])]
    if loss.target.shape[0] > 0:
        for i in range(size):
            block.target[i] = loss.target[np.int64(rows[start + i])]
    else:
        for i in range(size):
            block.label[i] = loss.label[np.int64(rows[start + i])]


@part
def derive_block(size, loss, block):
    """Derive the gradients of the first ``size`` rows of ``block``; IN loss Loss, of all rows."""
    part_of = Loss(
        block.label, block.target, block.weight, loss.unit, loss.residual_unit, loss.most
    )
    gradients_of_rows(block.margins, part_of, np.int64(0), np.int64(size), block.grad, block.hess)


@part
def ask_gradients(rows, start, stop, source, walk):
    """Write the gradients of ``rows[start:stop]`` to ``walk``, unless all were derived ahead."""
    if source.is_ahead:
        return
    block, pending = walk.block, source.pending
    size = block.weight.shape[0]
    n_outputs, n_old = source.margins.shape[0], source.leaf.shape[1]
    for first in range(start, stop, size):
        last = min(first + size, stop)
        gather_block(rows, first, last, source.margins, source.loss, block)
        for place in range(source.n_pending):
            for output in range(n_outputs):
                leaf = source.leaf[place * n_outputs + output]
                if pending.is_regrown[place, output]:
                    leaf = pending.leaf[place, output]
                values = pending.values[place, output]
                for i in range(last - first):
                    row = np.int64(rows[first + i])
                    if row < n_old:
                        block.margins[output, i] += values[leaf[row]]
        derive_block(last - first, source.loss, block)
        for i in range(last - first):
            row = np.int64(rows[first + i])
            walk.grad[row] = block.grad[source.output, i]
            walk.hess[row] = block.hess[source.output, i]


@part
def find_rows(leaf, walk):
    """List the old rows in the leaves that are ``wanted`` in ``walk.found``; return their number.

    IN leaf uint8|uint16[n].
    """
    n = np.int64(0)
    found, wanted = walk.found, walk.wanted
    for i in range(leaf.shape[0]):
        found[n] = i
        n += np.int64(wanted[leaf[i]])
    return n


@part
def sort_by_leaf(leaf, n_found, walk):
    """Fill ``walk.by_leaf`` and ``walk.leaf_start`` with the rows found."""
    starts = walk.leaf_start
    starts[:] = 0
    for i in range(n_found):
        starts[np.int64(leaf[walk.found[i]]) + 1] += 1
    for node in range(1, starts.shape[0]):
        starts[node] += starts[node - 1]
    for i in range(n_found):
        row = walk.found[i]
        node = np.int64(leaf[row])
        walk.by_leaf[starts[node]] = row
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
def make_live(node, nodes, fit, old, source, walk):
    """List the rows of a twin behind those listed so far, and search its best split.

    The rows of its leaves must have been sorted.
    """
    growth = walk.growth
    place = growth.places[node]
    start = listed = growth.control[N_LISTED]
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
    place["start"] = start
    place["stop"] = listed
    place["slot"] = growth.control[N_SLOTS]
    place["twin"] = -1
    growth.histograms[growth.control[N_SLOTS], :] = 0
    growth.control[N_SLOTS] += 1
    ask_gradients(growth.rows, start, listed, source, walk)
    fill_node(node, fit, growth)
    sum_node(node, nodes, fit.binned, growth)
    search_split(node, nodes, fit, growth)
    place["priority"] = nodes[node]["gain"]


@part
def split_twin(node, nodes, binned, old, walk):
    """Carry out the kept split of a twin, whose touches are divided: its children are twins.

    Returns the left child.
    """
    places = walk.growth.places
    place = places[node]
    split = Split(
        np.int64(nodes[node]["feature"]),
        np.int64(nodes[node]["code"]),
        np.int64(nodes[node]["missing_left"]),
    )
    old_left = old.nodes[place["twin"]]["left"]
    left = link_children(
        node, split, place["left_g"], place["left_packed"], nodes, binned, walk.growth
    )
    for child in range(2):
        places[left + child]["twin"] = old_left + child
        places[left + child]["priority"] = -1.0
    places[left]["first"] = place["first"]
    places[left]["last"] = place["middle"]
    places[left + 1]["first"] = place["middle"]
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
def rouse(nodes, fit, old, source, walk):
    """Make all twins live that wait for it; return whether there were any."""
    growth = walk.growth
    n_nodes = growth.control[N_NODES]
    walk.wanted[:] = False
    any_waits = False
    for node in range(n_nodes):
        if growth.places[node]["priority"] == _WAITING:
            any_waits = True
            found = leaves_under(growth.places[node]["twin"], old.nodes, walk.stack, walk.leaves)
            for j in range(found):
                walk.wanted[walk.leaves[j]] = True
    if any_waits:
        sort_by_leaf(old.leaf, find_rows(old.leaf, walk), walk)
        for node in range(n_nodes):
            if growth.places[node]["priority"] == _WAITING:
                make_live(node, nodes, fit, old, source, walk)
    return any_waits


@part
def renew_tree(n_touches, nodes, fit, old, source, patience, knobs, walk):
    """Update the old tree to the first ``n_touches`` of ``walk.touches``.

    ``patience`` is the share of a node's candidates that may beat its old split before that is
    given up; at 0 every decision is the one that growing from nothing would take.
    """
    renew_root(n_touches, nodes, fit.binned, old, walk)
    if patience == 0.0:
        renew_exactly(nodes, fit, old, source, walk)
    elif not keep_splits(nodes, fit, old, patience, knobs, walk):
        drop_subtrees(nodes, old, walk)
        rouse(nodes, fit, old, source, walk)
        node = next_leaf(nodes, walk.growth)
        while node >= 0 and walk.growth.control[N_LEAVES] < fit.rule.max_leaves:
            split_live(node, nodes, fit, walk)
            node = next_leaf(nodes, walk.growth)


@part
def renew_exactly(nodes, fit, old, source, walk):
    """Carry out the splits that growing from nothing would, in the same order."""
    control, places = walk.growth.control, walk.growth.places
    fresh = np.int64(0)
    n_fresh = 1
    while True:
        for node in range(fresh, fresh + n_fresh):
            if assess(node, nodes, fit, old, walk):
                places[node]["priority"] = _WAITING
        n_fresh = 0
        rouse(nodes, fit, old, source, walk)
        node = next_leaf(nodes, walk.growth)
        if node < 0 or control[N_LEAVES] >= fit.rule.max_leaves:
            return
        twin = places[node]["twin"]
        if twin >= 0 and old.nodes[twin]["split"] >= 0:
            fresh = split_twin(node, nodes, fit.binned, old, walk)
            n_fresh = 2 if control[N_LEAVES] < fit.rule.max_leaves else 0
        else:
            if twin >= 0:
                places[node]["priority"] = _WAITING
                rouse(nodes, fit, old, source, walk)
            split_live(node, nodes, fit, walk)


@part
def keep_splits(nodes, fit, old, patience, knobs, walk):
    """Copy the old tree and take the touches of its root down its paths.

    Nodes that no touch comes to cost no more than the copy. Returns whether all splits stand; those
    that do not wait for being regrown, and what is below them is of no use.
    """
    growth, stack = walk.growth, walk.stack
    places = growth.places
    n_touches = places[0]["last"]
    g, h, c = nodes[0]["g"], nodes[0]["h"], nodes[0]["c"]
    growth.control[N_NODES] = old.nodes.shape[0]
    for node in range(old.nodes.shape[0]):
        nodes[node] = old.nodes[node]
        places[node]["twin"] = node
        places[node]["first"] = 0
        places[node]["last"] = 0
        places[node]["priority"] = -1.0
    nodes[0]["g"], nodes[0]["h"], nodes[0]["c"] = g, h, c
    places[0]["last"] = n_touches
    stack[0] = 0
    size = 1 if n_touches > 0 else 0
    all_stand = True
    while size > 0:
        size -= 1
        node = stack[size]
        left = nodes[node]["left"]
        if left < 0:
            continue
        divide_touches(node, nodes, fit.binned, old, walk)
        if not stands(node, nodes, fit, old, patience, knobs, walk):
            places[node]["priority"] = _WAITING
            all_stand = False
            continue
        share_sums(node, nodes, fit.binned, walk)
        for child in range(left, left + 2):
            if places[child]["last"] > places[child]["first"]:
                stack[size] = child
                size += 1
    return all_stand


@part
def share_sums(node, nodes, binned, walk):
    """Give the children of a kept split their sums and touches, which are divided."""
    places, left = walk.growth.places, nodes[node]["left"]
    place, packed = places[node], places[node]["left_packed"]
    nodes[left]["g"] = place["left_g"]
    nodes[left]["h"] = hessians_of(packed, binned)
    nodes[left]["c"] = count_of(packed, binned)
    nodes[left + 1]["g"] = nodes[node]["g"] - nodes[left]["g"]
    nodes[left + 1]["h"] = nodes[node]["h"] - nodes[left]["h"]
    nodes[left + 1]["c"] = nodes[node]["c"] - nodes[left]["c"]
    places[left]["first"] = place["first"]
    places[left]["last"] = place["middle"]
    places[left + 1]["first"] = place["middle"]
    places[left + 1]["last"] = place["last"]


@part
def drop_subtrees(nodes, old, walk):
    """Take out of a copied tree what is below the nodes that wait, and number the others anew.

    They stay in their order, in which their splits were made.
    """
    control, places = walk.growth.control, walk.growth.places
    # The parent of each pair of children in the old tree, and every old node's new number.
    parent, number = walk.stack, walk.leaves
    number[:] = -1
    for node in range(old.nodes.shape[0]):
        if old.nodes[node]["left"] >= 0:
            parent[old.nodes[node]["left"]] = node
    number[0] = 0
    n = 1
    for left in range(1, old.nodes.shape[0], 2):
        above = number[parent[left]]
        if above < 0 or places[above]["priority"] == _WAITING:
            continue
        nodes[above]["left"] = n
        nodes[above]["split"] = n // 2
        for child in range(left, left + 2):
            nodes[n] = nodes[child]
            places[n] = places[child]
            number[child] = n
            n += 1
    for node in range(n):
        if places[node]["priority"] == _WAITING:
            nodes[node]["left"] = -1
            nodes[node]["split"] = -1
    control[N_NODES] = n
    control[N_LEAVES] = n // 2 + 1
    control[N_SPLITS] = n // 2


@part
def renewed_value(node, place, rule, old):
    """Return the value of a node of the renewed tree."""
    if place["twin"] >= 0 and place["last"] == place["first"]:
        return old.nodes[place["twin"]]["value"]
    v = leaf_value(node["g"], node["h"], rule)
    if place["twin"] >= 0:
        was = old.nodes[place["twin"]]
        due = leaf_value(was["g"], was["h"], rule)
        if due != was["value"]:
            # Not a leaf of our own training: it moves by as much as one of ours would.
            v = was["value"] + (v - due)
    return v


@part
def is_moved(node, place, rule, old, still):
    """Return whether the touches of a twin that is a leaf move its value by more than ``still``."""
    if node["split"] >= 0 or place["twin"] < 0 or place["last"] == place["first"]:
        return False
    was = old.nodes[place["twin"]]
    moved = leaf_value(node["g"], node["h"], rule) - leaf_value(was["g"], was["h"], rule)
    return abs(moved) > still


@part
def refresh_leaves(nodes, fit, old, still, walk):
    """Add up the sums of all leaves anew that the touches moved, and those of the nodes above.

    The gradients of all rows must have been derived.
    """
    growth = walk.growth
    n_nodes = growth.control[N_NODES]
    any_moved = False
    for node in range(n_nodes):
        any_moved |= is_moved(nodes[node], growth.places[node], fit.rule, old, still)
    if not any_moved:
        return
    sums = walk.leaf_sums
    sums[:] = 0
    # Copies that take turns: most rows are in one leaf, and an addition to a sum would have to wait
    # for the one before.
    size = sums.shape[0] // SUM_COPIES
    for i in range(old.leaf.shape[0]):
        add_pair(
            sums,
            (np.uint64(old.leaf[i]) << np.uint64(1)) + np.uint64(i % SUM_COPIES) * np.uint64(size),
            np.int64(fit.grad[i]),
            np.int64(fit.hess[i]),
        )
    for i in range(size, sums.shape[0]):
        sums[i % size] += sums[i]
    for node in range(n_nodes - 1, -1, -1):
        new, place = nodes[node], growth.places[node]
        if new["split"] >= 0:
            new["g"] = nodes[new["left"]]["g"] + nodes[new["left"] + 1]["g"]
            new["h"] = nodes[new["left"]]["h"] + nodes[new["left"] + 1]["h"]
        elif is_moved(new, place, fit.rule, old, still):
            g = np.int64(0)
            h = np.int64(0)
            for j in range(leaves_under(place["twin"], old.nodes, walk.stack, walk.leaves)):
                g += sums[2 * walk.leaves[j]]
                h += sums[2 * walk.leaves[j] + 1]
            for i in range(place["first"], place["last"]):
                touch = walk.touches[walk.order[i]]
                if touch["row"] >= old.leaf.shape[0]:
                    g += touch["g"]
                    h += hessians_of(touch["packed"], fit.binned)
            new["g"] = g
            new["h"] = h


@part
def finish_renewal(nodes, rule, old, walk, pending, place, output):
    """Set the values of the renewed tree's leaves, and note in ``pending`` what rows get of it.

    Leaves of the old tree keep their number there; what was regrown takes numbers that are free:
    there are fewer leaves than half the numbers.
    """
    n = old.leaf.shape[0]
    growth, taken = walk.growth, walk.wanted
    values, added = pending.values[place, output], pending.added[output]
    taken[:] = False
    is_regrown = False
    for node in range(growth.control[N_NODES]):
        here = growth.places[node]
        nodes[node]["value"] = v = renewed_value(nodes[node], here, rule, old)
        if nodes[node]["split"] >= 0:
            continue
        # A split may have been kept in mind but not carried out, for want of leaves.
        nodes[node]["feature"] = -1
        nodes[node]["code"] = 0
        nodes[node]["missing_left"] = 0
        if here["twin"] < 0:
            is_regrown = True
            continue
        for j in range(leaves_under(here["twin"], old.nodes, walk.stack, walk.leaves)):
            values[walk.leaves[j]] = v
            taken[walk.leaves[j]] = True
        for i in range(here["first"], here["last"]):
            row = walk.touches[walk.order[i]]["row"]
            if row >= n:
                added[row - n] = v
    pending.is_regrown[place, output] = is_regrown
    if not is_regrown:
        return
    leaf = pending.leaf[place, output]
    for i in range(n):
        leaf[i] = old.leaf[i]
    free = 0
    for node in range(growth.control[N_NODES]):
        here = growth.places[node]
        if nodes[node]["split"] >= 0 or here["twin"] >= 0:
            continue
        while taken[free]:
            free += 1
        values[free] = nodes[node]["value"]
        for i in range(here["start"], here["stop"]):
            row = np.int64(growth.rows[i])
            if row < n:
                leaf[row] = free
            else:
                added[row - n] = nodes[node]["value"]
        free += 1
