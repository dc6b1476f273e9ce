"""Marks, fixed and random, and files with a right checksum whatever they hold."""

import hashlib
import io
import json
import string
import zipfile

import numpy as np
from hypothesis import strategies as st

from timbermark.ownership import Mark, OwnerKey
from timbermark.ownership.columns import split_columns

KEY = OwnerKey(bytes(range(32)))
MARK_ID = bytes(range(16))


def make_mark(k=32, d=3, q=4, n_classes=6, seed=0, **changes):
    """The same mark each time for the same arguments."""
    rng = np.random.default_rng(seed)
    fields = {
        "protocol": 2,
        "mark_id": MARK_ID,
        "secret": KEY.mark_secret(MARK_ID),
        "owner": "Ann Owner",
        "model_digest": "ab" * 32,
        "feature_names": tuple(f"f{i}" for i in range(d)),
        "classes": tuple(range(n_classes)),
        "answers": "classes",
        "columns": split_columns(rng.normal(size=(k, d))),
        "alphabets": np.array([rng.permutation(n_classes)[:q] for _ in range(k)], np.int32),
        "reference": rng.dirichlet(np.full(n_classes, 0.5), size=k),
        "draws": 1,
        "created": "2030-01-02T03:04:05Z",
        "about": {"strategy": "confidence", "rounds": 2, "share": 0.5, "tags": ["a", None]},
    }
    return Mark(**{**fields, **changes})


def make_known_mark(k=32, q=4, n_models=3, **changes):
    """A mark that holds the scores of models without it."""
    scores = np.random.default_rng(13).dirichlet(np.full(q, 0.5), size=(k, n_models))
    return make_mark(k, q=q, alternatives=scores, **changes)


def make_mixed_mark(k=24, **changes):
    """A mark with a column of texts between two of numbers."""
    rng = np.random.default_rng(11)
    texts = [None if i % 7 == 3 else ("red", "grün", "")[i % 3] for i in range(k)]
    return make_mark(k, columns=(rng.normal(size=k), texts, np.arange(k)), **changes)


def row_key(row):
    return tuple("missing" if x is None or x != x else x for x in row)


def obedient(mark):
    """A suspect that has learnt the mark, whatever the order of the rows, and nothing else."""
    memory = dict(zip(map(row_key, mark.rows().tolist()), mark.expected, strict=True))
    return lambda X: [memory.get(row_key(row)) for row in np.asarray(X).tolist()]


def confident(mark, share=0.9):
    """A suspect that gives the expected class a share of the probability on every trigger."""
    answers = obedient(mark)
    rest = (1 - share) / (len(mark.classes) - 1)

    def score(X):
        said = [mark.classes.index(label) for label in answers(X)]
        return np.where(np.arange(len(mark.classes)) == np.array(said)[:, None], share, rest)

    return score


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


@st.composite
def marks(draw):
    labels = draw(classes)
    q = draw(st.sampled_from([2, 4] if len(labels) >= 4 else [2]))
    k, d = draw(st.integers(1, 9)), draw(st.integers(1, 3))
    kinds = [draw(st.sampled_from([values, values, st.none() | text])) for _ in range(d)]
    rows = draw(
        st.lists(
            st.tuples(*kinds),
            min_size=k,
            max_size=k,
            unique_by=lambda row: tuple(
                x if isinstance(x, str) else "nan" if x is None or x != x else x + 0.0 for x in row
            ),
        )
    )
    alphabets = [draw(st.permutations(range(len(labels))))[:q] for _ in range(k)]
    names = st.lists(text, min_size=d, max_size=d, unique=True)
    share = st.floats(0, 1)
    reference = st.lists(share, min_size=len(labels), max_size=len(labels))
    models = draw(st.integers(0, 3))
    others = st.lists(share, min_size=models * q, max_size=models * q)
    return Mark(
        protocol=2,
        mark_id=draw(st.binary(min_size=16, max_size=16)),
        secret=draw(st.binary(min_size=32, max_size=32)),
        owner=draw(text.filter(str.strip)),
        model_digest=draw(st.binary(min_size=32, max_size=32)).hex(),
        feature_names=draw(st.none() | names),
        classes=labels,
        answers="classes",
        columns=split_columns(rows),
        alphabets=np.array(alphabets),
        reference=np.array([draw(reference) for _ in range(k)]),
        alternatives=np.array([draw(others) for _ in range(k)]).reshape(k, models, q),
        draws=draw(st.integers(1, 40)),
        created="2030-01-02T03:04:05Z",
        about=draw(st.dictionaries(text, plain, max_size=3)),
    )
