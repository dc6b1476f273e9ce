import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from timbermark.experiments.geometry import farthest_points, fill_missing


@given(st.integers(0, 10_000), st.integers(1, 12))
def test_farthest_points_are_the_naive_ones(seed, k):
    X = np.random.default_rng(seed).integers(-5, 6, (15, 2)).astype(float)
    chosen = [3]
    while len(chosen) < k:
        nearest = ((X[:, None] - X[chosen][None]) ** 2).sum(axis=2).min(axis=1)
        nearest[chosen] = -1
        chosen.append(int(nearest.argmax()))
    assert farthest_points(X, k, 3).tolist() == chosen


def test_only_missing_values_are_replaced():
    X = np.random.default_rng(0).normal(size=(50, 3)) * [1, 1000, 0.001]
    assert np.array_equal(fill_missing(X), X)
    holes = X.copy()
    holes[::7, 1] = np.nan
    filled = fill_missing(holes)
    known = ~np.isnan(holes)
    assert np.array_equal(filled[known], X[known])
    assert np.allclose(filled[::7, 1], np.nanmedian(holes[:, 1]))
