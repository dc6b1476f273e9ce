"""The pages of verdicts, judgments and disputes: evidence of each seal, and nothing secret."""

import re
from dataclasses import replace

import pytest

import timbermark as tm
from tests.verification.making import KEY, innocent, learnt, make_mark, numbered, scored
from tests.verification.servers import ModelServer
from tests.verification.staircases import JUDGE, build_house, party, staircase
from timbermark.ownership import Claim, open_mark
from timbermark.report import describe, page_html, show_in_notebook
from timbermark.report.pages import Facts, Table
from timbermark.verification.disputes import judge_dispute
from timbermark.verification.judge import judge
from timbermark.verification.packs import Pack

BAD = "<script>alert(1)</script>"
BOTH = make_mark(k=64, n_splits=200, owner=BAD, feature_names=("a", BAD, "c"))
NUMBERS = make_mark(n_splits=128, classes=())


def parts(page, kind):
    return [part for section in page.sections for part in section.parts if isinstance(part, kind)]


def seals_of(page):
    (table,) = [table for table in parts(page, Table) if table.header[0] == "seal"]
    return {row[0]: row[1:] for row in table.rows}


@pytest.mark.parametrize("model", [learnt, scored])
def test_a_page_shows_the_evidence_of_each_seal(model):
    verdict = tm.verify(model(BOTH), BOTH)
    page = describe(verdict)
    shown = seals_of(page)
    assert shown.keys() == {"leaves", "splits"}
    for seal in verdict.seals:
        cells = shown[seal.seal]
        assert cells[0] == f"{seal.bits:.1f}"
        assert cells[1:5] == tuple(
            map(str, (seal.triggers, seal.answered, seal.counted, seal.matched))
        )
    assert sum("symbols in" in meaning for _, meaning in page.figures) == 2


def test_numbers_have_a_page_with_one_seal():
    assert seals_of(describe(tm.verify(numbered(NUMBERS), NUMBERS))).keys() == {"splits"}


@pytest.mark.parametrize("model", [learnt, scored, innocent])
def test_a_page_of_a_verdict_holds_no_answers_and_nothing_that_runs(model):
    verdict = tm.verify(model(BOTH), BOTH)
    text = page_html(verdict, written="x")
    assert page_html(replace(verdict, answers=(), transcript=None), written="x") == text
    assert BAD not in text
    assert "&lt;script&gt;" in text
    for secret in (BOTH.secret, *BOTH.salts):
        assert secret.hex() not in text
    for value in BOTH.rows()[:9].ravel():
        assert repr(float(value)) not in text
    assert show_in_notebook(verdict).startswith("<style>")


def test_a_page_of_an_endpoint_shows_the_whole_request_and_no_credentials():
    with ModelServer(learnt(BOTH)) as server:
        endpoint = tm.Endpoint(
            server.url() + "?key=query-secret", protocol="mlflow", token="token-secret",
            headers={"X-Model": "header-secret"},
        )  # fmt: skip
        verdict = tm.verify(endpoint, BOTH, decoys=0, stop_at="off")
    page = describe(verdict)
    rows = dict(row for facts in parts(page, Facts) for row in facts.rows)
    assert rows["request: url"] == endpoint.shown_url
    assert rows["request: has query"] == "yes"
    assert rows["request: headers"] == "X-Model"
    assert not re.search("query-secret|token-secret|header-secret", page_html(verdict))
    assert page.level == verdict.level != "conclusive"  # a header has no price


def test_a_page_of_a_judgment_has_a_row_for_each_opened_trigger():
    claim = Claim.make(BOTH, KEY, marked_digest="cd" * 32)
    opening = open_mark(BOTH, claim, judge=JUDGE)
    found = judge(Pack("evidence", claim, opening), suspect=scored(BOTH))
    page = describe(found)
    assert seals_of(page).keys() == {"leaves", "splits"}
    (answers,) = [table for table in parts(page, Table) if table.header[0] == "place in the mark"]
    assert len(answers.rows) == opening.n_opened
    assert {row[1] for row in answers.rows} == {"leaves", "splits"}
    assert {row[2] for row in answers.rows if row[1] == "splits"} == {"low", "high"}
    assert [row[0] for row in answers.rows] == [str(place) for place in opening.places]
    assert BAD not in page_html(found)


def test_a_page_of_a_dispute_shows_what_is_in_common_as_a_fact(tmp_path):
    ann = build_house(tmp_path / "ann", "Ann", staircase(1), seed=2)
    thief = build_house(tmp_path / "thief", BAD, ann.trees, seed=7)
    found = judge_dispute(party(ann), party(thief), suspect=thief.marked)
    page = describe(found)
    assert page.headline == "Ann was first."
    captions = [table.caption for table in parts(page, Table)]
    assert any("decides nothing" in caption for caption in captions)
    assert BAD not in page_html(found)
