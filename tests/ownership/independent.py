"""A second verifier, written from docs/mark-format.md alone: no timbermark in here.

It needs the standard library, NumPy and the scrypt of `cryptography`. It reads a mark's file,
derives digest and symbols, and computes the evidence of labels and scores.
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
    "about",
)  # fmt: skip
NAN = bytes.fromhex("000000000000f87f")


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


def number_bytes(x):
    return NAN if x is None or x != x else struct.pack("<d", 0.0 if x == 0 else x)


def is_text(column):
    return any(isinstance(x, str) for x in column)


def sha256(*parts):
    return hashlib.sha256(b"".join(parts)).digest()


def salts(secret, k):
    stream = hashlib.shake_256(b"timbermark/salts/2" + secret).digest(32 * k)
    return [stream[32 * i : 32 * i + 32] for i in range(k)]


def leaf(mark, place, salt):
    columns, reference = mark["columns"], mark["reference"][place]
    pairs = mark["answers"] == "numbers"
    rows = [2 * place, 2 * place + 1] if pairs else [place]
    q = len(mark["alphabets"][0])
    record = {
        "place": place,
        "salt": salt,
        "numbers": b"".join(number_bytes(c[i]) for i in rows for c in columns if not is_text(c)),
        "texts": [
            c[i] if isinstance(c[i], str) else None for i in rows for c in columns if is_text(c)
        ],
        "alphabet": struct.pack(f"<{q}{'d' if pairs else 'i'}", *mark["alphabets"][place]),
        "reference": b"".join(
            struct.pack("<d", r if pairs else min(max(r, 1e-6), 1.0)) for r in reference
        ),
    }
    if "alternatives" in mark:
        others = [floored(v) for model in mark["alternatives"][place] for v in model]
        record["alternatives"] = struct.pack(f"<{len(others)}d", *others)
    return sha256(b"\x00", encoding(record))


def root(leaves):
    """The Merkle tree hash of RFC 9162, by its recursive definition."""
    if len(leaves) == 1:
        return leaves[0]
    half = 1 << (len(leaves) - 1).bit_length() - 1
    return sha256(b"\x01", root(leaves[:half]), root(leaves[half:]))


def digest(mark, secret):
    """``mark`` as in the test vectors: hexadecimal id, columns as lists, null if missing."""
    k = len(mark["alphabets"])
    head = {
        **{word: mark[word] for word in WORDS if word != "about"},
        "mark_id": bytes.fromhex(mark["mark_id"]),
        "secret_digest": sha256(b"timbermark/secret/2", secret),
        "columns": ["texts" if is_text(column) else "numbers" for column in mark["columns"]],
        "q": len(mark["alphabets"][0]),
        "n_triggers": k,
        "about_digest": sha256(b"timbermark/about/2", secret, encoding(mark["about"])),
        "root": root([leaf(mark, i, salt) for i, salt in enumerate(salts(secret, k))]),
    }
    return sha256(b"timbermark/mark-digest/2", encoding(head))


def seed(digest, n=65536):
    return Scrypt(salt=b"timbermark/seed/2", length=32, n=n, r=8, p=1).derive(digest)


def stream(seed, place, salt):
    start = b"timbermark/symbol/2" + seed + size(place) + salt
    return hashlib.shake_256(start).digest(9)


def symbols(seed, salts, q):
    return [stream(seed, i, salt)[0] % q for i, salt in enumerate(salts)]


def order(seed, salts):
    keys = [struct.unpack("<Q", stream(seed, i, salt)[1:])[0] for i, salt in enumerate(salts)]
    return sorted(range(len(keys)), key=keys.__getitem__)


def labels_bits(matched, k, q):
    tail = sum(math.comb(k, i) * (q - 1) ** (k - i) for i in range(matched, k + 1))
    return k * math.log2(q) - math.log2(tail)


def log2_mean(logs):
    top = max(logs)
    return (top + math.log(math.fsum(math.exp(x - top) for x in logs) / len(logs))) / math.log(2)


def one_by_one_bits(matched, answered, q):
    limit, logs = math.acos(math.sqrt(1 / q)), []
    for j in range(64):
        rate = math.cos((j + 0.5) / 64 * limit) ** 2
        miss = math.sin((j + 0.5) / 64 * limit) ** 2
        gain, loss = math.log(q * rate), math.log(miss * q / (q - 1))
        logs.append(matched * gain + (answered - matched) * loss)
    return log2_mean(logs)


def scores_bits(scores, reference, alphabets, symbols, alternatives=None, order=None):
    """``scores`` [k][K] are probabilities, None for a trigger without an answer."""
    logs = [0.0] * (138 if alternatives else 108)
    earlier = []
    for i in order if alternatives else range(len(scores)):
        if scores[i] is None:
            continue
        p, r, alphabet = [*map(floored, scores[i])], [*map(floored, reference[i])], alphabets[i]
        predicted = None
        if alternatives:
            known = [[r[c] for c in alphabet], *([*map(floored, v)] for v in alternatives[i])]
            x = [centred([math.log(value) for value in model]) for model in known]
            predicted = weigh(fitted(earlier, len(x)), x)
            earlier.append((x, centred([math.log(p[c]) for c in alphabet])))
        for number, g in enumerate(forms(p, r, alphabet, predicted)):
            total = math.fsum(math.exp(x - max(g)) for x in g)
            logs[number] += math.log(len(alphabet)) + g[symbols[i]] - max(g) - math.log(total)
    return log2_mean(logs)


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


def numbers_bits(numbers, levels, symbols):
    """``numbers`` [2k], pair after pair, None where there is no answer."""
    pairs = zip(numbers[::2], numbers[1::2], levels, symbols, strict=True)
    told = [(b - a, row, s) for a, b, row, s in pairs if a is not None and b is not None]
    if not told:
        return 0.0
    centres = [math.fsum(row) / len(row) for _, row, _ in told]
    steps = [(max(row) - min(row)) / (len(row) - 1) for _, row, _ in told]
    given = [y for y, _, _ in told]
    logs = []
    for values in (given, on_the_line(given, centres, steps)):
        for f in (1.0, 0.7, 0.5, 0.3, 0.15):
            for sigma in (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0):
                plain, heavy = [], []
                for y, c, h, (_, row, s) in zip(values, centres, steps, told, strict=True):
                    z = min(max((y - c) / h, -1e6), 1e6)
                    d = [(z - f * (level - c) / h) ** 2 / (2 * sigma**2) for level in row]
                    for terms, w in (
                        (plain, [-x for x in d]),
                        (heavy, [-1.5 * math.log1p(x) for x in d]),
                    ):
                        total = math.fsum(math.exp(x - max(w)) for x in w)
                        terms.append(math.log(len(row)) + w[s] - max(w) - math.log(total))
                logs += [math.fsum(plain), math.fsum(heavy)]
    return log2_mean(logs)


def on_the_line(values, centres, steps):
    weights = [1 / h**2 for h in steps]
    whole = math.fsum(weights)
    mean_y = math.fsum(w * y for w, y in zip(weights, values, strict=True)) / whole
    mean_c = math.fsum(w * c for w, c in zip(weights, centres, strict=True)) / whole
    every = list(zip(weights, values, centres, strict=True))
    below = math.fsum(w * (c - mean_c) ** 2 for w, _, c in every)
    above = math.fsum(w * (c - mean_c) * (y - mean_y) for w, y, c in every)
    if below == 0.0 or above / below <= 0.0:
        return centres
    return [(y - mean_y) / (above / below) + mean_c for y in values]


def forms(p, r, alphabet, predicted=None):
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


def floored(p):
    return min(max(p, 1e-6), 1.0)


def reported(raw, draws=1):
    """What stands in a verdict: prices subtracted, thousandths of a bit, rounded down."""
    return max(0.0, math.floor((raw - math.log2(draws)) * 1000 + 1e-6) / 1000)


def members(data, kind):
    first, checksum, payload = data.split(b"\n", 2)
    assert first == b"timbermark " + kind
    assert hashlib.sha256(first + b"\n" + payload).hexdigest().encode() == checksum
    with zipfile.ZipFile(io.BytesIO(payload)) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    meta = json.loads(parts.pop("meta.json"))
    return meta, {name[:-4]: np.load(io.BytesIO(raw)) for name, raw in parts.items()}


def read_mark(data, passphrase=None):
    """The mark in a file, as in the test vectors, with its secret in hexadecimal digits."""
    version = data[: data.index(b"\n")].split()[-1]
    meta, arrays = members(data, b"mark " + version)
    if passphrase is not None:
        cost = meta["scrypt"]
        derived = Scrypt(salt=bytes.fromhex(meta["salt"]), length=32, **cost)
        cipher = AESGCM(derived.derive(unicodedata.normalize("NFC", passphrase).encode()))
        bound = b"timbermark/seal/1" + encoding({**meta, "kind": "mark", "version": int(version)})
        sealed = arrays["sealed"].tobytes()
        content = cipher.decrypt(bytes.fromhex(meta["nonce"]), sealed, bound)
        meta, arrays = members(content, b"mark " + version)
    numbers = iter(arrays["numbers"].T.tolist())
    columns = [next(numbers) if column is None else column for column in meta["columns"]]
    parts = {name: arrays[name].tolist() for name in arrays if name != "numbers"}
    return {**meta, **parts, "columns": columns}
