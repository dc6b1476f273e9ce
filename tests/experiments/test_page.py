import re
from html.parser import HTMLParser

import pytest

from tests.experiments.making import made_cell
from timbermark.experiments.measuring import NAN, Cell, make_plan
from timbermark.experiments.page import Picture, make_page, page_to_html, page_to_markdown
from timbermark.experiments.results import collect
from timbermark.experiments.tables import count_wrong, make_tables, to_markdown


class Reader(HTMLParser):
    """The cells of all tables, and every tag that was left open."""

    def __init__(self):
        super().__init__()
        self.open, self.tables, self.outside = [], [], []

    def handle_starttag(self, tag, attrs):
        if tag == "table":
            self.tables.append([])
        if tag == "tr":
            self.tables[-1].append([])
        if tag in ("td", "th"):
            self.tables[-1][-1].append("")
        if tag not in ("meta", "img"):
            self.open.append(tag)
        self.outside += [v for k, v in attrs if k in ("src", "href") and not v.startswith("data:")]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] in ("td", "th", "span") and self.tables:
            self.tables[-1][-1][-1] += data


@pytest.fixture(scope="module")
def run():
    """All data sets, two seeds; a dash and a number that is known."""
    plan = make_plan(seeds=2)
    cells = {cell: made_cell(cell) for cell in plan.cells}
    for seed, value in ((0, 0.98), (1, 0.96)):
        for method, number in (("cluster", value), ("wrong", NAN)):
            cell = Cell("avila", "train", seed, method, 0.1, "distance")
            cells[cell] = made_cell(cell, n_wrong=3 + seed, effectiveness=number)
    return plan, cells


def test_tables_have_the_papers_layout(run):
    plan, cells = run
    tables = make_tables(plan, collect(plan, cells))
    assert [table.number for table in tables] == list(range(1, 9))
    first = tables[0]
    assert first.titles == [
        "Avila", "Img Seg.", "Letter Recognition", "optdigits", "pendigits", "Wine Quality",
        "average",
    ]  # fmt: skip
    assert [name for name, _ in first.rows] == [
        "Cluster (Conf)", "Cluster (Dist)", "Outlier (Conf)", "Outlier (Dist)", "Wrong (Conf)",
        "Wrong (Dist)", "Conf. (Conf)", "Conf. (Dist)", "Random (Conf)", "Random (Dist)",
    ]  # fmt: skip
    assert all(len(cells) == 21 for _, cells in first.rows)


def test_a_cell_has_ours_the_papers_and_the_difference(run):
    plan, cells = run
    table = make_tables(plan, collect(plan, cells))[0]
    cell = dict(table.rows)["Cluster (Dist)"][2]
    assert (cell.number_text, cell.spread_text) == ("0.970", " ± 0.014")
    assert (cell.paper_text, cell.difference_text) == ("1.000", "−0.030")
    assert cell.is_low is False  # 5 triggers
    dash = dict(table.rows)["Wrong (Dist)"][2]
    assert (dash.number_text, dash.paper_text, dash.difference_text) == ("—", "—", "")
    # A printed average stands as it is printed.
    assert dict(table.rows)["Cluster (Conf)"][18].paper_text == "0.792"


def test_the_papers_average_of_some_data_sets_is_made_of_theirs():
    plan = make_plan(datasets=["avila", "letter"], seeds=1)
    cells = {cell: made_cell(cell) for cell in plan.cells}
    table = make_tables(plan, collect(plan, cells))[0]
    row = dict(table.rows)["Cluster (Dist)"]
    assert len(row) == 9
    assert row[7].paper_text == f"{(1.0 + 0.507) / 2:.3f}"
    assert dict(table.rows)["Wrong (Conf)"][7].paper_text == "—"


def test_markdown_is_a_whole_table(run):
    plan, cells = run
    lines = to_markdown(make_tables(plan, collect(plan, cells))[0]).splitlines()
    assert lines[0] == "## Table 1: Watermarking effectiveness, D_cand = D_train"
    assert len(lines) == 2 + 2 + 10
    assert {line.count("|") for line in lines[2:]} == {23}
    assert "0.970 ± 0.014<br>1.000<br>−0.030" in lines[5].replace("**", "")


def test_wrong_predictions_are_counted(run):
    plan, cells = run
    found = count_wrong(plan, cells)
    assert len(found) == 12
    assert found["train", "letter"] == ([7, 7], [10, 10, 10])


def test_html_is_one_sound_page_with_nothing_outside(run, tmp_path):
    plan, cells = run
    picture = tmp_path / "x.png"
    picture.write_bytes(b"\x89PNG")
    figures = (Picture("A <title>", "Less < more & so on.", picture),)
    page = make_page(plan, collect(plan, cells), cells, figures, ("One more note.",))
    text = page_to_html(page)
    reader = Reader()
    reader.feed(text)
    assert reader.open == []
    assert reader.outside == []
    assert "A &lt;title&gt;" in text
    assert "Less &lt; more &amp; so on." in text
    assert "data:image/png;base64,iVBORw==" in text
    assert "One more note." in text
    # The summary, the eight tables, averages, fine-tuning, wrong predictions.
    assert len(reader.tables) == 12
    assert [len(row) for row in reader.tables[1]] == [8, *[22] * 11]
    assert reader.tables[1][3][3] == "0.970 ± 0.0141.000 −0.030"
    assert len(reader.tables[9]) == 1 + 4 * 60


def test_markdown_page_says_the_same(run, tmp_path):
    plan, cells = run
    figures = (Picture("A figure", "Its caption.", tmp_path / "x.png"),)
    text = page_to_markdown(make_page(plan, collect(plan, cells), cells, figures))
    assert len(re.findall(r"^## Table \d:", text, re.MULTILINE)) == 8
    assert "![A figure](x.png)" in text
    assert "2 seeds" in text
    assert "| Watermarking effectiveness | D_cand = D_train |" in text


def test_one_table_alone(run):
    _, cells = run
    plan = make_plan(table=6, seeds=2)
    page = make_page(plan, collect(plan, cells), cells)
    assert [table.title for table in page.tables] == ["Robustness, D_cand ≠ D_train"]
    assert {row[1] for row in page.overall.rows} == {"D_cand ≠ D_train"}
