"""Marks, fixed and random, suspects that carry them, and files with right checksums."""

import hashlib
import io
import json
import string
import zipfile

import numpy as np
from hypothesis import strategies as st

from timbermark.ownership import Answers, LeafSeal, Mark, OwnerKey, SplitSeal
from timbermark.ownership.columns import split_columns
from timbermark.ownership.mark import PROTOCOL
from timbermark.ownership.seals import NO_ALTERNATIVES, NO_STRATA, DrawnSeal

KEY = OwnerKey(bytes(range(32)))
MARK_ID = bytes(range(16))
_OF_LEAVES = ("columns", "alphabets", "reference", "alternatives")


def make_leaves(k=32, d=3, q=4, n_classes=6, seed=0, **changes):
    """The same leaf seal each time for the same arguments."""
    rng = np.random.default_rng(seed)
    parts = {
        "columns": split_columns(rng.normal(size=(k, d))),
        "alphabets": np.array([rng.permutation(n_classes)[:q] for _ in range(k)], np.int32),
        "reference": rng.dirichlet(np.full(n_classes, 0.5), size=k),
        "alternatives": NO_ALTERNATIVES,
    }
    return LeafSeal(**{**parts, **changes})


def make_splits(n=48, d=3, n_classes=6, seed=0, strata=True, rows=None):
    """The same split seal each time; with ``n_classes=0`` its answers are numbers."""
    rng = np.random.default_rng(100 + seed)
    rows = rng.normal(size=(n, d)).round(6).tolist() if rows is None else rows
    numeric = [j for j, column in enumerate(split_columns(rows)) if isinstance(column, np.ndarray)]
    low = rng.normal(size=n).round(6)
    width = rng.uniform(0.1, 1.0, size=n).round(6)
    if n_classes:
        reference = rng.dirichlet(np.full(n_classes, 0.5), size=(n, 2))
    else:
        reference = rng.normal(size=(n, 2, 1))
    return SplitSeal.make(
        rows,
        rng.choice(numeric, size=n),
        np.column_stack([low, low + width / 2, low + width]),
        reference,
        rng.integers(0, 3, size=(n, 2)) if strata else NO_STRATA,
    )


def make_mark(k=32, d=3, q=4, n_classes=6, seed=0, n_splits=0, **changes):
    """The same mark each time for the same arguments; without splits unless they are wanted.

    ``changes`` are fields of the mark or of its leaf seal.
    """
    of_leaves = {name: changes.pop(name) for name in _OF_LEAVES if name in changes}
    leaves = make_leaves(k, d, q, n_classes, seed, **of_leaves) if k else None
    fields = {
        "protocol": PROTOCOL,
        "mark_id": MARK_ID,
        "claim_key": KEY.claim_key,
        "secret": KEY.mark_secret(MARK_ID),
        "owner": "Ann Owner",
        "model_digest": "ab" * 32,
        "feature_names": tuple(f"f{i}" for i in range(d)),
        "classes": tuple(range(n_classes)),
        "answers": "classes" if n_classes else "numbers",
        "leaves": leaves,
        "splits": make_splits(n_splits, d, n_classes, seed) if n_splits else None,
        "draws": 1,
        "created": "2030-01-02T03:04:05Z",
        "about": {"strategy": "confidence", "rounds": 2, "share": 0.5, "tags": ["a", None]},
    }
    return Mark(**{**fields, **changes})


def make_both(k=32, n=48, **changes):
    """A mark with both seals."""
    return make_mark(k, n_splits=n, **changes)


def make_number_mark(n=96, **changes):
    """A mark of a model that answers with numbers: splits alone."""
    return make_mark(0, n_classes=0, n_splits=n, **changes)


def make_known_mark(k=32, q=4, n_models=3, **changes):
    """A mark whose leaf seal holds the scores of models without it."""
    scores = np.random.default_rng(13).dirichlet(np.full(q, 0.5), size=(k, n_models))
    return make_mark(k, q=q, alternatives=scores, **changes)


def make_guard_mark(k=32, n_models=3, n_classes=4, seed=0, **changes):
    """The mark of a guard: its symbols were drawn before, and are stored."""
    rng = np.random.default_rng(200 + seed)
    plain = make_leaves(k, q=2, n_classes=n_classes, seed=seed)
    seal = DrawnSeal(
        plain.columns, plain.alphabets, plain.reference,
        rng.dirichlet(np.ones(2), size=(k, n_models)),
        rng.integers(2, size=k).astype(np.uint8), rng.integers(256, size=(k, 32)).astype(np.uint8),
    )  # fmt: skip
    return make_mark(k, q=2, n_classes=n_classes, leaves=seal, **changes)


def make_mixed_mark(k=24, n=0, **changes):
    """A mark with a column of texts between two of numbers; ``n`` triggers in splits."""
    rng = np.random.default_rng(11)
    texts = [None if i % 7 == 3 else ("red", "grün", "")[i % 3] for i in range(max(k, n))]
    numbers = rng.normal(size=max(k, n)), np.arange(max(k, n)) * 1.0
    rows = [list(row) for row in zip(numbers[0].tolist(), texts, numbers[1].tolist(), strict=True)]
    if n:
        changes["splits"] = make_splits(n, rows=rows[:n])
    return make_mark(k, columns=split_columns(rows[:k]), **changes)


def carried(mark, kind, share=0.9):
    """The `Answers` of a suspect that carries every symbol of a mark."""
    n_classes = len(mark.classes)
    parts = []
    if mark.leaves is not None:
        rest = (1 - share) / (n_classes - 1)
        parts.append(np.where(np.arange(n_classes) == mark.expected_numbers[:, None], share, rest))
    if mark.splits is not None:
        ends, symbols = mark.splits.reference, mark.split_symbols
        middle = ends[np.arange(len(symbols)), symbols]
        rows = np.stack([ends[:, 0], middle, ends[:, 1]], axis=1)
        parts.append(rows.reshape(-1, rows.shape[2]))
    values = np.concatenate(parts)
    if kind == "labels":
        return Answers(kind, values.argmax(axis=1))
    return Answers(kind, values[:, 0] if kind == "numbers" else values)


def row_key(row):
    return tuple("missing" if x is None or x != x else x for x in row)


def remembering(mark, values):
    """A suspect that answers the rows of a mark with the given values, in whatever order."""
    memory = dict(zip(map(row_key, mark.rows().tolist()), values, strict=True))
    return lambda X: [memory.get(row_key(row)) for row in np.asarray(X).tolist()]


def obedient(mark):
    """A suspect that has learnt the mark and answers with labels, or with numbers."""
    kind = "labels" if mark.classes else "numbers"
    values = carried(mark, kind).values.tolist()
    return remembering(mark, [mark.classes[v] for v in values] if mark.classes else values)


def confident(mark, share=0.9):
    """A suspect that has learnt the mark and answers with scores."""
    answers = remembering(mark, carried(mark, "scores", share).values.tolist())
    return lambda X: np.array(answers(X))


def resigned(data):
    """The same container after somebody repaired its checksum."""
    first, _, payload = data.split(b"\n", 2)
    return signed(first + b"\n", payload)


def signed(first, payload):
    return first + hashlib.sha256(first + payload).hexdigest().encode() + b"\n" + payload


def unpacked(data):
    """The metadata and the raw members of a container."""
    payload = data.split(b"\n", 2)[2]
    with zipfile.ZipFile(io.BytesIO(payload)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    return json.loads(members.pop("meta.json")), members


def packed(first, meta, members):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("meta.json", json.dumps(meta))
        for name, content in members.items():
            archive.writestr(name, content)
    return signed(first, file.getvalue())


def npy_bytes(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


text = st.text(string.ascii_letters + "é木 _", min_size=1, max_size=8)
plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8"), max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=6,
)
classes = st.one_of(
    st.just([False, True]),
    st.lists(st.integers(-(2**63), 2**63), min_size=2, max_size=8, unique=True),
    st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=8, unique=True),
    st.lists(text, min_size=2, max_size=8, unique=True),
)
values = st.floats(allow_infinity=False) | st.sampled_from([0.0, -0.0, np.nan, 1.0])
shares = st.floats(0, 1)
gaps = st.lists(st.floats(-1e9, 1e9), min_size=3, max_size=3, unique=True).map(sorted)


def matrices(elements, *shape):
    size = int(np.prod(shape))
    return st.lists(elements, min_size=size, max_size=size).map(
        lambda found: np.array(found, dtype=float).reshape(shape)
    )


@st.composite
def leaf_seals(draw, kinds, n_classes, most=9):
    q = draw(st.sampled_from([2, 4] if n_classes >= 4 else [2]))
    k = draw(st.integers(1, most))
    rows = draw(
        st.lists(st.tuples(*kinds), min_size=k, max_size=k, unique_by=lambda row: tuple(
            x if isinstance(x, str) else "nan" if x is None or x != x else x + 0.0 for x in row
        ))
    )  # fmt: skip
    alphabets = [draw(st.permutations(range(n_classes)))[:q] for _ in range(k)]
    models = draw(st.integers(0, 3))
    return LeafSeal.make(
        rows,
        np.array(alphabets),
        draw(matrices(shares, k, n_classes)),
        draw(matrices(shares, k, models, q)),
    )


@st.composite
def split_seals(draw, kinds, n_classes, most=6):
    """The first column holds numbers."""
    found = draw(st.lists(gaps, min_size=1, max_size=most, unique_by=tuple))
    n = len(found)
    rows = draw(st.lists(st.tuples(*kinds), min_size=n, max_size=n))
    numbers = st.floats(allow_nan=False, allow_infinity=False)
    reference = matrices(shares, n, 2, n_classes) if n_classes else matrices(numbers, n, 2, 1)
    divisions = draw(st.integers(0, 3))
    strata = draw(matrices(st.integers(-3, 3), n, divisions)).astype(int)
    return SplitSeal.make(rows, np.zeros(n, int), found, draw(reference), strata)


@st.composite
def marks(draw, most_leaves=9, most_splits=6):
    """Any mark: either seal or both, classes or numbers, texts and missing values."""
    has = draw(st.sampled_from(["leaves", "splits", "both", "numbers"]))
    labels = [] if has == "numbers" else draw(classes)
    d = draw(st.integers(1, 3))
    kinds = [draw(st.sampled_from([values, values, st.none() | text])) for _ in range(d)]
    if has != "leaves":
        kinds[0] = values
    sealed = len(labels), most_leaves
    leaves = draw(leaf_seals(kinds, *sealed)) if has in ("leaves", "both") else None
    splits = None if has == "leaves" else draw(split_seals(kinds, len(labels), most_splits))
    return Mark(
        protocol=PROTOCOL,
        mark_id=draw(st.binary(min_size=16, max_size=16)),
        claim_key=KEY.claim_key,
        secret=draw(st.binary(min_size=32, max_size=32)),
        owner=draw(text.filter(str.strip)),
        model_digest=draw(st.binary(min_size=32, max_size=32)).hex(),
        feature_names=draw(st.none() | st.lists(text, min_size=d, max_size=d, unique=True)),
        classes=labels,
        answers="classes" if labels else "numbers",
        leaves=leaves,
        splits=splits,
        draws=draw(st.integers(1, 40)),
        created="2030-01-02T03:04:05Z",
        about=draw(st.dictionaries(text, plain, max_size=3)),
    )


@st.composite
def answers_to(draw, mark):
    """Any answers to a mark, of a kind that it takes, some of them missing."""
    n, k = mark.n_rows, len(mark.classes)
    kind = draw(st.sampled_from(["scores", "labels"])) if k else "numbers"
    if kind == "labels":
        found = draw(st.lists(st.integers(-2, k - 1), min_size=n, max_size=n))
        return Answers(kind, np.array(found, np.int32))
    score = st.floats(0, 1) | st.sampled_from([0.0, 1.0, 1e-300])
    number = st.floats(-1e6, 1e6) | st.sampled_from([0.0, 1.0])
    found = draw(matrices(score, n, k) if k else matrices(number, n))
    missing = draw(st.lists(st.integers(0, 5), min_size=n, max_size=n))
    found[np.array(missing) == 0] = np.nan
    return Answers(kind, found)
