import numpy as np
import pandas as pd
import pytest

from tests.ownership.making import make_mark, make_mixed_mark
from timbermark.errors import InputError
from timbermark.ownership.columns import split_columns
from timbermark.verification import decoys as decoys_module
from timbermark.verification.decoys import list_rows, make_decoys


def mark_of(columns, **changes):
    rows = list(zip(*columns, strict=True))
    return make_mark(len(rows), d=len(columns), columns=split_columns(rows), **changes)


def test_decoys_are_distinct_follow_from_the_mark_and_are_no_triggers():
    mark = make_mark(k=60, d=5)
    decoys = make_decoys(mark, 3)
    keys = {tuple(row) for row in decoys}
    assert len(keys) == len(decoys) == 180
    assert not keys & {tuple(row) for row in list_rows(mark.columns)}
    assert make_decoys(mark, 3) == decoys
    other = make_decoys(make_mark(k=60, d=5, secret=bytes(32)), 3)
    assert not keys & {tuple(row) for row in other}
    assert make_decoys(mark, 0) == []


def test_each_decoy_is_near_its_trigger():
    mark = make_mark(k=60, d=50)
    triggers = list_rows(mark.columns)
    for number, row in enumerate(make_decoys(mark, 2)):
        same = [a == b for a, b in zip(row, triggers[number % 60], strict=True)]
        assert 30 < sum(same) < 50


def test_no_member_of_a_family_stands_out():
    """The trigger is the middle of its family, or farthest out, no more often than a decoy."""
    inner, outer, n = 0, 0, 0
    for seed in range(6):
        mark = make_mark(k=60, d=40, seed=seed)
        rows = [list_rows(mark.columns), *np.array(make_decoys(mark, 3), object).reshape(3, 60, 40)]
        families = np.array([[list(row) for row in part] for part in rows], float)  # [4, 60, 40]
        apart = (families[:, None] != families[None]).sum(axis=3).sum(axis=1)  # [4, 60]
        noise = np.random.default_rng(seed).random(apart.shape) * 0.5  # breaks ties
        inner += ((apart + noise).argmin(axis=0) == 0).sum()
        outer += ((apart + noise).argmax(axis=0) == 0).sum()
        n += 60
    assert abs(inner / n - 0.25) < 0.08
    assert abs(outer / n - 0.25) < 0.08


def test_no_value_was_copied_from_a_trigger_of_another_family():
    """It would tell which of the two families' rows is the trigger."""
    mark = make_mark(k=60, d=8)
    triggers = list_rows(mark.columns)
    for number, row in enumerate(make_decoys(mark, 2)):
        for j, value in enumerate(row):
            holders = [i for i in range(60) if triggers[i][j] == value]
            assert holders in ([], [number % 60])
            assert np.min(mark.columns[j]) <= value <= np.max(mark.columns[j])


def test_decoys_keep_the_precision_codes_and_gaps_of_their_columns():
    rng = np.random.default_rng(0)
    k = 100
    cents = np.round(rng.uniform(0, 1000, k), 2)
    ages = rng.integers(18, 99, k).astype(float)
    codes = rng.choice([1.0, 5.0, 9.0], k)
    single = rng.normal(size=k).astype(np.float32).astype(float)
    gaps = np.where(rng.random(k) < 0.3, np.nan, rng.normal(size=k))
    decoys = make_decoys(mark_of([cents, ages, codes, single, gaps]), 1)
    for a, b, c, d, _ in decoys:
        assert round(a, 2) == a
        assert b == int(b)
        assert c in (1.0, 5.0, 9.0)
        assert float(np.float32(d)) == d
    missing = sum(row[4] is None for row in decoys)
    assert 10 < missing < 60


def test_texts_are_drawn_from_the_texts():
    mark = make_mixed_mark()
    for row in make_decoys(mark, 1):
        assert row[1] in (None, "red", "grün", "")


def test_from_a_table_every_new_value_occurs_in_it():
    mark = make_mark(k=30, d=3)
    table = np.random.default_rng(5).normal(size=(50, 3))
    decoys = make_decoys(mark, 2, table)
    for number, row in enumerate(decoys):
        trigger = list_rows(mark.columns)[number % 30]
        assert all(row[j] in table[:, j] or row[j] == trigger[j] for j in range(3))
    frame = pd.DataFrame(table[:, ::-1], columns=["f2", "f1", "f0"])
    assert make_decoys(mark, 2, frame) == decoys


def test_from_tables_in_parts_some_rows_are_taken_whatever_the_parts(tmp_path, monkeypatch):
    import dask.array as da
    import dask.dataframe as dd

    monkeypatch.setattr(decoys_module, "_SAMPLED", 20)
    mark = make_mark(k=30, d=3)
    table = np.random.default_rng(5).normal(size=(90, 3))
    frame = pd.DataFrame(table, columns=["f0", "f1", "f2"]).assign(name="Ann")
    for number, rows in enumerate(np.array_split(np.arange(90), 4)):
        frame.iloc[rows].drop(columns="name").to_parquet(tmp_path / f"p{number}.parquet")
    decoys = make_decoys(mark, 2, str(tmp_path / "*.parquet"))
    files = sorted(str(path) for path in tmp_path.iterdir())
    mixed = dd.from_pandas(frame[["name", "f2", "f0", "f1"]], npartitions=3)
    for same in (tmp_path, files, mixed, da.from_array(table, chunks=(40, 2))):
        assert make_decoys(mark, 2, same) == decoys
    triggers = list_rows(mark.columns)
    for j in range(3):
        new = {row[j] for row in decoys} - {row[j] for row in triggers}
        assert new <= set(table[:, j])
        assert 1 < len(new) <= 20


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda frame: frame.drop(columns="f1"), "lacks the feature 'f1'"),
        (lambda frame: frame.assign(f1="1.5"), "partition 0 of the rows for decoys"),
        (lambda frame: frame.assign(f1=pd.Categorical(["red"] * 9)), "no number"),
        (lambda frame: frame.iloc[:0], "no rows"),
    ],
)
def test_a_table_of_dask_that_does_not_fit_is_refused(change, said):
    import dask.dataframe as dd

    frame = pd.DataFrame(np.ones((9, 3)), columns=["f0", "f1", "f2"])
    with pytest.raises(InputError, match=said) as caught:
        make_decoys(make_mark(), 1, dd.from_pandas(change(frame), npartitions=1))
    assert caught.value.hint


def test_where_there_are_too_few_rows_there_are_fewer_decoys():
    assert make_decoys(mark_of([[1.0]]), 5) == [None] * 5
    made = make_decoys(mark_of([[0.0, 1.0], [0.0, 1.0]]), 5)
    assert sum(row is not None for row in made) == 2


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
    with pytest.raises(InputError, match="table for decoys") as caught:
        make_decoys(make_mark(), 1, table)
    assert caught.value.hint
