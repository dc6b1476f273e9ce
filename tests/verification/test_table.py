import csv
import hashlib
import math

import numpy as np
import pandas as pd
import pytest

import timbermark as tm
from tests.verification.making import innocent, learnt, make_mark, numbered, scored
from tests.verification.test_stopping import sequential_evidence
from timbermark.errors import InputError
from timbermark.verification.questions import DECOY, make_questions
from timbermark.verification.table import write_questions

MARK = make_mark(k=60)
ALL = math.floor(sequential_evidence(60, 60, 4) * 1000) / 1000
NUMBERS = make_mark(n_splits=80, classes=())


def asked(mark=MARK, decoys=1):
    """The questions as a data frame."""
    made = make_questions(mark, decoys)
    asked = [q for part in made.values() for block in part.blocks for q in block]
    rows = pd.DataFrame([q.values for q in asked], columns=list(mark.feature_names))
    return pd.concat([pd.DataFrame({"question": [q.id for q in asked]}), rows], axis=1), asked


def rows_of(table, mark=MARK):
    return table[list(mark.feature_names)].to_numpy(dtype=object)


@pytest.fixture
def labelled():
    table, _ = asked()
    return table.assign(label=learnt(MARK)(rows_of(table)))


@pytest.mark.parametrize("ending", ["csv", "parquet", "csv.gz"])
def test_answers_come_back_in_any_order_and_beside_anything(tmp_path, labelled, ending):
    shuffled = labelled.sample(frac=1, random_state=0)
    path = tmp_path / f"answers.{ending}"
    if ending == "parquet":
        shuffled.to_parquet(path)
    else:
        shuffled.to_csv(path, index=False)
    verdict = tm.verify(path, MARK)
    assert (verdict.bits, verdict.kind, verdict.matched) == (ALL, "labels", 60)
    assert verdict.suspect == f"answers {path}"
    assert verdict.suspect_digest == hashlib.sha256(path.read_bytes()).hexdigest()
    assert tm.verify(labelled, MARK).bits == ALL
    short = labelled.set_index("question")[["label"]]
    assert tm.verify(short, MARK).bits == ALL
    known = dict(zip(labelled["question"], labelled["label"], strict=True))
    assert tm.verify(known, MARK).bits == ALL


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_the_whole_way_through_files(tmp_path, ending):
    path = tmp_path / f"questions.{ending}"
    texts = [None if i % 7 == 3 else ("red", "grün")[i % 2] for i in range(60)]
    numbers = np.random.default_rng(0).normal(size=60)
    mark = make_mark(60, columns=(numbers, texts, np.arange(60)))
    assert write_questions(mark, path, columns=["f2", "f0", "f1"]) == 120
    assert path.stat().st_mode & 0o777 == 0o600
    table = pd.read_csv(path) if ending == "csv" else pd.read_parquet(path)
    assert list(table.columns) == ["question", "f2", "f0", "f1"]
    assert table["f2"].dtype.kind == "i"
    assert table["f1"].isna().sum() > 5
    said = learnt(mark)(table[["f0", "f1", "f2"]].to_numpy(dtype=object))
    (tmp_path / "answers.csv").write_text(
        "question,label\n"
        + "".join(f"{i},{s}\n" for i, s in zip(table["question"], said, strict=True))
    )
    verdict = tm.verify(tmp_path / "answers.csv", mark)
    assert (verdict.level, verdict.matched) == ("conclusive", 60)


def test_numbers_in_csv_are_the_triggers_to_the_last_bit(tmp_path):
    write_questions(MARK, tmp_path / "q.csv", decoys=0)
    with open(tmp_path / "q.csv", newline="") as file:
        lines = list(csv.reader(file))[1:]
    read = {tuple(map(float, line[1:])) for line in lines}
    assert read == {tuple(row) for row in MARK.rows().tolist()}


def test_scores_are_known_by_the_names_of_their_columns(labelled):
    table, _ = asked()
    scores = scored(MARK)(rows_of(table))
    named = pd.DataFrame(scores, columns=[str(c) for c in MARK.classes]).iloc[:, ::-1]
    both = pd.concat([labelled, named], axis=1)
    same = tm.verify(lambda X: scored(MARK)(np.asarray(X, dtype=object)), MARK)
    assert tm.verify(both.drop(columns="label"), MARK).bits == same.bits
    assert tm.verify(both, MARK).bits == same.bits
    by_labels = tm.verify(both, MARK, answers="labels")
    assert (by_labels.bits, by_labels.prices[0].bits) == (pytest.approx(ALL - 1, abs=0.002), 1.0)
    by_id = {
        name: dict(zip(map(str, MARK.classes), row, strict=True))
        for name, row in zip(table["question"], scores, strict=True)
    }
    assert tm.verify(by_id, MARK).bits == same.bits


def test_a_single_score_is_that_of_the_second_class():
    two = make_mark(k=60, q=2, n_classes=2)
    table, _ = asked(two)
    model = scored(two)
    same = tm.verify(lambda X: model(np.asarray(X, dtype=object)), two)
    second = table.assign(score=model(rows_of(table, two))[:, 1])
    # A fraction between two whole classes can only be a score.
    assert tm.verify(second, two, answers="scores").bits == same.bits
    assert tm.verify(second, two).bits == same.bits
    odds = table.assign(score=np.log(9.0) * np.sign(second["score"] - 0.5))
    assert tm.verify(odds, two, answers="scores").bits == pytest.approx(same.bits, abs=0.01)


def test_whoever_stops_in_the_order_of_the_questions_is_judged_for_what_was_asked(labelled):
    for n_rows in (30, 70):
        verdict = tm.verify(labelled.head(n_rows), MARK)
        _, questions = asked()
        n = sum(question.row != DECOY for question in questions[:n_rows])
        assert (verdict.answered, verdict.prices) == (n, ())
        assert verdict.bits == pytest.approx(sequential_evidence(n, n, 4), abs=0.001)
        assert [note.code for note in verdict.warnings] == ["unanswered"]


def test_whoever_leaves_answers_out_pays_for_the_choice(labelled):
    """An innocent suspect, and an owner who keeps what suits him."""
    table, questions = asked(decoys=0)
    said = innocent(MARK)(rows_of(table))
    wanted = [MARK.expected[question.row] for question in questions]
    keep = [a == b for a, b in zip(said, wanted, strict=True)]
    chosen = table.assign(label=said)[keep]
    verdict = tm.verify(chosen, MARK)
    assert (verdict.level, verdict.kind, verdict.matched) == ("none", "labels", sum(keep))
    scores = np.where(np.arange(6) == np.array(said)[:, None], 0.95, 0.01)
    named = pd.DataFrame(scores, columns=[str(c) for c in MARK.classes])
    verdict = tm.verify(pd.concat([table, named], axis=1)[keep], MARK)
    last = max(i for i, kept in enumerate(keep) if kept) + 1
    price = math.log2(math.comb(last, last - sum(keep)) * (last + 1))
    assert verdict.prices[0].bits == pytest.approx(price)
    assert verdict.level == "none"


def test_text_labels_maps_and_missing_cells(labelled):
    mapped = labelled.assign(label=["k" + str(label) for label in labelled["label"]])
    label_map = {f"k{c}": c for c in MARK.classes}
    verdict = tm.verify(mapped, MARK, label_map=label_map)
    assert verdict.bits == pytest.approx(ALL - np.log2(720), abs=0.002)
    assert verdict.context.reading["classes"] == "by-map"
    gaps = labelled.assign(label=[None if i % 2 else x for i, x in enumerate(labelled["label"])])
    assert tm.verify(gaps, MARK).answered < 50


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda t: t.drop(columns="question"), "table.no-ids"),
        (lambda t: t.drop(columns="label"), "table.which-column"),
        (lambda t: t.assign(question="abc"), "table.other-questions"),
        (lambda t: pd.concat([t, t]), "table.twice"),
        (lambda t: t.assign(label=None), "answers.none"),
        (lambda t: t.assign(label="cat"), "answers.no-class"),
        (lambda t: t.assign(label=0.37), "answers.unreadable"),
        (lambda t: t.assign(other=1, third=2).rename(columns={"label": "a"}),
         "table.which-column"),
    ],
)  # fmt: skip
def test_tables_without_answers_are_bad_input(labelled, change, code):
    with pytest.raises(InputError) as caught:
        tm.verify(change(labelled), MARK)
    assert caught.value.code == code
    assert caught.value.hint


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_numbers_come_back_through_files(tmp_path, ending):
    """Regressors could not be asked by a table."""
    path = tmp_path / f"questions.{ending}"
    assert write_questions(NUMBERS, path) == 2 * NUMBERS.n_rows
    table = pd.read_csv(path) if ending == "csv" else pd.read_parquet(path)
    said = numbered(NUMBERS)(rows_of(table, NUMBERS))
    answers = table[["question"]].assign(number=said)
    verdict = tm.verify(answers, NUMBERS)
    assert (verdict.level, verdict.kind) == ("conclusive", "numbers")
    answers.to_csv(tmp_path / "answers.csv", index=False)
    assert tm.verify(tmp_path / "answers.csv", NUMBERS).bits == verdict.bits
    assert tm.verify(numbered(NUMBERS), NUMBERS).bits == verdict.bits
    with pytest.raises(InputError) as caught:
        tm.verify(answers, NUMBERS, answers="scores")
    assert caught.value.code == "answers.other-task"


def test_wishes_that_a_table_cannot_grant(labelled):
    for options, code in (
        ({"answers": "scores"}, "answers.no-scores"),
        ({"feature_names": ["a"]}, "columns.by-hand"),
        ({"journal": "x"}, "option.unfit"),
    ):
        with pytest.raises(InputError) as caught:
            tm.verify(labelled, MARK, **options)
        assert caught.value.code == code


@pytest.mark.parametrize(
    "content", [b"", b"question,label\n1\n", b"\xff\xfe\x00", b"PAR1 and no more", b"\x1f\x8bno"]
)
def test_files_that_are_no_tables(tmp_path, content):
    path = tmp_path / "answers.csv"
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        tm.verify(path, MARK)
    assert caught.value.hint


def test_questions_that_cannot_be_written(tmp_path):
    for name, options in (
        ("q.xlsx", {}),
        ("q.csv", {"columns": ["f0", "f1"]}),
        ("q.csv", {"columns": ["f0", "f1", "g"]}),
        ("q.csv", {"decoys": -1}),
    ):
        with pytest.raises(InputError) as caught:
            write_questions(MARK, tmp_path / name, **options)
        assert caught.value.hint
    assert list(tmp_path.iterdir()) == []


def test_a_mark_without_names_takes_those_of_the_suspect(tmp_path):
    bare = make_mark(feature_names=None)
    write_questions(bare, tmp_path / "q.csv", columns=["c", "a", "b"])
    assert (tmp_path / "q.csv").read_text().startswith("question,c,a,b\n")
    write_questions(bare, tmp_path / "q.csv")
    assert (tmp_path / "q.csv").read_text().startswith("question,x0,x1,x2\n")
