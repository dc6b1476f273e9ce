"""Whether the splits of an old tree still hold after rows came and went, by sums alone.

Every split of the old tree has the sums at all its candidates. What the *touches* of a node add to
these (`timbermark.kernels.regrowing` says what touches, twins and live nodes are) gives the sums
that training again would find there, so that no row but the touched ones is looked at.

- `assess` decides as growing from nothing would: the best candidate is searched again.
- `stands` is patient: a split is kept while few candidates beat it, and is not put in question at
  all where the node is large or its touches are slight.

Arguments that all kernels of an update have are explained in `timbermark.kernels.regrowing`.
"""

import numpy as np

from timbermark.kernels.compile import inlined, part
from timbermark.kernels.growing import can_split, chosen_split
from timbermark.kernels.layout import UNKNOWN
from timbermark.kernels.splitting import (
    best_candidate,
    count_of,
    draw_candidates,
    hessians_of,
    pack,
    score,
    split_score,
)


@part
def enter_touches(key, place, binned, walk):
    """Write what the touches of a twin (at ``place``) add at each of its candidates, alone.

    A row counts at every candidate from its own on: ``walk.delta`` must be added up feature by
    feature, but for the last candidate, that of missing values. ``walk.sums`` is overwritten.
    """
    delta, drawn = walk.delta, walk.sums
    delta[:] = 0
    draw_candidates(key, binned, 0, binned.firsts[-1], drawn)
    for i in range(place["first"], place["last"]):
        touch = walk.touches[walk.order[i]]
        for f in range(binned.n_strata.shape[0]):
            code = np.int64(binned.codes[touch["row"], f])
            strata, thresholds = binned.n_strata[f], binned.n_thresholds[f]
            j = binned.firsts[f]
            if code > thresholds:
                j += strata
            else:
                s = np.int64(walk.stratum[np.int64(binned.offsets[f]) + code])
                if s < strata and code > drawn[2 * (j + s) + 1]:
                    s += 1
                if s >= strata:
                    continue
                j += s
            delta[2 * j] += touch["g"]
            delta[2 * j + 1] += touch["packed"]


@part
def touched_sums(key, place, old_sums, binned, walk):
    """Write the candidates' sums of a twin (at ``place``), with its touches, to ``walk.sums``."""
    enter_touches(key, place, binned, walk)
    delta, sums = walk.delta, walk.sums
    for f in range(binned.n_strata.shape[0]):
        g = np.int64(0)
        packed = np.int64(0)
        last = binned.firsts[f] + binned.n_strata[f]
        for j in range(binned.firsts[f], last):
            g += delta[2 * j]
            packed += delta[2 * j + 1]
            sums[2 * j] = old_sums[2 * j] + g
            sums[2 * j + 1] = old_sums[2 * j + 1] + packed
        sums[2 * last] = old_sums[2 * last] + delta[2 * last]
        sums[2 * last + 1] = old_sums[2 * last + 1] + delta[2 * last + 1]


@inlined
def beats(left_g, packed, node, binned, rule, value):
    """Return whether a candidate is valid, and whether its score is above ``value``.

    As `split_score` says, but without a division: this is where a patient walk spends its time.
    """
    left_h, left_c = hessians_of(packed, binned), count_of(packed, binned)
    h, c = node["h"] - left_h, node["c"] - left_c
    valid = (
        left_c >= rule.least_rows
        and c >= rule.least_rows
        and left_h >= rule.least_hessian
        and h >= rule.least_hessian
        and left_c > 0
        and c > 0
    )
    if not valid:
        return False, False
    a, b = np.float64(left_g), np.float64(node["g"] - left_g)
    below_a, below_b = np.float64(left_h) + rule.l2, np.float64(h) + rule.l2
    # A side without hessians scores nothing.
    if left_h <= 0:
        a, below_a = 0.0, 1.0
    if h <= 0:
        b, below_b = 0.0, 1.0
    return True, a * a * below_b + b * b * below_a > value * below_a * below_b


@part
def keeps_split(node, place, old_sums, fit, value, patience, walk):
    """Return whether at most ``patience`` of the candidates score above ``value``, the old split's.

    IN node: the new node's record; IN place: its place; IN old_sums int64[2 * candidates]. The old
    split need not be one of the candidates.
    """
    binned, rule, delta = fit.binned, fit.rule, walk.delta
    enter_touches(node["key"], place, binned, walk)
    # Beyond this it is given up, however many candidates are valid.
    most = patience * binned.firsts[-1]
    above = 0
    n_valid = 0
    for f in range(binned.n_strata.shape[0]):
        last = binned.firsts[f] + binned.n_strata[f]
        missing_g = old_sums[2 * last] + delta[2 * last]
        missing = old_sums[2 * last + 1] + delta[2 * last + 1]
        any_missing = count_of(missing, binned) > 0
        g = np.int64(0)
        packed = np.int64(0)
        for j in range(binned.firsts[f], last):
            g += delta[2 * j]
            packed += delta[2 * j + 1]
            left_g, left = old_sums[2 * j] + g, old_sums[2 * j + 1] + packed
            valid, better = beats(left_g, left, node, binned, rule, value)
            if any_missing:
                turned = beats(left_g + missing_g, left + missing, node, binned, rule, value)
                valid |= turned[0]
                better |= turned[1]
            n_valid += valid
            above += better
        if any_missing:
            valid, better = beats(missing_g, missing, node, binned, rule, value)
            n_valid += valid
            above += better
        if above > most:
            return False
    return above <= patience * n_valid


@part
def goes_left(node, code, n_thresholds):
    """Return whether a row with this code of the node's feature goes left."""
    if code == n_thresholds + 1:
        return node["missing_left"] == 1
    return code <= node["code"]


@part
def divide_touches(node, nodes, binned, old, walk):
    """Divide the touches of a twin among its children, and note the sums of the left one."""
    order, spare = walk.order, walk.spare
    place = walk.growth.places[node]
    was = old.nodes[place["twin"]]
    old_left = old.nodes[was["left"]]
    f = np.int64(was["feature"])
    g = old_left["g"]
    packed = pack(old_left["h"], old_left["c"], binned)
    middle = place["first"]
    right = np.int64(0)
    for i in range(place["first"], place["last"]):
        touch = order[i]
        row = walk.touches[touch]["row"]
        code = np.int64(binned.codes[row, f])
        # Where missing values turn to the other side, what old rows are taken out of does not.
        split = was if row < old.leaf.shape[0] else nodes[node]
        if goes_left(split, code, binned.n_thresholds[f]):
            order[middle] = touch
            middle += 1
            g += walk.touches[touch]["g"]
            packed += walk.touches[touch]["packed"]
        else:
            spare[right] = touch
            right += 1
    for i in range(right):
        order[middle + i] = spare[i]
    place["middle"] = middle
    place["left_g"] = g
    place["left_packed"] = packed


@part
def kept_score(node, place, fit):
    """Return the score of a twin's old split with its touches; -1 where a child is too small."""
    packed = place["left_packed"]
    return split_score(
        place["left_g"], hessians_of(packed, fit.binned), count_of(packed, fit.binned),
        node["g"], node["h"], node["c"], fit.rule,
    )  # fmt: skip


@part
def is_slight(was, place, binned, most, walk):
    """Return whether the touches are too small to overturn a split, which need not be scored then.

    A child's sum of gradients is of the order of sqrt(gain * h); what is far below that moves all
    candidates' gains by a small part.
    """
    g = np.int64(0)
    h = np.int64(0)
    for i in range(place["first"], place["last"]):
        touch = walk.touches[walk.order[i]]
        g += abs(touch["g"])
        h += abs(hessians_of(touch["packed"], binned))
    return g <= most * np.sqrt(was["gain"] * was["h"]) and h <= most * was["h"]


@part
def assess(node, nodes, fit, old, walk):
    """Decide what becomes of a fresh twin as growing from nothing would, without patience.

    Returns True where it must be regrown.
    """
    new, place = nodes[node], walk.growth.places[node]
    was = old.nodes[place["twin"]]
    touched = place["last"] > place["first"]
    new["choice"] = was["choice"]
    new["gain"] = was["gain"]
    place["priority"] = was["gain"]
    # Growing searches the root, however small it is.
    too_small = node > 0 and not can_split(node, nodes, fit.rule)
    if too_small and (touched or was["split"] < 0):
        new["choice"] = UNKNOWN
        new["gain"] = -1.0
        place["priority"] = -1.0
        return False
    if was["split"] < 0:
        return (touched or was["choice"] == UNKNOWN) and can_split(node, nodes, fit.rule)
    new["feature"] = was["feature"]
    new["code"] = was["code"]
    new["missing_left"] = was["missing_left"]
    if touched:
        touched_sums(new["key"], place, old.record[was["split"]], fit.binned, walk)
        found = best_candidate(new, walk.sums, fit.binned, fit.rule, walk.growth.gain)
        new["gain"] = walk.growth.gain[0]
        place["priority"] = new["gain"]
        if found != new["choice"]:
            return True
        # The majority may lie on the other side by now. With patience the split stays as it is.
        if found >= 0:
            new["missing_left"] = chosen_split(new, fit.binned, walk.sums)[0].missing_left
    divide_touches(node, nodes, fit.binned, old, walk)
    return False


@part
def stands(node, nodes, fit, old, patience, knobs, walk):
    """Return whether the split of a touched twin is good enough to be kept."""
    new, place = nodes[node], walk.growth.places[node]
    was = old.nodes[place["twin"]]
    value = kept_score(new, place, fit)
    # A split that makes a child too small is no split, however patient one is.
    if value < 0.0:
        return False
    # Infinite patience: splits stay and leaves alone learn. To regrow large nodes costs time for
    # each row, and little is learnt there that the nodes below cannot learn.
    if patience == np.inf or new["c"] > knobs.largest:
        return True
    if is_slight(was, place, fit.binned, knobs.slight, walk):
        return True
    new["gain"] = value - score(new["g"], new["h"], fit.rule.l2)
    return keeps_split(new, place, old.record[was["split"]], fit, value, patience, walk)
