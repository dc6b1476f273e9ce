"""Mixing the stolen model's answers with those of models that the thief trained."""

from __future__ import annotations

import numpy as np

from timbermark.attacks.own_models import other_model, own_model
from timbermark.attacks.stolen import Stolen, Thief


def average_with_own(stolen: Stolen, thief: Thief, share: float) -> Stolen:
    """Average probabilities with the thief's model of the same kind, which weighs ``share``.

    Needs: answers (scores), rows, labels; the file only to train a model of its kind.
    """
    return _average(stolen, own_model(stolen, thief), share)


def average_with_other(stolen: Stolen, thief: Thief, share: float) -> Stolen:
    """Average probabilities with the thief's extremely randomized trees, which weigh ``share``.

    Needs: answers (scores), rows, labels.
    """
    return _average(stolen, other_model(stolen, thief), share)


def majority(stolen: Stolen, thief: Thief, strength: float) -> Stolen:
    """Take the majority of three labels: the stolen model's and those of two models of the thief.

    Needs: answers (labels), rows, labels. Where all three differ, the stolen model decides; its
    vote counts ``strength`` times that of the others.
    """
    others = [own_model(stolen, thief), other_model(stolen, thief)]

    def answer(X: np.ndarray) -> np.ndarray:
        votes = strength * 1.01 * _votes(stolen.answer(X))
        for other in others:
            votes = votes + _votes(other.answer(X))
        return np.asarray(votes / votes.sum(axis=1, keepdims=True))

    return stolen.served(answer)


def _votes(scores: np.ndarray) -> np.ndarray:
    votes = np.zeros(scores.shape)
    votes[np.arange(len(scores)), scores.argmax(axis=1)] = 1.0
    return votes


def _average(stolen: Stolen, own: Stolen, share: float) -> Stolen:
    def answer(X: np.ndarray) -> np.ndarray:
        return (1.0 - share) * stolen.answer(X) + share * own.answer(X)

    return stolen.served(answer)
