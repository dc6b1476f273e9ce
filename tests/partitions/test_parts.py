"""Tables in parts: every row once, in its place, from whatever it is read; and what is refused."""

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from dask.delayed import delayed

from tests.partitions.killing import Counting, Exhausted
from timbermark.errors import InputError, MissingLibraryError
from timbermark.partitions import is_in_parts, memory_parts, open_parts, pick_rows, run_pass
from timbermark.partitions import passes as opening_module

X = np.arange(30.0).reshape(10, 3)
Y = np.arange(10) % 2
FRAME = pd.DataFrame(X, columns=["a", "b", "c"])


def write(folder, tables):
    for number, table in enumerate(tables):
        table.to_parquet(folder / f"p{number}.parquet")
    return str(folder / "*.parquet")


class Collecting(Counting):
    """A pass that keeps everything, which only tests do."""

    def look(self, block):
        labels = [None] * len(block.rows) if block.labels is None else block.labels.tolist()
        rows = np.asarray(block.rows, float).tolist()
        return [(block.start + i, *r) for i, r in enumerate(zip(rows, labels, strict=True))]

    def merge(self, results):
        return sorted(row for result in results for row in result)


def collect(table, y=None, features=None):
    return run_pass(open_parts(table, y, features, "rows"), Collecting())


EXPECTED = [(i, X[i].tolist(), int(Y[i])) for i in range(10)]


def test_every_row_comes_once_with_its_number_from_files(tmp_path):
    labelled = FRAME.assign(y=Y)
    pattern = write(tmp_path, [labelled.iloc[:4], labelled.iloc[4:4], labelled.iloc[4:]])
    for given in (pattern, tmp_path, sorted(map(str, tmp_path.glob("*.parquet")))):
        assert is_in_parts(given)
        assert collect(given, "y") == EXPECTED
    parts = open_parts(pattern, "y", None, "rows")
    assert (parts.n_rows, parts.n_empty, len(parts.parts)) == (10, 1, 3)
    # Columns by name, in the model's order.
    swapped = collect(pattern, "y", ("c", "a"))
    assert [row for _, row, _ in swapped] == X[:, [2, 0]].tolist()


def test_large_files_are_read_in_several_parts(tmp_path, monkeypatch):
    from timbermark.partitions import parquet

    monkeypatch.setattr(parquet, "_PART_ROWS", 5)
    FRAME.assign(y=Y).to_parquet(tmp_path / "p.parquet", row_group_size=2)
    assert len(open_parts(tmp_path, "y", None, "rows").parts) == 3
    assert collect(tmp_path, "y") == EXPECTED


@pytest.mark.parametrize("chunks", [(10, 3), (3, 3), (4, 2)])
def test_every_row_comes_once_from_arrays(chunks):
    table = da.from_array(X, chunks=chunks)
    assert collect(table, da.from_array(Y, chunks=6)) == EXPECTED
    assert collect(table, Y) == EXPECTED
    assert collect(table[table[:, 0] >= 0], Y) == EXPECTED  # whose chunks Dask does not know


@pytest.mark.parametrize("n", [1, 3, 10])
def test_every_row_comes_once_from_frames(n):
    frame = dd.from_pandas(FRAME, npartitions=n)
    assert collect(frame, dd.from_pandas(pd.Series(Y), npartitions=n)) == EXPECTED
    assert collect(frame, Y) == EXPECTED
    assert [row[0] for row in collect(frame)] == list(range(10))


def test_rows_in_memory_need_no_scheduler():
    parts = memory_parts(np.zeros((300_000, 1)), np.zeros(300_000))
    n, starts, labels = run_pass(parts, Counting())
    assert (n, labels) == (300_000, 300_000)
    assert starts == sorted(set(starts))


def test_passes_say_how_many_rows_they_have_seen():
    said = []
    run_pass(
        open_parts(da.from_array(X, chunks=(5, 3)), None, None, "rows"), Counting(), said.append
    )
    assert said[0] == "counting: 0 of 10 rows"
    assert said[-1] == "counting: 10 of 10 rows"
    assert len(said) == 3


def refused(given, y=None, features=None):
    with pytest.raises(InputError) as caught:
        collect(given, y, features)
    assert caught.value.hint
    return caught.value.message


def test_files_with_other_columns_or_types_are_named(tmp_path):
    labelled = FRAME.assign(y=Y)
    write(tmp_path, [labelled, labelled.drop(columns="b")])
    assert "p1.parquet" in refused(tmp_path, "y")
    assert "'b'" in refused(tmp_path, "y", ("a", "b"))
    write(tmp_path, [labelled, labelled.assign(more=1)])
    assert "p1.parquet has a column 'more'" in refused(tmp_path, "y")
    write(tmp_path, [labelled, labelled.drop(columns="y")])
    assert "p1.parquet lacks the column 'y'" in refused(tmp_path, "y")
    write(tmp_path, [labelled, labelled.assign(b="text")])
    said = refused(tmp_path, "y")
    assert "p1.parquet" in said
    assert "'b'" in said
    (tmp_path / "p1.parquet").write_bytes(b"PAR1 and nothing else")
    assert "p1.parquet" in refused(tmp_path, "y")


def test_a_file_that_is_not_there_is_said_to_be_missing(tmp_path):
    write(tmp_path, [FRAME])
    gone = str(tmp_path / "p1.parquet")
    for given in ([str(tmp_path / "p0.parquet"), gone], gone, tmp_path / "p1.parquet"):
        assert refused(given) == f"The file {gone} does not exist."
    with pytest.raises(InputError) as caught:
        collect(["s3://rows/p0.parquet"])
    assert "dask.dataframe.read_parquet" in caught.value.hint


@pytest.mark.parametrize(
    ("label", "columns", "features", "hint"),
    [
        ("Y", ["a", "b", "c", "y"], ("a", "b", "c"), "it may be 'y'."),
        ("target", ["a", "b", "c", "y", "id"], ("a", "b", "c"), "it may be 'y' or 'id'."),
        ("lable", ["a", "label", "b", "c"], None, "it may be 'label'."),
        ("y", ["a", "b", "c"], ("a", "b", "c"), "all of its columns are features"),
    ],
)
def test_a_label_that_no_file_has_comes_with_likely_columns(
    tmp_path, label, columns, features, hint
):
    write(tmp_path, [pd.DataFrame(np.zeros((3, len(columns))), columns=columns)])
    with pytest.raises(InputError) as caught:
        collect(tmp_path, label, features)
    assert caught.value.message.endswith(f"p0.parquet has no column '{label}' to take labels from.")
    assert hint in caught.value.hint


def frame_of(pieces):
    """A frame of Dask whose partitions are what they are, whatever the first one is."""
    made = [delayed(piece) for piece in pieces]
    return dd.from_delayed(made, meta=FRAME.iloc[:0], verify_meta=False)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda piece: piece.assign(more=1.0), "has a column 'more'"),
        (lambda piece: piece.drop(columns="b"), "lacks the column 'b'"),
        (lambda piece: piece.assign(b=piece["b"].astype(str)), "column 'b' holds"),
        (lambda piece: piece.assign(b=piece["b"].astype(str).astype(object)), "column 'b' holds"),
        (lambda piece: piece.assign(b=pd.Timestamp(0)), "column 'b' holds"),
        (lambda piece: piece[["a", "b", "b", "c"]], "has a column twice"),
    ],
)
def test_partitions_with_other_columns_or_types_are_named(change, said):
    table = frame_of([FRAME.iloc[:4], change(FRAME.iloc[4:])])
    message = refused(table, Y)
    assert message.startswith("partition 1 of the rows: ")
    assert said in message


def test_arrays_with_other_columns_or_types_are_named():
    for piece in (X[4:, :2], X[4:].astype(str), X[4:].astype(str).astype(object)):
        pieces = [da.from_array(X[:4]), da.from_delayed(delayed(piece), (6, 3), float)]
        assert "partition 1 of the rows" in refused(da.concatenate(pieces))


def test_what_stands_beside_the_features_may_be_anything():
    extra = FRAME.assign(name="text")
    beside = open_parts(dd.from_pandas(extra, npartitions=2), None, ("a", "b", "c"), "rows")
    assert run_pass(beside, Counting())[0] == 10
    # Another order is no other table, and other numbers are numbers.
    other = FRAME.iloc[4:].astype({"a": "Int64", "b": "float32", "c": object})[["c", "a", "b"]]
    assert collect(frame_of([FRAME.iloc[:4], other]), Y) == EXPECTED


def test_nothing_there_is_said(tmp_path):
    assert "No file matches" in refused(str(tmp_path / "*.parquet"))
    assert "no .parquet files" in refused(tmp_path)
    write(tmp_path, [FRAME.iloc[:0]])
    assert "no rows" in refused(tmp_path)
    assert "not a column" in refused(tmp_path, Y)


def test_labels_that_do_not_go_with_rows_are_refused():
    table = da.from_array(X, chunks=(5, 3))
    assert "9 labels" in refused(table, da.from_array(Y[:9], chunks=5))
    assert "(9,)" in refused(table, Y[:9])
    frame = dd.from_pandas(FRAME, npartitions=2)
    assert "in 1 partitions" in refused(frame, dd.from_pandas(pd.Series(Y), npartitions=1))
    shifted = dd.from_pandas(pd.Series(Y, index=np.arange(10) + 3), npartitions=2)
    pieces = [shifted.partitions[0].compute()[:-1], shifted.partitions[1].compute()]
    uneven = dd.from_delayed([delayed(piece) for piece in pieces], meta=pieces[0].iloc[:0])
    assert "partition 0 of the rows" in refused(frame, uneven)
    assert "no table of Dask" in refused(da.from_array(Y, chunks=5))


def test_memory_that_does_not_suffice_is_said():
    table = open_parts(da.from_array(X, chunks=(5, 3)), None, None, "rows")
    with pytest.raises(InputError, match="does not fit in memory") as caught:
        run_pass(table, Exhausted())
    assert "smaller partitions" in caught.value.hint


def test_without_dask_the_extra_is_named(tmp_path, monkeypatch):
    import builtins

    original = builtins.__import__

    def without_dask(name, *rest):
        if name.partition(".")[0] in ("dask", "distributed"):
            raise ImportError(name)
        return original(name, *rest)

    pattern = write(tmp_path, [FRAME])
    monkeypatch.setattr(builtins, "__import__", without_dask)
    with pytest.raises(MissingLibraryError, match=r"timbermark\[dask\]"):
        opening_module.open_parts(pattern, None, None, "rows")


def test_picked_rows_do_not_depend_on_the_parts():
    rows = np.arange(4000.0).reshape(2000, 2)
    picked = [
        pick_rows(open_parts(da.from_array(rows, chunks=(n, 2)), None, None, "rows"), 50, seed=3)
        for n in (2000, 333, 7)
    ]
    assert picked[0].shape == (50, 2)
    assert len(np.unique(picked[0][:, 0])) == 50
    for other in picked[1:]:
        np.testing.assert_array_equal(picked[0], other)
    # They come from everywhere.
    assert picked[0][:, 0].min() < 400 < 3600 < picked[0][:, 0].max()
    all_of_them = pick_rows(memory_parts(rows, None), 5000, seed=3)
    assert sorted(all_of_them[:, 0]) == rows[:, 0].tolist()
