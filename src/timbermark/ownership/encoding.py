"""Plain values, their canonical encoding for hashing, and the checks that every record shares.

The encoding is injective: two different values never have the same bytes. docs/mark-format.md
describes it for other programs.
"""

import math
import re
import struct
from collections.abc import Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np

from timbermark.errors import InputError

Plain: TypeAlias = "bool | int | float | str | Sequence[Plain] | Mapping[str, Plain] | None"

TIME_FORMAT = "%Y-%m-%dT%H:%M:%SZ"
FOREIGN = "it was not written by timbermark, do not trust it."
_DEEPEST = 16
_SMALLEST, _LARGEST = -(2**63), 2**64 - 1
_HINT = "use text, finite numbers, booleans, None, lists and dictionaries with text keys."
_HEX = re.compile(r"(?:[0-9a-f]{2})*")
_LONGEST_NAME = 200


def freeze(value: Any, what: str, depth: int = 0) -> Plain:
    """Return a copy of a plain value that nobody can change: tuples and read-only mappings.

    NumPy scalars become Python ones. ``what`` names the value in messages.

    Raises InputError for anything that is not plain: other types, numbers that are not finite or
    need more than 64 bits, text that is not Unicode, nesting deeper than 16.

    >>> freeze({"sizes": [1, np.float64(2.5)]}, "about")
    mappingproxy({'sizes': (1, 2.5)})
    """
    if isinstance(value, np.generic):
        value = value.item()
    if depth > _DEEPEST:
        raise InputError(f"{what} is nested too deeply.", hint=_HINT, code=f"field.{what}")
    if value is None or type(value) is bool:
        return value
    if type(value) is int and _SMALLEST <= value <= _LARGEST:
        return value
    if type(value) is float and math.isfinite(value):
        return value
    if type(value) is str and is_unicode(value):
        return value
    if isinstance(value, list | tuple):
        return tuple(freeze(item, what, depth + 1) for item in value)
    if isinstance(value, Mapping):
        frozen = {}
        for key, item in value.items():
            if type(key) is not str or not is_unicode(key):
                raise InputError(
                    f"{what} has the key {key!r}, which is not text.",
                    hint=_HINT,
                    code=f"field.{what}",
                )
            frozen[key] = freeze(item, what, depth + 1)
        return MappingProxyType(frozen)
    shown = repr(value) if isinstance(value, int | float | str) else type(value).__name__
    raise InputError(
        f"{what} holds {shown[:60]}, which is not a plain value.", hint=_HINT, code=f"field.{what}"
    )


def thaw(value: Plain) -> Any:
    """Return a frozen value as the lists and dictionaries that JSON knows.

    >>> thaw(freeze({"sizes": [1, 2.5]}, "about"))
    {'sizes': [1, 2.5]}
    """
    if isinstance(value, Mapping):
        return {key: thaw(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return [thaw(item) for item in value]
    return value


def encode(value: Any) -> bytes:
    """Return the canonical bytes of a plain value; ``bytes`` may stand in it too.

    >>> encode(["a", True])
    b'l\\x02\\x00\\x00\\x00\\x00\\x00\\x00\\x00s\\x01\\x00\\x00\\x00\\x00\\x00\\x00\\x00at'
    """
    match value:
        case None:
            return b"n"
        case bool():
            return b"t" if value else b"f"
        case int():
            return b"i" + _sized(str(value).encode())
        case float():
            return b"d" + struct.pack("<d", value)
        case str():
            return b"s" + _sized(value.encode())
        case bytes():
            return b"b" + _sized(value)
        case Mapping():
            pairs = (encode(key) + encode(value[key]) for key in sorted(value))
            return b"m" + _size(len(value)) + b"".join(pairs)
        case list() | tuple():
            return b"l" + _size(len(value)) + b"".join(encode(item) for item in value)
    raise TypeError(f"{type(value).__name__} is not plain")


def is_unicode(text: str) -> bool:
    """Return whether the text can be written as UTF-8: it has no lone surrogates.

    >>> is_unicode("é"), is_unicode("\\ud800")
    (True, False)
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def require(holds: bool, message: str, hint: str = "", code: str = "") -> None:
    """Raise InputError with the message as a sentence unless the condition holds.

    The code of what is wrong with one field of a record is ``field.`` and its name.

    >>> require(True, "never shown")
    """
    if not holds:
        raise InputError(f"{message[0].upper()}{message[1:]}.", hint=hint, code=code)


def from_hex(name: str, text: object, size: int | None = None) -> bytes:
    """Return bytes from hexadecimal digits, ``size`` of them if given.

    Raises InputError, with the name, for anything else.

    >>> from_hex("secret", "00ff")
    b'\\x00\\xff'
    """
    require(
        isinstance(text, str) and _HEX.fullmatch(text) is not None,
        f"{name} is not in hexadecimal digits",
        code=f"field.{name}",
    )
    found = bytes.fromhex(str(text))
    require(size in (None, len(found)), f"{name} is not {size} bytes", code=f"field.{name}")
    return found


def check_bytes(name: str, value: object, size: int) -> None:
    """Raise InputError unless a value is that many bytes.

    >>> check_bytes("secret", bytes(32), 32)
    """
    require(
        isinstance(value, bytes) and len(value) == size,
        f"{name} is not {size} bytes",
        code=f"field.{name}",
    )


def check_name(name: object, what: str) -> None:
    """Raise InputError unless it is a name of 1 to 200 printable characters.

    >>> check_name("Ann Ltd", "owner")
    """
    fits = (
        type(name) is str
        and name.strip() != ""
        and len(name) <= _LONGEST_NAME
        and is_unicode(name)
        and name.isprintable()
    )
    if not fits:
        raise InputError(
            f"{what}={name!r:.40} is not a name of 1 to {_LONGEST_NAME} printable characters.",
            hint="name a person or an organisation.",
            code=f"field.{what}",
            parameter=what,
        )


def check_digest(name: str, text: object) -> None:
    """Raise InputError unless a text is a SHA-256 in hexadecimal digits.

    >>> check_digest("model_digest", "0" * 64)
    """
    require(
        isinstance(text, str) and len(text) == 64 and _HEX.fullmatch(text) is not None,
        f"{name} is not 64 hexadecimal digits",
        "give a SHA-256.",
        f"field.{name}",
    )


def check_time(name: str, text: object) -> None:
    """Raise InputError unless a text is a time like 2030-12-31T23:59:59Z.

    >>> check_time("created", "2030-12-31T23:59:59Z")
    """
    try:
        given = str(text)
        sound = datetime.strptime(given, TIME_FORMAT).strftime(TIME_FORMAT) == text
    except ValueError:
        sound = False
    require(
        sound,
        f"{name}={text!r} is not a time like 2030-12-31T23:59:59Z",
        "give it in UTC, to the second.",
        f"field.{name}",
    )


def check_count(name: str, value: object, low: int, high: int) -> int:
    """Return a whole number within bounds. Raises InputError for anything else.

    >>> check_count("draws", np.int64(3), 1, 8)
    3
    """
    number = value.item() if isinstance(value, np.integer) else value
    require(
        type(number) is int and low <= number <= high,
        f"{name}={value!r} is not a whole number from {low} to {high}",
        code=f"field.{name}",
    )
    return int(number)  # type: ignore[call-overload, no-any-return]


def _sized(data: bytes) -> bytes:
    return _size(len(data)) + data


def _size(count: int) -> bytes:
    return count.to_bytes(8, "little")
