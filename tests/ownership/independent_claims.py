"""A second reader of claims and openings, written from docs/claim-format.md alone.

Like `independent`, it uses no timbermark: the standard library, NumPy and `cryptography` only.
"""

import hashlib
import math
import struct

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from tests.ownership.independent import (
    encoding,
    head_digest,
    hkdf,
    members,
    read_seals,
    record,
    sha256,
)

BYTES = ("key", "mark_id", "mark_digest")
HEAD_BYTES = ("mark_id", "claim_key", "secret_digest", "about_digest", "root")


def signing_key(owner_key):
    return Ed25519PrivateKey.from_private_bytes(hkdf(owner_key, b"timbermark/claim-key/1"))


def message(statement):
    """``statement`` as in the file: bytes in hexadecimal digits."""
    plain = {
        name: bytes.fromhex(value) if name in BYTES else value for name, value in statement.items()
    }
    return b"timbermark/claim/2" + encoding(plain)


def is_signed(statement, signature):
    try:
        public = Ed25519PublicKey.from_public_bytes(bytes.fromhex(statement["key"]))
        public.verify(signature, message(statement))
    except InvalidSignature:
        return False
    return True


def claim_digest(statement, signature):
    return sha256(message(statement), signature)


def read_claim(data):
    """The statement and the signature of a claim that is signed."""
    meta, arrays = members(data, b"claim 2")
    signature = bytes.fromhex(meta["signature"])
    assert not arrays
    assert is_signed(meta["statement"], signature)
    return meta["statement"], signature


def draw(claim, judge, eighths, seed, n):
    """The number of the order, and the places that are opened."""
    number = sha256(b"timbermark/draw/2", encoding({"claim": claim, "for": judge}))[:1]
    stream = hashlib.shake_256(b"timbermark/places/2" + seed + number).digest(8 * n)
    keys = struct.unpack(f"<{n}Q", stream)
    count = math.ceil(n * eighths / 8)
    return number[0], sorted(sorted(range(n), key=keys.__getitem__)[:count])


def root_of(leaf, place, count, path):
    """Where a Merkle path leads, by walking the recursive definition down to the leaf."""
    turns = []
    first, end = 0, count
    while end - first > 1:
        half = 1 << (end - first - 1).bit_length() - 1
        turns.append(place >= first + half)
        first, end = (first + half, end) if turns[-1] else (first, first + half)
    assert len(path) == len(turns)
    node = leaf
    for beside, right in zip(path, reversed(turns), strict=True):
        node = sha256(b"\x01", beside, node) if right else sha256(b"\x01", node, beside)
    return node


def path_length(place, count):
    if count == 1:
        return 0
    half = 1 << (count - 1).bit_length() - 1
    right = place >= half
    return 1 + path_length(place - half * right, count - half if right else half)


def read_opening(data):
    """An opening as a mark of the opened triggers, after everything in it was held together.

    It has the keys of the opening, the seals, ``salts``, and ``mark_digest`` from its head.
    """
    meta, arrays = members(data, b"opening 3")
    head = {
        name: bytes.fromhex(value) if name in HEAD_BYTES else value
        for name, value in meta["head"].items()
    }
    seals = read_seals(head["columns"], meta["texts"], arrays)
    salts = [salt.tobytes() for salt in arrays["salts"]]
    steps = iter(arrays["paths"])
    n = head["n_leaves"] + head["n_splits"]
    first = sum(place < head["n_leaves"] for place in meta["places"])
    for i, place in enumerate(meta["places"]):
        seal, at = ("leaves", i) if i < first else ("splits", i - first)
        parts = {**seals[seal], "of_numbers": head["answers"] == "numbers"}
        leaf = sha256(b"\x00", record(head["columns"], seal, parts, at, place, salts[i]))
        path = [next(steps).tobytes() for _ in range(path_length(place, n))]
        assert root_of(leaf, place, n, path) == head["root"]
    assert next(steps, None) is None
    return {**meta, **seals, "salts": salts, "head": head, "mark_digest": head_digest(head)}


def opening_digest(claim, judge, places, salts):
    named = {"claim": claim, "for": judge, "places": places, "salts": b"".join(salts)}
    return sha256(b"timbermark/opening/2", encoding(named))


def price_of_part(opened, n):
    return 0.0 if opened == n else math.log2(256 * 7)
