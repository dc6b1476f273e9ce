import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from timbermark.kernels.binning import assign_codes

numbers = st.sampled_from([-np.inf, -1e308, -1.0, -0.0, 0.0, 5e-324, 0.1, 1.0, 2.0, 1e308, np.inf])


@given(
    st.lists(numbers | st.just(float("nan")), max_size=12),
    st.sets(numbers, max_size=9),
    st.sampled_from([np.uint8, np.uint16]),
)
def test_codes_are_those_of_searchsorted(values, thresholds, dtype):
    values, thresholds = np.array(values, float), np.array(sorted(thresholds), float)
    out = np.full(len(values), 77, dtype)
    assign_codes(values, thresholds, 99, out)
    expected = np.searchsorted(thresholds, values, side="left")
    expected[np.isnan(values)] = 99
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("n_thresholds", [1, 2, 3, 31, 32, 33, 254])
def test_every_place_is_found(n_thresholds):
    thresholds = np.arange(n_thresholds, dtype=float)
    out = np.zeros(2 * n_thresholds + 1, np.uint8)
    # On, between, below and above the thresholds.
    assign_codes(np.arange(2 * n_thresholds + 1) / 2 - 0.5, thresholds, 255, out)
    np.testing.assert_array_equal(out, (np.arange(2 * n_thresholds + 1)) // 2)


def test_codes_beyond_a_byte():
    out = np.zeros(3, np.uint16)
    assign_codes(np.array([298.5, 1e9, np.nan]), np.arange(300.0), 301, out)
    assert out.tolist() == [299, 300, 301]
