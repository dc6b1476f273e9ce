"""The journal of an inquiry: every answer is on the disk before the next question is asked.

The first line is ``timbermark journal 2``. Each further line is a JSON list of a check and a
record; the check is a SHA-256 over the check before and the record, so that a line that was
changed, lost or moved is noticed. What a killed process left unfinished at the end is cut off.
Answers are known by the ids of their questions. A journal holds neither questions nor which of
them are triggers, and no credentials.
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
from typing import IO, Any, Self

from timbermark.errors import FileFormatError
from timbermark.files.writing import sync_folder, will_write
from timbermark.verification.refusals import refusal

FIRST_LINE = b"timbermark journal 2\n"
_KIND = b"timbermark journal "
_CHECK_DIGITS = 32
_MAX_SIZE = 1 << 30
_PAUSE = 0.05
_MOST_AT_ONCE = 10_000
# What must be the same when a run is resumed, and how it is called.
_SAME = {
    "mark_digest": "another mark",
    "suspect": "another suspect",
    "questions": "other questions: other decoys, other columns or another request",
}


@dataclass(slots=True)
class History:
    """The records of a run so far: what a journal holds, or all there is where none is kept."""

    start: dict[str, Any] = field(default_factory=dict)  # whose mark, which suspect, when
    answers: dict[str, Any] = field(default_factory=dict)  # by question, as they came; None: none
    under_way: tuple[str, ...] = ()  # what was asked and not answered
    ended: dict[str, Any] | None = None  # the last verdict, in numbers

    @property
    def run(self) -> str:
        """Return the name of the first run: what is asked again after a crash has the same key."""
        return str(self.start.get("run", ""))

    def add(self, record: Mapping[str, Any], reserve: int = 0) -> None:
        """Take in one record. Raises ValueError if it cannot follow what is there."""
        ((kind, value),) = record.items()
        if kind == "start" and not self.start and isinstance(value, dict):
            self.start = value
        elif kind == "ended" and isinstance(value, dict):
            self.ended = value
        elif kind in ("asking", "failed", "skipped") and _are_ids(value):
            self.under_way = tuple(value) if kind == "asking" else ()
            if kind == "skipped":
                self._answer([[name, None] for name in value])
        elif kind == "answers" and isinstance(value, list) and _are_ids([p[0] for p in value]):
            self._answer(value)
            self.under_way = ()
        else:
            raise ValueError(f"a record of the unknown kind {kind!r:.20}")

    def _answer(self, pairs: list[list[Any]]) -> None:
        for name, answer in pairs:
            if name in self.answers:
                raise ValueError("a question is answered twice")
            self.answers[name] = answer


def _are_ids(value: Any) -> bool:
    return (
        isinstance(value, list)
        and 0 < len(value) <= _MOST_AT_ONCE
        and all(isinstance(name, str) and 0 < len(name) <= 64 for name in value)
    )


def read_journal(path: str | os.PathLike[str]) -> History:
    """Return what a journal holds, without changing it.

    Raises FileFormatError if it is no journal or was damaged, OSError if it cannot be opened.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with Journal(folder + "/run", {"mark_digest": "00"}) as journal:
    ...         journal.add({"asking": ["ab"]})
    ...         journal.add({"answers": [["ab", "yes"]]})
    ...     read_journal(folder + "/run").answers
    {'ab': 'yes'}
    """
    with open(path, "rb") as file:
        return _read(file, os.fspath(path), History())[0]


class Journal(History):
    """A journal that is open for writing, by one process at a time.

    ``start`` is the first record; an existing journal is resumed if what matters of it is the same,
    and begun anew if it is not and no question was answered.

    Raises InputError if the journal belongs to another inquiry or is in use, FileFormatError if it
    is damaged or no journal, OSError if the system refuses; the file is then unchanged.
    """

    def __init__(self, path: str | os.PathLike[str], start: Mapping[str, Any]) -> None:
        super().__init__()
        self._name = os.fspath(path)
        will_write(path)
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0)
        self._file: IO[bytes] = os.fdopen(os.open(path, flags, 0o600), "r+b", buffering=0)
        try:
            self._lock()
            _, self._end, self._check = _read(self._file, self._name, self)
            others = [
                what for name, what in _SAME.items() if self.start.get(name) != start.get(name)
            ]
            if not self.start or (others and self._is_bare):
                self._begin(start)
            elif others:
                raise refusal("journal.other-run", name=self._name, what=others[0])
            else:
                self._cut()
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, record: Mapping[str, Any], reserve: int = 0) -> None:
        """Write one record and wait until it is on the disk.

        ``reserve`` bytes are set aside for the record that follows: a disk that is full is noticed
        before a question is asked, not after it was paid for.
        """
        check, line = _line(self._check, record)
        self._write(line + bytes(reserve))
        self._check, self._end = check, self._end + len(line)
        super().add(record)

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
            raise refusal("journal.disk", name=self._name, why=error.strerror) from error

    def _begin(self, start: Mapping[str, Any]) -> None:
        self._file.truncate(0)
        self._end, self._check, self.start = 0, "", {}
        check, line = _line("", {"start": start})
        self._write(FIRST_LINE + line)
        super().add({"start": dict(start)})
        self._check, self._end = check, len(FIRST_LINE) + len(line)
        sync_folder(Path(self._name).absolute().parent)

    @property
    def _is_bare(self) -> bool:
        """Return whether nobody has answered or may yet answer: an address was wrong, say."""
        return not self.answers and not self.under_way and self.ended is None

    def _cut(self) -> None:
        self._file.truncate(self._end)

    def _lock(self) -> None:
        until = time.monotonic() + 1.0
        while not _try_lock(self._file.fileno()):
            if time.monotonic() >= until:
                raise refusal("journal.in-use", name=self._name)
            time.sleep(_PAUSE)


def _read(file: IO[bytes], name: str, history: History) -> tuple[History, int, str]:
    """Return the history with all records of a file, where the last ends, and its check."""
    if os.fstat(file.fileno()).st_size > _MAX_SIZE:
        raise refusal("journal.too-large", FileFormatError, name=name)
    file.seek(0)
    data = file.read()
    if FIRST_LINE.startswith(data.rstrip(b"\0")) and not data.startswith(FIRST_LINE):
        return history, 0, ""  # killed before the first line was whole
    if not data.startswith(FIRST_LINE):
        if data.startswith(_KIND):
            raise refusal("journal.version", FileFormatError, name=name)
        raise refusal("journal.foreign", FileFormatError, name=name)
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
            History.add(history, record)
        except (ValueError, TypeError, RecursionError, AttributeError, LookupError) as error:
            raise refusal("journal.damaged", FileFormatError, name=name, why=error) from None
        at, check = end, found
    return history, at, check


def _line(check: str, record: Mapping[str, Any]) -> tuple[str, bytes]:
    said = json.dumps(record, allow_nan=False, separators=(",", ":"))
    check = hashlib.sha256(f"{check}\n{said}".encode()).hexdigest()[:_CHECK_DIGITS]
    return check, f'["{check}",{said}]\n'.encode()


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
