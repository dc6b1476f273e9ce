"""Models that answer with numbers are refused by the lab in one sentence."""

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor

from timbermark.attacks.forecasting import take_validation
from timbermark.attacks.stolen import steal
from timbermark.errors import InputError


def test_regressors_are_not_attacked():
    X = np.random.default_rng(0).normal(size=(100, 2))
    model = HistGradientBoostingRegressor(max_iter=2).fit(X, X[:, 0])
    for refused in (lambda: steal(model), lambda: take_validation(model, (X, X[:, 0]))):
        with pytest.raises(InputError, match="attacks are simulated on classifiers") as caught:
            refused()
        assert caught.value.hint
