"""The owner key: 32 random bytes that never leave the owner."""

import hashlib
import hmac
import os
import re
import secrets
from dataclasses import dataclass, field
from typing import Any, NoReturn

from timbermark.errors import FileFormatError, InputError
from timbermark.files.encrypting import save_sealed, seal, unseal, warn_if_readable
from timbermark.ownership.encoding import FOREIGN, check_bytes

KIND = "owner-key"
FORMAT_VERSION = 1
KEY_BYTES = 32
MARK_ID_BYTES = 16
_MARK_DOMAIN = b"timbermark/mark/1"
_CLAIM_DOMAIN = b"timbermark/claim-key/1"
_FINGERPRINT_DOMAIN = b"timbermark/fingerprint/1"
_HEX_KEY = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class OwnerKey:
    """What every mark of an owner derives from; whoever has it can make marks in their name.

    It is never printed and refuses to be pickled. Raises InputError unless it is 32 bytes.

    >>> key = OwnerKey.generate()
    >>> key.mark_secret(bytes(16)) == key.mark_secret(bytes(16))
    True
    >>> OwnerKey(bytes(32))
    OwnerKey(fingerprint='c648a9197a22dc69')
    """

    secret: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.secret, bytes) or len(self.secret) != KEY_BYTES:
            raise InputError(
                f"An owner key is {KEY_BYTES} bytes.",
                hint="OwnerKey.generate() makes one.",
                code="key.length",
            )

    @classmethod
    def generate(cls) -> "OwnerKey":
        """Return a new key from the system's source of randomness.

        >>> OwnerKey.generate() == OwnerKey.generate()
        False
        """
        return cls(secrets.token_bytes(KEY_BYTES))

    @property
    def fingerprint(self) -> str:
        """Return 16 hexadecimal digits that identify the key and reveal nothing about it."""
        return hashlib.sha256(_FINGERPRINT_DOMAIN + self.secret).hexdigest()[:16]

    def mark_secret(self, mark_id: bytes) -> bytes:
        """Return the 32 secret bytes of one mark: HKDF-SHA256 of the key and the mark's id.

        It says nothing about the key or about any other mark. Raises InputError unless the id is
        16 bytes.
        """
        check_bytes("mark_id", mark_id, MARK_ID_BYTES)
        return self._derive(_MARK_DOMAIN + mark_id)

    @property
    def claim_key(self) -> bytes:
        """Return the public Ed25519 key that signs the owner's claims, 32 bytes; not secret.

        >>> OwnerKey(bytes(32)).claim_key.hex()[:16]
        '0309f868c024996e'
        """
        public: bytes = self._signing_key().public_key().public_bytes_raw()
        return public

    def sign_claim(self, message: bytes) -> bytes:
        """Return the Ed25519 signature of a message, 64 bytes."""
        signature: bytes = self._signing_key().sign(message)
        return signature

    def _signing_key(self) -> Any:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        return Ed25519PrivateKey.from_private_bytes(self._derive(_CLAIM_DOMAIN))

    def _derive(self, info: bytes) -> bytes:
        # Verifying never needs it, and starts sooner without.
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF

        return HKDF(SHA256(), length=KEY_BYTES, salt=None, info=info).derive(self.secret)

    def save(
        self, path: str | os.PathLike[str], passphrase: str | None = None, force: bool = False
    ) -> None:
        """Write the key to a file that only its owner may read, encrypted if with a passphrase.

        Raises InputError if the file exists, unless ``force``, or if the passphrase is empty.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     OwnerKey(bytes(32)).save(folder + "/owner.key")
        ...     OwnerKey.load(folder + "/owner.key")
        OwnerKey(fingerprint='c648a9197a22dc69')
        """
        content = seal(KIND, FORMAT_VERSION, {"secret": self.secret.hex()}, {}, passphrase)
        save_sealed(path, content, "owner key", force=force)

    @classmethod
    def load(cls, path: str | os.PathLike[str], passphrase: str | None = None) -> "OwnerKey":
        """Read what `save` wrote; warns if others may read the file.

        Raises PassphraseError if the passphrase does not fit, FileFormatError if this is not a key
        file, OSError if it cannot be opened.
        """
        _, meta, arrays = unseal(path, KIND, FORMAT_VERSION, passphrase)
        warn_if_readable(path, "owner key")
        text = meta.get("secret")
        if (
            meta.keys() != {"secret"}
            or arrays
            or not isinstance(text, str)
            or not _HEX_KEY.fullmatch(text)
        ):
            raise FileFormatError(
                f"{os.fspath(path)} does not hold an owner key of {KEY_BYTES} bytes.",
                FOREIGN,
                "file.parts",
            )
        return cls(bytes.fromhex(text))

    def __repr__(self) -> str:
        return f"OwnerKey(fingerprint={self.fingerprint!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OwnerKey) and hmac.compare_digest(self.secret, other.secret)

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __copy__(self) -> "OwnerKey":
        return self

    def __deepcopy__(self, memo: object) -> "OwnerKey":
        return self

    def __reduce__(self) -> NoReturn:
        raise InputError(
            "An owner key cannot be pickled: it would lie in the open.",
            hint="save it with a passphrase and load it there.",
            code="key.pickled",
        )
