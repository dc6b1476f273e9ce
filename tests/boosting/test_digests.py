"""Trainings whose results were noted when each row and each bin was still handled one by one.

What is done for speed alone must not change a bit of a tree, of the sums beside it, or of a margin.
"""

import hashlib

import numpy as np
import pytest

from timbermark.boosting import fitting
from timbermark.boosting.data import TrainParams, find_bins, make_data
from timbermark.boosting.objective import choose_scale
from timbermark.kernels.workers import Workers

DIGESTS = """
8846bcbf04fddbb2 265a3bd4c47d4d22 7345cda53160325f be50f04c0c4537ad 212cd5c6c8b692d7
652c814aba57987b 42c56729a0df2466 f796a276dc8f75c3 eca89a9550c93667 557f7f03f670e799
6d27c499e230abc0 6e918c9de14ed4ca ad525c129281bb89 dc751f3e9ad5ef5f a577369d3cf41a8d
e0d87e0d4e962014 b5d48aa54570ef98 05de2eb6fd99aa3a 65a7f9146d14ed82 fc32de7c5348310f
49f6b8b3b384a2b2 530c51cb14c6bfa0 0b14a80f4c01c8a7 c24b3d0aaccb70cc 85e8a0113d046d6a
9ec6bceb3bf62138 b8030364227b2b64 378b605cd6f23109 c1e062a67f6a4755 424101bd79ecbecf
c59fab5b1a2397e8 e5674e6afc203822 01aaf9e3a8a0606f 84f78ba57698679a 25b135813f9f4e91
c89d8ade6532ca8a b37510878fe55e23 5a8e3c0e8b26d8bf 4e855f660e44cc6f 43c119718023e813
079911fe5a49d121 6376eedf9e655372 a6a891587e9e6c9c ab59cd37b32dd7bb ec3fe903780050db
d7061c257c1a753e e03b0b4966429afd d359e8e1fbd65773 b149dbfc1fc8b012 2c98feff7c18987b
ceb4cf01575d45a9 8fdc05f4db224c18 eaaffa366937ea78 613634cb038fb0a3 09a3ddaca11ace10
bef4b7c93d04bc42 fe423afe04e3d61b 98c9e883e5bd6c2b ed2f4e2070131465 6d6701b75a35abb6
"""


def make_case(seed):
    """Rows of many shapes: continuous, rounded, with missing values, of few values."""
    rng = np.random.default_rng(seed)
    n = int(rng.choice([1, 2, 7, 40, 300, 2000, 9000, 30000 if seed % 6 == 0 else 500]))
    d, n_classes = int(rng.choice([1, 2, 5, 17])), int(rng.choice([0, 2, 2, 3, 7]))
    X = rng.normal(size=(n, d))
    if seed % 4 == 1:
        X = np.round(X, 1)
    if seed % 4 == 2:
        X[rng.random(X.shape) < 0.2] = np.nan
    if seed % 4 == 3:
        X = rng.integers(0, 5, (n, d)).astype(float)
    y = np.nan_to_num(X[:, 0]) * 2 + rng.normal(size=n)
    ranks = np.argsort(np.argsort(y))
    label = np.minimum(ranks * n_classes // n, n_classes - 1) if n_classes else y * 100
    weight = None if seed % 3 else rng.choice([1, 1, 2, 0.5, 3], n).astype(float)
    params = TrainParams(
        max_iter=int(rng.choice([1, 11, 23])),
        max_leaf_nodes=int(rng.choice([2, 5, 20, 31, 150])),
        min_samples_leaf=int(rng.choice([1, 5, 20])),
        max_bins=int(rng.choice([3, 40, 255, 400])),
        split_sampling=float(rng.choice([0.1, 0.3, 1.0])),
        seed=seed,
        l2_regularization=float(rng.choice([0, 1.0])),
        learning_rate=float(rng.choice([0.1, 0.5, 1.5])),
    )
    return X, label, weight, n_classes, params


def digest_of(trained):
    total = hashlib.sha256(trained.forest.n_nodes.tobytes())
    for t, n_nodes in enumerate(trained.forest.n_nodes.tolist()):
        total.update(trained.forest.nodes[t, :n_nodes].tobytes())
        if trained.record.shape[1]:
            total.update(trained.record[t, : n_nodes // 2].tobytes())
    total.update(trained.leaf.tobytes())
    total.update(trained.margins.tobytes())
    return total.hexdigest()[:16]


@pytest.mark.parametrize(("seed", "expected"), list(enumerate(DIGESTS.split())))
def test_trees_are_those_that_were_noted(monkeypatch, seed, expected):
    X, label, weight, n_classes, params = make_case(seed)
    monkeypatch.setattr(fitting, "_ALONE", 1)
    for n_threads in (1, 3):
        with Workers(n_threads) as workers:
            bins = find_bins(X, weight, params.max_bins, 0, workers)
            data = make_data(bins, X, label, weight, n_classes, workers)
            record = seed % 5 != 0
            trained = fitting.train(data, params, choose_scale(data), workers, record=record)
        assert digest_of(trained) == expected
