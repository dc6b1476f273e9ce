"""The public side of a guard's ledger: a hash chain over its entries, and stamps of its heads.

An entry of the chain is 32 bytes: tags of the client and of the cell, which are no names, and a
hash that commits to a drawn question and its symbol and reveals nothing about either. By the tags a
judge counts how many cells of a client were left out of a mark: whoever may choose among them
afterwards finds some on which an innocent model agrees with the key. Of several questions of a cell
the first one counts. Records of the ledger itself have no client.

The first head commits to the guard itself, so that stamping an empty ledger before serving fixes
the key. A stamp of a later head proves that all entries before it existed at that time.
docs/guard.md says what that proves.
"""

import hashlib
import hmac
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np

from timbermark.dtypes import AnyArray
from timbermark.files import atomic_write
from timbermark.files.encrypting import SizeLimits
from timbermark.files.reading import Arrays, Meta
from timbermark.ownership.claim import MAX_STAMP_BYTES
from timbermark.ownership.columns import Column, numeric_matrix
from timbermark.ownership.encoding import encode, from_hex, require
from timbermark.ownership.mark_file import PublicFile
from timbermark.ownership.seals import DrawnSeal
from timbermark.ownership.symbols import HASH_BYTES
from timbermark.verification.transcript import Fits, has_fields, is_text, list_of

FILE = PublicFile("guard-chain", 1, SizeLimits(1 << 30, 64 << 20), "chain")
MOST_CHAINS = 4096
MOST_STAMPS = 4096
"""Of one chain; a later stamp covers what an earlier one does."""
_COMMITMENT_DOMAIN = b"timbermark/guard/1"
_QUESTION_DOMAIN = b"timbermark/guard-question/1"
_LINK_DOMAIN = b"timbermark/guard-link/1"
_HEAD_DOMAIN = b"timbermark/guard-head/1"
_CLIENT_DOMAIN = b"timbermark/guard-client/1"
_CELL_DOMAIN = b"timbermark/guard-cell/1"
CLIENT_BYTES, TAG_BYTES, COMMITMENT_BYTES = 3, 8, 24
"""The tag of a client, both tags together, and the commitment behind them. Clients that share a tag
by accident count as one, which costs their owner evidence and nobody else."""
NO_CLIENT = bytes(CLIENT_BYTES)


def commit_guard(statement: Mapping[str, Any]) -> bytes:
    """Return the SHA-256 that commits to a guard: its owner, key, model and settings."""
    return hashlib.sha256(_COMMITMENT_DOMAIN + encode(statement)).digest()


def first_head(commitment: bytes, chain_id: bytes) -> bytes:
    """Return the head of a chain without entries."""
    return hashlib.sha256(_LINK_DOMAIN + commitment + chain_id).digest()


def next_head(head: bytes, entry: bytes) -> bytes:
    """Return the head of a chain after one more entry of 32 bytes.

    >>> next_head(bytes(32), bytes(32)) == next_head(bytes(32), bytes(32))
    True
    """
    return hashlib.sha256(_LINK_DOMAIN + head + entry).digest()


def tag_question(secret: bytes, client: str, cell: bytes) -> bytes:
    """Return the tags of a question, 8 bytes, which only the owner can connect with anything.

    >>> one, two = (tag_question(bytes(32), "acme", cell) for cell in (b"a", b"b"))
    >>> len(one), one[:3] == two[:3], one == two
    (8, True, False)
    """
    of_client = hmac.digest(secret, _CLIENT_DOMAIN + encode(client), "sha256")
    of_cell = hmac.digest(secret, _CELL_DOMAIN + cell, "sha256")
    return of_client[:CLIENT_BYTES] + of_cell[: TAG_BYTES - CLIENT_BYTES]


def commit_record(content: bytes) -> bytes:
    """Return the entry of a record, which is of no client.

    >>> commit_record(b"begun")[:8] == bytes(8)
    True
    """
    return bytes(TAG_BYTES) + hashlib.sha256(content).digest()[:COMMITMENT_BYTES]


def commit_questions(
    columns: Sequence[Column],
    alphabets: AnyArray,
    symbols: AnyArray,
    reference: AnyArray,
    links: Sequence[bytes],
) -> list[bytes]:
    """Return the commitment of each of n questions: a hash of what a judge weighs, and of its link.

    ``reference`` [n, K] is what the model answers without the guard. Without it an owner could
    choose it later, so that an innocent suspect's answers look drawn. The link is secret.

    >>> row = (np.array([0.5]), ("red",))
    >>> drawn = np.array([[0, 1]]), np.array([1]), np.array([[0.5, 0.5]])
    >>> (commitment,) = commit_questions(row, *drawn, [bytes(32)])
    >>> len(commitment)
    24
    """
    numbers, answers = (np.asarray(x, "<f8") for x in (numeric_matrix(columns), reference))
    texts = [column for column in columns if not isinstance(column, np.ndarray)]
    found = []
    for i, link in enumerate(links):
        record = {
            "link": bytes(link),
            "numbers": numbers[i].tobytes(),
            "texts": [column[i] for column in texts],
            "alphabet": [int(number) for number in alphabets[i]],
            "symbol": int(symbols[i]),
            "reference": answers[i].tobytes(),
        }
        digest = hashlib.sha256(_QUESTION_DOMAIN + encode(record)).digest()
        found.append(digest[:COMMITMENT_BYTES])
    return found


@dataclass(frozen=True, slots=True)
class Head:
    """A head of one chain, as it is stamped: the bytes of the stamp, and responses to it."""

    commitment: bytes
    chain_id: bytes
    count: int  # entries before it
    head: bytes
    stamps: tuple[bytes, ...] = field(default=(), repr=False)

    @property
    def stamped(self) -> bytes:
        """Return what a time stamp is about."""
        record = {
            "guard": self.commitment,
            "chain": self.chain_id,
            "count": self.count,
            "head": self.head,
        }
        return _HEAD_DOMAIN + encode(record)


@dataclass(frozen=True, slots=True, eq=False)
class Chain:
    """The chain of one ledger file: where it starts, its entries, and stamped heads.

    ``start`` is the head before the first entry that is kept; ``first`` the number of entries that
    rotation took away before it.
    """

    commitment: bytes
    chain_id: bytes
    first: int
    start: bytes
    entries: tuple[bytes, ...] = field(repr=False)
    stamps: tuple[tuple[int, bytes], ...] = field(default=(), repr=False)  # count, RFC 3161
    asked: frozenset[int] = frozenset()  # counts of heads that stamps were asked for

    def head(self, count: int) -> Head:
        """Return the head after ``count`` entries. Raises InputError if the chain has none such."""
        require(
            self.first <= count <= self.first + len(self.entries),
            f"the chain has no head after {count} entries",
            code="chain.count",
        )
        head = next(islice(self._heads(), count - self.first, None))
        stamps = tuple(response for at, response in self.stamps if at == count)
        return Head(self.commitment, self.chain_id, count, head, stamps)

    def stamped_entries(self, roots: Sequence[bytes]) -> dict[bytes, str]:
        """Return the entries before a verified stamp, and the earliest such time of each.

        Raises as `timbermark.verification.stamps.check_stamps` does.
        """
        from timbermark.verification.stamps import check_stamps, first_time

        # The file is anybody's: one pass, however many stamps there are.
        stamps: dict[int, list[bytes]] = {}
        for count, response in self.stamps:
            stamps.setdefault(count, []).append(response)
        times: dict[int, str | None] = {}
        for count, link in enumerate(self._heads(), start=self.first):
            if count in stamps:
                head = Head(self.commitment, self.chain_id, count, link, tuple(stamps[count]))
                times[count] = first_time(check_stamps(head, roots))
        found: dict[bytes, str] = {}
        earliest: str | None = None
        for place in reversed(range(len(self.entries))):
            known = [time for time in (earliest, times.get(self.first + place + 1)) if time]
            earliest = min(known, default=None)
            if earliest:
                entry = self.entries[place]
                found[entry] = min(earliest, found.get(entry, earliest))
        return found

    def _heads(self) -> Iterator[bytes]:
        """Yield the heads after no entry, after one, and so on."""
        head = self.start
        yield head
        for entry in self.entries:
            head = next_head(head, entry)
            yield head


def save_chains(path: str | os.PathLike[str], chains: Sequence[Chain]) -> None:
    """Write chains to a file that can be published: it tells numbers of questions, not of whom."""
    meta = {
        "chains": [
            {
                "guard": chain.commitment.hex(),
                "chain": chain.chain_id.hex(),
                "first": chain.first,
                "start": chain.start.hex(),
                "stamps": [[n, stamp.hex()] for n, stamp in sorted(chain.stamps)[-MOST_STAMPS:]],
            }
            for chain in chains
        ]
    }
    arrays = {
        f"entries.{i}": np.frombuffer(b"".join(chain.entries), np.uint8).reshape(-1, HASH_BYTES)
        for i, chain in enumerate(chains)
    }
    atomic_write(path, FILE.write(meta, arrays))


def load_chains(path: str | os.PathLike[str]) -> tuple[Chain, ...]:
    """Read what `save_chains` wrote. Raises FileFormatError if it is anything else."""
    return FILE.read(path, _read_chains)


def _read_chains(meta: Meta, arrays: Arrays) -> tuple[Chain, ...]:
    listed: Any = meta.get("chains")
    require(
        isinstance(listed, list) and len(listed) == len(arrays) <= MOST_CHAINS,
        "it has not exactly the parts of a chain",
        code="file.parts",
    )
    return tuple(_read_chain(one, arrays.get(f"entries.{i}")) for i, one in enumerate(listed))


def _is_stamp(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and type(value[0]) is int


_FIELDS: dict[str, Fits] = {
    **dict.fromkeys(("guard", "chain", "start"), is_text),
    "first": lambda count: type(count) is int and count >= 0,
    "stamps": lambda stamps: list_of(_is_stamp)(stamps) and len(stamps) <= MOST_STAMPS,
}


def _read_chain(given: Any, entries: Any) -> Chain:
    require(has_fields(given, _FIELDS), "a chain has not exactly its parts", code="file.parts")
    require(
        isinstance(entries, np.ndarray)
        and entries.dtype == np.uint8
        and entries.ndim == 2
        and entries.shape[1] == HASH_BYTES,
        "the entries are not 32 bytes each",
        code="chain.entries",
    )
    stamps = tuple((count, from_hex("stamps", text)) for count, text in given["stamps"])
    require(
        all(len(response) <= MAX_STAMP_BYTES for _, response in stamps),
        "a stamp is too long",
        code="field.stamps",
    )
    return Chain(
        from_hex("guard", given["guard"], HASH_BYTES),
        from_hex("chain", given["chain"], 16),
        given["first"],
        from_hex("start", given["start"], HASH_BYTES),
        tuple(entry.tobytes() for entry in entries),
        stamps,
    )


@dataclass(frozen=True, slots=True)
class Coverage:
    """What chains say about the questions of a guard's mark.

    ``unstamped``: how many of those that are opened no verified stamp covers, or are not the first
    of their cell; ``latest``: the last time of the others; ``cells``: those of the same clients
    with a stamped question; ``left_out``: how many of them are not in the mark; ``clients``: of how
    many clients the questions are, and of how many there are stamped entries; ``chains`` hold
    these, and ``dropped`` entries are missing at their beginnings.
    """

    unstamped: int
    latest: str | None
    cells: int
    left_out: int
    clients: tuple[int, int]
    chains: int = 0
    dropped: int = 0

    @property
    def price(self) -> float:
        """Return the bits that choosing these questions among all stamped ones costs.

        It is log₂ of the ways to choose as many clients, and as many of their cells.

        >>> Coverage(0, "2026-01-01T00:00:00Z", 80, 0, (1, 1)).price
        0.0
        >>> round(Coverage(0, "2026-01-01T00:00:00Z", 299, 154, (1, 1)).price)
        294
        """
        chosen, known = self.clients
        return log2_choices(self.cells, self.left_out) + log2_choices(known, chosen)


def log2_choices(n: int, k: int) -> float:
    """Return log₂ of the number of ways to choose k of n.

    >>> round(log2_choices(4, 1), 9)
    2.0
    """
    logarithms = (math.lgamma(n + 1), -math.lgamma(k + 1), -math.lgamma(n - k + 1))
    return max(math.fsum(logarithms) / math.log(2.0), 0.0)


def find_coverage(
    seal: DrawnSeal, n_marked: int, guard: str, chains: Sequence[Chain], roots: Sequence[bytes]
) -> Coverage:
    """Return what verified stamps of a guard's chains cover of the questions of its mark.

    ``seal`` holds the questions that are opened, of ``n_marked`` in the mark. ``guard`` is the
    commitment that the claim names, in hexadecimal digits: chains of other guards do not count.
    """
    stamped: dict[bytes, str] = {}
    ordered: list[bytes] = []
    firsts_of_chains: dict[bytes, int] = {}
    for chain in sorted(chains, key=lambda one: one.chain_id):
        if chain.commitment.hex() == guard:
            times = chain.stamped_entries(roots)
            stamped |= times
            ordered += [entry for entry in chain.entries if entry in times]
            if times:
                firsts_of_chains[chain.chain_id] = chain.first
    links = [link.tobytes() for link in seal.links]
    committed = commit_questions(seal.columns, seal.alphabets, seal.drawn, seal.reference, links)
    known = {entry[TAG_BYTES:]: entry for entry in ordered}
    mine = {known[one][:CLIENT_BYTES] for one in committed if one in known}
    firsts: dict[bytes, bytes] = {}
    for entry in ordered:
        if entry[:CLIENT_BYTES] in mine:
            firsts.setdefault(entry[CLIENT_BYTES:TAG_BYTES], entry)
    counted = set(committed) & {entry[TAG_BYTES:] for entry in firsts.values()}
    everybody = {entry[:CLIENT_BYTES] for entry in ordered} - {NO_CLIENT}
    return Coverage(
        unstamped=len(committed) - len(counted),
        latest=max((stamped[known[one]] for one in counted), default=None),
        cells=len(firsts),
        left_out=max(len(firsts) - n_marked, 0),
        clients=(len(mine), len(mine | everybody)),
        chains=len(firsts_of_chains),
        dropped=sum(firsts_of_chains.values()),
    )
