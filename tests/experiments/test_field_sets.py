import numpy as np
import pytest
from benchmarks.field_sets import FILES, encode_texts, load_field_set

from timbermark.errors import FileFormatError, InputError

# Rows, features and answers.
SHAPES = {
    "census_income": (199_523, 40, {"- 50000.", "50000+."}),
    "churn": (3333, 19, {"False.", "True."}),
    "diamonds": (53_940, 9, None),
    "spambase": (4601, 57, {"0", "1"}),
}


@pytest.mark.parametrize("name", FILES)
def test_shapes(name, shared):
    table = load_field_set(name, shared)
    n, d, answers = SHAPES[name]
    assert len(table.rows) == len(table.target) == n
    assert {len(row) for row in table.rows} == {len(table.names)} == {d}
    assert answers is None or set(table.target) == answers


def test_cells_are_read_where_they_stand(shared):
    table = load_field_set("churn", shared)
    assert table.names[:4] == ("State", "Account Length", "Area Code", "Int'l Plan")
    assert table.rows[0][:5] == ("KS", "128", "415", "no", "yes")
    assert table.target[0] == "False."
    prices = load_field_set("diamonds", shared)
    assert prices.rows[0] == ("0.23", "Ideal", "E", "SI2", "61.5", "55", "3.95", "3.98", "2.43")
    assert prices.target[0] == "326"


def test_texts_are_numbered_in_sorted_order_and_numbers_may_be_missing():
    found = encode_texts([("b", "1"), ("?", ""), ("a", "2.5")])
    assert found[:, 0].tolist() == [2.0, 0.0, 1.0]
    assert np.array_equal(found[:, 1], [1.0, np.nan, 2.5], equal_nan=True)


def test_what_is_not_there_is_said(tmp_path):
    with pytest.raises(InputError, match="no field set 'iris'"):
        load_field_set("iris", tmp_path)
    with pytest.raises(InputError, match="churn are not here") as caught:
        load_field_set("churn", tmp_path)
    assert "field/churn" in caught.value.hint


def test_another_file_of_the_name_is_refused(tmp_path):
    path = tmp_path / FILES["churn"][0]
    path.parent.mkdir(parents=True)
    path.write_text("State\n")
    with pytest.raises(FileFormatError, match="another sha256"):
        load_field_set("churn", tmp_path)


def test_sums_are_those_of_the_shared_folder(shared):
    lines = (shared / "SHA256SUMS").read_text().splitlines()
    listed = dict(reversed(line.split(maxsplit=1)) for line in lines)
    assert all(listed[f"./{path}"] == found for path, found in FILES.values())
