"""Symbols derived from a secret: nobody can choose them, everybody who has the mark can check them.

The mark's secret (32 bytes) and the digest of everything else in the mark (32 bytes) go through
scrypt, which takes a fraction of a second and 64 MiB of memory. Whoever searches for a secret or
for triggers that fit a foreign model pays that for every trial. docs/mark-format.md has test
vectors.
"""

import hashlib

import numpy as np
from numpy.typing import NDArray

from timbermark.dtypes import SmallKinds
from timbermark.errors import InputError

ALPHABET_SIZES = (2, 4)
# 0.2 s and 64 MiB on a machine of 2024: little for a verifier who derives a seed once, 2^19 times
# the price of the hash alone for a forger who derives one for each trial.
SCRYPT_N, SCRYPT_R, SCRYPT_P = 1 << 16, 8, 1
_SYMBOLS_DOMAIN = b"timbermark/symbols/2"
_ORDER_DOMAIN = b"timbermark/order/2"
_BYTES = 32


def derive_seed(secret: bytes, digest: bytes) -> bytes:
    """Return the 32 bytes that symbols and order derive from: scrypt(secret, salt = digest).

    n is 2^16, r is 8, p is 1 (RFC 7914). It takes about 0.2 seconds.

    Raises InputError if the secret or the digest is not 32 bytes, or if there is too little memory.

    >>> derive_seed(bytes(32), bytes(32)).hex()[:16]
    '06241dd56edb3f65'
    """
    _check_lengths(secret, digest)
    # Only this pays for the import, not the loading of a mark.
    from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

    scrypt = Scrypt(salt=digest, length=_BYTES, n=SCRYPT_N, r=SCRYPT_R, p=SCRYPT_P)
    try:
        return scrypt.derive(secret)
    except MemoryError:
        raise InputError(
            f"The symbols take {128 * SCRYPT_N * SCRYPT_R >> 20} MiB of memory, too much here.",
            hint="end other programs and try again.",
        ) from None


def derive_symbols(seed: bytes, digest: bytes, n_triggers: int, q: int) -> SmallKinds:
    """Return which label of its alphabet each trigger carries, uint8 [n_triggers] from 0 to q - 1.

    They are the bits of SHAKE-256("timbermark/symbols/2" ‖ seed ‖ digest), log₂ q for each trigger,
    the lowest bits of a byte first. ``seed`` comes from `derive_seed`.

    Raises InputError if q is neither 2 nor 4, or the seed or the digest is not 32 bytes.

    >>> derive_symbols(bytes(32), bytes(32), 8, 4)
    array([0, 0, 1, 3, 2, 2, 3, 2], dtype=uint8)
    """
    if q not in ALPHABET_SIZES:
        raise InputError(f"q={q!r} is no size of an alphabet.", hint="use 2 or 4.")
    width = q.bit_length() - 1
    n_bytes = -(-n_triggers * width // 8)
    data = np.frombuffer(_draw(_SYMBOLS_DOMAIN, seed, digest, n_bytes), np.uint8)
    bits = np.unpackbits(data, count=n_triggers * width, bitorder="little")
    symbols: SmallKinds = np.packbits(
        bits.reshape(n_triggers, width), axis=1, bitorder="little"
    ).reshape(n_triggers)
    return symbols


def query_order(seed: bytes, digest: bytes, n_triggers: int) -> NDArray[np.int64]:
    """Return the order in which the triggers are asked, a permutation, int64 [n_triggers].

    They are sorted by the 64-bit little-endian numbers of SHAKE-256("timbermark/order/2" ‖ seed ‖
    digest), so that a suspect learns nothing from the order, and the same mark is always asked in
    the same way.

    Raises InputError if the seed or the digest is not 32 bytes.

    >>> query_order(bytes(32), bytes(32), 5)
    array([3, 2, 1, 0, 4])
    """
    keys = np.frombuffer(_draw(_ORDER_DOMAIN, seed, digest, 8 * n_triggers), "<u8")
    return np.argsort(keys, kind="stable").astype(np.int64)


def _draw(domain: bytes, seed: bytes, digest: bytes, n_bytes: int) -> bytes:
    _check_lengths(seed, digest)
    return hashlib.shake_256(domain + seed + digest).digest(n_bytes)


def _check_lengths(secret: bytes, digest: bytes) -> None:
    # Fixed lengths, or else the end of one could be taken for the beginning of the other.
    if len(secret) != _BYTES or len(digest) != _BYTES:
        raise InputError(
            f"A secret, a seed and a digest are {_BYTES} bytes each.",
            hint="take them from a Mark.",
        )
