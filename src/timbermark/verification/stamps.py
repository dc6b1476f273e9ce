"""RFC 3161 time stamps of claims: the query, the response of an authority, and its verification.

A stamp proves that a claim existed at a time, to whoever trusts the authority's root certificate.
The query can be written to a file, carried to an authority, and its response added later.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC
from typing import Any, Literal, Protocol, Self, TypeAlias, TypeVar

from timbermark.errors import EvidenceError, MissingLibraryError
from timbermark.ownership.claim import MAX_STAMP_BYTES, MAX_STAMPS, Claim
from timbermark.ownership.encoding import TIME_FORMAT
from timbermark.verification.refusals import refusal

StampStatus: TypeAlias = Literal["verified", "not checked"]
StampReason: TypeAlias = Literal["", "no-roots", "not-valid", "foreign", "no-library"]

QUERY_TYPE, RESPONSE_TYPE = "application/timestamp-query", "application/timestamp-reply"
_PURPOSE = "to work with time stamps"
_SECONDS = 30.0


class Stampable(Protocol):
    """What can be stamped: a claim of a mark or of copies, or the head of a guard's ledger."""

    @property
    def stamped(self) -> bytes:
        """Return the bytes that a stamp is about."""

    @property
    def stamps(self) -> tuple[bytes, ...]:
        """Return the RFC 3161 responses that were given for them."""


class SignedStatement(Stampable, Protocol):
    """A signed statement that carries its time stamps: a claim."""

    def with_stamp(self, response: bytes) -> Self:
        """Return the statement with one more time stamp."""


Statement = TypeVar("Statement", bound=SignedStatement)


@dataclass(frozen=True, slots=True)
class StampCheck:
    """What one time stamp of a claim is worth.

    Only with the status "verified" is the time that of an authority whom the judge trusts.
    ``reason`` is the code of why it was not checked: "no-roots" (the judge named no authority),
    "not-valid" (under the given roots, at that time), "foreign" (about something else, or nothing
    that can be read), "no-library" (rfc3161-client is not installed).

    >>> StampCheck("not checked", "2030-01-02T03:04:05Z", "", "no-roots").counts
    False
    """

    status: StampStatus
    time: str | None  # UTC, as the stamp says; None where the stamp cannot be read here
    authority: str  # as the stamp's certificate says, may be empty
    reason: StampReason = ""

    @property
    def counts(self) -> bool:
        """Return whether the time was verified."""
        return self.status == "verified"


def make_query(claim: Stampable) -> bytes:
    """Return an RFC 3161 query for a claim or a head, DER, as authorities take it.

    It holds the SHA-256 of what is stamped and a random nonce. Raises MissingLibraryError.
    """
    client = _import_client()
    builder = client.TimestampRequestBuilder().data(claim.stamped)
    query: bytes = builder.hash_algorithm(client.HashAlgorithm.SHA256).build().as_bytes()
    return query


def check_authority(url: str) -> None:
    """Raise InputError unless this is an address that an authority can have."""
    if not url.startswith(("https://", "http://")):
        raise refusal("tsa.url", url=url)


def fetch_stamp(query: bytes, url: str) -> bytes:
    """Return what the authority at an address answers to an RFC 3161 query.

    Raises InputError if it cannot be reached or answers something else.
    """
    check_authority(url)
    # Only whoever asks an authority pays for the import.
    from urllib.request import Request, urlopen

    request = Request(url, data=query, headers={"Content-Type": QUERY_TYPE})
    try:
        with urlopen(request, timeout=_SECONDS) as answer:
            content: bytes = answer.read(MAX_STAMP_BYTES + 1)
            kind = answer.headers.get_content_type()
    except (OSError, ValueError) as error:
        said = " ".join(str(error).split())[:200]
        raise refusal("tsa.silent", url=url, said=said) from None
    if kind != RESPONSE_TYPE or len(content) > MAX_STAMP_BYTES:
        raise refusal("tsa.other", url=url, kind=kind)
    return content


def add_stamp(claim: Statement, response: bytes) -> Statement:
    """Return the claim with a time stamp, which must be about this claim.

    ``response`` is what the authority answered, DER. Whether the authority can be trusted is for
    `check_stamps` and its roots.

    Raises EvidenceError if the response is not one, holds no stamp, or is about something else;
    MissingLibraryError.
    """
    check_response(claim, response)
    return claim.with_stamp(response)


def check_response(claim: Stampable, response: bytes) -> None:
    """Raise EvidenceError unless a response holds a stamp of this claim or head."""
    _read_stamp(claim, response, _import_client())


def check_stamps(claim: Stampable, roots: Sequence[bytes] = ()) -> tuple[StampCheck, ...]:
    """Return what each time stamp of a claim is worth.

    ``roots`` are the PEM files of root certificates that the judge trusts. Without them, or
    without rfc3161-client, no stamp is checked. A certificate must have been valid at the time of
    the stamp, not now. Anybody can put a stamp beside a claim, so one that is wrong refutes
    nothing: it is "not checked", with the reason.

    Raises InputError if a root cannot be read, MissingLibraryError if there are roots and stamps
    and rfc3161-client is not installed.

    >>> from timbermark.ownership import Mark, OwnerKey
    >>> key = OwnerKey.generate()
    >>> mark = Mark.make(
    ...     key, owner="Ann", model_digest="0" * 64, classes=[0, 1], triggers=[[0.5]],
    ...     alphabets=[[0, 1]], reference=[[0.9, 0.1]],
    ... )
    >>> check_stamps(Claim.make(mark, key, marked_digest="1" * 64))
    ()
    """
    trusted = read_roots(roots)
    if not claim.stamps:
        return ()
    try:
        client = _import_client()
    except MissingLibraryError:
        if roots:
            raise
        return tuple(StampCheck("not checked", None, "", "no-library") for _ in claim.stamps)
    return tuple(_check(claim, response, trusted, client) for response in claim.stamps)


def join_stamps(claim: Claim, more: Sequence[bytes]) -> Claim:
    """Return a claim with further stamps, as many as it can hold; those about it come first.

    Whoever copies a public claim can put stamps beside it. Stamps that cannot be read or are about
    something else never displace one that is about this claim.
    """
    listed = list(dict.fromkeys((*claim.stamps, *more)))
    if len(listed) > MAX_STAMPS:
        try:
            client = _import_client()
        except MissingLibraryError:
            client = None
        foreign = {
            response: client is not None and _check(claim, response, [], client).reason == "foreign"
            for response in listed
        }
        listed.sort(key=lambda response: foreign[response])
    return replace(claim, stamps=tuple(listed[:MAX_STAMPS]))


def first_time(checks: Sequence[StampCheck]) -> str | None:
    """Return the earliest verified time, None if there is none.

    >>> first_time([StampCheck("not checked", "2030-01-02T03:04:05Z", "")])
    """
    return min((check.time for check in checks if check.counts and check.time), default=None)


def _check(claim: Stampable, response: bytes, roots: list[Any], client: Any) -> StampCheck:
    try:
        stamp = _read_stamp(claim, response, client)
    except EvidenceError:
        return StampCheck("not checked", None, "", "foreign")
    time = stamp.tst_info.gen_time.astimezone(UTC).strftime(TIME_FORMAT)
    authority = _authority(stamp)
    if not roots:
        return StampCheck("not checked", time, authority, "no-roots")
    builder = client.VerifierBuilder()
    for root in roots:
        builder = builder.add_root_certificate(root)
    try:
        builder.build().verify_message(stamp, claim.stamped)
    except (client.VerificationError, ValueError):
        return StampCheck("not checked", time, authority, "not-valid")
    return StampCheck("verified", time, authority)


def _read_stamp(claim: Stampable, response: bytes, client: Any) -> Any:
    """Return a response that holds a stamp of this claim."""
    import hashlib

    try:
        stamp = client.decode_timestamp_response(normalize_response(response))
        granted = client.PKIStatus(stamp.status) == client.PKIStatus.GRANTED
        said = "; ".join(stamp.status_string)
    except Exception as error:  # the decoder is foreign, and the bytes are anybody's
        raise _unreadable(error) from None
    if not granted:
        raise refusal("stamp.refused", EvidenceError, why=said[:200] or "without a word")
    try:
        imprint = stamp.tst_info.message_imprint
        made = {
            "2.16.840.1.101.3.4.2.1": hashlib.sha256,
            "2.16.840.1.101.3.4.2.2": hashlib.sha384,
            "2.16.840.1.101.3.4.2.3": hashlib.sha512,
        }.get(imprint.hash_algorithm.dotted_string)
        digest = imprint.message
    except Exception as error:
        raise _unreadable(error) from None
    if made is None:
        raise refusal("stamp.hash", EvidenceError)
    if made(claim.stamped).digest() != digest:
        raise refusal("stamp.other", EvidenceError)
    return stamp


def _authority(stamp: Any) -> str:
    from cryptography import x509

    try:
        (signer,) = stamp.signed_data.signer_infos
        for raw in stamp.signed_data.certificates:
            certificate = x509.load_der_x509_certificate(raw)
            if certificate.serial_number == signer.serial_number:
                name = certificate.subject.rfc4514_string()
                return "".join(c for c in name if c.isprintable())[:200]
    except Exception:  # a name is a courtesy; what counts is verified elsewhere
        return ""
    return ""


def read_roots(roots: Sequence[bytes]) -> list[Any]:
    """Return the certificates in PEM files. Raises InputError if one cannot be read.

    >>> read_roots([])
    []
    """
    if not roots:
        return []
    from cryptography import x509

    found: list[Any] = []
    for pem in roots:
        try:
            found += x509.load_pem_x509_certificates(pem)
        except (ValueError, TypeError):
            raise refusal("stamp.roots") from None
    return list(dict.fromkeys(found))


def _import_client() -> Any:
    try:
        import rfc3161_client
    except ImportError:
        raise MissingLibraryError.for_extra("stamps", _PURPOSE, "rfc3161-client") from None
    return rfc3161_client


def _unreadable(error: Exception) -> EvidenceError:
    return refusal("stamp.unreadable", EvidenceError, why=" ".join(str(error).split())[:200])


# The decoder wants the set of certificates in the order of DER, which `openssl ts` does not give
# it, and the verifier takes the status "granted" only, not "granted with modifications". Neither is
# part of what the authority signs, so both are put right here; what is signed stays as it is.

_SEQUENCE, _INTEGER, _TAGGED_0 = 0x30, 0x02, 0xA0
_GRANTED = bytes([_SEQUENCE, 3, _INTEGER, 1, 0])
_MOST_LENGTH_BYTES = 4


def normalize_response(response: bytes) -> bytes:
    """Return a response with its certificates in order, and with the status granted if it was.

    What is no response is returned as it is, for the decoder to refuse.

    >>> normalize_response(b"no response")
    b'no response'
    >>> normalize_response(bytes.fromhex("3005300302010130003000"))
    b'0\\x050\\x03\\x02\\x01\\x010\\x000\\x00'
    """
    try:
        return _normalize(response)
    except ValueError:
        return response


def _normalize(response: bytes) -> bytes:
    status, token = _parts(response, _SEQUENCE, 2)
    content_type, content = _parts(token, _SEQUENCE, 2)
    (signed,) = _parts(content, _TAGGED_0, 1)
    fields = _parts(signed, _SEQUENCE)
    # Certificates are the one field with this tag at this place.
    ordered = [
        _element(_TAGGED_0, b"".join(sorted(_parts(field, _TAGGED_0))))
        if field[0] == _TAGGED_0
        else field
        for field in fields
    ]
    if _parts(status, _SEQUENCE)[0] == bytes([_INTEGER, 1, 1]):
        status = _GRANTED
    signed = _element(_SEQUENCE, b"".join(ordered))
    token = _element(_SEQUENCE, content_type + _element(_TAGGED_0, signed))
    return _element(_SEQUENCE, status + token)


def _parts(element: bytes, tag: int, count: int | None = None) -> list[bytes]:
    """Return the elements inside one element. Raises ValueError unless it is sound DER."""
    start, end = _content(element, 0)
    found = []
    if element[0] != tag or end != len(element):
        raise ValueError("another element")
    while start < end:
        _, after = _content(element, start)
        if after > end:
            raise ValueError("an element is longer than the one around it")
        found.append(element[start:after])
        start = after
    if not found or (count is not None and len(found) != count):
        raise ValueError("another number of elements")
    return found


def _content(data: bytes, start: int) -> tuple[int, int]:
    """Return where the content of the element at a place begins and ends."""
    if len(data) < start + 2:
        raise ValueError("an element is cut")
    size, begin = data[start + 1], start + 2
    if size & 0x80:
        n_bytes = size & 0x7F
        if not 1 <= n_bytes <= _MOST_LENGTH_BYTES:
            raise ValueError("a length is out of bounds")
        size = int.from_bytes(data[begin : begin + n_bytes], "big")
        begin += n_bytes
    if begin + size > len(data):
        raise ValueError("an element is cut")
    return begin, begin + size


def _element(tag: int, content: bytes) -> bytes:
    size = len(content)
    if size < 0x80:
        return bytes([tag, size]) + content
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes([tag, 0x80 | len(length)]) + length + content
