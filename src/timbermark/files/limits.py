"""What may stand in a container: names, types and sizes, the same for writer and reader."""

import re
from typing import Any, TypeAlias

import numpy as np

from timbermark.dtypes import AnyArray

Meta: TypeAlias = dict[str, Any]
Arrays: TypeAlias = dict[str, AnyArray]

META_NAME = "meta.json"
KIND = re.compile(r"[a-z][a-z-]{0,30}")
ARRAY_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.]{0,99}")
MAX_VERSION = 10**9 - 1
MAX_DIMENSIONS = 8
MAX_META = 64 << 20
MAX_UNPACKED = 8 << 30
# Deflate can shrink a thousandfold, so that a small hostile file could ask for gigabytes. Ours
# never do: the writer stores without compression what would unpack to more than this.
FREE_UNPACKED = 64 << 20
MAX_RATIO = 200

CHUNK = 1 << 20


def most_unpacked(packed: int) -> int:
    """Return how many bytes a container of ``packed`` bytes may unpack to.

    >>> most_unpacked(0) == FREE_UNPACKED
    True
    """
    return min(MAX_UNPACKED, FREE_UNPACKED + MAX_RATIO * packed)


def array_problem(dtype: np.dtype[Any], shape: tuple[int, ...]) -> str:
    """Return why an array of this type and shape cannot be in a container, or an empty string.

    >>> array_problem(np.dtype("f8"), (3, 2))
    ''
    >>> array_problem(np.dtype("O"), (3,))
    'has the type object, which is not allowed in a file'
    """
    if dtype.kind not in "biufU" or dtype.itemsize == 0:
        return f"has the type {dtype}, which is not allowed in a file"
    if dtype.kind == "f" and dtype.itemsize > 8:
        return f"has the type {dtype}, which differs between machines"
    if len(shape) > MAX_DIMENSIONS:
        return f"has {len(shape)} dimensions, at most {MAX_DIMENSIONS} are allowed"
    return ""
