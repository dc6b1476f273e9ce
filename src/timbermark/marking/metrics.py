"""The paper's metrics, one function each. All take labels and give a share from 0 to 1."""

from __future__ import annotations

import numpy as np


def effectiveness(answers: np.ndarray, wanted: np.ndarray) -> float:
    """Eq. 7: the share of triggers that answer as wanted.

    >>> effectiveness(np.array([1, 2, 3, 4]), np.array([1, 2, 3, 0]))
    0.75
    """
    return _share(np.asarray(answers) == np.asarray(wanted))


def accuracy(answers: np.ndarray, truth: np.ndarray) -> float:
    """Eq. 8: the share of test rows that are answered rightly."""
    return _share(np.asarray(answers) == np.asarray(truth))


def adjusted_accuracy(accuracy: float, effectiveness: float) -> float:
    """Accuracy times effectiveness: an unmarked model has none."""
    return accuracy * effectiveness


def robustness(before: np.ndarray, after: np.ndarray, wanted: np.ndarray) -> float:
    """Eq. 9: of the triggers that took, the share that survives fine-tuning; NaN if none took.

    >>> robustness(np.array([1, 2, 9]), np.array([1, 5, 7]), np.array([1, 2, 7]))
    0.5
    """
    took = np.asarray(before) == np.asarray(wanted)
    return _share(np.asarray(after)[took] == np.asarray(wanted)[took])


def resilience(before: np.ndarray, after: np.ndarray) -> float:
    """Eq. 10: of the candidates that are no triggers, the share whose label stayed; NaN if none.

    >>> resilience(np.array([1, 2]), np.array([1, 3]))
    0.5
    """
    return _share(np.asarray(before) == np.asarray(after))


def adjusted_resilience(resilience: float, effectiveness: float) -> float:
    """Resilience times effectiveness."""
    return resilience * effectiveness


def _share(hits: np.ndarray) -> float:
    return float(np.mean(hits)) if len(hits) else float("nan")
