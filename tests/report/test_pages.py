import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from types import SimpleNamespace

import numpy as np
import pytest

import timbermark as tm
from tests.report.conftest import KINDS
from tests.report.results import BAD, embed_result, make_mark
from timbermark.errors import InputError, MissingLibraryError
from timbermark.guard.guarding import GuardCost
from timbermark.report import describe, page_html, show_in_notebook
from timbermark.report.verdict_pages import blur_curve

LIMIT = 400_000
VOID = {"meta", "img", "br", "hr", "link"}


class Reader(HTMLParser):
    """Tags and attributes of a page; fails where a tag is closed that was not the last."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.ids, self.links, self.svgs = [], [], [], [], []
        self.texts = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.tags.append(tag)
        if "id" in given:
            self.ids.append(given["id"])
        self.links += [
            (tag, name, value)
            for name, value in attrs
            if name in ("src", "href", "srcset", "data", "action", "xlink:href")
        ]
        if tag == "svg":
            self.svgs.append(given)
        assert not any(name.startswith("on") for name in given)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_is_sound_small_and_loads_nothing(made, kind):
    text = made[1][kind].read_text("utf-8")
    assert len(text.encode()) <= LIMIT
    page = Reader(text)
    assert page.open == []
    assert len(page.ids) == len(set(page.ids))
    # Names within the page are all that is referred to.
    assert all(value.startswith("#") and value[1:] in page.ids for _, _, value in page.links)
    assert not {"script", "link", "iframe", "object", "embed", "img", "form"} & set(page.tags)
    assert not re.search(r"url\((?!#)|@import|https?:", text)


@pytest.mark.parametrize("kind", KINDS)
def test_what_has_a_name_like_a_script_is_harmless(made, kind):
    text = made[1][kind].read_text("utf-8")
    assert BAD not in text
    assert "alert(1)" in text  # it is there, as the text that it is
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text


@pytest.mark.parametrize("kind", KINDS)
def test_plots_can_be_read_aloud(made, kind):
    page = Reader(made[1][kind].read_text("utf-8"))
    assert page.svgs or kind == "dispute"
    for svg in page.svgs:
        assert svg["role"] == "img"
        title, description = svg["aria-labelledby"].split()
        assert title in page.ids
        assert description in page.ids
        assert "width" not in svg
    assert page.tags.count("title") == 1 + len(page.svgs)
    assert page.tags.count("desc") == len(page.svgs)


def test_a_page_of_marking_is_made_from_what_is_public(made):
    """The mark's secret parts are taken away: the page stays what it is."""
    for kind in ("classes", "regressor"):
        result = made[0][kind]
        mark = result.mark
        names = ("owner", "mark_id", "created", "digest", "model_digest", "draws",
                 "n_splits", "n_leaves", "n_triggers", "q")  # fmt: skip
        public = SimpleNamespace(**{name: getattr(mark, name) for name in names})
        bare = replace(result, mark=public, model=None)
        assert page_html(bare, written="x") == page_html(result, written="x")
        text = page_html(result, written="x")
        for secret in (mark.secret, *mark.salts):
            assert secret.hex() not in text
        for value in mark.rows().ravel():
            assert repr(float(value)) not in text


def test_a_page_of_a_verdict_is_made_without_answers(made):
    for kind in ("verdict", "weak verdict"):
        verdict = made[0][kind]
        bare = replace(verdict, answers=(), transcript=None)
        assert page_html(bare, written="x") == page_html(verdict, written="x")


def test_single_questions_cannot_be_told_from_the_curve_of_a_verdict():
    for k in (5, 64, 300):
        steps = blur_curve([(n, 1.0) for n in range(1, k + 1)])
        sizes = np.diff([0, *(n for n, _ in steps)])
        assert steps[-1][0] == k
        assert len(steps) <= 25
        assert (sizes[:-1] >= 4).all()


def test_a_page_of_a_judgment_says_everything_that_was_found(made):
    judgment = made[0]["judgment"]
    text = " ".join(Reader(made[1]["judgment"].read_text("utf-8")).texts)
    for wanted in (
        judgment.claim.digest.hex(), judgment.claim.key.hex(), judgment.opening.digest.hex(),
        judgment.verdict.mark_digest, judgment.verdict.suspect_digest, judgment.asked,
        f"{judgment.bits:.1f} bits", "conclusive", "Judge Judy", f"timbermark=={tm.__version__}",
        "timbermark judge pack.zip", "No verified time stamp",
    ):  # fmt: skip
        assert wanted in text
    page = describe(judgment)
    (table,) = [
        part for section in page.sections for part in section.parts
        if part.kind == "table" and "asked for" in part.header
    ]  # fmt: skip
    assert len(table.rows) == judgment.opening.n_opened
    assert [row[0] for row in table.rows] == [str(place) for place in judgment.opening.places]
    assert all(row[2] == row[3] and row[4] == "yes" for row in table.rows)


def test_a_page_of_a_dispute_has_the_table(made):
    dispute = made[0]["dispute"]
    text = " ".join(Reader(made[1]["dispute"].read_text("utf-8")).texts)
    assert f"{BAD} was first." in text
    for cell in dispute.cells:
        assert f"{cell.bits:.1f} ({cell.level})" in text
    assert "--against b-evidence" in text


def test_a_page_of_marking_states_cost_and_worth(made):
    result = made[0]["classes"]
    text = " ".join(Reader(made[1]["classes"].read_text("utf-8")).texts)
    for line in result.cost.lines():
        assert all(cell in text for cell in line)
    assert "Cost measured on 400 validation rows." in text
    assert f"{result.n_set} of {result.strength.k}" in text
    assert "tosses of a coin" in text
    assert "What it survives" not in text
    shown = " ".join(Reader(made[1]["with attacks"].read_text("utf-8")).texts)
    assert "What it survives" in shown
    assert "skipped: no column" in shown


def test_the_same_result_gives_the_same_page(made):
    for kind in ("classes", "judgment", "attacks"):
        result = made[0][kind]
        assert page_html(result, written="x") == page_html(result, written="x")


def test_plots_do_not_depend_on_the_users_own_style(made):
    import matplotlib

    plain = page_html(made[0]["verdict"], written="x")
    with matplotlib.rc_context({"axes.facecolor": "red", "font.size": 30, "lines.linewidth": 9}):
        assert page_html(made[0]["verdict"], written="x") == plain


def test_an_existing_file_is_kept(tmp_path):
    result = embed_result()
    page = tmp_path / "page.html"
    page.write_text("mine")
    with pytest.raises(InputError, match="exists already"):
        result.report(page)
    assert page.read_text() == "mine"
    result.report(page, force=True)
    assert page.read_text().startswith("<!doctype html>")
    with pytest.raises(InputError, match="does not exist"):
        result.report(tmp_path / "no" / "page.html")


@pytest.mark.parametrize("package", ["jinja2", "matplotlib"])
def test_a_missing_package_is_named(tmp_path, monkeypatch, package):
    monkeypatch.setitem(__import__("sys").modules, package, None)
    result = embed_result()
    with pytest.raises(MissingLibraryError, match=r"timbermark\[report\]") as caught:
        result.report(tmp_path / "page.html")
    assert package in str(caught.value)
    assert list(tmp_path.iterdir()) == []
    assert result._repr_html_() is None


@pytest.mark.parametrize("kind", KINDS)
def test_notebooks_show_the_page_as_a_part_of_theirs(made, kind):
    result = made[0][kind]
    result = result[0] if isinstance(result, tuple) else result
    shown = show_in_notebook(result)
    named = re.compile(r"plot-[0-9a-f]{8}-")  # which differs each time
    assert named.sub("", shown) == named.sub("", result._repr_html_())
    part = Reader(shown)
    assert part.open == []
    assert part.tags[:2] == ["style", "div"]
    assert not {"html", "body", "script", "link"} & set(part.tags)
    assert BAD not in shown
    # Nothing of its style reaches what else is in the notebook.
    sheet = re.sub(r"@media[^{]*\{|@page[^}]*\}", "", shown.partition("</style>")[0])
    for rule in re.findall(r"([^{}]+)\{[^{}]*\}", sheet.partition("<style>")[2]):
        assert all(".timbermark" in part for part in rule.split(","))


def test_two_parts_in_one_notebook_have_names_of_their_own():
    result = tm.verify(lambda X: ["no"] * len(X), make_mark("Ann"))
    ids = Reader(show_in_notebook(result) + show_in_notebook(result)).ids
    assert len(ids) == len(set(ids))


def test_other_things_have_no_page():
    with pytest.raises(InputError, match="no page"):
        describe(make_mark())


@pytest.mark.parametrize("kind", KINDS)
def test_a_result_is_short_in_a_prompt(made, kind):
    result = made[0][kind]
    result = result[0] if isinstance(result, tuple) else result
    assert len(repr(result)) < 240
    assert "\n" not in repr(result)
    assert json.loads(json.dumps(result.to_dict())) == result.to_dict()


def test_the_cost_of_a_guard_has_a_page():
    cost = GuardCost(569, 0.0105, 0.35, None, 0.0078, 10.5, 0.45, 0.0)
    assert "0.35" in cost._repr_html_()
    assert "AUC" not in cost._repr_html_()
    assert cost.to_dict()["drawn"] == 0.0105


def test_a_plan_names_no_mark_of_its_own(made):
    """The mark of a plan is thrown away: its name would only mislead."""
    plan = made[0]["plan"]
    assert plan.mark.mark_id.hex() not in plan._repr_html_()
