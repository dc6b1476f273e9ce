"""RFC 3161 time stamps of claims: the query, the response of an authority, and its verification.

A stamp proves that a claim existed at a time, to whoever trusts the authority's root certificate.
The query can be written to a file, carried to an authority, and its response added later.
"""

import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC
from typing import Any, Literal, NoReturn, TypeAlias

from timbermark.errors import EvidenceError, InputError, MissingLibraryError
from timbermark.ownership.claim import MAX_STAMP_BYTES, Claim
from timbermark.ownership.mark_checks import TIME_FORMAT
from timbermark.ownership.stamp_encoding import normalize_response

StampStatus: TypeAlias = Literal["verified", "not checked"]

QUERY_TYPE, RESPONSE_TYPE = "application/timestamp-query", "application/timestamp-reply"
_SECONDS = 30.0
_AGAIN = "ask an authority for a stamp of this claim."
_PURPOSE = "to work with time stamps"
_NOT_VALID = (
    "not valid under the given roots: its certificate leads to none of them or was not valid at "
    "that time"
)


@dataclass(frozen=True, slots=True)
class StampCheck:
    """What one time stamp of a claim is worth.

    Only with the status "verified" is the time that of an authority whom the judge trusts.

    >>> StampCheck("not checked", "2030-01-02T03:04:05Z", "", "no root certificates").counts
    False
    """

    status: StampStatus
    time: str | None  # UTC, as the stamp says; None where the stamp cannot be read here
    authority: str  # as the stamp's certificate says, may be empty
    reason: str = ""  # why it was not checked

    @property
    def counts(self) -> bool:
        """Return whether the time was verified."""
        return self.status == "verified"


def make_query(claim: Claim) -> bytes:
    """Return an RFC 3161 query for a claim, DER, as authorities take it by HTTP or from a file.

    It holds the SHA-256 of the claim and a random nonce. Raises MissingLibraryError.
    """
    client = _import_client()
    builder = client.TimestampRequestBuilder().data(claim.stamped)
    query: bytes = builder.hash_algorithm(client.HashAlgorithm.SHA256).build().as_bytes()
    return query


def add_stamp(claim: Claim, response: bytes) -> Claim:
    """Return the claim with a time stamp, which must be about this claim.

    ``response`` is what the authority answered, DER. Whether the authority can be trusted is for
    `check_stamps` and its roots.

    Raises EvidenceError if the response is not one, holds no stamp, or is about something else;
    MissingLibraryError.
    """
    _read_stamp(claim, response, _import_client())
    return claim.with_stamp(response)


def fetch_stamp(query: bytes, url: str) -> bytes:
    """Return what the authority at an address answers to a query.

    Raises InputError if it cannot be reached or answers something else.
    """
    if not url.startswith(("https://", "http://")):
        raise InputError(f"{url!r:.80} is no address of an authority.", hint="it begins with http.")
    request = urllib.request.Request(url, data=query, headers={"Content-Type": QUERY_TYPE})
    try:
        with urllib.request.urlopen(request, timeout=_SECONDS) as answer:
            content: bytes = answer.read(MAX_STAMP_BYTES + 1)
            kind = answer.headers.get_content_type()
    except (OSError, ValueError, urllib.error.URLError) as error:
        said = " ".join(str(error).split())[:200]
        raise InputError(
            f"The authority at {url} did not answer ({said}).",
            hint="try again or another one; the query can also be sent by other means.",
        ) from None
    if kind != RESPONSE_TYPE or len(content) > MAX_STAMP_BYTES:
        raise InputError(
            f"The authority at {url} answered with {kind}, not with a time stamp.",
            hint="check the address.",
        )
    return content


def check_stamps(
    claim: Claim, roots: Sequence[bytes] = (), *, strict: bool = True
) -> tuple[StampCheck, ...]:
    """Return what each time stamp of a claim is worth.

    ``roots`` are the PEM files of root certificates that the judge trusts. Without them, or
    without rfc3161-client, every stamp is "not checked". A certificate must have been valid at the
    time of the stamp, not now. If one stamp holds under the roots, others that do not are "not
    checked"; if none does, they are refused if ``strict``, and else "not checked", too. A stamp
    that is about something else is "not checked" beside one that is about this claim.

    Raises EvidenceError if all stamps are about something else, or none was issued under the roots
    by a certificate that was valid; InputError if a root cannot be read.

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
    except MissingLibraryError as error:
        if roots:
            raise
        return tuple(StampCheck("not checked", None, "", error.message) for _ in claim.stamps)
    found, foreign = list[StampCheck](), list[EvidenceError]()
    for response in claim.stamps:
        try:
            found.append(_check(claim, response, trusted, client))
        except EvidenceError as error:
            # Anybody can put a stamp beside a claim, so one that is wrong refutes no other.
            foreign.append(error)
            reason = error.message.rstrip(".")
            found.append(StampCheck("not checked", None, "", reason[:1].lower() + reason[1:]))
    if len(foreign) == len(found):
        raise foreign[0]
    about_this = [check for check in found if check.time is not None]
    if strict and trusted and not any(check.counts for check in found):
        raise EvidenceError(
            f"The time stamp of {about_this[0].time} is {about_this[0].reason}.",
            hint="check the roots; if they are right, the stamp proves nothing.",
        )
    return tuple(found)


def first_time(checks: Sequence[StampCheck]) -> str | None:
    """Return the earliest verified time, None if there is none.

    >>> first_time([StampCheck("not checked", "2030-01-02T03:04:05Z", "")])
    """
    return min((check.time for check in checks if check.counts and check.time), default=None)


def _check(claim: Claim, response: bytes, roots: list[Any], client: Any) -> StampCheck:
    stamp = _read_stamp(claim, response, client)
    time = stamp.tst_info.gen_time.astimezone(UTC).strftime(TIME_FORMAT)
    authority = _authority(stamp)
    if not roots:
        return StampCheck("not checked", time, authority, "no root certificates were given")
    builder = client.VerifierBuilder()
    for root in roots:
        builder = builder.add_root_certificate(root)
    try:
        builder.build().verify_message(stamp, claim.stamped)
    except (client.VerificationError, ValueError):
        # What the libraries say here is a dump of their errors, for nobody who reads a judgment.
        return StampCheck("not checked", time, authority, _NOT_VALID)
    return StampCheck("verified", time, authority)


def _read_stamp(claim: Claim, response: bytes, client: Any) -> Any:
    """Return a response that holds a stamp of this claim."""
    import hashlib

    try:
        stamp = client.decode_timestamp_response(normalize_response(response))
        granted = client.PKIStatus(stamp.status) == client.PKIStatus.GRANTED
        refusal = "; ".join(stamp.status_string)
    except Exception as error:  # the decoder is foreign, and the bytes are anybody's
        _refuse(f"The time stamp cannot be read ({' '.join(str(error).split())[:200]}).")
    if not granted:
        _refuse(f"The authority refused to stamp the claim ({refusal[:200] or 'without a word'}).")
    try:
        imprint = stamp.tst_info.message_imprint
        made = {
            "2.16.840.1.101.3.4.2.1": hashlib.sha256,
            "2.16.840.1.101.3.4.2.2": hashlib.sha384,
            "2.16.840.1.101.3.4.2.3": hashlib.sha512,
        }.get(imprint.hash_algorithm.dotted_string)
        digest = imprint.message
    except Exception as error:
        _refuse(f"The time stamp cannot be read ({' '.join(str(error).split())[:200]}).")
    if made is None:
        _refuse("The time stamp uses a hash that is not SHA-2.")
    if made(claim.stamped).digest() != digest:
        _refuse("The time stamp is about something else than this claim.")
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
            raise InputError(
                "The root certificates cannot be read.", hint="give them as a PEM file."
            ) from None
    return list(dict.fromkeys(found))


def _import_client() -> Any:
    try:
        import rfc3161_client
    except ImportError:
        raise MissingLibraryError.for_extra("stamps", _PURPOSE, "rfc3161-client") from None
    return rfc3161_client


def _refuse(message: str) -> NoReturn:
    raise EvidenceError(message, hint=_AGAIN)
