"""Parts of an XGBoost document, taken out of it only if they are what they should be."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from timbermark.dtypes import AnyArray
from timbermark.errors import FileFormatError

HINT = "get the model again from where it came, or save it again with XGBoost."
MOST_ROUNDS = 1 << 30


def numbers(given: Any, name: str, *, whole: bool = False) -> AnyArray:
    """Return a list or array of the document as an array, int64 [n] if ``whole``, else float [n].

    Raises FileFormatError if it holds anything but numbers, or fractions where ``whole``.

    >>> numbers([1, 2], "tree_info", whole=True)
    array([1, 2])
    """
    try:
        array = np.asarray(given)
    except (ValueError, OverflowError):
        array = np.empty((1, 1))
    if array.size == 0:
        return np.empty(0, np.int64 if whole else np.float64)
    require(array.ndim == 1 and array.dtype.kind in ("biu" if whole else "iuf"), name)
    if not whole:
        return array if array.dtype.kind == "f" else array.astype(np.float64)
    require(array.dtype != np.uint64, name)
    return array.astype(np.int64)


def require(right: bool | np.bool_, name: str, value: Any = None) -> None:
    """Raise FileFormatError, which names a part of the document, unless that part is right."""
    if not right:
        shown = "" if value is None else f"={value!r:.80}"
        raise FileFormatError(f"The model's {name}{shown} is damaged or not known.", HINT)


def part(content: Mapping[str, Any], name: str, kind: type) -> Any:
    """Return a part of the document. Raises FileFormatError if it is missing or of another kind."""
    if name not in content:
        raise FileFormatError(f"The model has no {name!r}.", HINT)
    require(isinstance(content[name], kind), name)
    return content[name]


def whole_number(params: Mapping[str, Any], name: str, low: int, high: int = MOST_ROUNDS) -> int:
    """Return one of XGBoost's parameters, which are all texts.

    Raises FileFormatError if it is missing, no whole number, or not from ``low`` to ``high``.

    >>> whole_number({"num_class": "3"}, "num_class", 2)
    3
    """
    text = part(params, name, str)
    require(re.fullmatch(r"[0-9]{1,10}", text) is not None, name, text)
    require(low <= int(text) <= high, name, text)
    return int(text)
