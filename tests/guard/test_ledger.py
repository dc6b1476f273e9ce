import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import timbermark as tm
from timbermark.errors import EvidenceError, FileFormatError, InputError
from timbermark.guard import ledger as ledgers
from timbermark.guard.drawing import Drawn
from timbermark.guard.ledger import Ledger
from timbermark.guard.ledger_file import merge, read_chains, read_questions, read_summary

STATEMENT = {"owner": "Ann", "guard": "00"}
SECRET = bytes(range(32))


def some(first, n=10):
    """Drawn questions, and their rows."""
    numbers = np.arange(first, first + n)
    drawn = Drawn(
        rows=numbers - first,
        alphabets=np.tile([0, 1], (n, 1)),
        symbols=(numbers % 2).astype(np.uint8),
        spread=np.ones(n),
        cells=tuple(int(i).to_bytes(8, "little") for i in numbers),
        reference=np.full((n, 2), 0.5),
    )
    return drawn, np.column_stack([numbers + 0.125, numbers * 1000.0])


def make(path, batches=3, **options):
    ledger = Ledger(path, STATEMENT, SECRET, **options)
    for batch in range(batches):
        ledger.count("acme", 100)
        ledger.add("acme", *some(10 * batch))
        ledger.flush()
    ledger.close()
    return ledger


def test_what_was_drawn_comes_back(tmp_path):
    make(tmp_path / "a.db")
    found = read_questions(tmp_path / "a.db", SECRET, clients=["acme"])
    assert [question.row for question in found] == [(i + 0.125, i * 1000.0) for i in range(30)]
    assert [question.symbol for question in found] == [i % 2 for i in range(30)]
    (client,) = read_summary(tmp_path / "a.db").clients
    assert (client.asked, client.drawn, client.cells) == (300, 30, 30)
    assert read_questions(tmp_path / "a.db", SECRET, clients=["nobody"]) == []


def test_two_questions_of_one_cell_count_once(tmp_path):
    ledger = Ledger(tmp_path / "a.db", STATEMENT, SECRET)
    for _ in range(3):
        ledger.add("acme", *some(0))
    ledger.close()
    (client,) = read_summary(tmp_path / "a.db").clients
    assert (client.drawn, client.cells) == (30, 10)
    assert len(read_questions(tmp_path / "a.db", SECRET)) == 10


def test_rows_are_encrypted_and_bound_to_client_and_time(tmp_path):
    make(tmp_path / "a.db")
    content = (tmp_path / "a.db").read_bytes()
    assert b"7000.0" not in content
    with pytest.raises(EvidenceError) as caught:
        read_questions(tmp_path / "a.db", bytes(32))
    assert caught.value.code == "ledger.key"
    with sqlite3.connect(tmp_path / "a.db") as file:
        file.execute("UPDATE entries SET client = 'other' WHERE seq = 5")
    with pytest.raises(EvidenceError) as caught:
        read_questions(tmp_path / "a.db", SECRET)
    assert caught.value.code == "ledger.key"


@pytest.mark.parametrize(
    "change",
    [
        "DELETE FROM entries WHERE seq = 7",
        "DELETE FROM entries WHERE seq = 1",
        "UPDATE entries SET entry = zeroblob(32) WHERE seq = 7",
        "UPDATE entries SET head = zeroblob(32) WHERE seq = 7",
        "UPDATE entries SET content = '{}' WHERE kind = 1 AND seq = 1",
    ],
)
def test_the_chain_shows_changes(tmp_path, change):
    make(tmp_path / "a.db")
    (chain,) = read_chains(tmp_path / "a.db")
    assert len(chain.entries) == 32  # 30 questions, a beginning and an end
    with sqlite3.connect(tmp_path / "a.db") as file:
        file.execute(change)
    with pytest.raises(EvidenceError) as caught:
        read_chains(tmp_path / "a.db")
    assert caught.value.code == "ledger.chain"


def test_ledgers_of_replicas_merge_once(tmp_path):
    make(tmp_path / "a.db")
    make(tmp_path / "b.db", batches=5)
    before = (tmp_path / "b.db").read_bytes()
    assert merge(tmp_path / "a.db", [tmp_path / "b.db"]) == 52
    assert merge(tmp_path / "a.db", [tmp_path / "b.db"]) == 0
    assert (tmp_path / "b.db").read_bytes() == before
    assert len(read_chains(tmp_path / "a.db")) == 2
    found = read_summary(tmp_path / "a.db")
    assert (found.clients[0].asked, found.clients[0].drawn, found.clients[0].cells) == (800, 80, 50)
    Ledger(tmp_path / "c.db", {"owner": "Eve"}, SECRET).close()
    with pytest.raises(InputError) as caught:
        merge(tmp_path / "a.db", [tmp_path / "c.db"])
    assert caught.value.code == "ledger.other-guard"


def test_a_ledger_that_rotated_between_merges_is_refused(tmp_path):
    make(tmp_path / "a.db")
    make(tmp_path / "b.db")
    merge(tmp_path / "a.db", [tmp_path / "b.db"])
    make(tmp_path / "b.db", batches=60, max_bytes=60_000)
    assert read_summary(tmp_path / "b.db").rotated > 40
    with pytest.raises(InputError) as caught:
        merge(tmp_path / "a.db", [tmp_path / "b.db"])
    assert caught.value.code == "ledger.hole"
    assert len(read_chains(tmp_path / "a.db")) == 2


def test_a_full_disk_stops_no_answer_and_what_is_lost_is_a_gap(tmp_path, monkeypatch):
    ledger = Ledger(tmp_path / "a.db", STATEMENT, SECRET)
    monkeypatch.setattr(ledgers, "MOST_WAITING", 25)
    connect = ledgers.connect

    def full(path):
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(ledgers, "connect", full)
    for batch in range(5):
        ledger.count("acme", 100)
        ledger.add("acme", *some(10 * batch))
        assert not ledger.flush()
    monkeypatch.setattr(ledgers, "connect", connect)
    ledger.close()
    found = read_summary(tmp_path / "a.db")
    assert (found.clients[0].asked, found.clients[0].drawn) == (500, 25)
    assert found.gaps == ({"gap": "waiting", "count": 25},)
    read_chains(tmp_path / "a.db")


def test_copies_of_a_row_drive_out_nothing_else_of_a_request(tmp_path, monkeypatch):
    monkeypatch.setattr(ledgers, "MOST_WAITING", 25)
    ledger = Ledger(tmp_path / "a.db", STATEMENT, SECRET)
    places = np.array([0] * 30 + list(range(10)))
    drawn, rows = some(0)
    ledger.add("acme", drawn.take(places), rows[places])
    ledger.close()
    (client,) = read_summary(tmp_path / "a.db").clients
    assert (client.drawn, client.cells) == (25, 10)
    assert read_summary(tmp_path / "a.db").gaps == ({"gap": "waiting", "count": 15},)


def test_a_row_that_no_mark_can_hold_is_a_gap_of_one(tmp_path):
    ledger = Ledger(tmp_path / "a.db", STATEMENT, SECRET)
    drawn, rows = some(0)
    rows[3, 0] = np.inf
    ledger.add("acme", drawn, rows)
    ledger.close()
    found = read_summary(tmp_path / "a.db")
    assert (found.clients[0].drawn, found.gaps) == (9, ({"gap": "row", "count": 1},))


def test_the_size_is_bounded_and_the_chain_holds(tmp_path):
    path = tmp_path / "a.db"
    make(path, batches=60, max_bytes=100_000)
    found = read_summary(path)
    assert found.rotated > 0
    assert path.stat().st_size < 200_000
    (chain,) = read_chains(path)
    assert chain.first + len(chain.entries) == 602
    kept = read_questions(path, SECRET)
    assert kept[-1].row[0] == 599.125
    assert len(kept) + found.rotated == 600


def test_a_clock_that_goes_back_is_told(tmp_path, monkeypatch):
    ledger = Ledger(tmp_path / "a.db", STATEMENT, SECRET)
    ledger.add("acme", *some(0))
    ledger.flush()
    monkeypatch.setattr(ledgers.time, "time", lambda: 1_000_000.0)
    ledger.add("acme", *some(10))
    ledger.close()
    assert read_summary(tmp_path / "a.db").clock_steps == 1
    assert len(read_questions(tmp_path / "a.db", SECRET)) == 20


def test_what_is_no_ledger_is_refused(tmp_path):
    (tmp_path / "a.db").write_bytes(b"no ledger" * 100)
    with pytest.raises(FileFormatError) as caught:
        read_summary(tmp_path / "a.db")
    assert caught.value.code == "ledger.foreign"
    with sqlite3.connect(tmp_path / "b.db") as file:
        file.execute("CREATE TABLE about (name TEXT, value TEXT)")
    with pytest.raises(FileFormatError):
        read_summary(tmp_path / "b.db")


_SERVE = """
import sys
from tests.guard.test_ledger import STATEMENT, SECRET, some
from timbermark.guard.ledger import Ledger
ledger = Ledger(sys.argv[1], STATEMENT, SECRET)
for i in range(int(sys.argv[2]), 10_000_000, 1):
    ledger.add(sys.argv[3], *some(10 * i))
    if i % 3 == 2 and ledger.flush():
        print(10 * i, flush=True)
"""


def test_processes_write_together_and_one_that_is_killed_loses_its_last_batch(tmp_path):
    path = tmp_path / "a.db"
    root = Path(__file__).parents[2]
    paths = os.pathsep.join([str(root), str(Path(tm.__file__).parents[1])])
    made = [
        subprocess.Popen(
            [sys.executable, "-c", _SERVE, str(path), str(1_000_000 * i), f"client {i}"],
            stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": paths},
        )
        for i in range(3)
    ]  # fmt: skip
    told = [[int(one.stdout.readline()) for _ in range(20)] for one in made]
    for one, written in zip(made, told, strict=True):
        one.send_signal(signal.SIGKILL)
        # The last line may be cut.
        written += [int(line) for line in one.communicate()[0].splitlines()[:-1]]
    read_chains(path)
    found = read_summary(path)
    assert found.open_sessions == 3
    assert len(found.clients) == 3
    kept = {question.row[0] for question in read_questions(path, SECRET)}
    for number, written in enumerate(told):
        first = 10_000_000 * number
        assert all(i + 0.125 in kept for i in range(first, max(written) + 10))


def test_a_fork_begins_a_session_of_its_own(tmp_path):
    ledger = Ledger(tmp_path / "a.db", STATEMENT, SECRET)
    ledger.add("acme", *some(0))
    ledger.flush()
    child = os.fork()
    if child == 0:
        ledger.add("child", *some(10))
        ledger.flush()
        os._exit(0)
    os.waitpid(child, 0)
    ledger.close()
    found = read_summary(tmp_path / "a.db")
    assert [client.client for client in found.clients] == ["acme", "child"]
    assert found.open_sessions == 1
