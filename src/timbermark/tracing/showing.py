"""Claims and openings of a roll: one customer's part, shown to a judge without the others'.

The *claim* is public and made before copies leave: it commits to the boundaries, and by a Merkle
root to every customer's name and secret token, and says nothing about them. After more customers
were added, a new claim is made. The *opening* shows one customer's name and token, the way to the
root, and a part of the boundaries, drawn as openings of marks draw it. The judge derives the
customer's symbols from that and holds the suspect's answers to them. Other customers' symbols stay
secret: their tokens are not shown, and follow from nothing that is.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np

from timbermark.dtypes import AnyArray, SmallKinds
from timbermark.errors import EvidenceError, InputError
from timbermark.files import container_kind, write_public
from timbermark.files.encrypting import SizeLimits, save_sealed
from timbermark.files.reading import Arrays, Meta
from timbermark.ownership.claim import MAX_STAMP_BYTES, MAX_STAMPS, Claim, check_signature
from timbermark.ownership.encoding import (
    TIME_FORMAT,
    check_bytes,
    check_count,
    check_name,
    check_time,
    encode,
    from_hex,
    require,
)
from timbermark.ownership.evidence import CONCLUSIVE_BITS, sum_prices
from timbermark.ownership.keys import OwnerKey
from timbermark.ownership.mark_file import PublicFile
from timbermark.ownership.opening import (
    EIGHTHS,
    OpenedMark,
    Opening,
    count_opened,
    open_mark,
    price_of_part,
)
from timbermark.ownership.symbols import (
    HASH_BYTES,
    derive_seed,
    hash_leaf,
    merkle_paths,
    merkle_root,
    root_from_path,
)
from timbermark.tracing.codes import (
    derive_biases,
    derive_customer_seed,
    derive_customer_symbols,
    expected_bits,
)
from timbermark.tracing.roll import MOST_CUSTOMERS, Roll, commit_customer

CLAIM_FILE = PublicFile("roll-claim", 1, SizeLimits(2 << 20, 2 << 20), "claim of a roll")
OPENING_FILE = PublicFile("roll-opening", 1, SizeLimits(256 << 20, 1 << 20), "opening of a roll")
_DOMAIN = b"timbermark/roll-claim/1"
_SIGNATURE_BYTES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class RollClaim:
    """What the holder of a key states about all copies of a model; nothing in it is secret.

    A claim whose signature is wrong cannot be constructed. Raises InputError if a part is not as
    stated, EvidenceError if the signature is wrong.
    """

    claim: Claim  # about the grid; its marked model is the one with the symbol 0 everywhere
    n_customers: int
    root: bytes  # of the Merkle tree over all customers
    claimed: str  # when it was made, by its own word; UTC
    signature: bytes = field(repr=False)
    stamps: tuple[bytes, ...] = field(default=(), repr=False)  # RFC 3161 responses

    def __post_init__(self) -> None:
        check_count("n_customers", self.n_customers, 1, MOST_CUSTOMERS)
        check_bytes("root", self.root, HASH_BYTES)
        check_time("claimed", self.claimed)
        check_bytes("signature", self.signature, _SIGNATURE_BYTES)
        require(
            len(self.stamps) <= MAX_STAMPS
            and all(isinstance(s, bytes) and 0 < len(s) <= MAX_STAMP_BYTES for s in self.stamps),
            f"stamps are not up to {MAX_STAMPS} time stamps of up to {MAX_STAMP_BYTES} bytes",
            code="field.stamps",
        )
        check_signature(self.claim.key, self.signature, self._signed)

    @classmethod
    def make(cls, roll: Roll, key: OwnerKey) -> RollClaim:
        """Return the claim of a roll with all its customers, signed with the key, made now.

        Raises InputError if the roll was not made with the key, or has no customers.
        """
        inner = Claim.make(roll.grid, key, marked_digest=roll.blank_digest)
        n_customers = check_count("customers", len(roll.customers), 1, MOST_CUSTOMERS)
        root = merkle_root(_leaves(roll))
        claimed = datetime.now(UTC).strftime(TIME_FORMAT)
        signed = _statement(inner, n_customers, root, claimed)
        return cls(
            claim=inner,
            n_customers=n_customers,
            root=root,
            claimed=claimed,
            signature=key.sign_claim(signed),
        )

    @property
    def _signed(self) -> bytes:
        return _statement(self.claim, self.n_customers, self.root, self.claimed)

    @property
    def stamped(self) -> bytes:
        """Return what a time stamp is about: the signed bytes and the signature."""
        return self._signed + self.signature

    @property
    def digest(self) -> bytes:
        """Return the SHA-256 of `stamped`, which names the claim."""
        return hashlib.sha256(self.stamped).digest()

    def with_stamp(self, response: bytes) -> RollClaim:
        """Return the claim with one more time stamp, an RFC 3161 response as it came."""
        return self if response in self.stamps else replace(self, stamps=(*self.stamps, response))

    def to_bytes(self) -> bytes:
        """Return the claim as its file. The law: reading it gives the same claim."""
        meta = {
            "customers": self.n_customers,
            "root": self.root.hex(),
            "claimed": self.claimed,
            "signature": self.signature.hex(),
            "stamps": [stamp.hex() for stamp in self.stamps],
        }
        inner = np.frombuffer(self.claim.to_bytes(), np.uint8)
        return CLAIM_FILE.write(meta, {"claim": inner})

    def save(self, path: str | os.PathLike[str], force: bool = False) -> None:
        """Write the claim to a file, which is meant to be published.

        Raises InputError if the file exists, unless ``force``.
        """
        write_public(path, self.to_bytes(), "claim", force)

    @classmethod
    def load(cls, source: str | os.PathLike[str] | bytes) -> RollClaim:
        """Read what `save` wrote, or its bytes.

        Raises FileFormatError if it is anything but a whole and sound claim of a roll.
        """
        return CLAIM_FILE.read(source, cls._build)

    @classmethod
    def _build(cls, meta: Meta, arrays: Arrays) -> RollClaim:
        parts = {"customers", "root", "claimed", "signature", "stamps"}
        _check_parts(meta, arrays, parts, "claim")
        require(isinstance(meta["stamps"], list), "it has no stamps", code="field.stamps")
        return cls(
            claim=Claim.from_bytes(arrays["claim"].tobytes()),
            n_customers=meta["customers"],
            root=from_hex("root", meta["root"]),
            claimed=meta["claimed"],
            signature=from_hex("signature", meta["signature"]),
            stamps=tuple(from_hex("stamps", stamp) for stamp in meta["stamps"]),
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RollOpening:
    """One customer's name and token with their Merkle path, and a part of the boundaries.

    Nothing is checked until it is held to its claim: see `check`.
    """

    claim_digest: bytes  # which claim it opens
    customer: str
    token: bytes = field(repr=False)
    place: int  # of the customer in the roll
    path: tuple[bytes, ...] = field(repr=False)
    boundaries: Opening = field(repr=False)

    @property
    def judge(self) -> str:
        """Return the name of whom it is for."""
        return self.boundaries.judge

    def check(self, claim: RollClaim, judge: str | None = None) -> tuple[OpenedMark, SmallKinds]:
        """Return the opened boundaries and the customer's symbols there, all held to the claim.

        Raises EvidenceError with a sentence for whatever does not hold.
        """
        if self.claim_digest != claim.digest:
            raise EvidenceError(
                "The opening belongs to another claim.",
                hint="give the claim that it opens.",
                code="opening.other-claim",
            )
        opened = self.boundaries.check(claim.claim, judge)
        if claim.claim.n_leaves:
            raise EvidenceError(
                "What is opened are not the boundaries of a roll.",
                hint="ask the owner to open the roll with timbermark roll open.",
                code="opening.shape",
            )
        leaf = hash_leaf(commit_customer(self.customer, self.token))
        try:
            root = root_from_path(leaf, self.place, claim.n_customers, self.path)
        except InputError:
            root = b""
        if root != claim.root or not 0 <= self.place < claim.n_customers:
            raise EvidenceError(
                f"The customer {self.customer!r} is not one that the claim commits to.",
                hint="the opening was changed; ask the owner for the original.",
                code="opening.customer",
            )
        seed = derive_customer_seed(opened.digest, self.customer, self.token)
        biases = derive_biases(derive_seed(opened.digest), opened.head.n_triggers)
        return opened, derive_customer_symbols(seed, biases)[list(opened.places)]

    def to_bytes(self) -> bytes:
        """Return the opening as its file. The law: reading it gives the same opening."""
        meta = {
            "claim": self.claim_digest.hex(),
            "customer": self.customer,
            "token": self.token.hex(),
            "place": self.place,
            "path": [step.hex() for step in self.path],
        }
        inner = np.frombuffer(self.boundaries.to_bytes(), np.uint8)
        return OPENING_FILE.write(meta, {"opening": inner})

    def save(self, path: str | os.PathLike[str], force: bool = False) -> None:
        """Write the opening to a file that only its owner may read, for the judge alone.

        Raises InputError if the file exists, unless ``force``.
        """
        save_sealed(path, self.to_bytes(), "opening", force=force)

    @staticmethod
    def is_file(path: str | os.PathLike[str]) -> bool:
        """Return whether a file says that it is the opening of a roll."""
        return container_kind(path) == OPENING_FILE.kind

    @classmethod
    def load(cls, source: str | os.PathLike[str] | bytes) -> RollOpening:
        """Read what `save` wrote, or its bytes.

        Raises FileFormatError if it is anything but a whole opening of a roll.
        """
        return OPENING_FILE.read(source, cls._build)

    @classmethod
    def _build(cls, meta: Meta, arrays: Arrays) -> RollOpening:
        _check_parts(meta, arrays, {"claim", "customer", "token", "place", "path"}, "opening")
        check_name(meta["customer"], "customers")
        require(isinstance(meta["path"], list), "it has no path", code="field.path")
        return cls(
            claim_digest=from_hex("claim", meta["claim"], HASH_BYTES),
            customer=meta["customer"],
            token=from_hex("token", meta["token"], HASH_BYTES),
            place=check_count("place", meta["place"], 0, MOST_CUSTOMERS),
            path=tuple(from_hex("path", step, HASH_BYTES) for step in meta["path"]),
            boundaries=Opening.from_bytes(arrays["opening"].tobytes()),
        )


def open_roll(
    roll: Roll, claim: RollClaim, *, customer: str, judge: str, share: float | None = None
) -> RollOpening:
    """Return the part of one customer for one judge, with the smallest share that convinces.

    ``share``: of the boundaries to show, rounded up to eighths; which ones is drawn from the claim
    and the judge's name.

    Raises InputError for a customer who is not in the roll or a share out of bounds, EvidenceError
    if the claim is not about this roll or does not know the customer.
    """
    name = roll.find(customer)
    place = roll.customers.index(name)
    leaves = _leaves(roll)[: claim.n_customers]
    if len(leaves) < claim.n_customers or merkle_root(leaves) != claim.root:
        raise EvidenceError(
            "The claim is about another roll.",
            hint="use a claim that was made of this roll.",
            code="claim.other-roll",
        )
    if place >= claim.n_customers:
        raise EvidenceError(
            f"The customer {name!r} came after the claim was made.",
            hint="use a later claim.",
            code="claim.earlier",
        )
    chosen = _enough_share(roll, claim) if share is None else share
    opening = open_mark(roll.grid, claim.claim, judge=judge, share=chosen, force=True)
    return RollOpening(
        claim_digest=claim.digest,
        customer=name,
        token=roll.token(name),
        place=place,
        path=merkle_paths(leaves, [place])[0],
        boundaries=opening,
    )


def _enough_share(roll: Roll, claim: RollClaim) -> float:
    """Return the smallest share with which an untouched copy is conclusive, with a margin."""
    n = roll.n_boundaries
    for eighths in range(1, EIGHTHS):
        opened = count_opened(n, eighths)
        bits = expected_bits(opened, claim.n_customers) - sum_prices(price_of_part(opened, n))
        if 0.8 * bits >= CONCLUSIVE_BITS:
            return eighths / EIGHTHS
    return 1.0


def _leaves(roll: Roll) -> list[bytes]:
    return [hash_leaf(commit_customer(name, roll.token(name))) for name in roll.customers]


def _statement(claim: Claim, n_customers: int, root: bytes, claimed: str) -> bytes:
    stated = {"claim": claim.digest, "customers": n_customers, "root": root, "claimed": claimed}
    return _DOMAIN + encode(stated)


def _check_parts(
    meta: Mapping[str, Any], arrays: Mapping[str, AnyArray], names: set[str], inner: str
) -> None:
    require(
        meta.keys() == names and arrays.keys() == {inner} and arrays[inner].dtype == np.uint8,
        "it has not exactly the parts of its kind",
        code="file.parts",
    )
