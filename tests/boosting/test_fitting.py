from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from tests.boosting.comparing import assert_same_as_naive, assert_same_training, n_leaves
from tests.boosting.naive import naive_train
from tests.boosting.strategies import noise_data, training
from timbermark.boosting import fitting
from timbermark.boosting.data import choose_scale
from timbermark.boosting.fitting import leaf_dtype, train, tree_key
from timbermark.boosting.params import TrainParams
from timbermark.boosting.workers import Workers

PARAMS = TrainParams(
    max_iter=3, learning_rate=0.5, max_leaf_nodes=8, min_samples_leaf=2, split_sampling=0.5, seed=7
)


def fit(data, params, n_threads=1, record=True, **options):
    with Workers(n_threads) as workers:
        return train(data, params, choose_scale(data), workers, record=record, **options)


@settings(max_examples=300)
@given(training())
def test_training_is_that_of_the_naive_grower(given):
    data, params = given
    scale = choose_scale(data)
    assert_same_as_naive(fit(data, params), naive_train(data, params, scale), scale.shift)
