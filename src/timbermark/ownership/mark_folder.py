"""All marks of an owner's folder, with their openings and claims.

A model that is retrained every month has a mark every month; none replaces another.
"""

import hashlib
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
        claims=tuple(claim for digest, claim in claims if digest == mark.digest),
    )
