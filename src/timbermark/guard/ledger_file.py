"""The ledger's file: drawn questions with client and time, encrypted, chained, in SQLite.

What it says of clients, questions, chains and stamps is read here, and ledgers of several replicas
are merged. docs/guard.md has the tables.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from timbermark.errors import EvidenceError, FileFormatError, InputError, TimbermarkError
from timbermark.ownership.encoding import encode, is_unicode
from timbermark.verification.chain import (
    CLIENT_BYTES,
    TAG_BYTES,
    Chain,
    Head,
    commit_guard,
    commit_record,
    first_head,
    next_head,
)

FORMAT = 1
LONGEST_CLIENT = 200
PATIENCE_SECONDS = 30.0
QUESTION, RECORD = 0, 1
_STRANGE = (LookupError, TypeError, ValueError, AttributeError, OverflowError, RecursionError)
"""What values of another type lead to: SQLite lets any program write any type anywhere."""
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
    """Return the drawn questions of some clients, or of all: the first of each cell.

    ``stamped`` leaves out questions after the last stamp of their chain. Chains follow their ids,
    because a judge counts the first question of a cell in that order.

    Raises InputError with the code ``ledger.key`` if the secret is another guard's, EvidenceError
    if a question was changed.
    """
    cipher = make_cipher(ledger_key(secret))
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
            "ORDER BY chain, seq",
            tuple(clients or ()),
        ).fetchall()
    if stamped and not found and read_questions(path, secret, clients=clients):
        raise InputError(
            "No drawn question is before a time stamp of its ledger.",
            hint="have the ledger stamped (timbermark ledger --stamp), or take all questions: a "
            "judge counts those without a verified stamp as indicative at most.",
            code="ledger.not-stamped",
            parameter="stamped",
        )
    seen: set[bytes] = set()
    questions = []
    for name, at, cell, entry, content in found:
        tag = entry[CLIENT_BYTES:TAG_BYTES]
        if tag in seen:
            continue
        seen.add(tag)
        try:
            plain = cipher.decrypt(content[:12], content[12:], bind_entry(name, at, entry))
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
                whole = kind == QUESTION or commit_record(content) == entry
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
    with closing(connect(os.fspath(path))) as file, file:
        file.executemany(
            "INSERT OR IGNORE INTO stamps VALUES (?,?,x'')",
            [(head.chain_id.hex(), head.count) for head in heads],
        )
    return heads


def add_stamp(path: str | os.PathLike[str], response: bytes) -> Head:
    """Keep an authority's response beside the head that it stamps; return that head.

    Raises EvidenceError if it is about no head that a stamp was asked for.
    """
    from timbermark.verification.stamps import check_response

    problem: EvidenceError | None = None
    for chain in read_chains(path):
        for count in sorted(chain.asked, reverse=True):
            head = chain.head(count)
            try:
                check_response(head, response)
            except EvidenceError as error:
                problem = error
                continue
            with closing(connect(os.fspath(path))) as file, file:
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
        with closing(connect(os.fspath(path))) as file, file:
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


def make_file(path: str, statement: Mapping[str, Any], commitment: bytes) -> str:
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
        with closing(connect(draft)) as file, file:
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
        return make_file(path, statement, commitment)
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


def connect(path: str) -> sqlite3.Connection:
    """Return the file, open for several processes at once."""
    file = sqlite3.connect(path, timeout=PATIENCE_SECONDS, isolation_level=None)
    file.execute("PRAGMA journal_mode = WAL")
    file.execute("PRAGMA synchronous = NORMAL")
    return file


@contextmanager
def _reading(path: str | os.PathLike[str]) -> Iterator[sqlite3.Connection]:
    try:
        with closing(sqlite3.connect(os.fspath(path), timeout=PATIENCE_SECONDS)) as file:
            yield file
    except TimbermarkError:
        raise
    except (sqlite3.Error, *_STRANGE):
        raise _foreign(path) from None


def bind_entry(client: str, at: float, entry: bytes) -> bytes:
    """Return what an encrypted row is bound to, so that it fits no other entry."""
    return encode([client, float(at), entry])


def make_cipher(key: bytes) -> Any:
    """Return AES-GCM under the key of a ledger."""
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
