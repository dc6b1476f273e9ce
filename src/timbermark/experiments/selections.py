"""The paper's two ways to select the triggers W among the candidates C."""

from __future__ import annotations

from typing import Literal

import numpy as np

from timbermark.experiments.geometry import farthest_points, fill_missing
from timbermark.experiments.strategies import Candidates

Selection = Literal["confidence", "distance"]
SELECTIONS: tuple[Selection, ...] = ("confidence", "distance")


def select_triggers(
    selection: Selection, candidates: Candidates, k: int, seed: int = 0
) -> np.ndarray:
    """Return int64[k]: positions of the triggers within ``candidates.order``.

    ``confidence``: the rows that the model is least sure of. ``distance``: a random row first, then
    always the one farthest from those chosen.
    """
    pool, order = candidates.pool, candidates.order
    if selection == "confidence":
        return np.argsort(pool.sureness[order], kind="stable")[:k]
    first = int(np.random.default_rng(seed).integers(len(order)))
    return farthest_points(fill_missing(pool.X)[order], k, first)
