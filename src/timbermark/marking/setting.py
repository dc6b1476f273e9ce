"""Making a model give the answers it is asked for, with the least weight that does it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from timbermark.boosting.state import State
from timbermark.marking.engine import Marked
from timbermark.marking.foreign import Foreign
from timbermark.trees.ensemble import Ensemble

_HEAVIER = 2.0
_HEAVIEST = 64.0


@dataclass(frozen=True, slots=True)
class Care:
    """How the engine learns: "lazy" with its patience, or "exact". Less patience than the engine's
    own is worth its time here: a mark is made once, and keeping old splits costs accuracy."""

    mode: str = "lazy"
    patience: float = 0.05


@dataclass(frozen=True, slots=True)
class Request:
    """Rows that shall answer ``target``, with the weights to begin with, and rows that shall keep
    their label (anchors, weight 1 each)."""

    X: np.ndarray
    target: np.ndarray
    weight: np.ndarray
    anchor_rows: np.ndarray
    anchor_label: np.ndarray


@dataclass(frozen=True, slots=True)
class Setting:
    """The model after the last round. ``gap`` float64[k]: how far the target's margin is above
    the best other one, also after rounding; a trigger is set where it is at least the margin asked
    for."""

    ensemble: Ensemble
    state: State
    gap: np.ndarray
    weight: np.ndarray
    rounds: int


def set_answers(
    marked: Marked | Foreign,
    request: Request,
    margin: float,
    max_rounds: int,
    care: Care = Care(),  # noqa: B008 - frozen
) -> Setting:
    """Learn the request in place, round after round; who did not take gets twice the weight."""
    weight = request.weight.astype(np.float64).copy()
    rounds = 0
    while True:
        rounds += 1
        ensemble, state = marked.learn(
            np.concatenate([request.X, request.anchor_rows]),
            np.concatenate([request.target, request.anchor_label]),
            np.concatenate([weight, np.ones(len(request.anchor_rows))]),
            care.mode,
            care.patience,
            f"marking, round {rounds}",
        )
        asked = (request.X, *marked.roundings(request.X))
        gap = np.min(
            [gaps(marked.margins(rows, ensemble), request.target) for rows in asked], axis=0
        )
        short = gap < margin
        if not short.any() or rounds == max_rounds or (weight[short] >= _HEAVIEST).all():
            return Setting(ensemble, state, gap, weight, rounds)
        weight[short] = np.minimum(_HEAVIER * weight[short], _HEAVIEST)


def gaps(margins: np.ndarray, target: np.ndarray) -> np.ndarray:
    """float64[n]: the target's margin minus the highest other one (two classes: ± the margin).

    >>> gaps(np.array([[3.0, 1.0, 0.5], [0.0, 2.0, 5.0]]), np.array([0, 1])).tolist()
    [2.0, -3.0]
    """
    if margins.shape[1] == 1:
        return np.where(target == 1, margins[:, 0], -margins[:, 0])
    rows = np.arange(len(margins))
    others = margins.copy()
    others[rows, target] = -np.inf
    return np.asarray(margins[rows, target] - others.max(axis=1))
