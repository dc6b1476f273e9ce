from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from tests.boosting.naive import naive_strata
from tests.boosting.strategies import cases, cases_with_additions, noise_case
from timbermark.boosting.data import (
    Bins,
    TrainParams,
    count_strata,
    empty_data,
    join_data,
    make_data,
)
from timbermark.kernels.workers import Workers

PARAMS = TrainParams(max_iter=1, split_sampling=0.3)


def bins_with(*counts):
    starts = np.cumsum([0, *counts]).astype(np.int64)
    return Bins(np.concatenate([np.arange(float(n)) for n in counts]), starts)


@pytest.mark.parametrize("percent", [*range(1, 101, 3), 7, 10, 29, 58, 100])
def test_strata_are_a_share_of_the_thresholds_rounded_up(percent):
    # In floats 0.07 · 100 is more than 7.
    found = count_strata(bins_with(*range(201)), percent / 100)
    assert found.tolist() == [naive_strata(n, percent / 100) for n in range(201)]


def test_rows_without_weight_are_left_out():
    X = np.array([[0.0], [1.0], [2.0], [np.nan]])
    weight = np.array([1.0, 0.0, 0.25, 2.5])
    with Workers(1) as workers:
        data = make_data(bins_with(3), X, np.array([2, 1, 0, 2]), weight, 3, workers)
    assert data.n_rows == 3
    assert data.codes[:, 0].tolist() == [0, 2, 4]
    assert data.label.tolist() == [2, 0, 2]
    assert data.label.dtype == np.int32
    assert data.weight.tolist() == [1.0, 0.25, 2.5]
    assert data.weight.dtype == np.float32
    assert data.count.tolist() == [1, 1, 3]
    assert data.count.dtype == np.int32


def test_without_weights_every_row_weighs_one():
    with Workers(1) as workers:
        data = make_data(bins_with(3), np.zeros((2, 1)), np.array([1, 0]), None, 2, workers)
    assert data.weight.tolist() == [1.0, 1.0]
    assert data.n_outputs == 1
    assert replace(data, n_classes=3).n_outputs == 3


@given(cases_with_additions())
def test_joined_rows_keep_their_order(case):
    whole = case.whole
    np.testing.assert_array_equal(whole.codes, np.concatenate([case.data.codes, case.added.codes]))
    np.testing.assert_array_equal(whole.columns, whole.codes.T)
    assert whole.columns.flags.c_contiguous
    np.testing.assert_array_equal(whole.label, [*case.data.label, *case.added.label])
    np.testing.assert_array_equal(whole.weight, [*case.data.weight, *case.added.weight])
    assert whole.codes.dtype == case.data.codes.dtype
    assert whole.n_classes == case.data.n_classes


@given(cases())
def test_joining_no_rows_changes_nothing(case):
    nothing = empty_data(case.data)
    assert nothing.n_rows == 0
    for joined in (join_data(case.data, nothing), join_data(nothing, case.data)):
        for name in ("codes", "columns", "label", "weight"):
            np.testing.assert_array_equal(getattr(joined, name), getattr(case.data, name))


def test_binned_view():
    case = noise_case(1, 50, 3, 2, replace(PARAMS, max_bins=16))
    binned = case.data.binned(PARAMS)
    bins = case.data.bins
    assert binned.offsets.tolist() == [0, *np.cumsum(bins.n_thresholds + 2)[:-1]]
    assert binned.n_strata.tolist() == [naive_strata(int(n), 0.3) for n in bins.n_thresholds]
    # A candidate per stratum and one for missing values.
    assert binned.firsts.tolist() == [0, *np.cumsum(binned.n_strata + 1)]
    assert binned.count.tolist() == case.data.count.tolist()
