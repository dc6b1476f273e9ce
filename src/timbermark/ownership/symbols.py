"""Symbols derived from salts: nobody can choose them, who is shown a trigger can check its own.

The digest of a mark commits to every trigger with its salt. It goes through scrypt, which takes a
fraction of a second and 64 MiB of memory; the result, the seed, and a trigger's salt give the
symbol. Whoever changes anything to make symbols fit a foreign model, be it a single salt, gets
another digest, and pays scrypt for every such trial. docs/mark-format.md has the argument and test
vectors.
"""

import hashlib
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from timbermark.dtypes import SMALL_KIND, SmallKinds
from timbermark.errors import InputError

ALPHABET_SIZES = (2, 4)
# 0.2 s and 64 MiB on a machine of 2024: little for a verifier who derives a seed once, 2^19 times
# the price of the hash alone for a forger who derives one for each trial.
SCRYPT_N, SCRYPT_R, SCRYPT_P = 1 << 16, 8, 1
_SEED_DOMAIN = b"timbermark/seed/2"
_TRIGGER_DOMAIN = b"timbermark/symbol/2"
_BYTES = 32
_ORDER_BYTES = 8


def derive_seed(digest: bytes) -> bytes:
    """Return the 32 bytes that symbols and order derive from: scrypt of a mark's digest.

    n is 2^16, r is 8, p is 1 (RFC 7914). It takes about 0.2 seconds; the last few are remembered.

    Raises InputError if the digest is not 32 bytes, or if there is too little memory.

    >>> derive_seed(bytes(32)).hex()[:16]
    '09dc6ab60062c995'
    """
    _check_length(digest)
    return _stretch(bytes(digest), SCRYPT_N)


# A judge needs the seed of one mark for the draw and for the symbols.
@lru_cache(maxsize=8)
def _stretch(digest: bytes, n: int) -> bytes:
    # Only this pays for the import, not the loading of a mark.
    from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

    scrypt = Scrypt(salt=_SEED_DOMAIN, length=_BYTES, n=n, r=SCRYPT_R, p=SCRYPT_P)
    try:
        return scrypt.derive(digest)
    except MemoryError:
        raise InputError(
            f"The symbols take {128 * n * SCRYPT_R >> 20} MiB of memory, too much here.",
            hint="end other programs and try again.",
        ) from None


def derive_symbols(
    seed: bytes, places: Sequence[int], salts: Sequence[bytes], q: int
) -> SmallKinds:
    """Return the number of each trigger's symbol in its alphabet, uint8 [n] from 0 to q - 1.

    ``places`` are the triggers' places in the mark. A symbol is the lowest log₂ q bits of the first
    byte of SHAKE-256("timbermark/symbol/2" ‖ seed ‖ place ‖ salt). ``seed`` comes from
    `derive_seed`.

    Raises InputError if q is neither 2 nor 4, or the seed or a salt is not 32 bytes.

    >>> derive_symbols(bytes(32), range(8), [bytes(32)] * 8, 4)
    array([0, 3, 0, 2, 1, 2, 3, 1], dtype=uint8)
    """
    if q not in ALPHABET_SIZES:
        raise InputError(f"q={q!r} is no size of an alphabet.", hint="use 2 or 4.")
    drawn = [stream[0] & (q - 1) for stream in _draw(seed, places, salts)]
    return np.array(drawn, dtype=SMALL_KIND)


def query_order(seed: bytes, places: Sequence[int], salts: Sequence[bytes]) -> NDArray[np.int64]:
    """Return the order in which n triggers are asked, a permutation, int64 [n].

    They are sorted by `query_numbers`, so that a suspect learns nothing from the order, and the
    same triggers are always asked in the same way.

    Raises InputError if the seed or a salt is not 32 bytes.

    >>> query_order(bytes(32), range(5), [bytes(32)] * 5)
    array([1, 2, 0, 4, 3])
    """
    numbers = query_numbers(seed, places, salts)
    return np.argsort(numbers, kind="stable").astype(np.int64)


def query_numbers(seed: bytes, places: Sequence[int], salts: Sequence[bytes]) -> NDArray[np.uint64]:
    """Return the 64-bit numbers by which n triggers are sorted to be asked, uint64 [n].

    They are the little-endian numbers that follow the first byte in the stream of `derive_symbols`.

    Raises InputError if the seed or a salt is not 32 bytes.

    >>> query_numbers(bytes(32), range(2), [bytes(32)] * 2).dtype
    dtype('uint64')
    """
    drawn = [int.from_bytes(stream[1:], "little") for stream in _draw(seed, places, salts)]
    return np.array(drawn, dtype=np.uint64)


def _draw(seed: bytes, places: Sequence[int], salts: Sequence[bytes]) -> list[bytes]:
    for part in (seed, *salts):
        _check_length(part)
    start = hashlib.shake_256(_TRIGGER_DOMAIN + seed)
    streams = []
    for place, salt in zip(places, salts, strict=True):
        state = start.copy()
        state.update(int(place).to_bytes(8, "little") + salt)
        streams.append(state.digest(1 + _ORDER_BYTES))
    return streams


def _check_length(part: bytes) -> None:
    # Fixed lengths, or else the end of one could be taken for the beginning of the other.
    if len(part) != _BYTES:
        raise InputError(
            f"A seed, a salt and a digest are {_BYTES} bytes each.",
            hint="take them from a Mark.",
        )
