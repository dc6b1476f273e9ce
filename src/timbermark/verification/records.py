"""An owner's records: what was opened to whom, and all marks of a folder.

The ledger of openings lies beside a mark, as ``NAME.openings``, because a mark never changes once
it is made. It holds places of triggers, no triggers. Every opening follows from the claim, the name
and the count, so a lost ledger can be written again by opening again.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from timbermark.errors import FileFormatError, TimbermarkError
from timbermark.files import atomic_write
from timbermark.ownership.claim import Claim
from timbermark.ownership.encoding import TIME_FORMAT
from timbermark.ownership.mark import Mark
from timbermark.ownership.opening import Opening, smallest_share, worth
from timbermark.verification.refusals import refusal
from timbermark.verification.transcript import Fits, has_fields, is_text, list_of

ENDING = ".openings"
MOST_FILES = 10_000
_FIRST_LINE = "timbermark openings 1"
_FIELDS: dict[str, Fits] = {
    **dict.fromkeys(("mark", "claim", "for", "opened"), is_text),
    "places": list_of(lambda place: type(place) is int),
}
_OWNER_ONLY = 0o600
_MAX_BYTES = 64 << 20
_FIRST_BYTES = 32


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
    """What is left of a mark after its openings."""

    openings: tuple[LedgerEntry, ...]
    n_triggers: int
    opened: int  # triggers that at least one judge has seen
    bits: float  # what the other triggers are worth at most
    # The smallest share of the mark to open next, with which the unseen triggers alone are
    # conclusive for a copy that nobody touched, on average; None if there is none.
    next_share: float | None

    @property
    def can_convince(self) -> bool:
        """Return whether another opening can be conclusive by triggers that nobody has seen."""
        return self.next_share is not None

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
    return read_openings(path) if path.exists() else ()


def read_openings(path: Path) -> tuple[LedgerEntry, ...]:
    """Return all openings in a ledger, first to last. Raises as `read_ledger` does."""
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
    >>> what_is_left(mark, [entry]).left
    1
    """
    mine = tuple(entry for entry in entries if entry.mark == mark.digest.hex())
    seen = {place for entry in mine for place in entry.places if 0 <= place < mark.n_triggers}
    left = [place for place in range(mark.n_triggers) if place not in seen]
    bits = worth(mark.head, left) if left else 0.0
    return Remainder(mine, mark.n_triggers, len(seen), bits, smallest_share(mark.head, left))


def _key(entry: LedgerEntry) -> tuple[Any, ...]:
    return entry.mark, entry.claim, entry.judge, entry.places


def _write_entry(entry: LedgerEntry) -> str:
    record = asdict(entry)
    record["for"] = record.pop("judge")
    return json.dumps(record, ensure_ascii=False, sort_keys=True)


def _read_entry(path: Path, line: str) -> LedgerEntry:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        raise _damaged(path, "a line is not JSON") from None
    if not has_fields(record, _FIELDS):
        raise _damaged(path, "a line is no opening")
    judge, places = record.pop("for"), tuple(record.pop("places"))
    return LedgerEntry(**record, judge=judge, places=places)


def _damaged(path: Path, reason: str) -> FileFormatError:
    return refusal("ledger.damaged", FileFormatError, path=path, reason=reason)


@dataclass(frozen=True, slots=True)
class ListedClaim:
    """A claim in the folder, with the stamps of all its copies."""

    path: str
    claimed: str  # by its own word
    marked_digest: str
    n_stamps: int
    model: str = ""  # where the claimed file is in the folder, if it is there
    copies: tuple[str, ...] = ()  # further files of the same claim, as in evidence packs


@dataclass(frozen=True, slots=True)
class ListedMark:
    """A mark in the folder; of one that cannot be read only the path and the problem are known."""

    path: str
    problem: str = ""
    mark_id: str = ""
    owner: str = ""
    created: str = ""
    model_digest: str = ""  # of the unmarked model
    model_kind: str = ""
    triggers: int = 0
    bits: float = 0.0  # while every symbol is there
    openings: tuple[str, ...] = ()  # for whom, in the order of opening
    unopened: int = 0
    bits_left: float = 0.0
    can_convince: bool = False  # whether another opening can be conclusive
    claims: tuple[ListedClaim, ...] = ()


def list_marks(
    folder: str | os.PathLike[str], load: Callable[[Path], Mark] = Mark.load
) -> tuple[tuple[ListedMark, ...], tuple[str, ...]]:
    """Return all marks in a folder and the folders in it, oldest first, and notes.

    ``load`` opens a mark; it may ask for a passphrase. What it cannot open is listed with the
    reason. Notes are about claims that cannot be read or belong to no mark of the folder.

    Raises InputError if it is no folder or holds too many files.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as empty:
    ...     list_marks(empty)
    ((), ())
    """
    place = Path(folder)
    if not place.is_dir():
        raise refusal("folder.none", folder=place)
    marks, found, notes = [], list[tuple[Path, Claim]](), list[str]()
    others = list[Path]()
    for path, kind in _find_files(place):
        if kind == "mark":
            marks.append(path)
            continue
        if kind != "claim":
            others.append(path)
            continue
        try:
            found.append((path, Claim.load(path)))
        except (TimbermarkError, OSError) as error:
            notes.append(getattr(error, "message", str(error)))
    claims = _join_copies(found, place, others)
    listed = [_describe(path, place, load, claims) for path in marks]
    known = {claim.path for mark in listed for claim in mark.claims}
    notes += [
        f"{claim.path} is a claim for no mark in here."
        for _, claim in claims
        if claim.path not in known
    ]
    listed.sort(key=lambda mark: (mark.created, mark.path))
    return tuple(listed), tuple(notes)


def _find_files(folder: Path) -> Iterator[tuple[Path, str]]:
    count = 0
    for root, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            count += 1
            if count > MOST_FILES:
                raise refusal("folder.too-large", folder=folder, most=MOST_FILES)
            path = Path(root) / name
            try:
                with path.open("rb") as file:
                    words = file.read(_FIRST_BYTES).split(b"\n")[0].split()
            except OSError:
                continue
            own = len(words) == 3 and words[0] == b"timbermark"
            is_known = own and words[1] in (b"mark", b"claim")
            yield path, words[1].decode() if is_known else ""


def _join_copies(
    found: list[tuple[Path, Claim]], folder: Path, others: list[Path]
) -> list[tuple[bytes, ListedClaim]]:
    """Return each claim once, with the digest of its mark; evidence packs hold copies of it."""
    files: dict[bytes, list[tuple[Path, Claim]]] = {}
    for path, claim in found:
        files.setdefault(claim.digest, []).append((path, claim))
    models = _find_models({claim.marked_file for _, claim in found if claim.marked_file}, others)
    listed = []
    for copies in files.values():
        # The one that its owner published lies outside of packs, nearer to the top.
        copies.sort(key=lambda copy: (_in_pack(copy[0]), len(copy[0].parts), copy[0]))
        (path, claim), *more = copies
        model = models.get(claim.marked_file or "")
        listed.append(
            (
                claim.mark_digest,
                ListedClaim(
                    path=str(path.relative_to(folder)),
                    claimed=claim.claimed,
                    marked_digest=claim.marked_digest,
                    n_stamps=len({stamp for _, copy in copies for stamp in copy.stamps}),
                    model="" if model is None else str(model.relative_to(folder)),
                    copies=tuple(str(copy.relative_to(folder)) for copy, _ in more),
                ),
            )
        )
    return listed


def _in_pack(path: Path) -> bool:
    return (path.parent / "manifest.json").exists()


def _find_models(digests: set[str], files: list[Path]) -> dict[str, Path]:
    """Return which of the files have these SHA-256 digests."""
    models: dict[str, Path] = {}
    for path in files if digests else ():
        try:
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError:
            continue
        if digest in digests:
            models.setdefault(digest, path)
    return models


def _describe(
    path: Path,
    folder: Path,
    load: Callable[[Path], Mark],
    claims: list[tuple[bytes, ListedClaim]],
) -> ListedMark:
    name = str(path.relative_to(folder))
    try:
        mark = load(path)
        left = what_is_left(mark, read_ledger(path))
    except (TimbermarkError, OSError) as error:
        return ListedMark(name, problem=getattr(error, "message", str(error)))
    about = mark.about.get("kind")
    return ListedMark(
        path=name,
        mark_id=mark.mark_id.hex(),
        owner=mark.owner,
        created=mark.created,
        model_digest=mark.model_digest,
        model_kind=about if isinstance(about, str) else "",
        triggers=mark.n_triggers,
        bits=round(mark.full_bits, 3),
        openings=tuple(entry.judge for entry in left.openings),
        unopened=left.left,
        bits_left=round(left.bits, 3),
        can_convince=left.can_convince,
        claims=tuple(claim for digest, claim in claims if digest == mark.digest),
    )
