"""All marks of an owner's folder, with their openings and claims.

A model that is retrained every month has a mark every month; none replaces another.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from timbermark.errors import InputError, TimbermarkError
from timbermark.ownership.claim import Claim
from timbermark.ownership.ledger import read_ledger, what_is_left
from timbermark.ownership.mark import Mark

MOST_FILES = 10_000
_FIRST_BYTES = 32


@dataclass(frozen=True, slots=True)
class ListedClaim:
    """A claim in the folder."""

    path: str
    claimed: str  # by its own word
    marked_digest: str
    n_stamps: int


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
        raise InputError(f"{place} is no folder.", hint="give the folder in which your marks are.")
    marks, claims, notes = [], list[tuple[Path, Claim]](), list[str]()
    for path, kind in _find_files(place):
        if kind == "mark":
            marks.append(path)
            continue
        try:
            claims.append((path, Claim.load(path)))
        except (TimbermarkError, OSError) as error:
            notes.append(getattr(error, "message", str(error)))
    listed = [_describe(path, place, load, claims) for path in marks]
    known = {claim.path for mark in listed for claim in mark.claims}
    strange = [str(path.relative_to(place)) for path, _ in claims]
    notes += [f"{name} is a claim for no mark in here." for name in strange if name not in known]
    listed.sort(key=lambda mark: (mark.created, mark.path))
    return tuple(listed), tuple(notes)


def _find_files(folder: Path) -> Iterator[tuple[Path, str]]:
    count = 0
    for root, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            count += 1
            if count > MOST_FILES:
                raise InputError(
                    f"{folder} holds more than {MOST_FILES} files.",
                    hint="keep marks and claims in a folder of their own.",
                )
            path = Path(root) / name
            try:
                with path.open("rb") as file:
                    words = file.read(_FIRST_BYTES).split(b"\n")[0].split()
            except OSError:
                continue
            if len(words) == 3 and words[0] == b"timbermark" and words[1] in (b"mark", b"claim"):
                yield path, words[1].decode()


def _describe(
    path: Path, folder: Path, load: Callable[[Path], Mark], claims: list[tuple[Path, Claim]]
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
        claims=tuple(
            ListedClaim(
                str(where.relative_to(folder)),
                claim.claimed,
                claim.marked_digest,
                len(claim.stamps),
            )
            for where, claim in claims
            if claim.mark_digest == mark.digest
        ),
    )
