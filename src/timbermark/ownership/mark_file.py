"""The file of a mark: what is written, and every check before a mark is built from it."""

import json
import os
from typing import TYPE_CHECKING, Any

import numpy as np

from timbermark.dtypes import CLASS_INDEX, FEATURE_VALUE, REAL, AnyArray
from timbermark.errors import FileFormatError, InputError
from timbermark.files.limits import Arrays, Meta
from timbermark.ownership.columns import Column, numeric_matrix
from timbermark.ownership.encoding import thaw
from timbermark.ownership.mark_checks import NO_ALTERNATIVES, PROTOCOL, from_hex, require
from timbermark.ownership.sealing import SizeLimits, seal, unseal

if TYPE_CHECKING:
    from timbermark.ownership.mark import Mark

KIND = "mark"
FORMAT_VERSION, PLAIN_VERSION = 3, 2
"""Raised whenever a reader of the present version would refuse a new file. Marks without
alternatives are written as before there were any."""
LIMITS = SizeLimits(file=256 << 20, meta=8 << 20)
WORDS = (
    "protocol",
    "owner",
    "model_digest",
    "feature_names",
    "classes",
    "answers",
    "draws",
    "created",
    "about",
)
"""The fields that are written and hashed as plain values."""
_BYTES = ("mark_id", "secret")
_ARRAYS = {"numbers": FEATURE_VALUE, "alphabets": CLASS_INDEX, "reference": REAL}
_ROOM = 1 << 16
_FOREIGN = "it was not written by timbermark, do not trust it."


def mark_to_bytes(mark: "Mark", passphrase: str | None) -> bytes:
    """Return the file of a mark, encrypted if there is a passphrase; see `Mark.to_bytes`."""
    # Without compression the reader can hold what a file declares against its size.
    arrays = _arrays(mark)
    version = FORMAT_VERSION if "alternatives" in arrays else PLAIN_VERSION
    return seal(KIND, version, _meta(mark), arrays, passphrase, compress=False)


def check_fits(mark: "Mark") -> None:
    """Raise InputError if the mark is too large for its file, before any work is put into it."""
    n_meta = len(json.dumps(_meta(mark)))
    n_bytes = n_meta + sum(array.nbytes for array in _arrays(mark).values())
    require(
        n_meta <= LIMITS.meta and n_bytes + _ROOM <= LIMITS.file,
        f"the mark has {n_meta} bytes of text and {n_bytes} in all, its file holds at most "
        f"{LIMITS.meta} and {LIMITS.file - _ROOM}",
        "use fewer triggers or features, or say less in about.",
    )


def read_mark(
    source: str | os.PathLike[str] | bytes, name: str, passphrase: str | None
) -> dict[str, Any]:
    """Return the fields of the mark in a file, by name, for its constructor to check.

    Raises PassphraseError if the passphrase does not fit, FileFormatError if it is anything but a
    file of a mark, format 2 or 3.
    """
    version, meta, arrays = unseal(source, KIND, FORMAT_VERSION, passphrase, limits=LIMITS)
    if version not in (PLAIN_VERSION, FORMAT_VERSION):
        raise FileFormatError(
            f"{name} has version {version} of the format, which is no longer read.",
            "mark the model again.",
        )
    known = {**_ARRAYS, "alternatives": REAL} if version == FORMAT_VERSION else _ARRAYS
    if meta.keys() != {*WORDS, *_BYTES, "columns"} or arrays.keys() != known.keys():
        raise FileFormatError(f"{name} does not hold exactly the parts of a mark.", _FOREIGN)
    types = {**known, "alphabets": REAL} if meta["answers"] == "numbers" else known
    for part, dtype in types.items():
        if arrays[part].dtype != dtype:
            raise FileFormatError(
                f"{name}: {part} has the type {arrays[part].dtype}, not {np.dtype(dtype).name}.",
                _FOREIGN,
            )
    if "alternatives" in arrays and 0 in arrays["alternatives"].shape:
        raise FileFormatError(f"{name} has no alternatives, but a place for them.", _FOREIGN)
    if type(meta["protocol"]) is int and meta["protocol"] > PROTOCOL:
        raise FileFormatError(
            f"{name} uses protocol {meta['protocol']}, this timbermark knows {PROTOCOL}.",
            "pip install --upgrade timbermark",
        )
    try:
        return {
            **{word: meta[word] for word in WORDS},
            **{part: from_hex(part, meta[part]) for part in _BYTES},
            "columns": _read_columns(meta["columns"], arrays["numbers"]),
            "alphabets": arrays["alphabets"],
            "reference": arrays["reference"],
            "alternatives": arrays.get("alternatives", NO_ALTERNATIVES),
        }
    except InputError as error:
        raise not_sound(name, error) from None


def not_sound(name: str, error: InputError) -> FileFormatError:
    """Return the error of a file whose parts make no mark.

    >>> print(not_sound("x.mark", InputError("The mark has 0 triggers.")).message)
    x.mark holds no sound mark. The mark has 0 triggers.
    """
    return FileFormatError(f"{name} holds no sound mark. {error.message}", _FOREIGN)


def _meta(mark: "Mark") -> Meta:
    return {
        **{word: thaw(getattr(mark, word)) for word in WORDS},
        **{part: getattr(mark, part).hex() for part in _BYTES},
        "columns": [
            None if isinstance(column, np.ndarray) else list(column) for column in mark.columns
        ],
    }


def _arrays(mark: "Mark") -> Arrays:
    arrays: dict[str, AnyArray] = {
        "numbers": numeric_matrix(mark.columns),
        "alphabets": mark.alphabets,
        "reference": mark.reference,
    }
    if mark.alternatives.shape[1]:
        arrays["alternatives"] = mark.alternatives
    return arrays


def _read_columns(listed: Any, numbers: AnyArray) -> list[Column]:
    require(
        isinstance(listed, list) and numbers.ndim == 2 and listed.count(None) == numbers.shape[1],
        "the columns are not those of its numbers",
        "",
    )
    remaining = iter(numbers.T)
    columns: list[Column] = []
    for column in listed:
        if column is None:
            columns.append(np.ascontiguousarray(next(remaining)))
            continue
        require(
            isinstance(column, list)
            and len(column) == len(numbers)
            and all(text is None or isinstance(text, str) for text in column)
            and any(column_text is not None for column_text in column),
            f"a column of texts is not {len(numbers)} texts",
            "",
        )
        columns.append(tuple(column))
    return columns
