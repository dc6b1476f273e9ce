"""The claim as an in-toto statement in a DSSE envelope, signed with the owner's key.

Tools of the supply chain (in-toto, sigstore) carry and check such envelopes beside their own
signatures: the subject is the file of the marked model, the predicate is the claim. docs/mlflow.md
shows what is in it.
"""

from __future__ import annotations

import base64
import json

from timbermark.errors import InputError
from timbermark.ownership.claim import Claim
from timbermark.ownership.encoding import check_name
from timbermark.ownership.keys import OwnerKey

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "urn:timbermark:claim:2"
PAYLOAD_TYPE = "application/vnd.in-toto+json"


def make_statement(claim: Claim, key: OwnerKey, name: str) -> bytes:
    """Return the envelope as JSON: that the file ``name`` is the marked model of the claim.

    The signature is Ed25519 by the key that signed the claim; ``keyid`` is its public key. Nothing
    in it is secret.

    Raises InputError if the key is another one, or the claim does not name a file.

    >>> from timbermark.ownership.mark import Mark
    >>> key = OwnerKey.generate()
    >>> mark = Mark.make(
    ...     key, owner="Ann", model_digest="0" * 64, classes=[0, 1], triggers=[[0.5]],
    ...     alphabets=[[0, 1]], reference=[[0.9, 0.1]],
    ... )
    >>> claim = Claim.make(mark, key, marked_digest="1" * 64, marked_file="2" * 64)
    >>> json.loads(make_statement(claim, key, "model.json"))["payloadType"]
    'application/vnd.in-toto+json'
    """
    check_name(name, "name")
    if key.claim_key != claim.key:
        raise InputError(
            "The claim was not signed with this owner key.",
            hint="give the key that the claim was made with.",
            code="claim.other-key",
            parameter="key",
        )
    if claim.marked_file is None:
        raise InputError(
            "The claim does not name the file of the marked model.",
            hint="make the claim from the file: timbermark claim model.json …",
            code="statement.no-file",
            parameter="claim",
        )
    statement = {
        "_type": STATEMENT_TYPE,
        "subject": [{"name": name, "digest": {"sha256": claim.marked_file}}],
        "predicateType": PREDICATE_TYPE,
        "predicate": claim.to_dict() | {"claim_digest": claim.digest.hex()},
    }
    payload = json.dumps(statement, sort_keys=True, separators=(",", ":")).encode()
    signature = key.sign_claim(_encode_before_signing(payload))
    envelope = {
        "payload": base64.b64encode(payload).decode(),
        "payloadType": PAYLOAD_TYPE,
        "signatures": [{"keyid": key.claim_key.hex(), "sig": base64.b64encode(signature).decode()}],
    }
    return json.dumps(envelope, indent=1).encode() + b"\n"


def _encode_before_signing(payload: bytes) -> bytes:
    """Return what DSSE signs: the type and the payload, each with its length before it.

    A claim's signed bytes begin otherwise, so that no signature of one fits the other.
    """
    kind = PAYLOAD_TYPE.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)
