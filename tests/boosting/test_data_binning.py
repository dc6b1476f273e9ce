import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from timbermark.boosting import data
from timbermark.boosting.data import Bins, encode, find_bins, find_heavy, thresholds_of
from timbermark.kernels.workers import Workers

NAN = float("nan")
TINY = 5e-324
HUGE = np.finfo(np.float64).max
finite = st.floats(allow_nan=False, allow_infinity=False)
# Few values, so that they repeat; neighbours, so that there is nothing in between.
near = st.sampled_from(
    [0.0, -0.0, TINY, -TINY, 2 * TINY, 1.0, np.nextafter(1.0, 2.0), 2.0, 1e308, HUGE, -HUGE]
)
columns = st.one_of(
    hnp.arrays(np.float64, st.integers(1, 60), elements=elements)
    for elements in (finite, near, st.integers(0, 20).map(float))
)
max_bins = st.sampled_from([2, 3, 5, 16, 255, 300])


def find(X, weight=None, most=16, seed=0, n_threads=1):
    with Workers(n_threads) as workers:
        return find_bins(X, weight, most, seed, workers)


def encoded(bins, X, n_threads=1):
    with Workers(n_threads) as workers:
        return encode(bins, X, workers)


def make_bins(*thresholds):
    starts = np.cumsum([0, *map(len, thresholds)]).astype(np.int64)
    return Bins(np.concatenate([np.asarray(t, np.float64) for t in thresholds]), starts)


@given(columns, max_bins)
def test_thresholds_lie_between_neighbouring_values(values, most):
    thresholds = thresholds_of(values, None, most)
    distinct = np.unique(values)
    assert len(thresholds) <= most - 1
    assert (np.diff(thresholds) > 0).all()
    above = np.searchsorted(distinct, thresholds, side="right")
    assert (above >= 1).all()
    assert (above < len(distinct)).all()
    assert (distinct[above - 1] <= thresholds).all()
    assert (thresholds < distinct[above]).all()
    assert len(set(above)) == len(above)
    if len(distinct) <= most:
        assert len(thresholds) == len(distinct) - 1


@given(columns, max_bins)
def test_no_bin_is_heavier_than_its_share_but_for_one_value(values, most):
    thresholds = thresholds_of(values, None, most)
    code = np.searchsorted(thresholds, values, side="left")
    for b in range(len(thresholds) + 1):
        inside = values[code == b]
        assert len(inside) > 0
        assert np.count_nonzero(inside < inside.max()) * most < len(values)


def test_bins_of_distinct_values_are_equally_full():
    values = np.random.default_rng(0).permutation(1000).astype(float)
    thresholds = thresholds_of(values, None, 10)
    np.testing.assert_array_equal(thresholds, np.arange(1, 10) * 100 - 0.5)


@given(columns, max_bins, st.data())
def test_a_weight_is_as_many_copies(values, most, data):
    times = data.draw(hnp.arrays(np.int64, len(values), elements=st.integers(1, 5)))
    weighted = thresholds_of(values, times.astype(np.float64), most)
    np.testing.assert_array_equal(weighted, thresholds_of(np.repeat(values, times), None, most))


def test_fractional_weights_move_the_quantiles():
    values = np.arange(8.0)
    weight = np.array([0.5] * 7 + [3.5])
    np.testing.assert_array_equal(thresholds_of(values, weight, 2), [6.5])
    np.testing.assert_array_equal(thresholds_of(values, np.ones(8), 2), [3.5])


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([HUGE, -HUGE], [0.0]),
        ([1e308, HUGE], [1e308 / 2 + HUGE / 2]),
        ([np.nextafter(HUGE, 0), HUGE], [np.nextafter(HUGE, 0)]),
        ([0.0, TINY], [0.0]),
        ([-TINY, 0.0, TINY], [-TINY, 0.0]),
        ([TINY, 3 * TINY], [2 * TINY]),
        ([-0.0, 0.0], []),
        ([-1.0, -0.0, 0.0, 1.0], [-0.5, 0.5]),
        ([1.0, np.nextafter(1.0, 2.0)], [1.0]),
        ([7.0], []),
        ([1.0, np.inf], [1.0]),
        ([-np.inf, 1.0], [-np.inf]),
    ],
)
def test_numbers_at_the_edge(values, expected):
    found = thresholds_of(np.array(values), None, 255)
    np.testing.assert_array_equal(found, expected)
    # Whatever the threshold, it parts what it must.
    codes = np.searchsorted(found, np.unique(values), side="left")
    np.testing.assert_array_equal(codes, np.arange(len(np.unique(values))))


matrices = hnp.arrays(
    np.float64,
    st.tuples(st.integers(0, 20), st.integers(1, 4)),
    elements=st.one_of(near, st.just(NAN), st.integers(0, 9).map(float)),
)


@given(matrices, max_bins)
def test_missing_values_are_not_binned(X, most):
    bins = find(X, most=most)
    assert bins.n_features == X.shape[1]
    for f in range(X.shape[1]):
        known = X[~np.isnan(X[:, f]), f]
        expected = thresholds_of(known, None, most) if len(known) else []
        np.testing.assert_array_equal(bins.thresholds(f), expected)


@given(matrices, st.data())
def test_rows_without_weight_do_not_exist(X, data):
    weight = data.draw(hnp.arrays(np.float64, len(X), elements=st.sampled_from([0.0, 1.0, 2.5])))
    found = find(X, weight)
    expected = find(X[weight > 0], weight[weight > 0])
    np.testing.assert_array_equal(found.values, expected.values)
    np.testing.assert_array_equal(found.starts, expected.starts)


@given(matrices, matrices, max_bins)
def test_codes_count_the_thresholds_below(X, later, most):
    bins = find(X, most=most)
    for rows in (X, np.resize(later, (len(later), X.shape[1]))):
        codes, by_column = encoded(bins, rows)
        assert codes.dtype == by_column.dtype == bins.code_dtype
        assert codes.flags.c_contiguous
        assert by_column.flags.c_contiguous
        np.testing.assert_array_equal(codes, by_column.T)
        for f in range(X.shape[1]):
            thresholds = bins.thresholds(f)
            expected = np.searchsorted(thresholds, rows[:, f], side="left")
            expected[np.isnan(rows[:, f])] = len(thresholds) + 1
            np.testing.assert_array_equal(codes[:, f], expected)


def test_values_out_of_range_share_the_outermost_bins():
    bins = make_bins([1.0, 2.0])
    X = np.array([[-np.inf], [-9.0], [1.0], [1.5], [2.0], [99.0], [np.inf], [NAN]])
    assert encoded(bins, X)[0][:, 0].tolist() == [0, 0, 0, 1, 1, 2, 2, 3]


@pytest.mark.parametrize(("n_thresholds", "dtype"), [(0, "u1"), (254, "u1"), (255, "u2")])
def test_the_code_of_missing_values_fits_too(n_thresholds, dtype):
    bins = make_bins(np.arange(n_thresholds), [0.5])
    assert bins.code_dtype == np.dtype(dtype)
    codes, _ = encoded(bins, np.array([[NAN, NAN], [1e9, 0.0]]))
    assert codes.tolist() == [[n_thresholds + 1, 2], [n_thresholds, 0]]


def test_layout():
    bins = make_bins([1.0, 2.0], [], [5.0])
    assert bins.n_features == 3
    assert bins.n_thresholds.tolist() == [2, 0, 1]
    # Two thresholds make three bins and one for missing values.
    assert bins.offsets.tolist() == [0, 4, 6, 9]
    assert bins.offsets.dtype == np.uint64
    assert bins.thresholds(2).tolist() == [5.0]


def test_a_seeded_sample_stands_for_many_rows(monkeypatch):
    monkeypatch.setattr(data, "_SAMPLE", 50)
    X = np.random.default_rng(0).normal(size=(400, 2))
    weight = np.random.default_rng(1).choice([0.5, 1.0, 4.0], 400)
    for w in (None, weight):
        first, again, other = find(X, w), find(X, w), find(X, w, seed=1)
        np.testing.assert_array_equal(first.values, again.values)
        assert first.values.tolist() != other.values.tolist()
        # A sample of distinct values: each lies between two of them, near the whole's quantiles.
        assert first.n_thresholds.tolist() == [15, 15]
        assert abs(np.median(first.thresholds(0)) - np.median(X[:, 0])) < 0.5


def test_threads_change_nothing():
    X = np.random.default_rng(2).normal(size=(300, 7))
    X[X > 1.5] = NAN
    expected = find(X)
    codes = encoded(expected, X)[0]
    for n_threads in (2, 4):
        np.testing.assert_array_equal(find(X, n_threads=n_threads).values, expected.values)
        np.testing.assert_array_equal(encoded(expected, X, n_threads)[0], codes)


@st.composite
def piles(draw):
    """Values of which some are there very often."""
    distinct = draw(st.lists(st.integers(-40, 40), min_size=2, max_size=40, unique=True))
    times = draw(
        st.lists(
            st.sampled_from([1, 1, 1, 2, 30, 200]), min_size=len(distinct), max_size=len(distinct)
        )
    )
    return np.repeat(np.array(distinct, float), times)


@given(piles(), st.integers(2, 20))
def test_heavy_values_have_bins_of_their_own(values, max_bins):
    found = thresholds_of(values, None, max_bins, heavy_apart=True)
    assert len(found) < max_bins
    assert (np.diff(found) > 0).all()
    assert len(found) == 0 or values.min() <= found[0] <= found[-1] < values.max()
    distinct, mass = np.unique(values, return_counts=True)
    if len(distinct) <= max_bins:
        assert len(found) == len(distinct) - 1
        return
    heavy = find_heavy(mass, max_bins)
    if not heavy.any():
        assert found.tolist() == thresholds_of(values, None, max_bins).tolist()
        return
    # Nothing above a heavy value shares its bin, and no two heavy ones do.
    codes = np.searchsorted(found, distinct)
    assert (codes[1:] > codes[:-1])[heavy[:-1]].all()
    # A light value weighs less than a bin of light values would.
    assert mass[~heavy].max(initial=0) * (max_bins - heavy.sum()) < mass[~heavy].sum() + 1
    assert heavy.sum() < max_bins


def test_a_pile_does_not_cost_bins():
    rng = np.random.default_rng(0)
    values = np.concatenate([np.zeros(5000), rng.normal(size=5000)])
    even, apart = (thresholds_of(values, None, 64, heavy_apart=flag) for flag in (False, True))
    assert len(even) < 40
    assert 55 < len(apart) < 64
    weighted = thresholds_of(values[4999:], np.r_[5000.0, np.ones(5000)], 64, heavy_apart=True)
    assert weighted.tolist() == apart.tolist()
