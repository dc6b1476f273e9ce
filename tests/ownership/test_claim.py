"""Claims: the file, what a claim is about, and what it refuses. Vectors are in test_vectors."""

from dataclasses import replace

import pytest

from tests.ownership import independent_claims
from tests.ownership.making import KEY, make_both, make_mark, make_number_mark, packed, unpacked
from timbermark.errors import EvidenceError, FileFormatError, InputError
from timbermark.ownership import Claim, OwnerKey
from timbermark.ownership.claim import _BINDING_NOBODY, STATEMENT

FIRST = b"timbermark claim 2\n"
MARK = make_both()
CLAIM = Claim.make(MARK, KEY, marked_digest="cd" * 32, marked_file="ef" * 32)


@pytest.mark.parametrize("mark", [make_mark(), make_both(), make_number_mark()])
def test_a_claim_is_written_and_read(tmp_path, mark):
    claim = Claim.make(mark, KEY, marked_digest="cd" * 32)
    assert (claim.n_leaves, claim.n_splits) == (mark.n_leaves, mark.n_splits)
    claim.check_head(mark.head)
    claim.save(tmp_path / "model.claim")
    assert Claim.load(tmp_path / "model.claim") == claim
    assert Claim.from_bytes(claim.to_bytes()) == claim
    with pytest.raises(InputError) as caught:
        claim.save(tmp_path / "model.claim")
    assert (caught.value.code, caught.value.parameter) == ("file.exists", "force")
    claim.with_stamp(b"x").save(tmp_path / "model.claim", force=True)
    assert Claim.load(tmp_path / "model.claim").stamps == (b"x",)
    statement, signature = independent_claims.read_claim(claim.to_bytes())
    assert independent_claims.claim_digest(statement, signature) == claim.digest


@pytest.mark.parametrize(
    ("arguments", "digest", "code"),
    [
        ((MARK, OwnerKey(bytes(32))), "cd" * 32, "claim.other-key"),
        ((MARK, KEY), MARK.model_digest, "claim.unmarked"),
        (("mark", KEY), "cd" * 32, "claim.type"),
        ((MARK, "key"), "cd" * 32, "claim.type"),
        ((MARK, KEY), "cd", "field.marked_digest"),
    ],
)
def test_it_signs_for_its_key_and_its_mark_alone(arguments, digest, code):
    with pytest.raises(InputError) as caught:
        Claim.make(*arguments, marked_digest=digest)
    assert caught.value.code == code


def test_two_claims_of_one_owner_have_one_key_and_two_owners_two():
    other = Claim.make(make_mark(seed=1), KEY, marked_digest="cd" * 32)
    assert other.key == CLAIM.key == MARK.claim_key
    assert OwnerKey.generate().claim_key != CLAIM.key


def test_nobody_else_can_sign_a_claim_about_a_mark():
    """Whoever was shown an opening knows the digest, but the mark names the owner's key."""
    thief = OwnerKey.generate()
    statement = {**CLAIM.statement, "key": thief.claim_key}
    signature = thief.sign_claim(b"timbermark/claim/2" + independent_claims.encoding(statement))
    stolen = Claim(**statement, signature=signature)
    with pytest.raises(EvidenceError) as caught:
        stolen.check_head(MARK.head)
    assert caught.value.code == "claim.other-mark"
    # A mark that names the thief's key has another digest, and other symbols.
    theirs = replace(MARK, claim_key=thief.claim_key)
    assert theirs.digest != MARK.digest
    assert theirs.symbols.tolist() != MARK.symbols.tolist()


BAD = {
    "protocol": (2, 3.0, True),
    "owner": ("\x1b[2J", 7),
    "key": (bytes(31),),
    "mark_id": (bytes(3),),
    "mark_digest": ("00",),
    "model_digest": ("x",),
    "marked_digest": (None,),
    "marked_file": ("",),
    "answers": ("poems",),
    "q": (True, 3, 8),
    "n_leaves": (-1, 16385, 1.0),
    "n_splits": (-1, 16385),
    "draws": ("1", 0),
    "mark_created": ("yesterday",),
    "claimed": ("2030-02-30T00:00:00Z",),
    "signature": (b"",),
    "stamps": ((b"",), (b"x",) * 9, [b"x"]),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_claim_is_refused(name):
    for value in BAD[name]:
        with pytest.raises(InputError) as caught:
            replace(CLAIM, **{name: value})
        assert caught.value.code == f"field.{name}"


def test_every_field_is_among_them():
    assert BAD.keys() == {*STATEMENT, "signature", "stamps"}


def test_a_claim_about_no_triggers_is_refused():
    with pytest.raises(InputError) as caught:
        replace(CLAIM, n_leaves=0, n_splits=0)
    assert caught.value.code == "seals.none"


CHANGED = {
    "owner": "Eve",
    "mark_id": bytes(16),
    "mark_digest": bytes(32),
    "model_digest": "00" * 32,
    "marked_digest": "00" * 32,
    "marked_file": None,
    "answers": "numbers",
    "q": 2,
    "n_leaves": 33,
    "n_splits": 0,
    "draws": 2,
    "mark_created": "2029-01-02T03:04:05Z",
    "claimed": "2029-01-02T03:04:05Z",
}


@pytest.mark.parametrize("name", CHANGED)
def test_whatever_is_changed_after_signing_is_found(name):
    with pytest.raises(EvidenceError) as caught:
        replace(CLAIM, **{name: CHANGED[name]})
    assert caught.value.code == "claim.signature"


def test_everything_that_is_signed_is_among_the_changes():
    assert CHANGED.keys() == set(STATEMENT) - {"protocol", "key"}
    with pytest.raises(EvidenceError) as caught:
        replace(CLAIM, key=OwnerKey.generate().claim_key)
    assert caught.value.code == "claim.signature"


def test_every_changed_byte_is_refused():
    good = CLAIM.with_stamp(b"a stamp").to_bytes()
    for position in range(len(good)):
        bad = bytearray(good)
        bad[position] ^= 1 << position % 8
        with pytest.raises(FileFormatError):
            Claim.from_bytes(bytes(bad))


def test_every_truncation_is_refused():
    good = CLAIM.to_bytes()
    for length in range(len(good)):
        with pytest.raises(FileFormatError) as caught:
            Claim.from_bytes(good[:length])
        assert caught.value.code in ("file.empty", "file.foreign", "file.truncated")


def test_foreign_files_are_refused():
    meta, _ = unpacked(CLAIM.to_bytes())
    for change, code in (
        ({"extra": 1}, "file.parts"),
        ({"statement": {**meta["statement"], "note": "x"}}, "file.parts"),
        ({"statement": None}, "file.parts"),
        ({"stamps": "00"}, "file.parts"),
        ({"stamps": ["0g"]}, "field.stamps"),
        ({"stamps": ["00"] * 9}, "field.stamps"),
        ({"signature": 7}, "field.signature"),
        ({"signature": "00" * 64}, "claim.signature"),
        ({"statement": {**meta["statement"], "q": 2}}, "claim.signature"),
    ):
        with pytest.raises(FileFormatError) as caught:
            Claim.from_bytes(packed(FIRST, {**meta, **change}, {}))
        assert caught.value.code == code
    for data, code in ((bytes(2 << 20), "file.size"), (MARK.to_bytes(), "file.kind")):
        with pytest.raises(FileFormatError) as caught:
            Claim.from_bytes(data)
        assert caught.value.code == code


@pytest.mark.parametrize(("version", "wrote"), [(1, "before 0.2"), (3, "newer")])
def test_other_versions_say_what_wrote_them_and_what_reads_them(version, wrote):
    meta, _ = unpacked(CLAIM.to_bytes())
    with pytest.raises(FileFormatError) as caught:
        Claim.from_bytes(packed(f"timbermark claim {version}\n".encode(), meta, {}))
    said = caught.value
    assert (said.code, bool(said.hint)) == ("file.version", True)
    assert all(word in said.message for word in (wrote, f"format {version}", "format 2"))


def test_a_claim_is_about_one_mark():
    CLAIM.check_head(MARK.head)
    for other in (make_both(seed=1), MARK.with_draws(2), make_both(owner="Eve"), make_mark()):
        with pytest.raises(EvidenceError) as caught:
            CLAIM.check_head(other.head)
        assert caught.value.code == "claim.other-mark"


@pytest.mark.parametrize("sign", [0, 0x80])
def test_a_key_that_any_signature_fits_is_refused(sign):
    """Points of small order, such as Ed25519's neutral element."""
    for point in _BINDING_NOBODY:
        key = bytes((*point[:-1], point[-1] | sign))
        with pytest.raises(EvidenceError) as caught:
            replace(CLAIM, key=key, signature=bytes([1]) + bytes(63))
        assert caught.value.code == "claim.key"
