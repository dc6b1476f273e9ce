import csv

import pytest

from timbermark.experiments.results import Place, published


def test_numbers_are_those_of_the_shared_tables(shared):
    path = shared.parent / "paper" / "tables.csv"
    if not path.exists():
        pytest.skip("the paper's numbers are not here")
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    expected = {
        Place(
            row["metric"], row["candidates"], row["method"], row["selection"], row["dataset"],
            float(row["ratio"]),
        ): float(row["value"]) if row["value"] else None
        for row in rows
    }  # fmt: skip
    assert published() == expected


def test_there_are_eight_tables_of_ten_rows():
    assert len(published()) == 8 * 10 * 21
    assert len({(p.metric, p.candidates) for p in published()}) == 8
