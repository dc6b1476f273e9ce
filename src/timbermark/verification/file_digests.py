"""The digest of a file and what was read from it, of the same bytes."""

from __future__ import annotations

import hashlib
import os
from typing import Any

from timbermark import libraries
from timbermark.errors import InputError
from timbermark.libraries.contract import ForeignModel


def open_with_digest(path: str | os.PathLike[str]) -> tuple[ForeignModel, str]:
    """Return the model in a file of another library and the SHA-256 of the file.

    Raises InputError if the file changed between the two: the digest would name other bytes than
    those that are judged. Raises what `timbermark.libraries.open` raises.
    """
    before = _hash_file(path)
    foreign: ForeignModel = libraries.open(path)
    if _hash_file(path) != before:
        raise InputError(
            f"{os.fspath(path)} changed while it was read.",
            hint="copy it first, then use the copy.",
        )
    return foreign, before


def _hash_file(path: Any) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
