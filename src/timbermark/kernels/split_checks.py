"""Whether a split of an old tree still holds, now that rows were added or have changed.

All is decided by sums: what the state has noted of a node's candidates, and what the touches add.
The arguments are those of :mod:`timbermark.kernels.renewing`.
"""

import numpy as np

from timbermark.kernels.compile import part
from timbermark.kernels.histogram import count_of, hessians_of, pack
from timbermark.kernels.splitting import candidate, rank_split, score, split_score

_SLIGHT = 4.0
"""Touches below this share of a node's sums, times the patience, do not put its split in question.
Chosen by measurement: marks take as well, accuracy stays, half the time is saved."""


@part
def touched_sums(key, place, old_sums, binned, walk):
    """Write the candidates' sums of a twin (at ``place``), with its touches, to ``walk.sums``."""
    delta, sums, codes = walk.delta, walk.sums, walk.codes
    n_features = binned.n_strata.shape[0]
    delta[:] = 0
    for f in range(n_features):
        for s in range(binned.n_strata[f]):
            codes[binned.firsts[f] + s] = candidate(
                key, f, s, binned.n_thresholds[f], binned.n_strata[f]
            )
    for i in range(place["first"], place["last"]):
        touch = walk.touches[walk.order[i]]
        for f in range(n_features):
            code = np.int64(binned.codes[touch["row"], f])
            j = binned.firsts[f]
            if code > binned.n_thresholds[f]:
                j += binned.n_strata[f]
            else:
                # A row counts at every candidate from its own on; the prefix sum below does that.
                s = walk.stratum[np.int64(binned.offsets[f]) + code]
                if s < binned.n_strata[f] and code > codes[j + s]:
                    s += 1
                if s >= binned.n_strata[f]:
                    continue
                j += s
            delta[2 * j] += touch["g"]
            delta[2 * j + 1] += touch["packed"]
    for f in range(n_features):
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


@part
def goes_left(node, code, n_thresholds):
    """Return whether a row with this code of the node's feature goes left."""
    if code == n_thresholds + 1:
        return node["missing_left"] == 1
    return code <= node["code"]


@part
def keeps_split(node, place, old_nodes, fit, patience, walk):
    """Return whether at most ``patience`` of the candidates beat the node's old split; its gain.

    IN node: the new node's record, with the old split; IN place: its place; IN old_nodes NODE[m].
    The old split need not be one of the candidates.
    """
    binned, rule = fit.binned, fit.rule
    was = old_nodes[old_nodes[place["twin"]]["left"]]
    f = node["feature"]
    g = was["g"]
    packed = pack(was["h"], was["c"], binned)
    for i in range(place["first"], place["last"]):
        touch = walk.touches[walk.order[i]]
        if goes_left(node, np.int64(binned.codes[touch["row"], f]), binned.n_thresholds[f]):
            g += touch["g"]
            packed += touch["packed"]
    value = split_score(
        g, hessians_of(packed, binned), count_of(packed, binned), node["g"], node["h"], node["c"],
        rule,
    )  # fmt: skip
    if value < 0.0:
        return False, -1.0
    above, valid = rank_split(node, walk.sums, binned, rule, value)
    return above <= patience * valid, value - score(node["g"], node["h"], rule.l2)


@part
def is_slight(was, place, binned, patience, walk):
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
    most = _SLIGHT * patience
    return g <= most * np.sqrt(was["gain"] * was["h"]) and h <= most * was["h"]
