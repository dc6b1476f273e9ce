from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.boosting.comparing import assert_same_forest, n_leaves, used_nodes
from tests.boosting.naive import gradients, naive_value, Sums
from tests.boosting.strategies import additions, noise_data, params
from timbermark.boosting import fitting, updating
from timbermark.boosting.data import choose_scale, join_data
from timbermark.boosting.fitting import train
from timbermark.boosting.forest import to_ensemble
from timbermark.boosting.params import TrainParams
from timbermark.boosting.updating import renew
from timbermark.boosting.workers import Workers
from timbermark.trees.reference import leaf_indices, margins

INF = float("inf")
PATIENCES = st.sampled_from([0.0, 0.05, 0.1, 0.3, 1.0])
TOLERANCES = st.sampled_from([0.0, 0.01, 0.3, INF])


def fit(data, params, scale=None, n_threads=1):
    with Workers(n_threads) as workers:
        return train(data, params, scale or choose_scale(data), workers, record=True)


def update(data, added, params, patience, tolerance, n_threads=1):
    scale = choose_scale(data)
    trained = fit(data, params, scale)
    with Workers(n_threads) as workers:
        return renew(trained, data, added, params, scale, patience, tolerance, workers)


@settings(max_examples=1000)
@given(additions())
def test_without_patience_and_tolerance_it_is_training_again(given):
    data, added, params = given
    again = fit(join_data(data, added), params, choose_scale(data))
    assert_same_forest(update(data, added, params, 0.0, 0.0), again.forest)
