from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tests.trees.oracle import naive_leaves, naive_margins
from tests.trees.strategies import ensembles_and_rows
from timbermark.errors import InputError
from timbermark.trees import reference
from timbermark.trees.construction import constant_ensemble, make_ensemble
from timbermark.trees.ensemble_file import validate_ensemble
from timbermark.trees.reference import labels, leaf_indices, margins, probabilities


@given(ensembles_and_rows())
def test_leaves_are_those_of_the_naive_walker(given):
    ensemble, X = given
    expected = np.array(naive_leaves(ensemble, X)).reshape(len(X), ensemble.n_trees)
    found = leaf_indices(ensemble, X)
    assert found.dtype == np.int32
    np.testing.assert_array_equal(found, expected)


@given(ensembles_and_rows())
def test_margins_are_those_of_the_naive_walker_bit_for_bit(given):
    ensemble, X = given
    found = margins(ensemble, X)
    assert found.dtype == ensemble.sum_dtype
    assert found.shape == (len(X), ensemble.n_outputs)
    assert found.tobytes() == naive_margins(ensemble, X).tobytes()


@given(ensembles_and_rows())
def test_rows_are_independent(given):
    ensemble, X = given
    singly = [margins(ensemble, X[i : i + 1]) for i in range(len(X))]
    assert margins(ensemble, X).tobytes() == b"".join(m.tobytes() for m in singly)


def stump(**options):
    return make_ensemble(
        n_features=1,
        tree_start=[0, 3],
        feature=[0, -1, -1],
        left=[1, -1, -1],
        right=[2, -1, -1],
        **{"threshold": [0.1, 0.0, 0.0], "value": [0.0, -1.0, 1.0], **options},
    )


def goes_left(ensemble, *values):
    return [m < 0 for m in margins(ensemble, np.array([values]).T)[:, 0]]


NAN = float("nan")


def test_comparison():
    assert goes_left(stump(), 0.0, 0.1, 0.2) == [True, True, False]
    assert goes_left(stump(strict=True), 0.0, 0.1, 0.2) == [True, False, False]


def test_single_precision_input_rounds_before_it_compares():
    # float32(0.1) is a little more than 0.1.
    assert goes_left(stump(input_dtype="f4"), 0.1) == [False]
    assert goes_left(stump(input_dtype="f4"), 0.09999999999) == [False]


@pytest.mark.parametrize("missing_left", [True, False])
def test_what_is_missing(missing_left):
    # Zero lies left of the threshold, 1.0 right of it.
    flags = [missing_left, False, False]
    values = (NAN, 0.0, 1e-36, 1.0)
    assert goes_left(stump(missing_kind=[0] * 3, missing_left=flags), *values) == [
        True, True, True, False,
    ]  # fmt: skip
    assert goes_left(stump(missing_kind=[1] * 3, missing_left=flags), *values) == [
        missing_left, missing_left, missing_left, False,
    ]  # fmt: skip
    assert goes_left(stump(missing_kind=[2] * 3, missing_left=flags), *values) == [
        missing_left, True, True, False,
    ]  # fmt: skip


@pytest.mark.parametrize("missing_left", [True, False])
@pytest.mark.parametrize("missing_kind", [0, 1, 2])
@pytest.mark.parametrize("side", ["left", "right"])
def test_categories(side, missing_kind, missing_left):
    ensemble = stump(
        category_set=[0, -1, -1],
        category_offsets=[0, 2],
        category_values=[1, 3],
        categories_go=side,
        missing_kind=[missing_kind] * 3,
        missing_left=[missing_left, False, False],
    )
    assert goes_left(ensemble, 1.0, 3.9) == [side == "left"] * 2
    # Zero is a category like any other here; then unseen, negative, too large for an integer.
    assert goes_left(ensemble, 0.0, 77.0, -1.0, 1e300) == [side == "right"] * 4
    assert goes_left(ensemble, NAN) == [missing_left]


def test_single_precision_sum_differs_from_double():
    three_tenths = {"value": [0.0, 0.0, float(np.float32(0.1))], "init": [0.2]}
    single = margins(stump(sum_dtype="f4", **three_tenths), [[1.0]])
    assert single.dtype == np.float32
    assert single[0, 0] == np.float32(0.2) + np.float32(0.1)
    assert margins(stump(**three_tenths), [[1.0]])[0, 0] == 0.2 + float(np.float32(0.1))


def test_init_last_is_added_after_the_scale():
    ensemble = stump(init=[5.0], init_last=True, scale=3.0, tree_weight=[2.0])
    assert margins(ensemble, [[1.0]])[0, 0] == 1.0 * 2.0 * 3.0 + 5.0


def test_leaf_vectors_add_to_every_output():
    ensemble = make_ensemble(
        n_features=1, n_outputs=3, tree_start=[0, 1], feature=[-1], threshold=[0.0],
        left=[-1], right=[-1], value=[[1.0, 2.0, 3.0]],
    )  # fmt: skip
    np.testing.assert_array_equal(margins(ensemble, [[0.0]]), [[1.0, 2.0, 3.0]])


def test_sums_beyond_the_range_are_infinite_and_silent():
    assert margins(stump(value=[0, 0, 1.7e308], init=[1.7e308]), [[1.0]])[0, 0] == np.inf


@pytest.mark.parametrize("X", [[[1.0, 2.0]], [1.0], [["1"]], [[1j]], [[{}]]])
def test_bad_rows_are_refused(X):
    with pytest.raises(InputError, match="X "):
        margins(stump(), X)


finite = st.floats(-1e6, 1e6)


@given(hnp.arrays(float, hnp.array_shapes(min_dims=2, max_dims=2, min_side=2), elements=finite))
def test_softmax(margins):
    found = probabilities(margins, "softmax")
    assert (found >= 0).all()
    np.testing.assert_allclose(found.sum(axis=1), 1.0)
    np.testing.assert_allclose(found, probabilities(margins + 1.0, "softmax"), atol=1e-7)
    # The order of the margins is the order of the probabilities.
    order = np.argsort(margins, axis=1, kind="stable")
    assert (np.diff(np.take_along_axis(found, order, axis=1), axis=1) >= 0).all()


@given(finite)
def test_logistic_is_the_softmax_of_the_margin_and_zero(margin):
    found = probabilities(np.array([[margin]]), "logistic")
    np.testing.assert_allclose(
        found, probabilities(np.array([[0.0, margin]]), "softmax"), atol=1e-15
    )
    np.testing.assert_array_equal(
        probabilities(np.array([[margin, margin]]), "sigmoid"), [[found[0, 1]] * 2]
    )


def test_unknown_objective_is_refused():
    with pytest.raises(InputError, match="objective='ranking'"):
        probabilities(np.zeros((1, 1)), "ranking")


def test_regression_has_neither_probabilities_nor_labels():
    number = stump(objective="identity", init=[5.0])
    assert number.n_classes == 0
    assert margins(number, [[1.0]])[0, 0] == 6.0
    with pytest.raises(InputError, match="no classes"):
        probabilities(np.zeros((1, 1)), number.objective)
    with pytest.raises(InputError, match="no classes"):
        labels(np.zeros((1, 1)), number)


def test_labels_at_a_tie():
    at_zero = np.array([[-0.5], [0.0], [0.5]])
    assert labels(at_zero, stump()).tolist() == [0, 0, 1]
    assert labels(at_zero, stump(zero_is_positive=True)).tolist() == [0, 1, 1]
    three = make_ensemble(
        n_features=1, n_outputs=3, tree_start=[0], feature=[], threshold=[], left=[], right=[],
        value=np.zeros((0, 1)),
    )  # fmt: skip
    assert labels(np.array([[0.0, 1.0, 1.0], [2.0, 1.0, 2.0]]), three).tolist() == [1, 0]


def test_numbers_are_what_their_objective_makes_of_margins():
    raw = np.array([[-800.0], [-1.0], [0.0], [2.0], [800.0]])
    np.testing.assert_array_equal(reference.numbers(raw, "identity"), raw)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(reference.numbers(raw, "exponential"), np.exp(raw))
    shares = reference.numbers(raw, "expit")
    np.testing.assert_allclose(shares[1:4, 0], 1.0 / (1.0 + np.exp([1.0, 0.0, -2.0])))
    assert shares[0] == 0.0
    assert shares[4] == 1.0
    with pytest.raises(InputError, match="gives no numbers"):
        reference.numbers(raw, "softmax")


@pytest.mark.parametrize("objective", ["identity", "exponential", "expit"])
def test_ensembles_of_numbers_have_one_output_and_no_classes(objective):
    one = replace(constant_ensemble(n_features=1, value=2.0), objective=objective)
    validate_ensemble(one)
    assert one.gives_numbers
    assert one.n_classes == 0
    with pytest.raises(InputError, match="single output"):
        validate_ensemble(replace(one, n_outputs=2, init=np.zeros(2)))
