"""RFC 3161 time stamps, by a local authority."""

import sys
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from tests.ownership.authority import Authority, needs_openssl
from tests.ownership.making import KEY, make_mark
from timbermark.errors import EvidenceError, InputError, MissingLibraryError
from timbermark.ownership import Claim
from timbermark.ownership.stamps import (
    add_stamp,
    check_stamps,
    fetch_stamp,
    first_time,
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
    with pytest.raises(EvidenceError, match="not valid under the given roots"):
        check_stamps(CLAIM.with_stamp(response), [stranger.root])


def test_a_stamp_that_is_granted_with_modifications(authority, response):
    """The status stands beside what is signed."""
    at = response.index(b"\x30\x03\x02\x01\x00")
    modified = response[: at + 4] + b"\x01" + response[at + 5 :]
    assert add_stamp(CLAIM, modified).stamps == (modified,)
    (check,) = check_stamps(CLAIM.with_stamp(modified), [authority.root])
    assert check.counts
    refused = response[: at + 4] + b"\x02" + response[at + 5 :]
    with pytest.raises(EvidenceError, match=r"refused to stamp|cannot be read"):
        add_stamp(CLAIM, refused)


def test_a_stamp_that_cannot_be_checked_is_not_valid(response):
    (check,) = check_stamps(CLAIM.with_stamp(response))
    assert (check.status, check.counts) == ("not checked", False)
    assert "no root certificates" in check.reason
    assert first_time([check]) is None


def test_without_the_library_a_stamp_is_not_checked(response, authority, monkeypatch):
    monkeypatch.setitem(sys.modules, "rfc3161_client", None)
    (check,) = check_stamps(CLAIM.with_stamp(response))
    assert (check.status, check.time) == ("not checked", None)
    assert "rfc3161-client is needed" in check.reason
    with pytest.raises(MissingLibraryError, match="rfc3161-client") as caught:
        check_stamps(CLAIM.with_stamp(response), [authority.root])
    assert "timbermark[stamps]" in caught.value.hint
    with pytest.raises(MissingLibraryError):
        make_query(CLAIM)


def test_a_stamp_of_another_claim_is_refused(response, authority):
    with pytest.raises(EvidenceError, match="something else than this claim"):
        add_stamp(OTHER, response)
    for roots in ([], [authority.root]):
        with pytest.raises(EvidenceError, match="something else than this claim"):
            check_stamps(OTHER.with_stamp(response), roots)


def test_a_changed_claim_has_no_stamp(response, authority):
    """Even one that its owner signs anew."""
    changed = Claim.make(make_mark(), KEY, marked_digest="ce" * 32)
    with pytest.raises(EvidenceError, match="something else than this claim"):
        check_stamps(changed.with_stamp(response), [authority.root])
    with pytest.raises(EvidenceError, match="signature"):
        replace(CLAIM, marked_digest="ce" * 32)


def test_a_wrong_root_is_refused(response, tmp_path):
    stranger = Authority(tmp_path / "stranger", "Stranger")
    with pytest.raises(EvidenceError, match="not valid under the given roots") as caught:
        check_stamps(CLAIM.with_stamp(response), [stranger.root])
    assert not any(word in caught.value.message for word in ("ErrorStack", "OpenSSL", "code"))


def test_a_foreign_stamp_does_not_harm_a_good_one(response, authority):
    """Anybody can put one beside a published claim."""
    foreign = authority.stamp(make_query(OTHER))
    for stamps in ((response, foreign), (foreign, response), (b"junk", response)):
        claim = replace(CLAIM, stamps=stamps)
        found = check_stamps(claim, [authority.root])
        assert sorted(check.status for check in found) == ["not checked", "verified"]
        assert first_time(found) is not None
        (other,) = (check for check in found if not check.counts)
        assert "something else than this claim" in other.reason or "cannot be read" in other.reason
        unknown = check_stamps(claim)
        assert not any(check.counts for check in unknown)
    with pytest.raises(EvidenceError, match="something else than this claim"):
        check_stamps(replace(CLAIM, stamps=(foreign,)), [authority.root])


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
    assert "not valid under the given roots" in first.reason
    assert first_time([first, second]) == second.time
    (alone,) = check_stamps(CLAIM.with_stamp(response), [stranger.root], strict=False)
    assert not alone.counts


@pytest.mark.parametrize("days", [(-400, -30), (30, 400)], ids=["expired", "not yet valid"])
def test_a_certificate_must_be_valid_when_it_stamps(tmp_path, days):
    old = Authority(tmp_path / "old", "Old", days=days)
    stamped = CLAIM.with_stamp(old.stamp(make_query(CLAIM)))
    with pytest.raises(EvidenceError, match="not valid under the given roots"):
        check_stamps(stamped, [old.root])


def test_every_flipped_byte_of_a_stamp_is_refused_or_means_nothing(response, authority):
    (good,) = check_stamps(CLAIM.with_stamp(response), [authority.root])
    survived = 0
    for position in range(0, len(response), 7):
        bad = bytearray(response)
        bad[position] ^= 1 << position % 8
        try:
            (check,) = check_stamps(CLAIM.with_stamp(bytes(bad)), [authority.root])
        except EvidenceError:
            continue
        survived += 1
        assert (check.status, check.time) == (good.status, good.time)
    assert survived < len(response) / 7 / 4


@pytest.mark.parametrize("bad", [b"\x00", b"hello", b"\x30\x03\x02\x01\x02"])
def test_what_is_no_stamp_is_refused(bad):
    with pytest.raises(EvidenceError, match=r"cannot be read|refused"):
        add_stamp(CLAIM, bad)


def test_a_refusal_is_no_stamp(authority):
    refusal = authority.stamp(b"\x30\x03\x02\x01\x01")
    with pytest.raises(EvidenceError, match=r"refused to stamp|cannot be read"):
        add_stamp(CLAIM, refusal)


def test_roots_that_cannot_be_read_are_refused(response):
    with pytest.raises(InputError, match="root certificates cannot be read"):
        check_stamps(CLAIM.with_stamp(response), [b"no PEM"])


class _Server(HTTPServer):
    mode = "good"


@pytest.fixture
def address(authority):
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            query = self.rfile.read(int(self.headers["Content-Length"]))
            mode = self.server.mode
            kind = "text/html" if mode == "html" else "application/timestamp-reply"
            if mode == "error":
                self.send_error(503)
                return
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.end_headers()
            self.wfile.write(b"<p>" if mode == "html" else authority.stamp(query))

        def log_message(self, *_):
            pass

    server = _Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server, f"http://127.0.0.1:{server.server_port}/tsr"
    server.shutdown()
    thread.join()
    server.server_close()


def test_an_authority_is_asked_by_http(address, authority):
    server, url = address
    stamped = add_stamp(CLAIM, fetch_stamp(make_query(CLAIM), url))
    assert check_stamps(stamped, [authority.root])[0].counts
    server.mode = "html"
    with pytest.raises(InputError, match="answered with text/html"):
        fetch_stamp(make_query(CLAIM), url)
    server.mode = "error"
    with pytest.raises(InputError, match=r"did not answer .*503"):
        fetch_stamp(make_query(CLAIM), url)


def test_an_authority_that_is_not_there_is_a_sentence():
    with pytest.raises(InputError, match="did not answer"):
        fetch_stamp(b"x", "http://127.0.0.1:9/")
    with pytest.raises(InputError, match="no address"):
        fetch_stamp(b"x", "file:///etc/passwd")
