import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.boosting.test_data import bins_with
from timbermark.boosting.data import TrainingData, TrainParams, make_data
from timbermark.boosting.objective import (
    Scale,
    check_scale,
    choose_scale,
    fits_scale,
    mean_target,
    shares_word,
)
from timbermark.errors import InputError
from timbermark.kernels.workers import Workers


def data_with(weight, target=None):
    weight = np.asarray(weight, np.float32)
    X = np.zeros((len(weight), 1))
    label = np.zeros(len(weight), int) if target is None else np.asarray(target, float)
    with Workers(1) as workers:
        return make_data(bins_with(1), X, label, weight, 2 if target is None else 0, workers)


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
    assert caught.value.code == "weights.heavy"


def test_heavy_rows_do_not_fit_a_scale_that_is_already_chosen():
    scale = choose_scale(data_with([1.0]))
    check_scale(scale, data_with([1023.0]))
    check_scale(scale, data_with([]))
    with pytest.raises(InputError, match="weight of 1024 is too heavy"):
        check_scale(scale, data_with([1.0, 1024.0]))


def test_too_many_rows_do_not_fit_a_scale():
    data = data_with([1.0, 2.5])  # counts as four
    scale = choose_scale(data)
    assert fits_scale(scale, data_with([1.0] * 16))
    assert not fits_scale(scale, data_with([1.0] * 2**scale.shift))
    assert not fits_scale(scale, data_with([2.0**scale.shift - 0.5]))


targets = st.lists(st.floats(-1e30, 1e30) | st.integers(-5, 5).map(float), min_size=1, max_size=30)


@given(targets, st.sampled_from([1.0, 0.5, 3.0, 900.0]))
def test_residuals_are_fine_and_fit_their_type(target, weight):
    data = data_with(np.full(len(target), weight), target)
    scale = choose_scale(data)
    largest = np.abs(data.label - scale.start).max()
    residuals = scale.residuals
    assert 2.0**residuals.top * weight < 2**31
    assert largest * residuals.unit <= 2.0 ** (residuals.top - 1)
    if largest > 1e-250:
        # The top bits are not left unused; one bit is room for residuals that grow.
        assert largest * residuals.unit >= 2.0 ** (residuals.top - 2)
        assert residuals.top == (24 if weight < 32 else 20)
    assert scale.gradient_unit == residuals.unit
    assert fits_scale(scale, data)


@given(targets, st.data())
def test_predictions_begin_at_the_mean_whole_weights_being_copies(target, data):
    target = np.array(target)
    times = np.array(
        data.draw(st.lists(st.integers(1, 5), min_size=len(target), max_size=len(target)))
    )
    start = mean_target(target, times.astype(np.float32))
    assert start == mean_target(np.repeat(target, times), np.ones(times.sum(), np.float32))
    span = target.max() - target.min()
    assert abs(start - np.average(target, weights=times)) <= 2.0**-30 * span + 1e-9 * abs(start)
    assert target.min() <= start <= target.max()


def test_constant_targets_are_their_own_start():
    scale = choose_scale(data_with([1.0, 1.0], [0.1, 0.1]))
    assert scale.start == 0.1
    assert not fits_scale(scale, data_with([1.0], [1e12]))


def many_targets(n_rows, tail=1.0):
    target = np.random.default_rng(0).normal(size=n_rows)
    target[0] = tail
    nothing = np.zeros((n_rows, 0), np.uint8)
    weight = np.ones(n_rows, np.float32)
    return TrainingData(bins_with(1), nothing, nothing.T, target, weight, 0)


@pytest.mark.parametrize("n_rows", [10, 5000, 2**20 - 1, 2**20, 3_000_000])
def test_no_sum_of_residuals_and_counts_in_one_word_can_overflow(n_rows):
    data, params = many_targets(n_rows), TrainParams()
    scale = choose_scale(data)
    assert shares_word(scale, data, params)
    units = np.abs(data.label - scale.start) * scale.residuals.unit
    # The mean absolute residual cannot exceed the spread, and the spread cannot grow.
    most = int(n_rows * np.sqrt((units**2).mean())) + n_rows
    assert (most << scale.shift) + n_rows < 2**62
    assert 4 * n_rows < 2**scale.shift
    # Four times the rows: hessians of one each, gradients of the largest size each.
    assert (4 * n_rows * 2**scale.bits << scale.shift) < 2**63
    assert 4 * n_rows * 2**scale.residuals.top < 2**62
    # Half a unit is what rounding costs a row.
    assert units.std() > 2**11


def test_histograms_have_two_words_where_one_would_not_do():
    data = many_targets(1000)
    scale = choose_scale(data)
    assert not shares_word(scale, data, TrainParams(learning_rate=1.5))
    heavy = data_with([1.0, 2.0], [1.0, 5.0])
    assert not shares_word(choose_scale(heavy), heavy, TrainParams())
    classes = data_with([1.0, 1.0])
    assert not shares_word(choose_scale(classes), classes, TrainParams())
    # A target far beyond those that the scale was chosen for.
    assert not shares_word(scale, many_targets(1000, 1e30), TrainParams())


def test_targets_that_lie_too_far_out_do_not_fit():
    scale = choose_scale(data_with([1.0] * 2, [-1.0, 1.0]))
    assert fits_scale(scale, data_with([1.0], [2.0]))
    assert not fits_scale(scale, data_with([1.0], [5.0]))
    assert not fits_scale(scale, data_with([1.0], [-1e308]))


def test_targets_too_far_apart_to_be_subtracted_are_refused():
    with pytest.raises(InputError, match="too far for their differences"):
        choose_scale(data_with([1.0, 1000.0], [-1.7e308, 1.7e308]))


def test_a_given_start_is_kept():
    assert choose_scale(data_with([1.0, 1.0], [1.0, 2.0]), start=7.5).start == 7.5
