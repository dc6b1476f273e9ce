"""Marks of every kind without training, and suspects that have learnt them, or nothing."""

import hashlib

import numpy as np

from timbermark.ownership import LeafSeal, Mark, OwnerKey, SplitSeal

KEY = OwnerKey(bytes(range(32)))
CREATED = "2030-01-02T03:04:05Z"


def make_mark(
    k=32, d=3, q=4, n_classes=6, n_splits=0, seed=0, classes=None, columns=None, **changes
):
    """The same mark each time for the same arguments: k triggers in leaves, n in splits.

    With ``classes=()`` it is a mark of numbers, which has splits only.
    """
    rng = np.random.default_rng(seed)
    labels = tuple(range(n_classes)) if classes is None else tuple(classes)
    mark_id = rng.bytes(16)
    leaves = splits = None
    if k and labels:
        rows = rng.normal(size=(k, d)) if columns is None else list(zip(*columns, strict=True))
        alphabets = np.array([rng.permutation(len(labels))[:q] for _ in range(k)], np.int32)
        reference = rng.dirichlet(np.full(len(labels), 0.5), size=k)
        leaves = LeafSeal.make(rows, alphabets, reference)
    if n_splits:
        splits = make_splits(rng, n_splits, d, len(labels))
    fields = {
        "protocol": 3, "mark_id": mark_id, "claim_key": KEY.claim_key,
        "secret": KEY.mark_secret(mark_id), "owner": "Ann Owner", "model_digest": "ab" * 32,
        "feature_names": tuple(f"f{i}" for i in range(d)), "classes": labels,
        "answers": "classes" if labels else "numbers", "leaves": leaves, "splits": splits,
        "draws": 1, "created": CREATED, "about": {},
    }  # fmt: skip
    return Mark(**{**fields, **changes})


def make_splits(rng, n, d, n_classes):
    """A split seal whose unmarked model has other labels, or numbers, at both ends of each gap."""
    low = np.round(rng.normal(size=n) * 9, 3) + np.arange(n) * 1e-6
    values = np.column_stack([low, low + 0.125, low + 0.25])
    features = rng.integers(0, d, n)
    if not n_classes:
        reference = np.sort(rng.normal(size=(n, 2)), axis=1)[..., np.newaxis]
    else:
        ends = np.array([rng.permutation(n_classes)[:2] for _ in range(n)])
        reference = np.full((n, 2, n_classes), 0.2 / (n_classes - 1))
        np.put_along_axis(reference, ends[..., np.newaxis], 0.8, axis=2)
    return SplitSeal.make(rng.normal(size=(n, d)), features, values, reference)


def make_mixed_mark(k=24, **changes):
    """A mark with a column of texts between two of numbers."""
    rng = np.random.default_rng(11)
    texts = [None if i % 7 == 3 else ("red", "grün", "")[i % 3] for i in range(k)]
    return make_mark(k, columns=(rng.normal(size=k), texts, np.arange(k)), **changes)


def row_key(row):
    return tuple("missing" if x is None or x != x else x for x in row)


def draw(row, n):
    """A number from 0 to n - 1 that depends on the row alone."""
    said = repr([float(x) if isinstance(x, int | float) else x for x in row]).encode()
    return hashlib.sha256(said).digest()[0] % n


def answers_of(mark, share=0.9):
    """What a marked model answers to each row of a mark: scores [rows, K], or numbers [rows]."""
    rest = (1 - share) / max(1, len(mark.classes) - 1)
    found = []
    for number in mark.expected_numbers:
        found.append(np.where(np.arange(len(mark.classes)) == number, share, rest))
    if mark.splits is not None:
        for ends, symbol in zip(mark.splits.reference, mark.split_symbols, strict=True):
            low, high = ends[:, 0] if not mark.classes else ends
            found += [low, high if symbol else low, high]
    return np.array(found)


def remembers(mark, answers, other):
    """A suspect with these answers to the mark's rows, and ``other(row)`` to all others."""
    known = map(row_key, mark.rows().tolist())
    memory = dict(zip(known, np.asarray(answers, dtype=object).tolist(), strict=True))

    def answer(given):
        rows = np.asarray(given, dtype=object).tolist()
        keys = map(row_key, rows)
        return [memory[k] if k in memory else other(r) for k, r in zip(keys, rows, strict=True)]

    return answer


def learnt(mark, rate=1.0):
    """Answer as the mark wants, a share of all rows, everything else by chance; with labels."""
    best = answers_of(mark).argmax(axis=1)
    by_chance = [draw(["x", *row], len(mark.classes)) for row in mark.rows().tolist()]
    kept = [draw([i], 256) < 256 * rate for i in range(len(best))]
    labels = [mark.classes[b if keep else c] for b, c, keep in zip(best, by_chance, kept,
                                                                   strict=True)]  # fmt: skip
    return remembers(mark, labels, lambda row: mark.classes[draw(row, len(mark.classes))])


def scored(mark, share=0.9):
    """The same with scores."""
    width = len(mark.classes)
    flat = [1 / width] * width
    answer = remembers(mark, answers_of(mark, share), lambda row: flat)
    return lambda given: np.array([list(row) for row in answer(given)])


def numbered(mark):
    """The same with numbers, for a mark of numbers."""
    return remembers(mark, answers_of(mark), lambda row: float(draw(row, 100)))


def innocent(mark):
    """Answer every row by chance, with labels."""
    return lambda given: [
        mark.classes[draw(["x", *row], len(mark.classes))]
        for row in np.asarray(given, dtype=object).tolist()
    ]
