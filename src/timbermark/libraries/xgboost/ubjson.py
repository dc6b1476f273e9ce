"""Universal Binary JSON, as far as XGBoost writes it: numbers, strings, lists, typed arrays.

A typed array becomes a NumPy array that looks into the given bytes, so that a model of a million
nodes is read without a loop over them; an untyped one becomes a list. Both go back as they came.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from timbermark.dtypes import AnyArray
from timbermark.errors import FileFormatError

_DEEPEST = 32
_ARRAY_TYPES: dict[str, np.dtype[Any]] = {
    "i": np.dtype("i1"),
    "U": np.dtype("u1"),
    "I": np.dtype(">i2"),
    "l": np.dtype(">i4"),
    "L": np.dtype(">i8"),
    "d": np.dtype(">f4"),
    "D": np.dtype(">f8"),
}
_LENGTH = struct.Struct(">q")
_SINGLE = struct.Struct(">f")
# By the byte that marks them: an index into bytes gives a number.
_NUMBERS = {
    ord(mark): struct.Struct(">" + form)
    for mark, form in {"i": "b", "U": "B", "I": "h", "l": "i", "L": "q", "d": "f", "D": "d"}.items()
}
_LENGTHS = {mark: form for mark, form in _NUMBERS.items() if chr(mark) in "iUIlL"}
_ARRAYS = {ord(mark): dtype for mark, dtype in _ARRAY_TYPES.items()}
_CONSTANTS = {ord("T"): True, ord("F"): False, ord("Z"): None}
_TEXT, _OBJECT, _OBJECT_END, _LIST, _LIST_END, _COUNT, _TYPE, _LONG = map(ord, "S{}[]#$L")


def decode(raw: bytes) -> Any:
    """Return the value that the bytes hold; all of them must be used.

    Raises FileFormatError if they are cut off, go on after the end, or hold anything else.

    >>> decode(b"{i\\x01ai\\x07}")
    {'a': 7}
    >>> decode(b"[$U#i\\x02\\x01\\x00")
    array([1, 0], dtype=uint8)
    """
    reader = _Reader(raw)
    try:
        value = reader.value(0)
    except (struct.error, IndexError):
        raise reader.damaged("it is cut off") from None
    except UnicodeDecodeError:
        raise reader.damaged("a text is garbled") from None
    if reader.at != len(raw):
        raise reader.damaged(f"{len(raw) - reader.at} bytes follow the end")
    return value


class _Reader:
    """A place in the bytes, moved on by everything that is read."""

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        self.at = 0

    def damaged(self, why: str) -> FileFormatError:
        return FileFormatError(
            f"The UBJ data is damaged at byte {self.at}: {why}.",
            hint="get the file again from where it came.",
        )

    def value(self, depth: int) -> Any:
        mark = self.raw[self.at]
        self.at += 1
        if mark == _LIST:
            return self.items(depth + 1)
        if mark == _TEXT:
            return self.text()
        if mark in _NUMBERS:
            return self.number(_NUMBERS[mark])
        if mark == _OBJECT:
            return self.members(depth + 1)
        if mark in _CONSTANTS:
            return _CONSTANTS[mark]
        raise self.damaged(f"{chr(mark)!r} begins no value")

    def number(self, form: struct.Struct) -> Any:
        (value,) = form.unpack_from(self.raw, self.at)
        self.at += form.size
        return value

    def length(self) -> int:
        mark = self.raw[self.at]
        self.at += 1
        if mark not in _LENGTHS:
            raise self.damaged(f"{chr(mark)!r} begins no length")
        length: int = self.number(_LENGTHS[mark])
        # Everything that is counted takes at least a byte, so that no count can ask for memory
        # that the data itself does not fill.
        if not 0 <= length <= len(self.raw) - self.at:
            raise self.damaged(f"the length {length} is not possible")
        return length

    def text(self) -> str:
        start = self.at + 9
        # Nearly always a length has eight bytes: this halves the time of everything.
        size = _LENGTH.unpack_from(self.raw, self.at + 1)[0] if self.raw[self.at] == _LONG else -1
        if 0 <= size <= len(self.raw) - start:
            self.at = start + size
        else:
            size = self.length()
            start = self.at
            self.at += size
        return self.raw[start : start + size].decode()

    def members(self, depth: int) -> dict[str, Any]:
        self.check(depth)
        found: dict[str, Any] = {}
        while self.raw[self.at] != _OBJECT_END:
            key = self.text()
            found[key] = self.value(depth)
        self.at += 1
        return found

    def items(self, depth: int) -> Any:
        self.check(depth)
        ahead = self.raw[self.at]
        if ahead == _TYPE:
            self.at += 1
            return self.typed_items()
        if ahead == _COUNT:
            self.at += 1
            return [self.value(depth) for _ in range(self.length())]
        found = []
        while self.raw[self.at] != _LIST_END:
            found.append(self.value(depth))
        self.at += 1
        return found

    def typed_items(self) -> AnyArray:
        dtype = _ARRAYS.get(self.raw[self.at])
        if dtype is None or self.raw[self.at + 1] != _COUNT:
            raise self.damaged("the type of an array is not known")
        self.at += 2
        size, start = self.length(), self.at
        self.at += size * dtype.itemsize
        if self.at > len(self.raw):
            raise self.damaged(f"{size} numbers are announced, fewer are there")
        return np.frombuffer(self.raw, dtype, size, start)

    def check(self, depth: int) -> None:
        if depth > _DEEPEST:
            raise self.damaged("it is nested too deeply")


def encode(value: Any) -> bytes:
    """Return the bytes of a value as `decode` gives them; ``bytes`` count as encoded already.

    A float becomes a float32, which is what XGBoost takes every number for.

    >>> decode(encode({"a": [1, 2.5, "x", None, True]}))
    {'a': [1, 2.5, 'x', None, True]}
    """
    parts: list[bytes] = []
    _encode(value, parts)
    return b"".join(parts)


def encode_key(key: str) -> bytes:
    """Return the bytes of a member's name, which its value follows.

    >>> encode_key("a")
    b'L\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x01a'
    """
    text = key.encode()
    return b"L" + _LENGTH.pack(len(text)) + text


def array_head(mark: str, size: int) -> bytes:
    """Return what comes before the numbers of a typed array; they follow in big-endian order.

    >>> array_head("d", 2)
    b'[$d#L\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x02'
    """
    return b"[$" + mark.encode() + b"#L" + _LENGTH.pack(size)


def _encode(value: Any, parts: list[bytes]) -> None:
    if isinstance(value, bytes):
        parts.append(value)
    elif isinstance(value, dict):
        parts.append(b"{")
        for key, member in value.items():
            parts.append(encode_key(key))
            _encode(member, parts)
        parts.append(b"}")
    elif isinstance(value, np.ndarray):
        big = value.astype(value.dtype.newbyteorder(">"), copy=False)
        mark = next(mark for mark, dtype in _ARRAY_TYPES.items() if dtype == big.dtype)
        parts += [array_head(mark, value.size), big.tobytes()]
    elif isinstance(value, list):
        parts += [b"[#L", _LENGTH.pack(len(value))]
        for item in value:
            _encode(item, parts)
    elif isinstance(value, str):
        parts += [b"S", encode_key(value)]
    elif value is None or isinstance(value, bool):
        parts.append({True: b"T", False: b"F", None: b"Z"}[value])
    elif isinstance(value, int):
        parts += [b"L", _LENGTH.pack(value)]
    else:
        parts += [b"d", _SINGLE.pack(value)]
