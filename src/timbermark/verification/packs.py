"""Evidence packs: one folder or zip archive with claim, opening, transcript and verdict.

``manifest.json`` lists the SHA-256 of every other file. It finds accidents and files that were
swapped, lost or cut; that the content is true is for the judge to check. An archive is never
unpacked to the disk, and sizes are bounded before anything is read.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from timbermark.errors import FileFormatError
from timbermark.files import atomic_write
from timbermark.ownership.claim import Claim
from timbermark.ownership.opening import Opening
from timbermark.verification.refusals import refusal

FORMAT = "timbermark evidence 2"
MANIFEST, CLAIM, OPENING = "manifest.json", "model.claim", "mark.opening"
TRANSCRIPT, VERDICT, PAGE = "transcript.json", "verdict.json", "page.html"
_LARGEST = {
    MANIFEST: 1 << 16,
    CLAIM: 1 << 20,
    OPENING: 256 << 20,
    TRANSCRIPT: 64 << 20,
    VERDICT: 64 << 20,
    PAGE: 8 << 20,
}
_OWNER_ONLY = 0o600
_FIXED_TIME = (1980, 1, 1, 0, 0, 0)
# All that zipfile, zlib and the readers of parts raise for damaged bytes; the last one is for
# encrypted members and for compressions that zipfile lacks.
_DAMAGE = (
    zipfile.BadZipFile, zlib.error, EOFError, ValueError, TypeError, LookupError, RuntimeError,
)  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Pack:
    """What an evidence pack holds; parts that it does not have are None."""

    name: str  # for messages
    claim: Claim | None = None
    opening: Opening | None = None
    transcript: bytes | None = field(default=None, repr=False)  # JSON
    verdict: bytes | None = field(default=None, repr=False)  # JSON
    page: bytes | None = field(default=None, repr=False)  # HTML, never looked into
    ignored: tuple[str, ...] = ()  # files that do not belong to it


def is_pack(path: str | os.PathLike[str]) -> bool:
    """Return whether a folder or a zip archive looks like an evidence pack.

    Raises OSError if it cannot be opened.
    """
    if os.path.isdir(path):
        return os.path.isfile(os.path.join(path, MANIFEST))
    try:
        with zipfile.ZipFile(path) as archive:
            return MANIFEST in archive.namelist()
    except _DAMAGE:
        return False


def read_pack(path: str | os.PathLike[str]) -> Pack:
    """Return the evidence pack in a folder or a zip archive; an opening alone is one too.

    Raises FileFormatError if the pack is damaged, a file is not the one that its manifest lists,
    or a part is not sound; InputError if there is no pack; OSError if it cannot be opened.
    """
    if not isinstance(path, str | os.PathLike):
        raise refusal("pack.type", given=type(path).__name__)
    name = os.fspath(path)
    place = Path(path)
    if place.is_dir():
        return _assemble(name, *_read_folder(place, name))
    with place.open("rb") as file:
        head = file.read(32)
    if head.startswith(b"timbermark opening "):
        return Pack(name, opening=Opening.load(path))
    if head.startswith(b"timbermark claim "):
        raise refusal("pack.no-opening", pack=name)
    if not head.startswith(b"PK"):
        raise refusal("file.pack:foreign", FileFormatError, name=name)
    return _assemble(name, *_read_zip(place, name))


def write_pack(
    path: str | os.PathLike[str], parts: Mapping[str, bytes], force: bool = False
) -> None:
    """Write an evidence pack: a zip archive if the name ends in ``.zip``, otherwise a folder.

    ``parts`` are file names of a pack and their content; the manifest is added. Equal parts give
    equal bytes. A folder is complete once its manifest is there, which comes last.

    Raises InputError if something is there already, unless ``force``, or the parent is not.
    """
    check_target(path, force)
    files = {**parts, MANIFEST: _manifest(parts)}
    target = Path(path)
    if target.suffix.lower() == ".zip":
        atomic_write(target, _zip(files), mode=_OWNER_ONLY)
        return
    target.mkdir(mode=0o700, exist_ok=True)
    (target / MANIFEST).unlink(missing_ok=True)
    for name in _LARGEST:
        # A link that somebody left there would lead the file elsewhere.
        if name not in files or (target / name).is_symlink():
            (target / name).unlink(missing_ok=True)
    for name in sorted(files, key=lambda name: name == MANIFEST):
        atomic_write(target / name, files[name], mode=_OWNER_ONLY)


def check_target(path: str | os.PathLike[str], force: bool = False) -> None:
    """Raise InputError unless a pack can be written there."""
    target = Path(path)
    if not target.parent.is_dir():
        raise refusal("pack.parent", folder=target.parent)
    is_zip = target.suffix.lower() == ".zip"
    if target.exists() and target.is_dir() == is_zip:
        raise refusal("pack.kind", target=target, what="a folder" if is_zip else "a file")
    # A link that leads nowhere is somebody's, too.
    taken = os.path.lexists(target) and (
        not target.is_dir() or (not is_zip and any(target.iterdir()))
    )
    if taken and not force:
        raise refusal("pack.exists", target=target)


def _manifest(parts: Mapping[str, bytes]) -> bytes:
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in parts.items()}
    return _manifest_bytes(digests)


def _manifest_bytes(digests: Mapping[str, str]) -> bytes:
    record = {"format": FORMAT, "files": dict(digests)}
    return (json.dumps(record, indent=1, sort_keys=True) + "\n").encode()


def _zip(files: Mapping[str, bytes]) -> bytes:
    """Return these files as an uncompressed archive, whose bytes depend on no library version."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name in sorted(files):
            info = zipfile.ZipInfo(name, _FIXED_TIME)
            info.create_system = 3  # the same on every system
            info.external_attr = _OWNER_ONLY << 16
            archive.writestr(info, files[name])
    return packed.getvalue()


Read = Callable[[str], bytes]


def _assemble(name: str, names: set[str], read: Read) -> Pack:
    if MANIFEST not in names:
        raise refusal("file.pack:no-manifest", name=name, manifest=MANIFEST)
    listed = _read_manifest(name, read(MANIFEST))
    for part, digest in listed.items():
        if part not in names:
            raise _changed("lacks", name, part=part)
        if hashlib.sha256(read(part)).hexdigest() != digest:
            raise _changed("other", name, part=part)
    unlisted = sorted(names & _LARGEST.keys() - listed.keys() - {MANIFEST})
    if unlisted:
        raise _changed("unlisted", name, part=unlisted[0])

    def optional(wanted: str) -> bytes | None:
        return read(wanted) if wanted in listed else None

    claim, opening = optional(CLAIM), optional(OPENING)
    return Pack(
        name=name,
        claim=None if claim is None else Claim.from_bytes(claim, f"{CLAIM} in {name}"),
        opening=None if opening is None else Opening.from_bytes(opening, f"{OPENING} in {name}"),
        transcript=optional(TRANSCRIPT),
        verdict=optional(VERDICT),
        page=optional(PAGE),
        ignored=tuple(sorted(names - listed.keys() - {MANIFEST})),
    )


def _read_manifest(name: str, content: bytes) -> dict[str, str]:
    try:
        record = json.loads(content)
        listed: dict[str, str] = dict(record["files"])
        whole = record["format"] == FORMAT and _manifest_bytes(listed) == content
    except (ValueError, TypeError, KeyError, RecursionError):
        whole = False
    if not whole:
        raise _changed("manifest", name)
    strange = listed.keys() - _LARGEST.keys()
    if strange or MANIFEST in listed:
        raise _changed("listed", name, part=min(strange | {MANIFEST}))
    return listed


def _read_folder(folder: Path, name: str) -> tuple[set[str], Read]:
    names = {entry.name for entry in folder.iterdir() if entry.is_file()}

    def read(part: str) -> bytes:
        with (folder / part).open("rb") as file:
            content = file.read(_LARGEST[part] + 1)
        if len(content) > _LARGEST[part]:
            raise _changed("part-too-large", name, part=part, most=_LARGEST[part])
        return content

    return names, read


def _read_zip(path: Path, name: str) -> tuple[set[str], Read]:
    size = path.stat().st_size
    if size > sum(_LARGEST.values()):
        raise _changed("too-large", name, size=size)
    data = path.read_bytes()
    files: dict[str, bytes] = {}
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = archive.infolist()
            # Names are only compared with those of a pack's parts, so that none leads elsewhere.
            if any(info.filename not in _LARGEST for info in members):
                raise _changed("archive", name)
            if any(info.file_size > _LARGEST[info.filename] for info in members):
                raise _changed("unpacks", name)
            # Nothing is compressed, so that nothing unpacks to more than the archive.
            if any(info.compress_type != zipfile.ZIP_STORED for info in members):
                raise _changed("archive", name)
            files = {info.filename: archive.read(info) for info in members}
    except FileFormatError:
        raise
    except (*_DAMAGE, OSError):
        raise _changed("damaged", name) from None
    if _zip(files) != data:
        raise _changed("archive", name)
    return set(files), files.__getitem__


def _changed(how: str, name: str, **facts: Any) -> FileFormatError:
    return refusal(f"file.pack:{how}", FileFormatError, name=name, **facts)
