"""A second reader of claims and openings, written from docs/claim-format.md alone.

Like `independent`, it uses no timbermark: the standard library and `cryptography` only.
"""

import hashlib
import math
import struct

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from tests.ownership.independent import encoding, members, number_bytes, sha256, size

BYTES = ("key", "mark_id", "mark_digest")
FIRST = b"timbermark opening 1"
HEAD_BYTES = ("mark_id", "secret_digest", "about_digest", "root")


def signing_key(owner_key):
    seed = HKDF(SHA256(), length=32, salt=None, info=b"timbermark/claim-key/1").derive(owner_key)
    return Ed25519PrivateKey.from_private_bytes(seed)


def message(statement):
    """``statement`` as in the file: bytes in hexadecimal digits."""
    plain = {
        name: bytes.fromhex(value) if name in BYTES else value for name, value in statement.items()
    }
    return b"timbermark/claim/1" + encoding(plain)


def is_signed(statement, signature):
    try:
        public = Ed25519PublicKey.from_public_bytes(bytes.fromhex(statement["key"]))
        public.verify(signature, message(statement))
    except InvalidSignature:
        return False
    return True


def claim_digest(statement, signature):
    return sha256(message(statement), signature)


def mark_seed(mark_digest, n=65536):
    return Scrypt(salt=b"timbermark/seed/2", length=32, n=n, r=8, p=1).derive(mark_digest)


def draw(claim, judge, eighths, seed, k):
    """The number of the order, and the places that are opened."""
    number = sha256(b"timbermark/draw/1", encoding({"claim": claim, "for": judge}))[:1]
    stream = hashlib.shake_256(b"timbermark/places/1" + seed + number).digest(8 * k)
    keys = struct.unpack(f"<{k}Q", stream)
    count = math.ceil(k * eighths / 8)
    return number[0], sorted(sorted(range(k), key=keys.__getitem__)[:count])


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


def read_opening(data):
    """The symbols of an opening by place, after everything in it was held together."""
    meta, arrays = members(data, data[: data.index(b"\n")].removeprefix(b"timbermark "))
    assert data.startswith(b"timbermark opening 2" if "alternatives" in arrays else FIRST)
    head = {
        name: bytes.fromhex(value) if name in HEAD_BYTES else value
        for name, value in meta["head"].items()
    }
    numbers, texts = iter(arrays["numbers"].T.tolist()), iter(meta["texts"])
    columns = [next(numbers if kind == "numbers" else texts) for kind in head["columns"]]
    kinds = head["columns"]
    steps = iter(arrays["paths"])
    for i, place in enumerate(meta["places"]):
        record = {
            "place": place,
            "salt": arrays["salts"][i].tobytes(),
            "numbers": b"".join(
                number_bytes(c[i]) for c, kind in zip(columns, kinds, strict=True)
                if kind == "numbers"
            ),
            "texts": [c[i] for c, kind in zip(columns, kinds, strict=True) if kind == "texts"],
            "alphabet": arrays["alphabets"][i].astype("<i4").tobytes(),
            "reference": arrays["reference"][i].astype("<f8").tobytes(),
        }  # fmt: skip
        if "alternatives" in arrays:
            record["alternatives"] = arrays["alternatives"][i].astype("<f8").tobytes()
        leaf = sha256(b"\x00", encoding(record))
        path = [next(steps).tobytes() for _ in range(path_length(place, head["n_triggers"]))]
        assert root_of(leaf, place, head["n_triggers"], path) == head["root"]
    return meta, head, sha256(b"timbermark/mark-digest/2", encoding(head)), arrays


def path_length(place, count):
    if count == 1:
        return 0
    half = 1 << (count - 1).bit_length() - 1
    right = place >= half
    return 1 + path_length(place - half * right, count - half if right else half)


def opened_symbols(head, seed, places, salts):
    return [
        hashlib.shake_256(b"timbermark/symbol/2" + seed + size(place) + salt.tobytes()).digest(1)[0]
        % head["q"]
        for place, salt in zip(places, salts, strict=True)
    ]
