"""The derivations of docs/mark-format.md once more, from the page alone: no timbermark in here."""

import hashlib
import hmac
import struct


def hkdf(owner_key, mark_id):
    extracted = hmac.new(bytes(32), owner_key, hashlib.sha256).digest()
    info = b"timbermark/mark/1" + mark_id
    return hmac.new(extracted, info + b"\x01", hashlib.sha256).digest()


def size(n):
    return struct.pack("<Q", n)


def encoding(v):
    if v is None:
        return b"n"
    if v is False:
        return b"f"
    if v is True:
        return b"t"
    if type(v) is int:
        text = b"%d" % v
        return b"i" + size(len(text)) + text
    if type(v) is float:
        return b"d" + struct.pack("<d", v)
    if type(v) is str:
        text = v.encode("utf-8")
        return b"s" + size(len(text)) + text
    if type(v) is bytes:
        return b"b" + size(len(v)) + v
    if type(v) is list:
        return b"l" + size(len(v)) + b"".join(map(encoding, v))
    keys = sorted(v, key=lambda key: key.encode("utf-8"))
    return b"m" + size(len(v)) + b"".join(encoding(key) + encoding(v[key]) for key in keys)


def feature_bytes(x):
    if x is None or x != x:
        return bytes.fromhex("000000000000f87f")
    return struct.pack("<d", 0.0 if x == 0 else x)


def digest(mark):
    """``mark`` as in the test vectors: hexadecimal id, triggers as lists, null for NaN."""
    names = ("protocol", "owner", "model_digest", "feature_names", "classes", "created", "about")
    triggers, alphabets = mark["triggers"], mark["alphabets"]
    record = {
        **{name: mark[name] for name in names},
        "mark_id": bytes.fromhex(mark["mark_id"]),
        "q": len(alphabets[0]),
        "shape": [len(triggers), len(triggers[0])],
        "triggers": b"".join(feature_bytes(x) for row in triggers for x in row),
        "alphabets": b"".join(struct.pack("<i", c) for row in alphabets for c in row),
    }
    return hashlib.sha256(b"timbermark/everything-else/1" + encoding(record)).digest()


def symbols(secret, digest, k, q):
    stream = hashlib.shake_256(b"timbermark/symbols/1" + secret + digest).digest(k)
    if q == 2:
        return [stream[i // 8] >> i % 8 & 1 for i in range(k)]
    return [stream[i // 4] >> 2 * (i % 4) & 3 for i in range(k)]


def order(secret, digest, k):
    stream = hashlib.shake_256(b"timbermark/order/1" + secret + digest).digest(8 * k)
    return sorted(range(k), key=struct.unpack(f"<{k}Q", stream).__getitem__)
