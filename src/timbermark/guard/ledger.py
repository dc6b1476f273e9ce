"""The ledger: every drawn question with client and time, encrypted, in a hash chain, in SQLite.

Several processes may write to one file. Questions wait in memory for a moment and are written in
batches by a thread of their own, so that no answer waits for the disk. A process that is killed
loses at most what waited, and its session has no end in the chain. What cannot be written waits;
what waits too long is counted and becomes a gap in the chain. docs/guard.md has the tables.
"""

from __future__ import annotations

import atexit
import hashlib
import hmac
import json
import logging
import os
import secrets
import sqlite3
import threading
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from timbermark.errors import EvidenceError, FileFormatError, InputError
from timbermark.guard.drawing import Drawn, take_rows
from timbermark.ownership.columns import Column, split_columns
from timbermark.ownership.encoding import encode, is_unicode
from timbermark.verification.chain import (
    Chain,
    Head,
    commit_guard,
    commit_questions,
    first_head,
    next_head,
)

_LOG = logging.getLogger("timbermark.guard")
FORMAT = 1
BATCH_SECONDS = 0.05
"""How long a drawn question waits for others; a process that is killed loses no more than this."""
MOST_WAITING = 20_000
MAX_BYTES = 1 << 30
LONGEST_CLIENT = 200
_CUT_SHARE = 0.1
_PATIENCE_SECONDS = 30.0
_QUESTION, _RECORD = 0, 1
_SCHEMA = """
CREATE TABLE about (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE entries (
    chain TEXT NOT NULL, seq INTEGER NOT NULL, kind INTEGER NOT NULL, client TEXT NOT NULL,
    time REAL NOT NULL, cell BLOB, entry BLOB NOT NULL, head BLOB NOT NULL, content BLOB NOT NULL,
    PRIMARY KEY (chain, seq)
);
CREATE TABLE counts (
    chain TEXT NOT NULL, session TEXT NOT NULL, client TEXT NOT NULL, asked INTEGER NOT NULL,
    PRIMARY KEY (chain, session, client)
);
CREATE TABLE cuts (
    chain TEXT PRIMARY KEY, seq INTEGER NOT NULL, head BLOB NOT NULL, questions INTEGER NOT NULL
);
CREATE TABLE stamps (
    chain TEXT NOT NULL, seq INTEGER NOT NULL, response BLOB NOT NULL,
    PRIMARY KEY (chain, seq, response)
);
"""


@dataclass(frozen=True, slots=True, eq=False)
class Question:
    """A drawn question as the ledger gives it back."""

    client: str
    time: float
    cell: bytes
    row: tuple[Any, ...]  # numbers and texts
    kinds: str  # "n" or "t" for each column
    alphabet: tuple[int, int]
    symbol: int
    reference: tuple[float, ...]
    link: bytes


@dataclass(frozen=True, slots=True)
class ClientSummary:
    """What one client asked: all questions, drawn ones, and distinct cells among these."""

    client: str
    asked: int
    drawn: int
    cells: int


@dataclass(frozen=True, slots=True)
class Summary:
    """What a ledger holds, in numbers."""

    statement: Mapping[str, Any]
    clients: tuple[ClientSummary, ...]
    entries: int
    chains: int
    stamped: int  # entries before the last stamp of their chain, verified or not
    open_sessions: int  # begun and not ended: running now, or killed
    gaps: tuple[Mapping[str, Any], ...]  # questions that were answered and not written, and why
    rotated: int  # questions that were dropped to keep the file small
    clock_steps: int  # entries whose time is before that of the entry before


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
        self._chain = _make_file(self.path, statement, self._commitment)
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
            if waiting.n_questions + len(drawn.rows) > MOST_WAITING:
                self._lose(waiting, "waiting", len(drawn.rows))
                return
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
            thread.join(_PATIENCE_SECONDS)
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
        with closing(_connect(self.path)) as file, file:
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
        entries = commit_questions(columns, drawn.alphabets, drawn.symbols, links)
        kinds = "".join("n" if isinstance(column, np.ndarray) else "t" for column in columns)
        cipher = _cipher(self._key)
        for i, entry in enumerate(entries):
            plain = {
                "row": [_value(column[i]) for column in columns],
                "kinds": kinds,
                "alphabet": drawn.alphabets[i].tolist(),
                "symbol": int(drawn.symbols[i]),
                "reference": drawn.reference[i].tolist(),
                "link": links[i].hex(),
            }
            nonce = secrets.token_bytes(12)
            content = cipher.encrypt(nonce, json.dumps(plain).encode(), _bound(client, at, entry))
            yield _QUESTION, client, at, drawn.cells[i], entry, nonce + content


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


def clean_client(client: Any) -> str:
    """Return a client's name as the ledger keeps it: up to 200 printable characters.

    A name that is too long is cut and ends in a part of its hash, so that two stay two.

    >>> clean_client("acme"), clean_client(None), len(clean_client("x" * 10_000))
    ('acme', '', 200)
    """
    if client is None:
        return ""
    text = client if isinstance(client, str) else str(client)
    if not is_unicode(text):
        text = text.encode("utf-8", "replace").decode()
    plain = "".join(c if c.isprintable() else "�" for c in text)
    if len(plain) <= LONGEST_CLIENT:
        return plain
    tail = hashlib.sha256(text.encode()).hexdigest()[:16]
    return f"{plain[: LONGEST_CLIENT - 17]}…{tail}"


def list_clients(given: str | Sequence[str] | None) -> list[str] | None:
    """Return one or several clients as the ledger names them; None for all.

    >>> list_clients("acme"), list_clients(["acme", "other"]), list_clients(None)
    (['acme'], ['acme', 'other'], None)
    """
    if given is None:
        return None
    return [clean_client(one) for one in ([given] if isinstance(given, str) else given)]


def ledger_key(secret: bytes) -> bytes:
    """Return the key that encrypts a guard's ledger."""
    return hmac.digest(secret, b"timbermark/guard-ledger/1", "sha256")


def read_statement(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return what a ledger says publicly about its guard.

    Raises FileFormatError if the file is no ledger, OSError if it is not there.
    """
    Path(path).stat()
    with _reading(path) as file:
        about = dict(file.execute("SELECT name, value FROM about"))
        statement = json.loads(about["statement"])
    if about.get("format") != str(FORMAT) or not isinstance(statement, dict):
        raise _foreign(path)
    return statement


def read_summary(path: str | os.PathLike[str]) -> Summary:
    """Return what a ledger holds, in numbers; no key is needed.

    Raises FileFormatError if the file is no ledger, OSError if it is not there.
    """
    statement = read_statement(path)
    with _reading(path) as file:
        asked = dict(file.execute("SELECT client, SUM(asked) FROM counts GROUP BY client"))
        drawn = {
            client: (n, cells)
            for client, n, cells in file.execute(
                "SELECT client, COUNT(*), COUNT(DISTINCT cell) FROM entries WHERE kind = 0 "
                "GROUP BY client"
            )
        }
        records = [
            json.loads(content)
            for (content,) in file.execute("SELECT content FROM entries WHERE kind = 1")
        ]
        (entries, chains), (rotated,) = (
            file.execute("SELECT COUNT(*), COUNT(DISTINCT chain) FROM entries").fetchone(),
            file.execute("SELECT COALESCE(SUM(questions), 0) FROM cuts").fetchone(),
        )
        (stamped,) = file.execute(
            "SELECT COUNT(*) FROM entries e WHERE e.seq <= "
            "(SELECT MAX(s.seq) FROM stamps s WHERE s.chain = e.chain AND s.response != x'')"
        ).fetchone()
        (steps,) = file.execute(
            "SELECT COUNT(*) FROM entries a JOIN entries b ON a.chain = b.chain AND "
            "b.seq = a.seq + 1 WHERE b.time < a.time - 1"
        ).fetchone()
    ended = {record.get("end") for record in records}
    return Summary(
        statement=statement,
        clients=tuple(
            ClientSummary(name, asked.get(name, 0), *drawn.get(name, (0, 0)))
            for name in sorted({*asked, *drawn})
        ),
        entries=entries,
        chains=chains,
        stamped=stamped,
        open_sessions=sum("begin" in one and one["begin"] not in ended for one in records),
        gaps=tuple(record for record in records if "gap" in record),
        rotated=rotated,
        clock_steps=steps,
    )


def read_questions(
    path: str | os.PathLike[str],
    secret: bytes,
    *,
    clients: Sequence[str] | None = None,
    stamped: bool = False,
) -> list[Question]:
    """Return the drawn questions of some clients, or of all, one for each cell, oldest first.

    ``stamped`` leaves out questions after the last stamp of their chain.

    Raises InputError with the code ``ledger.key`` if the secret is another guard's, EvidenceError
    if a question was changed.
    """
    cipher = _cipher(ledger_key(secret))
    where = "kind = 0"
    if clients is not None:
        where += f" AND client IN ({','.join('?' * len(clients))})"
    if stamped:
        where += (
            " AND seq <= (SELECT MAX(s.seq) FROM stamps s WHERE s.chain = entries.chain "
            "AND s.response != x'')"
        )
    with _reading(path) as file:
        found = file.execute(
            f"SELECT client, time, cell, entry, content FROM entries WHERE {where} "
            "ORDER BY time, chain, seq",
            tuple(clients or ()),
        ).fetchall()
    seen: set[bytes] = set()
    questions = []
    for name, at, cell, entry, content in found:
        if cell in seen:
            continue
        seen.add(cell)
        try:
            plain = cipher.decrypt(content[:12], content[12:], _bound(name, at, entry))
        except Exception as error:  # cryptography's own: a tag that does not fit
            raise EvidenceError(
                f"{os.fspath(path)} holds a question that this key does not open.",
                hint="give the key of its guard; if it is, the ledger was changed.",
                code="ledger.key",
                parameter="key",
            ) from error
        given = json.loads(plain)
        questions.append(
            Question(
                name, at, cell, tuple(given["row"]), given["kinds"], tuple(given["alphabet"]),
                given["symbol"], tuple(given["reference"]), bytes.fromhex(given["link"]),
            )
        )  # fmt: skip
    return questions


def read_chains(path: str | os.PathLike[str]) -> tuple[Chain, ...]:
    """Return the chains of a ledger with their stamps, every link of which was checked.

    Raises EvidenceError with the code ``ledger.chain`` if an entry was changed, added or removed.
    """
    commitment = commit_guard(read_statement(path))
    with _reading(path) as file:
        cuts = {chain: (seq, head) for chain, seq, head, _ in file.execute("SELECT * FROM cuts")}
        stamps = file.execute("SELECT chain, seq, response FROM stamps").fetchall()
        names = [n for (n,) in file.execute("SELECT DISTINCT chain FROM entries ORDER BY chain")]
        own = dict(file.execute("SELECT name, value FROM about"))["chain"]
        chains = []
        for name in dict.fromkeys((own, *names)):
            start = first_head(commitment, bytes.fromhex(name))
            first, head = start_at = cuts.get(name, (0, start))
            entries: list[bytes] = []
            for seq, kind, entry, kept, content in file.execute(
                "SELECT seq, kind, entry, head, content FROM entries WHERE chain = ? ORDER BY seq",
                (name,),
            ):
                head = next_head(head, entry)
                if isinstance(content, str):  # which only another program writes
                    content = content.encode()
                whole = kind == _QUESTION or hashlib.sha256(content).digest() == entry
                if seq != first + len(entries) + 1 or head != kept or not whole:
                    raise EvidenceError(
                        f"Entry {seq} of {os.fspath(path)} does not follow from the one before.",
                        hint="the ledger was changed; use a copy from before that.",
                        code="ledger.chain",
                    )
                entries.append(entry)
            mine = [(seq, response) for chain, seq, response in stamps if chain == name]
            last = start_at[0] + len(entries)
            chains.append(
                Chain(
                    commitment, bytes.fromhex(name), *start_at, tuple(entries),
                    tuple(stamp for stamp in mine if stamp[1] and start_at[0] <= stamp[0] <= last),
                    frozenset(seq for seq, _ in mine if start_at[0] <= seq <= last),
                )
            )  # fmt: skip
    return tuple(chains)


def request_stamps(path: str | os.PathLike[str]) -> list[Head]:
    """Return the heads to be stamped, one of each chain, and remember that they were.

    The head of an empty ledger commits to the guard before it serves.
    """
    heads = [chain.head(chain.first + len(chain.entries)) for chain in read_chains(path)]
    with closing(_connect(os.fspath(path))) as file, file:
        file.executemany(
            "INSERT OR IGNORE INTO stamps VALUES (?,?,x'')",
            [(head.chain_id.hex(), head.count) for head in heads],
        )
    return heads


def add_stamp(path: str | os.PathLike[str], response: bytes) -> Head:
    """Keep an authority's response beside the head that it stamps; return that head.

    Raises EvidenceError if it is about no head that a stamp was asked for.
    """
    from timbermark.ownership.stamps import check_response

    problem: EvidenceError | None = None
    for chain in read_chains(path):
        for count in sorted(chain.asked, reverse=True):
            head = chain.head(count)
            try:
                check_response(head, response)
            except EvidenceError as error:
                problem = error
                continue
            with closing(_connect(os.fspath(path))) as file, file:
                file.execute(
                    "INSERT OR IGNORE INTO stamps VALUES (?,?,?)",
                    (chain.chain_id.hex(), count, response),
                )
            return head
    raise problem or EvidenceError(
        "No stamp of this ledger was asked for.",
        hint="write a query first and send it to an authority.",
        code="stamp.other",
    )


def merge(path: str | os.PathLike[str], others: Sequence[str | os.PathLike[str]]) -> int:
    """Copy the chains of other ledgers of the same guard into one; return the entries added.

    Each ledger keeps its own chain, so that merging twice adds nothing.

    Raises InputError if a ledger belongs to another guard or lost entries in between,
    EvidenceError if its chain is broken.
    """
    statement = read_statement(path)
    added = 0
    for other in others:
        if read_statement(other) != statement:
            raise _other_guard(other)
        read_chains(other)
        with _reading(other) as source:
            tables = {
                name: source.execute(f"SELECT * FROM {name}").fetchall()
                for name in ("entries", "counts", "cuts", "stamps")
            }
        with closing(_connect(os.fspath(path))) as file, file:
            file.execute("BEGIN IMMEDIATE")
            cuts = {chain: seq for chain, seq, *_ in file.execute("SELECT * FROM cuts")}
            here = dict(file.execute("SELECT chain, MAX(seq) FROM entries GROUP BY chain"))
            if any(chain in here and seq > here[chain] for chain, seq, *_ in tables["cuts"]):
                raise InputError(
                    f"{os.fspath(other)} dropped old entries that were not merged before.",
                    hint="merge it into a new ledger, and merge more often.",
                    code="ledger.hole",
                    parameter="merge",
                )
            for name, rows in tables.items():
                if not rows:
                    continue
                marks = ",".join("?" * len(rows[0]))
                verb = "INSERT OR IGNORE" if name != "counts" else "INSERT OR REPLACE"
                kept = [r for r in rows if name != "entries" or r[1] > cuts.get(r[0], 0)]
                before = file.total_changes
                file.executemany(f"{verb} INTO {name} VALUES ({marks})", kept)
                added += file.total_changes - before if name == "entries" else 0
    return added


def _make_file(path: str, statement: Mapping[str, Any], commitment: bytes) -> str:
    """Return the id of the chain of a ledger's file, which is made if it is not there."""
    if Path(path).exists():
        if commit_guard(read_statement(path)) != commitment:
            raise _other_guard(path)
        with _reading(path) as file:
            return str(dict(file.execute("SELECT name, value FROM about"))["chain"])
    chain = secrets.token_hex(16)
    # It is made whole beside its place: of several processes that start at once, one is first.
    draft = f"{path}.{secrets.token_hex(8)}"
    try:
        os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        with closing(_connect(draft)) as file, file:
            file.executescript(_SCHEMA)
            file.executemany(
                "INSERT INTO about VALUES (?,?)",
                [
                    ("format", str(FORMAT)),
                    ("statement", json.dumps(dict(statement), sort_keys=True)),
                    ("chain", chain),
                ],
            )
        os.link(draft, path)
    except FileExistsError:
        return _make_file(path, statement, commitment)
    except (OSError, sqlite3.Error) as error:
        raise InputError(
            f"The ledger {path} cannot be written ({' '.join(str(error).split())[:120]}).",
            hint="name a file in a folder that exists and can be written: ledger=….",
            code="ledger.unwritable",
            parameter="ledger",
        ) from None
    finally:
        for end in ("", "-wal", "-shm"):
            Path(draft + end).unlink(missing_ok=True)
    return chain


def _connect(path: str) -> sqlite3.Connection:
    file = sqlite3.connect(path, timeout=_PATIENCE_SECONDS, isolation_level=None)
    file.execute("PRAGMA journal_mode = WAL")
    file.execute("PRAGMA synchronous = NORMAL")
    return file


@contextmanager
def _reading(path: str | os.PathLike[str]) -> Iterator[sqlite3.Connection]:
    try:
        with closing(sqlite3.connect(os.fspath(path), timeout=_PATIENCE_SECONDS)) as file:
            yield file
    except (sqlite3.Error, KeyError, TypeError, ValueError) as error:
        if isinstance(error, EvidenceError | InputError | FileFormatError):
            raise
        raise _foreign(path) from None


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
    return _RECORD, "", now, None, hashlib.sha256(content).digest(), content


def _value(cell: Any) -> Any:
    return float(cell) if isinstance(cell, np.floating) else cell


def _bound(client: str, at: float, entry: bytes) -> bytes:
    return encode([client, float(at), entry])


def _cipher(key: bytes) -> Any:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(key)


def _foreign(path: str | os.PathLike[str]) -> FileFormatError:
    return FileFormatError(
        f"{os.fspath(path)} is no ledger of a guard.",
        hint="give the file that the guard was told to keep.",
        code="ledger.foreign",
    )


def _other_guard(path: str | os.PathLike[str]) -> InputError:
    return InputError(
        f"The ledger {os.fspath(path)} belongs to another guard: another model, owner, key or "
        "setting.",
        hint="give that guard's, or the name of a new file: ledger=….",
        code="ledger.other-guard",
        parameter="ledger",
    )
