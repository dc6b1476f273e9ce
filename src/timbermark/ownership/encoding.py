"""Plain values, the only ones that a mark holds, and their canonical encoding for hashing.

The encoding is injective: two different values never have the same bytes. docs/mark-format.md
describes it for other programs.
"""

import math
import struct
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np

from timbermark.errors import InputError

Plain: TypeAlias = "bool | int | float | str | Sequence[Plain] | Mapping[str, Plain] | None"

_DEEPEST = 16
_SMALLEST, _LARGEST = -(2**63), 2**64 - 1
_HINT = "use text, finite numbers, booleans, None, lists and dictionaries with text keys."


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
        raise InputError(f"{what} is nested too deeply.", hint=_HINT)
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
                raise InputError(f"{what} has the key {key!r}, which is not text.", hint=_HINT)
            frozen[key] = freeze(item, what, depth + 1)
        return MappingProxyType(frozen)
    shown = repr(value) if isinstance(value, int | float | str) else type(value).__name__
    raise InputError(f"{what} holds {shown[:60]}, which is not a plain value.", hint=_HINT)


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


def _sized(data: bytes) -> bytes:
    return _size(len(data)) + data


def _size(count: int) -> bytes:
    return count.to_bytes(8, "little")
