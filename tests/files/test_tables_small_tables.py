import gzip
import tracemalloc

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from timbermark.errors import InputError
from timbermark.files import tables
from timbermark.files.tables import TableLimits, read_columns

LIMITS = TableLimits(rows=1000, cells=5000, bytes=1 << 20)


def peak_of(call):
    """Return what a call raises, and the memory that Python and NumPy took for it."""
    tracemalloc.start()
    try:
        with pytest.raises(InputError) as caught:
            call()
        return caught.value, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("text", ["a,b\n", '"a\na",b\n', ","])
def test_a_compressed_file_of_a_billion_cells_is_refused(tmp_path, text):
    path = tmp_path / "bomb.csv.gz"
    with gzip.open(path, "wb") as file:
        file.write(b"question,label\n")
        for _ in range(64):
            file.write(text.encode() * (1 << 20))
    error, peak = peak_of(lambda: read_columns(path, LIMITS))
    assert str(path) in error.message
    assert error.hint
    assert peak < 32 << 20


def test_a_parquet_file_of_many_rows_is_refused_before_it_is_read(tmp_path):
    path = tmp_path / "bomb.parquet"
    n = 5_000_000
    same = pyarrow.DictionaryArray.from_arrays(pyarrow.array(np.zeros(n, np.int32)), ["x" * 10])
    parquet.write_table(pyarrow.table({"question": same}), path)
    assert path.stat().st_size < 100_000
    before = pyarrow.total_allocated_bytes()
    error, peak = peak_of(lambda: read_columns(path))
    assert "5,000,000 rows, and 2,097,152 are allowed" in error.message
    assert peak < 4 << 20
    assert pyarrow.total_allocated_bytes() - before < 4 << 20


def test_a_parquet_file_of_long_lists_or_many_columns_is_refused(tmp_path):
    path = tmp_path / "bomb.parquet"
    parquet.write_table(pyarrow.table({"question": [[0] * 6000]}), path)
    with pytest.raises(InputError, match="6,000 cells"):
        read_columns(path, LIMITS)
    parquet.write_table(pyarrow.table({f"c{i}": [0] * 10 for i in range(600)}), path)
    with pytest.raises(InputError, match="6,000 cells"):
        read_columns(path, LIMITS)


def test_a_long_text_in_many_rows_is_kept_once(tmp_path):
    path = tmp_path / "long.parquet"
    text = "x" * 100_000
    parquet.write_table(pyarrow.table({"question": [text] * 900, "n": list(range(900))}), path)
    found = read_columns(path, LIMITS)
    assert found["question"] == [text] * 900
    assert len(set(map(id, found["question"]))) == 1
    assert found["n"] == list(range(900))
    # Different ones are as large as they are.
    texts = [f"{i}{text}" for i in range(100)]
    parquet.write_table(pyarrow.table({"question": texts}), path)
    with pytest.raises(InputError, match="more than 1 MiB"):
        read_columns(path, LIMITS)


def test_tables_within_the_limits_are_read_with_missing_cells(tmp_path):
    path = tmp_path / "table.parquet"
    table = {"question": ["a", None, "b"], "label": [1, None, 3], "yes": [True, None, False]}
    parquet.write_table(pyarrow.table(table), path)
    assert read_columns(path) == table
    plain = tmp_path / "table.csv"
    plain.write_text("question,label\na,1\n\nb,\n")
    assert read_columns(plain) == {"question": ["a", "b"], "label": ["1", ""]}
    empty = tmp_path / "empty.csv"
    empty.write_text("question,label\n")
    assert read_columns(empty) == {"question": [], "label": []}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("q\n" + "a\n" * 1001, "more than 1,000 rows"),
        ("a,b,c,d,e,f\n" + "1,2,3,4,5,6\n" * 900, "more than 5,000 cells"),
        ("q\n" + "a" * 130_000 + "\n" + ("b" * 100_000 + "\n") * 20, "more than 1 MiB"),
    ],
)
def test_each_limit_is_one_sentence(tmp_path, text, message):
    path = tmp_path / "table.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        read_columns(path, LIMITS)


def test_a_line_of_commas_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("timbermark.files.tables._LONGEST_LINE", 1000)
    path = tmp_path / "table.csv"
    path.write_text("q\n" + "," * 2000 + "\n")
    with pytest.raises(InputError, match="line of 2,001 characters"):
        read_columns(path)
    assert tables.TableLimits().bytes == 256 << 20
