"""Margins that a trigger shall have, and how far its label leads."""

from __future__ import annotations

import numpy as np

from timbermark.ownership.evidence import nearest_margins


def wanted_margins(margins: np.ndarray, target: np.ndarray, lead: float | np.ndarray) -> np.ndarray:
    """Return float64 [k, K]: margins in which ``target`` leads all others by ``lead``, or [k].

    Of all such margins these are the nearest: the target rises and those above it sink to one
    common level. Margins that already have the lead stay as they are.

    >>> wanted_margins(np.array([[2.0, 0.0, 1.5]]), np.array([1]), 1.0).tolist()
    [[0.8333333333333334, 1.8333333333333335, 0.8333333333333334]]
    >>> wanted_margins(np.array([[2.0], [-0.25]]), np.array([0, 0]), 1.0).tolist()
    [[-1.0], [-1.0]]
    """
    if margins.shape[1] == 1:
        m = margins[:, 0]
        rise, fall = np.maximum(m, lead), np.minimum(m, -lead)
        return np.asarray(np.where(target == 1, rise, fall)[:, None])
    return nearest_margins(margins, target, lead)


def leads(margins: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Return float64 [k]: how far the target's margin is above the highest other one.

    >>> leads(np.array([[3.0, 1.0, 0.5], [0.0, 2.0, 5.0]]), np.array([0, 1])).tolist()
    [2.0, -3.0]
    """
    if margins.shape[1] == 1:
        return np.asarray(np.where(target == 1, margins[:, 0], -margins[:, 0]))
    rows = np.arange(len(margins))
    others = margins.copy()
    others[rows, target] = -np.inf
    return np.asarray(margins[rows, target] - others.max(axis=1))
