"""Writing files in one step, and containers in one pass.

Files are replaced at once: a killed process leaves the old one whole. Containers are hashed on the
way, without a second copy of any array.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import secrets
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy

from timbermark.dtypes import AnyArray
from timbermark.errors import InputError
from timbermark.files.reading import (
    ARRAY_NAME,
    CHUNK,
    KIND,
    MAX_META,
    MAX_UNPACKED,
    MAX_VERSION,
    META_NAME,
    array_problem,
    most_unpacked,
)

_State = tuple[int, int, int] | None
_watched: dict[Path, _State] | None = None


@contextmanager
def watch_writes() -> Iterator[Callable[[], list[Path]]]:
    """Yield a function that lists the files which were written since and are there now.

    A file that was written and taken back, or that is as it was before, is not listed. It is for
    the command line, which says after an interruption what is left behind; one at a time.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, watch_writes() as written:
    ...     atomic_write(Path(folder) / "note", b"whole")
    ...     [path.name for path in written()]
    ['note']
    """
    global _watched
    before: dict[Path, _State] = {}
    outer, _watched = _watched, before
    try:
        yield lambda: [path for path in before if _state(path) not in (None, before[path])]
    finally:
        _watched = outer


def will_write(path: str | os.PathLike[str]) -> None:
    """Tell `watch_writes` that a file is about to be written, other than by `atomic_write`."""
    if _watched is not None:
        target = Path(os.path.realpath(path))
        _watched.setdefault(target, _state(target))


def _state(path: Path) -> _State:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def atomic_write(
    path: str | os.PathLike[str],
    content: bytes | Callable[[IO[bytes]], None],
    *,
    mode: int | None = None,
) -> None:
    """Write a file so that at any moment ``path`` holds the old content or the new, both whole.

    ``content`` is the bytes, or a function that writes them to the binary file (which can seek)
    that it is given. The new file gets the permissions ``mode``; by default those of the file that
    it replaces, or else the process's usual ones. A symbolic link is followed, not replaced.

    Raises InputError if ``path`` is a folder or its folder does not exist, OSError if the system
    refuses, and whatever ``content`` raises; in each case the old file is untouched.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     atomic_write(Path(folder) / "note", b"whole")
    ...     (Path(folder) / "note").read_bytes()
    b'whole'
    """
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise InputError(f"{target} is a folder.", hint="give the name of a file.")
    if not target.parent.is_dir():
        raise InputError(f"The folder {target.parent} does not exist.", hint="make it first.")
    if mode is None and target.exists():
        mode = target.stat().st_mode & 0o777
    draft = target.parent / f".{target.name}.{secrets.token_hex(6)}.tmp"
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    # Secret content must never exist under wider permissions, not even for a moment.
    try:
        descriptor = os.open(draft, flags, 0o666 if mode is None else 0o600)
        with os.fdopen(descriptor, "r+b") as file:
            if mode is not None:
                os.chmod(draft, mode)
            if isinstance(content, bytes):
                file.write(content)
            else:
                content(file)
            file.flush()
            os.fsync(file.fileno())
        will_write(target)
        os.replace(draft, target)
    except BaseException:
        with suppress(OSError):
            draft.unlink()
        raise
    sync_folder(target.parent)


def write_public(path: str | os.PathLike[str], content: bytes, what: str, force: bool) -> None:
    """Write a file that is meant for others.

    Raises InputError if the file exists, unless ``force``; and as `atomic_write` does.
    """
    if not force and os.path.lexists(path):
        raise exists_error(path, what)
    atomic_write(path, content)


def exists_error(path: str | os.PathLike[str], what: str) -> InputError:
    """Return the error for a file that is there and must not be replaced."""
    return InputError(
        f"{os.fspath(path)} exists already, the {what} was not written.",
        hint="choose another name, or force=True to replace it.",
        code="file.exists",
        parameter="force",
    )


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on the disk, where the system can do that."""
    # Only POSIX systems can sync a folder, and some network file systems refuse: the rename is
    # then as durable as the system makes it.
    if os.name == "posix":
        with suppress(OSError):
            descriptor = os.open(folder, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


# zlib's own default, 6, takes several times as long for files a few percent smaller.
_DEFLATE_LEVEL = 2
# At least the length of any header of an .npy member, whatever the shape.
_HEADER_ROOM = 512
_NO_DIGEST_YET = b"0" * 64


def write_container(
    path: str | os.PathLike[str],
    kind: str,
    version: int,
    meta: Mapping[str, Any],
    arrays: Mapping[str, AnyArray],
    *,
    compress: bool = True,
    mode: int | None = None,
) -> None:
    """Write a container to ``path`` atomically, with the permissions ``mode`` if given.

    The other arguments and what is raised are those of `container_bytes` and `atomic_write`.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from timbermark.files import read_container
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_container(Path(folder) / "x", "note", 1, {"a": 1}, {"b": np.arange(3)})
    ...     read_container(Path(folder) / "x", "note", 1)
    (1, {'a': 1}, {'b': array([0, 1, 2])})
    """
    content = _Content(kind, version, meta, arrays)
    atomic_write(path, lambda file: content.write(file, compress), mode=mode)


def container_bytes(
    kind: str,
    version: int,
    meta: Mapping[str, Any],
    arrays: Mapping[str, AnyArray],
    *,
    compress: bool = True,
) -> bytes:
    """Return a container as bytes; equal content gives equal bytes on one machine.

    ``kind`` is lower-case letters and hyphens, ``version`` an integer from 1, ``meta`` what JSON
    can hold, ``arrays`` boolean, integer, float or text arrays of any shape, by name. They are
    written in C order and little-endian whatever they were. ``compress`` deflates them.

    Raises InputError for anything that could not be read back.

    >>> data = container_bytes("note", 1, {}, {"b": np.arange(3)})
    >>> data.splitlines()[0]
    b'timbermark note 1'
    """
    file = io.BytesIO()
    _Content(kind, version, meta, arrays).write(file, compress)
    return file.getvalue()


class _Content:
    """What is to be written, checked: every refusal comes before the first byte."""

    def __init__(
        self, kind: str, version: int, meta: Mapping[str, Any], arrays: Mapping[str, AnyArray]
    ) -> None:
        if not KIND.fullmatch(kind):
            raise InputError(f"kind={kind!r} is not a kind.", hint="use lower-case letters.")
        if not 1 <= version <= MAX_VERSION:
            raise InputError(f"version={version} must be at least 1.", hint="start with 1.")
        self.first_line = f"timbermark {kind} {version}\n".encode()
        self.meta = _meta_bytes(meta)
        self.arrays = [(name, _storable(name, arrays[name])) for name in sorted(arrays)]
        self.unpacked = len(self.meta) + sum(a.nbytes + _HEADER_ROOM for _, a in self.arrays)
        if self.unpacked > MAX_UNPACKED:
            raise InputError(
                f"The content has {self.unpacked} bytes, a file holds at most {MAX_UNPACKED}.",
                hint="store less in one file.",
            )

    def write(self, file: IO[bytes], compress: bool) -> None:
        start = file.tell()
        size = self._write_once(file, compress)
        if self.unpacked > most_unpacked(size):
            file.seek(start)
            file.truncate()
            self._write_once(file, compress=False)

    def _write_once(self, file: IO[bytes], compress: bool) -> int:
        start = file.tell()
        file.write(self.first_line + _NO_DIGEST_YET + b"\n")
        sink = _HashingSink(file, self.first_line)
        self._write_zip(sink, compress)
        end = file.tell()
        file.seek(start + len(self.first_line))
        file.write(sink.digest.hexdigest().encode())
        file.seek(end)
        return end - start

    def _write_zip(self, sink: _HashingSink, compress: bool) -> None:
        method = zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED
        # Members opened by name alone get a fixed time and fixed permissions, hence equal bytes.
        with zipfile.ZipFile(
            sink,  # type: ignore[call-overload]  # needs `write` and `flush` only
            "w",
            method,
            compresslevel=_DEFLATE_LEVEL,
        ) as archive:
            with archive.open(META_NAME, "w") as member:
                member.write(self.meta)
            for name, array in self.arrays:
                huge = array.nbytes > zipfile.ZIP64_LIMIT // 2
                with archive.open(f"{name}.npy", "w", force_zip64=huge) as member:
                    npy.write_array_header_1_0(member, npy.header_data_from_array_1_0(array))
                    flat = array.reshape(-1).view(np.uint8).data
                    for start in range(0, array.nbytes, CHUNK):
                        member.write(flat[start : start + CHUNK])


class _HashingSink:
    """Passes bytes on to a file and hashes them.

    It has no `seek`, on purpose: the archive is then written front to back, and the hash is right.
    """

    def __init__(self, file: IO[bytes], prefix: bytes) -> None:
        self._file = file
        self.digest = hashlib.sha256(prefix)

    def write(self, data: bytes, /) -> int:
        self.digest.update(data)
        return self._file.write(data)

    def flush(self) -> None:
        self._file.flush()


def _meta_bytes(meta: Mapping[str, Any]) -> bytes:
    hint = "use text, finite numbers, lists and dictionaries with text keys."
    try:
        text = json.dumps(dict(meta), sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"The metadata does not fit into JSON ({error}).", hint=hint) from None
    if len(text) > MAX_META:
        raise InputError(
            f"The metadata has {len(text)} bytes, at most {MAX_META} are allowed.",
            hint="put what is long into an array.",
        )
    return text.encode()


def _storable(name: str, array: AnyArray) -> AnyArray:
    if not ARRAY_NAME.fullmatch(name):
        raise InputError(f"{name!r} cannot be an array's name.", hint="use letters and digits.")
    array = np.asarray(array)
    problem = array_problem(array.dtype, array.shape)
    if problem:
        raise InputError(f"Array {name} {problem}.", hint="convert it to a plain NumPy type.")
    little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    return little.reshape(array.shape)
