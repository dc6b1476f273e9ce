"""The law: the same answers give the same bits on every road, whoever gives them.

Roads are objects, functions, files, endpoints of every protocol and tables; answers are labels,
scores, one number for each row, and numbers.
"""

import csv
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import timbermark as tm
from tests.conftest import heavy
from tests.verification.making import answers_of, make_mark, remembers
from tests.verification.staircases import build_house, staircase
from timbermark.errors import InputError, TimbermarkError
from timbermark.trees import reference
from timbermark.trees.ensemble_file import load_ensemble
from timbermark.verification import disputes, endpoint, judge, words
from timbermark.verification.http import read_reply
from timbermark.verification.inquiry import Facts, Inquiry
from timbermark.verification.questions import DECOY, make_questions
from timbermark.verification.transcript import Context
from timbermark.verification.verdict import judge_again
from timbermark.verification.verifying import verify

MARKS = {
    "two classes": make_mark(k=40, n_splits=20, classes=("no", "yes"), q=2),
    "whole numbers": make_mark(k=30, n_splits=0, classes=(0, 1), q=2),
    "six classes": make_mark(k=30, n_splits=24),
    "leaves alone": make_mark(k=30),
    "numbers": make_mark(n_splits=50, classes=()),
}
FORMS = {
    "two classes": ("labels", "scores", "one"),
    "whole numbers": ("labels", "scores", "one"),
    "six classes": ("labels", "scores"),
    "leaves alone": ("labels", "scores", "margins"),
    "numbers": ("numbers",),
}
PROTOCOLS = {
    "mlflow": ("http://h/invocations", {}),
    "kserve-v1": ("http://h/v1/models/m", {}),
    "kserve-v2": ("http://h/v2/models/m", {}),
    "json": ("http://h/", {"protocol": "json", "body": "$rows"}),
}
WRAP = {
    "mlflow": lambda said: {"predictions": said},
    "kserve-v1": lambda said: {"predictions": said},
    "kserve-v2": lambda said: {"outputs": [{"name": "p", "shape": _shape(said), "data": said}]},
    "json": lambda said: said,
}


def _shape(said):
    return [len(said), len(said[0])] if isinstance(said[0], list) else [len(said)]


@pytest.fixture(scope="module", autouse=True)
def derived():
    """Symbols of the marks above are derived once, for all examples."""
    for mark in MARKS.values():
        assert len(mark.symbols) == mark.n_triggers


@st.composite
def answers(draw):
    """A mark, a form of answers, and an answer of that form to each of its rows, None for none."""
    name = draw(st.sampled_from(sorted(MARKS)))
    mark = MARKS[name]
    form = draw(st.sampled_from(FORMS[name]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    said = answers_of(mark, share=draw(st.sampled_from([0.6, 0.9, 0.999])))
    if form == "numbers":
        said = said * draw(st.sampled_from([1.0, 1e-9, 1e300]))
    else:
        noise = rng.dirichlet(np.ones(len(mark.classes)), size=len(said))
        mix = draw(st.sampled_from([0.0, 0.3, 1.0]))
        said = (1 - mix) * said + mix * noise
    if draw(st.booleans()):
        said = np.round(said, draw(st.integers(1, 4)))
    if form == "labels":
        said = [mark.classes[i] for i in said.argmax(axis=1)]
    else:
        said = said[:, 1] if form == "one" else said
        said = np.log(said + 1e-9) if form == "margins" else said
        strange = draw(st.sampled_from([None, 1 + 1e-6, 1.0, 0.0]))
        if strange is not None and form in ("one", "scores"):
            said[draw(st.integers(0, len(said) - 1))] = strange
        said = said.tolist()
    if draw(st.booleans()):
        said = [[str(x) for x in a] if isinstance(a, list) else str(a) for a in said]
    missing = rng.random(len(said)) < draw(st.sampled_from([0.0, 0.0, 0.1]))
    return mark, form, [None if gone else a for a, gone in zip(said, missing, strict=True)]


def by_id(mark, said):
    """Answers by the ids of their questions."""
    asked = make_questions(mark)
    return {q.id: said[q.row] for part in asked.values() for block in part.blocks for q in block
            if q.row != DECOY}  # fmt: skip


def road_function(mark, said, form, folder):
    return tm.verify(remembers(mark, _objects(said), no_other), mark)


def no_other(row):
    raise AssertionError(row)  # nobody asks rows that are not the mark's


def _objects(said):
    found = np.empty(len(said), dtype=object)
    found[:] = said
    return found


def road_object(mark, said, form, folder):
    """An estimator that has predict alone: nobody knows before what it gives."""
    answer = remembers(mark, _objects(said), no_other)

    class Model:
        def predict(self, X):
            return answer(X)

    return tm.verify(Model(), mark)


def road_estimator(mark, said, form, folder):
    """An estimator with classes, as scikit-learn has them."""
    answer = remembers(mark, _objects(said), no_other)

    class Model:
        classes_ = np.array(mark.classes)

    name = "predict" if form == "labels" else "predict_proba"
    setattr(Model, name, lambda self, X: answer(X))
    return tm.verify(Model(), mark)


def road_server(protocol):
    def ask(mark, said, form, folder):
        """The line is cut short between the body of a request and that of a reply."""
        url, options = PROTOCOLS[protocol]
        asked = tm.Endpoint(url, batch=7, **options)
        dialect = endpoint.open_dialect(asked.protocol, asked.options)
        lines = _Lines(mark, said, protocol, dialect)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(endpoint, "Line", lines)
            return tm.verify(asked, mark, decoys=0, stop_at="off")

    return ask


class _Lines:
    """Answers requests in this process: rows are known by their values, as a server knows them."""

    def __init__(self, mark, said, protocol, dialect):
        self.answer = remembers(mark, _objects(said), no_other)
        self.protocol, self.dialect = protocol, dialect

    def __call__(self, *_):
        return self

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def ask(self, body, n, headers):
        rows = _find_rows(json.loads(body), n)
        reply = json.dumps(WRAP[self.protocol](self.answer(rows)))
        return read_reply(reply.encode(), n, self.dialect)


def _find_rows(body, n):
    if isinstance(body, list):
        return body
    if "instances" in body:
        return body["instances"]
    if "inputs" in body:
        return np.array(body["inputs"][0]["data"], dtype=object).reshape(n, -1)
    return body["dataframe_split"]["data"]


def columns_of(mark, said, form):
    """Answers as columns of a table: of scores those that are called like the classes."""
    known = by_id(mark, said)
    if form in ("scores", "margins"):
        cells = {
            str(label): [None if a is None else a[i] for a in known.values()]
            for i, label in enumerate(mark.classes)
        }
    else:
        cells = {"answer": list(known.values())}
    return {"question": list(known), **cells}


def road_csv(mark, said, form, folder):
    columns = columns_of(mark, said, form)
    with open(folder / "answers.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
    return tm.verify(folder / "answers.csv", mark)


def road_frame(mark, said, form, folder):
    frame = pd.DataFrame(columns_of(mark, said, form))
    return tm.verify(frame.sample(frac=1, random_state=0), mark)


def road_arrow(mark, said, form, folder):
    pa = pytest.importorskip("pyarrow")
    return tm.verify(pa.table(columns_of(mark, said, form)), mark)


def road_mapping(mark, said, form, folder):
    return tm.verify(by_id(mark, said), mark)


ROADS = {
    "object": road_object,
    **{protocol: road_server(protocol) for protocol in PROTOCOLS},
    "csv": road_csv,
    "frame": road_frame,
    "arrow": road_arrow,
    "mapping": road_mapping,
}


def outcome(road, *case):
    """The bits, or the code of the refusal."""
    try:
        verdict = road(*case)
    except TimbermarkError as error:
        return error.code
    # What it costs to write a request down differs between protocols.
    of_request = ("address", "template", "batch", "decoys")
    free = sum(price.bits for price in verdict.prices if price.code in of_request)
    found = [(s.seal, s.bits, s.answered, s.matched) for s in verdict.seals]
    return round(verdict.net_bits + free, 9), verdict.kind, found


@given(answers())
@heavy
def test_the_same_answers_give_the_same_bits_on_every_road(tmp_path_factory, case):
    mark, form, said = case
    folder = tmp_path_factory.getbasetemp()
    expected = outcome(road_function, mark, said, form, folder)
    for name, road in ROADS.items():
        assert outcome(road, mark, said, form, folder) == expected, name
    if form in ("labels", "scores") and not isinstance(expected, str):
        assert outcome(road_estimator, mark, said, form, folder) == expected


def test_one_number_a_millionth_above_1_is_read_alike_everywhere(tmp_path):
    """It gave other bits in a table than at an endpoint."""
    mark = MARKS["two classes"]
    said = answers_of(mark)[:, 1]
    said[3] = 1.000001
    case = (mark, said.tolist(), "one", tmp_path)
    expected = outcome(road_function, *case)
    assert expected[1] == "scores"
    assert {name: outcome(road, *case) for name, road in ROADS.items()} == dict.fromkeys(
        ROADS, expected
    )


def test_numbers_near_the_end_of_floats_are_answers_everywhere(tmp_path):
    mark = MARKS["numbers"]
    said = answers_of(mark) * 3e307
    said[:6] = [1.7e308, -1.7e308, 1.7e308, 1e308, 1e308, -1e308]
    case = (mark, said.tolist(), "numbers", tmp_path)
    expected = outcome(road_function, *case)
    assert expected[1] == "numbers"
    assert all(outcome(road, *case) == expected for road in ROADS.values())


@pytest.mark.parametrize("strange", [math.inf, -math.inf, math.nan])
@pytest.mark.parametrize("form", ["scores", "margins", "one"])
def test_what_is_not_finite_is_read_alike(tmp_path, strange, form):
    mark = MARKS["two classes"] if form == "one" else MARKS["leaves alone"]
    said = answers_of(mark)
    said = np.log(said) if form == "margins" else said
    said = said[:, 1] if form == "one" else said
    first = int(mark.order("leaves")[0])
    said[first] = strange
    case = (mark, said.tolist(), form, tmp_path)
    expected = outcome(road_function, *case)
    found = {name: outcome(road, *case) for name, road in ROADS.items()}
    assert found == dict.fromkeys(ROADS, expected)


def test_a_file_answers_as_its_model_does(tmp_path):
    ann = build_house(tmp_path / "ann", "Ann", staircase(1), seed=2)
    trees = load_ensemble(ann.marked)

    def scores(X):
        return reference.probabilities(reference.margins(trees, np.asarray(X, float)),
                                       trees.objective)  # fmt: skip

    by_file = tm.verify(ann.marked, ann.mark)
    assert (by_file.level, by_file.context.through) == ("conclusive", "file")
    said = scores(ann.mark.rows()).tolist()
    expected = outcome(road_function, ann.mark, said, "scores", tmp_path)
    assert outcome(lambda *_: by_file) == expected
    for name, road in ROADS.items():
        assert outcome(road, ann.mark, said, "scores", tmp_path) == expected, name


# A new kind of suspect: everything that a program must know of it is here.


@dataclass(frozen=True)
class LetterBox:
    """A toy kind: questions go out as letters, answers come back as sentences, two at a time."""

    neighbour: Any

    @property
    def facts(self) -> Facts:
        return Facts(context=Context("letter box", "letters"))

    def ask(self, inquiry: Inquiry) -> Iterator[Mapping[int, Any]]:
        while questions := inquiry.following(2):
            inquiry.n_asked += len(questions)
            letters = [" ".join(map(repr, row)) for row in inquiry.wire(questions)]
            replies = [self.neighbour(letter) for letter in letters]
            yield {
                q.row: reply.removeprefix("It is ").removesuffix(".")
                for q, reply in zip(questions, replies, strict=True)
                if q.row != DECOY
            }


def test_a_new_kind_of_suspect_is_one_class(tmp_path):
    mark = MARKS["two classes"]
    labels = [mark.classes[i] for i in answers_of(mark).argmax(axis=1)]
    answer = remembers(mark, labels, no_other)

    def neighbour(letter):
        return f"It is {answer([[float(x) for x in letter.split()]])[0]}."

    verdict = tm.verify(LetterBox(neighbour), mark)
    assert verdict.level == "none" or verdict.kind == "labels"
    expected = outcome(road_function, mark, labels, "labels", tmp_path)
    assert outcome(lambda *_: verdict) == expected
    assert judge_again(mark, verdict.transcript) == verdict
    assert "letter box" in str(verdict)


# Sentences may be reworded: nothing reads them.

TABLES = [name for name, table in vars(words).items() if name.isupper() and isinstance(table, dict)]


def reword(patch):
    """Every sentence of every table, and every message of an error, becomes another."""
    for name in TABLES:
        patch.setattr(words, name, {code: f"~{code}~" for code in getattr(words, name)})
    patch.setattr(words, "CAPPED", "~")
    real = TimbermarkError.__init__

    def said_otherwise(self, message, hint="", code="", parameter=""):
        real(self, "Something else.", "Do it.", code, parameter)

    patch.setattr(TimbermarkError, "__init__", said_otherwise)


def test_any_sentence_can_be_reworded(tmp_path):
    """Rewording one sentence made an untouched pack "somebody changed the pack"."""
    assert len(TABLES) >= 9
    ann = build_house(tmp_path / "ann", "Ann", staircase(1), seed=2)
    thief = build_house(tmp_path / "thief", "Thief", ann.trees, seed=7)
    first = judge.judge(ann.evidence, suspect=ann.marked)
    first.save(tmp_path / "pack")
    few = judge.judge(ann.evidence, suspect=lambda X: ["c9", *["c1"] * (len(X) - 1)])
    few.save(tmp_path / "warned")
    sides = (disputes.Party(ann.evidence, None, ann.unmarked, ann.marked),
             disputes.Party(thief.evidence, None, thief.unmarked, thief.marked))  # fmt: skip
    decided = disputes.judge_dispute(*sides)
    with pytest.MonkeyPatch.context() as patch:
        reword(patch)
        again = judge.judge(tmp_path / "pack")
        assert again.verdict == first.verdict
        assert "~" in str(again)
        assert judge.judge(tmp_path / "warned").verdict == few.verdict
        assert disputes.judge_dispute(*sides).winner == decided.winner == "first"
        assert "~" in str(disputes.judge_dispute(*sides))
        again.save(tmp_path / "pack again")
        with pytest.raises(InputError) as caught:
            verify(lambda X: ["cat"] * len(X), ann.mark)
        assert caught.value.code == "answers.no-class"
    assert judge.judge(tmp_path / "pack again").verdict == first.verdict
