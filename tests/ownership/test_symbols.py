import json
import re
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2

from tests.conftest import ROOT
from tests.ownership import independent
from tests.ownership.making import KEY, make_mark, marks
from timbermark.errors import InputError
from timbermark.ownership import (
    Inquiry,
    Mark,
    OwnerKey,
    derive_seed,
    derive_symbols,
    judge,
    query_order,
    symbols,
)
from timbermark.ownership import mark as mark_module
from timbermark.ownership.columns import split_columns
from timbermark.ownership.encoding import encode, thaw
from timbermark.ownership.labels import UNANSWERED
from timbermark.ownership.records import derive_salts

PAGE = (ROOT / "docs" / "mark-format.md").read_text()
VECTORS = json.loads(re.search(r"```json\n(.*?)```", PAGE, re.DOTALL)[1])


def as_vector(mark):
    return {
        **{word: thaw(getattr(mark, word)) for word in independent.WORDS},
        "mark_id": mark.mark_id.hex(),
        "columns": [list(column) for column in mark.columns],
        "alphabets": mark.alphabets.tolist(),
        "reference": mark.reference.tolist(),
        **({"alternatives": mark.alternatives.tolist()} if mark.alternatives.size else {}),
    }


def as_mark(vector, secret):
    parts = {name: vector[name] for name in vector if name in {f.name for f in fields(Mark)}}
    return Mark(
        **{
            **parts,
            "mark_id": bytes.fromhex(vector["mark_id"]),
            "secret": secret,
            "alphabets": np.array(vector["alphabets"]),
            "reference": np.array(vector["reference"]),
        }
    )


def given_scores(vector):
    n_classes = len(vector["classes"])
    rows = [[np.nan] * n_classes if row is None else row for row in vector["scores"]]
    return np.array(rows)


def test_vectors_of_the_keys():
    key = OwnerKey(bytes.fromhex(VECTORS["owner_key"]))
    assert key == KEY
    assert key.fingerprint == VECTORS["fingerprint"]
    for vector in VECTORS["marks"]:
        mark_id = bytes.fromhex(vector["mark_id"])
        assert key.mark_secret(mark_id).hex() == VECTORS["mark_secret"]
        assert independent.hkdf(key.secret, mark_id).hex() == VECTORS["mark_secret"]


@pytest.mark.parametrize("vector", VECTORS["marks"], ids=["q=4", "q=2", "alternatives"])
def test_vectors_of_the_symbols(vector, real_scrypt):
    secret = bytes.fromhex(VECTORS["mark_secret"])
    digest = independent.digest(vector, secret)
    k, q = np.shape(vector["alphabets"])
    salts = independent.salts(secret, k)
    leaves = [independent.leaf(vector, i, salt) for i, salt in enumerate(salts)]
    assert [salt.hex() for salt in salts] == vector["salts"]
    assert [leaf.hex() for leaf in leaves] == vector["leaves"]
    assert independent.root(leaves).hex() == vector["root"]
    assert digest.hex() == vector["digest"]
    seed = independent.seed(digest)
    assert seed.hex() == vector["seed"]
    assert independent.symbols(seed, salts, q) == vector["symbols"]
    assert independent.order(seed, salts) == vector["order"]
    mark = as_mark(vector, secret)
    assert (mark.salts, mark.leaves) == (tuple(salts), tuple(leaves))
    assert mark.head.root.hex() == vector["root"]
    assert mark.digest == digest
    assert derive_seed(digest) == seed
    assert mark.symbols.tolist() == vector["symbols"]
    assert mark.order.tolist() == vector["order"]
    assert list(mark.expected) == vector["expected"]
    assert mark.made_with(KEY)


@pytest.mark.parametrize("vector", VECTORS["marks"], ids=["q=4", "q=2", "alternatives"])
def test_vectors_of_the_evidence(vector, real_scrypt):
    mark = as_mark(vector, bytes.fromhex(VECTORS["mark_secret"]))
    numbers = np.array([UNANSWERED if n is None else n for n in vector["labels"]])
    found = {
        "labels": judge(mark, Inquiry("x"), labels=numbers),
        "labels one by one": judge(mark, Inquiry("x"), labels=numbers, one_by_one=True),
        "scores": judge(mark, Inquiry("x"), scores=given_scores(vector)),
    }
    assert {kind: verdict.bits for kind, verdict in found.items()} == vector["bits"]
    pairs = list(zip(vector["labels"], vector["alphabets"], vector["symbols"], strict=True))
    matched = sum(label == alphabet[symbol] for label, alphabet, symbol in pairs)
    counted = sum(label in alphabet for label, alphabet, _ in pairs)
    missing = vector["labels"].count(None)
    again = {
        "labels": independent.labels_bits(matched, counted + missing, mark.q),
        "labels one by one": independent.one_by_one_bits(matched, counted, mark.q),
        "scores": independent.scores_bits(
            vector["scores"],
            vector["reference"],
            vector["alphabets"],
            vector["symbols"],
            vector.get("alternatives"),
            vector["order"],
        ),
    }
    for kind, raw in again.items():
        assert independent.reported(raw, mark.draws) == vector["bits"][kind]


def test_vector_of_the_encoding():
    shown = re.search(r"hexadecimal digits,\n\n((?:    .*\n)+)", PAGE)[1]
    value = {"b": [1, -0.5], "a": "é", "c": None, "d": True}
    assert re.sub(r"\s", "", shown) == encode(value).hex() == independent.encoding(value).hex()


@given(marks())
def test_any_mark_gives_the_symbols_of_the_independent_verifier(mark):
    digest = independent.digest(as_vector(mark), mark.secret)
    assert mark.digest == digest
    seed = independent.seed(digest, n=2)
    salts = independent.salts(mark.secret, mark.n_triggers)
    assert mark.symbols.tolist() == independent.symbols(seed, salts, mark.q)
    assert mark.order.tolist() == independent.order(seed, salts)


def test_symbols_are_derived_once(monkeypatch):
    calls = []
    derive = symbols.derive_seed
    monkeypatch.setattr(mark_module, "derive_seed", lambda *a: calls.append(a) or derive(*a))
    mark = make_mark()
    for _ in range(3):
        assert len(mark.symbols) == len(mark.order) == len(mark.expected) == 32
    assert len(calls) == 1
    assert not mark.symbols.flags.writeable
    assert replace(mark).symbols.tolist() == mark.symbols.tolist()
    assert len(calls) == 2


def drawn(seed, k, q, salts=None):
    return derive_symbols(seed, range(k), salts or derive_salts(seed, k), q)


@given(st.binary(min_size=32, max_size=32), st.sampled_from([2, 4]), st.data())
def test_a_symbol_needs_no_salt_but_its_own(seed, q, data):
    """So that some triggers can be shown and checked without the others."""
    salts = derive_salts(bytes(32), 40)
    every = derive_symbols(seed, range(40), salts, q)
    assert every.max() < q
    part = data.draw(st.lists(st.integers(0, 39), min_size=1, unique=True))
    alone = derive_symbols(seed, part, [salts[i] for i in part], q)
    np.testing.assert_array_equal(alone, every[part])
    order = query_order(seed, range(40), salts).tolist()
    again = [part[i] for i in query_order(seed, part, [salts[i] for i in part])]
    assert again == [i for i in order if i in part]


def test_no_salt_follows_from_the_others():
    """Each is its own part of the stream; all are different."""
    salts = derive_salts(bytes(32), 1000)
    assert len(set(salts)) == 1000
    assert derive_salts(bytes(32), 7) == salts[:7]
    assert not set(salts) & set(derive_salts(bytes(31) + b"\1", 1000))


@given(st.binary(min_size=32, max_size=32), st.integers(1, 300))
def test_the_order_is_a_permutation(seed, k):
    assert sorted(query_order(seed, range(k), derive_salts(bytes(32), k))) == list(range(k))


@pytest.mark.parametrize("what", ["seed", "salts"])
def test_symbols_are_uniform_over_seeds_and_over_salts(what):
    """Single symbols, and pairs of neighbours."""
    rng = np.random.default_rng(7)
    salts = derive_salts(bytes(32), 64)
    for q in (2, 4):
        found = np.array(
            [
                drawn(rng.bytes(32), 64, q, salts)
                if what == "seed"
                else drawn(bytes(32), 64, q, derive_salts(rng.bytes(32), 64))
                for _ in range(1000)
            ]
        )
        singles = np.array([np.bincount(column, minlength=q) for column in found.T])
        pairs = np.bincount((found[:, ::2] * q + found[:, 1::2]).ravel(), minlength=q * q)
        for seen, freedom in ((singles, 64 * (q - 1)), (pairs, q * q - 1)):
            expected = seen.sum() / seen.size
            statistic = ((seen - expected) ** 2 / expected).sum()
            assert 1e-6 < chi2.sf(statistic, freedom) < 1 - 1e-6


def test_orders_are_uniform_over_seeds():
    rng = np.random.default_rng(8)
    salts = derive_salts(bytes(32), 16)
    first = [query_order(rng.bytes(32), range(16), salts)[0] for _ in range(4000)]
    seen = np.bincount(first, minlength=16)
    assert chi2.sf(((seen - 250) ** 2 / 250).sum(), 15) > 1e-6


def test_order_and_symbols_have_nothing_in_common():
    rng = np.random.default_rng(9)
    agree = 0
    salts = derive_salts(bytes(32), 64)
    for _ in range(500):
        seed = rng.bytes(32)
        place = np.argsort(query_order(seed, range(64), salts))
        agree += np.sum((place >= 32) == drawn(seed, 64, 2, salts))
    assert abs(agree / 32000 - 0.5) < 0.02


MARK = make_mark(k=256, n_classes=6)


def bumped(array, by):
    changed = array.copy()
    changed[3, 1] += by
    return changed


def exchanged(array):
    changed = array.copy()
    changed[5] = changed[5][::-1]
    return changed


CHANGES = {
    "mark_id": {"mark_id": bytes(16)},
    "secret": {"secret": bytes([MARK.secret[0] ^ 1]) + MARK.secret[1:]},
    "owner": {"owner": "Ann owner"},
    "model_digest": {"model_digest": "ab" * 31 + "ac"},
    "feature_names": {"feature_names": ("f0", "f1", "F2")},
    "no feature_names": {"feature_names": None},
    "order of feature_names": {"feature_names": ("f0", "f2", "f1")},
    "classes": {"classes": (0, 1, 2, 3, 4, 6)},
    "type of classes": {"classes": tuple(float(c) for c in MARK.classes)},
    "texts for classes": {"classes": tuple(str(c) for c in MARK.classes)},
    "triggers": {"columns": split_columns(bumped(MARK.triggers, 1e-15))},
    "order of triggers": {"columns": split_columns(MARK.triggers[::-1])},
    "order of columns": {"columns": MARK.columns[::-1]},
    "a column of texts": {"columns": (*MARK.columns[:2], [str(x) for x in MARK.columns[2]])},
    "alphabets": {"alphabets": exchanged(MARK.alphabets)},
    "reference": {"reference": bumped(MARK.reference.clip(0, 0.9), 1e-12)},
    "alternatives": {"alternatives": np.full((256, 1, 4), 0.25)},
    "draws": {"draws": 2},
    "created": {"created": "2030-01-02T03:04:06Z"},
    "about": {"about": {**MARK.about, "rounds": 3}},
    "type in about": {"about": {**MARK.about, "rounds": 2.0}},
}


@pytest.mark.parametrize("change", CHANGES)
def test_changing_anything_gives_symbols_that_look_random(change):
    changed = replace(MARK, **CHANGES[change])
    assert changed != MARK
    fits = np.mean(changed.symbols == MARK.symbols)
    # A quarter on average; six standard deviations to either side.
    assert 0.09 < fits < 0.41


def test_every_field_is_among_the_changes():
    changed = {name for change in CHANGES.values() for name in change}
    # There is one protocol and one kind of answers; nothing else may be left out.
    assert changed == {f.name for f in fields(Mark) if f.init} - {"protocol", "answers"}


def test_every_bit_of_the_secret_counts():
    for position in range(256):
        flipped = bytearray(MARK.secret)
        flipped[position // 8] ^= 1 << position % 8
        other = replace(MARK, secret=bytes(flipped)).symbols
        assert 0.09 < np.mean(other == MARK.symbols) < 0.41


@pytest.mark.parametrize("q", [0, 1, 3, 8])
def test_other_alphabets_are_refused(q):
    with pytest.raises(InputError, match=f"q={q}"):
        derive_symbols(bytes(32), [0], [bytes(32)], q)


def test_lengths_are_fixed():
    for seed, salt in ((bytes(31), bytes(32)), (bytes(32), bytes(33)), (b"", bytes(64))):
        with pytest.raises(InputError, match="32 bytes each"):
            derive_symbols(seed, [0], [salt], 2)
        with pytest.raises(InputError, match="32 bytes each"):
            query_order(seed, [0], [salt])
    with pytest.raises(InputError, match="32 bytes each"):
        derive_seed(bytes(31))


def test_a_lack_of_memory_is_a_sentence(monkeypatch):
    class Scrypt:
        def __init__(self, **_):
            pass

        def derive(self, _):
            raise MemoryError

    monkeypatch.setattr("cryptography.hazmat.primitives.kdf.scrypt.Scrypt", Scrypt)
    with pytest.raises(InputError, match="MiB of memory, too much here"):
        derive_seed(b"a digest that was never seen yet")
    with pytest.raises(InputError, match="MiB of memory, too much here"):
        make_mark().to_bytes("right")
