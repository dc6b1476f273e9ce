"""The ledger of a mark's openings: what was shown to whom, and so what is left.

It lies beside the mark, as ``NAME.openings``, because a mark never changes once it is made. It
holds places of triggers, no triggers. Every opening follows from the claim, the name and the count,
so a lost ledger can be written again by opening again.
"""

import json
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from timbermark.errors import FileFormatError
from timbermark.files import atomic_write
from timbermark.ownership.claim import Claim
from timbermark.ownership.encoding import is_unicode
from timbermark.ownership.mark import Mark
from timbermark.ownership.mark_checks import TIME_FORMAT
from timbermark.ownership.opening import Opening

ENDING = ".openings"
_FIRST_LINE = "timbermark openings 1"
_KEYS = {"mark", "claim", "for", "opened", "places"}
_OWNER_ONLY = 0o600
_MAX_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One opening: for whom, when, of which claim, which triggers."""

    mark: str  # the mark's digest, in hexadecimal digits
    claim: str  # the claim's digest, in hexadecimal digits
    judge: str
    opened: str  # UTC
    places: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Remainder:
    """What is left of a mark after its openings.

    >>> Remainder(openings=(), n_triggers=96, opened=0, bits=192.0).left
    96
    """

    openings: tuple[LedgerEntry, ...]
    n_triggers: int
    opened: int  # triggers that at least one judge has seen
    bits: float  # what the other triggers are worth at most

    @property
    def left(self) -> int:
        """Return the number of triggers that nobody has seen."""
        return self.n_triggers - self.opened


def ledger_path(mark_path: str | os.PathLike[str]) -> Path:
    """Return where the ledger of the mark in a file is.

    >>> ledger_path("secret.mark").name
    'secret.mark.openings'
    """
    return Path(os.fspath(mark_path) + ENDING)


def read_ledger(mark_path: str | os.PathLike[str]) -> tuple[LedgerEntry, ...]:
    """Return all openings of the mark in a file, first to last; none if there is no ledger.

    Raises FileFormatError if the ledger is damaged, OSError if it cannot be opened.
    """
    path = ledger_path(mark_path)
    if not path.exists():
        return ()
    if path.stat().st_size > _MAX_BYTES:
        raise _damaged(path, "it is too large")
    try:
        lines = path.read_text("utf-8").split("\n")
    except UnicodeDecodeError:
        raise _damaged(path, "it is not text") from None
    if lines[0] != _FIRST_LINE or lines[-1] != "":
        raise _damaged(path, "its first or last line is wrong")
    return tuple(_read_entry(path, line) for line in lines[1:-1])


def record_opening(mark_path: str | os.PathLike[str], claim: Claim, opening: Opening) -> None:
    """Add an opening to the ledger, unless it is there; to be called before it is handed over.

    Raises as `read_ledger` and `atomic_write` do.
    """
    entries = read_ledger(mark_path)
    entry = LedgerEntry(
        mark=opening.head.digest.hex(),
        claim=claim.digest.hex(),
        judge=opening.judge,
        opened=datetime.now(UTC).strftime(TIME_FORMAT),
        places=opening.places,
    )
    if any(_key(old) == _key(entry) for old in entries):
        return
    lines = [_FIRST_LINE, *map(_write_entry, (*entries, entry)), ""]
    atomic_write(ledger_path(mark_path), "\n".join(lines).encode(), mode=_OWNER_ONLY)


def what_is_left(mark: Mark, entries: Sequence[LedgerEntry]) -> Remainder:
    """Return what is left of a mark after the openings in its ledger.

    >>> from timbermark.ownership import OwnerKey
    >>> mark = Mark.make(
    ...     OwnerKey.generate(), owner="Ann", model_digest="0" * 64, classes=[0, 1],
    ...     triggers=[[0.5], [1.5]], alphabets=[[0, 1]] * 2, reference=[[0.9, 0.1]] * 2,
    ... )
    >>> entry = LedgerEntry(mark.digest.hex(), "00", "Judge Judy", "2030-01-02T03:04:05Z", (1,))
    >>> what_is_left(mark, [entry]).left, what_is_left(mark, [entry]).bits
    (1, 1.0)
    """
    mine = tuple(entry for entry in entries if entry.mark == mark.digest.hex())
    seen = {place for entry in mine for place in entry.places if 0 <= place < mark.n_triggers}
    left = (mark.n_triggers - len(seen)) * math.log2(mark.q) - math.log2(mark.draws)
    return Remainder(mine, mark.n_triggers, len(seen), max(0.0, left))


def _key(entry: LedgerEntry) -> tuple[Any, ...]:
    return entry.mark, entry.claim, entry.judge, entry.places


def _write_entry(entry: LedgerEntry) -> str:
    record = {
        "mark": entry.mark,
        "claim": entry.claim,
        "for": entry.judge,
        "opened": entry.opened,
        "places": list(entry.places),
    }
    return json.dumps(record, ensure_ascii=False, sort_keys=True)


def _read_entry(path: Path, line: str) -> LedgerEntry:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        raise _damaged(path, "a line is not JSON") from None
    if (
        not isinstance(record, dict)
        or record.keys() != _KEYS
        or not all(isinstance(record[name], str) for name in _KEYS - {"places"})
        or not is_unicode(record["for"])
        or not isinstance(record["places"], list)
        or not all(type(place) is int for place in record["places"])
    ):
        raise _damaged(path, "a line is no opening")
    return LedgerEntry(
        mark=record["mark"],
        claim=record["claim"],
        judge=record["for"],
        opened=record["opened"],
        places=tuple(record["places"]),
    )


def _damaged(path: Path, reason: str) -> FileFormatError:
    return FileFormatError(
        f"{path} is no sound list of openings: {reason}.",
        "restore it from a backup; or remove it and open the mark again for each judge.",
    )
