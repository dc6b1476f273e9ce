"""Reading a container: every check comes before anything is built from it.

What may stand in one (names, types, sizes) is the same for writer and reader.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import re
import struct
import zipfile
import zlib
from typing import IO, Any, NoReturn, TypeAlias

import numpy as np

from timbermark.dtypes import AnyArray
from timbermark.errors import FileFormatError

Meta: TypeAlias = dict[str, Any]
Arrays: TypeAlias = dict[str, AnyArray]

META_NAME = "meta.json"
KIND = re.compile(r"[a-z][a-z-]{0,30}")
ARRAY_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.]{0,99}")
MAX_VERSION = 10**9 - 1
MAX_DIMENSIONS = 8
MAX_META = 64 << 20
MAX_UNPACKED = 8 << 30
# Deflate can shrink a thousandfold, so that a small hostile file could ask for gigabytes. Ours
# never do: the writer stores without compression what would unpack to more than this.
FREE_UNPACKED = 64 << 20
MAX_RATIO = 200

CHUNK = 1 << 20


def most_unpacked(packed: int) -> int:
    """Return how many bytes a container of ``packed`` bytes may unpack to.

    >>> most_unpacked(0) == FREE_UNPACKED
    True
    """
    return min(MAX_UNPACKED, FREE_UNPACKED + MAX_RATIO * packed)


def array_problem(dtype: np.dtype[Any], shape: tuple[int, ...]) -> str:
    """Return why an array of this type and shape cannot be in a container, or an empty string.

    >>> array_problem(np.dtype("f8"), (3, 2))
    ''
    >>> array_problem(np.dtype("O"), (3,))
    'has the type object, which is not allowed in a file'
    """
    if dtype.kind not in "biufU" or dtype.itemsize == 0:
        return f"has the type {dtype}, which is not allowed in a file"
    if dtype.kind == "f" and dtype.itemsize > 8:
        return f"has the type {dtype}, which differs between machines"
    if len(shape) > MAX_DIMENSIONS:
        return f"has {len(shape)} dimensions, at most {MAX_DIMENSIONS} are allowed"
    return ""


_LONGEST_LINE = 80
_FIRST_LINE = re.compile(rb"timbermark ([a-z][a-z-]{0,30}) ([1-9][0-9]{0,8})\n")
_DIGEST_LINE = re.compile(rb"([0-9a-f]{64})\n")
# A zip archive without a comment ends in this many bytes, the first four of which are fixed.
_ZIP_END = 22
_ZIP_END_MARK = b"PK\x05\x06"
_NPY_MAGIC = b"\x93NUMPY\x01\x00"
# NumPy's own reader evaluates the header as Python text; only what NumPy writes is accepted here.
_NPY_HEADER = re.compile(
    r"\{'descr': '([^']{1,20})', 'fortran_order': (True|False), "
    r"'shape': \(([0-9, ]{0,200})\), \} *\n"
)
_PLAIN_TYPE = re.compile(r"[<>|]?[A-Za-z?][0-9]*")
_MAX_CODE_POINT = 0x10FFFF

# What Python's readers of zip archives, JSON and array types raise on hostile bytes.
DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    ValueError,
    TypeError,
    LookupError,
    ArithmeticError,
    RuntimeError,  # encrypted members and unknown compression, too
    OSError,
)
_AGAIN = "get the file again from where it came, it was damaged on the way."
FOREIGN = "it was not written by timbermark, do not trust it."


def read_container(
    source: str | os.PathLike[str] | bytes, kind: str, max_version: int
) -> tuple[int, Meta, Arrays]:
    """Read a container of the given ``kind`` from a file or from bytes.

    Returns its version (1 to ``max_version``), its metadata and its arrays by name: C order,
    aligned, writable, with the types and shapes that were written.

    Raises FileFormatError, with a message for each case, if the file is empty, not ours, of another
    kind, of a newer version, truncated, changed, or holds anything that may not be in a container;
    OSError if it cannot be opened.

    >>> from timbermark.files import container_bytes
    >>> version, meta, arrays = read_container(container_bytes("note", 1, {"a": 1}, {}), "note", 1)
    >>> version, meta, arrays
    (1, {'a': 1}, {})
    """
    if isinstance(source, bytes):
        return _read(io.BytesIO(source), len(source), "The data", kind, max_version)
    with open(source, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        return _read(file, size, os.fspath(source), kind, max_version)


def container_kind(path: str | os.PathLike[str]) -> str:
    """Return what a file's first line says it holds, or an empty string if it is not ours.

    >>> import tempfile
    >>> from timbermark.files import write_container
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_container(f"{folder}/a", "note", 1, {}, {})
    ...     container_kind(f"{folder}/a")
    'note'
    """
    with open(path, "rb") as file:
        match = _FIRST_LINE.fullmatch(file.readline(_LONGEST_LINE))
    return match[1].decode() if match else ""


def check_kind(source: str | os.PathLike[str] | bytes, kind: str, max_version: int) -> None:
    """Refuse, by its first line alone, what `read_container` would refuse by it.

    >>> from timbermark.files import container_bytes
    >>> check_kind(container_bytes("note", 1, {}, {}), "owner-key", 1)
    Traceback (most recent call last):
    timbermark.errors.FileFormatError: The data holds a note, not an owner key. Hint: give the \
file of the owner key.
    """
    if isinstance(source, bytes):
        line, name = io.BytesIO(source).readline(_LONGEST_LINE), "The data"
    else:
        name = os.fspath(source)
        with open(source, "rb") as file:
            line = file.readline(_LONGEST_LINE)
    _read_first_line(line, name, kind, max_version)


def _read(
    file: IO[bytes], size: int, name: str, kind: str, max_version: int
) -> tuple[int, Meta, Arrays]:
    # The first line is checked before the rest is read: a large foreign file is refused at once.
    first_line = file.readline(_LONGEST_LINE)
    version = _read_first_line(first_line, name, kind, max_version)
    if size > MAX_UNPACKED:
        _refuse(f"{name} has {size} bytes, at most {MAX_UNPACKED} are allowed.", FOREIGN)
    digest_line = _DIGEST_LINE.fullmatch(file.readline(_LONGEST_LINE))
    payload = file.read()
    if not payload:
        _refuse(f"{name} ends too early.", _AGAIN, "file.truncated")
    digest = hashlib.sha256(first_line)
    digest.update(payload)
    if digest_line is None or digest_line[1] != digest.hexdigest().encode():
        if payload[-_ZIP_END:][:4] != _ZIP_END_MARK:
            _refuse(f"{name} ends too early.", _AGAIN, "file.truncated")
        _refuse(
            f"{name} was changed after it was written: its checksum is wrong.",
            _AGAIN,
            "file.changed",
        )
    meta, arrays = _unpack(payload, size, name)
    return version, meta, arrays


def _with_article(kind: str) -> str:
    words = kind.replace("-", " ")
    if kind in ("classifier", "regressor"):
        words = f"model (a {kind})"
    return f"{'an' if words[0] in 'aeiou' else 'a'} {words}"


def _read_first_line(line: bytes, name: str, kind: str, max_version: int) -> int:
    if not line:
        _refuse(f"{name} is empty.", _AGAIN, "file.empty")
    match = _FIRST_LINE.fullmatch(line)
    if match is None:
        _refuse(
            f"{name} is not a timbermark file.",
            "was it written by another program?",
            "file.foreign",
        )
    found, version = match[1].decode(), int(match[2])
    if found != kind:
        wanted = kind.replace("-", " ")
        _refuse(
            f"{name} holds {_with_article(found)}, not {_with_article(kind)}.",
            f"give the file of the {wanted}.",
            "file.kind",
        )
    if version > max_version:
        _refuse(
            f"{name} was written by a newer timbermark ({found}, format {version}), this one reads "
            f"up to format {max_version}.",
            "pip install --upgrade timbermark",
            "file.version",
        )
    return version


def _refuse(message: str, hint: str, code: str = "file.content") -> NoReturn:
    raise FileFormatError(message, hint, code)


def _unpack(payload: bytes, size: int, name: str) -> tuple[Meta, Arrays]:
    try:
        archive = zipfile.ZipFile(io.BytesIO(payload))
    except DAMAGE:
        _refuse(f"{name} does not hold a zip archive.", FOREIGN)
    try:
        with archive:
            members = _list_members(archive, size, name)
            meta = _read_meta(archive, members.pop(META_NAME), name)
            arrays = {
                member.removesuffix(".npy"): _read_array(archive, info, name)
                for member, info in members.items()
            }
    except FileFormatError:
        raise
    except DAMAGE as error:
        _refuse(f"{name} holds a damaged archive ({error}).", FOREIGN)
    return meta, arrays


_ZIP64 = b"\x01\x00"
"""How the one extra field begins that writers of large members add."""


def _list_members(archive: zipfile.ZipFile, size: int, name: str) -> dict[str, zipfile.ZipInfo]:
    listed = archive.infolist()
    members = {info.filename: info for info in listed}
    if len(members) != len(listed):
        _refuse(f"{name} holds two members of the same name.", FOREIGN)
    if META_NAME not in members:
        _refuse(f"{name} holds no {META_NAME}.", FOREIGN)
    for member, info in members.items():
        stem = member.removesuffix(".npy")
        if member != META_NAME and (stem == member or not ARRAY_NAME.fullmatch(stem)):
            _refuse(f"{name} holds a foreign member, {member!r}.", FOREIGN)
        # A comment or a field that is too long would hide the members after it.
        if info.comment or (info.extra and not info.extra.startswith(_ZIP64)):
            _refuse(f"{name} holds {member} with more than its content.", FOREIGN)
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            _refuse(f"{name} uses an unknown compression for {member}.", FOREIGN)
    unpacked = sum(info.file_size for info in listed)
    if unpacked > most_unpacked(size):
        _refuse(
            f"{name} has {size} bytes but would unpack to {unpacked}, which is out of proportion.",
            FOREIGN,
        )
    return members


def _read_meta(archive: zipfile.ZipFile, info: zipfile.ZipInfo, name: str) -> Meta:
    if info.file_size > MAX_META:
        _refuse(f"{name} holds {info.file_size} bytes of metadata.", FOREIGN)
    try:
        meta = json.loads(
            archive.read(info).decode(),
            parse_constant=_refuse_constant,
            object_pairs_hook=_unique_keys,
        )
    except (ValueError, RecursionError) as error:
        _refuse(f"{name} holds metadata that is not valid JSON ({error}).", FOREIGN)
    if not isinstance(meta, dict):
        _refuse(f"{name} holds metadata that is not a JSON object.", FOREIGN)
    return meta


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a number of JSON")


def _unique_keys(pairs: list[tuple[str, Any]]) -> Meta:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice in one object")
    return found


def _read_array(archive: zipfile.ZipFile, info: zipfile.ZipInfo, name: str) -> AnyArray:
    where = f"{name}: array {info.filename.removesuffix('.npy')}"
    with archive.open(info) as member:
        dtype, shape, header_size = _read_npy_header(member, where)
        n_bytes = math.prod(shape) * dtype.itemsize
        if header_size + n_bytes != info.file_size:
            _refuse(
                f"{where} claims the shape {shape} but has {info.file_size - header_size} bytes.",
                FOREIGN,
            )
        array = np.empty(shape, dtype)
        flat = array.reshape(-1).view(np.uint8).data
        at = 0
        # One read beyond the last byte makes the archive check the member's own checksum.
        while piece := member.read(CHUNK):
            flat[at : at + len(piece)] = piece
            at += len(piece)
    if at != n_bytes:
        _refuse(f"{where} ends too early.", _AGAIN)
    if dtype.kind == "b" and array.size and array.view(np.uint8).max() > 1:
        _refuse(f"{where} holds values other than true and false.", FOREIGN)
    if dtype.kind == "U" and array.size and _code_points(array).max() > _MAX_CODE_POINT:
        _refuse(f"{where} holds text that is not Unicode.", FOREIGN)
    return array


def _read_npy_header(member: IO[bytes], where: str) -> tuple[np.dtype[Any], tuple[int, ...], int]:
    start = member.read(len(_NPY_MAGIC) + 2)
    if len(start) != len(_NPY_MAGIC) + 2 or not start.startswith(_NPY_MAGIC):
        _refuse(f"{where} is not in NumPy's format, version 1.0.", FOREIGN)
    (length,) = struct.unpack("<H", start[-2:])
    match = _NPY_HEADER.fullmatch(member.read(length).decode("latin1"))
    if match is None:
        _refuse(f"{where} has a header that NumPy would not write.", FOREIGN)
    try:
        # NumPy reads more than types here: lists of them and shapes, by parsing Python.
        dtype = np.dtype(match[1] if _PLAIN_TYPE.fullmatch(match[1]) else "?!")
        shape = tuple(int(n) for n in match[3].replace(",", " ").split())
    except DAMAGE:
        _refuse(f"{where} has the unknown type {match[1]!r}.", FOREIGN)
    problem = array_problem(dtype, shape)
    if problem:
        _refuse(f"{where} {problem}.", FOREIGN)
    if match[2] == "True" or match[1][0] == ">":
        _refuse(f"{where} is not in C order and little-endian.", FOREIGN)
    return dtype, shape, len(start) + length


def _code_points(array: AnyArray) -> AnyArray:
    return array.reshape(-1).view("<u4")
