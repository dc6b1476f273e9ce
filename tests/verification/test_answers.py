import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import timbermark as tm
from tests.verification.making import learnt, make_mark, scored
from timbermark.errors import InputError
from timbermark.ownership.evidence import UNANSWERED, UNKNOWN
from timbermark.verification.answers import (
    ReadingRules,
    check_label_map,
    list_answers,
    match_labels,
    read,
    settle,
    settle_classes,
    softmax,
)

TWO = make_mark(k=4, q=2, classes=("no", "yes"))
SIX = make_mark(k=4)


def settle_reading(answers, mark, **rules):
    """Settle with rules of which the classes were given by hand."""
    if "classes" in rules:
        rules = {**rules, "classes": tuple(rules["classes"]), "by_hand": True}
    return settle(answers, mark, ReadingRules(**rules))


def place_scores(answers, reading, mark):
    return read(answers, reading, mark)[0].values


def place_labels(answers, reading, mark):
    found, shown = read(answers, reading, mark)
    return found.values, shown


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
    again = [("settled-again", 1.0)] if len(answers) > 1 else []
    assert reading.scale == scale
    assert [(price.code, price.bits) for price in reading.prices] == again


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
def test_scores_of_another_form_are_missing_and_many_are_refused(later):
    mark = make_mark(k=40, q=2, classes=("no", "yes"))
    reading = settle_reading([[0.5, 0.5]], mark)
    placed = place_scores({0: [0.5, 0.5], 1: later}, reading, mark)
    assert placed[0].tolist() == [0.5, 0.5]
    assert np.isnan(placed[1]).all()
    with pytest.raises(InputError) as caught:
        place_scores({0: [0.5, 0.5], **dict.fromkeys(range(1, 20), later)}, reading, mark)
    assert caught.value.code == "answers.unlike-first"


@pytest.mark.parametrize(
    ("answers", "options"),
    [
        ([[0.5, 0.5]], {"wanted": "labels"}),
        (["yes"], {"wanted": "scores"}),
        ([[0.2, 0.3, 0.5]], {}),
        ([{"nein": 0.5, "ja": 0.5}], {}),
        ([[0.5, 0.5]], {"label_map": {0: "no"}}),
    ],
)
def test_answers_that_are_not_what_was_wanted(answers, options):
    with pytest.raises(InputError) as caught:
        settle_reading(answers, TWO, **options)
    assert caught.value.hint


def test_classes_that_the_mark_does_not_know_are_named():
    reading = settle_reading([{"no": 0.5, "yes": 0.5, "maybe": 0}], TWO)
    assert (reading.strange, reading.prices) == (("maybe",), ())


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
    assert [price.bits for price in reading.prices] == [1.0]
    (more,) = settle_reading(["a", "b", "c", "c"], TWO, label_map=label_map).prices
    assert more.bits == pytest.approx(1 + 3 * np.log2(3))
    assert more.facts["left_out"] == 1


@pytest.mark.parametrize(
    ("answers", "classes", "numbers"),
    [
        (["3", 3.0, b"3", 7, None, "nan", float("nan")], (3, 5), [0, 0, 0, -1, -2, -2, -2]),
        ([1, "true", "False", 0.0, "no"], (False, True), [1, 1, 0, 0, -1]),
        ([3, 3.0, "3", " 3 ", True], ("3", "5"), [0, 0, 0, 0, -1]),
        ([np.float32(0.1), "0.1", 0.1], (0.1, 0.2), [0, 0, 0]),
        (["None", "na", " x "], ("None", "x"), [0, -2, 1]),
        (["9" * 400, 10**400], (0.1, 0.2), [-1, -1]),
    ],
)
def test_labels_are_matched_by_value(answers, classes, numbers):
    assert match_labels(answers, classes).tolist() == numbers


@given(st.lists(st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=4),
                          st.binary(max_size=4)), max_size=8))  # fmt: skip
def test_any_label_is_a_class_unknown_or_missing(answers):
    for classes in ((0, 1), ("a", "b"), (False, True), (0.5, 1.5)):
        found = match_labels(answers, classes)
        assert len(found) == len(answers)
        assert set(found.tolist()) <= {UNKNOWN, UNANSWERED, 0, 1}


@pytest.mark.parametrize(
    "response",
    [
        [1, 2], (1, 2), np.array([1, 2]), np.array([[1], [2]]), pd.Series([1, 2]), iter([1, 2]),
        pd.DataFrame({"label": [1, 2]}), [[1], [2]], [{"a": 1}, {"b": 2}],
        np.ma.masked_array([1, 2], [False, False]),
    ],
)  # fmt: skip
def test_lists_of_every_kind_are_answers(response):
    assert list_answers(response, 2) == [1, 2]


@pytest.mark.parametrize(
    ("response", "code"),
    [
        (None, "answers.unreadable"), ("ab", "answers.unreadable"), ({}, "answers.unreadable"),
        (3, "answers.unreadable"), ([1], "answers.count"), (np.zeros((2, 2, 2)),
                                                            "answers.unreadable"),
        ([[[1], [2]]] * 2, "answers.unreadable"),
    ],
)  # fmt: skip
def test_what_is_no_list_of_answers_is_refused(response, code):
    with pytest.raises(InputError) as caught:
        list_answers(response, 2)
    assert caught.value.code == code


def test_frames_of_scores_are_read_by_the_names_of_their_columns():
    mark = make_mark(k=40)
    model = scored(mark)

    def framed(X):
        return pd.DataFrame(model(X), columns=mark.classes).iloc[:, ::-1]

    assert tm.verify(framed, mark).bits == tm.verify(model, mark).bits


@pytest.mark.parametrize(
    ("own", "stores", "expected"),
    [
        (("yes", "no"), True, ("yes", "no")),
        ((0, 1), False, None),
        ((0, 1), True, (0, 1)),
        (("no", "yes", "maybe"), True, ("no", "yes", "maybe")),
    ],
)
def test_classes_of_a_suspect(own, stores, expected):
    assert settle_classes(own, TWO, stores) == expected


def test_classes_that_count_from_0_and_overlap_are_ambiguous():
    mark = make_mark(k=4, q=2, classes=(1, 2))
    with pytest.raises(InputError) as caught:
        settle_classes((0, 1), mark, stores_labels=True)
    assert (caught.value.code, caught.value.parameter) == ("classes.ambiguous", "label_map")


@pytest.mark.parametrize(
    ("label_map", "code"),
    [
        ({"no": "a", "yes": "b"}, "label-map.reversed"),
        ({"a": "no", "b": "no"}, "label-map.targets"),
        ({"a": "maybe"}, "label-map.targets"),
        ({}, "label-map.type"), ([1], "label-map.type"),
    ],
)  # fmt: skip
def test_maps_that_are_none(label_map, code):
    with pytest.raises(InputError) as caught:
        check_label_map(label_map, TWO)
    assert (caught.value.code, caught.value.parameter) == (code, "label_map")


def test_log_probabilities_give_back_their_own():
    shares = np.random.default_rng(0).dirichlet(np.ones(5), size=9)
    np.testing.assert_allclose(softmax(np.log(shares)), shares)


def test_a_function_of_one_probability_is_read_as_an_endpoints_answer_is():
    mark = make_mark(k=80, q=2, classes=("no", "yes"))
    model = scored(mark)
    verdict = tm.verify(lambda X: model(X)[:, 1], mark)
    assert verdict.bits == tm.verify(model, mark).bits
    assert verdict.context.reading["classes"] == "second-class"


def test_labels_through_a_map_cost_their_order():
    mark = make_mark(k=60)
    model = learnt(mark)
    label_map = {f"k{label}": label for label in mark.classes}
    verdict = tm.verify(lambda X: [f"k{label}" for label in model(X)], mark, label_map=label_map)
    assert verdict.bits == pytest.approx(tm.verify(model, mark).bits - np.log2(720), abs=0.002)


_LISTS = ([0.5, 0.5], {"said": 1, "more": 2}, ["a"] * 6)


@pytest.mark.parametrize(
    ("kind", "odd"),
    [("scores", "oops"), ("scores", 0.5), *((k, o) for k in ("labels", "scores") for o in _LISTS)],
)
def test_few_odd_answers_count_as_missing(kind, odd):
    """Else a service that answers one question in another form could not be judged."""
    mark = make_mark(k=120)
    model = learnt(mark) if kind == "labels" else scored(mark)

    def suspect(X, places):
        said = np.asarray(model(X)).tolist()
        return [odd if i in places else answer for i, answer in enumerate(said)]

    verdict = tm.verify(lambda X: suspect(X, (7, 30, 99)), mark)
    assert verdict.level == "conclusive"
    (warning,) = (note for note in verdict.context.warnings if note.code == "odd-answers")
    assert warning.facts == {"count": 3}
    assert verdict.bits < tm.verify(model, mark).bits
    with pytest.raises(InputError) as caught:
        tm.verify(lambda X: suspect(X, range(1, 60)), mark)
    assert caught.value.code.startswith("answers.un")


@pytest.mark.parametrize(
    ("model", "code"),
    [
        (lambda X: [0.5] * len(X), "answers.unreadable"),
        (lambda X: [None] * len(X), "answers.none"),
        (lambda X: ["cat"] * len(X), "answers.no-class"),
        (lambda X: [[0.5] * 5] * len(X), "answers.width"),
        (lambda X: 1 / 0, "suspect.failed"),
        (lambda X: [[0.5] * 6, *["a"] * (len(X) - 1)], "answers.unlike-first"),
    ],
)
def test_suspects_that_answer_something_else(model, code):
    with pytest.raises(InputError) as caught:
        tm.verify(model, make_mark(k=20))
    assert caught.value.code == code
    assert caught.value.hint
