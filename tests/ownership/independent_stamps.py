"""A second verifier of RFC 3161 time stamps, from the RFC and docs/claim-format.md alone.

It reads DER by hand and leaves certificates and signatures to `cryptography`.
"""

import hashlib
from datetime import UTC, datetime

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding
from cryptography.x509.oid import ExtendedKeyUsageOID

SEQUENCE, SET, INTEGER, OCTETS, OID, TIME, TAGGED_0 = 0x30, 0x31, 2, 4, 6, 0x18, 0xA0
TST_INFO = bytes.fromhex("2a864886f70d0109100104")
CONTENT_TYPE, MESSAGE_DIGEST = (bytes.fromhex(f"2a864886f70d0109{n}") for n in ("03", "04"))
CERTIFICATE_V2 = bytes.fromhex("2a864886f70d010910022f")
HASHES = {
    bytes.fromhex("608648016503040201"): ("sha256", hashes.SHA256()),
    bytes.fromhex("608648016503040202"): ("sha384", hashes.SHA384()),
    bytes.fromhex("608648016503040203"): ("sha512", hashes.SHA512()),
}


def read(data):
    """The elements one after the other, each (tag, content, all of its bytes)."""
    found, at = [], 0
    while at < len(data):
        begin, size = at + 2, data[at + 1]
        if size & 0x80:
            begin, size = begin + (size & 0x7F), int.from_bytes(data[begin : begin + (size & 0x7F)])
        assert begin + size <= len(data)
        found.append((data[at], data[begin : begin + size], data[at : begin + size]))
        at = begin + size
    return found


def inside(element, tag):
    assert element[0] == tag
    return read(element[1])


def value(element, tag):
    assert element[0] == tag
    return element[1]


def check_stamps(responses, message, roots):
    """How many responses are verified under roots (PEM), how many are not, and the first time."""
    trusted = x509.load_pem_x509_certificates(roots) if roots else []
    responses, times = list(responses), []
    for response in responses:
        try:
            times.append(verified_time(response, message, trusted))
        except Exception:  # anybody can put anything beside a claim: it does not count
            continue
    found = {"verified": len(times), "others": len(responses) - len(times)}
    return {**found, "first": min(times, default=None)}


def verified_time(response, message, roots):
    ((_, whole, _),) = read(response)
    status, token = read(whole)
    assert inside(status, SEQUENCE)[0][1] in (b"\0", b"\1")  # granted, perhaps with modifications
    _, content = inside(token, SEQUENCE)
    (signed,) = inside(content, TAGGED_0)
    _, _, encapsulated, *rest = inside(signed, SEQUENCE)
    kind, wrapped = inside(encapsulated, SEQUENCE)
    assert value(kind, OID) == TST_INFO
    info = value(inside(wrapped, TAGGED_0)[0], OCTETS)
    ((_, fields, _),) = read(info)
    _, _, imprint, _, said = read(fields)[:5]
    algorithm, digest = inside(imprint, SEQUENCE)
    name, _ = HASHES[value(inside(algorithm, SEQUENCE)[0], OID)]
    assert hashlib.new(name, message).digest() == value(digest, OCTETS)
    time = datetime.strptime(value(said, TIME).decode()[:14], "%Y%m%d%H%M%S").replace(tzinfo=UTC)
    certificates = [
        x509.load_der_x509_certificate(one[2])
        for part in rest
        if part[0] == TAGGED_0
        for one in read(part[1])
    ]
    (signer,) = inside(rest[-1], SET)
    check_chain(check_signer(signer, info, certificates), certificates, roots, time)
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")


def check_signer(signer, info, certificates):
    """The certificate by which the content is signed."""
    _, who, hashed, attributes, _, signature, *_ = inside(signer, SEQUENCE)
    serial = int.from_bytes(value(inside(who, SEQUENCE)[1], INTEGER))
    (certificate,) = [one for one in certificates if one.serial_number == serial]
    name, algorithm = HASHES[value(inside(hashed, SEQUENCE)[0], OID)]
    said = {}
    for attribute in inside(attributes, TAGGED_0):
        kind, values = inside(attribute, SEQUENCE)
        (said[value(kind, OID)],) = inside(values, SET)
    assert value(said[CONTENT_TYPE], OID) == TST_INFO
    assert value(said[MESSAGE_DIGEST], OCTETS) == hashlib.new(name, info).digest()
    named = inside(inside(inside(said[CERTIFICATE_V2], SEQUENCE)[0], SEQUENCE)[0], SEQUENCE)
    own = next(content for tag, content, _ in named if tag == OCTETS)
    assert own == certificate.fingerprint(hashes.SHA256())
    # What is signed are the attributes as a set, not with the tag that they have here.
    content = bytes([SET]) + attributes[2][1:]
    key = certificate.public_key()
    if isinstance(key, ec.EllipticCurvePublicKey):
        key.verify(value(signature, OCTETS), content, ec.ECDSA(algorithm))
    else:
        key.verify(value(signature, OCTETS), content, padding.PKCS1v15(), algorithm)
    return certificate


def check_chain(certificate, others, roots, time):
    usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage)
    assert usage.critical
    assert list(usage.value) == [ExtendedKeyUsageOID.TIME_STAMPING]
    for _ in range(len(others) + 2):
        assert certificate.not_valid_before_utc <= time <= certificate.not_valid_after_utc
        if certificate in roots:
            return
        (certificate,) = [one for one in {*roots, *others} if is_issuer(one, certificate)]
    raise AssertionError("no end")


def is_issuer(one, certificate):
    try:
        certificate.verify_directly_issued_by(one)
        return one.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except Exception:
        return False
