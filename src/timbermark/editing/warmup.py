"""Compiling the kernels of editing ahead of time."""

from __future__ import annotations

import numpy as np

from timbermark.editing.leaves import edit_leaves
from timbermark.editing.routing import Router
from timbermark.kernels.workers import Workers
from timbermark.trees.construction import make_ensemble


def warm_editing() -> None:
    """Route and edit a few rows, so that these kernels are compiled and cached on disk."""
    stump = make_ensemble(
        n_features=1, tree_start=[0, 3], feature=[0, -1, -1], threshold=[0.5, 0, 0],
        left=[1, -1, -1], right=[2, -1, -1], value=[0, -1, 1],
    )  # fmt: skip
    router = Router(stump)
    with Workers(1) as workers:
        rows = router.route(np.array([[0.0], [1.0]]), workers)
        router.margins(rows, workers)
        wanted = np.array([[0.1], [0.0]])
        edit_leaves(router, rows, np.ones((2, 1)), rows, wanted, workers, l2=0.0)
