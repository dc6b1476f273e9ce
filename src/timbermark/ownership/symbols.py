"""From triggers to symbols: salted records, one Merkle root, a slow seed, and what it draws.

Every trigger has a record with a salt of its own. The Merkle root over all records is part of the
mark's digest; the digest goes through scrypt, which takes a fraction of a second and 64 MiB; the
result, the seed, and a trigger's salt give its symbol. Nobody can choose symbols: whoever changes
anything, be it a single salt, gets another digest and pays scrypt for every such trial. Anyone
shown a record can check it against the root and derive its symbol, but no other one.
docs/mark-format.md has the argument and test vectors.
"""

import hashlib
from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from timbermark.dtypes import SMALL_KIND, AnyArray, SmallKinds
from timbermark.errors import InputError
from timbermark.ownership.columns import Column, numeric_matrix
from timbermark.ownership.encoding import encode

ALPHABET_SIZES = (2, 4)
HASH_BYTES = 32
# 0.2 s and 64 MiB on a machine of 2024: little for a verifier who derives a seed once, 2^19 times
# the price of the hash alone for a forger who derives one for each trial.
SCRYPT_N, SCRYPT_R, SCRYPT_P = 1 << 16, 8, 1
_SALTS_DOMAIN = b"timbermark/salts/3"
_SEED_DOMAIN = b"timbermark/seed/3"
_TRIGGER_DOMAIN = b"timbermark/symbol/3"
_ORDER_BYTES = 8


def derive_salts(secret: bytes, n_triggers: int) -> list[bytes]:
    """Return the salt of each trigger, 32 bytes of SHAKE-256("timbermark/salts/3" ‖ secret).

    Some of them say nothing about the others.

    >>> len(derive_salts(bytes(32), 2)), len(derive_salts(bytes(32), 2)[0])
    (2, 32)
    """
    stream = hashlib.shake_256(_SALTS_DOMAIN + secret).digest(HASH_BYTES * n_triggers)
    return [stream[at : at + HASH_BYTES] for at in range(0, len(stream), HASH_BYTES)]


def encode_records(
    seal: str,
    places: Sequence[int],
    salts: Sequence[bytes],
    columns: Sequence[Column],
    arrays: Mapping[str, AnyArray],
) -> list[bytes]:
    """Return the bytes of the records of n triggers of one seal.

    A record holds the seal's name, the trigger's place in the mark, its salt, its row and its part
    of each of the seal's arrays, little-endian. ``columns`` are d columns of n values, ``arrays``
    have n items each.

    >>> row = [np.array([0.5]), ("red",)]
    >>> len(encode_records("leaves", [0], [bytes(32)], row, {"alphabets": np.array([[0, 1]])}))
    1
    """
    numbers = numeric_matrix(columns).astype("<f8")
    texts = [column for column in columns if not isinstance(column, np.ndarray)]
    little = {name: _little_endian(array) for name, array in arrays.items()}
    return [
        encode(
            {
                "seal": seal,
                "place": int(place),
                "salt": salts[i],
                "numbers": numbers[i].tobytes(),
                "texts": [column[i] for column in texts],
                **{name: array[i].tobytes() for name, array in little.items()},
            }
        )
        for i, place in enumerate(places)
    ]


def _little_endian(array: AnyArray) -> AnyArray:
    return np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))


def derive_seed(digest: bytes) -> bytes:
    """Return the 32 bytes that symbols and order derive from: scrypt of a mark's digest.

    n is 2^16, r is 8, p is 1 (RFC 7914). It takes about 0.2 seconds; the last few are remembered.

    Raises InputError if the digest is not 32 bytes, or if there is too little memory.

    >>> len(derive_seed(bytes(32)))
    32
    """
    _check_length(digest)
    return _stretch(bytes(digest), SCRYPT_N)


# A judge needs the seed of one mark for the draw and for the symbols.
@lru_cache(maxsize=8)
def _stretch(digest: bytes, n: int) -> bytes:
    # Only this pays for the import, not the loading of a mark.
    from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

    scrypt = Scrypt(salt=_SEED_DOMAIN, length=HASH_BYTES, n=n, r=SCRYPT_R, p=SCRYPT_P)
    try:
        return scrypt.derive(digest)
    except MemoryError:
        raise InputError(
            f"The symbols take {128 * n * SCRYPT_R >> 20} MiB of memory, too much here.",
            hint="end other programs and try again.",
            code="memory",
        ) from None


def derive_symbols(
    seed: bytes, places: Sequence[int], salts: Sequence[bytes], sizes: Sequence[int]
) -> SmallKinds:
    """Return the number of each trigger's symbol in its alphabet, uint8 [n].

    ``places`` are the triggers' places in the mark, ``sizes`` those of their alphabets, q. A symbol
    is the lowest log₂ q bits of the first byte of SHAKE-256("timbermark/symbol/3" ‖ seed ‖ place ‖
    salt). ``seed`` comes from `derive_seed`.

    Raises InputError if a size is neither 2 nor 4, or the seed or a salt is not 32 bytes.

    >>> derive_symbols(bytes(32), range(3), [bytes(32)] * 3, [4, 4, 2]).dtype
    dtype('uint8')
    """
    if not set(sizes) <= set(ALPHABET_SIZES):
        raise InputError(
            "An alphabet has neither 2 nor 4 symbols.", hint="use 2 or 4.", code="symbols.sizes"
        )
    streams = _draw(seed, places, salts)
    drawn = [stream[0] & (q - 1) for stream, q in zip(streams, sizes, strict=True)]
    return np.array(drawn, dtype=SMALL_KIND)


def query_numbers(seed: bytes, places: Sequence[int], salts: Sequence[bytes]) -> NDArray[np.uint64]:
    """Return the 64-bit numbers by which n triggers are sorted to be asked, uint64 [n].

    They are the little-endian numbers that follow the first byte in the stream of `derive_symbols`:
    a suspect learns nothing from the order, and the same triggers are always asked in the same way.

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
    if len(part) != HASH_BYTES:
        raise InputError(
            f"A seed, a salt and a digest are {HASH_BYTES} bytes each.",
            hint="take them from a Mark.",
            code="symbols.length",
        )


# Merkle trees as in RFC 9162: a leaf's hash is SHA-256(00 ‖ record), a node's SHA-256(01 ‖ left ‖
# right). Of n leaves the left branch takes the largest power of two below n.


def hash_leaf(record: bytes) -> bytes:
    """Return the hash of a leaf.

    >>> hash_leaf(b"").hex()[:16]
    '6e340b9cffb37a98'
    """
    return hashlib.sha256(b"\x00" + record).digest()


def merkle_root(leaves: Sequence[bytes]) -> bytes:
    """Return the root of a tree over the hashes of its leaves, of which there is at least one.

    >>> a, b = hash_leaf(b"a"), hash_leaf(b"b")
    >>> merkle_root([a, b]) == hashlib.sha256(b"\\x01" + a + b).digest()
    True
    """
    return _levels(leaves)[-1][0]


def merkle_paths(leaves: Sequence[bytes], places: Sequence[int]) -> list[tuple[bytes, ...]]:
    """Return, for each place, the hashes that lead from that leaf to the root, lowest first.

    >>> a, b, c = (hash_leaf(record) for record in (b"a", b"b", b"c"))
    >>> merkle_paths([a, b, c], [2]) == [(merkle_root([a, b]),)]
    True
    """
    levels = _levels(leaves)
    found = []
    for place in places:
        path = []
        for level in levels[:-1]:
            if place ^ 1 < len(level):
                path.append(level[place ^ 1])
            place >>= 1
        found.append(tuple(path))
    return found


def path_length(place: int, count: int) -> int:
    """Return how many hashes lead from the leaf at a place among ``count`` leaves to the root.

    >>> path_length(0, 5), path_length(4, 5), path_length(0, 1)
    (3, 1, 0)
    """
    length = 0
    while count > 1:
        length += place ^ 1 < count
        place, count = place >> 1, (count + 1) >> 1
    return length


def root_from_path(leaf: bytes, place: int, count: int, path: Sequence[bytes]) -> bytes:
    """Return the root to which a path leads from the leaf at a place among ``count`` leaves.

    Raises InputError if the path has not the length that the place asks for.

    >>> leaves = [hash_leaf(bytes([i])) for i in range(5)]
    >>> path = merkle_paths(leaves, [4])[0]
    >>> root_from_path(leaves[4], 4, 5, path) == merkle_root(leaves)
    True
    """
    remaining = list(path)
    node = leaf
    while count > 1:
        if place ^ 1 < count:
            if not remaining:
                break
            beside = remaining.pop(0)
            node = _join(beside, node) if place & 1 else _join(node, beside)
        place, count = place >> 1, (count + 1) >> 1
    if remaining or count > 1:
        raise InputError(
            "A Merkle path has the wrong length.",
            hint="it was changed after it was written.",
            code="merkle.path",
        )
    return node


def _levels(leaves: Sequence[bytes]) -> list[list[bytes]]:
    """Return the hashes of each level, leaves first; a node without a neighbour moves up as it is.

    Joining neighbours level by level gives the tree of the RFC, whose left branches are full.
    """
    levels = [list(leaves)]
    while len(levels[-1]) > 1:
        below = levels[-1]
        pairs = zip(below[::2], below[1::2], strict=False)
        levels.append([_join(*pair) for pair in pairs] + below[len(below) & ~1 :])
    return levels


def _join(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\x01" + left + right).digest()
