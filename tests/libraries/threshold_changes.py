"""Ensembles that differ from a foreign model's in thresholds only, and rows that can tell."""

from dataclasses import replace

import numpy as np


def borders_of(foreign):
    """Columns and thresholds of the splits that can move, each once, and which each node has."""
    e, nodes = foreign.ensemble, np.flatnonzero(foreign.movable)
    # By bits: two zeros are two thresholds.
    pairs = np.stack([e.feature[nodes], e.threshold[nodes].view(np.int64)], axis=1)
    unique, of_node = np.unique(pairs.reshape(-1, 2), axis=0, return_inverse=True)
    return unique[:, 0].astype(int), unique[:, 1].copy().view(np.float64), nodes, of_node.ravel()


def with_borders(foreign, new):
    """The ensemble in which each of `borders_of` is another one, for all splits that have it."""
    _, _, nodes, of_node = borders_of(foreign)
    threshold = foreign.ensemble.threshold.copy()
    with np.errstate(over="ignore"):
        held = np.asarray(new, dtype=np.float64).astype(foreign.threshold_dtype)
    threshold[nodes] = held.astype(np.float64)[of_node]
    return replace(foreign.ensemble, threshold=threshold)


def other_thresholds(foreign, seed=0, size=0.05):
    """All thresholds moved by about this much, equal ones of a column by the same."""
    _, old, *_ = borders_of(foreign)
    return with_borders(foreign, old + size * np.random.default_rng(seed).normal(size=len(old)))


def moved_in_gaps(foreign, rows, shares):
    """Every threshold somewhere else between the two values of ``rows`` around it.

    ``shares``: how far from the lower value, as a part of the gap, taken in turns.
    """
    e = foreign.ensemble
    column, old, *_ = borders_of(foreign)
    new = old.copy()
    with np.errstate(over="ignore"):
        values = [
            np.unique(rows[:, c].astype(e.input_dtype).astype(float)) for c in range(e.n_features)
        ]
    for i, (c, t) in enumerate(zip(column, old, strict=True)):
        known = values[c][np.isfinite(values[c])]
        place = np.searchsorted(known, t, side="left" if e.strict else "right")
        if not 0 < place < len(known):
            continue
        low, high = known[place - 1], known[place]
        there = low + shares[i % len(shares)] * (high - low)
        there = float(np.asarray(there).astype(foreign.threshold_dtype))
        inside = low < there <= high if e.strict else low <= there < high
        new[i] = there if inside else t
    return with_borders(foreign, new)


def rows_around(ensembles, base):
    """Rows of ``base`` in turns, one value at, just below or just above a threshold of each."""
    rows = []
    for e in ensembles:
        inner = (e.left >= 0) & (e.category_set < 0) & np.isfinite(e.threshold)
        pairs = np.unique(np.stack([e.feature[inner], e.threshold[inner]], axis=1), axis=0)
        with np.errstate(over="ignore"):
            at = pairs[:, 1].astype(e.input_dtype)
            values = [
                at,
                np.nextafter(at, -np.inf, dtype=at.dtype),
                np.nextafter(at, np.inf, dtype=at.dtype),
            ]
        for value in values:
            part = base[np.arange(len(pairs)) % len(base)].copy()
            part[np.arange(len(pairs)), pairs[:, 0].astype(int)] = value.astype(float)
            rows.append(part[np.isfinite(value)])
    return np.concatenate(rows)
