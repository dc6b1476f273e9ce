"""What a candidate would cost, before any symbol is known: how far it must move, and how easily."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from timbermark.editing.leaves import RIDGE
from timbermark.editing.routing import Router, Routes
from timbermark.kernels.routing import add_leaf_values
from timbermark.kernels.workers import Workers
from timbermark.marking.classification import Classification
from timbermark.marking.defaults import EXPECTED_LEAD


def mean_effort(
    task: Classification,
    margins: np.ndarray,
    alphabets: np.ndarray,
    room: np.ndarray | None,
    lead: float = EXPECTED_LEAD,
) -> np.ndarray:
    """Return float64 [n]: Σ shift² / room over outputs, on average over a candidate's answers."""
    total = np.zeros(len(margins))
    for a in range(alphabets.shape[1]):
        shift = task.wanted_margins(margins, alphabets[:, a], lead) - margins
        total += (shift**2 / (1.0 if room is None else np.maximum(room, 1e-12))).sum(axis=1)
    return np.asarray(total / alphabets.shape[1])


def find_room(
    router: Router, mass: Sequence[np.ndarray], routes: Routes, workers: Workers
) -> np.ndarray:
    """Return float64 [n, K]: how easily the margins of routed rows move.

    ``mass`` [K] of float64 [leaves]: how much weight of other rows is in each leaf.
    """
    return add_leaves(router, [1.0 / (own + RIDGE) for own in mass], routes, workers)


def add_leaves(
    router: Router, values: Sequence[np.ndarray], routes: Routes, workers: Workers
) -> np.ndarray:
    """Return float64 [n, K]: the sums of ``values`` [K] over the leaves that rows end in."""
    out = np.zeros((len(routes.leaf), routes.n_rows))

    def add(thread: int, c: int) -> None:
        add_leaf_values(routes.leaf[c], 0, routes.n_rows, router.first[c], values[c], out[c])

    workers.drain(add, len(out))
    return out.T
