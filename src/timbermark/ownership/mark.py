"""The mark: the secret set of triggers, and what their symbols derive from."""

import hashlib
import hmac
import os
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from typing import Any, NoReturn, TypeVar

import numpy as np
from numpy.typing import NDArray

from timbermark.dtypes import CLASS_INDEX, AnyArray, ClassIndices, SmallKinds
from timbermark.errors import FileFormatError, InputError
from timbermark.files.encrypting import save_sealed, warn_if_readable
from timbermark.ownership.columns import (
    MAX_TRIGGERS,
    Column,
    join_columns,
    kinds_of_columns,
)
from timbermark.ownership.encoding import (
    FOREIGN,
    TIME_FORMAT,
    Plain,
    check_bytes,
    check_count,
    check_digest,
    check_name,
    check_time,
    encode,
    freeze,
    is_unicode,
    require,
)
from timbermark.ownership.evidence import Price, full_bits, price_of_draws
from timbermark.ownership.keys import KEY_BYTES, MARK_ID_BYTES, OwnerKey
from timbermark.ownership.mark_file import check_fits, mark_to_bytes, read_mark
from timbermark.ownership.seals import (
    NO_ALTERNATIVES,
    DrawnSeal,
    Label,
    LeafSeal,
    Seal,
    SplitSeal,
    agree_on_missing,
    check_classes,
)
from timbermark.ownership.symbols import (
    ALPHABET_SIZES,
    derive_salts,
    derive_seed,
    derive_symbols,
    encode_records,
    hash_leaf,
    merkle_root,
    query_numbers,
)

Derived = TypeVar("Derived")
Array = TypeVar("Array", bound=AnyArray)
PROTOCOL = 3
"""Raised whenever the same content would give other symbols or other evidence."""
ANSWERS = ("classes", "numbers")
"""What the suspects of a mark answer with: labels or scores of classes, or numbers."""
IN_BOTH = (
    *("protocol", "mark_id", "claim_key", "owner", "model_digest", "feature_names", "classes"),
    *("answers", "draws", "created"),
)
"""What a mark and its head have in common, by name."""
MAX_DRAWS = 1 << 32
_DIGEST_DOMAIN = b"timbermark/mark-digest/3"
_SECRET_DOMAIN = b"timbermark/secret/3"
_ABOUT_DOMAIN = b"timbermark/about/3"


@dataclass(frozen=True, slots=True)
class Head:
    """What a mark's digest commits to, with a Merkle root in place of the triggers.

    A judge who is shown some of the triggers gets the head as it is, and checks both against the
    digest. It reveals nothing about the secret, the triggers or ``about``.
    """

    protocol: int
    mark_id: bytes
    claim_key: bytes
    secret_digest: bytes  # SHA-256 of the mark's secret
    owner: str
    model_digest: str
    feature_names: tuple[str, ...] | None
    columns: tuple[str, ...]  # "numbers" or "texts" for each
    classes: tuple[Label, ...]
    answers: str
    q: int
    n_leaves: int
    n_splits: int
    draws: int
    created: str
    about_digest: bytes  # SHA-256 of how the mark was made, with the secret
    root: bytes  # of the Merkle tree over the triggers' records

    @property
    def digest(self) -> bytes:
        """Return the mark's digest: SHA-256 of all fields, encoded as in docs/mark-format.md."""
        record = {field.name: getattr(self, field.name) for field in fields(self)}
        return hashlib.sha256(_DIGEST_DOMAIN + encode(record)).digest()

    @property
    def n_triggers(self) -> int:
        """Return the number of triggers of both seals."""
        return self.n_leaves + self.n_splits


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Mark:
    """Triggers in leaves, in splits or in both, and the secret that their symbols derive from.

    Triggers are numbered over both seals, those of the leaf seal first. Everything here but the id,
    the owner's name and key and the time is secret, and none of it is printed. The symbols are
    derived from all of it and never stored: whatever is changed, they become others. Construction
    checks and copies every part and makes it read-only. Two marks are equal if all of it is.

    Raises InputError if anything is not as stated below.

    >>> mark = Mark.make(
    ...     OwnerKey.generate(), owner="Ann", model_digest="0" * 64, classes=["no", "yes"],
    ...     triggers=[[0.5, "red"], [2.0, None]], alphabets=[[0, 1], [1, 0]],
    ...     reference=[[0.9, 0.1], [0.3, 0.7]],
    ... )
    >>> mark.n_triggers, mark.q, set(mark.expected) <= {"no", "yes"}
    (2, 2, True)
    >>> Mark.from_bytes(mark.to_bytes()) == mark
    True
    """

    protocol: int  # how symbols are derived and evidence is computed: 3
    mark_id: bytes  # 16 random bytes, not secret
    claim_key: bytes  # the owner's public Ed25519 key, 32 bytes: only it can sign claims
    secret: bytes = field(repr=False)  # 32 bytes, from the owner key and the id
    owner: str  # whom the mark speaks for, 1 to 200 printable characters
    model_digest: str  # SHA-256 of the unmarked model, 64 hexadecimal digits
    feature_names: tuple[str, ...] | None  # d distinct names, or None if they are not known
    classes: tuple[Label, ...]  # all K labels of the model, of one type, in its order; or none
    answers: str  # what a suspect answers with: "classes" or "numbers"
    leaves: LeafSeal | None
    splits: SplitSeal | None
    draws: int  # how many sets of symbols were derived until this one was kept, from 1
    created: str  # UTC, as 2030-12-31T23:59:59Z
    about: Mapping[str, Plain]  # how it was made, free-form plain values
    # Deriving the symbols takes a fraction of a second: once for each instance is enough.
    _derived: dict[str, Any] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        check_bytes("mark_id", self.mark_id, MARK_ID_BYTES)
        check_bytes("claim_key", self.claim_key, KEY_BYTES)
        check_bytes("secret", self.secret, KEY_BYTES)
        check_stated(self)
        check_time("created", self.created)
        classes = check_answers(self.answers, self.classes)
        if not isinstance(self.about, Mapping):
            raise InputError(
                "about is not a dictionary.",
                hint="use {} if there is nothing.",
                code="field.about",
            )
        seals = {
            seal.name: seal.frozen(classes) for seal in agree_on_missing(self.leaves, self.splits)
        }
        frozen = {
            "classes": classes,
            **seals,
            "draws": int(self.draws),
            "about": freeze(self.about, "about"),
        }
        for name, value in frozen.items():
            object.__setattr__(self, name, value)
        self._check_seals()
        object.__setattr__(self, "feature_names", check_names(self.feature_names, self.n_features))
        check_fits(self)

    def _check_seals(self) -> None:
        require(
            bool(self.seals), "a mark without triggers proves nothing", "give a seal.", "seals.none"
        )
        kinds = {kinds_of_columns(seal.columns) for seal in self.seals}
        require(
            len(kinds) == 1,
            "the seals have different columns",
            "give both the model's.",
            "seals.columns",
        )
        require(
            self.n_triggers <= MAX_TRIGGERS,
            f"{self.n_triggers} triggers are too many",
            f"a mark has at most {MAX_TRIGGERS}.",
            "seals.count",
        )

    @classmethod
    def make(
        cls,
        key: OwnerKey,
        *,
        owner: str,
        model_digest: str,
        classes: Iterable[Label] = (),
        answers: str = "classes",
        triggers: Any = None,
        alphabets: Any = None,
        reference: Any = None,
        alternatives: Any = NO_ALTERNATIVES,
        splits: SplitSeal | None = None,
        guarded: DrawnSeal | None = None,
        feature_names: Iterable[str] | None = None,
        draws: int = 1,
        about: Mapping[str, Any] | None = None,
        mark_id: bytes | None = None,
        created: str | None = None,
    ) -> "Mark":
        """Return a new mark with an id and a secret of its own, made now. See the class.

        ``mark_id`` and ``created`` are drawn and read from the clock unless they are given.

        ``triggers`` are the rows of the leaf seal: a matrix [k, d] of numbers, an object matrix or
        list of rows whose columns hold numbers or texts, or a data frame. ``alphabets`` [k, q],
        ``reference`` [k, K] and ``alternatives`` [k, R, q] are those of `LeafSeal`. ``splits`` is
        the split seal. With ``answers="numbers"`` there are no classes, and no leaf seal but
        in the mark of a guard: ``guarded`` holds the questions of a guard in place of triggers.
        """
        mark_id = secrets.token_bytes(MARK_ID_BYTES) if mark_id is None else mark_id
        leaves = (
            guarded
            if triggers is None
            else LeafSeal.make(triggers, alphabets, reference, alternatives)
        )
        return cls(
            protocol=PROTOCOL,
            mark_id=mark_id,
            claim_key=key.claim_key,
            secret=key.mark_secret(mark_id),
            owner=owner,
            model_digest=model_digest,
            feature_names=None if feature_names is None else tuple(feature_names),
            classes=tuple(classes),
            answers=answers,
            leaves=leaves,
            splits=splits,
            draws=draws,
            created=datetime.now(UTC).strftime(TIME_FORMAT) if created is None else created,
            about={} if about is None else about,
        )

    def with_draws(self, draws: int) -> "Mark":
        """Return the same mark with another number of draws, and therefore with other symbols.

        ``mark.with_draws(mark.draws + 1)`` draws again; what that costs in evidence is counted.
        """
        return replace(self, draws=draws)

    @property
    def seals(self) -> tuple[Seal, ...]:
        """Return the seals that the mark has, leaves first."""
        return tuple(seal for seal in (self.leaves, self.splits) if seal is not None)

    @property
    def n_leaves(self) -> int:
        """Return the number of triggers in leaves."""
        return 0 if self.leaves is None else len(self.leaves.alphabets)

    @property
    def n_splits(self) -> int:
        """Return the number of triggers in splits."""
        return 0 if self.splits is None else len(self.splits.features)

    @property
    def n_triggers(self) -> int:
        """Return the number of triggers of both seals."""
        return self.n_leaves + self.n_splits

    @property
    def n_rows(self) -> int:
        """Return the number of rows to ask: one for a trigger in leaves, three in splits."""
        return self.n_leaves + 3 * self.n_splits

    @property
    def n_features(self) -> int:
        """Return the number of columns d."""
        return len(self.seals[0].columns)

    @property
    def q(self) -> int:
        """Return the size of the leaf seal's alphabets, 2 or 4; 2 without a leaf seal."""
        return 2 if self.leaves is None else self.leaves.q

    @property
    def full_bits(self) -> float:
        """Return the bits of evidence if a suspect carries every symbol, after all prices."""
        return full_bits(self.n_leaves, self.q, self.n_splits, self.prices)

    @property
    def prices(self) -> tuple[Price, ...]:
        """Return what is subtracted from the evidence of any suspect: for the draws of symbols."""
        return price_of_draws(self.draws)

    @property
    def columns(self) -> tuple[Column, ...]:
        """Return all rows to ask, as d columns: those of leaf triggers, then three for each split.

        A column holds float64 numbers, or texts with None for a missing one.
        """
        return self._once("columns", self._join_seals)

    def _join_seals(self) -> tuple[Column, ...]:
        if len(self.seals) == 1:
            return self.seals[0].rows()
        pairs = zip(*(seal.rows() for seal in self.seals), strict=True)
        return tuple(
            _read_only(np.concatenate(pair)) if isinstance(pair[0], np.ndarray) else sum(pair, ())
            for pair in pairs
        )

    @property
    def kinds(self) -> tuple[str, ...]:
        """Return "numbers" or "texts" for each column."""
        return kinds_of_columns(self.seals[0].columns)

    @property
    def has_texts(self) -> bool:
        """Return whether any column holds texts."""
        return "texts" in self.kinds

    def rows(self) -> AnyArray:
        """Return all rows to ask as a new matrix: float64, or of objects if there are texts.

        >>> Mark.make(
        ...     OwnerKey.generate(), owner="Ann", model_digest="0" * 64, classes=[0, 1],
        ...     triggers=[[0.5, "red"]], alphabets=[[0, 1]], reference=[[0.9, 0.1]],
        ... ).rows()
        array([[0.5, 'red']], dtype=object)
        """
        return join_columns(self.columns)

    @property
    def places(self) -> Sequence[int]:
        """Return the place of each trigger in the mark."""
        return range(self.n_triggers)

    @property
    def salts(self) -> tuple[bytes, ...]:
        """Return the secret salt of each trigger, 32 bytes."""
        return self._once("salts", lambda: tuple(derive_salts(self.secret, self.n_triggers)))

    @property
    def hashes(self) -> tuple[bytes, ...]:
        """Return the hash of each trigger's record, over which the Merkle root is built."""
        return self._once("hashes", lambda: tuple(map(hash_leaf, self.records())))

    def records(self) -> list[bytes]:
        """Return the bytes of each trigger's record; see `encode_records`."""
        found: list[bytes] = []
        for seal in self.seals:
            part = slice(len(found), len(found) + len(seal.columns[0]))
            arrays = {name: getattr(seal, name) for name in seal.types}
            found += encode_records(
                seal.name, self.places[part], self.salts[part], seal.columns, arrays
            )
        return found

    @property
    def head(self) -> Head:
        """Return what the digest is made of: all but the triggers, which the Merkle root covers."""
        return self._once("head", self._make_head)

    def _make_head(self) -> Head:
        about = _ABOUT_DOMAIN + self.secret + encode(self.about)
        return Head(
            **{name: getattr(self, name) for name in IN_BOTH},
            secret_digest=hashlib.sha256(_SECRET_DOMAIN + self.secret).digest(),
            columns=self.kinds,
            q=self.q,
            n_leaves=self.n_leaves,
            n_splits=self.n_splits,
            about_digest=hashlib.sha256(about).digest(),
            root=merkle_root(self.hashes),
        )

    @property
    def digest(self) -> bytes:
        """Return the SHA-256 that commits to all of the mark; see docs/mark-format.md."""
        return self._once("digest", lambda: self.head.digest)

    @property
    def symbols(self) -> SmallKinds:
        """Return the number of each trigger's symbol in its alphabet, uint8 [triggers]."""
        return self._once("symbols", self._derive_symbols)

    def _derive_symbols(self) -> SmallKinds:
        sizes = [self.q] * self.n_leaves + [2] * self.n_splits
        found = derive_symbols(self._seed, self.places, self.salts, sizes)
        if isinstance(self.leaves, DrawnSeal):
            found[: self.n_leaves] = self.leaves.drawn
        return _read_only(found)

    @property
    def leaf_symbols(self) -> SmallKinds:
        """Return the symbols of the leaf seal."""
        return self.symbols[: self.n_leaves]

    @property
    def split_symbols(self) -> SmallKinds:
        """Return the symbols of the split seal."""
        return self.symbols[self.n_leaves :]

    @property
    def order_numbers(self) -> NDArray[np.uint64]:
        """Return the numbers by which triggers of a seal are sorted to be asked, uint64."""
        given = self._seed, self.places, self.salts
        return self._once("order_numbers", lambda: _read_only(query_numbers(*given)))

    def order(self, seal: str) -> NDArray[np.int64]:
        """Return the triggers of one seal in the order of asking: their places in the seal."""
        part = slice(0, self.n_leaves) if seal == "leaves" else slice(self.n_leaves, None)
        return np.argsort(self.order_numbers[part], kind="stable").astype(np.int64)

    @property
    def _seed(self) -> bytes:
        return self._once("seed", lambda: derive_seed(self.digest))

    def _once(self, name: str, make: Callable[[], Derived]) -> Derived:
        """Return what ``make`` makes, which is made once for each instance."""
        if name not in self._derived:
            self._derived[name] = make()
        made: Derived = self._derived[name]
        return made

    @property
    def expected_numbers(self) -> ClassIndices:
        """Return the class number that each symbol of the leaf seal asks for, int32 [n_leaves]."""
        if self.leaves is None:
            return np.zeros(0, CLASS_INDEX)
        asked = self.leaves.alphabets[np.arange(self.n_leaves), self.leaf_symbols]
        return np.asarray(asked, CLASS_INDEX)

    @property
    def expected(self) -> tuple[Label, ...]:
        """Return the label that each symbol of the leaf seal asks for."""
        labels = self.classes or ("lower", "higher")
        return tuple(labels[number] for number in self.expected_numbers)

    @property
    def is_guard(self) -> bool:
        """Return whether the symbols are those of a guard: its key drew them, not the mark."""
        return isinstance(self.leaves, DrawnSeal)

    def made_with(self, key: OwnerKey) -> bool:
        """Return whether this mark's secret comes from the key.

        >>> key = OwnerKey.generate()
        >>> mark = Mark.make(
        ...     key, owner="Ann", model_digest="0" * 64, classes=[0, 1], triggers=[[0.5]],
        ...     alphabets=[[0, 1]], reference=[[0.9, 0.1]],
        ... )
        >>> mark.made_with(key), mark.made_with(OwnerKey.generate())
        (True, False)
        """
        return hmac.compare_digest(self.secret, key.mark_secret(self.mark_id))

    def to_bytes(self, passphrase: str | None = None) -> bytes:
        """Return the mark as its file, encrypted if there is a passphrase.

        The law: ``Mark.from_bytes(mark.to_bytes()) == mark``, with or without a passphrase.
        """
        return mark_to_bytes(self, passphrase)

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
        """Write the mark to a file that only its owner may read, encrypted with any passphrase.

        Raises InputError if the file exists, unless ``force``, or if the passphrase is empty.

        >>> import tempfile
        >>> mark = Mark.make(
        ...     OwnerKey.generate(), owner="Ann", model_digest="0" * 64, classes=[0, 1],
        ...     triggers=[[0.5]], alphabets=[[0, 1]], reference=[[0.9, 0.1]],
        ... )
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     mark.save(folder + "/a.mark")
        ...     Mark.load(folder + "/a.mark") == mark
        True
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
        try:
            return cls(**read_mark(source, name, passphrase))
        except InputError as error:
            if type(error) is not InputError:  # a passphrase that does not fit
                raise
            raise FileFormatError(
                f"{name} holds no sound mark. {error.message}", FOREIGN, error.code
            ) from None
        except MemoryError:
            raise FileFormatError(
                f"{name} needs more memory than there is.",
                "end other programs and try again.",
                "memory",
            ) from None

    def __repr__(self) -> str:
        return (
            f"Mark(mark_id={self.mark_id.hex()!r}, owner={self.owner!r}, created={self.created!r}, "
            f"n_leaves={self.n_leaves}, n_splits={self.n_splits})"
        )

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Mark)
            and self.digest == other.digest
            and hmac.compare_digest(self.secret, other.secret)
        )

    def __hash__(self) -> int:
        return hash(self.digest)

    def __copy__(self) -> "Mark":
        return self

    def __deepcopy__(self, memo: object) -> "Mark":
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "A mark cannot be pickled: its secret would lie in the open. Hint: pass the file that "
            "mark.save(path, passphrase) writes."
        )


def check_stated(record: Any) -> None:
    """Raise InputError unless what marks, heads and claims all state is known and within bounds."""
    require(
        type(record.protocol) is int and record.protocol == PROTOCOL,
        f"protocol={record.protocol!r} is not known",
        f"this timbermark knows protocol {PROTOCOL}.",
        "field.protocol",
    )
    check_name(record.owner, "owner")
    check_digest("model_digest", record.model_digest)
    require(
        record.answers in ANSWERS,
        f"answers={record.answers!r} is no known kind of answers",
        f"use one of {ANSWERS}.",
        "field.answers",
    )
    check_count("draws", record.draws, 1, MAX_DRAWS)


def check_counts(record: Any) -> None:
    """Raise InputError unless a head or a claim counts triggers as a mark can have them."""
    for name in ("n_leaves", "n_splits"):
        check_count(name, getattr(record, name), 0, MAX_TRIGGERS)
    check_count("q", record.q, 2, 4)
    require(record.q in ALPHABET_SIZES, f"q={record.q!r} is neither 2 nor 4", code="field.q")


def check_answers(answers: object, classes: Any) -> tuple[Label, ...]:
    """Return the classes of a mark; none where suspects answer with numbers.

    Raises InputError if the classes do not fit the kind of answers.

    >>> check_answers("classes", ["no", "yes"]), check_answers("numbers", [])
    (('no', 'yes'), ())
    """
    if answers == "classes":
        return check_classes(classes)
    require(
        isinstance(classes, list | tuple) and not classes,
        "a mark of numbers has classes",
        "leave them out: the suspect answers with numbers.",
        "field.classes",
    )
    return ()


def check_names(given: Any, d: int) -> tuple[str, ...] | None:
    """Return the names of d features, or None if they are not known.

    Raises InputError unless they are d distinct texts.

    >>> check_names(["a", "b"], 2)
    ('a', 'b')
    """
    if given is None:
        return None
    names = tuple(given) if isinstance(given, list | tuple | np.ndarray) else ()
    names = tuple(name.item() if isinstance(name, np.str_) else name for name in names)
    require(
        all(type(name) is str and is_unicode(name) for name in names)
        and len(set(names)) == len(names) == d,
        f"feature_names are not {d} distinct texts",
        "give one name for each feature, or None.",
        "field.feature_names",
    )
    return names


def _read_only(array: Array) -> Array:
    array.flags.writeable = False
    return array
