import datetime
import gzip

import numpy as np
import pytest

from timbermark.cli import judge
from timbermark.cli.options import read_rows
from timbermark.cli.tables import read_labels, read_table
from timbermark.errors import InputError


@pytest.fixture
def write(tmp_path):
    def write_text(text, name="rows.csv"):
        path = tmp_path / name
        path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
        return path

    return write_text


def test_columns_come_in_the_order_of_the_model(write):
    table = read_table(write("b,y,a\n1,0,2\n3,1,4\n"), ["a", "b"], "y")
    assert table.X.tolist() == [[2.0, 1.0], [4.0, 3.0]]
    assert table.labels == ["0", "1"]


def test_columns_that_the_model_does_not_know_are_ignored_even_if_text(write):
    table = read_table(write("who,a,city\nann,1,Ulm\nbob,2,Bern\n"), ["a"], None)
    assert table.X.tolist() == [[1.0], [2.0]]
    assert table.labels is None


def test_without_names_all_columns_but_the_label_count_by_place(write):
    assert read_table(write("x,y,z\n1,0,2\n"), None, "y").X.tolist() == [[1.0, 2.0]]
    assert read_table(write("x,y,z\n1,0,2\n"), None, None).X.tolist() == [[1.0, 0.0, 2.0]]


def test_text_in_a_column_that_the_model_uses_is_refused_with_a_hint(write):
    with pytest.raises(InputError, match=r"'a' of .* holds the text 'red' in row 3") as caught:
        read_table(write("a,b\n1,2\nred,3\n"), ["a", "b"], None)
    assert "codes" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("a;b;y\n1,5;2;0\n", "csv.separator"),
        ("a\tb\ty\n1\t2\t0\n", "csv.separator"),
        ("0.5,1.5,0\n2.5,1,1\n", "csv.header"),
        ("3,1,0\n2,1,1\n", "csv.header"),
        ("3,3,0\n2,1,1\n", "csv.header"),
    ],
)
def test_the_cause_is_named_where_columns_are_not_found(write, text, code):
    path = write(text)
    with pytest.raises(InputError) as caught:
        read_table(path, ["a", "b"], "y")
    assert caught.value.code == code


def test_models_without_names_take_numbered_columns_and_no_values_as_names(write):
    assert read_table(write("0,1\n1.5,2\n"), None, None).X.tolist() == [[1.5, 2.0]]
    for text, code in (("a;b\n1;2\n", "csv.separator"), ("0.5,1\n1.5,2\n", "csv.header")):
        with pytest.raises(InputError) as caught:
            read_table(write(text), None, None)
        assert caught.value.code == code


@pytest.mark.parametrize("name", ["rows.csv", "rows.csv.gz"])
def test_another_encoding_is_named(tmp_path, name):
    path = tmp_path / name
    for encoding, said in (("utf-16", True), ("latin-1", False)):
        content = "a,b\n1,ü\n".encode(encoding)
        path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        with pytest.raises(InputError) as caught:
            read_table(path, ["a"], None)
        assert caught.value.code == "csv.encoding"
        assert ("UTF-16" in caught.value.message) == said


def test_empty_cells_are_missing_and_booleans_are_numbers(write):
    table = read_table(write("a,b\n,True\nNA,false\n nan ,TRUE\n"), ["a", "b"], None)
    np.testing.assert_array_equal(table.X, [[np.nan, 1.0], [np.nan, 0.0], [np.nan, 1.0]])


def test_compressed_csv_is_read_and_broken_ones_are_refused(write):
    path = write("a\n1\n2\n", "rows.csv.gz")
    assert read_table(path, ["a"], None).X.tolist() == [[1.0], [2.0]]
    path.write_bytes(path.read_bytes()[:-12])
    with pytest.raises(InputError, match="gzip"):
        read_table(path, ["a"], None)


def test_names_with_blanks_are_those_that_lightgbm_knows(write):
    table = read_table(write("mean radius,x\n1,2\n"), ["mean_radius"], None)
    assert table.X.tolist() == [[1.0]]


def test_rows_of_several_blocks_keep_their_order(write):
    text = "a,y\n" + "".join(f"{i},{i % 2}\n" for i in range(25_000))
    table = read_table(write(text), ["a"], "y")
    assert (table.X[:, 0] == np.arange(25_000)).all()
    assert len(table.labels) == 25_000


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no rows"),
        ("a,y\n", "no rows"),
        ("a,a,y\n1,2,3\n", "twice"),
        ("a,y\n1\n", "1 cells in row 2"),
        ("b,y\n1,2\n", "lacks the model's feature 'a'"),
        ("a,y\n1,\n", "1 empty cells"),
        ("a,y\n1,3\n" + '"', "cells in row"),
    ],
)
def test_tables_that_cannot_be_used_are_refused(write, text, message):
    with pytest.raises(InputError, match=message):
        read_table(write(text), ["a"], "y")


def test_bytes_that_are_no_text_are_refused(tmp_path):
    (tmp_path / "x").write_bytes(b"\xff\xff\x00a")
    with pytest.raises(InputError, match="not text"):
        read_table(tmp_path / "x", ["a"], None)


def test_parquet_gives_what_csv_gives(tmp_path):
    pytest.importorskip("pyarrow")
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(
        {
            "who": ["ann", "bob"],
            "flag": [True, False],
            "number": [1.5, None],
            "whole": pandas.array([1, None], dtype="Int64"),
            "y": [True, False],
        },
        index=[7, 9],
    )
    frame.to_parquet(tmp_path / "rows.parquet")
    frame.to_csv(tmp_path / "rows.csv")
    for name in ("rows.parquet", "rows.csv"):
        table = read_table(tmp_path / name, ["flag", "number", "whole"], "y")
        np.testing.assert_array_equal(table.X, [[1.0, 1.5, 1.0], [0.0, np.nan, np.nan]])
        assert read_labels(table.labels, np.array([0, 1])).tolist() == [1, 0]
    with pytest.raises(InputError, match="text 'ann'"):
        read_table(tmp_path / "rows.parquet", ["who"], None)
    # Without names the index of pandas is no column.
    assert read_table(tmp_path / "rows.parquet", None, "who").X.shape == (2, 4)


def test_a_broken_parquet_file_is_refused(tmp_path):
    pytest.importorskip("pyarrow")
    (tmp_path / "broken").write_bytes(b"PAR1 and nothing else")
    with pytest.raises(InputError, match="Parquet"):
        read_table(tmp_path / "broken", ["a"], None)


@pytest.mark.parametrize(
    ("cells", "classes", "expected"),
    [
        (["True", "False"], [False, True], [1, 0]),
        (["1.0", "0"], [0, 1], [1, 0]),
        ([True, False], ["False", "True"], ["True", "False"]),
        (["0.5", "1"], [0.5, 1.0], [0.5, 1.0]),
        (["cat", "1"], [0, 1], ["cat", "1"]),
    ],
)
def test_labels_take_the_type_of_the_classes(cells, classes, expected):
    assert read_labels(cells, np.array(classes)).tolist() == expected


def test_texts_are_taken_where_the_model_takes_them(write):
    path = write("a,town,zip\n1,Bern,0123\n,,0456\n3,NA,\n", "rows.csv.gz")
    X = read_table(path, ["town", "a", "zip"], None, frozenset({0, 2})).X
    assert X[:, 0].tolist() == ["Bern", None, None]
    np.testing.assert_array_equal(X[:, 1].astype(float), [1.0, np.nan, 3.0])
    assert X[:, 2].tolist() == ["0123", "0456", None]
    any_column = read_table(path, ["town", "a", "zip"], None, None).X
    assert any_column[:, 0].tolist() == ["Bern", None, None]
    assert any_column[:2, 2].tolist() == [123.0, 456.0]
    with pytest.raises(InputError, match="holds the text 'Bern'"):
        read_table(path, ["town", "a"], None, frozenset({1}))


def test_categories_of_the_model_are_not_missing_whatever_they_say(write):
    path = write('a,town\n1,NA\n2,nan\n3,""\n4,Bern\n')
    names, texts = ["town", "a"], frozenset({0})
    some = read_table(path, names, None, texts, {0: frozenset({"NA", "Bern"})}).X
    assert some[:, 0].tolist() == ["NA", None, None, "Bern"]
    every = read_table(path, names, None, texts, {0: None}).X
    assert every[:, 0].tolist() == ["NA", "nan", "", "Bern"]
    numbers = read_table(path, names, None, None, {1: frozenset({"1", "2"})}).X
    assert numbers[:, 1].tolist() == ["1", "2", "3", "4"]


def test_texts_of_parquet_files(tmp_path):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    columns = {
        "town": pa.array(["Bern", None]).dictionary_encode(),
        "digits": pa.array(["1", "2"]),
        "number": pa.array([1, None]),
        "flag": pa.array([True, False]),
    }
    parquet.write_table(pa.table(columns), tmp_path / "rows.parquet")
    X = read_table(tmp_path / "rows.parquet", list(columns), None, None).X
    assert X[:, 0].tolist() == ["Bern", None]
    assert X[:, 1].tolist() == ["1", "2"]
    np.testing.assert_array_equal(X[:, 2:].astype(float), [[1.0, 1.0], [np.nan, 0.0]])
    X = read_table(tmp_path / "rows.parquet", ["number", "digits"], None, frozenset({0})).X
    assert X[:, 0].tolist() == ["1", None]


def test_dates_of_parquet_files_are_texts_where_any_column_may_be(tmp_path):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    day = datetime.date(2030, 12, 31)
    path = tmp_path / "rows.parquet"
    parquet.write_table(pa.table({"day": pa.array([day, None]), "x": pa.array([1, 2])}), path)
    assert read_table(path, ["day", "x"], None, None).X[:, 0].tolist() == ["2030-12-31", None]
    with pytest.raises(InputError, match="holds the text '2030"):
        read_table(path, ["day", "x"], None)


def test_rows_for_decoys_and_judges_are_in_the_columns_of_the_mark(write):
    path = write("id,town,zip,x,y\nc1,Bern,0123,1.5,1\nc2,,0456,2.5,0\n")
    names = ["id", "town", "zip", "x"]
    columns = (np.array([np.nan] * 2), ("Oslo", None), ("0789", "0123"), np.array([0.5, 1.5]))
    X = read_rows(names, path, columns)
    assert X.tolist() == [[None, "Bern", "0123", 1.5], [None, None, "0456", 2.5]]
    assert read_rows(names[1:], path)[:, 0].tolist() == ["Bern", None]
    rows, labels = judge._read_rows(path, "y", names[1:], ("texts", "texts", "numbers"))
    assert rows.tolist() == [["Bern", "0123", 1.5], [None, "0456", 2.5]]
    assert labels == ["1", "0"]
