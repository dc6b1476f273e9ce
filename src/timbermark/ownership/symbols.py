"""Symbols out of a hash: nobody can choose them, everybody can check them.

Both derivations take the mark's secret (32 bytes) and the digest of everything else in the mark
(32 bytes). docs/mark-format.md has test vectors.
"""

import hashlib

import numpy as np
from numpy.typing import NDArray

from timbermark.dtypes import SmallKinds
from timbermark.errors import InputError

ALPHABET_SIZES = (2, 4)
_SYMBOLS_DOMAIN = b"timbermark/symbols/1"
_ORDER_DOMAIN = b"timbermark/order/1"


def derive_symbols(secret: bytes, digest: bytes, n_triggers: int, q: int) -> SmallKinds:
    """Return which label of its alphabet each trigger carries, uint8 [n_triggers] from 0 to q - 1.

    They are the bits of SHAKE-256("timbermark/symbols/1" ‖ secret ‖ digest), log₂ q for each
    trigger, the lowest bits of a byte first.

    Raises InputError if q is neither 2 nor 4.

    >>> derive_symbols(bytes(32), bytes(32), 8, 4)
    array([0, 3, 1, 2, 0, 0, 2, 0], dtype=uint8)
    """
    if q not in ALPHABET_SIZES:
        raise InputError(f"q={q!r} is no size of an alphabet.", hint="use 2 or 4.")
    width = q.bit_length() - 1
    stream = hashlib.shake_256(_SYMBOLS_DOMAIN + secret + digest)
    data = np.frombuffer(stream.digest(-(-n_triggers * width // 8)), np.uint8)
    bits = np.unpackbits(data, count=n_triggers * width, bitorder="little")
    symbols: SmallKinds = np.packbits(
        bits.reshape(n_triggers, width), axis=1, bitorder="little"
    ).reshape(n_triggers)
    return symbols


def query_order(secret: bytes, digest: bytes, n_triggers: int) -> NDArray[np.int64]:
    """Return the order in which the triggers are asked, a permutation, int64 [n_triggers].

    They are sorted by the 64-bit little-endian numbers of SHAKE-256("timbermark/order/1" ‖ secret
    ‖ digest), so that a suspect learns nothing from the order, and the same mark is always asked
    in the same way.

    >>> query_order(bytes(32), bytes(32), 5)
    array([1, 0, 2, 3, 4])
    """
    stream = hashlib.shake_256(_ORDER_DOMAIN + secret + digest)
    keys = np.frombuffer(stream.digest(8 * n_triggers), "<u8")
    return np.argsort(keys, kind="stable").astype(np.int64)
