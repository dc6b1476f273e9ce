"""What the README shows works as it stands: its Python, its commands, its links."""

import re
import shlex
import tomllib
from pathlib import Path

import numpy as np
import pytest

import timbermark as tm
from tests.verification.servers import ModelServer
from timbermark.cli import main

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", README, re.MULTILINE | re.DOTALL))
ADDRESS = "https://host/invocations"
NAMES = [f"pixel_{place}" for place in range(64)]


def answer_as_marked(rows):
    return tm.load("marked.json").predict_proba(rows.astype(float)).tolist()


def block(section, language):
    (found,) = re.findall(rf"```{language}\n(.*?)```", SECTIONS[section], re.DOTALL)
    return found


@pytest.fixture(scope="module")
def python_block():
    """What the Python of the README leaves behind."""
    names = {}
    exec(compile(block("In Python", "python"), "README.md", "exec"), names)
    return names


def test_the_python_block_does_what_its_comments_say(python_block):
    made = python_block["made"]
    assert type(made.model) is type(python_block["model"])
    assert tm.verify(made.model, made.mark).level == "conclusive"
    assert tm.verify(python_block["model"], made.mark).level == "none"


def test_the_commands_work_in_their_order(python_block, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    python_block["model"].save_model("model.json")
    table = np.column_stack([python_block["X"], python_block["y"]])
    for name, rows in (("rows.csv", table), ("thief.csv", table[::4])):
        header = ",".join([*NAMES, "y"])
        np.savetxt(name, rows, fmt="%g", delimiter=",", header=header, comments="")
    lines = block("On the command line", "sh").replace("\\\n", " ").splitlines()
    commands = [shlex.split(line, comments=True) for line in lines]
    assert len(commands) == 13
    for program, *words in commands:
        assert program == "timbermark"
        if ADDRESS not in words:
            assert main(words) == 0, words
            continue
        with ModelServer(answer_as_marked) as server:
            words[words.index(ADDRESS)] = server.url()
            assert main(words) == 0, words
    capfd.readouterr()
    left = {path.name for path in tmp_path.iterdir()}
    assert {"questions.csv", "run.journal", "pack.zip", "evidence"} <= left


def test_the_two_commands_are_those_of_dev():
    usage = (ROOT / "dev").read_text(encoding="utf-8")
    commands = re.findall(r"^\./dev (\S+)", block("Two commands", "sh"), re.MULTILINE)
    assert commands == ["demo", "test"]
    for command in re.findall(r"\./dev ([a-z-]+)", README):
        assert re.search(rf"^{command}\)$", usage, re.MULTILINE), command


def test_the_extras_are_those_of_the_package():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (told,) = re.findall(r"^Extras: (.*?)\. Whoever", README, re.MULTILINE | re.DOTALL)
    assert set(re.findall(r"`([\w-]+)`", told)) == set(project["optional-dependencies"])


PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_link_leads_nowhere(page):
    targets = re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8"))
    assert targets or page.name != "README.md"
    assert [t for t in targets if "://" not in t and not (page.parent / t).exists()] == []
