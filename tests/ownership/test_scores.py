from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from timbermark.ownership.scores import are_scores, read_scores

from tests.ownership.making import confident, make_mark
from timbermark.errors import InputError
from timbermark.ownership import verify

MARK = make_mark(k=128, d=3)


def estimator(answer, **attributes):
    return SimpleNamespace(predict=answer, **attributes)


def test_scores_of_a_function():
    found = verify(confident(MARK), MARK)
    assert (found.kind, found.matched, found.level) == ("scores", 128, "conclusive")
    assert found.bits > 180
    assert verify(confident(MARK), MARK, answers="scores").bits == found.bits


def test_margins_and_logarithms_of_probabilities_are_scores():
    answers = confident(MARK)
    by_probabilities = verify(answers, MARK).raw_bits
    for other in (
        lambda X: np.log(answers(X)),
        lambda X: np.log(answers(X)) + 5.0,
        lambda X: np.log(answers(X)).tolist(),
        lambda X: pd.DataFrame(np.log(answers(X))),
    ):
        assert verify(other, MARK).raw_bits == pytest.approx(by_probabilities)


def test_rows_of_nan_are_not_counted():
    answers = confident(MARK)

    def shy(X):
        scores = answers(X)
        scores[:28, 2] = np.nan
        return scores

    found = verify(shy, MARK)
    assert (found.answered, found.matched) == (100, 100)
    assert found.bits > 0.7 * verify(answers, MARK).bits


def proba(classes, answer, **attributes):
    return estimator(None, predict_proba=answer, classes_=np.array(classes), **attributes)


def test_columns_of_scores_go_by_the_classes_of_the_estimator():
    answers = confident(MARK)
    plain = verify(answers, MARK)
    turned = [5, 3, 1, 0, 2, 4]
    suspect = proba(turned, lambda X: answers(X)[:, turned])
    suspect.predict = lambda X: pytest.fail("labels were asked for")
    assert verify(suspect, MARK).raw_bits == pytest.approx(plain.raw_bits)
    as_text = proba([str(c) for c in turned], lambda X: answers(X)[:, turned])
    as_text.predict = len
    assert verify(as_text, MARK).raw_bits == pytest.approx(plain.raw_bits)


def test_a_class_that_the_suspect_does_not_know_is_improbable():
    answers = confident(MARK)
    suspect = proba(range(5), lambda X: answers(X)[:, :5])
    suspect.predict = len
    found = verify(suspect, MARK)
    assert found.matched == sum(label < 5 for label in MARK.expected)
    assert not found.warnings


def test_a_class_that_the_mark_does_not_know_is_named():
    answers = confident(MARK)
    suspect = proba([*range(6), 77], lambda X: np.column_stack([answers(X), np.zeros(len(X))]))
    suspect.predict = len
    assert "does not know these classes of the suspect: 77" in str(verify(suspect, MARK))


@pytest.mark.parametrize(
    ("classes", "answer", "message"),
    [
        (["a", "b"], lambda X: np.zeros((len(X), 2)), "No class of the suspect .'a', 'b'. is one"),
        ([1, 2], lambda X: np.zeros((len(X), 3)), r"scores of shape \(128, 3\), expected"),
        (["1", "01"], lambda X: np.zeros((len(X), 2)), "are the same class of the mark"),
        ([1, 2], lambda X: [["a", "b"]] * len(X), "no matrix of scores"),
        ([1, 2], lambda X: None, "no matrix of scores|scores of shape"),
        ([1, 2], lambda X: 1 / 0, "could not answer: ZeroDivisionError"),
    ],
)
def test_scores_that_cannot_be_read_are_refused(classes, answer, message):
    suspect = proba(classes, answer)
    suspect.predict = len
    with pytest.raises(InputError, match=message):
        verify(suspect, MARK)


def test_scales():
    values = [[0.2, 0.8], [0.0, 1.0]]
    for scale in ("auto", "probabilities"):
        read, strange = read_scores(values, 2, ("no", "yes"), None, scale)
        np.testing.assert_array_equal(read, values)
        assert strange == ()
    as_margins, _ = read_scores(values, 2, ("no", "yes"), None, "margins")
    np.testing.assert_allclose(as_margins[1], [1 / (1 + np.e), np.e / (1 + np.e)])
    clipped, _ = read_scores([[-1.0, 3.0]], 1, ("no", "yes"), None, "probabilities")
    np.testing.assert_array_equal(clipped, [[0.0, 1.0]])


def test_single_precision_may_pass_one():
    rounded = np.array([[1.0000001, 0.0]], np.float32)
    read, _ = read_scores(rounded, 1, (0, 1), None)
    np.testing.assert_array_equal(read, [[1.0, 0.0]])


class Broken:
    @property
    def shape(self):
        raise RuntimeError("still on the GPU")

    def __array__(self, *_, **__):
        raise RuntimeError("still on the GPU")


def test_shapes():
    assert are_scores(np.zeros((3, 2)), 3, 2)
    assert are_scores(pd.DataFrame(np.zeros((3, 2))), 3, 2)
    for other in (np.zeros(3), np.zeros((3, 1)), np.zeros((2, 3)), None, "x", [[1], [1, 2]],
                  Broken()):  # fmt: skip
        assert not are_scores(other, 3, 2)
