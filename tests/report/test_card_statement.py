"""The in-toto statement, checked here by the letter of DSSE with nothing of timbermark's."""

import base64
import json

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from timbermark.errors import InputError
from timbermark.ownership import Claim, Mark, OwnerKey
from timbermark.report.card import make_statement

KEY = OwnerKey(bytes(range(32)))


@pytest.fixture(scope="module")
def claim():
    mark = Mark.make(
        KEY, owner="Ann", model_digest="0" * 64, classes=[0, 1], triggers=[[0.5]],
        alphabets=[[0, 1]], reference=[[0.9, 0.1]],
    )  # fmt: skip
    return Claim.make(mark, KEY, marked_digest="1" * 64, marked_file="2" * 64)


def open_envelope(data, public):
    """Return the statement in an envelope whose signature is checked as DSSE 1.0 says."""
    envelope = json.loads(data)
    payload = base64.b64decode(envelope["payload"], validate=True)
    kind = envelope["payloadType"].encode()
    signed = b" ".join(
        [b"DSSEv1", str(len(kind)).encode(), kind, str(len(payload)).encode(), payload]
    )
    (signature,) = envelope["signatures"]
    key = Ed25519PublicKey.from_public_bytes(public)
    key.verify(base64.b64decode(signature["sig"], validate=True), signed)
    return json.loads(payload)


def test_the_statement_says_what_the_claim_says(claim):
    statement = open_envelope(make_statement(claim, KEY, "marked.json"), claim.key)
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert statement["subject"] == [{"name": "marked.json", "digest": {"sha256": "2" * 64}}]
    predicate = statement["predicate"]
    assert predicate["claim_digest"] == claim.digest.hex()
    told = {**claim.statement, "signature": claim.signature, "stamps": ()}
    said = {**predicate["statement"], "signature": predicate["signature"], "stamps": ()}
    plain = {name: v.hex() if isinstance(v, bytes) else v for name, v in told.items()}
    assert said == plain


def test_any_change_breaks_the_signature(claim):
    envelope = json.loads(make_statement(claim, KEY, "marked.json"))
    payload = base64.b64decode(envelope["payload"])
    other = payload.replace(b"marked.json", b"other.json!")
    assert other != payload
    forged = {**envelope, "payload": base64.b64encode(other).decode()}
    retyped = {**envelope, "payloadType": "application/json"}
    for changed, key in (
        (forged, claim.key),
        (retyped, claim.key),
        (envelope, OwnerKey.generate().claim_key),
    ):
        with pytest.raises(InvalidSignature):
            open_envelope(json.dumps(changed), key)


def test_refusals(claim):
    def code(*words):
        with pytest.raises(InputError) as caught:
            make_statement(*words)
        return caught.value.code

    assert code(claim, OwnerKey.generate(), "marked.json") == "claim.other-key"
    assert code(claim, KEY, "\n") == "field.name"
    mark = Mark.make(
        KEY, owner="Ann", model_digest="0" * 64, classes=[0, 1], triggers=[[0.5]],
        alphabets=[[0, 1]], reference=[[0.9, 0.1]],
    )  # fmt: skip
    assert code(Claim.make(mark, KEY, marked_digest="1" * 64), KEY, "m") == "statement.no-file"
