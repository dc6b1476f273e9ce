"""Small training sets full of what goes wrong: ties, gaps, constants, copies, odd weights."""

from dataclasses import dataclass

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

from timbermark.boosting.data import TrainingData, TrainParams, find_bins, join_data, make_data
from timbermark.kernels.workers import Workers

# Relative to the profile: oracles of the core get more examples, costly tests fewer.
many = settings(max_examples=3 * settings().max_examples)
few = settings(max_examples=settings().max_examples // 3)

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
TARGETS = st.integers(-3, 3).map(float) | st.floats(-1e3, 1e3) | st.sampled_from([1e-5, 1e6])
N_CLASSES = [0, 2, 3, 4]
"""0: no classes but numbers."""
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
def samples(draw, kinds, n_classes, weights, min_rows, max_rows):
    """Rows, labels (numbers if there are no classes) and weights (or None)."""
    X = draw(matrices(kinds, min_rows, max_rows))
    answers = st.integers(0, n_classes - 1) if n_classes else TARGETS
    label = draw(st.lists(answers, min_size=len(X), max_size=len(X)))
    weight = None
    if weights is not None:
        weight = np.array(draw(st.lists(weights, min_size=len(X), max_size=len(X))))
    return X, np.array(label, dtype=np.int64 if n_classes else np.float64), weight


def column_kinds():
    return st.lists(st.sampled_from(COLUMNS), min_size=1, max_size=3)


@dataclass(frozen=True)
class Case:
    """Rows, the same as the engine holds them, and parameters."""

    X: np.ndarray
    data: TrainingData
    params: TrainParams


@dataclass(frozen=True)
class Addition(Case):
    """Rows that come later, in the same bins."""

    X_added: np.ndarray
    added: TrainingData

    @property
    def whole(self):
        return join_data(self.data, self.added)

    @property
    def all_rows(self):
        return np.concatenate([self.X, self.X_added])


@st.composite
def cases(draw, max_rows=30):
    chosen = draw(params())
    n_classes = draw(st.sampled_from(N_CLASSES))
    X, label, weight = draw(
        samples(draw(column_kinds()), n_classes, draw(st.sampled_from(WEIGHTS)), 1, max_rows)
    )
    with Workers(1) as workers:
        bins = find_bins(X, weight, chosen.max_bins, 0, workers)
        return Case(X, make_data(bins, X, label, weight, n_classes, workers), chosen)


@st.composite
def cases_with_additions(draw, max_added=8):
    """Later rows may have missing values where the first have none, and values out of range."""
    chosen = draw(params())
    n_classes = draw(st.sampled_from(N_CLASSES))
    kinds = draw(column_kinds())
    weights = draw(st.sampled_from(WEIGHTS))
    later = [
        draw(st.sampled_from([kind, kind | st.just(NAN), kind | st.sampled_from([-9.0, 99.0])]))
        for kind in kinds
    ]
    X, label, weight = draw(samples(kinds, n_classes, weights, 1, 40))
    # The scale leaves room for four times the rows.
    most = min(max_added, len(X) // 2)
    X_added, label_added, weight_added = draw(samples(later, n_classes, weights, 0, most))
    with Workers(1) as workers:
        bins = find_bins(X, weight, chosen.max_bins, 0, workers)
        data = make_data(bins, X, label, weight, n_classes, workers)
        added = make_data(bins, X_added, label_added, weight_added, n_classes, workers)
    return Addition(X, data, chosen, X_added, added)


def noise(seed, n, d, n_classes, missing=0.1, weighted=True, decimals=None):
    """Rows that trees can learn something from: (X, label, weight)."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    if decimals is not None:
        X = X.round(decimals)
    X[rng.random(X.shape) < missing] = NAN
    signal = np.nan_to_num(X[:, 0]) + np.nan_to_num(X[:, -1]) ** 2 + 0.3 * rng.normal(size=n)
    weight = rng.choice([0.5, 1.0, 1.0, 2.0], n) if weighted else None
    if n_classes == 0:
        return X, 100.0 + 7.0 * signal, weight
    label = np.searchsorted(np.quantile(signal, np.arange(1, n_classes) / n_classes), signal)
    return X, label.astype(np.int64), weight


def noise_case(seed, n, d, n_classes, params, n_added=0, **options):
    """The same, with the last ``n_added`` rows as an addition."""
    X, label, weight = noise(seed, n + n_added, d, n_classes, **options)
    if weight is None:
        weight = np.ones(n + n_added)
    with Workers(1) as workers:
        bins = find_bins(X[:n], weight[:n], params.max_bins, 0, workers)
        data = make_data(bins, X[:n], label[:n], weight[:n], n_classes, workers)
        added = make_data(bins, X[n:], label[n:], weight[n:], n_classes, workers)
    return Addition(X[:n], data, params, X[n:], added)
