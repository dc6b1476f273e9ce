"""The independent verifier as a program of the conformance kit; like the others without timbermark.

    python -m tests.ownership.independent_kit CASE_FOLDER

Refusals are those of conformance/README.md; the rules are those of the pages on formats.
"""

import functools
import hashlib
import io
import json
import math
import re
import sqlite3
import struct
import sys
import unicodedata
import zipfile
from pathlib import Path

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from tests.ownership import independent as one
from tests.ownership import independent_claims as two
from tests.ownership import independent_stamps as three

FIRST_LINE = re.compile(rb"timbermark ([a-z][a-z-]{0,30}) ([1-9][0-9]{0,8})")
VERSIONS = {"mark": 4, "claim": 2, "opening": 3, "guard-chain": 1}
MARK = {*one.WORDS, "about", "mark_id", "claim_key", "secret", "kinds", "texts"}
STATEMENT = {
    *("protocol", "owner", "key", "mark_id", "mark_digest", "model_digest", "marked_digest"),
    *("marked_file", "answers", "q", "n_leaves", "n_splits", "draws", "mark_created", "claimed"),
}
HEAD = {*one.WORDS, *two.HEAD_BYTES, "columns", "q", "n_leaves", "n_splits"}
TYPES = {
    "leaves": {"alphabets": "<i4", "reference": "<f8", "alternatives": "<f8", "rows": "<f8"},
    "splits": {"features": "<i4", "values": "<f8", "reference": "<f8", "strata": "<i4",
               "rows": "<f8"},
}  # fmt: skip
TRANSCRIPT = {
    *("format", "asked", "mark_digest", "places", "kind", "triggers_asked", "context", "answers"),
}
CONTEXT = {
    *("suspect", "through", "suspect_digest", "columns", "column_names", "reading", "request"),
    *("prices", "warnings", "conditions"),
}
CHAIN = {"guard", "chain", "first", "start", "stamps"}
KEYS = {"scores": "scores", "labels": "class", "numbers": "number"}
PARTS = {"model.claim", "mark.opening", "transcript.json", "verdict.json", "page.html"}
TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z")
one_seed = functools.cache(one.seed)


class RefusedError(Exception):
    """Its argument is the class of the refusal."""


def need(holds, kind="content"):
    if not holds:
        raise RefusedError(kind)


def run(folder):
    """Return what the program prints about a case."""
    folder = Path(folder)
    case = json.loads((folder / "case.json").read_text(encoding="utf-8"))
    try:
        return {"result": "accepted", **DO[case["do"]](folder, case)}
    except RefusedError as refused:
        return {"result": "refused", "class": str(refused)}


def container(data, kind):
    first, _, rest = data.partition(b"\n")
    checksum, _, payload = rest.partition(b"\n")
    found = FIRST_LINE.fullmatch(first)
    need(found and found[1] == kind.encode() and int(found[2]) == VERSIONS[kind], "container")
    right = hashlib.sha256(first + b"\n" + payload).hexdigest().encode()
    need(checksum == right, "container")
    try:
        with zipfile.ZipFile(io.BytesIO(payload)) as archive:
            names = archive.namelist()
            need(len(names) == len(set(names)), "container")
            parts = {name: archive.read(name) for name in names}
        meta = json.loads(parts.pop("meta.json"), parse_constant=_no, object_pairs_hook=_pairs)
        arrays = {}
        for name, raw in parts.items():
            need(name.endswith(".npy"), "container")
            file = io.BytesIO(raw)
            arrays[name[:-4]] = np.load(file)
            need(not file.read(1) and arrays[name[:-4]].dtype.kind in "biufU", "container")
    except RefusedError:
        raise
    except Exception:
        raise RefusedError("container") from None
    need(isinstance(meta, dict), "container")
    return meta, arrays


def _no(text):
    raise ValueError(text)


def _pairs(pairs):
    need(len({key for key, _ in pairs}) == len(pairs), "container")
    return dict(pairs)


def hexed(text, size):
    try:
        need(isinstance(text, str) and len(bytes.fromhex(text)) == size)
    except ValueError:
        raise RefusedError("content") from None
    need(re.fullmatch("[0-9a-f]*", text))
    return bytes.fromhex(text)


def check_words(words):
    """What stands in marks, claims and heads alike."""
    need(words["protocol"] == 3 and type(words["protocol"]) is int)
    check_name(words["owner"])
    hexed(words["model_digest"], 32)
    need(words["answers"] in ("classes", "numbers"))
    need(type(words["draws"]) is int and 1 <= words["draws"] <= 2**32)


def check_name(name):
    need(isinstance(name, str) and len(name.strip()) >= 1 and len(name) <= 200)
    need(name.isprintable())


def check_time(text):
    need(isinstance(text, str) and TIME.fullmatch(text))
    month, day, hour, minute, second = (int(text[i : i + 2]) for i in (5, 8, 11, 14, 17))
    need(1 <= month <= 12 and 1 <= day <= 31 and hour < 24 and minute < 60 and second < 60)


def check_labels(words):
    classes, numbers = words["classes"], words["answers"] == "numbers"
    need(isinstance(classes, list) and (not classes if numbers else 2 <= len(classes) <= 65536))
    need(len({type(label) for label in classes}) <= 1)
    need(all(type(label) in (bool, int, float, str) for label in classes))
    need(len(set(classes)) == len(classes))


def check_columns(words, kinds):
    need(isinstance(kinds, list) and kinds and set(kinds) <= {"numbers", "texts"})
    names = words["feature_names"]
    if names is not None:
        need(isinstance(names, list) and len(names) == len(kinds))
        need(all(isinstance(name, str) for name in names) and len(set(names)) == len(names))


def check_seals(words, kinds, texts, arrays):
    """Check and return both seals as the evidence takes them."""
    need(isinstance(texts, dict) and texts and set(texts) <= set(TYPES))
    need(set(arrays) == {f"{seal}.{part}" for seal in texts for part in TYPES[seal]})
    n_classes = len(words["classes"])
    for seal, words_of_it in texts.items():
        held = {part: arrays[f"{seal}.{part}"] for part in TYPES[seal]}
        for part, kind in TYPES[seal].items():
            need(held[part].dtype == np.dtype(kind))
        rows = held["rows"]
        need(rows.ndim == 2 and len(rows) >= 1 and rows.shape[1] == kinds.count("numbers"))
        need(isinstance(words_of_it, list) and len(words_of_it) == kinds.count("texts"))
        for column in words_of_it:
            need(isinstance(column, list) and len(column) == len(rows))
            need(all(text is None or isinstance(text, str) for text in column))
        need(not np.isinf(rows).any())
        (check_leaves if seal == "leaves" else check_splits)(held, len(rows), n_classes, kinds)
        if seal == "leaves":
            keys = [(*map(_key, row), *(c[i] for c in words_of_it))
                    for i, row in enumerate(rows.tolist())]  # fmt: skip
            need(len(set(keys)) == len(keys))
    need(words["answers"] == "classes" or "leaves" not in texts)
    return one.read_seals(kinds, texts, arrays)


def _key(x):
    return "nan" if x != x else x + 0.0


def check_leaves(held, n, n_classes, kinds):
    alphabets, reference, others = (held[p] for p in ("alphabets", "reference", "alternatives"))
    need(alphabets.ndim == 2 and len(alphabets) == n and alphabets.shape[1] in (2, 4))
    need((alphabets >= 0).all() and (alphabets < n_classes).all())
    need(all(len(set(row)) == len(row) for row in alphabets.tolist()))
    need(reference.shape == (n, n_classes) and ((reference >= 0) & (reference <= 1)).all())
    need(others.ndim == 3 and len(others) in (n, 0))
    need(((others >= 0) & (others <= 1)).all())


def check_splits(held, n, n_classes, kinds):
    features, values, reference = (held[p] for p in ("features", "values", "reference"))
    need(features.shape == (n,) and values.shape == (n, 3))
    need((features >= 0).all() and (features < len(kinds)).all())
    need(all(kinds[feature] == "numbers" for feature in features.tolist()))
    need(np.isfinite(values).all() and (np.diff(values, axis=1) > 0).all())
    need(reference.shape == (n, 2, n_classes or 1) and np.isfinite(reference).all())
    if n_classes:
        need(((reference >= 0) & (reference <= 1)).all())
    need(held["strata"].ndim == 2 and len(held["strata"]) == n)


def read_mark(data, passphrase):
    meta, arrays = container(data, "mark")
    sealed = "scrypt" in meta
    need(sealed == (passphrase is not None), "passphrase")
    if sealed:
        derived = Scrypt(salt=bytes.fromhex(meta["salt"]), length=32, **meta["scrypt"])
        cipher = AESGCM(derived.derive(unicodedata.normalize("NFC", passphrase).encode()))
        how = json.dumps({**meta, "kind": "mark", "version": 4}, sort_keys=True)
        try:
            content = cipher.decrypt(
                bytes.fromhex(meta["nonce"]),
                arrays["sealed"].tobytes(),
                b"timbermark/seal/2" + how.encode(),
            )
        except InvalidTag:
            raise RefusedError("passphrase") from None
        meta, arrays = container(content, "mark")
    need(set(meta) == MARK)
    check_words(meta)
    check_labels(meta)
    check_time(meta["created"])
    check_columns(meta, meta["kinds"])
    for name, size in (("mark_id", 16), ("claim_key", 32), ("secret", 32)):
        hexed(meta[name], size)
    need(isinstance(meta["about"], dict))
    seals = check_seals(meta, meta["kinds"], meta["texts"], arrays)
    return {**meta, **seals}


def read_claim(data):
    meta, arrays = container(data, "claim")
    need(set(meta) == {"statement", "signature", "stamps"} and not arrays)
    statement = meta["statement"]
    need(isinstance(statement, dict) and set(statement) == STATEMENT)
    need(isinstance(meta["stamps"], list) and len(meta["stamps"]) <= 8)
    need(all(isinstance(one, str) and 0 < len(one) <= 2 << 16 for one in meta["stamps"]))
    need(all(re.fullmatch("([0-9a-f]{2})*", one) for one in meta["stamps"]))
    check_words(statement)
    check_time(statement["claimed"])
    check_time(statement["mark_created"])
    for name, size in (("key", 32), ("mark_id", 16), ("mark_digest", 32), ("marked_digest", 32)):
        hexed(statement[name], size)
    if statement["marked_file"] is not None:
        hexed(statement["marked_file"], 32)
    need(statement["q"] in (2, 4))
    counts = [statement[name] for name in ("n_leaves", "n_splits")]
    need(all(type(n) is int and 0 <= n <= 16384 for n in counts) and sum(counts) >= 1)
    signature = hexed(meta["signature"], 64)
    need(two.is_signed(statement, signature), "signature")
    return statement, signature


def read_opening(data):
    meta, arrays = container(data, "opening")
    need(set(meta) == {"claim", "for", "head", "places", "texts"})
    hexed(meta["claim"], 32)
    check_name(meta["for"])
    head, places = meta["head"], meta["places"]
    need(isinstance(head, dict) and set(head) == HEAD)
    check_words(head)
    check_labels(head)
    check_columns(head, head["columns"])
    for name in two.HEAD_BYTES:
        hexed(head[name], 16 if name == "mark_id" else 32)
    n = head["n_leaves"] + head["n_splits"]
    need(isinstance(places, list) and places and all(type(p) is int for p in places))
    need(places == sorted(set(places)) and places[0] >= 0 and places[-1] < n)
    for name in ("salts", "paths"):
        need(name in arrays)
        need(arrays[name].dtype == np.uint8 and arrays[name].ndim == 2)
        need(arrays[name].shape[1] == 32)
    need(len(arrays["salts"]) == len(places))
    need(len(arrays["paths"]) == sum(two.path_length(p, n) for p in places))
    own = {name: array for name, array in arrays.items() if name not in ("salts", "paths")}
    check_seals(head, head["columns"], meta["texts"], own)
    first = sum(place < head["n_leaves"] for place in places)
    sizes = {"leaves": first, "splits": len(places) - first}
    for seal, size in sizes.items():
        need((seal in meta["texts"]) == (size > 0))
        need(not size or len(own[f"{seal}.rows"]) == size)
    return meta


def weigh(mark, case, symbols, orders, prices):
    asked = case.get("answers")
    if asked is None:
        return {}
    kind, values = asked["kind"], asked["values"]
    n = one.count(mark, "leaves") + 3 * one.count(mark, "splits")
    need(
        kind in (("numbers",) if mark["answers"] == "numbers" else ("labels", "scores")), "answers"
    )
    need(len(values) == n, "answers")
    classes = len(mark["classes"])
    for value in values:
        if value is None:
            continue
        if kind == "scores":
            need(isinstance(value, list) and len(value) == classes, "answers")
        else:
            need(not isinstance(value, list), "answers")
        need(kind != "labels" or value < classes, "answers")
    bits = one.evidence(mark, kind, values, symbols, orders)
    context = case.get("context", {"prices": [], "conditions": []})
    prices += sum(bits_of_it for _, bits_of_it, _ in context["prices"])
    if "context" in case:
        prices += holes(mark, kind, values, orders)
    reported = one.reported(bits.pop("both"), prices)
    level = "conclusive" if reported >= 64 else "indicative" if reported >= 20 else "none"
    if level == "conclusive" and any(facts.get("caps") for _, facts in context["conditions"]):
        level = "indicative"
    found = {seal: math.floor(b * 1000 + 1e-6) / 1000 for seal, b in bits.items()}
    return {"bits": {**found, "reported": reported}, "level": level}


def _weigh_places(mark, case, digest, places, salts, n_leaves, q, prices):
    seed = one_seed(digest)
    symbols = one.symbols(seed, places, salts, n_leaves, q)
    first = sum(place < n_leaves for place in places)
    parts = {"leaves": slice(0, first), "splits": slice(first, len(places))}
    split = {seal: symbols[part] for seal, part in parts.items()}
    orders = {seal: one.order(seed, places[p], salts[p]) for seal, p in parts.items()}
    return weigh(mark, case, split, orders, prices)


def do_mark(folder, case):
    mark = read_mark((folder / case["mark"]).read_bytes(), case.get("passphrase"))
    secret = bytes.fromhex(mark["secret"])
    digest = one.digest(mark, secret)
    n = one.count(mark, "leaves") + one.count(mark, "splits")
    found = _weigh_places(mark, case, digest, list(range(n)), one.salts(secret, n),
                          one.count(mark, "leaves"), one.alphabet_size(mark),
                          math.log2(mark["draws"]))  # fmt: skip
    return {"digest": digest.hex(), **found}


def do_claim(folder, case):
    statement, signature = read_claim((folder / case["claim"]).read_bytes())
    if "mark" in case:
        mark = read_mark((folder / case["mark"]).read_bytes(), None)
        digest = one.digest(mark, bytes.fromhex(mark["secret"]))
        need(statement["mark_digest"] == digest.hex(), "binding")
        need(statement["key"] == mark["claim_key"], "binding")
    found = {"digest": two.claim_digest(statement, signature).hex()}
    stamps = container((folder / case["claim"]).read_bytes(), "claim")[0]["stamps"]
    if stamps:
        found["stamps"] = three.check_stamps(
            map(bytes.fromhex, stamps), two.message(statement) + signature, roots(folder, case)
        )
    return found


def roots(folder, case):
    return (folder / case["roots"]).read_bytes() if "roots" in case else None


def do_opening(folder, case):
    claim, opening = ((folder / case[name]).read_bytes() for name in ("claim", "opening"))
    return judge_opening(claim, opening, case)


def judge_opening(claim, opening, case):
    statement, signature = read_claim(claim)
    meta = read_opening(opening)
    digest = two.claim_digest(statement, signature)
    need(meta["claim"] == digest.hex(), "binding")
    head = {
        name: bytes.fromhex(value) if name in two.HEAD_BYTES else value
        for name, value in meta["head"].items()
    }
    need(one.head_digest(head).hex() == statement["mark_digest"], "binding")
    for name, other in (("claim_key", "key"), ("mark_id", "mark_id")):
        need(meta["head"][name] == statement[other], "binding")
    for name in ("protocol", "owner", "model_digest", "answers", "q", "n_leaves", "n_splits",
                 "draws"):  # fmt: skip
        need(head[name] == statement[name], "binding")
    need(head["created"] == statement["mark_created"], "binding")
    judge = case.get("for")
    cleaned = None if judge is None else unicodedata.normalize("NFC", judge).strip()
    need(judge is None or cleaned == meta["for"], "binding")
    n, places = head["n_leaves"] + head["n_splits"], meta["places"]
    eighths = [e for e in range(1, 9) if math.ceil(n * e / 8) == len(places)]
    need(eighths, "binding")
    seed = one_seed(bytes.fromhex(statement["mark_digest"]))
    need(two.draw(digest, meta["for"], eighths[0], seed, n)[1] == places, "binding")
    try:
        opened = two.read_opening(opening)
    except (AssertionError, struct.error):
        raise RefusedError("binding") from None
    price = two.price_of_part(len(places), n) + math.log2(head["draws"])
    mark = {**opened, "answers": head["answers"], "classes": head["classes"]}
    found = _weigh_places(mark, case, bytes.fromhex(statement["mark_digest"]), places,
                          opened["salts"], head["n_leaves"], head["q"], price)  # fmt: skip
    named = two.opening_digest(digest, meta["for"], places, opened["salts"])
    return {"digest": named.hex(), "opened": len(places), **found}


def do_pack(folder, case):
    data = (folder / case["pack"]).read_bytes()
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            names = archive.namelist()
            need(len(set(names)) == len(names), "container")
            stored = all(i.compress_type == zipfile.ZIP_STORED for i in archive.infolist())
            need(stored and set(names) <= {*PARTS, "manifest.json"}, "container")
            parts = {name: archive.read(name) for name in names}
    except RefusedError:
        raise
    except Exception:
        raise RefusedError("container") from None
    need("manifest.json" in parts, "container")
    try:
        manifest = json.loads(parts.pop("manifest.json"))
        listed = manifest["files"]
        need(manifest["format"] == "timbermark evidence 2" and set(listed) <= PARTS, "container")
    except (ValueError, KeyError, TypeError):
        raise RefusedError("container") from None
    need(set(listed) == set(parts), "container")
    for name, content in parts.items():
        need(hashlib.sha256(content).hexdigest() == listed[name], "container")
    need({"model.claim", "mark.opening"} <= set(parts), "binding")
    more, journal = case, {}
    if "answers" not in case:
        need("transcript.json" in parts, "binding")
        opening = container(parts["mark.opening"], "opening")[0]
        transcript, values = read_transcript(parts["transcript.json"], opening)
        more = {**case, "answers": {"kind": transcript["kind"], "values": values}}
        more["context"] = transcript["context"]
        said = transcript["context"]["request"]
        if said.get("from_journal"):
            journal = {"answers": said["from_journal"], "since": said.get("journal_since")}
    found = judge_opening(parts["model.claim"], parts["mark.opening"], more)
    return {**found, "journal": journal} if journal else found


def read_transcript(data, opening):
    """A transcript about an opening, and its answers, None where there is none."""
    try:
        found = json.loads(data, parse_constant=_no)
        need(set(found) == TRANSCRIPT and found["format"] == "timbermark transcript 2")
        need(found["mark_digest"] == _head_digest(opening) and found["places"] == opening["places"])
        context, key = found["context"], KEYS[found["kind"]]
        need(set(context) == CONTEXT)
        need(all(context[name].isprintable() for name in ("suspect", "through", "columns")))
        for _, bits, facts in context["prices"]:
            need(type(bits) in (int, float) and 0 <= bits < math.inf and isinstance(facts, dict))
        need(all(set(row) | {"shown"} == {key, "shown"} for row in found["answers"]))
        values = [row[key] for row in found["answers"]]
        leaves = sum(place < opening["head"]["n_leaves"] for place in opening["places"])
        need(len(values) == leaves + 3 * (len(opening["places"]) - leaves))
    except (ValueError, TypeError, KeyError, AttributeError):
        raise RefusedError("content") from None
    if found["kind"] == "labels":
        need(all(type(value) is int for value in values))
        return found, [None if value == -2 else value for value in values]
    if found["kind"] == "scores":
        need(all(x is None or (type(x) in (int, float) and 0 <= x <= 1) for v in values for x in v))
        return found, [None if None in value else value for value in values]
    return found, values


def _head_digest(opening):
    head = {name: bytes.fromhex(value) if name in two.HEAD_BYTES else value
            for name, value in opening["head"].items()}  # fmt: skip
    return one.head_digest(head).hex()


def holes(mark, kind, values, orders):
    """The price of answers that are missing before the last one that is there, for each seal."""
    n_leaves, bits = one.count(mark, "leaves"), 0.0
    for seal, order in orders.items():
        told = [
            values[i] is not None if seal == "leaves"
            else None not in values[n_leaves + 3 * i : n_leaves + 3 * i + 3]
            for i in order
        ]  # fmt: skip
        n = max((at + 1 for at, answered in enumerate(told) if answered), default=0)
        left_out = n - sum(told)
        bits += math.log2(math.comb(n, left_out) * (n + 1)) if left_out else 0.0
    return bits


def do_journal(folder, case):
    first, *lines = (folder / case["journal"]).read_bytes().rstrip(b"\0").split(b"\n")
    need(first == b"timbermark journal 2", "container")
    check, start, answers = b"", None, set()
    for line in lines[:-1]:  # behind the last line feed stands what a crash left unfinished
        try:
            _, record = json.loads(line)
            ((kind, value),) = record.items()
            text = json.dumps(record, separators=(",", ":")).encode()
            check = hashlib.sha256(check + b"\n" + text).hexdigest()[:32].encode()
            need(line == b'["' + check + b'",' + text + b"]", "container")
            if kind == "start":
                need(start is None and isinstance(value, dict), "container")
                start = value
                continue
            need(kind in ("asking", "failed", "skipped", "answers", "ended"), "container")
            names = {"answers": lambda v: [name for name, _ in v], "skipped": list}
            new = names.get(kind, lambda _: [])(value)
            need(len(set(new)) == len(new) and not answers & set(new), "container")
            answers |= set(new)
        except (ValueError, TypeError, AttributeError):
            raise RefusedError("container") from None
    return {"digest": start["mark_digest"],
            "journal": {"answers": len(answers), "since": start["created"]}}  # fmt: skip


def next_head(head, entry):
    return one.sha256(b"timbermark/guard-link/1", head, entry)


def do_chain(folder, case):
    meta, arrays = container((folder / case["chain"]).read_bytes(), "guard-chain")
    chains = meta.get("chains")
    need(isinstance(chains, list) and len(chains) == len(arrays) <= 4096)
    stamped, last, total = {}, b"", 0
    for number, chain in enumerate(chains):
        entries = arrays.get(f"entries.{number}")
        need(isinstance(chain, dict) and set(chain) == CHAIN)
        need(type(chain["first"]) is int and chain["first"] >= 0)
        need(entries is not None and entries.dtype == np.uint8 and entries.ndim == 2)
        need(entries.shape[1] == 32)
        guard, name = hexed(chain["guard"], 32), hexed(chain["chain"], 16)
        head, stamps = hexed(chain["start"], 32), chain["stamps"]
        need(isinstance(stamps, list) and len(stamps) <= 4096)
        for stamp in stamps:
            need(isinstance(stamp, list) and len(stamp) == 2 and type(stamp[0]) is int)
            need(isinstance(stamp[1], str) and re.fullmatch("([0-9a-f]{2})*", stamp[1]))
        before = [entry.tobytes() for entry in entries]
        for count in range(len(before) + 1):
            head = next_head(head, before[count - 1]) if count else head
            at = chain["first"] + count
            given = [bytes.fromhex(response) for n, response in stamps if n == at]
            said = {"guard": guard, "chain": name, "count": at, "head": head}
            about = b"timbermark/guard-head/1" + one.encoding(said)
            time = three.check_stamps(given, about, roots(folder, case))["first"]
            if time and chain["guard"] == case["guard"]:
                for entry in before[:count]:
                    stamped[entry] = min(time, stamped.get(entry, time))
        last, total = last + head, total + len(before)
    found = [commit(question) for question in case["questions"]]
    stamped = {entry[8:]: time for entry, time in stamped.items()}
    times = [stamped[entry] for entry in found if entry in stamped]
    return {"digest": one.sha256(last).hex(), "entries": total, "covered": len(times),
            "latest": max(times, default=None)}  # fmt: skip


def commit(question):
    record = {
        **{name: question[name] for name in ("texts", "alphabet", "symbol")},
        "link": bytes.fromhex(question["link"]),
        "numbers": b"".join(one.number_bytes(x) for x in question["numbers"]),
        "reference": b"".join(one.number_bytes(x) for x in question["reference"]),
    }
    return one.sha256(b"timbermark/guard-question/1", one.encoding(record))[:24]


def do_ledger(folder, case):
    try:
        file = sqlite3.connect(f"file:{folder / case['ledger']}?mode=ro&immutable=1", uri=True)
        about = dict(file.execute("SELECT name, value FROM about"))
        statement = json.loads(about["statement"])
        need(about["format"] == "1" and isinstance(statement, dict), "container")
        rows = file.execute("SELECT chain, seq, kind, entry, head, content FROM entries").fetchall()
        cuts = {chain: (seq, head) for chain, seq, head, _ in file.execute("SELECT * FROM cuts")}
        file.close()
    except (sqlite3.Error, KeyError, ValueError):
        raise RefusedError("container") from None
    guard, last = one.sha256(b"timbermark/guard/1", one.encoding(statement)), b""
    for chain in dict.fromkeys((about["chain"], *sorted({row[0] for row in rows}))):
        start = next_head(guard, bytes.fromhex(chain))
        count, head = cuts.get(chain, (0, start))
        for _, seq, kind, entry, kept, content in sorted(row for row in rows if row[0] == chain):
            count, head = count + 1, next_head(head, entry)
            need(seq == count and head == kept, "binding")
            need(kind == 0 or bytes(8) + one.sha256(content)[:24] == entry, "binding")
        last += head
    return {"digest": one.sha256(last).hex(), "entries": len(rows)}


DO = {"mark": do_mark, "claim": do_claim, "opening": do_opening, "pack": do_pack,
      "journal": do_journal, "chain": do_chain, "ledger": do_ledger}  # fmt: skip


# The accumulated vector: see conformance/README.md.


def accumulated(kind, draw):
    if kind == "encoding":
        return one.sha256(one.encoding(draw["value"])).hex()
    if kind == "merkle":
        leaves = [one.sha256(b"\0", leaf) for leaf in draw["leaves"]]
        return one.root(leaves).hex()
    if kind == "symbols":
        places = list(range(len(draw["salts"])))
        seed, salts = draw["seed"], draw["salts"]
        found = one.symbols(seed, places, salts, draw["n_leaves"], draw["q"])
        return json.dumps([found, one.order(seed, places, salts)])
    if kind == "labels":
        return _label_bits(draw["q"], tuple(draw["labels"]))
    rows = draw["rows"]
    splits = {"reference": [[[a], [b]] for a, b in draw["reference"]]}
    gains = one.split_gains(splits, "numbers", rows, draw["symbols"], range(len(rows) // 3))
    return _thousandths(one.seal_bits([gain for _, gain in gains], []))


@functools.cache
def _label_bits(q, labels):
    leaves = {"alphabets": [list(range(q))] * len(labels)}
    gains = one.leaf_labels_gains(leaves, labels, [0] * len(labels), range(len(labels)))
    return _thousandths(one.seal_bits([gain for _, gain in gains], []))


def _thousandths(bits):
    return str(math.floor(bits * 1000 + 1e-6))


if __name__ == "__main__":
    answer = run(sys.argv[1])
    print(json.dumps(answer))
    sys.exit(0 if answer["result"] == "accepted" else 1)
