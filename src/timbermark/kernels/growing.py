"""Training: iterations of best-first trees, each by one thread or by several in step.

Threads that share a tree own rows: each divides and adds up its own. Then they meet, and each goes
on with its own features: it merges what all have added up there and searches the best split. They
meet again, and each knows the best of all. So a split takes two meetings, and everything else, the
tree included, each thread has for itself. Sums are integers: the tree does not depend on how many
there are.

Several iterations are trained in one call on several threads. Each thread runs the same kernel.
With many outputs it derives, in each iteration, the gradients of its part of the rows, meets the
others, and takes trees to grow until none is left. With one output all threads grow one tree: the
rows that a thread owns need nobody else, from margins to leaves.
"""

from __future__ import annotations

import numpy as np

from timbermark.kernels.compile import kernel, part
from timbermark.kernels.gradients import gradients_of_rows
from timbermark.kernels.hashing import mix
from timbermark.kernels.layout import (
    N_LEAVES,
    N_MEETINGS,
    N_NODES,
    N_SLOTS,
    N_SPLITS,
    UNKNOWN,
    Fit,
    Split,
)
from timbermark.kernels.splitting import (
    best_candidate,
    best_of_features,
    candidate,
    collect_candidates,
    collect_features,
    count_of,
    fill_rows,
    hessians_of,
    partition,
    score,
    subtract_histogram,
    unpack,
)
from timbermark.kernels.workers import meet, take


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
    sums = growth.sums[growth.places[node]["slot"]]
    split, g, packed = chosen_split(nodes[node], binned, sums)
    if record.shape[0] > 0:
        kept = record[growth.control[N_SPLITS]]
        for j in range(sums.shape[0]):
            kept[j] = sums[j]
    link_children(node, split, g, packed, nodes, binned, growth)
    divide_rows(node, nodes, binned, growth)
    return nodes[node]["left"]


@part
def divide_rows(node, nodes, binned, growth):
    """Give the rows of ``node``, a split, to its children."""
    start, stop = growth.places[node]["start"], growth.places[node]["stop"]
    f = nodes[node]["feature"]
    middle = partition(
        binned.columns[f], nodes[node]["code"], binned.n_thresholds[f] + 1,
        nodes[node]["missing_left"], growth.rows, start, stop, growth.spare,
    )  # fmt: skip
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
    return small


@part
def fill_node(node, fit, growth):
    """Add all rows of ``node`` to its histogram."""
    place = growth.places[node]
    fill_rows(
        fit.binned, growth.rows, place["start"], place["stop"], fit.grad, fit.hess,
        growth.histograms[place["slot"]], growth.extra,
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
    """Read a node's own sums off its histogram."""
    slot = growth.places[node]["slot"]
    sum_parts(nodes[node], binned, growth.histograms[slot : slot + 1])


@part
def sum_parts(node, binned, parts):
    """Read a node's own sums off the parts of its histogram: any feature's bins hold all rows."""
    g = np.int64(0)
    packed = np.int64(0)
    words = 1 if binned.hessian_bits >= 0 else 2
    for i in range(parts.shape[0]):
        for b in range(binned.n_thresholds[0] + 2):
            g += parts[i, words * b]
            packed += parts[i, words * (b + 1) - 1]
    g, packed = unpack(g, packed, binned)
    node["g"] = g
    node["h"] = hessians_of(packed, binned)
    node["c"] = count_of(packed, binned)


@part
def list_own_rows(team, growth, n):
    """Give the root this thread's rows."""
    listed = 0
    for a in range(team.thread * team.chunk, n, team.n_threads * team.chunk):
        size = min(team.chunk, n - a)
        rows = growth.rows[listed : listed + size]
        for i in range(size):
            rows[i] = a + i
        listed += size
    growth.places[0]["start"] = 0
    growth.places[0]["stop"] = listed
    growth.places[0]["slot"] = 0
    growth.control[N_SLOTS] = 1


@part
def merge_parts(parts, start, stop, out):
    """Write the sums of the words ``start`` to ``stop`` of all parts; arguments as in `evaluate`.

    Loops, not copies of slices: to compile one of these takes a second.
    """
    whole = out[start:stop]
    for i in range(parts.shape[0]):
        own = parts[i, start:stop]
        for j in range(stop - start):
            whole[j] = own[j] + (whole[j] if i > 0 else 0)


@part
def search_features(team, node, side, nodes, fit, growth):
    """Find the best split of ``node`` by this thread's features."""
    slot = growth.places[node]["slot"]
    collect_features(
        growth.histograms[slot], fit.binned, nodes[node]["key"], team.first, team.last,
        growth.sums[slot],
    )  # fmt: skip
    name = best_of_features(
        nodes[node], growth.sums[slot], fit.binned, fit.rule, team.first, team.last, growth.gain
    )
    team.found[team.thread, side, 0] = growth.gain[0]
    team.found[team.thread, side, 1] = name


@part
def settle(found, side, node, rule):
    """Keep the best of the splits that all threads found; of equals that of the first feature.

    IN found: of Team; OUT node: a record of NODE.
    """
    best = -1.0
    node["choice"] = -1
    for i in range(found.shape[0]):
        if found[i, side, 1] >= 0.0 and found[i, side, 0] > best:
            best = found[i, side, 0]
            node["choice"] = np.int64(found[i, side, 1])
            node["gain"] = best - score(node["g"], node["h"], rule.l2)


@part
def wants_search(node, large, nodes, rule):
    """Return whether there is a node to search: the root, or a child with rows enough."""
    return node >= 0 and (large < 0 or can_split(node, nodes, rule))


@part
def evaluate(team, small, large, nodes, fit, growth):
    """Find the best splits of two children, whose rows and slots are known; large -1: of the root.

    The histogram of ``small`` is filled, that of ``large`` is what is left of their parent's.
    Returns False where another thread failed.
    """
    place = growth.places[small]
    slot = place["slot"]
    parts = growth.histograms[slot : slot + 1] if team.n_threads == 1 else team.parts
    own = parts[team.thread]
    own[:] = 0
    fill_rows(
        fit.binned, growth.rows, place["start"], place["stop"], fit.grad, fit.hess, own,
        growth.extra,
    )  # fmt: skip
    growth.control[N_MEETINGS] += 2
    meeting = growth.control[N_MEETINGS]
    if not meet(team.sync, meeting - 1, team.n_threads):
        return False
    if large < 0:
        sum_parts(nodes[small], fit.binned, parts)
    if team.n_threads > 1:
        merge_parts(parts, team.start, team.stop, growth.histograms[slot])
    if large >= 0:
        subtract_histogram(
            growth.histograms[growth.places[large]["slot"], team.start : team.stop],
            growth.histograms[slot, team.start : team.stop],
        )
    for side in range(2):
        node = small if side == 0 else large
        if wants_search(node, large, nodes, fit.rule):
            search_features(team, node, side, nodes, fit, growth)
    if not meet(team.sync, meeting, team.n_threads):
        return False
    for side in range(2):
        node = small if side == 0 else large
        if wants_search(node, large, nodes, fit.rule):
            settle(team.found, side, nodes[node], fit.rule)
    return True


@part
def split_on(nodes, fit, growth, record):
    """Split leaves, the best first, until two children are to be searched: small and large.

    Both are -1 where the tree is whole.
    """
    control, places = growth.control, growth.places
    while control[N_LEAVES] < fit.rule.max_leaves:
        node = best_leaf(nodes, control[N_NODES])
        if node < 0:
            break
        left = np.int64(split_node(node, nodes, fit.binned, growth, record))
        worth = can_split(left, nodes, fit.rule) or can_split(left + 1, nodes, fit.rule)
        if worth and control[N_LEAVES] < fit.rule.max_leaves:
            small = left if nodes[left]["c"] <= nodes[left + 1]["c"] else left + 1
            places[2 * left + 1 - small]["slot"] = places[node]["slot"]
            places[small]["slot"] = control[N_SLOTS]
            control[N_SLOTS] += 1
            return small, 2 * left + 1 - small
    return np.int64(-1), np.int64(-1)


@part
def grow(team, fit, key, nodes, growth, record):
    """Grow a tree. Returns False where another thread failed.

    IN team Team; IN fit Fit; IN key uint64; OUT nodes NODE[m]; growth Growth, of which threads of a
    team share histograms and sums; OUT record int64[splits, 2 * candidates], the candidates' sums
    of every split made (no rows: not recorded).
    """
    start_tree(key, nodes, growth)
    list_own_rows(team, growth, fit.grad.shape[0])
    # One place where nodes are evaluated, and one where they are split: each is compiled once.
    small, large = np.int64(0), np.int64(-1)
    while small >= 0:
        if not evaluate(team, small, large, nodes, fit, growth):
            return False
        small, large = split_on(nodes, fit, growth, record)
    return True


@part
def finish_tree(nodes, rule, growth, leaf, value):
    """Set the values of a tree's nodes and note the leaf of each row that the thread owns.

    INOUT nodes NODE[m]; IN rule Rule; OUT leaf uint8|uint16[n]; OUT value float64[m].
    """
    for node in range(growth.control[N_NODES]):
        value[node] = leaf_value(nodes[node]["g"], nodes[node]["h"], rule)
        nodes[node]["value"] = value[node]
        if nodes[node]["split"] < 0:
            rows = growth.rows[growth.places[node]["start"] : growth.places[node]["stop"]]
            for i in range(rows.shape[0]):
                leaf[rows[i]] = node


@part
def add_values(value, leaf, start, stop, margin):
    """Add a tree to the margins of the rows ``start`` to ``stop``; IN value, leaf as above."""
    here, out = leaf[start:stop], margin[start:stop]
    for i in range(stop - start):
        out[i] += value[here[i]]


@part
def leaf_value(g, h, rule):
    """Return step * g / (h + l2), with the quotient held within +-limit."""
    if h <= 0:
        return 0.0
    return rule.step * min(max(np.float64(g) / (np.float64(h) + rule.l2), -rule.limit), rule.limit)


@kernel
def train_trees(turn, training, trees, growth, team):
    """Do what `take_part` does, called from Python."""
    take_part(turn, training, trees, growth, team)


@part
def take_part(turn, training, trees, growth, team):
    """Do one thread's part of some iterations.

    IN turn Turn; INOUT training Training; OUT trees Trees; growth Growth, this thread's own; team
    Team, of one where there are many outputs.
    """
    margins, grad, hess = training.margins, training.grad, training.hess
    n_outputs, n = margins.shape
    n_noted = team.leaf.shape[0]
    together = n_outputs == 1
    is_first = team.thread == 0
    growth.control[N_MEETINGS] = 0
    chunk = team.chunk if together else (n + turn.n_threads - 1) // turn.n_threads
    for iteration in range(turn.first, turn.last):
        for a in range(turn.thread * chunk, n, turn.n_threads * chunk):
            b = min(a + chunk, n)
            if together and iteration > 0:
                # Not before: margins and gradients of a chunk are derived while it is at hand.
                add_values(team.value, team.leaf[(iteration - 1) % n_noted], a, b, margins[0])
            gradients_of_rows(margins, training.loss, a, b, grad, hess)
        output = 0
        if not together:
            if not meet(turn.sync, 2 * (iteration - turn.first) + 1, turn.n_threads):
                return
            output = take(turn.tickets, iteration)
        while output < n_outputs:
            t = iteration * n_outputs + output
            nodes = trees.nodes[t] if is_first else team.nodes
            record = trees.record[t] if is_first else trees.record[t][:0]
            fit = Fit(training.binned, grad[output], hess[output], training.rule)
            if not grow(team, fit, training.keys[t], nodes, growth, record):
                return
            finish_tree(nodes, training.rule, growth, team.leaf[t % n_noted], team.value)
            if is_first:
                trees.n_nodes[t] = growth.control[N_NODES]
            if together:
                break
            add_values(team.value, team.leaf[t % n_noted], 0, n, margins[output])
            output = take(turn.tickets, iteration)
        if not together and not meet(turn.sync, 2 * (iteration - turn.first) + 2, turn.n_threads):
            return
    if together and turn.last == trees.n_nodes.shape[0]:
        for a in range(turn.thread * chunk, n, turn.n_threads * chunk):
            last_leaf = team.leaf[(turn.last - 1) % n_noted]
            add_values(team.value, last_leaf, a, min(a + chunk, n), margins[0])
