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
_BYTES = 32


def derive_symbols(secret: bytes, digest: bytes, n_triggers: int, q: int) -> SmallKinds:
    """Return which label of its alphabet each trigger carries, uint8 [n_triggers] from 0 to q - 1.

    They are the bits of SHAKE-256("timbermark/symbols/1" ‖ secret ‖ digest), log₂ q for each
    trigger, the lowest bits of a byte first.

    Raises InputError if q is neither 2 nor 4, or the secret or the digest is not 32 bytes.

    >>> derive_symbols(bytes(32), bytes(32), 8, 4)
    array([1, 1, 3, 2, 2, 1, 0, 0], dtype=uint8)
    """
    if q not in ALPHABET_SIZES:
        raise InputError(f"q={q!r} is no size of an alphabet.", hint="use 2 or 4.")
    width = q.bit_length() - 1
    n_bytes = -(-n_triggers * width // 8)
    data = np.frombuffer(_draw(_SYMBOLS_DOMAIN, secret, digest, n_bytes), np.uint8)
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

    Raises InputError if the secret or the digest is not 32 bytes.

    >>> query_order(bytes(32), bytes(32), 5)
    array([4, 0, 2, 1, 3])
    """
    keys = np.frombuffer(_draw(_ORDER_DOMAIN, secret, digest, 8 * n_triggers), "<u8")
    return np.argsort(keys, kind="stable").astype(np.int64)


def _draw(domain: bytes, secret: bytes, digest: bytes, n_bytes: int) -> bytes:
    # Fixed lengths, or else the end of one could be taken for the beginning of the other.
    if len(secret) != _BYTES or len(digest) != _BYTES:
        raise InputError(
            f"The secret and the digest are {_BYTES} bytes each.", hint="take both from a Mark."
        )
    return hashlib.shake_256(domain + secret + digest).digest(n_bytes)
