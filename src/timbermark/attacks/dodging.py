"""Dodging: the thief answers questions that look like triggers with a model of their own.

Triggers of the default kind are mixtures of two rows. Whoever has rows can make such mixtures, and
learn to tell them from real rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from timbermark.attacks.own_models import own_model
from timbermark.attacks.stolen import Stolen, Thief
from timbermark.marking.mixing import mix_rows

_FOLDS = 3


def dodge_mixtures(stolen: Stolen, thief: Thief, share: float) -> Stolen:
    """Answer questions that look mixed with the thief's model: at most a ``share`` of real rows.

    Needs: answers, rows, labels.
    """
    guard, level = thief.once("guard", lambda: _learn_mixtures(thief))
    own = own_model(stolen, thief)
    limit = float(np.quantile(level, 1.0 - share))

    def answer(X: np.ndarray) -> np.ndarray:
        mixed = guard.predict_proba(X)[:, 1] >= limit
        return np.where(mixed[:, None], own.answer(X), stolen.answer(X))

    return stolen.served(answer)


def dodge_unsure(stolen: Stolen, thief: Thief, share: float) -> Stolen:
    """Answer the ``share`` of questions that the stolen model is least sure of with the thief's.

    Needs: answers (scores), rows, labels.
    """
    own = own_model(stolen, thief)

    def sureness(scores: np.ndarray) -> np.ndarray:
        ranked = np.sort(scores, axis=1)
        return np.asarray(ranked[:, -1] - ranked[:, -2])

    limit = float(np.quantile(sureness(stolen.answer(thief.X)), share))

    def answer(X: np.ndarray) -> np.ndarray:
        scores = stolen.answer(X)
        return np.where((sureness(scores) <= limit)[:, None], own.answer(X), scores)

    return stolen.served(answer)


def _learn_mixtures(thief: Thief) -> tuple[Any, np.ndarray]:
    """Return a classifier of mixtures, and its scores of real rows that it was not trained on."""
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.model_selection import KFold

    rng = thief.rng("mixtures")

    def train(rows: np.ndarray) -> Any:
        mixed = mix_rows(rows, 2 * len(rows), rng).X
        X = np.concatenate([rows, mixed])
        y = np.repeat([0, 1], [len(rows), len(mixed)])
        return HistGradientBoostingClassifier(max_iter=100, random_state=thief.seed).fit(X, y)

    level = np.empty(len(thief.X))
    for seen, held in KFold(_FOLDS, shuffle=True, random_state=thief.seed).split(thief.X):
        level[held] = train(thief.X[seen]).predict_proba(thief.X[held])[:, 1]
    return train(thief.X), level
