import pytest

from timbermark.errors import InputError
from timbermark.experiments.datasets import NAMES
from timbermark.experiments.measuring import TABLES, Cell, grouped, make_plan, trigger_counts
from timbermark.experiments.results import published


def test_a_full_seed_has_every_cell_of_the_paper_once():
    cells = make_plan(seeds=1).cells
    assert len(set(cells)) == len(cells) == 6 * 5 * 2 * 3 * 2
    printed = {
        (p.dataset, p.candidates, p.method, p.ratio, p.selection)
        for p in published()
        if p.dataset != "average"
    }
    assert printed == {(c.dataset, c.candidates, c.method, c.ratio, c.selection) for c in cells}


def test_a_table_needs_its_scenario_only():
    assert {c.candidates for c in make_plan(table=5).cells} == {"train"}
    assert {c.candidates for c in make_plan(table=6).cells} == {"holdout"}
    assert TABLES[4:6] == (("robustness", "train"), ("robustness", "holdout"))
    assert make_plan().scenarios == ("train", "holdout")


def test_data_sets_come_in_the_order_of_the_tables():
    assert make_plan(datasets=["wine_quality", "avila"]).datasets == ("avila", "wine_quality")
    assert make_plan().datasets == NAMES


def test_quick_cells_are_cells_of_the_full_run():
    quick, full = make_plan(quick=True), make_plan()
    assert set(quick.cells) < set(full.cells)
    assert make_plan(quick=True, seeds=2, datasets=["letter"]).datasets == ("letter",)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"table": 9}, "no table 9"),
        ({"table": 0}, "no table 0"),
        ({"datasets": ["iris"]}, "no data set 'iris'"),
        ({"seeds": 0}, "seeds=0 must be at least 1"),
    ],
)
def test_impossible_plans_are_refused(wrong, message):
    with pytest.raises(InputError, match=message):
        make_plan(**wrong)


def test_groups_share_a_base_model():
    groups = grouped(make_plan(seeds=2).cells)
    assert len(groups) == 6 * 2 * 2
    for group, cells in groups.items():
        assert len(cells) == 30
        assert {cell.group for cell in cells} == {group}
    assert Cell("avila", "train", 0, "wrong", 0.1, "distance") in next(iter(groups.values()))


@pytest.mark.parametrize(
    ("rows", "ratio", "n", "k"),
    [(10430, 0.001, 11, 6), (7483, 0.001, 8, 4), (15000, 0.001, 15, 8), (8344, 0.01, 84, 42),
     (157, 0.001, 1, 1), (3897, 0.1, 390, 195)],
)  # fmt: skip
def test_counts_are_those_the_paper_reveals(rows, ratio, n, k):
    assert trigger_counts(rows, ratio) == (n, k)
