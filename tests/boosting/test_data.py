from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.boosting.naive import naive_strata
from tests.boosting.strategies import cases, cases_with_additions, noise_case
from timbermark.boosting.binning import Bins
from timbermark.boosting.data import (
    Scale,
    TrainingData,
    check_scale,
    choose_scale,
    count_fits,
    count_strata,
    empty_data,
    join_data,
    make_data,
)
from timbermark.boosting.params import TrainParams
from timbermark.errors import InputError
from timbermark.kernels.workers import Workers

PARAMS = TrainParams(max_iter=1, split_sampling=0.3)


def bins_with(*counts):
    starts = np.cumsum([0, *counts]).astype(np.int64)
    return Bins(np.concatenate([np.arange(float(n)) for n in counts]), starts)


def data_with(weight):
    weight = np.asarray(weight, np.float32)
    X = np.zeros((len(weight), 1))
    with Workers(1) as workers:
        return make_data(bins_with(1), X, np.zeros(len(weight), int), weight, 2, workers)


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


def assert_no_overflow(weight):
    """Four times the rows with the largest possible gradients: all sums fit."""
    weight = np.asarray(weight, np.float32)
    n = len(weight)
    nothing = np.zeros((n, 0), np.uint8)
    data = TrainingData(bins_with(1), nothing, nothing.T, np.zeros(n, np.int32), weight, 2)
    scale = choose_scale(data)
    unit = 2**scale.bits
    rows = 4 * int(data.count.sum(dtype=np.int64))
    largest_gradient = int(4 * weight.sum(dtype=np.float64) * unit) + rows
    largest_hessian = int(weight.sum(dtype=np.float64) * unit) + rows
    assert rows < 2**scale.shift
    assert (largest_hessian << scale.shift) + rows < 2**63
    assert largest_gradient < 2**63
    assert float(weight.max()) * unit + 1 < 2**31
    assert 8 <= scale.bits <= 20


@given(st.lists(st.floats(2**-10, 2**17, width=32), min_size=1, max_size=40))
def test_no_sum_can_overflow(weight):
    assert_no_overflow(weight)


@pytest.mark.parametrize("n_rows", [2**19, 2**20 - 1, 2**20, 3_000_000])
@pytest.mark.parametrize("weight", [0.3, 1.0, 2.0])
def test_no_sum_over_many_rows_can_overflow(n_rows, weight):
    assert_no_overflow(np.full(n_rows, weight))


def test_a_few_rows_get_the_finest_scale():
    assert choose_scale(data_with([1.0, 1.0])) == Scale(bits=20, shift=4)
    assert Scale(20, 4).unit == 2**20


def test_weights_beyond_all_sums_are_refused():
    with pytest.raises(InputError, match="more than the engine can sum") as caught:
        choose_scale(data_with([2.0**24]))
    assert "Divide all weights" in str(caught.value)


def test_heavy_rows_do_not_fit_a_scale_that_is_already_chosen():
    scale = choose_scale(data_with([1.0]))
    check_scale(scale, data_with([1023.0]))
    check_scale(scale, data_with([]))
    with pytest.raises(InputError, match="weight of 1024 is too heavy"):
        check_scale(scale, data_with([1.0, 1024.0]))


def test_too_many_rows_do_not_fit_a_scale():
    data = data_with([1.0, 2.5])  # counts as four
    scale = choose_scale(data)
    assert count_fits(scale, data_with([1.0] * 16))
    assert not count_fits(scale, data_with([1.0] * 2**scale.shift))
    assert not count_fits(scale, data_with([2.0**scale.shift - 0.5]))
