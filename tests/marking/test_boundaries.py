import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from timbermark.kernels.workers import Workers
from timbermark.marking.boundaries import (
    Cuts,
    Gaps,
    Sources,
    find_boundaries,
    find_sources,
    merge,
    node_ranges,
    numeric_splits,
    read_columns,
    scan,
)
from timbermark.trees.construction import make_ensemble


def stumps(thresholds, features=None, n_features=1, **options):
    """Return an ensemble of stumps with the given thresholds."""
    n = len(thresholds)
    features = [0] * n if features is None else features
    return make_ensemble(
        n_features=n_features,
        tree_start=np.arange(0, 3 * n + 1, 3),
        feature=np.ravel([[f, -1, -1] for f in features]),
        threshold=np.ravel([[t, 0, 0] for t in thresholds]),
        left=np.tile([1, -1, -1], n),
        right=np.tile([2, -1, -1], n),
        value=np.tile([0.0, -1.0, 1.0], n),
        **options,
    )


def boundaries_of(e, X, least_rows=2):
    cuts = Cuts.of(e)
    columns, _ = read_columns(e, cuts, X, X, Sources(np.arange(X.shape[1]), True), Workers(1))
    return find_boundaries(e, cuts, columns, scan(cuts, X), len(X), least_rows)


@given(
    st.lists(st.floats(-5, 5, width=32), min_size=1, max_size=30),
    st.lists(st.integers(0, 30), max_size=4),
    st.lists(st.floats(-5, 5, width=32), min_size=1, max_size=8),
    st.booleans(),
)
@settings(max_examples=100, deadline=None)
def test_gaps_are_the_same_however_rows_are_divided(values, places, thresholds, strict):
    rows = np.array(values)[:, None]
    cuts = Cuts.of(stumps(sorted(thresholds), strict=strict, input_dtype="f4"))
    whole = scan(cuts, rows)
    parts = merge(
        [scan(cuts, part) for part in np.split(rows, sorted(min(p, len(rows)) for p in places))]
    )
    np.testing.assert_array_equal(whole.below, parts.below)
    np.testing.assert_array_equal(whole.above, parts.above)
    for t, below, above in zip(cuts.value, whole.below, whole.above, strict=True):
        left = rows[rows < t] if strict else rows[rows <= t]
        right = rows[rows >= t] if strict else rows[rows > t]
        assert below == max(left, default=-np.inf)
        assert above == min(right, default=np.inf)


def test_missing_values_are_no_ends():
    gaps = scan(Cuts.of(stumps([0.5])), np.array([[0.1], [np.nan], [0.9]]))
    assert (gaps.below, gaps.above) == (0.1, 0.9)


def test_splits_by_category_are_left_alone():
    e = stumps([0.5, 1.5], category_set=[0, -1, -1, -1, -1, -1], category_offsets=[0, 1],
               category_values=[3])  # fmt: skip
    assert len(Cuts.of(e).value) == 0


@pytest.mark.parametrize(
    ("between", "low", "high"),
    [
        (lambda a, b: b, 0.5, 0.7),  # XGBoost: at the upper value
        (lambda a, b: (a + b) / 2, 0.4, 0.6),
        (lambda a, b: np.nextafter((a + b) / 2, np.inf), 0.4, 0.6),  # LightGBM
    ],
)
def test_thresholds_are_cut_as_the_library_cuts(between, low, high):
    X = np.array([0.1, 0.2, 0.3, 0.7, 0.8, 0.9])[:, None]
    strict = between(0.0, 1.0) == 1.0
    cuts = [between(a, b) for a, b in ((0.1, 0.2), (0.2, 0.3), (0.3, 0.7), (0.8, 0.9))]
    free, _ = boundaries_of(stumps(cuts, strict=strict), X)
    # Only between 0.3 and 0.7 is there room for a value with one decimal.
    assert (free.a.tolist(), free.b.tolist()) == ([0.3], [0.7])
    assert free.low == pytest.approx(low)
    assert free.high == pytest.approx(high)
    assert round(float(free.mid[0]), 1) == free.mid[0]
    assert free.low[0] <= free.mid[0] <= free.high[0]


def test_whole_numbers_have_wide_boundaries_only():
    X = np.repeat(np.arange(10.0), 5)[:, None]
    free, wide = boundaries_of(stumps([3.5, 6.5]), X)
    assert len(free) == 0
    assert (wide.mid == np.round(wide.mid)).all()
    assert set(wide.mid) == {3.0, 4.0, 6.0, 7.0}
    np.testing.assert_array_equal(wide.inside, 5)


def test_wide_boundaries_have_rows_on_either_side():
    values = np.sort(np.random.default_rng(0).random(200))
    e = stumps([(values[i] + values[i + 1]) / 2 for i in (50, 100, 150)])
    _, wide = boundaries_of(e, values[:, None], least_rows=5)
    assert len(wide)
    for low, mid, high in zip(wide.below, wide.mid, wide.above, strict=True):
        assert np.count_nonzero((values > low) & (values <= mid)) == 5
        assert np.count_nonzero((values >= mid) & (values < high)) == 5


def test_gaps_below_float32_are_left_out():
    X = np.array([1.0, 1.0 + 1e-9, 2.0, 3.0])[:, None]
    free, _ = boundaries_of(stumps([1.0 + 5e-10, 2.5]), X)
    assert free.a.tolist() == [2.0]


def test_zero_cuts_of_lightgbm_stay():
    X = np.array([0.0, 0.0, 0.25, 0.75, 1.0])[:, None]
    free, wide = boundaries_of(stumps([1.0000000180025095e-35, 0.5]), X, least_rows=1)
    assert (free.below > 0.0).all()
    assert (wide.below > 0.0).all()


def test_ranges_hold_the_splits_that_part_both_ends():
    for strict in (False, True):
        e = stumps([0.2, 0.5, 0.5, 0.9, 0.3], features=[0, 0, 1, 1, 1], n_features=2, strict=strict)
        nodes = numeric_splits(e)
        X = np.column_stack([np.linspace(0, 1, 11), np.linspace(0, 1, 11)])
        free, wide = boundaries_of(e, X)
        for b in (free, wide):
            first, last = node_ranges(e, nodes, b)
            for i in range(len(b)):
                own = nodes[first[i] : last[i]]
                t = e.threshold
                parts = (
                    (b.below[i] < t) & (t <= b.above[i])
                    if strict
                    else (b.below[i] <= t) & (t < b.above[i])
                )
                np.testing.assert_array_equal(
                    np.sort(own), np.flatnonzero(parts & (e.feature == b.feature[i]))
                )


def test_sources_behind_transformers():
    rng = np.random.default_rng(0)
    X = rng.random((300, 4))

    def to_columns(X):
        return np.column_stack([-3.0 * X[:, 1], (X[:, 2] - 0.5) ** 2, X[:, 0] + X[:, 3], X[:, 0]])

    Z = to_columns(X)
    sources = find_sources(X, Z, to_columns)
    assert sources.source.tolist() == [1, 2, -1, -1]
    e = stumps([-1.5, 0.1], features=[0, 1], n_features=4)
    columns, notes = read_columns(e, Cuts.of(e), X, Z, sources, Workers(1))
    assert list(columns) == [0]
    assert columns[0].falls
    assert "several columns" in notes[0]
    assert "not monotone" in notes[1]


def test_merge_of_nothing_in_common():
    inf = np.array([np.inf])
    gaps = merge([Gaps(-inf, inf), Gaps(np.array([1.0]), inf)])
    assert (gaps.below, gaps.above) == (1.0, np.inf)
