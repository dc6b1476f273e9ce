"""A run that is killed again and again, and resumed, against a server that counts."""

import json
import math
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import timbermark
from tests.verification.making import learnt, make_mark
from tests.verification.servers import ModelServer
from timbermark.verification.questions import make_questions

DELAY = 0.03
ATTEMPTS = 20
AHEAD = 4  # answers by which a run may be ahead of the one who kills it
SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT)


class Gate:
    """Lets a model give so many answers and no more, so that no run ends before it is killed."""

    def __init__(self, answer):
        self.answer, self.given, self.limit = answer, 0, math.inf
        self.moved = threading.Condition()

    def __call__(self, rows):
        with self.moved:
            self.moved.wait_for(lambda: self.given < self.limit)
            self.given += 1
        return self.answer(rows)

    def open(self, limit=math.inf):
        with self.moved:
            self.limit = self.given + limit
            self.moved.notify_all()


def run_with_kills(folder, n_kills, decoys=3, seed=0):
    """Return the verdicts with and without kills, and what the server counted."""
    rng = random.Random(seed)
    mark = make_mark(k=128, d=5)
    mark.save(folder / "mark")
    answer = learnt(mark)
    gate = Gate(answer)
    with ModelServer(gate, delay=DELAY) as server:
        done = 0
        for _ in range(n_kills):
            words = command(server, folder, "journal", decoys)
            done += kill_once(words, folder / "journal", gate, rng)
        last = finish(command(server, folder, "journal", decoys))
    with ModelServer(answer) as other:
        whole = finish(command(other, folder, "other", decoys))
    asked = make_questions(mark, decoys)
    rows = [tuple(q.values) for part in asked.values() for block in part.blocks for q in block]
    return {
        "kills": done,
        "same_verdict": all(last[name] == whole[name] for name in ("bits", "seals", "prices")),
        "level": last["level"],
        "bits": last["bits"],
        "questions": len(rows),
        "asked_twice": sum(count > 1 for count in server.asked.values()),
        "lost": len(set(rows) - set(server.asked)),
        "strange": len(set(server.asked) - set(rows)),
        "answered": sum(seal["answered"] for seal in last["seals"]),
    }


def command(server, folder, journal, decoys):
    words = ["verify", server.url(), str(folder / "mark"), "--journal", str(folder / journal)]
    words += ["--decoys", str(decoys), "--stop-at", "off", "--json"]
    # Nobody waits: what is asked twice shall be asked twice by the run, not by a time-out.
    return [sys.executable, "-m", "timbermark", *words, "--timeout", "120"]


def start(words):
    here = {**os.environ, "PYTHONPATH": str(Path(timbermark.__file__).parents[1])}
    return subprocess.Popen(words, env=here, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)


def finish(words):
    process = start(words)
    said, _ = process.communicate()
    return json.loads(said)


def kill_once(words, journal, gate, rng):
    """Kill a run some answers after its beginning, wherever it then is; 0 if none could be.

    It is started again, as people would.
    """
    return int(any(try_to_kill(words, journal, gate, rng) for _ in range(ATTEMPTS)))


def try_to_kill(words, journal, gate, rng):
    more = rng.randint(0, 9)
    wanted = answers_in(journal) + more
    gate.open(more + AHEAD)
    process = start(words)
    while process.poll() is None and answers_in(journal) < wanted:
        time.sleep(0.001)
    time.sleep(rng.uniform(0, 2 * DELAY))
    ended = process.poll() is not None
    process.send_signal(rng.choice(SIGNALS))
    gate.open()  # one that ends in order waits for the answer that is under way
    process.communicate()
    return not ended


def answers_in(journal):
    return journal.read_bytes().count(b'"answers"') if journal.exists() else 0
