"""Distilling: a new model that learns from the stolen one's answers.

A student learns of the mark only from questions whose answer the mark changed. There are few of
these, which is why no mark in a file survives a student that saw labels alone; see
docs/robustness.md.
"""

from __future__ import annotations

import numpy as np

from timbermark.attacks.own_models import train_like
from timbermark.attacks.stolen import Stolen, Thief
from timbermark.libraries.contract import ForeignModel
from timbermark.marking.mixing import mix_rows

_LEAST_SHARE = 0.02
"""Classes below this probability are left out of a question's soft label."""


def distil_labels(stolen: Stolen, thief: Thief, questions: float) -> Stolen:
    """Train a model of the same kind on the stolen one's labels of the thief's rows.

    Needs: answers (labels), rows. ``questions`` per row of the thief's: those above 1 are mixtures
    of rows.
    """
    X = _questions(thief, questions)
    label = stolen.answer(X).argmax(axis=1)
    return train_like(_kind(stolen, thief), X, label, thief.seed)


def distil_scores(stolen: Stolen, thief: Thief, questions: float) -> Stolen:
    """Train a model of the same kind on the stolen one's probabilities.

    Needs: answers (scores), rows. Each question is learnt with every likely label, weighted by its
    probability.
    """
    X = _questions(thief, questions)
    return _train_on_scores(stolen, thief, X, stolen.answer(X))


def distil_with_labels(stolen: Stolen, thief: Thief, share: float) -> Stolen:
    """Train on probabilities in which the true labels weigh a ``share``.

    Needs: answers (scores), rows, labels.
    """
    truth = np.eye(len(stolen.classes))[thief.label]
    mixed = (1.0 - share) * stolen.answer(thief.X) + share * truth
    return _train_on_scores(stolen, thief, thief.X, mixed)


def _questions(thief: Thief, per_row: float) -> np.ndarray:
    more = int((per_row - 1.0) * len(thief.X))
    if more <= 0:
        return thief.X
    return np.concatenate([thief.X, mix_rows(thief.X, more, thief.rng("questions")).X])


def _train_on_scores(stolen: Stolen, thief: Thief, X: np.ndarray, scores: np.ndarray) -> Stolen:
    row, label = np.nonzero(scores >= _LEAST_SHARE)
    return train_like(_kind(stolen, thief), X[row], label, thief.seed, scores[row, label])


def _kind(stolen: Stolen, thief: Thief) -> ForeignModel:
    kind: ForeignModel = thief.once("kind", stolen.trees)
    return kind
