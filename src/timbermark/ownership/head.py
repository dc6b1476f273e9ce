"""The head of a mark: everything that its digest commits to, with a root in place of the triggers.

A judge who is shown some of the triggers gets the head as it is, and checks both against the
digest.
"""

import hashlib
from dataclasses import dataclass, fields

from timbermark.ownership.encoding import encode
from timbermark.ownership.labels import Label

_DIGEST_DOMAIN = b"timbermark/mark-digest/2"


@dataclass(frozen=True, slots=True)
class Head:
    """What is known of a mark without its triggers; the fields are those of `Mark` or hashes.

    >>> head = Head(
    ...     protocol=2, mark_id=bytes(16), secret_digest=bytes(32), owner="Ann",
    ...     model_digest="0" * 64, feature_names=None, columns=("numbers",), classes=(0, 1),
    ...     answers="classes", q=2, n_triggers=64, draws=1, created="2030-12-31T23:59:59Z",
    ...     about_digest=bytes(32), root=bytes(32),
    ... )
    >>> head.digest.hex()[:16]
    '7c664d3ba5a26485'
    """

    protocol: int
    mark_id: bytes
    secret_digest: bytes  # SHA-256 of the mark's secret
    owner: str
    model_digest: str
    feature_names: tuple[str, ...] | None
    columns: tuple[str, ...]  # "numbers" or "texts" for each
    classes: tuple[Label, ...]
    answers: str
    q: int
    n_triggers: int
    draws: int
    created: str
    about_digest: bytes  # SHA-256 of how the mark was made, with the secret
    root: bytes  # of the Merkle tree over the triggers' records

    @property
    def digest(self) -> bytes:
        """Return the mark's digest: SHA-256 of all fields, encoded as in docs/mark-format.md."""
        record = {field.name: getattr(self, field.name) for field in fields(self)}
        return hashlib.sha256(_DIGEST_DOMAIN + encode(record)).digest()
