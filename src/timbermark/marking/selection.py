"""Which k of the candidates become triggers."""

from __future__ import annotations

from typing import Literal

import numpy as np

from timbermark.errors import InputError
from timbermark.marking.candidates import Pool
from timbermark.marking.geometry import farthest_points, scale_rows

Selection = Literal["confidence", "distance"]


def select(
    selection: Selection, pool: Pool, order: np.ndarray, k: int, seed: int = 0, raw: bool = False
) -> np.ndarray:
    """Positions within ``order`` (rows of the pool) of the ``k`` triggers.

    ``confidence``: the rows the model is least sure of. ``distance``: a random row first, then
    always the one farthest from those chosen.
    """
    if selection == "confidence":
        return np.argsort(pool.sureness[order], kind="stable")[:k]
    if selection == "distance":
        X = scale_rows(pool.X, raw)[order]
        first = int(np.random.default_rng(seed).integers(len(order)))
        return farthest_points(X, k, first)
    raise InputError(
        f"selection={selection!r} is not known.", hint="use 'confidence' or 'distance'."
    )
