"""RFC 3161 time stamps, by a local authority."""

import sys
from dataclasses import replace

import pytest

from tests.ownership.authority import Authority, needs_openssl
from tests.ownership.making import KEY, make_mark
from timbermark.errors import EvidenceError, InputError, MissingLibraryError
from timbermark.ownership import Claim
from timbermark.ownership.claim import MAX_STAMPS
from timbermark.verification.stamps import (
    add_stamp,
    check_stamps,
    fetch_stamp,
    first_time,
    join_stamps,
    make_query,
)

CLAIM = Claim.make(make_mark(), KEY, marked_digest="cd" * 32)
OTHER = Claim.make(make_mark(owner="Eve"), KEY, marked_digest="cd" * 32)
pytestmark = needs_openssl


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("tsa") / "good")


@pytest.fixture(scope="module")
def response(authority):
    return authority.stamp(make_query(CLAIM))


def test_a_stamp_is_verified_under_its_root(authority, response):
    stamped = add_stamp(CLAIM, response)
    (check,) = check_stamps(stamped, [authority.root])
    assert check.status == "verified"
    assert check.authority == "CN=Test stamps"
    assert first_time([check]) == check.time
    assert check.time.startswith("20")
    again = Claim.from_bytes(stamped.to_bytes())
    assert check_stamps(again, [authority.root]) == (check,)
    assert again.digest == CLAIM.digest  # a stamp does not change what the claim is
    assert add_stamp(stamped, response) == stamped


@pytest.mark.parametrize("between", [1, 2, 3])
@pytest.mark.parametrize("name", ["A", "A rather long name of an authority"])
def test_a_stamp_with_a_chain_of_certificates(tmp_path, between, name):
    """`openssl ts` sends the chain as it is given, not in the order of DER."""
    authority = Authority(tmp_path / "tsa", name, between=between)
    response = authority.stamp(make_query(CLAIM))
    (check,) = check_stamps(add_stamp(CLAIM, response), [authority.root])
    assert check.status == "verified"
    assert check.authority == f"CN={name} stamps"
    stranger = Authority(tmp_path / "stranger", "Stranger")
    (check,) = check_stamps(CLAIM.with_stamp(response), [stranger.root])
    assert (check.status, check.reason) == ("not checked", "not-valid")


def test_a_stamp_that_is_granted_with_modifications(authority, response):
    """The status stands beside what is signed."""
    at = response.index(b"\x30\x03\x02\x01\x00")
    modified = response[: at + 4] + b"\x01" + response[at + 5 :]
    assert add_stamp(CLAIM, modified).stamps == (modified,)
    (check,) = check_stamps(CLAIM.with_stamp(modified), [authority.root])
    assert check.counts
    refused = response[: at + 4] + b"\x02" + response[at + 5 :]
    with pytest.raises(EvidenceError) as caught:
        add_stamp(CLAIM, refused)
    assert caught.value.code in ("stamp.refused", "stamp.unreadable")


def test_a_stamp_that_cannot_be_checked_is_not_valid(response):
    (check,) = check_stamps(CLAIM.with_stamp(response))
    assert (check.status, check.counts) == ("not checked", False)
    assert check.reason == "no-roots"
    assert first_time([check]) is None


def test_without_the_library_a_stamp_is_not_checked(response, authority, monkeypatch):
    monkeypatch.setitem(sys.modules, "rfc3161_client", None)
    (check,) = check_stamps(CLAIM.with_stamp(response))
    assert (check.status, check.time) == ("not checked", None)
    assert check.reason == "no-library"
    with pytest.raises(MissingLibraryError) as caught:
        check_stamps(CLAIM.with_stamp(response), [authority.root])
    assert "timbermark[stamps]" in caught.value.hint
    with pytest.raises(MissingLibraryError):
        make_query(CLAIM)


def test_a_stamp_of_another_claim_is_never_added_and_never_counts(response, authority):
    with pytest.raises(EvidenceError) as caught:
        add_stamp(OTHER, response)
    assert caught.value.code == "stamp.other"
    for roots in ([], [authority.root]):
        (check,) = check_stamps(OTHER.with_stamp(response), roots)
        assert (check.status, check.reason, check.time) == ("not checked", "foreign", None)


def test_a_changed_claim_has_no_stamp(response, authority):
    """Even one that its owner signs anew."""
    changed = Claim.make(make_mark(), KEY, marked_digest="ce" * 32)
    (check,) = check_stamps(changed.with_stamp(response), [authority.root])
    assert (check.counts, check.reason) == (False, "foreign")
    with pytest.raises(EvidenceError) as caught:
        replace(CLAIM, marked_digest="ce" * 32)
    assert caught.value.code == "claim.signature"


def test_a_stamp_of_a_stranger_does_not_count(response, tmp_path):
    stranger = Authority(tmp_path / "stranger", "Stranger")
    (check,) = check_stamps(CLAIM.with_stamp(response), [stranger.root])
    assert (check.status, check.reason) == ("not checked", "not-valid")
    assert first_time([check]) is None


def test_a_foreign_stamp_does_not_harm_a_good_one(response, authority):
    """Anybody can put one beside a published claim."""
    foreign = authority.stamp(make_query(OTHER))
    for stamps in ((response, foreign), (foreign, response), (b"junk", response)):
        claim = replace(CLAIM, stamps=stamps)
        found = check_stamps(claim, [authority.root])
        assert sorted((c.status, c.reason) for c in found) == [
            ("not checked", "foreign"), ("verified", ""),
        ]  # fmt: skip
        assert first_time(found) is not None
        assert not any(check.counts for check in check_stamps(claim))


def test_foreign_stamps_displace_none_of_the_claim(response, authority):
    """A published claim may come back with stamps of others beside its own."""
    junk = [f"junk {i}".encode() for i in range(MAX_STAMPS)]
    full = replace(CLAIM, stamps=tuple(junk))
    joined = join_stamps(full, [response])
    assert len(joined.stamps) == MAX_STAMPS
    assert joined.stamps[0] == response
    assert any(check.counts for check in check_stamps(joined, [authority.root]))
    assert join_stamps(CLAIM, [response, response]).stamps == (response,)
    assert join_stamps(CLAIM.with_stamp(response), []).stamps == (response,)


def test_one_of_several_roots_is_enough(response, authority, tmp_path):
    stranger = Authority(tmp_path / "stranger", "Stranger")
    stamped = CLAIM.with_stamp(response)
    for roots in ([stranger.root, authority.root], [stranger.root + authority.root]):
        assert check_stamps(stamped, roots)[0].counts


def test_a_second_stamp_needs_no_root_of_its_own(response, authority, tmp_path):
    """A judge may trust one of several authorities."""
    stranger = Authority(tmp_path / "stranger", "Stranger")
    both = CLAIM.with_stamp(stranger.stamp(make_query(CLAIM))).with_stamp(response)
    first, second = check_stamps(both, [authority.root])
    assert (first.status, second.status) == ("not checked", "verified")
    assert (first.reason, second.reason) == ("not-valid", "")
    assert first_time([first, second]) == second.time


@pytest.mark.parametrize("days", [(-400, -30), (30, 400)], ids=["expired", "not yet valid"])
def test_a_certificate_must_be_valid_when_it_stamps(tmp_path, days):
    old = Authority(tmp_path / "old", "Old", days=days)
    stamped = CLAIM.with_stamp(old.stamp(make_query(CLAIM)))
    (check,) = check_stamps(stamped, [old.root])
    assert (check.status, check.reason) == ("not checked", "not-valid")


def test_a_flipped_byte_of_a_stamp_does_not_count_or_means_nothing(response, authority):
    (good,) = check_stamps(CLAIM.with_stamp(response), [authority.root])
    survived = 0
    for position in range(0, len(response), 7):
        bad = bytearray(response)
        bad[position] ^= 1 << position % 8
        (check,) = check_stamps(CLAIM.with_stamp(bytes(bad)), [authority.root])
        if check.counts:
            survived += 1
            assert check.time == good.time
    assert survived < len(response) / 7 / 4


@pytest.mark.parametrize("bad", [b"\x00", b"hello", b"\x30\x03\x02\x01\x02"])
def test_what_is_no_stamp_is_refused(bad):
    with pytest.raises(EvidenceError) as caught:
        add_stamp(CLAIM, bad)
    assert caught.value.code in ("stamp.refused", "stamp.unreadable")


def test_a_refusal_is_no_stamp(authority):
    refusal = authority.stamp(b"\x30\x03\x02\x01\x01")
    with pytest.raises(EvidenceError) as caught:
        add_stamp(CLAIM, refusal)
    assert caught.value.code in ("stamp.refused", "stamp.unreadable")


def test_roots_that_cannot_be_read_are_refused(response):
    with pytest.raises(InputError) as caught:
        check_stamps(CLAIM.with_stamp(response), [b"no PEM"])
    assert (caught.value.code, caught.value.parameter) == ("stamp.roots", "roots")


@pytest.mark.parametrize(
    ("url", "code"), [("ftp://a", "tsa.url"), ("http://127.0.0.1:9/", "tsa.silent")]
)
def test_an_authority_that_is_none_or_not_there(url, code):
    with pytest.raises(InputError) as caught:
        fetch_stamp(b"query", url)
    assert (caught.value.code, caught.value.parameter) == (code, "tsa")
