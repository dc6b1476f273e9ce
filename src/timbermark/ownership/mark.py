"""The mark: the secret set of triggers, and what their symbols derive from."""

import hashlib
import hmac
import os
import re
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from timbermark.dtypes import (
    CLASS_INDEX,
    FEATURE_VALUE,
    AnyArray,
    ClassIndices,
    Rows,
    SmallKinds,
)
from timbermark.errors import FileFormatError, InputError
from timbermark.ownership.keys import KEY_BYTES, MARK_ID_BYTES, OwnerKey
from timbermark.ownership.labels import Label, check_classes
from timbermark.ownership.plain import Plain, encode, freeze, is_unicode, thaw
from timbermark.ownership.sealing import save_sealed, seal, unseal, warn_if_readable
from timbermark.ownership.symbols import ALPHABET_SIZES, derive_symbols

KIND = "mark"
FORMAT_VERSION = 1
"""Raised whenever a reader of the present version would refuse a new file."""
PROTOCOL = 1
"""Raised whenever the same content would give other symbols."""
MAX_TRIGGERS = 1 << 14

_DIGEST_DOMAIN = b"timbermark/everything-else/1"
_HEX_DIGEST = re.compile(r"[0-9a-f]{64}")
_TIME = "%Y-%m-%dT%H:%M:%SZ"
_LONGEST_OWNER = 200
_META = ("protocol", "owner", "model_digest", "feature_names", "classes", "created", "about")
_ARRAYS = {"triggers": FEATURE_VALUE, "alphabets": CLASS_INDEX}
_FOREIGN = "it was not written by timbermark, do not trust it."


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Mark:
    """k triggers of d features, each with an alphabet of q labels, and the secret of the mark.

    Everything here but the id and the owner's name is secret, and none of it is printed. The
    symbols are derived from all of it and never stored: whatever is changed, they become others.
    Construction copies the arrays, makes them read-only, and takes -0.0 as 0.0 and every NaN as
    the same one, because no tree can tell them apart. Two marks are equal if all of it is.

    Raises InputError if anything is not as stated below.

    >>> mark = Mark.make(
    ...     OwnerKey.generate(), owner="Ann", model_digest="0" * 64, classes=["no", "yes"],
    ...     triggers=[[0.5, 1.0], [2.0, np.nan]], alphabets=[[0, 1], [1, 0]],
    ... )
    >>> mark.n_triggers, mark.q, set(mark.expected) <= {"no", "yes"}
    (2, 2, True)
    >>> Mark.from_bytes(mark.to_bytes()) == mark
    True
    """

    protocol: int  # how symbols are derived: 1
    mark_id: bytes  # 16 random bytes, not secret
    secret: bytes = field(repr=False)  # 32 bytes, from the owner key and the id
    owner: str  # whom the mark speaks for, 1 to 200 characters
    model_digest: str  # SHA-256 of the unmarked model, 64 hexadecimal digits
    feature_names: tuple[str, ...] | None  # d distinct names, or none are known
    classes: tuple[Label, ...]  # all labels of the model, of one type, in its order
    triggers: Rows  # float64 [k, d], distinct rows, finite or NaN
    alphabets: ClassIndices  # int32 [k, q] of distinct class numbers, keep first; q is 2 or 4
    created: str  # UTC, as 2030-12-31T23:59:59Z
    about: Mapping[str, Plain]  # how it was made, free-form plain values

    def __post_init__(self) -> None:
        _check_scalars(self)
        put = object.__setattr__
        put(self, "classes", check_classes(self.classes))
        put(self, "triggers", _freeze_triggers(self.triggers))
        put(self, "alphabets", _freeze_alphabets(self.alphabets, self.triggers, self.classes))
        put(self, "feature_names", _freeze_names(self.feature_names, self.triggers.shape[1]))
        if not isinstance(self.about, Mapping):
            raise InputError("about is not a dictionary.", hint="use {} if there is nothing.")
        put(self, "about", freeze(self.about, "about"))

    @classmethod
    def make(
        cls,
        key: OwnerKey,
        *,
        owner: str,
        model_digest: str,
        classes: Iterable[Label],
        triggers: ArrayLike,
        alphabets: ArrayLike,
        feature_names: Iterable[str] | None = None,
        about: Mapping[str, Any] | None = None,
    ) -> "Mark":
        """Return a new mark with an id and a secret of its own, made now. See the class.

        To exchange triggers later, use `dataclasses.replace`: the symbols are then others.
        """
        mark_id = secrets.token_bytes(MARK_ID_BYTES)
        return cls(
            protocol=PROTOCOL,
            mark_id=mark_id,
            secret=key.mark_secret(mark_id),
            owner=owner,
            model_digest=model_digest,
            feature_names=None if feature_names is None else tuple(feature_names),
            classes=tuple(classes),
            triggers=_matrix(triggers, "triggers"),
            alphabets=_matrix(alphabets, "alphabets"),
            created=datetime.now(UTC).strftime(_TIME),
            about={} if about is None else about,
        )

    @property
    def n_triggers(self) -> int:
        """k."""
        return len(self.triggers)

    @property
    def n_features(self) -> int:
        """d."""
        return int(self.triggers.shape[1])

    @property
    def q(self) -> int:
        """The size of the alphabets, 2 or 4."""
        return int(self.alphabets.shape[1])

    @property
    def digest(self) -> bytes:
        """The SHA-256 of everything but the secret, in the encoding of docs/mark-format.md."""
        record = {
            **{name: getattr(self, name) for name in _META},
            "mark_id": self.mark_id,
            "q": self.q,
            "shape": self.triggers.shape,
            "triggers": self.triggers.astype("<f8").tobytes(),
            "alphabets": self.alphabets.astype("<i4").tobytes(),
        }
        return hashlib.sha256(_DIGEST_DOMAIN + encode(record)).digest()

    @property
    def symbols(self) -> SmallKinds:
        """Which label of its alphabet each trigger carries, uint8 [k]; 0 is keep."""
        return derive_symbols(self.secret, self.digest, self.n_triggers, self.q)

    @property
    def expected_numbers(self) -> ClassIndices:
        """The class number that each symbol asks for, int32 [k]."""
        asked: ClassIndices = self.alphabets[np.arange(self.n_triggers), self.symbols]
        return asked

    @property
    def expected(self) -> tuple[Label, ...]:
        """The label that each symbol asks for."""
        return tuple(self.classes[number] for number in self.expected_numbers)

    def made_with(self, key: OwnerKey) -> bool:
        """Return whether this mark's secret comes from the key."""
        return hmac.compare_digest(self.secret, key.mark_secret(self.mark_id))

    def to_bytes(self, passphrase: str | None = None) -> bytes:
        """Return the mark as its file, encrypted if with a passphrase.

        The law: ``Mark.from_bytes(mark.to_bytes()) == mark``, with or without a passphrase.
        """
        meta = {name: thaw(getattr(self, name)) for name in _META}
        meta |= {"mark_id": self.mark_id.hex(), "secret": self.secret.hex()}
        arrays: dict[str, AnyArray] = {name: getattr(self, name) for name in _ARRAYS}
        return seal(KIND, FORMAT_VERSION, meta, arrays, passphrase)

    @classmethod
    def from_bytes(cls, data: bytes, passphrase: str | None = None) -> "Mark":
        """Return the mark that `to_bytes` wrote.

        Raises PassphraseError if the passphrase does not fit, FileFormatError if it is anything
        but a whole and sound mark.
        """
        return cls._read(data, "The data", passphrase)

    def save(
        self, path: str | os.PathLike[str], passphrase: str | None = None, force: bool = False
    ) -> None:
        """Write the mark to a file that only its owner may read, encrypted if with a passphrase.

        Raises InputError if the file exists, unless ``force``, or if the passphrase is empty.
        """
        save_sealed(path, self.to_bytes(passphrase), "mark", force=force)

    @classmethod
    def load(cls, path: str | os.PathLike[str], passphrase: str | None = None) -> "Mark":
        """Read what `save` wrote; warns if others may read the file.

        Raises as `from_bytes` does, and OSError if the file cannot be opened.
        """
        mark = cls._read(path, os.fspath(path), passphrase)
        warn_if_readable(path, "mark")
        return mark

    @classmethod
    def _read(
        cls, source: str | os.PathLike[str] | bytes, name: str, passphrase: str | None
    ) -> "Mark":
        _, meta, arrays = unseal(source, KIND, FORMAT_VERSION, passphrase)
        if meta.keys() != {*_META, "mark_id", "secret"} or arrays.keys() != _ARRAYS.keys():
            raise FileFormatError(f"{name} does not hold exactly the parts of a mark.", _FOREIGN)
        for part, dtype in _ARRAYS.items():
            if arrays[part].dtype != dtype:
                raise FileFormatError(
                    f"{name}: {part} has the type {arrays[part].dtype}, not "
                    f"{np.dtype(dtype).name}.",
                    _FOREIGN,
                )
        if type(meta["protocol"]) is int and meta["protocol"] > PROTOCOL:
            raise FileFormatError(
                f"{name} uses protocol {meta['protocol']}, this timbermark knows {PROTOCOL}.",
                "pip install --upgrade timbermark",
            )
        content: dict[str, Any] = {**meta, **arrays}
        try:
            for part in ("mark_id", "secret"):
                content[part] = _from_hex(part, meta[part])
            return cls(**content)
        except InputError as error:
            raise FileFormatError(
                f"{name} holds no sound mark. {error.message}", _FOREIGN
            ) from None

    def __repr__(self) -> str:
        return (
            f"Mark(mark_id={self.mark_id.hex()!r}, owner={self.owner!r}, created={self.created!r}, "
            f"n_triggers={self.n_triggers}, q={self.q})"
        )

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Mark)
            and self.digest == other.digest
            and hmac.compare_digest(self.secret, other.secret)
        )

    def __hash__(self) -> int:
        return hash(self.digest)

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy from another process passes through the constructor, and so is read-only as well.
        parts = [getattr(self, part.name) for part in fields(self)]
        parts[-1] = thaw(self.about)
        return Mark, tuple(parts)


def _check_scalars(mark: Mark) -> None:
    _require(
        type(mark.protocol) is int and mark.protocol == PROTOCOL,
        f"protocol={mark.protocol!r} is not known",
        f"this timbermark knows protocol {PROTOCOL}.",
    )
    for name, size in (("mark_id", MARK_ID_BYTES), ("secret", KEY_BYTES)):
        value = getattr(mark, name)
        _require(
            isinstance(value, bytes) and len(value) == size,
            f"{name} is not {size} bytes",
            "Mark.make draws it.",
        )
    _require(
        type(mark.owner) is str
        and mark.owner.strip() != ""
        and len(mark.owner) <= _LONGEST_OWNER
        and is_unicode(mark.owner),
        f"owner is not a name of 1 to {_LONGEST_OWNER} characters",
        "name a person or an organisation.",
    )
    _require(
        isinstance(mark.model_digest, str) and _HEX_DIGEST.fullmatch(mark.model_digest) is not None,
        "model_digest is not 64 hexadecimal digits",
        "take the SHA-256 of the unmarked model.",
    )
    _require(
        isinstance(mark.created, str) and _is_time(mark.created),
        f"created={mark.created!r} is not a time like 2030-12-31T23:59:59Z",
        "give it in UTC, to the second.",
    )


def _is_time(text: str) -> bool:
    try:
        return datetime.strptime(text, _TIME).strftime(_TIME) == text
    except ValueError:
        return False


def _freeze_triggers(given: ArrayLike) -> Rows:
    array = _matrix(given, "triggers")
    _require(
        array.ndim == 2 and array.dtype.kind in "biuf",
        f"triggers of type {array.dtype} and shape {array.shape} are no matrix of numbers",
        "give one row per trigger and one column per feature.",
    )
    k, d = array.shape
    _require(
        1 <= k <= MAX_TRIGGERS and d >= 1,
        f"{k} triggers of {d} features are out of bounds",
        f"a mark has 1 to {MAX_TRIGGERS} triggers of at least one feature.",
    )
    triggers = np.array(array, dtype=FEATURE_VALUE, order="C")
    with np.errstate(invalid="ignore"):
        exact = array.dtype.kind not in "iu" or (triggers.astype(array.dtype) == array).all()
    _require(
        bool(exact) and not np.isinf(triggers).any(),
        "the triggers hold infinity or whole numbers beyond 2^53",
        "use rows that every suspect can be asked.",
    )
    triggers += 0.0  # turns -0.0 into 0.0
    triggers[np.isnan(triggers)] = np.nan
    _require(
        len({row.tobytes() for row in triggers}) == k,
        "two triggers are the same row",
        "two contradicting copies cannot both be obeyed; give distinct rows.",
    )
    triggers.flags.writeable = False
    return triggers


def _freeze_alphabets(given: ArrayLike, triggers: Rows, classes: tuple[Label, ...]) -> ClassIndices:
    array = _matrix(given, "alphabets")
    _require(
        array.ndim == 2 and array.dtype.kind in "iu",
        f"alphabets of type {array.dtype} and shape {array.shape} are no matrix of class numbers",
        "give one row of q class numbers per trigger.",
    )
    k, q = array.shape
    _require(k == len(triggers), f"{len(triggers)} triggers have {k} alphabets", "give one each.")
    _require(q in ALPHABET_SIZES, f"the alphabets have {q} labels", "use 2 or 4.")
    _require(
        bool((array >= 0).all() and (array < len(classes)).all()),
        f"an alphabet has a class number outside 0 to {len(classes) - 1}",
        "alphabets hold numbers of classes, not labels.",
    )
    ordered = np.sort(array, axis=1)
    _require(
        bool((ordered[:, 1:] != ordered[:, :-1]).all()),
        "an alphabet has the same class twice",
        "the labels of an alphabet must differ.",
    )
    alphabets = np.array(array, dtype=CLASS_INDEX, order="C")
    alphabets.flags.writeable = False
    return alphabets


def _matrix(given: ArrayLike, name: str) -> AnyArray:
    try:
        return np.asarray(given)
    except ValueError:
        raise InputError(
            f"The {name} are rows of different lengths.", hint="give a matrix."
        ) from None


def _freeze_names(given: object, d: int) -> tuple[str, ...] | None:
    if given is None:
        return None
    names = tuple(given) if isinstance(given, list | tuple | np.ndarray) else ()
    names = tuple(name.item() if isinstance(name, np.str_) else name for name in names)
    _require(
        all(type(name) is str and is_unicode(name) for name in names)
        and len(set(names)) == len(names) == d,
        f"feature_names are not {d} distinct texts",
        "give one name per feature, or None.",
    )
    return names


def _from_hex(part: str, text: object) -> bytes:
    _require(
        isinstance(text, str) and re.fullmatch(r"(?:[0-9a-f]{2})*", text) is not None,
        f"{part} is not in hexadecimal digits",
        "",
    )
    return bytes.fromhex(str(text))


def _require(holds: bool, message: str, hint: str) -> None:
    if not holds:
        raise InputError(f"{message[0].upper()}{message[1:]}.", hint=hint)
