import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.experiments.making import made_cell
from timbermark.errors import FileFormatError
from timbermark.experiments import results
from timbermark.experiments.measuring import MEASURES, make_plan
from timbermark.experiments.results import CELL_COLUMNS, CellsFile

CELLS = make_plan(quick=True).cells


def written(path, cells):
    with CellsFile(path) as file:
        for cell in cells:
            file.add(made_cell(cell))
    return path


def test_what_is_added_is_read_again(tmp_path):
    path = written(tmp_path / "cells.csv", CELLS)
    with CellsFile(path) as file:
        assert file.finished == {cell: made_cell(cell) for cell in CELLS}
    assert path.read_text().splitlines()[0] == ",".join(CELL_COLUMNS)


def test_a_dash_is_an_empty_cell(tmp_path):
    with CellsFile(tmp_path / "x") as file:
        file.add(made_cell(CELLS[0], effectiveness=float("nan")))
    with CellsFile(tmp_path / "x") as file:
        assert math.isnan(file.finished[CELLS[0]].measures.effectiveness)
    line = (tmp_path / "x").read_text().splitlines()[1].split(",")
    assert line[CELL_COLUMNS.index("effectiveness")] == ""


@given(st.lists(st.floats(0, 1), min_size=len(MEASURES), max_size=len(MEASURES)))
def test_numbers_keep_every_bit(values):
    measured = made_cell(CELLS[0], **dict(zip(MEASURES, values, strict=True)))
    fields = [str(field) for field in results._to_fields(measured)]
    assert results._from_fields(fields) == measured


@pytest.mark.parametrize("left", [0, 1, 40, 77, 1000])
def test_a_file_cut_anywhere_goes_on_from_its_last_whole_line(tmp_path, left):
    path = written(tmp_path / "cells.csv", CELLS[:5])
    content = path.read_bytes()
    path.write_bytes(content[:left])
    whole = max(content[:left].count(b"\n") - 1, 0)
    with CellsFile(path) as file:
        assert list(file.finished) == list(CELLS[:whole])
        for cell in CELLS[whole:5]:
            file.add(made_cell(cell))
    assert path.read_bytes() == content


def test_every_cell_is_on_disk_when_add_returns(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(results.os, "fsync", lambda number: synced.append(path.read_bytes()))
    path = tmp_path / "cells.csv"
    with CellsFile(path) as file:
        file.add(made_cell(CELLS[0]))
        file.add(made_cell(CELLS[1]))
    assert [content.count(b"\n") for content in synced] == [1, 2, 3]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a,b\n1,2\n", "does not hold cells of this version"),
        (b"\xff\xfe\n", "does not hold cells of this version"),
        (b"something else", "does not hold cells of this version"),
        (",".join(CELL_COLUMNS).encode() + b"\nletter,train\n", "line 2"),
        (
            ",".join(CELL_COLUMNS).encode() + b"\n" + b"," * (len(CELL_COLUMNS) - 1) + b"\n",
            "line 2",
        ),
    ],
)
def test_other_files_are_refused_and_left_alone(tmp_path, content, message):
    path = tmp_path / "cells.csv"
    path.write_bytes(content)
    with pytest.raises(FileFormatError, match=message):
        CellsFile(path)
    assert path.read_bytes() == content
