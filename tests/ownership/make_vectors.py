"""Write the test vectors of docs/mark-format.md and docs/claim-format.md, and the fixtures.

    python -m tests.ownership.make_vectors

Run it when a format or a form of evidence changes before the first release that has it; files of
released formats stay as they are. What it writes is held to the independent verifier by the tests.
"""

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from tests.ownership import independent
from tests.ownership.making import (
    KEY,
    MARK_ID,
    carried,
    make_known_mark,
    make_number_mark,
    make_splits,
)
from timbermark.ownership import Answers, Claim, LeafSeal, Mark, SplitSeal, claim, open_mark, weigh
from timbermark.ownership.encoding import thaw
from timbermark.ownership.evidence import UNANSWERED, round_bits, sum_prices, total_bits
from timbermark.ownership.mark import PROTOCOL
from timbermark.ownership.seals import NO_ALTERNATIVES

DOCS = Path(__file__).resolve().parents[2] / "docs"
FIXTURES = Path(__file__).parent / "fixtures"
PASSPHRASE, JUDGE, EIGHTHS = "open sesame", "Judge Judy", 4
MARKED, MARKED_FILE = "cd" * 32, "ef" * 32
BLOCK = re.compile(r"```json\n(.*?)```", re.DOTALL)


def read_vectors(page):
    """The test vectors of a page of docs/."""
    return json.loads(BLOCK.search((DOCS / page).read_text(encoding="utf-8"))[1])


def as_vector(mark):
    """A mark as the independent verifier takes it."""
    return {
        **{word: thaw(getattr(mark, word)) for word in independent.WORDS},
        "mark_id": mark.mark_id.hex(),
        "claim_key": mark.claim_key.hex(),
        "about": thaw(mark.about),
        "kinds": list(mark.kinds),
        "leaves": _seal_vector(mark.leaves),
        "splits": _seal_vector(mark.splits),
    }


def _seal_vector(seal):
    if seal is None:
        return None
    columns = [[None if x != x else x for x in column] for column in seal.columns]
    return {"columns": columns, **{name: getattr(seal, name).tolist() for name in seal.types}}


def as_mark(vector, secret):
    """The mark of a vector."""
    seals = {}
    for name, kind in (("leaves", LeafSeal), ("splits", SplitSeal)):
        parts = vector[name]
        if parts is None:
            seals[name] = None
            continue
        arrays = {part: np.array(parts[part], dtype) for part, dtype in kind.types.items()}
        if name == "leaves" and not arrays["alternatives"].size:
            arrays["alternatives"] = NO_ALTERNATIVES
        seals[name] = kind(columns=_columns(vector["kinds"], parts["columns"]), **arrays)
    words = {word: vector[word] for word in (*independent.WORDS, "about")}
    ids = {name: bytes.fromhex(vector[name]) for name in ("mark_id", "claim_key")}
    return Mark(**words, **ids, secret=secret, **seals)


def _columns(kinds, columns):
    return tuple(
        tuple(column) if kind == "texts" else np.array(column, dtype=float)
        for kind, column in zip(kinds, columns, strict=True)
    )


def plain_answers(answers):
    """Answers as the independent verifier takes them: None for a row without one."""
    if answers.kind == "labels":
        return [None if v == UNANSWERED else v for v in answers.values.tolist()]
    told = answers.answered
    return [v if told[i] else None for i, v in enumerate(answers.values.tolist())]


def as_answers(kind, given, n_classes):
    """The answers of a vector."""
    if kind == "labels":
        return Answers(kind, np.array([UNANSWERED if v is None else v for v in given]))
    empty = [np.nan] * n_classes if kind == "scores" else np.nan
    return Answers(kind, np.array([empty if v is None else v for v in given], dtype=float))


def bits_of(mark, answers):
    """Bits of each seal and of both, before prices, and what a verdict reports after them."""
    found = {one.seal: one.bits for one in weigh(mark, answers)}
    both = total_bits(list(found.values()), len(mark.seals))
    rounded = {name: round_bits(bits) for name, bits in sorted(found.items())}
    return {**rounded, "reported": max(0.0, round_bits(both - sum_prices(mark.prices)))}


def small_marks():
    """The marks of the vectors: leaves, both seals, numbers."""
    common = {
        "protocol": PROTOCOL,
        "mark_id": MARK_ID,
        "claim_key": KEY.claim_key,
        "secret": KEY.mark_secret(MARK_ID),
        "owner": "Ann Owner",
        "model_digest": "ab" * 32,
        "created": "2030-01-02T03:04:05Z",
    }
    rows = [[1.5, -2.0, "red"], [0.0, None, "grün"], [-0.0, 3.25, None], [1e300, 0.1, "red"]]
    alphabets = [[0, 1, 2, 3], [4, 3, 2, 1], [2, 0, 4, 1], [3, 4, 0, 2]]
    reference = [
        [0.5, 0.25, 0.125, 0.0625, 0.0625], [0.1, 0.1, 0.1, 0.2, 0.5],
        [0.2, 0.2, 0.4, 0.1, 0.1], [0.0, 0.1, 0.2, 0.6, 0.1],
    ]  # fmt: skip
    trees = ("ash", "birch", "cedar", "oak", "yew")
    names = ("width", "höhe", "colour")
    yield Mark(
        **common, feature_names=names, classes=trees, answers="classes", draws=2, splits=None,
        leaves=LeafSeal.make(rows, alphabets, reference),
        about={"rounds": 3, "share": 0.5, "tags": ["a", True, None]},
    )  # fmt: skip
    splits = SplitSeal.make(
        [[0.0, 2.0, "red"], [1.0, 2.5, None], [3.0, 4.0, "blue"], [3.0, None, "red"]],
        [0, 1, 1, 0],
        [[1.0, 1.25, 1.5], [-1.0, 0.5, 2.0], [2.5, 2.75, 3.5], [0.0, 0.5, 1.0]],
        [
            [[0.6, 0.1, 0.1, 0.1, 0.1], [0.1, 0.6, 0.1, 0.1, 0.1]],
            [[0.2, 0.2, 0.2, 0.2, 0.2], [0.25, 0.15, 0.2, 0.2, 0.2]],
            [[0.0, 0.0, 0.0, 0.0, 1.0], [0.0, 0.5, 0.0, 0.0, 0.5]],
            [[0.1, 0.1, 0.1, 0.1, 0.6], [0.3, 0.3, 0.2, 0.1, 0.1]],
        ],
        [[0, 1], [0, 2], [1, 1], [1, 2]],
    )
    others = [
        [[0.4, 0.58, 0.01, 0.0], [0.15, 0.45, 0.2, 0.2]],
        [[0.2, 0.5, 0.3, 0.0], [0.5, 0.05, 0.25, 0.2]],
        [[0.6, 0.05, 0.05, 0.3], [0.02, 0.08, 0.5, 0.4]],
        [[0.4, 0.1, 0.1, 0.4], [0.5, 0.1, 0.05, 0.35]],
    ]
    yield Mark(
        **common, feature_names=names, classes=trees, answers="classes", draws=1, about={},
        leaves=LeafSeal.make(rows, alphabets, reference, others), splits=splits,
    )  # fmt: skip
    yield Mark(
        **common, feature_names=None, classes=(), answers="numbers", draws=1, about={},
        leaves=None,
        splits=SplitSeal.make(
            [[0.5, "red"], [0.5, None], [0.5, "blue"]],
            [0, 0, 0],
            [[1.0, 1.5, 1.75], [-2.0, -1.0, 3.0], [4.0, 5.0, 8.0]],
            [[[10.0], [10.5]], [[250.0], [248.0]], [[-3.0], [-3.25]]],
        ),
    )  # fmt: skip


def loosened(mark, kind):
    """Answers that carry most of a mark; one row in seven has none, of numbers also some at b."""
    answers = carried(mark, kind, share=0.6)
    values = answers.values.copy()
    if kind == "labels":
        values[::5] = np.arange(len(values))[::5] % len(mark.classes)
    elif kind == "scores":
        flat = np.full(len(mark.classes), 1 / len(mark.classes))
        values = (0.75 * values + 0.25 * flat).round(4)
    else:
        values = values.round(1)
        values[2::9] = np.nan
    values[4::7] = UNANSWERED if kind == "labels" else np.nan
    return Answers(kind, values)


def mark_vectors():
    found = []
    for mark in small_marks():
        kinds = ("labels", "scores") if mark.classes else ("numbers",)
        asked = {kind: loosened(mark, kind) for kind in kinds}
        found.append(
            {
                **as_vector(mark),
                "salts": [salt.hex() for salt in mark.salts],
                "hashes": [one.hex() for one in mark.hashes],
                "root": mark.head.root.hex(),
                "digest": mark.digest.hex(),
                "seed": mark._seed.hex(),
                "symbols": mark.symbols.tolist(),
                "order": {seal.name: mark.order(seal.name).tolist() for seal in mark.seals},
                "asked": {
                    kind: {"answers": plain_answers(answers), "bits": bits_of(mark, answers)}
                    for kind, answers in asked.items()
                },
            }
        )
    return {
        "owner_key": KEY.secret.hex(),
        "fingerprint": KEY.fingerprint,
        "mark_secret": KEY.mark_secret(MARK_ID).hex(),
        "marks": found,
    }


def make_claim(mark):
    """A claim of the same second each time."""
    then = datetime(2030, 1, 3, 4, 5, 6, tzinfo=UTC)
    claim.datetime = SimpleNamespace(now=lambda _: then)
    try:
        return Claim.make(mark, KEY, marked_digest=MARKED, marked_file=MARKED_FILE)
    finally:
        claim.datetime = datetime


def claim_vectors():
    mark = list(small_marks())[1]
    made = make_claim(mark)
    statement = {n: v.hex() if isinstance(v, bytes) else v for n, v in made.statement.items()}
    opening = open_mark(mark, made, judge=JUDGE, share=EIGHTHS / 8, force=True)
    number = independent.sha256(
        b"timbermark/draw/2", independent.encoding({"claim": made.digest, "for": JUDGE})
    )[0]
    return {
        "owner_key": KEY.secret.hex(),
        "statement": statement,
        "message_sha256": independent.sha256(made.stamped[:-64]).hex(),
        "signature": made.signature.hex(),
        "claim_digest": made.digest.hex(),
        "draw": {
            "for": JUDGE, "eighths": EIGHTHS, "number": number, "places": list(opening.places)
        },
        "paths": [[step.hex() for step in path] for path in opening.paths],
        "opening_digest": opening.digest.hex(),
    }  # fmt: skip


def show(value, indent="", depth=2):
    """JSON with one key on a line, two levels deep."""
    if depth and isinstance(value, dict):
        inner = indent + "  "
        lines = [f"{inner}{json.dumps(k)}: {show(v, inner, depth - 1)}" for k, v in value.items()]
        return "{\n" + ",\n".join(lines) + f"\n{indent}}}"
    if depth and isinstance(value, list) and value and isinstance(value[0], dict):
        inner = indent + "  "
        shown = [f"{inner}{show(item, inner, depth)}" for item in value]
        return "[\n" + ",\n".join(shown) + f"\n{indent}]"
    return json.dumps(value, ensure_ascii=False)


def replace_block(page, vectors):
    path = DOCS / page
    text = path.read_text(encoding="utf-8")
    path.write_text(BLOCK.sub(lambda _: f"```json\n{show(vectors)}\n```", text, count=1), "utf-8")


def make_fixtures():
    FIXTURES.mkdir(exist_ok=True)
    mark = make_known_mark(k=40, n_models=2, draws=3, splits=make_splits(64))
    numbers = make_number_mark(96)
    mark.save(FIXTURES / "mark-4.mark", force=True)
    mark.save(FIXTURES / "mark-4-sealed.mark", PASSPHRASE, force=True)
    numbers.save(FIXTURES / "mark-4-numbers.mark", force=True)
    made = make_claim(mark)
    made.save(FIXTURES / "claim-2.claim", force=True)
    opening = open_mark(mark, made, judge=JUDGE, share=EIGHTHS / 8, force=True)
    opening.save(FIXTURES / "opening-3.opening", force=True)
    opened = opening.check(made)
    expected = {
        "digest": mark.digest.hex(),
        "symbols": "".join(map(str, mark.symbols)),
        "scores": bits_of(mark, loosened(mark, "scores")),
        "labels": bits_of(mark, loosened(mark, "labels")),
        "numbers": bits_of(numbers, loosened(numbers, "numbers")),
        "opened": bits_of(opened, loosened(opened, "scores")),
        "opening": opening.digest.hex(),
    }
    (FIXTURES / "expected.json").write_text(json.dumps(expected, indent=1) + "\n", "utf-8")


def main():
    replace_block("mark-format.md", mark_vectors())
    replace_block("claim-format.md", claim_vectors())
    make_fixtures()


if __name__ == "__main__":
    main()
