"""Ctrl-C at several moments: exit code 130, what is left behind is said, and there is no traceback.

A command runs in a process of its own, which stops where a function is called and says so; then it
is sent a real SIGINT.
"""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import timbermark as tm
from tests.verification.making import learnt, make_mark
from tests.verification.servers import ModelServer

pytestmark = pytest.mark.skipif(os.name != "posix", reason="other systems have no SIGINT to send")

RUN = """
import importlib, sys, time
module, _, name = sys.argv.pop(1).partition(":")
module, _, other = module.partition("!")
def stop(*_, **__):
    print("here", flush=True)
    try:
        time.sleep(60)
    except KeyboardInterrupt:
        raise RuntimeError if other else KeyboardInterrupt
if name:
    importlib.import_module("timbermark.cli.app")
    setattr(importlib.import_module(module), name, stop)
elif module:
    class Finder:
        def find_spec(self, wanted, *_):
            stop() if wanted == module else None
    sys.meta_path.insert(0, Finder())
else:
    print("here", flush=True)
from timbermark.__main__ import run
run()
"""
EMBED = "embed model.timber --train rows.csv --label y --key key --owner Ann --seals splits"
EMBED += " --out out.timber --mark out.mark --json"
NOTHING = "timbermark: Interrupted. Nothing was written.\n"


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    """A folder with a model, its rows and a key."""
    place = tmp_path_factory.mktemp("house")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 4)).round(4)
    y = (X[:, 0] + X[:, 1] ** 2 > 0.6).astype(int)
    tm.TimberClassifier(max_iter=40, random_state=0).fit(X, y).save(place / "model.timber")
    tm.OwnerKey.generate().save(place / "key")
    lines = [",".join(f"{v:g}" for v in (*row, label)) for row, label in zip(X, y, strict=True)]
    (place / "rows.csv").write_text("\n".join(["a,b,c,d,y", *lines]) + "\n")
    return place


def start(where, command, folder):
    """Start a command that stops at a place of the code, and wait until it is there."""
    source = str(Path(tm.__file__).parents[1])
    process = subprocess.Popen(
        [sys.executable, "-c", RUN, where, *command.split()], cwd=folder, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "PYTHONPATH": source},
        # Whoever is started in the background of a shell is born deaf to SIGINT.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    assert process.stdout.readline() == "here\n"
    return process


def interrupt(process):
    """Send SIGINT, and return what the command says about it on stderr."""
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=60)[1]
    assert "Traceback" not in said
    return process.returncode, said


@pytest.mark.parametrize(
    "where",
    [
        "typer",  # while modules are imported
        "numpy",
        "typer!",  # and the interruption has become another error
        "numpy!",
        "timbermark.cli.tables!:read_table",
        "timbermark.cli.tables:read_table",
        "timbermark.marking.sealing:draft_mark",
        "timbermark.marking.models:save",  # the model is being written
        "timbermark.files.encrypting:_write_new",  # the mark is being written
        "timbermark.cli.outputs:will_write",  # the mark is there, the model is not
    ],
)
def test_an_interrupted_embed_leaves_nothing_and_says_so(where, house):
    before = sorted(house.iterdir())
    assert interrupt(start(where, EMBED, house)) == (130, NOTHING)
    assert sorted(house.iterdir()) == before


def test_files_that_are_left_are_named(house):
    code, said = interrupt(start("timbermark.cli.marking:_show_made", EMBED, house))
    assert (code, said) == (130, "timbermark: Interrupted. Left behind: out.mark, out.timber.\n")
    for name in ("out.mark", "out.timber"):
        (house / name).unlink()


def test_any_moment_is_as_good(house):
    """At moments that nobody chose, what is said is what is there."""
    rng = random.Random(0)
    before = set(house.iterdir())
    for _ in range(4):
        process = start("", EMBED, house)
        time.sleep(rng.uniform(0.05, 2.5))
        code, said = interrupt(process)
        left = sorted(path.name for path in set(house.iterdir()) - before)
        assert code in (0, 130)
        if code == 130:
            assert left in ([], ["out.mark"], ["out.mark", "out.timber"])
            assert said.endswith(f"Left behind: {', '.join(left)}.\n" if left else NOTHING)
        for name in left:
            (house / name).unlink()


def test_an_interrupted_inquiry_names_its_journal(tmp_path):
    mark = make_mark(k=32, d=5)
    mark.save(tmp_path / "mark")
    answer, asked, open_again = learnt(mark), threading.Event(), threading.Event()

    def wait(rows):
        if server.requests > 3:
            asked.set()
            open_again.wait(60)
        return answer(rows)

    with ModelServer(wait) as server:
        command = f"verify {server.url()} mark --journal run.journal --decoys 0 --stop-at off"
        process = start("", command, tmp_path)
        assert asked.wait(60)
        threading.Timer(0.3, open_again.set).start()
        code, said = interrupt(process)
    assert code == 130
    assert "Left behind: run.journal.\nHint: the same command goes on from the journal" in said
    assert (tmp_path / "run.journal").read_bytes().count(b'"answers"') >= 3
