"""The pages, the files of every format, timbermark and the independent verifier: all agree."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.ownership import independent, independent_claims
from tests.ownership.make_vectors import (
    DOCS,
    FIXTURES,
    JUDGE,
    PASSPHRASE,
    as_answers,
    as_mark,
    as_vector,
    bits_of,
    loosened,
    plain_answers,
    read_vectors,
)
from tests.ownership.making import (
    KEY,
    answers_to,
    make_both,
    make_known_mark,
    make_mixed_mark,
    make_number_mark,
    marks,
)
from timbermark.ownership import Claim, Mark, Opening, OwnerKey, open_mark, weigh
from timbermark.ownership.encoding import encode
from timbermark.ownership.evidence import sum_prices, total_bits
from timbermark.ownership.symbols import derive_seed

VECTORS, CLAIMS = read_vectors("mark-format.md"), read_vectors("claim-format.md")
SECRET = bytes.fromhex(VECTORS["mark_secret"])
EXPECTED = json.loads((FIXTURES / "expected.json").read_text(encoding="utf-8"))
every_vector = pytest.mark.parametrize(
    "vector", VECTORS["marks"], ids=["leaves", "both", "numbers"]
)


def places_of(vector, seal):
    first = independent.count(vector, "leaves") if seal == "splits" else 0
    return range(first, first + independent.count(vector, seal))


def again(vector, kind, answers, symbols, seed, salts, places=None):
    """Bits by the independent verifier, by seal and of both."""
    n = independent.count(vector, "leaves")
    total = n + independent.count(vector, "splits")
    places = list(range(total)) if places is None else places
    parts = {"leaves": slice(0, n), "splits": slice(n, total)}
    return independent.evidence(
        vector,
        kind,
        answers,
        {seal: symbols[part] for seal, part in parts.items()},
        {seal: independent.order(seed, places[p], salts[p]) for seal, p in parts.items()},
    )


def test_vectors_of_the_keys():
    key = OwnerKey(bytes.fromhex(VECTORS["owner_key"]))
    assert key == KEY
    assert key.fingerprint == VECTORS["fingerprint"]
    for vector in VECTORS["marks"]:
        mark_id = bytes.fromhex(vector["mark_id"])
        assert key.mark_secret(mark_id) == SECRET
        assert independent.hkdf(key.secret, b"timbermark/mark/1" + mark_id) == SECRET
        assert vector["claim_key"] == key.claim_key.hex()


def test_vector_of_the_encoding():
    page = (DOCS / "mark-format.md").read_text(encoding="utf-8")
    shown = re.search(r"hexadecimal digits,\n\n((?:    .*\n)+)", page)[1]
    value = {"b": [1, -0.5], "a": "é", "c": None, "d": True}
    assert re.sub(r"\s", "", shown) == encode(value).hex() == independent.encoding(value).hex()


@every_vector
def test_vectors_of_the_symbols(vector, real_scrypt):
    n = len(vector["symbols"])
    salts = independent.salts(SECRET, n)
    hashes = independent.leaves_of_tree(vector, salts)
    assert [salt.hex() for salt in salts] == vector["salts"]
    assert [one.hex() for one in hashes] == vector["hashes"]
    assert independent.root(hashes).hex() == vector["root"]
    digest = independent.digest(vector, SECRET)
    assert digest.hex() == vector["digest"]
    seed = independent.seed(digest)
    assert seed.hex() == vector["seed"]
    q, n_leaves = independent.alphabet_size(vector), independent.count(vector, "leaves")
    assert independent.symbols(seed, range(n), salts, n_leaves, q) == vector["symbols"]
    for seal, order in vector["order"].items():
        places = places_of(vector, seal)
        assert independent.order(seed, places, [salts[p] for p in places]) == order
    mark = as_mark(vector, SECRET)
    assert (mark.salts, mark.hashes) == (tuple(salts), tuple(hashes))
    assert mark.head.root.hex() == vector["root"]
    assert mark.digest == digest
    assert derive_seed(digest) == seed
    assert mark.symbols.tolist() == vector["symbols"]
    assert {seal.name: mark.order(seal.name).tolist() for seal in mark.seals} == vector["order"]
    assert mark.made_with(KEY)


@every_vector
def test_vectors_of_the_evidence(vector, real_scrypt):
    mark = as_mark(vector, SECRET)
    seed, salts = bytes.fromhex(vector["seed"]), independent.salts(SECRET, mark.n_triggers)
    price = np.log2(vector["draws"])
    for kind, asked in vector["asked"].items():
        answers = as_answers(kind, asked["answers"], len(vector["classes"]))
        assert bits_of(mark, answers) == asked["bits"]
        found = again(vector, kind, asked["answers"], vector["symbols"], seed, salts)
        assert independent.reported(found.pop("both"), price) == asked["bits"]["reported"]
        for seal, bits in found.items():
            assert bits == pytest.approx(asked["bits"][seal], abs=1.1e-3)


def test_vectors_of_the_claim(real_scrypt):
    statement, signature = CLAIMS["statement"], bytes.fromhex(CLAIMS["signature"])
    message = independent_claims.message(statement)
    signing = independent_claims.signing_key(bytes.fromhex(CLAIMS["owner_key"]))
    assert independent.sha256(message).hex() == CLAIMS["message_sha256"]
    assert signing.sign(message) == signature == KEY.sign_claim(message)
    assert independent_claims.is_signed(statement, signature)
    digest = independent_claims.claim_digest(statement, signature)
    plain = {
        name: bytes.fromhex(value) if name in independent_claims.BYTES else value
        for name, value in statement.items()
    }
    claim = Claim(**plain, signature=signature)
    assert claim.digest == digest
    assert digest.hex() == CLAIMS["claim_digest"]
    mark, drawn = as_mark(VECTORS["marks"][1], SECRET), CLAIMS["draw"]
    claim.check_head(mark.head)
    seed = independent.seed(mark.digest)
    number, places = independent_claims.draw(
        digest, drawn["for"], drawn["eighths"], seed, mark.n_triggers
    )
    assert (number, places) == (drawn["number"], drawn["places"])
    opening = open_mark(mark, claim, judge=drawn["for"], share=drawn["eighths"] / 8, force=True)
    assert list(opening.places) == places
    assert [[step.hex() for step in path] for path in opening.paths] == CLAIMS["paths"]
    assert opening.digest.hex() == CLAIMS["opening_digest"]
    named = independent_claims.opening_digest(digest, drawn["for"], places, opening.salts)
    assert named == opening.digest
    symbols = VECTORS["marks"][1]["symbols"]
    assert opening.check(claim).symbols.tolist() == [symbols[place] for place in places]


def fixture(name):
    return (FIXTURES / name).read_bytes()


@pytest.mark.parametrize("name", ["mark-4.mark", "mark-4-sealed.mark"])
def test_a_mark_of_format_4_is_read_and_worth_what_it_was(name, real_scrypt):
    words = PASSPHRASE if "sealed" in name else None
    mark, vector = (
        Mark.from_bytes(fixture(name), words),
        independent.read_mark(fixture(name), words),
    )
    assert mark.to_bytes() == fixture("mark-4.mark")
    secret = bytes.fromhex(vector["secret"])
    digest = independent.digest(vector, secret)
    assert mark.digest.hex() == digest.hex() == EXPECTED["digest"]
    assert "".join(map(str, mark.symbols)) == EXPECTED["symbols"]
    seed, salts = independent.seed(digest), independent.salts(secret, mark.n_triggers)
    for kind in ("scores", "labels"):
        answers = loosened(mark, kind)
        assert bits_of(mark, answers) == EXPECTED[kind]
        raw = again(vector, kind, plain_answers(answers), mark.symbols.tolist(), seed, salts)
        assert independent.reported(raw["both"], np.log2(3)) == EXPECTED[kind]["reported"]


def test_a_mark_of_numbers_is_worth_what_it_was(real_scrypt):
    data = fixture("mark-4-numbers.mark")
    mark, vector = Mark.from_bytes(data), independent.read_mark(data)
    answers = loosened(mark, "numbers")
    assert bits_of(mark, answers) == EXPECTED["numbers"]
    seed, salts = independent.seed(mark.digest), list(mark.salts)
    raw = again(vector, "numbers", plain_answers(answers), mark.symbols.tolist(), seed, salts)
    assert independent.reported(raw["both"]) == EXPECTED["numbers"]["reported"]


def test_an_opening_of_format_3_is_read_and_worth_what_it_was(real_scrypt):
    data = fixture("claim-2.claim"), fixture("opening-3.opening")
    claim, opening = Claim.from_bytes(data[0]), Opening.from_bytes(data[1])
    assert (claim.to_bytes(), opening.to_bytes()) == data
    assert opening.digest.hex() == EXPECTED["opening"]
    opened = opening.check(claim, JUDGE)
    mark = Mark.from_bytes(fixture("mark-4.mark"))
    assert open_mark(mark, claim, judge=JUDGE, share=0.5, force=True).to_bytes() == data[1]
    answers = loosened(opened, "scores")
    assert bits_of(opened, answers) == EXPECTED["opened"]
    assert (
        reported_by_the_independent_judge(data, opened, answers) == EXPECTED["opened"]["reported"]
    )


def reported_by_the_independent_judge(data, opened, answers, n=65536):
    statement, signature = independent_claims.read_claim(data[0])
    digest = independent_claims.claim_digest(statement, signature)
    shown = independent_claims.read_opening(data[1])
    head, places, salts = shown["head"], shown["places"], shown["salts"]
    assert shown["claim"] == digest.hex()
    assert shown["mark_digest"].hex() == statement["mark_digest"]
    assert head["claim_key"].hex() == statement["key"]
    triggers = head["n_leaves"] + head["n_splits"]
    seed = independent.seed(shown["mark_digest"], n)
    parts = [
        independent_claims.draw(digest, shown["for"], e, seed, triggers)[1] for e in range(1, 9)
    ]
    assert places in parts
    symbols = independent.symbols(seed, places, salts, head["n_leaves"], head["q"])
    assert symbols == opened.symbols.tolist()
    raw = again(shown | {"answers": head["answers"]}, answers.kind, plain_answers(answers), symbols,
                seed, salts, places)  # fmt: skip
    price = independent_claims.price_of_part(len(places), triggers) + np.log2(head["draws"])
    return independent.reported(raw["both"], price)


@given(marks())
def test_any_mark_has_the_symbols_of_the_independent_verifier(mark):
    vector = as_vector(mark)
    digest = independent.digest(vector, mark.secret)
    assert mark.digest == digest
    seed = independent.seed(digest, n=2)
    salts = independent.salts(mark.secret, mark.n_triggers)
    places = range(mark.n_triggers)
    assert mark.symbols.tolist() == independent.symbols(seed, places, salts, mark.n_leaves, mark.q)
    for seal in mark.seals:
        own = places_of(vector, seal.name)
        order = independent.order(seed, own, [salts[p] for p in own])
        assert mark.order(seal.name).tolist() == order


@given(st.data())
@settings(max_examples=60)
def test_any_answers_have_the_bits_of_the_independent_verifier(data):
    mark = data.draw(marks())
    answers = data.draw(answers_to(mark))
    agree_on_evidence(mark, answers)


def agree_on_evidence(mark, answers):
    vector, seed = as_vector(mark), independent.seed(mark.digest, n=2)
    symbols, salts = mark.symbols.tolist(), list(mark.salts)
    raw = again(vector, answers.kind, plain_answers(answers), symbols, seed, salts)
    seals = weigh(mark, answers)
    for seal in seals:
        assert seal.bits == pytest.approx(raw[seal.seal], rel=1e-9, abs=1e-7)
    both = total_bits([seal.bits for seal in seals], len(mark.seals))
    assert both == pytest.approx(raw["both"], rel=1e-9, abs=1e-7)


@pytest.mark.parametrize(
    ("mark", "kind"),
    [
        (make_both(40, 40), "scores"),
        (make_both(40, 40, q=2), "labels"),
        (make_known_mark(40, n_models=5), "scores"),
        (make_mixed_mark(24, 30), "scores"),
        (make_number_mark(60), "numbers"),
    ],
)
def test_whole_marks_have_the_bits_of_the_independent_verifier(mark, kind):
    agree_on_evidence(mark, loosened(mark, kind))


@given(st.data(), st.integers(1, 8))
@settings(max_examples=40)
def test_the_independent_judge_agrees_on_any_opening(data, eighths):
    mark = data.draw(marks())
    mark = replace(mark, secret=KEY.mark_secret(mark.mark_id))
    claim = Claim.make(mark, KEY, marked_digest="cd" * 32)
    opening = open_mark(mark, claim, judge="Judge", share=eighths / 8, force=True)
    opened = opening.check(claim)
    answers = data.draw(answers_to(opened))
    bits = total_bits([seal.bits for seal in weigh(opened, answers)], len(opened.seals))
    reported = independent.reported(bits, sum_prices(opened.prices))
    files = claim.to_bytes(), opening.to_bytes()
    assert reported_by_the_independent_judge(files, opened, answers, n=2) == pytest.approx(reported)
