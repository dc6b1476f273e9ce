"""Answers as suspects give them are read right or refused: none is "not marked" by misreading."""

from collections import deque

import numpy as np
import pandas as pd
import pytest

from tests.ownership.making import confident, make_mark, obedient
from timbermark.errors import InputError
from timbermark.ownership import verify

TEXTS = make_mark(k=96, q=4, n_classes=5, classes=("ash", "birch", "cedar", "oak", "yew"))
NAMES = list(TEXTS.classes)


def as_arrow(make):
    def convert(answers):
        arrow = pytest.importorskip("pyarrow")
        return make(arrow, answers)

    return convert


LISTS = {
    "list": list,
    "tuple": tuple,
    "deque": deque,
    "generator": lambda said: (label for label in said),
    "values of a dictionary": lambda said: dict(enumerate(said)).values(),
    "array": np.array,
    "array of bytes": lambda said: np.array(said, dtype="S6"),
    "array of objects": lambda said: np.array(said, dtype=object),
    "column of an array": lambda said: np.array(said)[:, None],
    "lists of one": lambda said: [[label] for label in said],
    "NumPy scalars": lambda said: [np.str_(label) for label in said],
    "padded texts": lambda said: [f"  {label}\n" for label in said],
    "Series": pd.Series,
    "Series with an index": lambda said: pd.Series(said, index=range(len(said), 0, -1)),
    "Series of strings": lambda said: pd.Series(said, dtype="string"),
    "DataFrame": lambda said: pd.DataFrame({"label": said}),
    "Categorical": pd.Categorical,
    "Series of categories": lambda said: pd.Series(pd.Categorical(said)),
    "Arrow": as_arrow(lambda arrow, said: arrow.array(said)),
    "Arrow in chunks": as_arrow(lambda arrow, said: arrow.chunked_array([said[:9], said[9:]])),
    "Arrow dictionary": as_arrow(lambda arrow, said: arrow.array(said).dictionary_encode()),
    "Arrow table": as_arrow(lambda arrow, said: arrow.table({"label": said})),
}


@pytest.mark.parametrize("form", LISTS)
def test_labels_in_any_list(form):
    answers = obedient(TEXTS)
    found = verify(lambda X: LISTS[form](answers(X)), TEXTS)
    assert (found.matched, found.kind, found.warnings) == (96, "labels", ())


REFUSED = {
    "dictionary": lambda said: {"predictions": said},
    "set": set,
    "text": " ".join,
    "two columns": lambda said: pd.DataFrame({"id": range(len(said)), "label": said}),
    "other case": lambda said: [label.upper() for label in said],
    "codes of categories": lambda said: pd.Categorical(said).codes,
    "class numbers": lambda said: [NAMES.index(label) for label in said],
    "one too few": lambda said: said[1:],
    "a dictionary for each row": lambda said: [{"label": label} for label in said],
}


@pytest.mark.parametrize("form", REFUSED)
def test_what_is_no_list_of_labels_is_refused(form):
    answers = obedient(TEXTS)
    with pytest.raises(InputError) as caught:
        verify(lambda X: REFUSED[form](answers(X)), TEXTS)
    assert caught.value.hint


FORMS_OF_LABELS = [
    ((False, True), [bool, str, int, float, np.bool_, lambda x: str(x).lower(),
                     lambda x: str(int(x)), lambda x: f" {x} ", lambda x: str(x).encode()]),
    ((0, 1), [bool, str, float, np.int8, np.float32, lambda x: f"{x}.0",
              lambda x: str(x).encode()]),
    ((1, 2), [str, float, np.uint8, lambda x: f" {x}"]),
    ((1.0, 2.0), [int, str, np.float32, lambda x: str(int(x))]),
    ((0.1, 0.7), [str, np.float32, np.float64]),
    (("1", "2"), [int, float, np.int64, lambda x: x + ".0", lambda x: x.encode()]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("classes", "forms"), FORMS_OF_LABELS, ids=[str(classes) for classes, _ in FORMS_OF_LABELS]
)
def test_labels_of_another_type(classes, forms):
    mark = make_mark(k=96, q=2, n_classes=2, classes=classes)
    answers = obedient(mark)
    for form in forms:
        found = verify(lambda X, form=form: [form(label) for label in answers(X)], mark)
        assert (found.matched, found.outside, found.level) == (96, 0, "conclusive")


def test_labels_that_count_otherwise_warn_of_a_misreading():
    """1 and 2 for the classes 0 and 1: half of them are known, and none match."""
    mark = make_mark(k=96, q=2, n_classes=2, classes=(0, 1))
    answers = obedient(mark)
    found = verify(lambda X: [label + 1 for label in answers(X)], mark)
    assert found.matched == 0
    assert "misread" in found.warnings[0]
    assert "no class of the mark" in found.warnings[1]


def table(scores, names=NAMES):
    return pd.DataFrame(scores, columns=NAMES)[list(names)]


SCORES = {
    "matrix": lambda scores: scores,
    "lists": lambda scores: scores.tolist(),
    "generator of rows": iter,
    "single precision": lambda scores: scores.astype(np.float32),
    "texts": lambda scores: scores.astype(str),
    "logarithms": np.log,
    "table with the classes as names": table,
    "table in another order": lambda scores: table(scores, NAMES[::-1]),
    "table with counted columns": pd.DataFrame,
    "Arrow table in another order": as_arrow(
        lambda arrow, scores: arrow.table({n: scores[:, NAMES.index(n)] for n in NAMES[::-1]})
    ),
}


@pytest.mark.parametrize("form", SCORES)
def test_scores_in_any_table(form):
    answers = confident(TEXTS)
    found = verify(lambda X: SCORES[form](answers(X)), TEXTS)
    assert (found.matched, found.kind, found.level) == (96, "scores", "conclusive")


def test_columns_called_like_whole_classes_are_read_by_name():
    mark = make_mark(k=96, q=2, n_classes=3, classes=(1, 2, 3))
    answers = confident(mark)

    def suspect(X):
        return pd.DataFrame(answers(X), columns=["1", "2", "3"])[["3", "1", "2"]]

    assert verify(suspect, mark).matched == 96


REFUSED_SCORES = {
    "names that are no classes": lambda scores: table(scores).add_prefix("score "),
    "a class twice": lambda scores: table(scores).set_axis(["ash", *NAMES[:-1]], axis=1),
    "one class too few": lambda scores: scores[:, 1:],
    "a third axis": lambda scores: scores[:, :, None],
    "a dictionary for each row": lambda scores: table(scores).to_dict("records"),
}


@pytest.mark.parametrize("form", REFUSED_SCORES)
def test_scores_that_cannot_be_placed_are_refused(form):
    answers = confident(TEXTS)
    with pytest.raises(InputError) as caught:
        verify(lambda X: REFUSED_SCORES[form](answers(X)), TEXTS)
    assert caught.value.hint


@pytest.mark.parametrize("cut", [lambda s: s[:, 1], lambda s: s[:, 1:], lambda s: list(s[:, 1])])
def test_the_score_of_one_class_is_no_label(cut):
    mark = make_mark(k=96, q=2, n_classes=2, classes=(0, 1))
    answers = confident(mark)
    with pytest.raises(InputError, match="look like scores"):
        verify(lambda X: cut(answers(X)), mark)
