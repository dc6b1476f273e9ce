"""SECURITY.md: every promise names tests that exist; and two promises that are about everything."""

import ast
import re
import socket
from pathlib import Path

import numpy as np

import timbermark as tm
from tests.ownership.making import KEY, make_mark, obedient
from timbermark.ownership import Claim, open_mark
from timbermark.verification.packs import Pack

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def rows_of(title):
    """The first cells of the table under a title, with their rows."""
    part = PAGE.split(f"### {title}\n")[1].split("\n### ")[0]
    rows = [line for line in part.splitlines() if line.startswith("| ")][1:]
    return {row.split(" | ")[0].removeprefix("| "): row for row in rows}


def test_every_promise_names_tests_that_exist():
    promised = rows_of("What is promised, whatever anybody does")
    kept = rows_of("Which test keeps which promise")
    assert len(promised) > 8
    assert promised.keys() == kept.keys()
    for row in kept.values():
        named = NAMED.findall(row)
        assert named, row
        for path, name in named:
            tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
            known = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
            assert name in known, f"{path}::{name}"


def test_nothing_that_we_read_or_write_is_a_pickle():
    wrong = []
    for path in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                names += [node.func.id] if node.func.id in ("eval", "exec") else []
            if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
                names += [] if getattr(node.value, "value", None) is False else ["allow_pickle"]
            banned = ("pickle", "dill", "cloudpickle", "marshal", "shelve", "eval", "exec",
                      "allow_pickle")  # fmt: skip
            wrong += [f"{path}:{name}" for name in names if name.partition(".")[0] in banned]
    assert not wrong


def test_nothing_is_sent_by_claiming_opening_and_judging(monkeypatch):
    def refuse(*_):
        raise AssertionError("somebody tried to connect")

    for name in ("connect", "connect_ex", "sendto"):
        monkeypatch.setattr(socket.socket, name, refuse)
    mark = make_mark(64)
    claim = Claim.make(mark, KEY, marked_digest="1" * 64)
    opening = open_mark(mark, claim, judge="Judge Judy", share=1.0, force=True)
    suspect = obedient(mark)
    assert tm.verify(suspect, mark).level == "conclusive"
    judgment = tm.judge(Pack("evidence", claim, opening), suspect=suspect)
    assert judgment.level == "conclusive"
    assert np.isfinite(judgment.bits)
