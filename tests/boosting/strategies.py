"""Small training sets full of what goes wrong: ties, gaps, constants, copies, odd weights."""

import numpy as np
from hypothesis import strategies as st

from timbermark.boosting.binning import find_bins
from timbermark.boosting.data import make_data
from timbermark.boosting.params import TrainParams
from timbermark.boosting.workers import Workers

NAN = float("nan")
COLUMNS = [
    st.integers(0, 2).map(float),  # ties and copies
    st.sampled_from([0.0, 1.0, 2.0, NAN]),
    st.sampled_from([1.0, NAN]),  # missing or not is all there is to know
    st.integers(0, 30).map(float),
    st.floats(-1, 1, width=16) | st.just(NAN),
    st.just(7.0),
    st.just(NAN),
]
WEIGHTS = [
    None,
    st.integers(1, 4).map(float),
    st.sampled_from([0.25, 0.5, 1.0, 1.5, 3.25]),
]


@st.composite
def params(draw, max_iter=3):
    return TrainParams(
        max_iter=draw(st.integers(1, max_iter)),
        learning_rate=draw(st.sampled_from([0.1, 0.5, 1.0])),
        max_leaf_nodes=draw(st.integers(2, 8)),
        min_samples_leaf=draw(st.integers(1, 5)),
        l2_regularization=draw(st.sampled_from([0.0, 0.1, 2.0])),
        max_bins=draw(st.sampled_from([2, 3, 16])),
        split_sampling=draw(st.sampled_from([0.1, 0.3, 0.5, 0.7, 1.0])),
        min_hessian=draw(st.sampled_from([0.0, 1e-3, 0.3])),
        leaf_limit=draw(st.sampled_from([50.0, 0.75])),
        seed=draw(st.integers(0, 2**64 - 1)),
    )


@st.composite
def matrices(draw, kinds, min_rows, max_rows):
    """float64[n, d]; ``kinds`` are the strategies of the columns' values."""
    n = draw(st.integers(min_rows, max_rows))
    columns = [draw(st.lists(kind, min_size=n, max_size=n)) for kind in kinds]
    return np.array(columns, dtype=np.float64).T.reshape(n, len(kinds))


@st.composite
def samples(draw, kinds, n_classes, weights, min_rows=1, max_rows=30):
    """Rows, labels and weights (or None)."""
    X = draw(matrices(kinds, min_rows, max_rows))
    label = draw(st.lists(st.integers(0, n_classes - 1), min_size=len(X), max_size=len(X)))
    weight = None
    if weights is not None:
        weight = np.array(draw(st.lists(weights, min_size=len(X), max_size=len(X))))
    return X, np.array(label, dtype=np.int64), weight


def column_kinds():
    return st.lists(st.sampled_from(COLUMNS), min_size=1, max_size=3)


@st.composite
def training(draw):
    """(data, params)"""
    chosen = draw(params())
    n_classes = draw(st.integers(2, 4))
    X, label, weight = draw(
        samples(draw(column_kinds()), n_classes, draw(st.sampled_from(WEIGHTS)))
    )
    with Workers(1) as workers:
        bins = find_bins(X, weight, chosen.max_bins, chosen.seed, workers)
        return make_data(bins, X, label, weight, n_classes, workers), chosen


@st.composite
def additions(draw, min_rows=5, max_rows=40, min_added=0, max_added=8, most=None):
    """(data, added, params): rows to train on and rows that come later, in the same bins.

    Later rows may have missing values where the first have none, and values out of range.
    """
    chosen = draw(most if most is not None else params())
    n_classes = draw(st.integers(2, 4))
    kinds = draw(column_kinds())
    weights = draw(st.sampled_from(WEIGHTS))
    later = [
        draw(st.sampled_from([kind, kind | st.just(NAN), kind | st.sampled_from([-9.0, 99.0])]))
        for kind in kinds
    ]
    X, label, weight = draw(samples(kinds, n_classes, weights, min_rows, max_rows))
    X_added, label_added, weight_added = draw(
        samples(later, n_classes, weights, min_added, min(max_added, 2 * len(X)))
    )
    with Workers(1) as workers:
        bins = find_bins(X, weight, chosen.max_bins, chosen.seed, workers)
        data = make_data(bins, X, label, weight, n_classes, workers)
        added = make_data(bins, X_added, label_added, weight_added, n_classes, workers)
    return data, added, chosen


def noise(seed, n, d, n_classes, missing=0.1, weighted=True, decimals=None):
    """Rows that a tree can learn something from: (X, label, weight)."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    if decimals is not None:
        X = X.round(decimals)
    X[rng.random(X.shape) < missing] = NAN
    signal = np.nan_to_num(X[:, 0]) + np.nan_to_num(X[:, -1]) ** 2 + 0.3 * rng.normal(size=n)
    label = np.searchsorted(np.quantile(signal, np.arange(1, n_classes) / n_classes), signal)
    weight = rng.choice([0.5, 1.0, 1.0, 2.0], n) if weighted else None
    return X, label.astype(np.int64), weight


def noise_data(seed, n, d, n_classes, max_bins=32, bins=None, **options):
    """The same as TrainingData."""
    X, label, weight = noise(seed, n, d, n_classes, **options)
    with Workers(1) as workers:
        if bins is None:
            bins = find_bins(X, weight, max_bins, seed, workers)
        return make_data(bins, X, label, weight, n_classes, workers)
