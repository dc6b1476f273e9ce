"""Secrets at rest: a container as it is, or encrypted under a passphrase.

Without a passphrase the container of `timbermark.files` is written as it is, readable by its owner
only. With one, that whole container is encrypted (scrypt, then AES-256-GCM) and put as bytes into
a container of the same kind and version, which says how. docs/mark-format.md describes both.
"""

import io
import json
import os
import re
import secrets
import stat
import unicodedata
import warnings
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from timbermark.dtypes import AnyArray
from timbermark.errors import (
    FileFormatError,
    InputError,
    PassphraseError,
    PassphraseNeededError,
)
from timbermark.files.reading import (
    DAMAGE,
    FOREIGN,
    META_NAME,
    Arrays,
    Meta,
    check_kind,
    read_container,
)
from timbermark.files.writing import atomic_write, container_bytes, exists_error, will_write

CIPHER = "scrypt+aes-256-gcm"
_DOMAIN = b"timbermark/seal/2"
_OWNER_ONLY = 0o600
_SMALL = 1 << 16
_SALT_BYTES, _NONCE_BYTES, _KEY_BYTES = 16, 12, 32
_HEX = re.compile(r"(?:[0-9a-f]{2})+")


@dataclass(frozen=True, slots=True)
class ScryptCost:
    """What one guess of a passphrase costs: 128 · n · r bytes of memory, p times over.

    >>> ScryptCost().memory // 2**20
    128
    """

    n: int = 1 << 17
    r: int = 8
    p: int = 1

    @property
    def memory(self) -> int:
        """Return the number of bytes of memory that are needed at once."""
        return 128 * self.n * self.r

    def is_bearable(self) -> bool:
        """Return whether a file may ask for this: at most 256 MiB, and never trivially little.

        >>> ScryptCost().is_bearable(), ScryptCost(n=1 << 30).is_bearable()
        (True, False)
        """
        whole = all(type(number) is int for number in (self.n, self.r, self.p))
        return (
            whole
            and self.n >= 1 << 10
            and self.n & (self.n - 1) == 0
            and 1 <= self.r <= 64
            and 1 <= self.p <= 4
            and self.memory <= 256 << 20
        )


COST = ScryptCost()


@dataclass(frozen=True, slots=True)
class SizeLimits:
    """What a secret file may hold, in bytes; the default is ample for a key.

    >>> SizeLimits().check(b"x" * 100_000, "The data")
    Traceback (most recent call last):
    timbermark.errors.FileFormatError: The data has 100000 bytes, at most 65536 are allowed. Hint: \
it was not written by timbermark, do not trust it.
    """

    file: int = _SMALL
    meta: int = _SMALL

    def check(self, source: str | os.PathLike[str] | bytes, name: str) -> None:
        """Refuse a container that is too large or declares more content than it has bytes.

        Compressed content could otherwise make a small file fill the memory. Only the list of
        members is read; whatever else is wrong is left to `read_container`.

        Raises FileFormatError, or OSError if there is no such file.
        """
        size = len(source) if isinstance(source, bytes) else os.stat(source).st_size
        if size > self.file:
            raise FileFormatError(
                f"{name} has {size} bytes, at most {self.file} are allowed.", FOREIGN, "file.size"
            )
        if not isinstance(source, bytes):
            with open(source, "rb") as file:
                source = file.read(size)
        payload = source.split(b"\n", 2)[-1]
        try:
            with zipfile.ZipFile(io.BytesIO(payload)) as archive:
                members = {info.filename: info.file_size for info in archive.infolist()}
                declared = sum(info.file_size for info in archive.infolist())
        except DAMAGE:
            return
        if declared > max(size, _SMALL):
            raise FileFormatError(
                f"{name} has {size} bytes but would unpack to {declared}.", FOREIGN, "file.size"
            )
        if members.get(META_NAME, 0) > self.meta:
            raise FileFormatError(
                f"{name} holds {members[META_NAME]} bytes of metadata, at most {self.meta} are "
                "allowed.",
                FOREIGN,
                "file.size",
            )


def seal(
    kind: str,
    version: int,
    meta: Mapping[str, Any],
    arrays: Mapping[str, AnyArray],
    passphrase: str | None = None,
    *,
    compress: bool = True,
) -> bytes:
    """Return a container as bytes, encrypted if there is a passphrase.

    The arguments are those of `container_bytes`; the metadata must not have the key ``cipher``.
    What is not small must not be compressed, or else `unseal` refuses it.
    The passphrase is taken in Unicode's form NFC, so that every keyboard gives the same.

    Raises InputError for an empty passphrase and as `container_bytes` does.

    >>> unseal(seal("note", 1, {"a": 1}, {}, "open sesame"), "note", 1, "open sesame")
    (1, {'a': 1}, {})
    """
    content = container_bytes(kind, version, meta, arrays, compress=compress)
    if passphrase is None:
        return content
    salt, nonce = secrets.token_bytes(_SALT_BYTES), secrets.token_bytes(_NONCE_BYTES)
    how = {
        "cipher": CIPHER,
        "scrypt": asdict(COST),
        "salt": salt.hex(),
        "nonce": nonce.hex(),
    }
    cipher = _cipher(passphrase, salt, COST)
    sealed = cipher.encrypt(nonce, content, _bound(kind, version, how))
    array = np.frombuffer(sealed, np.uint8)
    return container_bytes(kind, version, how, {"sealed": array}, compress=compress)


def unseal(
    source: str | os.PathLike[str] | bytes,
    kind: str,
    max_version: int,
    passphrase: str | None = None,
    *,
    limits: SizeLimits | None = None,
) -> tuple[int, Meta, Arrays]:
    """Return the version, metadata and arrays that `seal` was given, from a file or from bytes.

    Sizes are held against ``limits``, by default those of a key, before anything is unpacked.

    Raises PassphraseNeededError if it is encrypted and there is no passphrase, PassphraseError if
    the passphrase does not open it or none is needed, FileFormatError and OSError as
    `read_container` does. A wrong passphrase and a forged content cannot be told apart.
    """
    name = "The data" if isinstance(source, bytes) else os.fspath(source)
    limits = limits or SizeLimits()
    if not isinstance(source, bytes) and stat.S_ISFIFO(os.stat(source).st_mode):
        with open(source, "rb") as pipe:  # which can be read only once
            source = pipe.read(limits.file + 1)
    check_kind(source, kind, max_version)  # a mark given for a key is no large key
    limits.check(source, name)
    version, meta, arrays = read_container(source, kind, max_version)
    if "cipher" not in meta:
        if passphrase is not None:
            raise PassphraseError(
                f"{name} is not encrypted, so no passphrase opens it.",
                hint="leave the passphrase out; save the file again with one to encrypt it.",
                code="passphrase.needless",
                parameter="passphrase",
            )
        return version, meta, arrays
    salt, nonce, cost, sealed = _read_how(meta, arrays, name)
    if passphrase is None:
        raise PassphraseNeededError(
            f"{name} is encrypted.",
            hint="give its passphrase.",
            code="passphrase.needed",
            parameter="passphrase",
        )
    # Only what is encrypted pays for the import.
    from cryptography.exceptions import InvalidTag

    try:
        content = _cipher(passphrase, salt, cost).decrypt(
            nonce, sealed, _bound(kind, version, meta)
        )
    except InvalidTag:
        raise PassphraseError(
            f"The passphrase does not open {name}.",
            hint="check it; if it is right, the file is not the one that you saved.",
            code="passphrase.wrong",
            parameter="passphrase",
        ) from None
    limits.check(content, name)
    return read_container(content, kind, version)


def save_sealed(
    path: str | os.PathLike[str], content: bytes, what: str, *, force: bool = False
) -> None:
    """Write a secret file atomically, readable by its owner only.

    Without ``force`` an existing file is never replaced, not even one that another process writes
    at the same moment: of several writers exactly one succeeds.

    Raises InputError if the file exists, unless ``force``, and as `atomic_write` does.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_sealed(folder + "/x", b"secret", "note")
    ...     oct(os.stat(folder + "/x").st_mode & 0o777)
    '0o600'
    """
    if force:
        atomic_write(path, content, mode=_OWNER_ONLY)
        return
    target = os.path.abspath(path)
    try:
        if os.path.lexists(target):
            raise FileExistsError(target)
        _write_new(target, content)
    except FileExistsError:
        raise exists_error(path, what) from None


def _write_new(target: str, content: bytes) -> None:
    """Write a file that must not exist yet. Raises FileExistsError if it does."""
    folder, name = os.path.split(target)
    draft = os.path.join(folder, f".{name}.{secrets.token_hex(6)}.new")
    atomic_write(draft, content, mode=_OWNER_ONLY)
    will_write(target)
    try:
        # Unlike a rename, a link refuses to replace what is there.
        os.link(draft, target)
    except FileExistsError:
        raise
    except OSError:
        # A file system without hard links: creating the file is exclusive all the same.
        _create(target, content)
    finally:
        with suppress(OSError):
            os.unlink(draft)


def _create(target: str, content: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    descriptor = os.open(target, flags, _OWNER_ONLY)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        with suppress(OSError):
            os.unlink(target)
        raise


def warn_if_readable(path: str | os.PathLike[str], what: str) -> None:
    """Warn if others than its owner may read a secret file, where the system has such permissions.

    Raises OSError if there is no such file.
    """
    if os.name != "posix":
        return
    mode = stat.S_IMODE(os.stat(path).st_mode)
    if mode & 0o077:
        warnings.warn(
            f"{os.fspath(path)} is a secret {what}, but others may read it (mode {mode:04o}). "
            f"Hint: chmod 600 {os.fspath(path)}",
            stacklevel=3,
        )


def _read_how(meta: Meta, arrays: Arrays, name: str) -> tuple[bytes, bytes, ScryptCost, bytes]:
    if meta.keys() != {"cipher", "scrypt", "salt", "nonce"} or arrays.keys() != {"sealed"}:
        raise FileFormatError(f"{name} does not say how it is encrypted.", FOREIGN, "file.cipher")
    if meta["cipher"] != CIPHER:
        raise FileFormatError(
            f"{name} is encrypted in an unknown way, {meta['cipher']!r}.",
            "pip install --upgrade timbermark",
            "file.cipher",
        )
    salt, nonce = _read_hex(meta["salt"], _SALT_BYTES), _read_hex(meta["nonce"], _NONCE_BYTES)
    sealed = arrays["sealed"]
    if salt is None or nonce is None or sealed.dtype != np.uint8 or sealed.ndim != 1:
        raise FileFormatError(f"{name} does not say how it is encrypted.", FOREIGN, "file.cipher")
    asked = meta["scrypt"]
    if not isinstance(asked, dict) or asked.keys() != {"n", "r", "p"}:
        raise FileFormatError(f"{name} does not say what a guess costs.", FOREIGN, "file.cost")
    cost = ScryptCost(**asked)
    if not cost.is_bearable():
        raise FileFormatError(
            f"{name} asks for scrypt with n={cost.n}, r={cost.r}, p={cost.p}, which is out of "
            "bounds.",
            FOREIGN,
            "file.cost",
        )
    return salt, nonce, cost, sealed.tobytes()


def _read_hex(text: object, n_bytes: int) -> bytes | None:
    if isinstance(text, str) and len(text) == 2 * n_bytes and _HEX.fullmatch(text):
        return bytes.fromhex(text)
    return None


def _bound(kind: str, version: int, how: Mapping[str, Any]) -> bytes:
    """Return what the cipher authenticates beside the content.

    Any change to it makes decryption fail as a wrong passphrase does.
    """
    return _DOMAIN + json.dumps({**how, "kind": kind, "version": version}, sort_keys=True).encode()


def _cipher(passphrase: str, salt: bytes, cost: ScryptCost) -> Any:
    if not isinstance(passphrase, str) or not passphrase or not _is_unicode(passphrase):
        raise PassphraseError(
            "The passphrase is empty or not text.",
            hint="several random words are a good one.",
            code="passphrase.empty",
            parameter="passphrase",
        )
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

    secret = unicodedata.normalize("NFC", passphrase).encode()
    scrypt = Scrypt(salt=salt, length=_KEY_BYTES, n=cost.n, r=cost.r, p=cost.p)
    try:
        return AESGCM(scrypt.derive(secret))
    except MemoryError:
        raise InputError(
            f"Checking the passphrase takes {cost.memory >> 20} MiB of memory, too much here.",
            hint="end other programs and try again.",
            code="memory",
        ) from None


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
