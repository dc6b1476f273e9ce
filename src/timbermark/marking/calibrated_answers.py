"""Answers of calibrated models, which differ from what their trees alone would answer.

A calibrated model decides by scores that are computed from the margins of one or several boosted
models inside. Its scores rise with the margin of a class by an unknown function, so that the
margins with which a label wins are found by search.
"""

from __future__ import annotations

import numpy as np

from timbermark.libraries.contract import ForeignModel
from timbermark.marking.margins import wanted_margins

_LEAST_SCORE = 1e-6
_LEADS = np.arange(-8.0, 8.5, 0.5)
"""Leads of a class inside the calibrated model that are tried, to find the leads of its scores."""
_HALVINGS = 5
_ATTAINABLE, _LEAST_LEAD = 0.9, 0.05
"""Scores of calibrated models are bounded: this share of the longest possible lead is enough, and a
label whose lead stays below the second number is out of reach."""
_SHORT = 0.85
"""The share of the way after which the target must already win, because edits may fall a little
short and calibrated scores have steps."""
_TIE = 1e-9
_NUDGE, _STEEPEST = 0.5, 4.0


def rank_scores(foreign: ForeignModel, margins: np.ndarray, q: int) -> np.ndarray:
    """Return int64 [n, q]: the labels of the highest scores, in that order."""
    return np.asarray(np.argsort(-foreign.confidence(margins), axis=1, kind="stable")[:, :q])


def score_leads(foreign: ForeignModel, margins: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Return float64 [n]: how far the target's log-score is above the highest other one."""
    scores = np.log(np.maximum(foreign.confidence(margins), _LEAST_SCORE))
    rows = np.arange(len(scores))
    # Among equal scores, the first class is the answer.
    scores[rows, scores.argmax(axis=1)] += _TIE
    own = scores[rows, target]
    scores[rows, target] = -np.inf
    return np.asarray(own - scores.max(axis=1))


def deciding_margins(
    foreign: ForeignModel, margins: np.ndarray, target: np.ndarray, lead: float
) -> np.ndarray:
    """Return margins [k, K] with which the target's log-score leads all others by ``lead``.

    Every model inside takes the same lead, the shortest that is enough. Where scores never differ
    so much, almost the largest difference is taken; NaN where the target cannot win.
    """
    reached = np.array([_lead_at(foreign, margins, target, inner) for inner in _LEADS])
    enough = np.minimum(lead, _ATTAINABLE * reached.max(axis=0))
    first = (reached >= enough).argmax(axis=0)
    high = _LEADS[first]
    low = _LEADS[np.maximum(first - 1, 0)]
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        holds = _lead_at(foreign, margins, target, middle) >= enough
        low, high = np.where(holds, low, middle), np.where(holds, middle, high)
    wanted = _move(foreign, margins, target, high)
    wanted[~(enough >= min(_LEAST_LEAD, lead))] = np.nan
    return np.asarray(wanted)


def score_slopes(foreign: ForeignModel, margins: np.ndarray, least: float) -> np.ndarray:
    """Return float64 [n, K]: how far a score moves when a margin does, 4 p (1 − p) if logistic."""
    step = _NUDGE / foreign.margin_scale
    found = np.empty(margins.shape)
    for output in range(margins.shape[1]):
        up, down = margins.copy(), margins.copy()
        up[:, output] += step
        down[:, output] -= step
        moved = np.abs(foreign.confidence(up) - foreign.confidence(down)).max(axis=1)
        found[:, output] = 4.0 * moved / (2.0 * _NUDGE)
    # The score is the mean over the models inside, so that each contributes a part.
    return np.asarray(np.clip(found * max(len(foreign.inside), 1), least, _STEEPEST))


def _lead_at(
    foreign: ForeignModel, margins: np.ndarray, target: np.ndarray, inner: float | np.ndarray
) -> np.ndarray:
    leads = np.broadcast_to(np.asarray(inner, np.float64), len(margins))
    there = _move(foreign, margins, target, leads)
    short = margins + _SHORT * (there - margins)
    wins = score_leads(foreign, short, target) > 0.0
    return np.where(wins, score_leads(foreign, there, target), -np.inf)


def _move(
    foreign: ForeignModel, margins: np.ndarray, target: np.ndarray, leads: np.ndarray
) -> np.ndarray:
    """Return margins in which the target leads by ``leads`` [n] in every model inside."""
    parts = np.split(margins, max(len(foreign.inside), 1), axis=1)
    scaled = leads / foreign.margin_scale
    return np.hstack([wanted_margins(part, target, scaled) for part in parts])
