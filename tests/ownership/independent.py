"""A second verifier, written from docs/mark-format.md alone: no timbermark in here.

It needs the standard library, NumPy to read arrays, and `cryptography`. It reads a mark's file,
derives digest, symbols and order, and computes the evidence of labels, scores and numbers.

A mark is a dictionary as in the test vectors: bytes in hexadecimal digits, each seal with its rows
as ``columns``, null where a value is missing.
"""

import hashlib
import hmac
import io
import json
import math
import struct
import unicodedata
import zipfile

import numpy as np
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

WORDS = (
    "protocol", "owner", "model_digest", "feature_names", "classes", "answers", "draws", "created",
)  # fmt: skip
NAN = bytes.fromhex("000000000000f87f")
SEALS = {
    "leaves": {"alphabets": "i", "reference": "d", "alternatives": "d"},
    "splits": {"features": "i", "values": "d", "reference": "d", "strata": "i"},
}


def hkdf(owner_key, info):
    extracted = hmac.new(bytes(32), owner_key, hashlib.sha256).digest()
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


def number_bytes(x):
    return NAN if x is None or x != x else struct.pack("<d", 0.0 if x == 0 else x)


def sha256(*parts):
    return hashlib.sha256(b"".join(parts)).digest()


def flat(value):
    return [x for part in value for x in flat(part)] if isinstance(value, list) else [value]


def count(mark, seal):
    return 0 if mark[seal] is None else len(mark[seal]["columns"][0])


def salts(secret, n):
    stream = hashlib.shake_256(b"timbermark/salts/3" + secret).digest(32 * n)
    return [stream[32 * i : 32 * i + 32] for i in range(n)]


def record(kinds, seal, parts, i, place, salt):
    """The record of the trigger that stands at i in the parts of its seal."""
    columns = list(zip(kinds, parts["columns"], strict=True))
    arrays = {}
    for name, letter in SEALS[seal].items():
        values = flat(parts[name][i])
        if name in ("reference", "alternatives") and not parts.get("of_numbers"):
            values = [floored(x) for x in values]
        arrays[name] = struct.pack(f"<{len(values)}{letter}", *values)
    return encoding(
        {
            "seal": seal,
            "place": place,
            "salt": salt,
            "numbers": b"".join(number_bytes(c[i]) for kind, c in columns if kind == "numbers"),
            "texts": [c[i] for kind, c in columns if kind == "texts"],
            **arrays,
        }
    )


def leaves_of_tree(mark, all_salts):
    """The hashes over which the Merkle tree is built."""
    found = []
    for seal in SEALS:
        for i in range(count(mark, seal)):
            parts = {**mark[seal], "of_numbers": mark["answers"] == "numbers"}
            place = len(found)
            found.append(
                sha256(b"\0", record(mark["kinds"], seal, parts, i, place, all_salts[place]))
            )
    return found


def root(leaves):
    """The Merkle tree hash of RFC 9162, by its recursive definition."""
    if len(leaves) == 1:
        return leaves[0]
    half = 1 << (len(leaves) - 1).bit_length() - 1
    return sha256(b"\x01", root(leaves[:half]), root(leaves[half:]))


def digest(mark, secret):
    n = count(mark, "leaves") + count(mark, "splits")
    head = {
        **{word: mark[word] for word in WORDS},
        "mark_id": bytes.fromhex(mark["mark_id"]),
        "claim_key": bytes.fromhex(mark["claim_key"]),
        "secret_digest": sha256(b"timbermark/secret/3", secret),
        "columns": mark["kinds"],
        "q": alphabet_size(mark),
        "n_leaves": count(mark, "leaves"),
        "n_splits": count(mark, "splits"),
        "about_digest": sha256(b"timbermark/about/3", secret, encoding(mark["about"])),
        "root": root(leaves_of_tree(mark, salts(secret, n))),
    }
    return head_digest(head)


def head_digest(head):
    return sha256(b"timbermark/mark-digest/3", encoding(head))


def alphabet_size(mark):
    return len(mark["leaves"]["alphabets"][0]) if mark["leaves"] else 2


def seed(digest, n=65536):
    return Scrypt(salt=b"timbermark/seed/3", length=32, n=n, r=8, p=1).derive(digest)


def stream(seed, place, salt):
    return hashlib.shake_256(b"timbermark/symbol/3" + seed + size(place) + salt).digest(9)


def symbols(seed, places, salts, n_leaves, q):
    """One symbol for each trigger; ``n_leaves`` counts those of the whole mark."""
    return [
        stream(seed, place, salt)[0] % (q if place < n_leaves else 2)
        for place, salt in zip(places, salts, strict=True)
    ]


def order(seed, places, salts):
    """The triggers of one seal in the order of asking, as indices of ``places``."""
    keys = [
        struct.unpack("<Q", stream(seed, place, salt)[1:])[0]
        for place, salt in zip(places, salts, strict=True)
    ]
    return sorted(range(len(keys)), key=keys.__getitem__)


# Evidence. ``answers`` hold one item for each row, those of the leaf seal first, then three for
# each trigger in splits: None without an answer, a class number (-1 for a label that is no class),
# a list of K scores, or a number. Symbols and orders are those of each seal.


def evidence(mark, kind, answers, symbols, orders):
    """The bits of each seal and of both, before prices."""
    n = count(mark, "leaves")
    found = {}
    if mark["leaves"]:
        weigh = leaf_labels_gains if kind == "labels" else leaf_scores_gains
        gains = weigh(mark["leaves"], answers[:n], symbols["leaves"], orders["leaves"])
        found["leaves"] = seal_bits([one for _, one in gains], [])
    if mark["splits"]:
        rows = completed(mark["splits"], kind, answers[n:])
        gains = split_gains(mark["splits"], kind, rows, symbols["splits"], orders["splits"])
        strata = [mark["splits"]["strata"][i] for i, _ in gains]
        found["splits"] = seal_bits([one for _, one in gains], list(zip(*strata, strict=True)))
    return {**found, "both": combined(list(found.values()))}


def combined(bits):
    if len(bits) == 1:
        return bits[0]
    one, two = (x * math.log(2) for x in bits)
    return log2_mean([one + two, one, two])


def seal_bits(gains, strata):
    """``gains`` [n][m]: of each answered trigger, in the order of asking, and each form."""
    if not gains:
        return 0.0
    products = []
    for division in [[0] * len(gains), *strata]:
        bits = 0.0
        for part in sorted(set(division)):
            own = [one for one, p in zip(gains, division, strict=True) if p == part]
            bits += log2_mean([math.fsum(form) for form in zip(*own, strict=True)])
        products.append(bits * math.log(2))
    return log2_mean(products)


def log2_mean(logs):
    top = max(logs)
    return (top + math.log(math.fsum(math.exp(x - top) for x in logs) / len(logs))) / math.log(2)


def leaf_labels_gains(leaves, answers, symbols, order):
    found = []
    for i in order:
        alphabet, label = leaves["alphabets"][i], answers[i]
        if label is None:
            continue
        matched = label == alphabet[symbols[i]]
        found.append((i, bets(len(alphabet), matched, label in alphabet)))
    return found


def bets(q, matched, told):
    gains = []
    for j in range(64):
        angle = (j + 0.5) / 64 * math.acos(math.sqrt(1 / q))
        rate, miss = math.cos(angle) ** 2, math.sin(angle) ** 2
        gain = math.log(q * rate if matched else miss * q / (q - 1))
        gains.append(gain if told else 0.0)
    return gains


def leaf_scores_gains(leaves, answers, symbols, order):
    found, earlier = [], []
    for i in order:
        if answers[i] is None:
            continue
        p, r = [*map(floored, answers[i])], [*map(floored, leaves["reference"][i])]
        alphabet, predicted = leaves["alphabets"][i], None
        if leaves["alternatives"][i]:
            others = [[*map(floored, v)] for v in leaves["alternatives"][i]]
            known = [[r[c] for c in alphabet], *others]
            x = [centred([math.log(value) for value in model]) for model in known]
            predicted = weigh(fitted(earlier, len(x)), x)
            earlier.append((x, centred([math.log(p[c]) for c in alphabet])))
        gains = []
        for g in score_forms(p, r, alphabet, predicted):
            total = math.fsum(math.exp(x - max(g)) for x in g)
            gains.append(math.log(len(alphabet)) + g[symbols[i]] - max(g) - math.log(total))
        best = [c for c in alphabet if p[c] == max(p[b] for b in alphabet)]
        gains += bets(len(alphabet), best[0] == alphabet[symbols[i]], len(best) == 1)
        found.append((i, gains))
    if leaves.get("drawn") and found:  # a guard's
        for (_, gains), more in zip(
            found, learnt_gains(leaves, answers, symbols, order), strict=True
        ):
            gains += more * 40
    return found


def centred(values):
    mean = math.fsum(values) / len(values)
    return [value - mean for value in values]


def weigh(weights, x):
    columns = zip(*x, strict=True)
    return [math.fsum(b * v for b, v in zip(weights, column, strict=True)) for column in columns]


def fitted(earlier, m):
    """The weights that fit earlier answers best, by Gaussian elimination."""
    rows = [[float(i == j) for j in range(m)] + [float(i == 0)] for i in range(m)]
    for x, z in earlier:
        for i in range(m):
            for j, other in enumerate([*x, z]):
                rows[i][j] += math.fsum(a * b for a, b in zip(x[i], other, strict=True))
    for i in range(m):
        pivot = max(range(i, m), key=lambda j: abs(rows[j][i]))
        rows[i], rows[pivot] = rows[pivot], rows[i]
        for j in range(m):
            if j != i:
                factor = rows[j][i] / rows[i][i]
                rows[j] = [a - factor * b for a, b in zip(rows[j], rows[i], strict=True)]
    return [rows[i][m] / rows[i][i] for i in range(m)]


def learnt_gains(leaves, answers, symbols, order):
    """The gains of the forms that learn from earlier symbols, [n][R + 1], of a guard's mark."""

    def ratio(pair):
        return math.log(min(max(pair[1], 1e-3), 1.0) / min(max(pair[0], 1e-3), 1.0))

    asked = [i for i in order if answers[i] is not None]
    models = len(leaves["alternatives"][asked[0]])
    found = [[] for _ in asked]
    # Without models the second column is a constant, which is expected to be 0.
    sets = [range(models + 1), *([0, j] for j in range(1, models + 1))] if models else [[0, 1]]
    for columns in sets:
        # Each answer changes what is believed: the inverse of the precision, the weights, the rest.
        d = len(columns)
        spread = [[float(i == j) for j in range(d + 1)] for i in range(d + 1)]
        share = 0.9 / (d - 1) if models else 0.0
        weights, rest = [0.1, *[share] * (d - 1), 0.2], 0.04
        for place, i in enumerate(asked):
            alphabet = leaves["alphabets"][i]
            z = ratio([answers[i][c] for c in alphabet])
            known = [[leaves["reference"][i][c] for c in alphabet], *leaves["alternatives"][i]]
            h = [ratio(known[j]) for j in columns] if models else [ratio(known[0]), 1.0]
            lead = {}
            for s in (-1.0, 1.0):
                v = [*h, s]
                off, size = z - dot(weights, v), dot(v, [dot(row, v) for row in spread])
                scale = rest * (1 + size)
                power = (place + 3) / 2 * math.log(1 + off**2 / scale)
                lead[s] = math.log(scale) / 2 + power
            s = 2.0 * symbols[i] - 1
            weight = 0.005 + 0.99 / (1 + math.exp(lead[s] - lead[-s]))
            found[place].append(math.log(2 * weight))
            v = [*h, s]
            ahead = [dot(row, v) for row in spread]
            size, off = 1 + dot(v, ahead), z - dot(weights, v)
            weights = [w + a * off / size for w, a in zip(weights, ahead, strict=True)]
            spread = [[x - a * b / size for x, b in zip(row, ahead, strict=True)]
                      for row, a in zip(spread, ahead, strict=True)]  # fmt: skip
            rest += off**2 / size
    return found


def dot(one, two):
    return math.fsum(a * b for a, b in zip(one, two, strict=True))


def score_forms(p, r, alphabet, predicted=None):
    """All g of one trigger, in the order of the page."""
    yield from plain_forms(p, r, alphabet)
    if predicted is None:
        return
    differ = [math.log(p[c]) - u for c, u in zip(alphabet, predicted, strict=True)]
    for t in (0.1, 0.35, 1.0, 4.0, 16.0, 32.0):
        yield [t * d for d in differ]
    for lead in (0.5, 1.0, 2.0, 4.0):
        expected = [[leading(r, c, lead)[b] for b in alphabet] for c in alphabet]
        yield from changed_forms(differ, expected, [r[c] for c in alphabet])


def plain_forms(p, r, alphabet):
    for t in (0.1, 0.35, 1.0, 4.0, 16.0, 32.0):
        for f in (0.5, 1.0):
            yield [t * (math.log(p[c]) - f * math.log(r[c])) for c in alphabet]
    for lead in (0.5, 1.0, 2.0, 4.0):
        expected = [[leading(r, c, lead)[b] for b in alphabet] for c in alphabet]
        for share in (0.2, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95):
            for e in (0.01, 0.03):
                g = []
                for t in expected:
                    v = [(p[c] - (1 - share) * x) / share for c, x in zip(alphabet, t, strict=True)]
                    g.append(-math.fsum(math.log(e + abs(x)) + max(0.0, -x) / e for x in v))
                yield g
        differ = [math.log(p[c] / r[c]) for c in alphabet]
        yield from changed_forms(differ, expected, [r[c] for c in alphabet])


def changed_forms(differ, expected, r):
    for part in (0.2, 0.35, 1.0):
        for spread in (0.5, 1.0):
            g = []
            for t in expected:
                moved = [math.log(max(x, 1e-6) / y) for x, y in zip(t, r, strict=True)]
                d = centred([a - part * b for a, b in zip(differ, moved, strict=True)])
                g.append(-math.fsum(map(abs, d)) / spread)
            yield g


def leading(r, x, lead):
    """The scores that are expected where class x leads; the level is found by halving."""
    m = [math.log(value) for value in r]
    others = [value for c, value in enumerate(m) if c != x]
    if m[x] - max(others) < lead:
        low, high = min(m) - lead, max(m)
        for _ in range(200):
            level = (low + high) / 2
            if level + lead - m[x] < math.fsum(max(0.0, value - level) for value in others):
                low = level
            else:
                high = level
        m = [level + lead if c == x else min(value, level) for c, value in enumerate(m)]
    powers = [math.exp(value - max(m)) for value in m]
    return [value / math.fsum(powers) for value in powers]


def completed(splits, kind, answers):
    """The answer at the middle in place of that at b, where the change to it is the owner's."""
    found = list(answers)
    for i, (known_a, known_b) in enumerate(splits["reference"]):
        a, m = found[3 * i : 3 * i + 2]
        if kind == "labels" or a is None or m is None:
            continue
        a, m = ([y] if kind == "numbers" else [math.log(floored(x)) for x in y] for y in (a, m))
        if kind == "scores":
            known_a, known_b = ([math.log(floored(x)) for x in y] for y in (known_a, known_b))
        change = [y - x for x, y in zip(known_a, known_b, strict=True)]
        size = math.fsum(map(abs, change))
        off = math.fsum(abs(y - x - c) for x, y, c in zip(a, m, change, strict=True))
        told = math.isfinite(off) and size > (0.0 if kind == "numbers" else 1e-9)
        if told and off <= 0.02 * size:
            found[3 * i + 2] = found[3 * i + 1]
    return found


def split_gains(splits, kind, answers, symbols, order):
    found = []
    for i in order:
        rows = answers[3 * i : 3 * i + 3]
        if None in rows:
            continue
        forms = split_forms(kind, *rows, *splits["reference"][i])
        sides = [w if symbols[i] == 1 else 1 - w for w in forms]
        found.append((i, [math.log(2 * w) for w in sides]))
    return found


def split_forms(kind, a, m, b, reference_a, reference_b):
    """w(1) of every form, in the order of the page."""
    if kind == "labels":
        return side_forms(float(m == b) if a != b and m in (a, b) else None)
    if kind == "numbers":
        (known_a,), (known_b,) = reference_a, reference_b
        return number_forms([[a]], [[m]], [[b]], [known_a], [known_b], 0.0, 0.0)
    logs = [[math.log(floored(x)) for x in y] for y in (a, m, b, reference_a, reference_b)]
    return number_forms([logs[0], a], [logs[1], m], [logs[2], b], *logs[3:], 1e-9, 1e-6)


def number_forms(a, m, b, known_a, known_b, same, least):
    """``a``, ``m``, ``b``: what *near* compares; the first of each is used by the other forms."""
    forms = []
    for one, two, three in zip(a, m, b, strict=True):
        forms += side_forms(ratio(distance(one, two), distance(two, three), same))
    change = [y - x for x, y in zip(known_a, known_b, strict=True)]
    begun, ended = part(a[0], m[0], change, least), part(m[0], b[0], change, least)
    if begun is None or ended is None:
        forms += side_forms(None) + [0.5] * 15
    else:
        forms += side_forms(ratio(max(begun, 0.0), max(ended, 0.0), 1e-9))
        forms += [
            step(begun, ended, share, width)
            for share in (1.0, 0.5, 0.25, 0.1, 0.03)
            for width in (0.3, 0.1, 0.03)
        ]
    finite = all(math.isfinite(x) for y in (a[0], m[0], b[0]) for x in y)
    return forms if finite else [0.5] * len(forms)


def distance(x, y):
    return math.fsum(abs(u - v) for u, v in zip(x, y, strict=True))


def ratio(first, second, same):
    whole = first + second
    return first / whole if math.isfinite(whole) and whole > same else None


def part(x, y, change, least):
    size = math.fsum(c * c for c in change)
    if not math.isfinite(size) or size <= least * least:
        return None
    found = math.fsum((v - u) * c for u, v, c in zip(x, y, change, strict=True)) / size
    return min(max(found, -1e6), 1e6) if math.isfinite(found) else None


def side_forms(u):
    if u is None:
        return [0.5] * 12
    hard = 0.5 if abs(u - 0.5) < 1e-9 else float(u > 0.5)
    errors = (0.4, 0.25, 0.1, 0.03, 0.01, 0.003)
    return [e + (1 - 2 * e) * v for v in (u, hard) for e in errors]


def step(begun, ended, share, width):
    def f(r):
        return 1 / (1 + (r / (width * share)) ** 2)

    one, zero = f(begun - share) * f(ended), f(begun) * f(ended - share)
    return min(max(one / (one + zero), 1e-3), 1 - 1e-3)


def floored(p):
    return min(max(p, 1e-6), 1.0)


def reported(raw, prices=0.0):
    """What stands in a verdict: prices subtracted, thousandths of a bit, rounded down."""
    return max(0.0, math.floor((raw - prices) * 1000 + 1e-6) / 1000)


def members(data, kind):
    first, checksum, payload = data.split(b"\n", 2)
    assert first == b"timbermark " + kind
    assert hashlib.sha256(first + b"\n" + payload).hexdigest().encode() == checksum
    with zipfile.ZipFile(io.BytesIO(payload)) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    meta = json.loads(parts.pop("meta.json"))
    return meta, {name[:-4]: np.load(io.BytesIO(raw)) for name, raw in parts.items()}


def read_seals(kinds, texts, arrays):
    """Each seal with its rows as columns; None for one that is not there."""
    found = dict.fromkeys(SEALS)
    for seal, named in texts.items():
        numbers, words = iter(arrays[f"{seal}.rows"].T.tolist()), iter(named)
        columns = [next(numbers if kind == "numbers" else words) for kind in kinds]
        arrays_of_it = {name: arrays[f"{seal}.{name}"].tolist() for name in SEALS[seal]}
        found[seal] = {"columns": columns, **arrays_of_it}
    return found


def read_mark(data, passphrase=None):
    """The mark in a file, as in the test vectors, with its secret in hexadecimal digits."""
    meta, arrays = members(data, b"mark 4")
    if passphrase is not None:
        derived = Scrypt(salt=bytes.fromhex(meta["salt"]), length=32, **meta["scrypt"])
        cipher = AESGCM(derived.derive(unicodedata.normalize("NFC", passphrase).encode()))
        how = json.dumps({**meta, "kind": "mark", "version": 4}, sort_keys=True)
        bound = b"timbermark/seal/2" + how.encode()
        sealed = arrays["sealed"].tobytes()
        content = cipher.decrypt(bytes.fromhex(meta["nonce"]), sealed, bound)
        meta, arrays = members(content, b"mark 4")
    return {**meta, **read_seals(meta["kinds"], meta["texts"], arrays)}
