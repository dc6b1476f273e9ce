"""Claims: the vectors of the page, the file, and what a claim refuses."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest

from tests.conftest import ROOT
from tests.ownership import independent, independent_claims
from tests.ownership.making import KEY, make_mark, packed, unpacked
from tests.ownership.test_symbols import VECTORS as MARKS
from tests.ownership.test_symbols import as_mark
from timbermark.errors import EvidenceError, FileFormatError, InputError
from timbermark.ownership import Claim, Mark, OwnerKey, open_mark
from timbermark.ownership.claim import _BINDING_NOBODY, STATEMENT

PAGE = (ROOT / "docs" / "claim-format.md").read_text()
VECTORS = json.loads(re.search(r"```json\n(.*?)```", PAGE, re.DOTALL)[1])
FIRST = b"timbermark claim 1\n"
MARK = make_mark()
CLAIM = Claim.make(MARK, KEY, marked_digest="cd" * 32, marked_file="ef" * 32)


def vector_claim():
    statement = {
        name: bytes.fromhex(value) if name in independent_claims.BYTES else value
        for name, value in VECTORS["statement"].items()
    }
    return Claim(**statement, signature=bytes.fromhex(VECTORS["signature"]))


def test_vectors_of_the_claim():
    statement, signature = VECTORS["statement"], bytes.fromhex(VECTORS["signature"])
    owner_key = bytes.fromhex(VECTORS["owner_key"])
    message = independent_claims.message(statement)
    assert independent.sha256(message).hex() == VECTORS["message_sha256"]
    assert independent_claims.signing_key(owner_key).sign(message) == signature
    assert independent_claims.is_signed(statement, signature)
    digest = independent_claims.claim_digest(statement, signature)
    assert digest.hex() == VECTORS["claim_digest"]
    claim = vector_claim()
    assert claim.digest == digest
    assert claim.key == KEY.claim_key == OwnerKey(owner_key).claim_key
    assert KEY.sign_claim(message) == signature


def test_vectors_of_the_opening(real_scrypt):
    mark = as_mark(MARKS["marks"][0], bytes.fromhex(MARKS["mark_secret"]))
    claim = vector_claim()
    claim.check_head(mark.head)
    drawn = VECTORS["draw"]
    seed = independent_claims.mark_seed(mark.digest)
    assert seed.hex() == MARKS["marks"][0]["seed"]
    number, places = independent_claims.draw(
        claim.digest, drawn["for"], drawn["eighths"], seed, mark.n_triggers
    )
    assert (number, places) == (drawn["number"], drawn["places"])
    opening = open_mark(mark, claim, judge=drawn["for"], share=drawn["eighths"] / 8)
    assert list(opening.places) == places
    assert [[step.hex() for step in path] for path in opening.paths] == VECTORS["paths"]
    assert opening.digest.hex() == VECTORS["opening_digest"]
    assert opening.check(claim).symbols.tolist() == [
        MARKS["marks"][0]["symbols"][place] for place in places
    ]


def test_a_claim_is_written_and_read(tmp_path):
    CLAIM.save(tmp_path / "model.claim")
    assert Claim.load(tmp_path / "model.claim") == CLAIM
    assert Claim.from_bytes(CLAIM.to_bytes()) == CLAIM
    with pytest.raises(InputError, match="exists already"):
        CLAIM.save(tmp_path / "model.claim")
    CLAIM.with_stamp(b"x").save(tmp_path / "model.claim", force=True)
    assert Claim.load(tmp_path / "model.claim").stamps == (b"x",)
    meta, members = independent.members(CLAIM.to_bytes(), b"claim 1")
    assert not members
    assert independent_claims.is_signed(meta["statement"], bytes.fromhex(meta["signature"]))


def test_it_signs_for_its_key_and_its_mark_alone():
    with pytest.raises(InputError, match="not made with this owner key"):
        Claim.make(MARK, OwnerKey.generate(), marked_digest="cd" * 32)
    with pytest.raises(InputError, match="unmarked one"):
        Claim.make(MARK, KEY, marked_digest=MARK.model_digest)
    with pytest.raises(InputError, match="a mark and an owner key"):
        Claim.make("mark", KEY, marked_digest="cd" * 32)
    with pytest.raises(InputError, match="64 hexadecimal digits"):
        Claim.make(MARK, KEY, marked_digest="cd")


def test_two_claims_of_one_owner_have_one_key_and_two_owners_two():
    other = Claim.make(make_mark(seed=1), KEY, marked_digest="cd" * 32)
    assert other.key == CLAIM.key
    assert OwnerKey.generate().claim_key != CLAIM.key


BAD = {
    "protocol": (3, "protocol=3"),
    "owner": ("\x1b[2J", "not a name"),
    "key": (bytes(31), "key is not 32 bytes"),
    "mark_id": (bytes(3), "mark_id is not 16 bytes"),
    "mark_digest": ("00", "mark_digest is not 32 bytes"),
    "model_digest": ("x", "64 hexadecimal digits"),
    "marked_digest": (None, "64 hexadecimal digits"),
    "marked_file": ("", "64 hexadecimal digits"),
    "answers": ("poems", "no known kind of answers"),
    "q": (True, "q is no whole number"),
    "n_triggers": (0, "n_triggers is no whole number"),
    "draws": ("1", "draws is no whole number"),
    "mark_created": ("yesterday", "not a time"),
    "claimed": ("2030-02-30T00:00:00Z", "not a time"),
    "signature": (b"", "signature is not 64 bytes"),
    "stamps": ((b"",), "stamps are not"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_claim_is_refused(name):
    value, message = BAD[name]
    with pytest.raises(InputError, match=f"(?i){message}"):
        replace(CLAIM, **{name: value})


def test_every_field_is_among_them():
    assert BAD.keys() == {*STATEMENT, "signature", "stamps"}


def test_foreign_files_are_refused():
    meta, _ = unpacked(CLAIM.to_bytes())
    for change, reason in (
        ({"extra": 1}, "exactly the parts"),
        ({"statement": {**meta["statement"], "note": "x"}}, "exactly the parts"),
        ({"statement": None}, "exactly the parts"),
        ({"stamps": "00"}, "exactly the parts"),
        ({"stamps": ["0g"]}, "hexadecimal"),
        ({"stamps": ["00"] * 9}, "up to 8"),
        ({"signature": 7}, "hexadecimal"),
        ({"signature": "00" * 64}, "signature of the claim is wrong"),
        ({"statement": {**meta["statement"], "q": 2}}, "signature of the claim is wrong"),
    ):
        with pytest.raises(FileFormatError, match=reason):
            Claim.from_bytes(packed(FIRST, {**meta, **change}, {}))
    with pytest.raises(FileFormatError, match="version 2"):
        Claim.from_bytes(packed(b"timbermark claim 2\n", meta, {}))
    with pytest.raises(FileFormatError, match="at most 1048576"):
        Claim.from_bytes(bytes(2 << 20))
    with pytest.raises(FileFormatError, match="holds a mark"):
        Claim.from_bytes(MARK.to_bytes())


def test_a_claim_is_about_one_mark():
    CLAIM.check_head(MARK.head)
    for other in (make_mark(seed=1), MARK.with_draws(2), make_mark(owner="Eve")):
        with pytest.raises(EvidenceError, match="another mark"):
            CLAIM.check_head(other.head)


@pytest.mark.parametrize("sign", [0, 0x80])
def test_a_key_that_any_signature_fits_is_refused(sign):
    """Points of small order, such as Ed25519's neutral element."""
    for point in _BINDING_NOBODY:
        key = bytes((*point[:-1], point[-1] | sign))
        with pytest.raises(EvidenceError, match="binds nobody"):
            replace(CLAIM, key=key, signature=bytes([1]) + bytes(63))


def test_a_mark_with_many_columns_is_claimed_fast():
    wide = make_mark(k=4, d=5000, about={})
    assert isinstance(wide, Mark)
    assert Claim.make(wide, KEY, marked_digest="cd" * 32).n_triggers == 4
    assert np.isfinite(wide.triggers).all()
