"""What a trigger may be asked to answer."""

from __future__ import annotations

import numpy as np

from timbermark.errors import InputError


def flip_labels(confidence: np.ndarray, label: np.ndarray) -> np.ndarray:
    """int64[n], Eq. 2: the most confident class that is neither the truth nor the prediction.

    >>> flip_labels(np.array([[0.5, 0.3, 0.2], [0.5, 0.3, 0.2]]), np.array([0, 1])).tolist()
    [1, 2]
    """
    return alphabets(confidence, label, 2)[:, 1]


def alphabets(confidence: np.ndarray, label: np.ndarray, q: int) -> np.ndarray:
    """int64[n, q]: *keep* (the prediction) first, then the most likely others.

    The truth of a wrongly predicted row is left out, so the second is the flip label of Eq. 2.
    Raises InputError where there are not classes enough.

    >>> alphabets(np.array([[0.4, 0.3, 0.2, 0.1]]), np.array([1]), 2).tolist()
    [[0, 2]]
    """
    n, n_classes = confidence.shape
    rows = np.arange(n)
    order = np.argsort(-confidence, axis=1, kind="stable")
    predicted = order[:, 0]
    ranked = confidence.astype(np.float64).copy()
    ranked[rows, predicted] = np.inf
    wrong = predicted != label
    ranked[rows[wrong], label[wrong]] = -np.inf
    if (n_classes - wrong.any()) < q:
        raise InputError(
            f"An alphabet of {q} labels needs more classes than the {n_classes} there are.",
            hint="use alphabet=2, or triggers that are predicted correctly.",
        )
    return np.argsort(-ranked, axis=1, kind="stable")[:, :q]
