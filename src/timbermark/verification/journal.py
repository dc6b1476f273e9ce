"""The journal of an inquiry: every answer is on the disk before the next question is asked.

The first line is ``timbermark journal 1``. Each further line is a JSON list of a check and a
record; the check is a SHA-256 over the check before and the record, so that a line that was
changed, lost or moved is noticed. What a killed process left unfinished at the end is cut off.
A journal holds neither questions nor which of them are triggers, and no credentials.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from timbermark.errors import FileFormatError, InputError
from timbermark.files.atomic import sync_folder

FIRST_LINE = b"timbermark journal 1\n"
_KIND = b"timbermark journal "
_CHECK_DIGITS = 32
_MAX_SIZE = 1 << 30
_PAUSE = 0.05
_MOST_AT_ONCE = 10_000
_AGAIN = "restore it from a backup, or begin a new one with another name."
# What must be the same when a run is resumed, and how it is called.
_SAME = {
    "mark_digest": "another mark",
    "suspect": "another suspect",
    "questions": "other questions: other decoys, other columns or another request",
}


@dataclass(slots=True)
class History:
    """What a journal holds."""

    start: dict[str, Any] = field(default_factory=dict)  # whose mark, which suspect, when
    answers: list[Any] = field(default_factory=list)  # in the order of the questions; None: none
    first: int = 0  # how many answers came first, in one reply
    under_way: tuple[int, int] | None = None  # first and count of what was asked and not answered
    refused: int = 0  # questions that the suspect refused
    ended: dict[str, Any] | None = None  # the last verdict, in numbers

    def add(self, record: Mapping[str, Any]) -> None:
        """Take in one record. Raises ValueError if it cannot follow what is there."""
        ((kind, value),) = record.items()
        if kind == "start" and not self.start and isinstance(value, dict):
            self.start = value
        elif kind == "ended" and isinstance(value, dict):
            self.ended = value
        elif kind in ("asking", "failed", "refused", "skipped", "answers"):
            first, what = value
            if first != len(self.answers):
                raise ValueError("a record is out of turn")
            if kind == "answers":
                if not isinstance(what, list):
                    raise ValueError("answers are no list")
                self.first = self.first or len(self.answers) + len(what)
                self.answers += what
                self.under_way = None
                return
            if type(what) is not int or not 0 < what <= _MOST_AT_ONCE:
                raise ValueError("a record counts what nobody asks")
            self.under_way = (first, what) if kind == "asking" else None
            if kind in ("refused", "skipped"):
                self.answers += [None] * what
                self.refused += what if kind == "refused" else 0
        else:
            raise ValueError(f"a record of the unknown kind {kind!r:.20}")


def read_journal(path: str | os.PathLike[str]) -> History:
    """Return what a journal holds, without changing it.

    Raises FileFormatError if it is no journal or was damaged, OSError if it cannot be opened.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with Journal(folder + "/run", {"mark_digest": "00"}) as journal:
    ...         journal.add({"asking": [0, 1]})
    ...         journal.add({"answers": [0, ["yes"]]})
    ...     read_journal(folder + "/run").answers
    ['yes']
    """
    with open(path, "rb") as file:
        return _read(file, os.fspath(path))[0]


class Journal:
    """A journal that is open for writing, by one process at a time.

    ``start`` is the first record; an existing journal is resumed if what matters of it is the same.
    ``patience``: how long, in seconds, to wait for another process that writes.

    Raises InputError if the journal belongs to another inquiry or is in use, FileFormatError if it
    is damaged or no journal, OSError if the system refuses; the file is then unchanged.
    """

    def __init__(
        self, path: str | os.PathLike[str], start: Mapping[str, Any], patience: float = 0.0
    ) -> None:
        self._name = os.fspath(path)
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0)
        self._file: IO[bytes] = os.fdopen(os.open(path, flags, 0o600), "r+b", buffering=0)
        try:
            self._lock(patience)
            self.history, self._end, self._check = _read(self._file, self._name)
            if not self.history.start:
                self._begin(start)
            else:
                self._compare(start)
                self._cut()
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the journal, so that other processes may write to it."""
        self._file.close()

    def add(self, record: Mapping[str, Any], reserve: int = 0) -> None:
        """Write one record and wait until it is on the disk.

        ``reserve`` bytes are set aside for the record that follows: a disk that is full is noticed
        before a question is asked, not after it was paid for.
        """
        check, line = _line(self._check, record)
        self._write(line + bytes(reserve))
        self._check, self._end = check, self._end + len(line)
        self.history.add(record)

    def _write(self, data: bytes) -> None:
        self._file.seek(self._end)
        try:
            left = memoryview(data)
            while left:
                left = left[self._file.write(left) :]
            self._file.truncate(self._end + len(data))
            os.fsync(self._file.fileno())
        except OSError as error:
            with suppress(OSError):
                self._cut()
            raise InputError(
                f"The journal {self._name} cannot be written ({error.strerror}).",
                hint="make room and run the same command again: it goes on where it stopped.",
            ) from error

    def _begin(self, start: Mapping[str, Any]) -> None:
        self._file.truncate(0)
        self._end, self._check = 0, ""
        check, line = _line("", {"start": start})
        self._write(FIRST_LINE + line)
        self.history.add({"start": dict(start)})
        self._check, self._end = check, len(FIRST_LINE) + len(line)
        sync_folder(Path(self._name).absolute().parent)

    def _compare(self, start: Mapping[str, Any]) -> None:
        for name, what in _SAME.items():
            if self.history.start.get(name) != start.get(name):
                raise InputError(
                    f"The journal {self._name} was begun with {what}.",
                    hint="resume with the same mark, suspect, decoys and columns, or begin a new "
                    "journal with another name.",
                )

    def _cut(self) -> None:
        self._file.truncate(self._end)

    def _lock(self, patience: float) -> None:
        until = time.monotonic() + patience
        while not _try_lock(self._file.fileno()):
            if time.monotonic() >= until:
                raise InputError(
                    f"The journal {self._name} is in use by another process.",
                    hint="wait until that run has ended.",
                )
            time.sleep(_PAUSE)


def _read(file: IO[bytes], name: str) -> tuple[History, int, str]:
    """Return the history, where its last whole record ends, and the check of that."""
    if os.fstat(file.fileno()).st_size > _MAX_SIZE:
        raise FileFormatError(f"{name} is too large for a journal.", hint="is it the right file?")
    file.seek(0)
    data = file.read()
    history = History()
    if FIRST_LINE.startswith(data.rstrip(b"\0")) and not data.startswith(FIRST_LINE):
        return history, 0, ""  # killed before the first line was whole
    if not data.startswith(FIRST_LINE):
        if data.startswith(_KIND):
            raise FileFormatError(
                f"{name} has another version of the format than this timbermark reads.",
                hint="pip install --upgrade timbermark",
            )
        raise FileFormatError(f"{name} is no journal of timbermark.", hint="give another name.")
    at, check = len(FIRST_LINE), ""
    while at < len(data):
        end = data.find(b"\n", at) + 1
        last = end in (0, len(data)) or not data[end:].rstrip(b"\0")
        line = data[at:end] if end else b""
        if not line or (last and b"\0" in line):
            break  # the last line, of which only a part reached the disk
        try:
            said, record = json.loads(line)
            found, whole = _line(check, record)
            if said != found or whole != line:
                raise ValueError("a check is wrong")
            history.add(record)
        except (ValueError, TypeError, RecursionError, AttributeError) as error:
            raise FileFormatError(f"The journal {name} is damaged ({error}).", _AGAIN) from None
        at, check = end, found
    return history, at, check


def _line(check: str, record: Mapping[str, Any]) -> tuple[str, bytes]:
    said = _dump(record)
    check = hashlib.sha256(f"{check}\n{said}".encode()).hexdigest()[:_CHECK_DIGITS]
    return check, f'["{check}",{said}]\n'.encode()


def _dump(record: Mapping[str, Any]) -> str:
    return json.dumps(record, allow_nan=False, separators=(",", ":"))


def _try_lock(descriptor: int) -> bool:
    try:
        import fcntl
    except ImportError:  # Windows, where a lock far behind the end keeps nobody from reading
        import msvcrt

        os.lseek(descriptor, _MAX_SIZE, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
        except OSError:
            return False
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
