"""Replacing a file in one step: a killed process leaves the old one whole."""

import os
import secrets
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO

from timbermark.errors import InputError


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
    descriptor = os.open(draft, flags, 0o666 if mode is None else 0o600)
    try:
        with os.fdopen(descriptor, "r+b") as file:
            if mode is not None:
                os.chmod(draft, mode)
            if isinstance(content, bytes):
                file.write(content)
            else:
                content(file)
            file.flush()
            os.fsync(file.fileno())
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
        raise InputError(
            f"{os.fspath(path)} exists already, the {what} was not written.",
            hint="choose another name, or force=True to replace it.",
            code="file.exists",
            parameter="force",
        )
    atomic_write(path, content)


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
