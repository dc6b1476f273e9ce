"""Which k of the candidates become triggers."""

from __future__ import annotations

from typing import Literal

import numpy as np

from timbermark.errors import InputError
from timbermark.marking.candidates import Pool
from timbermark.marking.geometry import count_admirers, farthest_points, scale_rows

Selection = Literal["isolation", "confidence", "distance"]
SELECTIONS: tuple[Selection, ...] = ("isolation", "confidence", "distance")
DEFAULT_SELECTION: Selection = "isolation"

_PER_TRIGGER = {"isolation": 4, "confidence": 2, "distance": 2}


def count_candidates(selection: str, k: int) -> int:
    """How many candidates ``k`` triggers are best chosen from; the paper has two for each.

    >>> count_candidates("distance", 96)
    192
    """
    return _PER_TRIGGER.get(selection, 2) * k


def select(
    selection: Selection, pool: Pool, order: np.ndarray, k: int, seed: int = 0, raw: bool = False
) -> np.ndarray:
    """Positions within ``order`` (rows of the pool) of the ``k`` triggers.

    ``confidence``: the rows the model is least sure of. ``distance``: a random row first, then
    always the one farthest from those chosen. Both are the paper's. ``isolation``: the rows that
    the fewest others have among their nearest, of equals the least sure ones.
    """
    if selection == "confidence":
        return np.argsort(pool.sureness[order], kind="stable")[:k]
    if selection == "distance":
        X = scale_rows(pool.X, raw)[order]
        first = int(np.random.default_rng(seed).integers(len(order)))
        return farthest_points(X, k, first)
    if selection == "isolation":
        X = pool.X if pool.others is None else np.concatenate([pool.X, pool.others])
        admirers = count_admirers(scale_rows(X, raw), order, seed)
        return np.lexsort((pool.sureness[order], admirers))[:k]
    raise InputError(
        f"selection={selection!r} is not known.", hint=f"use one of {', '.join(SELECTIONS)}."
    )
