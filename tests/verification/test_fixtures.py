"""Packs of every released format are judged for ever."""

import sys
from pathlib import Path

import pytest

from tests.ownership import independent, independent_claims
from timbermark.ownership import Claim, Opening
from timbermark.verification.judging_claims import judge
from timbermark.verification.packs import read_pack

FOLDER = Path(__file__).parent / "fixtures"
PACK, ROOT = FOLDER / "evidence-v1.zip", (FOLDER / "root-v1.pem").read_bytes()
CLAIM = "140c237150fccd29c08f43e43c244ac4867a3c86880b565fd0018830450ce792"
OPENING = "84ad42bb478cdc16680a0f2726fedaabcce542589b14db34490172df621f8619"


def test_a_pack_of_format_1_is_judged(real_scrypt):
    found = judge(PACK, judge_name="Judge Judy", roots=[ROOT])
    assert found.claim.digest.hex() == CLAIM
    assert found.opening.digest.hex() == OPENING
    assert found.first_seen == "2026-11-16T15:10:23Z"
    assert (found.verdict.bits, found.verdict.matched, found.level) == (84.372, 48, "conclusive")
    without = judge(PACK)
    assert without.stamps[0].status == "not checked"
    said = "Recorded, not repeated: the time stamp of 2026-11-16T15:10:23Z was verified"
    assert any(note.startswith(said) for note in without.notes)
    assert not any(note.startswith("Recorded") for note in found.notes)


def test_a_judge_without_the_library_for_stamps_judges_the_rest(real_scrypt, monkeypatch):
    monkeypatch.setitem(sys.modules, "rfc3161_client", None)
    found = judge(PACK)
    assert (found.level, found.stamps[0].status) == ("conclusive", "not checked")
    assert found.first_seen is None
    assert sum(note.startswith("Recorded, not repeated: the time") for note in found.notes) == 1
    assert not any(".." in note for note in found.notes)


def test_the_independent_judge_reads_it_too(real_scrypt):
    pack = read_pack(PACK)
    claim, opening = pack.claim.to_bytes(), pack.opening.to_bytes()
    statement = independent.members(claim, b"claim 1")[0]["statement"]
    signature = pack.claim.signature
    assert independent_claims.is_signed(statement, signature)
    digest = independent_claims.claim_digest(statement, signature)
    assert digest.hex() == CLAIM
    meta, head, mark_digest, arrays = independent_claims.read_opening(opening)
    assert mark_digest.hex() == statement["mark_digest"]
    seed = independent_claims.mark_seed(mark_digest)
    drawn = independent_claims.draw(digest, meta["for"], 4, seed, head["n_triggers"])
    assert meta["places"] == drawn[1]
    symbols = independent_claims.opened_symbols(head, seed, meta["places"], arrays["salts"])
    assert symbols == pack.opening.check(pack.claim).symbols.tolist()


def test_they_are_written_as_they_were():
    pack = read_pack(PACK)
    assert Claim.from_bytes(pack.claim.to_bytes()) == pack.claim
    assert Opening.from_bytes(pack.opening.to_bytes()).digest.hex() == OPENING


@pytest.mark.parametrize("name", ["evidence-v1.zip", "root-v1.pem"])
def test_every_fixture_is_there(name):
    assert (FOLDER / name).is_file()
