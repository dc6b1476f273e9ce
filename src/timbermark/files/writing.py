"""Writing a container in one pass: hashed on the way, without a second copy of any array."""

import hashlib
import io
import json
import os
import zipfile
from collections.abc import Mapping
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy

from timbermark.dtypes import AnyArray
from timbermark.errors import InputError
from timbermark.files.atomic import atomic_write
from timbermark.files.limits import (
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

    def _write_zip(self, sink: "_HashingSink", compress: bool) -> None:
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
