"""The claim: a public, signed statement that a model carries a mark, made before it leaves.

It commits to the mark, the unmarked and the marked model and the parameters of the test, and says
nothing about triggers. docs/claim-format.md describes it byte by byte.
"""

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from timbermark.errors import EvidenceError, InputError
from timbermark.files import write_public
from timbermark.files.encrypting import SizeLimits
from timbermark.files.reading import Arrays, Meta
from timbermark.ownership.encoding import (
    TIME_FORMAT,
    check_bytes,
    check_digest,
    check_time,
    encode,
    from_hex,
    require,
)
from timbermark.ownership.keys import MARK_ID_BYTES, OwnerKey
from timbermark.ownership.mark import Head, Mark, check_counts, check_stated
from timbermark.ownership.mark_file import PublicFile

FILE = PublicFile("claim", 2, SizeLimits(1 << 20, 1 << 20), "claim", "make the claim again.")
MAX_STAMPS = 8
MAX_STAMP_BYTES = 1 << 16
_DOMAIN = b"timbermark/claim/2"
_KEY_BYTES, _SIGNATURE_BYTES, _DIGEST_BYTES = 32, 64, 32
_BYTES = ("key", "mark_id", "mark_digest")
_OF_HEAD = (
    *("protocol", "owner", "mark_id", "model_digest", "answers", "q", "n_leaves", "n_splits"),
    "draws",
)
# The points of Ed25519 whose order divides 8, without their sign: signatures that fit everything
# can be made for these keys, so that they bind nobody.
_BINDING_NOBODY = frozenset(
    bytes.fromhex(point)
    for point in (
        "0000000000000000000000000000000000000000000000000000000000000000",
        "0100000000000000000000000000000000000000000000000000000000000000",
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
        "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What the holder of a key states about a mark and two models, signed; nothing in it is secret.

    A claim whose signature is wrong cannot be constructed. Time stamps stand beside the statement
    and are checked by `timbermark.verification.stamps`.

    Raises InputError if a part is not as stated below, EvidenceError if the signature is wrong.

    >>> key = OwnerKey.generate()
    >>> mark = Mark.make(
    ...     key, owner="Ann", model_digest="0" * 64, classes=[0, 1], triggers=[[0.5]],
    ...     alphabets=[[0, 1]], reference=[[0.9, 0.1]],
    ... )
    >>> claim = Claim.make(mark, key, marked_digest="1" * 64)
    >>> claim.owner, claim.mark_digest == mark.digest
    ('Ann', True)
    >>> Claim.from_bytes(claim.to_bytes()) == claim
    True
    """

    protocol: int  # of the mark
    owner: str  # whom the mark speaks for
    key: bytes  # the Ed25519 public key of the owner, 32 bytes
    mark_id: bytes
    mark_digest: bytes  # commits to triggers, columns, classes, reading, draws; 32 bytes
    model_digest: str  # SHA-256 of the unmarked model's trees
    marked_digest: str  # SHA-256 of the marked model's trees
    marked_file: str | None  # SHA-256 of the marked model's file, if it was one
    answers: str  # what suspects answer with
    q: int  # labels in the alphabets of the leaf seal
    n_leaves: int  # triggers in leaves
    n_splits: int  # triggers in splits
    draws: int
    mark_created: str  # by the mark's own word
    claimed: str  # when the claim was made, by its own word; UTC
    signature: bytes = field(repr=False)  # 64 bytes
    stamps: tuple[bytes, ...] = field(default=(), repr=False)  # RFC 3161 responses

    def __post_init__(self) -> None:
        check_stated(self)
        check_counts(self)
        check_digest("marked_digest", self.marked_digest)
        if self.marked_file is not None:
            check_digest("marked_file", self.marked_file)
        check_time("mark_created", self.mark_created)
        check_time("claimed", self.claimed)
        for name, size in (
            ("key", _KEY_BYTES),
            ("mark_id", MARK_ID_BYTES),
            ("mark_digest", _DIGEST_BYTES),
            ("signature", _SIGNATURE_BYTES),
        ):
            check_bytes(name, getattr(self, name), size)
        require(
            self.n_triggers >= 1, "the claim is about a mark without triggers", code="seals.none"
        )
        require(
            isinstance(self.stamps, tuple)
            and len(self.stamps) <= MAX_STAMPS
            and all(isinstance(s, bytes) and 0 < len(s) <= MAX_STAMP_BYTES for s in self.stamps),
            f"stamps are not up to {MAX_STAMPS} time stamps of up to {MAX_STAMP_BYTES} bytes",
            "keep those of two or three authorities.",
            "field.stamps",
        )
        check_signature(self.key, self.signature, _DOMAIN + encode(self.statement))

    @classmethod
    def make(
        cls, mark: Mark, key: OwnerKey, *, marked_digest: str, marked_file: str | None = None
    ) -> "Claim":
        """Return the claim that a model carries a mark, signed with the key, made now.

        ``marked_digest`` is the SHA-256 of the marked model's trees, ``marked_file`` that of its
        file. `timbermark.claim` computes both from the model.

        Raises InputError if the mark was not made with the key, or the two models are the same.
        """
        if not isinstance(mark, Mark) or not isinstance(key, OwnerKey):
            raise InputError(
                "A claim needs a mark and an owner key.", hint="load both.", code="claim.type"
            )
        if not mark.made_with(key):
            raise InputError(
                "The mark was not made with this owner key.",
                hint="give the key with which the model was marked.",
                code="claim.other-key",
                parameter="key",
            )
        if marked_digest == mark.model_digest:
            raise InputError(
                "The model is the unmarked one, so there is nothing to claim.",
                hint="give the model that marking gave back.",
                code="claim.unmarked",
                parameter="model",
            )
        statement: dict[str, Any] = {
            **_stated(mark.head),
            "marked_digest": marked_digest,
            "marked_file": marked_file,
            "claimed": datetime.now(UTC).strftime(TIME_FORMAT),
        }
        return cls(**statement, signature=key.sign_claim(_DOMAIN + encode(statement)))

    @property
    def statement(self) -> dict[str, Any]:
        """Return what is signed, by name: text, numbers, None and bytes."""
        return {name: getattr(self, name) for name in STATEMENT}

    @property
    def n_triggers(self) -> int:
        """Return the number of triggers of both seals."""
        return self.n_leaves + self.n_splits

    @property
    def stamped(self) -> bytes:
        """Return what a time stamp is about: the signed bytes and the signature."""
        return _DOMAIN + encode(self.statement) + self.signature

    @property
    def digest(self) -> bytes:
        """Return the SHA-256 of `stamped`, which names the claim; stamps do not change it."""
        return hashlib.sha256(self.stamped).digest()

    def with_stamp(self, response: bytes) -> "Claim":
        """Return the claim with one more time stamp, an RFC 3161 response as it came."""
        if response in self.stamps:
            return self
        return replace(self, stamps=(*self.stamps, response))

    def check_head(self, head: Head) -> None:
        """Raise EvidenceError unless the claim is about the mark whose head this is."""
        stated = _stated(head)
        wrong = [name for name, value in stated.items() if getattr(self, name) != value]
        if wrong:
            raise EvidenceError(
                f"The claim is about another mark: they differ in {', '.join(wrong)}.",
                hint="use the claim that was made for this mark.",
                code="claim.other-mark",
            )

    def __repr__(self) -> str:
        said = f"owner={self.owner!r}, mark_id={self.mark_id.hex()!r}"
        return f"Claim({said}, {len(self.stamps)} time stamps)"

    def to_dict(self) -> dict[str, Any]:
        """Return all of the claim, ready for JSON: the statement, its signature, time stamps."""
        return {
            "statement": {
                name: value.hex() if isinstance(value, bytes) else value
                for name, value in self.statement.items()
            },
            "signature": self.signature.hex(),
            "stamps": [stamp.hex() for stamp in self.stamps],
        }

    def to_bytes(self) -> bytes:
        """Return the claim as its file. The law: ``Claim.from_bytes(c.to_bytes()) == c``."""
        return FILE.write(self.to_dict(), {})

    @classmethod
    def from_bytes(cls, data: bytes, name: str = "The data") -> "Claim":
        """Return the claim that `to_bytes` wrote.

        Raises FileFormatError if it is anything but a whole and sound claim.
        """
        return FILE.read(data, cls._build, name)

    def save(self, path: str | os.PathLike[str], force: bool = False) -> None:
        """Write the claim to a file, which is meant to be published.

        Raises InputError if the file exists, unless ``force``.
        """
        write_public(path, self.to_bytes(), "claim", force)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Claim":
        """Read what `save` wrote. Raises as `from_bytes` does; OSError if it cannot be opened."""
        return FILE.read(path, cls._build)

    @classmethod
    def _build(cls, meta: Meta, arrays: Arrays) -> "Claim":
        return cls(**_read_fields(meta, arrays))


def _stated(head: Head) -> dict[str, Any]:
    """Return what a claim states about the mark with this head, by name."""
    return {
        **{name: getattr(head, name) for name in _OF_HEAD},
        "mark_digest": head.digest,
        "key": head.claim_key,
        "mark_created": head.created,
    }


def check_signature(key: bytes, signature: bytes, message: bytes) -> None:
    """Raise EvidenceError unless a message is signed with the key of a claim.

    >>> key = OwnerKey.generate()
    >>> check_signature(key.claim_key, key.sign_claim(b"hello"), b"hello")
    """
    # Only who reads or makes a claim pays for the import.
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    if bytes((*key[:-1], key[-1] & 0x7F)) in _BINDING_NOBODY:
        raise EvidenceError(
            "The key of the claim binds nobody: anybody could have signed with it.",
            hint="such keys are not made by chance, do not trust the claim.",
            code="claim.key",
        )
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, message)
    except (InvalidSignature, ValueError):
        raise EvidenceError(
            "The signature of the claim is wrong.",
            hint="the claim was changed after it was signed; ask its owner for the original.",
            code="claim.signature",
        ) from None


STATEMENT = tuple(
    name for name in Claim.__dataclass_fields__ if name not in ("signature", "stamps")
)
"""The names of what is signed."""


def _read_fields(meta: Mapping[str, Any], arrays: Mapping[str, Any]) -> dict[str, Any]:
    statement, stamps = meta.get("statement"), meta.get("stamps")
    require(
        meta.keys() == {"statement", "signature", "stamps"}
        and not arrays
        and isinstance(statement, dict)
        and statement.keys() == set(STATEMENT)
        and isinstance(stamps, list),
        "it has not exactly the parts of a claim",
        code="file.parts",
    )
    assert isinstance(statement, dict)
    return {
        **statement,
        **{name: from_hex(name, statement[name]) for name in _BYTES},
        "signature": from_hex("signature", meta["signature"]),
        "stamps": tuple(from_hex("stamps", stamp) for stamp in stamps or ()),
    }
