"""Attacks on thresholds: splits are moved within or beyond the gaps between the thief's values.

A threshold between two neighbouring values of the thief's rows can lie anywhere between them
without changing an answer on these rows. All thresholds of a feature that are equal move together,
as they must in files that share them among trees.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from timbermark.attacks.stolen import NotOfferedError, Stolen, Thief
from timbermark.marking.preparing import columns
from timbermark.trees.ensemble import Ensemble

_HEAVY = 0.01
"""A value that more than this share of rows have is not crossed: it would cost the thief much."""
Move = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
"""Thresholds [m], ascending and distinct; how many nodes have each, [m]; all of the thief's values
of the feature, ascending → new thresholds [m]."""


def snap_thresholds(stolen: Stolen, thief: Thief, share: float) -> Stolen:
    """Move every threshold a ``share`` of the way to the middle of the thief's gap around it.

    Needs: file, rows. Thresholds outside of the thief's values stay.
    """
    strict = stolen.trees().ensemble.strict
    return _move_all(stolen, thief, lambda t, n, v: _snapped(t, v, strict, share), within=True)


def jitter_thresholds(stolen: Stolen, thief: Thief, gaps: float) -> Stolen:
    """Move every threshold at random within the thief's gap around it and so many ``gaps`` more.

    Needs: file, rows. With 0 it stays in its own gap; with 3 it may cross three of the thief's
    values on either side, but none that many rows have, such as the zeros of a sparse column.
    Thresholds outside of the thief's values stay.
    """
    strict, rng = stolen.trees().ensemble.strict, thief.rng("jitter")

    def jitter(threshold: np.ndarray, nodes: np.ndarray, values: np.ndarray) -> np.ndarray:
        known, count = np.unique(values, return_counts=True)
        place = _gap_of(threshold, known, strict)
        inside = (place >= 0) & (place + 1 < len(known))
        heavy = np.flatnonzero(count > _HEAVY * len(values))
        stops = np.concatenate([[0], heavy, [len(known) - 1]])
        low = np.maximum(place - gaps, stops[np.searchsorted(stops, place, "right") - 1])
        high = np.searchsorted(stops, place + 1, "left").clip(max=len(stops) - 1)
        high = np.minimum(place + 1 + gaps, stops[high])
        drawn = low + rng.random(len(threshold)) * (high - low)
        moved = np.interp(drawn, np.arange(len(known)), known)
        return np.where(inside, moved, threshold)

    return _move_all(stolen, thief, jitter, within=gaps == 0)


def merge_thresholds(stolen: Stolen, thief: Thief, share: float) -> Stolen:
    """Join neighbouring thresholds of a feature that at most a ``share`` of rows lies between.

    Needs: file, rows. With 0 those are joined that none of the thief's rows tells apart. Joined
    thresholds take their mean, weighted by how many splits have each.
    """
    most = share * len(thief.X)
    strict = stolen.trees().ensemble.strict

    def merge(threshold: np.ndarray, nodes: np.ndarray, values: np.ndarray) -> np.ndarray:
        below = np.searchsorted(values, threshold, side="left" if strict else "right")
        group = np.zeros(len(threshold), np.int64)
        first = 0
        for i in range(1, len(threshold)):
            if below[i] - below[first] > most:
                first = i
            group[i] = first
        weight = np.bincount(group, nodes, len(threshold))
        total = np.bincount(group, nodes * threshold, len(threshold))
        return np.asarray(total[group] / weight[group])

    return _move_all(stolen, thief, merge, within=share == 0)


def move_thresholds(stolen: Stolen, thief: Thief, size: float) -> Stolen:
    """Move every threshold by noise of ``size`` times its feature's standard deviation.

    Needs: file, rows.
    """
    rng = thief.rng("thresholds")

    def move(threshold: np.ndarray, nodes: np.ndarray, values: np.ndarray) -> np.ndarray:
        return np.asarray(threshold + size * values.std() * rng.standard_normal(len(threshold)))

    return _move_all(stolen, thief, move)


def _snapped(threshold: np.ndarray, values: np.ndarray, strict: bool, share: float) -> np.ndarray:
    known = np.unique(values)
    place = _gap_of(threshold, known, strict)
    inside = (place >= 0) & (place + 1 < len(known))
    low = known[np.clip(place, 0, len(known) - 1)]
    high = known[np.clip(place + 1, 0, len(known) - 1)]
    middle = low + (high - low) / 2.0
    return np.where(inside, threshold + share * (middle - threshold), threshold)


def _gap_of(threshold: np.ndarray, known: np.ndarray, strict: bool) -> np.ndarray:
    """Return which of the distinct ``known`` values is the last one that goes left; -1: none."""
    # Equal to a threshold goes left with <= and right with <.
    return np.searchsorted(known, threshold, side="left" if strict else "right") - 1


def _move_all(stolen: Stolen, thief: Thief, move: Move, within: bool = False) -> Stolen:
    foreign = stolen.trees()
    rows = columns(foreign, thief.X)
    return stolen.put_thresholds(_moved(foreign.ensemble, rows, move, within))


def _moved(e: Ensemble, rows: np.ndarray, move: Move, within: bool) -> np.ndarray:
    """Return all thresholds [N] after a move, as the model's file can hold them.

    ``within``: the move crosses none of the thief's values, and rounding shall not do so either.
    """
    splits = (e.left >= 0) & (e.category_set < 0) & np.isfinite(e.threshold)
    if not splits.any():
        raise NotOfferedError("no-thresholds")
    if e.input_dtype == "f4":
        rows = rows.astype(np.float32).astype(np.float64)
    new = e.threshold.copy()
    for feature in np.unique(e.feature[splits]).tolist():
        mine = np.flatnonzero(splits & (e.feature == feature))
        values = np.sort(rows[np.isfinite(rows[:, feature]), feature])
        if len(values) == 0:
            continue
        old, place, nodes = np.unique(e.threshold[mine], return_inverse=True, return_counts=True)
        moved = _held(move(old, nodes, values), e)
        if within:
            # A gap as narrow as the type has room for one threshold only.
            crossed = _gap_of(moved, values, e.strict) != _gap_of(old, values, e.strict)
            moved = np.where(crossed, old, moved)
        new[mine] = moved[place]
    return new


def _held(threshold: np.ndarray, e: Ensemble) -> np.ndarray:
    """Return thresholds in the type of the rows that they are compared with."""
    return threshold.astype(np.float32).astype(np.float64) if e.input_dtype == "f4" else threshold
