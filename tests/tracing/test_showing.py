from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import timbermark as tm
from tests.ownership.authority import Authority, needs_openssl
from tests.ownership.making import KEY, make_mark
from timbermark.errors import EvidenceError, FileFormatError, InputError
from timbermark.tracing.showing import RollClaim, RollOpening, open_roll
from timbermark.verification.stamps import add_stamp, make_query

JUDGE = "Judge Judy"


@pytest.fixture(scope="module")
def claim(made):
    return RollClaim.make(made.roll, made.key)


@pytest.fixture(scope="module")
def opening(made, claim):
    return open_roll(made.roll, claim, customer="Eve Inc", judge=JUDGE)


def test_a_judge_finds_the_accused_and_only_them(made, claim, opening, tmp_path):
    claim.save(tmp_path / "roll.claim")
    opening.save(tmp_path / "eve.opening")
    given = {"claim": tmp_path / "roll.claim", "judge": JUDGE}
    found = tm.trace(made.copies["Eve Inc"], tmp_path / "eve.opening", **given)
    assert (found.level, found.leakers, found.accused) == ("conclusive", ("Eve Inc",), "Eve Inc")
    assert "customers" in {price.code for price in found.prices}
    assert tm.trace(made.copies["Bob Ltd"], tmp_path / "eve.opening", **given).level == "none"
    assert tm.trace(made.model, tmp_path / "eve.opening", **given).level == "none"


def test_an_opening_says_nothing_of_other_customers(made, opening):
    shown = opening.to_bytes()
    for name in ("Bob Ltd", "Zoë & Söhne"):
        assert made.roll.token(name) not in shown
        assert made.roll.token(name).hex().encode() not in shown
        assert name.encode() not in shown
    assert made.roll.grid.secret.hex().encode() not in shown
    assert opening.boundaries.n_opened < made.roll.n_boundaries


def test_a_claim_names_nobody(claim):
    assert b"Eve" not in claim.to_bytes()


def test_files_are_read_as_they_were_written(claim, opening):
    assert RollClaim.load(claim.to_bytes()) == claim
    assert RollOpening.load(opening.to_bytes()).to_bytes() == opening.to_bytes()
    for kind, whole in ((RollClaim, claim.to_bytes()), (RollOpening, opening.to_bytes())):
        for at in range(40, len(whole), len(whole) // 20):
            with pytest.raises(FileFormatError):
                kind.load(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"customer": "Bob Ltd"}, "opening.customer"),
        ({"token": bytes(32)}, "opening.customer"),
        ({"place": 0}, "opening.customer"),
        ({"path": ()}, "opening.customer"),
        ({"claim_digest": bytes(32)}, "opening.other-claim"),
    ],
)
def test_whatever_is_changed_in_an_opening_is_refused(made, claim, opening, changes, code):
    with pytest.raises(EvidenceError) as error:
        tm.trace(made.copies["Eve Inc"], replace(opening, **changes), claim=claim, judge=JUDGE)
    assert error.value.code == code


def test_boundaries_are_held_to_the_claim_too(claim, opening):
    salts = (bytes(32), *opening.boundaries.salts[1:])
    changed = replace(opening, boundaries=replace(opening.boundaries, salts=salts))
    with pytest.raises(EvidenceError) as error:
        changed.check(claim, JUDGE)
    assert error.value.code == "opening.record"
    with pytest.raises(EvidenceError) as error:
        opening.check(claim, "Somebody Else")
    assert error.value.code == "opening.other-judge"


def test_triggers_in_leaves_are_no_boundaries(made):
    grid = make_mark(24)
    roll = SimpleNamespace(
        grid=grid, blank_digest="1" * 64, customers=["Eve Inc"], token=made.roll.token,
        find=str, n_boundaries=24,
    )  # fmt: skip
    claim = RollClaim.make(roll, KEY)
    opening = open_roll(roll, claim, customer="Eve Inc", judge=JUDGE)
    with pytest.raises(EvidenceError) as error:
        tm.trace(made.model, opening, claim=claim)
    assert error.value.code == "opening.shape"


def test_a_claim_that_was_changed_is_refused(claim):
    for changes in ({"n_customers": 2}, {"root": bytes(32)}, {"claimed": "2020-01-01T00:00:00Z"}):
        with pytest.raises(EvidenceError) as error:
            replace(claim, **changes)
        assert error.value.code == "claim.signature"


def test_an_opening_needs_its_claim_and_a_customer_of_it(made, claim, opening):
    with pytest.raises(InputError) as error:
        tm.trace(made.model, opening)
    assert error.value.code == "trace.claim"
    later = made.roll.with_customers(["New Plc"])
    with pytest.raises(EvidenceError) as error:
        open_roll(later, claim, customer="New Plc", judge=JUDGE)
    assert error.value.code == "claim.earlier"
    # Customers of the claim can still be shown, and a new claim knows the new one.
    assert open_roll(later, claim, customer="Bob Ltd", judge=JUDGE).place == 0
    renewed = RollClaim.make(later, made.key)
    part, symbols = open_roll(later, renewed, customer="New Plc", judge=JUDGE).check(renewed)
    assert np.array_equal(symbols, later.symbols(["New Plc"])[0][list(part.places)])
    with pytest.raises(InputError) as error:
        open_roll(made.roll, claim, customer="Mallory", judge=JUDGE)
    assert error.value.code == "customers.unknown"
    with pytest.raises(InputError) as error:
        RollClaim.make(made.roll, tm.OwnerKey(bytes(32)))
    assert error.value.code == "claim.other-key"


@needs_openssl
def test_a_stamp_tells_the_judge_when_the_copies_were_claimed(made, claim, opening, tmp_path):
    authority = Authority(tmp_path / "tsa")
    stamped = add_stamp(claim, authority.stamp(make_query(claim)))
    assert RollClaim.load(stamped.to_bytes()) == stamped
    assert stamped.digest == claim.digest  # openings stay what they are
    leaked, given = made.copies["Eve Inc"], {"claim": stamped, "judge": JUDGE}
    found = tm.trace(leaked, opening, **given, roots=[authority.root])
    (stamp,) = found.stamps
    assert stamp.counts
    assert found.to_dict()["claimed_before"] == stamp.time
    stranger = Authority(tmp_path / "stranger", "Stranger")
    for roots in ([], [stranger.root]):
        assert tm.trace(leaked, opening, **given, roots=roots).to_dict()["claimed_before"] is None
    other = RollClaim.make(made.roll.with_customers(["New Plc"]), made.key)
    with pytest.raises(EvidenceError) as error:
        add_stamp(other, stamped.stamps[0])
    assert error.value.code == "stamp.other"
