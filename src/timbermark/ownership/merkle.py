"""Merkle trees (RFC 9162): one root commits to many records, each of which can be shown alone.

A leaf's hash is SHA-256(00 ‖ record), a node's SHA-256(01 ‖ left ‖ right). Of n leaves the left
branch takes the largest power of two below n.
"""

import hashlib
from collections.abc import Sequence

from timbermark.errors import InputError

HASH_BYTES = 32


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
            "A Merkle path has the wrong length.", hint="it was changed after it was written."
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
