import numpy as np
import pytest

from tests.ownership.making import make_mark
from timbermark.errors import InputError
from timbermark.ownership.labels import UNANSWERED, UNKNOWN
from timbermark.verification.endpoints.reading import place_labels, place_scores, settle_reading

TWO = make_mark(k=4, q=2, n_classes=2, classes=("no", "yes"))
SIX = make_mark(k=4)


def test_the_form_of_the_first_answer_settles_the_kind():
    assert settle_reading([None, "no"], TWO).kind == "labels"
    assert settle_reading([[0.5, 0.5]], TWO).kind == "scores"
    assert settle_reading([{"yes": 1, "no": 0}], TWO).classes == ("yes", "no")
    assert settle_reading([0.7], TWO, wanted="scores").one_score
    assert settle_reading([None, None], TWO) is None
    assert settle_reading([], TWO) is None


@pytest.mark.parametrize(
    ("answers", "scale"),
    [
        ([[0.1, 0.9]], "probabilities"),
        ([[0.1, 1.000001]], "probabilities"),
        ([[0.1, 0.9], [-0.1, 0.3]], "margins"),
        ([{"no": 3.0, "yes": 0.1}], "margins"),
    ],
)
def test_the_first_answers_settle_the_scale(answers, scale):
    reading = settle_reading(answers, TWO)
    assert (reading.scale, reading.prices) == (scale, ())


def test_scores_are_placed_by_trigger_and_by_class():
    reading = settle_reading([{"yes": 0.75, "no": 0.25}], TWO)
    answers = {2: {"yes": 0.75, "no": 0.25}, 0: {"no": 1, "yes": 0}, 1: {"no": None, "yes": 1}}
    placed = place_scores(answers, reading, TWO)
    np.testing.assert_array_equal(placed[[0, 2]], [[1, 0], [0.25, 0.75]])
    assert np.isnan(placed[[1, 3]]).all()


def test_margins_of_one_number_go_against_zero():
    reading = settle_reading([3.0], TWO, wanted="scores")
    placed = place_scores({0: 3.0, 1: -3.0}, reading, TWO)
    expected = 1 / (1 + np.exp(-3.0))
    np.testing.assert_allclose(placed[:2, 1], [expected, 1 - expected])


def test_labels_are_placed_by_trigger():
    reading = settle_reading([1], SIX)
    placed, shown = place_labels({3: "5", 0: 1.0, 1: "cat"}, reading, SIX)
    assert placed.tolist() == [1, UNKNOWN, UNANSWERED, 5]
    assert shown == [1.0, "cat", None, "5"]


@pytest.mark.parametrize("later", [[0.5], [0.5, 0.5, 0], "yes", {"no": 1}, ["a", "b"], 0.5])
def test_scores_of_another_form_are_refused(later):
    reading = settle_reading([[0.5, 0.5]], TWO)
    with pytest.raises(InputError) as caught:
        place_scores({0: [0.5, 0.5], 1: later}, reading, TWO)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("answers", "options"),
    [
        ([[0.5, 0.5]], {"wanted": "labels"}),
        (["yes"], {"wanted": "scores"}),
        ([[0.2, 0.3, 0.5]], {}),
        ([{"no": 0.5, "yes": 0.5, "maybe": 0}], {}),
        ([[0.5, 0.5]], {"label_map": {0: "no"}}),
    ],
)
def test_answers_that_are_not_what_was_wanted(answers, options):
    with pytest.raises(InputError) as caught:
        settle_reading(answers, TWO, **options)
    assert caught.value.hint


def test_naming_more_scores_than_classes_pays_for_the_choice_among_them():
    own = settle_reading([[0.5, 0.5]], TWO, classes=["no", "yes"])
    turned = settle_reading([[0.5, 0.5]], TWO, classes=["yes", "no"])
    assert (own.prices, turned.prices[0].bits) == ((), 1.0)
    wide = ["yes", *(f"other {i}" for i in range(98)), "no"]
    chosen = settle_reading([[0.01] * 100], TWO, classes=wide)
    assert chosen.prices[0].bits >= np.log2(100 * 99)


def test_a_map_pays_for_the_labels_that_it_leaves_out():
    label_map = {"a": "no", "b": "yes"}
    reading = settle_reading(["a"], TWO, label_map=label_map)
    assert [price.bits for price in reading.prices_for(["a", "b", None], TWO)] == [1.0]
    more = reading.prices_for(["a", "b", "c", "c"], TWO)
    assert more[0].bits == pytest.approx(1 + 3 * np.log2(3))
    assert "leaves out 1" in more[0].reason
