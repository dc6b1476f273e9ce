"""Salts, Merkle trees, seeds, symbols and order; docs/mark-format.md has their vectors."""

import hashlib
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2

from tests.ownership import independent
from tests.ownership.making import make_both
from timbermark.errors import InputError
from timbermark.ownership import LeafSeal, Mark, SplitSeal, symbols
from timbermark.ownership import mark as mark_module
from timbermark.ownership.columns import split_columns
from timbermark.ownership.symbols import (
    derive_salts,
    derive_seed,
    derive_symbols,
    hash_leaf,
    merkle_paths,
    merkle_root,
    path_length,
    query_numbers,
    root_from_path,
)

seeds = st.binary(min_size=32, max_size=32)


def drawn(seed, k, q, salts=None):
    return derive_symbols(seed, range(k), salts or derive_salts(seed, k), [q] * k)


def order_of(seed, places, salts):
    return np.argsort(query_numbers(seed, places, salts), kind="stable")


def test_symbols_are_derived_once(monkeypatch):
    calls = []
    derive = symbols.derive_seed
    monkeypatch.setattr(mark_module, "derive_seed", lambda *a: calls.append(a) or derive(*a))
    mark = make_both(32, 16)
    for _ in range(3):
        assert len(mark.symbols) == len(mark.order_numbers) == 48
        assert len(mark.expected) == len(mark.leaf_symbols) == 32
    assert len(calls) == 1
    assert not mark.symbols.flags.writeable
    assert replace(mark).symbols.tolist() == mark.symbols.tolist()
    assert len(calls) == 2


@given(seeds, st.data())
def test_a_symbol_needs_no_salt_but_its_own(seed, data):
    """So that some triggers can be shown and checked without the others."""
    salts = derive_salts(bytes(32), 40)
    sizes = [4] * 24 + [2] * 16
    every = derive_symbols(seed, range(40), salts, sizes)
    assert (every < sizes).all()
    part = data.draw(st.lists(st.integers(0, 39), min_size=1, unique=True))
    own = [salts[i] for i in part]
    alone = derive_symbols(seed, part, own, [sizes[i] for i in part])
    np.testing.assert_array_equal(alone, every[part])
    order = order_of(seed, range(40), salts).tolist()
    again = [part[i] for i in order_of(seed, part, own)]
    assert again == [i for i in order if i in part]


def test_no_salt_follows_from_the_others():
    """Each is its own part of the stream; all are different."""
    salts = derive_salts(bytes(32), 1000)
    assert len(set(salts)) == 1000
    assert derive_salts(bytes(32), 7) == salts[:7]
    assert not set(salts) & set(derive_salts(bytes(31) + b"\1", 1000))


@given(seeds, st.integers(1, 300))
def test_the_order_is_a_permutation(seed, k):
    assert sorted(order_of(seed, range(k), derive_salts(bytes(32), k))) == list(range(k))


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
    first = [order_of(rng.bytes(32), range(16), salts)[0] for _ in range(4000)]
    seen = np.bincount(first, minlength=16)
    assert chi2.sf(((seen - 250) ** 2 / 250).sum(), 15) > 1e-6


def test_order_and_symbols_have_nothing_in_common():
    rng = np.random.default_rng(9)
    agree = 0
    salts = derive_salts(bytes(32), 64)
    for _ in range(500):
        seed = rng.bytes(32)
        place = np.argsort(order_of(seed, range(64), salts))
        agree += np.sum((place >= 32) == drawn(seed, 64, 2, salts))
    assert abs(agree / 32000 - 0.5) < 0.02


def test_the_seals_are_asked_in_orders_of_their_own():
    mark = make_both(20, 30)
    for seal, first, n in (("leaves", 0, 20), ("splits", 20, 30)):
        order = mark.order(seal)
        assert sorted(order) == list(range(n))
        assert (np.diff(mark.order_numbers[first:][order].astype(float)) >= 0).all()


MARK = make_both(128, 128, n_classes=6)


def bumped(array, by, *at):
    changed = np.array(array)
    changed[at] += by
    return changed


def leaves(**change):
    return {"leaves": replace(MARK.leaves, **change)}


def splits(**change):
    return {"splits": replace(MARK.splits, **change)}


ROWS = np.column_stack(MARK.leaves.columns)
OTHER = np.delete(np.arange(3), MARK.splits.features[3])[0]
FREE = tuple(
    bumped(column, 1e-15, 3) if place == OTHER else column
    for place, column in enumerate(MARK.splits.columns)
)
CHANGES = {
    "mark_id": {"mark_id": bytes(16)},
    "claim_key": {"claim_key": bytes(32)},
    "secret": {"secret": bytes([MARK.secret[0] ^ 1]) + MARK.secret[1:]},
    "owner": {"owner": "Ann owner"},
    "model_digest": {"model_digest": "ab" * 31 + "ac"},
    "feature_names": {"feature_names": ("f0", "f1", "F2")},
    "no feature_names": {"feature_names": None},
    "order of feature_names": {"feature_names": ("f0", "f2", "f1")},
    "classes": {"classes": (0, 1, 2, 3, 4, 6)},
    "type of classes": {"classes": tuple(float(c) for c in MARK.classes)},
    "texts for classes": {"classes": tuple(str(c) for c in MARK.classes)},
    "triggers": leaves(columns=split_columns(bumped(ROWS, 1e-15, 3, 1))),
    "order of triggers": leaves(columns=split_columns(ROWS[::-1])),
    "order of columns": leaves(columns=MARK.leaves.columns[::-1]),
    "alphabets": leaves(alphabets=np.vstack([MARK.leaves.alphabets[:1, ::-1],
                                             MARK.leaves.alphabets[1:]])),
    "reference": leaves(reference=bumped(MARK.leaves.reference.clip(0, 0.9), 1e-12, 3, 1)),
    "alternatives": leaves(alternatives=np.full((128, 1, 4), 0.25)),
    "base rows": splits(columns=FREE),
    "features": {"splits": SplitSeal.make(
        np.column_stack(MARK.splits.columns), bumped(MARK.splits.features, 1, 3) % 3,
        MARK.splits.values, MARK.splits.reference, MARK.splits.strata)},
    "values": splits(values=bumped(MARK.splits.values, 1e-15, 3, 1)),
    "reference of splits": splits(
        reference=bumped(MARK.splits.reference.clip(0, 0.9), 1e-12, 3, 1, 2)),
    "strata": splits(strata=bumped(MARK.splits.strata, 1, 3, 1)),
    "no strata": splits(strata=np.zeros((128, 0), int)),
    "draws": {"draws": 2},
    "created": {"created": "2030-01-02T03:04:06Z"},
    "about": {"about": {**MARK.about, "rounds": 3}},
    "type in about": {"about": {**MARK.about, "rounds": 2.0}},
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_changing_anything_gives_symbols_that_look_random(change):
    changed = replace(MARK, **CHANGES[change])
    assert changed != MARK
    # A quarter and a half on average; six standard deviations to either side.
    assert 0.02 < np.mean(changed.leaf_symbols == MARK.leaf_symbols) < 0.48
    assert 0.23 < np.mean(changed.split_symbols == MARK.split_symbols) < 0.77


def test_every_field_is_among_the_changes():
    changed = {name for change in CHANGES.values() for name in change}
    # There is one protocol, and answers follow from the classes; nothing else may be left out.
    assert changed == {f.name for f in fields(Mark) if f.init} - {"protocol", "answers"}
    parts = {part for seal in (LeafSeal, SplitSeal) for part in seal.types}
    assert parts == {"alphabets", "reference", "alternatives", "features", "values", "strata"}


def test_leaving_a_seal_out_gives_other_symbols():
    alone = replace(MARK, splits=None), replace(MARK, leaves=None)
    assert 0.02 < np.mean(alone[0].symbols == MARK.leaf_symbols) < 0.48
    assert 0.23 < np.mean(alone[1].symbols == MARK.split_symbols) < 0.77


def test_every_bit_of_the_secret_counts():
    for position in range(0, 256, 3):
        flipped = bytearray(MARK.secret)
        flipped[position // 8] ^= 1 << position % 8
        other = replace(MARK, secret=bytes(flipped)).symbols
        assert np.mean(other == MARK.symbols) < 0.6


@pytest.mark.parametrize("q", [0, 1, 3, 8])
def test_other_alphabets_are_refused(q):
    with pytest.raises(InputError) as caught:
        derive_symbols(bytes(32), [0, 1], [bytes(32)] * 2, [2, q])
    assert caught.value.code == "symbols.sizes"


def test_lengths_are_fixed():
    for seed, salt in ((bytes(31), bytes(32)), (bytes(32), bytes(33)), (b"", bytes(64))):
        for derive in (lambda *a: derive_symbols(*a, [2]), query_numbers):
            with pytest.raises(InputError) as caught:
                derive(seed, [0], [salt])
            assert caught.value.code == "symbols.length"
    with pytest.raises(InputError) as caught:
        derive_seed(bytes(31))
    assert caught.value.code == "symbols.length"


class _NoMemory:
    def __init__(self, **_):
        pass

    def derive(self, _):
        raise MemoryError


def test_a_lack_of_memory_is_a_sentence(monkeypatch):
    monkeypatch.setattr("cryptography.hazmat.primitives.kdf.scrypt.Scrypt", _NoMemory)
    with pytest.raises(InputError) as caught:
        derive_seed(b"a digest that was never seen yet")
    assert caught.value.code == "memory"


def test_every_trial_of_a_search_pays_scrypt(monkeypatch):
    paid = []
    derive = symbols.derive_seed
    monkeypatch.setattr(mark_module, "derive_seed", lambda d: paid.append(d) or derive(d))
    trials = [MARK.with_draws(2), *(replace(MARK, **change) for change in CHANGES.values())]
    found = {tuple(trial.symbols) for trial in trials}
    assert len(paid) == len(trials)
    assert len(set(paid)) == len(found) == len(trials) - 1  # one more draw is among the changes


def test_the_real_price_of_a_trial(real_scrypt):
    assert 128 * symbols.SCRYPT_N * symbols.SCRYPT_R * symbols.SCRYPT_P == 64 << 20


sizes = st.integers(1, 70)


def leaves_of(n):
    return [hash_leaf(bytes([i])) for i in range(n)]


@given(sizes)
def test_the_root_is_that_of_the_recursive_definition(n):
    assert merkle_root(leaves_of(n)) == independent.root(leaves_of(n))


def test_known_roots_of_certificate_transparency():
    """The reference tree of RFC 6962's own test data: its first records and roots."""
    records = [b"", b"\x00", b"\x10", bytes.fromhex("2021")]
    hashes = [hash_leaf(record) for record in records]
    assert merkle_root(hashes[:1]) == hashlib.sha256(b"\x00").digest()
    assert merkle_root(hashes[:2]).hex() == (
        "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125"
    )
    assert merkle_root(hashes[:3]).hex() == (
        "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77"
    )
    assert merkle_root(hashes).hex() == (
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7"
    )


@given(sizes)
def test_every_leaf_leads_to_the_root(n):
    hashes = leaves_of(n)
    root = merkle_root(hashes)
    for place, path in enumerate(merkle_paths(hashes, range(n))):
        assert len(path) == path_length(place, n)
        assert root_from_path(hashes[place], place, n, path) == root


@given(st.integers(2, 40), st.data())
def test_no_other_leaf_place_or_path_leads_there(n, data):
    hashes = leaves_of(n)
    root = merkle_root(hashes)
    place = data.draw(st.integers(0, n - 1))
    (path,) = merkle_paths(hashes, [place])

    def leads(leaf, at, through):
        try:
            return root_from_path(leaf, at, n, through) == root
        except InputError:
            return False

    assert leads(hashes[place], place, path)
    assert not leads(hash_leaf(b"other"), place, path)
    assert not any(leads(hashes[place], other, path) for other in range(n) if other != place)
    at, bit = data.draw(st.integers(0, len(path) - 1)), data.draw(st.integers(0, 255))
    changed = bytearray(path[at])
    changed[bit // 8] ^= 1 << bit % 8
    assert not leads(hashes[place], place, (*path[:at], bytes(changed), *path[at + 1 :]))
    if len(set(path)) > 1:
        assert not leads(hashes[place], place, path[::-1])


@pytest.mark.parametrize("n", [1, 2, 3, 5, 8, 33])
def test_a_path_has_one_length(n):
    hashes = leaves_of(n)
    for place, path in enumerate(merkle_paths(hashes, range(n))):
        for wrong in ((*path, bytes(32)), *([path[:-1]] if path else [])):
            with pytest.raises(InputError) as caught:
                root_from_path(hashes[place], place, n, wrong)
            assert caught.value.code == "merkle.path"
