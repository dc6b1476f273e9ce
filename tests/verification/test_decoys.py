import numpy as np
import pandas as pd
import pytest

from tests.ownership.making import make_mark, make_mixed_mark
from timbermark.errors import InputError
from timbermark.ownership.columns import split_columns
from timbermark.verification.decoys import list_rows, make_decoys


def mark_of(columns, **changes):
    k = len(columns[0])
    return make_mark(k, d=len(columns), columns=split_columns(list(zip(*columns, strict=True))),
                     **changes)  # fmt: skip


def test_decoys_are_distinct_follow_from_the_mark_and_are_no_triggers():
    mark = make_mark(k=60, d=5)
    decoys = make_decoys(mark, 200)
    keys = {tuple(row) for row in decoys}
    assert len(keys) == len(decoys) == 200
    assert not keys & {tuple(row) for row in list_rows(mark.columns)}
    assert make_decoys(mark, 200) == decoys
    assert make_decoys(mark, 50) == decoys[:50]
    other = make_decoys(make_mark(k=60, d=5, secret=bytes(32)), 200)
    assert not keys & {tuple(row) for row in other}


def test_no_value_of_a_decoy_stands_in_a_trigger_where_columns_have_many_values():
    mark = make_mark(k=60, d=5)
    values = {value for row in list_rows(mark.columns) for value in row}
    for row in make_decoys(mark, 60):
        assert not values & set(row)
        assert all(np.min(c) <= x <= np.max(c) for c, x in zip(mark.columns, row, strict=True))


def test_decoys_keep_the_precision_codes_and_gaps_of_their_columns():
    rng = np.random.default_rng(0)
    k = 100
    cents = np.round(rng.uniform(0, 1000, k), 2)
    ages = rng.integers(18, 99, k).astype(float)
    codes = rng.choice([1.0, 5.0, 9.0], k)
    single = rng.normal(size=k).astype(np.float32).astype(float)
    gaps = np.where(rng.random(k) < 0.3, np.nan, rng.normal(size=k))
    mark = mark_of([cents, ages, codes, single, gaps])
    decoys = make_decoys(mark, 100)
    for a, b, c, d, _ in decoys:
        assert round(a, 2) == a
        assert b == int(b)
        assert c in (1.0, 5.0, 9.0)
        assert float(np.float32(d)) == d
    missing = sum(row[4] is None for row in decoys)
    assert 10 < missing < 60


def test_texts_are_mixed():
    mark = make_mixed_mark()
    for row in make_decoys(mark, 20):
        assert row[1] in (None, "red", "grün", "")


def test_from_a_table_every_value_occurs_in_it():
    mark = make_mark(k=30, d=3)
    table = np.random.default_rng(5).normal(size=(50, 3))
    decoys = make_decoys(mark, 40, table)
    assert len(decoys) == 40
    for row in decoys:
        assert all(value in table[:, j] for j, value in enumerate(row))
    frame = pd.DataFrame(table[:, ::-1], columns=["f2", "f1", "f0"])
    assert make_decoys(mark, 40, frame) == decoys


def test_triggers_that_cannot_be_mixed_give_few_decoys():
    assert make_decoys(mark_of([[1.0]]), 5) == []
    assert len(make_decoys(mark_of([[0.0, 1.0], [0.0, 1.0]]), 50)) == 2


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
        make_decoys(make_mark(), 5, table)
    assert caught.value.hint
