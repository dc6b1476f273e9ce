"""The two losses: softmax over K >= 3 classes, logistic for two.

Both give Newton leaves. For the softmax a leaf is (K - 1) / K · Σ(y − p) / Σp(1 − p), the robust
LogitBoost step; the factor enters the regularisation too, as if every hessian were K / (K − 1)
times as large.
"""

import numpy as np

from timbermark.boosting.data import Scale
from timbermark.boosting.params import TrainParams

_LEAST_GAIN = 1.0
"""In units of the fixed-point scale: below this a gain is rounding."""


def factor(n_classes: int) -> float:
    """(K − 1) / K, or 1 for two classes.

    >>> factor(4), factor(2)
    (0.75, 1.0)
    """
    return 1.0 if n_classes == 2 else (n_classes - 1) / n_classes


def split_rule(params: TrainParams, n_classes: int, scale: Scale) -> np.ndarray:
    """float64[4] for the split search: l2, least hessian, least rows, least gain."""
    unit = factor(n_classes) * scale.unit
    return np.array(
        [
            params.l2_regularization * unit,
            params.min_hessian * unit,
            params.min_samples_leaf,
            _LEAST_GAIN,
        ]
    )
