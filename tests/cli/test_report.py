"""--report on the command line: refused before the long work, written at its end."""

import sys

import pytest

from tests.verification.servers import ModelServer
from tests.verification.staircases import JUDGE, build_house, scores, staircase
from timbermark.cli import main
from timbermark.verification.packs import read_pack


@pytest.fixture(scope="module")
def ann(tmp_path_factory):
    return build_house(tmp_path_factory.mktemp("report") / "ann", "Ann", staircase(1), 1)


def run(*words: object) -> int:
    return main([str(word) for word in words])


def test_verify_writes_a_page(ann, tmp_path, capsys):
    page = tmp_path / "page.html"
    words = ("verify", ann.marked, ann.folder / "secret.mark", "--report", page)
    assert run(*words) == 0
    assert f"{page}: the page" in capsys.readouterr().out
    text = page.read_text("utf-8")
    assert "The suspect carries the mark of Ann." in text
    assert "timbermark verify" in text
    assert run(*words) == 2
    assert "exists already" in capsys.readouterr().err
    assert run(*words, "--force") == 0
    assert run("verify", ann.unmarked, ann.folder / "secret.mark", "--report", page, "--force") == 1
    assert "No evidence" in page.read_text("utf-8")


def test_judge_writes_a_page_and_packs_it(ann, tmp_path, capsys):
    words = ("judge", ann.evidence, "--suspect", ann.marked, "--for", JUDGE)
    assert run(*words, "--report", tmp_path / "page.html", "--out", tmp_path / "pack.zip") == 0
    assert "The answers" in (tmp_path / "page.html").read_text("utf-8")
    assert b"The answers" in read_pack(tmp_path / "pack.zip").page
    assert run("judge", tmp_path / "pack.zip") == 0
    capsys.readouterr()


def test_a_dispute_writes_a_page(ann, tmp_path, capsys):
    thief = build_house(tmp_path / "thief", "Thief", ann.trees, 2)
    page = tmp_path / "page.html"
    words = (
        "judge", ann.evidence, "--marked", ann.marked, "--against", thief.evidence,
        "--against-marked", thief.marked,
    )  # fmt: skip
    assert run(*words, "--report", page) == 0
    assert "Ann was first." in page.read_text("utf-8")
    assert page.stat().st_mode & 0o777 == 0o600
    capsys.readouterr()


def test_a_page_is_refused_before_anybody_is_asked(ann, tmp_path, capsys):
    mark = ann.folder / "secret.mark"
    (tmp_path / "page.html").write_text("mine")
    with ModelServer(lambda X: scores(ann.trees, X)) as server:
        for page, said in (
            (tmp_path / "page.html", "exists already"),
            (tmp_path, "is a folder"),
            (tmp_path / "no" / "page.html", "does not exist"),
            (mark, "the mark and --report are the same file"),
        ):
            assert run("verify", server.url(), mark, "--report", page) == 2
            assert said in capsys.readouterr().err
            words = ("judge", ann.evidence, "--suspect", server.url(), "--report", page)
            assert run(*words) == 2
            capsys.readouterr()
        assert server.requests == 0
    assert (tmp_path / "page.html").read_text() == "mine"


def test_missing_packages_are_said_before_anybody_is_asked(ann, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    mark = ann.folder / "secret.mark"
    assert run("verify", ann.marked, mark, "--report", tmp_path / "page.html") == 2
    assert 'pip install "timbermark[report]"' in capsys.readouterr().err
    assert run("judge", ann.evidence, "--suspect", ann.marked, "--out", tmp_path / "pack.zip") == 0
    assert "The pack holds no page" in capsys.readouterr().err
    assert read_pack(tmp_path / "pack.zip").page is None


def test_a_judge_asks_a_server_with_a_token(ann, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("TOKEN", "open-sesame")
    with ModelServer(lambda X: scores(ann.trees, X), token="open-sesame") as server:
        words = ("judge", ann.evidence, "--suspect", server.url(), "--stop-at", "off")
        assert run(*words) == 2
        assert "token" in capsys.readouterr().err
        journal = tmp_path / "run.journal"
        flags = ("--token-env", "TOKEN", "--journal", journal, "--decoys", "0", "--batch", "16")
        assert run(*words, *flags, "--out", tmp_path / "pack.zip") == 0
        asked = server.requests
        assert run(*words, *flags, "--out", tmp_path / "again.zip") == 2
        assert "--trust-journal" in capsys.readouterr().err
        trusting = ("--trust-journal", "--out", tmp_path / "again.zip")
        assert run(*words, *flags, *trusting) == 0
        assert server.requests == asked  # the journal knows all answers
    assert run("judge", tmp_path / "pack.zip") == 0
    capsys.readouterr()


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--batch", "3"], "--batch is given without an endpoint after --suspect"),
        (["--journal", "j"], "--journal is given without"),
        (["--suspect", "{marked}", "--batch", "3"], "--batch is for endpoints"),
        (["--suspect", "{marked}", "--decoys", "3"], "--decoys is for endpoints"),
        (["--suspect", "{marked}", "--against", "{evidence}", "--decoys", "3"], "with --against"),
    ],
)
def test_options_of_servers_are_for_servers(ann, capsys, flags, said):
    names = {"marked": ann.marked, "evidence": ann.evidence}
    assert run("judge", ann.evidence, *(flag.format(**names) for flag in flags)) == 2
    assert said in capsys.readouterr().err
