"""The ledger while it is written: drawn questions of a guard, in batches, by a thread of their own.

Several processes may write to one file. Questions wait in memory for a moment, so that no answer
waits for the disk. A process that is killed loses at most what waited, and its session has no end
in the chain. What cannot be written waits; what waits too long is counted and becomes a gap in the
chain. `timbermark.guard.ledger_file` has the file itself, and reads it.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import secrets
import sqlite3
import threading
import time
import weakref
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from timbermark.dtypes import AnyArray
from timbermark.errors import InputError
from timbermark.guard.drawing import Drawn, take_rows
from timbermark.guard.ledger_file import (
    PATIENCE_SECONDS,
    QUESTION,
    RECORD,
    bind_entry,
    connect,
    ledger_key,
    make_cipher,
    make_file,
)
from timbermark.ownership.columns import Column, split_columns
from timbermark.verification.chain import (
    commit_guard,
    commit_questions,
    commit_record,
    first_head,
    next_head,
    tag_question,
)

_LOG = logging.getLogger("timbermark.guard")
BATCH_SECONDS = 0.05
"""How long a drawn question waits for others; a process that is killed loses no more than this."""
MOST_WAITING = 20_000
MAX_BYTES = 1 << 30
_CUT_SHARE = 0.1


@dataclass(slots=True)
class _Waiting:
    """What is not written yet."""

    questions: list[tuple[str, float, Drawn, Any]] = field(default_factory=list)
    asked: dict[str, int] = field(default_factory=dict)
    lost: dict[str, int] = field(default_factory=dict)  # by reason
    n_questions: int = 0

    def __bool__(self) -> bool:
        return bool(self.questions or self.asked or self.lost)


class Ledger:
    """A ledger file of one guard, open for writing.

    ``statement`` says publicly which guard it belongs to, ``secret`` is the guard's. The file is
    made if it is not there.

    Raises InputError if the file belongs to another guard or cannot be written.

    >>> import tempfile
    >>> from timbermark.guard.ledger_file import read_summary
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ledger = Ledger(folder + "/guard.db", {"owner": "Ann"}, bytes(32))
    ...     ledger.count("acme", 3)
    ...     ledger.close()
    ...     read_summary(folder + "/guard.db").clients
    (ClientSummary(client='acme', asked=3, drawn=0, cells=0),)
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        statement: Mapping[str, Any],
        secret: bytes,
        *,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self.path, self.max_bytes = os.fspath(path), max_bytes
        self._commitment, self._key = commit_guard(statement), ledger_key(secret)
        self._chain = make_file(self.path, statement, self._commitment)
        self._begin()
        _LEDGERS.add(self)

    def _begin(self) -> None:
        """Start a session: of this process, which after a fork is another one."""
        self._pid, self._session = os.getpid(), secrets.token_hex(8)
        self._condition = threading.Condition()
        self._writing = threading.Lock()
        self._waiting = _Waiting()
        self._thread: threading.Thread | None = None
        self._begun = self._closed = self._warned = False

    def count(self, client: str, asked: int) -> None:
        """Count questions of a client, drawn or not."""
        with self._ready() as waiting:
            waiting.asked[client] = waiting.asked.get(client, 0) + asked

    def add(self, client: str, drawn: Drawn, rows: Any) -> None:
        """Keep drawn questions: ``rows`` are a copy of theirs, in the order of ``drawn``."""
        with self._ready() as waiting:
            room = max(MOST_WAITING - waiting.n_questions, 0)
            if len(drawn.rows) > room:
                self._lose(waiting, "waiting", len(drawn.rows) - room)
                kept = _first_of_cells(drawn.cells, room)
                drawn, rows = drawn.take(kept), take_rows(rows, kept)
            if len(drawn.rows):
                waiting.questions.append((client, time.time(), drawn, rows))
                waiting.n_questions += len(drawn.rows)

    def add_gap(self, reason: str, count: int) -> None:
        """Keep a record that so many answers were given without the guard or without an entry."""
        with self._ready() as waiting:
            self._lose(waiting, reason, count)

    @staticmethod
    def _lose(waiting: _Waiting, reason: str, count: int) -> None:
        waiting.lost[reason] = waiting.lost.get(reason, 0) + count

    @contextmanager
    def _ready(self) -> Iterator[_Waiting]:
        if os.getpid() != self._pid:
            self._begin()
        with self._condition:
            yield self._waiting
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=_write_on, args=(self,), daemon=True)
                self._thread.start()
            self._condition.notify()

    def flush(self) -> bool:
        """Write what waits, now; return whether that worked."""
        with self._writing:
            with self._condition:
                batch, self._waiting = self._waiting, _Waiting()
            if not batch:
                return True
            try:
                self._write(batch)
            except (sqlite3.Error, OSError) as error:
                self._put_back(batch)
                if not self._warned:
                    _LOG.warning("the ledger %s cannot be written: %s", self.path, error)
                self._warned = True
                return False
            self._warned = False
            return True

    def _put_back(self, batch: _Waiting) -> None:
        with self._condition:
            later, self._waiting = self._waiting, batch
            batch.questions += later.questions
            batch.n_questions += later.n_questions
            for mine, theirs in ((batch.asked, later.asked), (batch.lost, later.lost)):
                for name, count in theirs.items():
                    mine[name] = mine.get(name, 0) + count

    def close(self) -> None:
        """Write what waits and end the session. A closed ledger may be used again."""
        if os.getpid() != self._pid:
            return
        with self._condition:
            self._closed, thread = True, self._thread
            self._condition.notify()
        if thread is not None:
            thread.join(PATIENCE_SECONDS)
        if self.flush() and self._begun:
            try:
                with self._writing:
                    self._write(_Waiting(), end=True)
            except (sqlite3.Error, OSError):
                return  # a session without an end is what the chain shows then
        with self._condition:
            self._thread, self._closed, self._begun = None, False, False
            self._session = secrets.token_hex(8)

    def _write(self, batch: _Waiting, end: bool = False) -> None:
        now, lost, sealed = time.time(), dict(batch.lost), []
        for client, at, drawn, rows in batch.questions:
            parts = _split(drawn, rows)
            sealed += [one for part in parts for one in self._seal(client, at, *part)]
            missing = len(drawn.rows) - sum(len(part.rows) for part, _ in parts)
            if missing:
                lost["row"] = lost.get("row", 0) + missing
        records: list[dict[str, Any]] = []
        if not self._begun:
            records.append({"begin": self._session, "pid": self._pid})
        after = [{"gap": reason, "count": count} for reason, count in lost.items()]
        after += [{"end": self._session}] if end else []
        with closing(connect(self.path)) as file, file:
            file.execute("BEGIN IMMEDIATE")
            seq, head = _last(file, self._chain, self._commitment)
            rows = []
            for kind, client, at, cell, entry, content in (
                *(_record(one, now) for one in records),
                *sealed,
                *(_record(one, now) for one in after),
            ):
                seq, head = seq + 1, next_head(head, entry)
                rows.append((self._chain, seq, kind, client, at, cell, entry, head, content))
            file.executemany("INSERT INTO entries VALUES (?,?,?,?,?,?,?,?,?)", rows)
            file.executemany(
                "INSERT INTO counts VALUES (?,?,?,?) ON CONFLICT DO UPDATE SET "
                "asked = asked + excluded.asked",
                [(self._chain, self._session, name, n) for name, n in batch.asked.items()],
            )
            _cut(file, self._chain, self.max_bytes)
        self._begun = True

    def _seal(
        self, client: str, at: float, drawn: Drawn, columns: tuple[Column, ...]
    ) -> Iterator[tuple[Any, ...]]:
        links = [secrets.token_bytes(32) for _ in drawn.cells]
        told = drawn.alphabets, drawn.symbols, drawn.reference
        committed = commit_questions(columns, *told, links)
        tags = (tag_question(self._key, client, cell) for cell in drawn.cells)
        entries = [tag + one for tag, one in zip(tags, committed, strict=True)]
        kinds = "".join("n" if isinstance(column, np.ndarray) else "t" for column in columns)
        cipher = make_cipher(self._key)
        values = (c.tolist() if isinstance(c, np.ndarray) else c for c in columns)
        for i, (entry, row) in enumerate(zip(entries, zip(*values, strict=True), strict=True)):
            plain = {
                "row": row,
                "kinds": kinds,
                "alphabet": drawn.alphabets[i].tolist(),
                "symbol": int(drawn.symbols[i]),
                "reference": drawn.reference[i].tolist(),
                "link": links[i].hex(),
            }
            nonce = secrets.token_bytes(12)
            content = cipher.encrypt(
                nonce, json.dumps(plain).encode(), bind_entry(client, at, entry)
            )
            yield QUESTION, client, at, drawn.cells[i], entry, nonce + content


def _first_of_cells(cells: Sequence[bytes], most: int) -> AnyArray:
    """Return the places of so many questions: the first of each cell before any second one.

    A request full of copies of a row drives out nothing else that is asked in it.
    """
    seen: Counter[bytes] = Counter()
    turns = []
    for cell in cells:
        turns.append(seen[cell])
        seen[cell] += 1
    return np.sort(np.argsort(turns, kind="stable")[:most])


_LEDGERS: weakref.WeakSet[Ledger] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for ledger in list(_LEDGERS):
        ledger.close()


def _write_on(ledger: Ledger) -> None:
    """Write batches until the ledger is closed; wait longer and longer while that fails."""
    pause = BATCH_SECONDS
    while True:
        with ledger._condition:
            while not ledger._waiting and not ledger._closed:
                ledger._condition.wait()
            if ledger._closed:
                return
        time.sleep(pause)
        pause = BATCH_SECONDS if ledger.flush() else min(2.0 * pause, 5.0)


def _last(file: sqlite3.Connection, chain: str, commitment: bytes) -> tuple[int, bytes]:
    for table in ("entries", "cuts"):
        found = file.execute(
            f"SELECT seq, head FROM {table} WHERE chain = ? ORDER BY seq DESC LIMIT 1", (chain,)
        ).fetchone()
        if found is not None:
            return int(found[0]), bytes(found[1])
    return 0, first_head(commitment, bytes.fromhex(chain))


def _cut(file: sqlite3.Connection, chain: str, max_bytes: int) -> None:
    """Drop the oldest entries of a file that is too large; their pages are used again."""
    (size,), (free,), (page,) = (
        file.execute(f"PRAGMA {name}").fetchone()
        for name in ("page_count", "freelist_count", "page_size")
    )
    if (size - free) * page <= max_bytes:
        return
    first, last = file.execute(
        "SELECT MIN(seq), MAX(seq) FROM entries WHERE chain = ?", (chain,)
    ).fetchone()
    if first is None:
        return
    at = first + int(_CUT_SHARE * (last - first))
    (head,) = file.execute(
        "SELECT head FROM entries WHERE chain = ? AND seq = ?", (chain, at)
    ).fetchone()
    (n,) = file.execute(
        "SELECT COUNT(*) FROM entries WHERE chain = ? AND seq <= ? AND kind = 0", (chain, at)
    ).fetchone()
    file.execute("DELETE FROM entries WHERE chain = ? AND seq <= ?", (chain, at))
    file.execute("DELETE FROM stamps WHERE chain = ? AND seq < ?", (chain, at))
    file.execute(
        "INSERT INTO cuts VALUES (?,?,?,?) ON CONFLICT DO UPDATE SET seq = excluded.seq, "
        "head = excluded.head, questions = questions + excluded.questions",
        (chain, at, head, n),
    )


def _split(drawn: Drawn, rows: Any) -> list[tuple[Drawn, tuple[Column, ...]]]:
    """Return drawn questions with their rows as columns, without rows that no mark can hold."""
    try:
        return [(drawn, split_columns(rows))]
    except InputError:
        if len(drawn.rows) == 1:
            return []
    each = [np.array([i]) for i in range(len(drawn.rows))]
    return [part for i in each for part in _split(drawn.take(i), take_rows(rows, i))]


def _record(given: Mapping[str, Any], now: float) -> tuple[Any, ...]:
    content = json.dumps(given, sort_keys=True).encode()
    return RECORD, "", now, None, commit_record(content), content
