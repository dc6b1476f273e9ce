"""The paper's six metrics, one function each. Each takes labels or shares and returns a share."""

from __future__ import annotations

import numpy as np


def effectiveness(answers: np.ndarray, wanted: np.ndarray) -> float:
    """Return the share of triggers that are answered as wanted (Eq. 7).

    >>> effectiveness(np.array([1, 2, 3, 4]), np.array([1, 2, 3, 0]))
    0.75
    """
    return _share(np.asarray(answers) == np.asarray(wanted))


def accuracy(answers: np.ndarray, truth: np.ndarray) -> float:
    """Return the share of test rows that are answered correctly (Eq. 8)."""
    return _share(np.asarray(answers) == np.asarray(truth))


def adjusted_accuracy(accuracy: float, effectiveness: float) -> float:
    """Return accuracy times effectiveness, which is 0 for an unmarked model."""
    return accuracy * effectiveness


def robustness(before: np.ndarray, after: np.ndarray, wanted: np.ndarray) -> float:
    """Return the share of embedded triggers that survive fine-tuning (Eq. 9).

    A trigger is embedded if the marked model, before fine-tuning, answers it as wanted. NaN if none
    is.

    >>> robustness(np.array([1, 2, 9]), np.array([1, 5, 7]), np.array([1, 2, 7]))
    0.5
    """
    embedded = np.asarray(before) == np.asarray(wanted)
    return _share(np.asarray(after)[embedded] == np.asarray(wanted)[embedded])


def resilience(before: np.ndarray, after: np.ndarray) -> float:
    """Return the share of the candidates without triggers that keep their label (Eq. 10).

    NaN if every candidate is a trigger.

    >>> resilience(np.array([1, 2]), np.array([1, 3]))
    0.5
    """
    return _share(np.asarray(before) == np.asarray(after))


def adjusted_resilience(resilience: float, effectiveness: float) -> float:
    """Return resilience times effectiveness."""
    return resilience * effectiveness


def _share(hits: np.ndarray) -> float:
    return float(np.mean(hits)) if len(hits) else float("nan")
