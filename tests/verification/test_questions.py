import itertools

import numpy as np
import pandas as pd
import pytest

from tests.verification.making import make_mark, make_mixed_mark
from timbermark.errors import InputError
from timbermark.verification import questions
from timbermark.verification.questions import (
    DECOY,
    list_rows,
    make_questions,
    question_id,
    whole_columns,
    wire_row,
)


def listed(mark, decoys=0, table=None, seal="leaves"):
    """The questions of one seal in the order of asking."""
    blocks = make_questions(mark, decoys, table)[seal].blocks
    return [question for block in blocks for question in block]


def decoy_rows(mark, decoys, table=None):
    return [q.values for q in listed(mark, decoys, table) if q.row == DECOY]


def families(mark, decoys):
    """Each trigger in leaves with its decoys, in the order of the mark."""
    found = {}
    for block in make_questions(mark, decoys)["leaves"].blocks:
        (trigger,) = [q.row for q in block if q.row != DECOY]
        found[trigger] = [q.values for q in block if q.row == DECOY]
    return [found[trigger] for trigger in range(mark.n_leaves)]


def test_every_trigger_is_asked_once_among_decoys():
    mark = make_mark(k=50, n_splits=20)
    asked = listed(mark, 2)
    assert len(asked) == 150
    assert sorted(q.row for q in asked if q.row != DECOY) == list(range(50))
    rows = list_rows(mark.columns)
    assert all((q.values in rows) == (q.row != DECOY) for q in asked)
    splits = listed(mark, 2, seal="splits")
    assert sorted(q.row for q in splits if q.row != DECOY) == list(range(50, 110))
    assert all(q.values == rows[q.row] for q in splits if q.row != DECOY)
    assert len({q.id for q in (*asked, *splits)}) == 150 + 180


def test_the_order_is_keyed_and_does_not_depend_on_the_decoys():
    mark = make_mark(k=50)
    orders = [[q.row for q in listed(mark, n) if q.row != DECOY] for n in (0, 1, 3)]
    # Evidence from scores may stop early only if suspects are asked in the order of the mark.
    assert orders[0] == orders[1] == orders[2] == mark.order("leaves").tolist() != list(range(50))
    other = listed(make_mark(k=50, secret=bytes(32)))
    assert [q.row for q in other] != orders[0]


def test_the_rows_of_a_trigger_in_splits_come_in_keyed_order_among_others():
    """Three rows that differ in one value, one after the other, would tell what they are."""
    mark = make_mark(k=0, n_splits=60, classes=(0, 1))
    for decoys in (0, 1):
        asked = [q.row for q in listed(mark, decoys, seal="splits")]
        triples = [asked[i : i + 3] for i in range(len(asked) - 2)]
        together = sum(len({row // 3 for row in three}) == 1 and DECOY not in three
                       and three == sorted(three) for three in triples)  # fmt: skip
        assert together < 15
    # Decoys look like them: three rows that differ in the column and values of some trigger.
    gaps = {(int(f), *v) for f, v in zip(mark.splits.features, mark.splits.values.tolist(),
                                        strict=True)}  # fmt: skip
    for block in make_questions(mark, 1)["splits"].blocks:
        rows = [q.values for q in block if q.row == DECOY]
        assert len(rows) == 6
        columns = {
            (j, *sorted({a[j] for a in three}))
            for three in itertools.combinations(rows, 3) for j in range(3)
        }  # fmt: skip
        assert columns & gaps


def test_every_gap_is_asked_equally_often():
    """One that occurs once would tell its trigger from the decoys."""
    mark = make_mark(k=0, n_splits=60, classes=(0, 1))
    for decoys in (1, 3):
        rows = [q.values for q in listed(mark, decoys, seal="splits")]
        for feature, values in zip(mark.splits.features, mark.splits.values.tolist(), strict=True):
            counts = [sum(row[feature] == value for row in rows) for value in values]
            assert counts[1:] == [1 + decoys] * 2
            assert counts[0] >= 1 + decoys  # a row may have that value of its own


def test_triggers_lie_anywhere_among_decoys():
    """A server that knows how many questions are triggers learns nothing from their places."""
    places = []
    for seed in range(40):
        asked = listed(make_mark(k=20, seed=seed), 1)
        places += [i for i, q in enumerate(asked) if q.row != DECOY]
    shares = np.histogram(places, bins=4, range=(0, 40))[0] / len(places)
    assert np.abs(shares - 0.25).max() < 0.08
    first = np.mean([place % 2 == 0 for place in places])
    assert abs(first - 0.5) < 0.06


def test_ids_tell_nothing_about_the_order():
    """Neither triggers nor decoys are asked in the order of their ids."""
    asked = listed(make_mark(k=200), 1)
    for kind in (True, False):
        ids = [q.id for q in asked if (q.row == DECOY) == kind]
        rising = np.mean([a < b for a, b in itertools.pairwise(ids)])
        assert 0.35 < rising < 0.65


def test_ids_are_letters_and_differ_between_marks():
    mark, other = make_mark(), make_mark(seed=1)
    assert question_id(mark, "leaves/0/0").isalpha()
    ids = {question_id(m, f"{kind}/{i}") for m in (mark, other) for kind in ("leaves", "splits")
           for i in range(500)}  # fmt: skip
    assert len(ids) == 2000


def test_rows_go_out_in_the_columns_of_the_suspect():
    mark = make_mixed_mark()
    whole = whole_columns(mark)
    assert whole == (False, False, True)
    for question in listed(mark):
        sent = wire_row(question.values, [2, 0, 1], whole)
        assert sent == [question.values[2], question.values[0], question.values[1]]
        assert isinstance(sent[0], int)


@pytest.mark.parametrize("decoys", [-1, 101, 1.5, float("nan"), "2", True, None])
def test_a_wrong_number_of_decoys_is_refused(decoys):
    with pytest.raises(InputError) as caught:
        make_questions(make_mark(), decoys)
    assert caught.value.parameter == "decoys"


def test_decoys_are_distinct_follow_from_the_mark_and_are_no_triggers():
    mark = make_mark(k=60, d=5)
    decoys = decoy_rows(mark, 3)
    keys = {tuple(row) for row in decoys}
    assert len(keys) == len(decoys) == 180
    assert not keys & {tuple(row) for row in list_rows(mark.columns)}
    assert decoy_rows(mark, 3) == decoys
    other = decoy_rows(make_mark(k=60, d=5, secret=bytes(32)), 3)
    assert not keys & {tuple(row) for row in other}


def test_each_decoy_is_near_its_trigger():
    mark = make_mark(k=60, d=50)
    for trigger, decoys in zip(list_rows(mark.columns), families(mark, 2), strict=True):
        for row in decoys:
            assert 30 < sum(a == b for a, b in zip(row, trigger, strict=True)) < 50


def test_no_member_of_a_family_stands_out():
    """The trigger is the middle of its family, or farthest out, no more often than a decoy."""
    inner, outer, n = 0, 0, 0
    for seed in range(6):
        mark = make_mark(k=60, d=40, seed=seed)
        pairs = zip(list_rows(mark.columns), families(mark, 3), strict=True)
        members = np.array([[trigger, *decoys] for trigger, decoys in pairs])  # [60, 4, 40]
        apart = (members[:, :, None] != members[:, None]).sum(axis=3).sum(axis=2)  # [60, 4]
        noise = np.random.default_rng(seed).random(apart.shape) * 0.5  # breaks ties
        inner += ((apart + noise).argmin(axis=1) == 0).sum()
        outer += ((apart + noise).argmax(axis=1) == 0).sum()
        n += 60
    assert abs(inner / n - 0.25) < 0.08
    assert abs(outer / n - 0.25) < 0.08


def test_no_value_was_copied_from_a_trigger_of_another_family():
    """It would tell which of the two families' rows is the trigger."""
    mark = make_mark(k=60, d=8)
    triggers = list_rows(mark.columns)
    for number, decoys in enumerate(families(mark, 2)):
        for row in decoys:
            for j, value in enumerate(row):
                holders = [i for i in range(60) if triggers[i][j] == value]
                assert holders in ([], [number])
                assert np.min(mark.columns[j]) <= value <= np.max(mark.columns[j])


def test_decoys_keep_the_precision_codes_and_gaps_of_their_columns():
    rng = np.random.default_rng(0)
    k = 100
    cents = np.round(rng.uniform(0, 1000, k), 2)
    ages = rng.integers(18, 99, k).astype(float)
    codes = rng.choice([1.0, 5.0, 9.0], k)
    single = rng.normal(size=k).astype(np.float32).astype(float)
    gaps = np.where(rng.random(k) < 0.3, np.nan, rng.normal(size=k))
    decoys = decoy_rows(make_mark(k, d=5, columns=[cents, ages, codes, single, gaps]), 1)
    for a, b, c, d, _ in decoys:
        assert round(a, 2) == a
        assert b == int(b)
        assert c in (1.0, 5.0, 9.0)
        assert float(np.float32(d)) == d
    assert 10 < sum(row[4] is None for row in decoys) < 60


def test_texts_are_drawn_from_the_texts():
    for row in decoy_rows(make_mixed_mark(), 1):
        assert row[1] in (None, "red", "grün", "")


def test_from_a_table_every_new_value_occurs_in_it():
    mark = make_mark(k=30, d=3)
    table = np.random.default_rng(5).normal(size=(50, 3))
    frame = pd.DataFrame(table[:, ::-1], columns=["f2", "f1", "f0"])
    decoys = decoy_rows(mark, 2, table)
    known = [set(table[:, j]) | set(mark.columns[j].tolist()) for j in range(3)]
    assert all(row[j] in known[j] for row in decoys for j in range(3))
    assert decoy_rows(mark, 2, frame) == decoys


def test_from_tables_in_parts_some_rows_are_taken_whatever_the_parts(tmp_path, monkeypatch):
    import dask.array as da
    import dask.dataframe as dd

    monkeypatch.setattr(questions, "_SAMPLED", 20)
    mark = make_mark(k=30, d=3)
    table = np.random.default_rng(5).normal(size=(90, 3))
    frame = pd.DataFrame(table, columns=["f0", "f1", "f2"]).assign(name="Ann")
    for number, rows in enumerate(np.array_split(np.arange(90), 4)):
        frame.iloc[rows].drop(columns="name").to_parquet(tmp_path / f"p{number}.parquet")
    decoys = decoy_rows(mark, 2, str(tmp_path / "*.parquet"))
    files = sorted(str(path) for path in tmp_path.iterdir())
    mixed = dd.from_pandas(frame[["name", "f2", "f0", "f1"]], npartitions=3)
    for same in (tmp_path, files, mixed, da.from_array(table, chunks=(40, 2))):
        assert decoy_rows(mark, 2, same) == decoys
    for j in range(3):
        new = {row[j] for row in decoys} - set(mark.columns[j].tolist())
        assert new <= set(table[:, j])
        assert 1 < len(new) <= 20


def test_where_there_are_too_few_rows_there_are_fewer_decoys():
    assert decoy_rows(make_mark(1, d=1, columns=[[1.0]]), 5) == []
    made = decoy_rows(make_mark(2, d=2, columns=[[0.0, 1.0], [0.0, 1.0]]), 5)
    assert len(made) == 2


@pytest.mark.parametrize(
    "table",
    [
        np.zeros((5, 2)),
        np.zeros(5),
        np.zeros((0, 3)),
        [["a", "b", "c"]],
        pd.DataFrame({"f0": [1.0], "f1": [1.0], "other": [1.0]}),
    ],
)
def test_a_table_that_does_not_fit_is_refused(table):
    with pytest.raises(InputError) as caught:
        make_questions(make_mark(), 1, table)
    assert caught.value.parameter == "decoys_from"
    assert caught.value.hint
