"""The mark: the secret set of triggers, and what their symbols derive from."""

import hashlib
import hmac
import math
import os
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, NoReturn, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from timbermark.dtypes import CLASS_INDEX, AnyArray, ClassIndices, Reals, Rows, SmallKinds
from timbermark.errors import FileFormatError, InputError
from timbermark.ownership import mark_checks
from timbermark.ownership.columns import (
    Column,
    freeze_columns,
    join_columns,
    kinds_of_columns,
    split_columns,
)
from timbermark.ownership.encoding import Plain, encode, freeze
from timbermark.ownership.head import Head
from timbermark.ownership.keys import MARK_ID_BYTES, OwnerKey
from timbermark.ownership.labels import Label
from timbermark.ownership.mark_file import (
    check_fits,
    mark_to_bytes,
    not_sound,
    read_mark,
)
from timbermark.ownership.merkle import hash_leaf, merkle_root
from timbermark.ownership.records import derive_salts, encode_records
from timbermark.ownership.sealing import save_sealed, warn_if_readable
from timbermark.ownership.symbols import (
    derive_seed,
    derive_symbols,
    query_numbers,
    query_order,
)
from timbermark.ownership.verdict import Price, price_of_draws

Derived = TypeVar("Derived")
Array = TypeVar("Array", bound=AnyArray)
_SECRET_DOMAIN = b"timbermark/secret/2"
_ABOUT_DOMAIN = b"timbermark/about/2"


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Mark:
    """k triggers of d features, each with an alphabet of q answers, and the secret of the mark.

    Where suspects answer with classes, a trigger is a row, and its alphabet are labels. Where they
    answer with numbers, it is a pair of rows that differ little, and its alphabet are levels of the
    difference between both answers.

    Everything here but the id, the owner's name and the time is secret, and none of it is printed.
    The symbols are derived from all of it and never stored: whatever is changed, they become
    others. Construction checks and copies every part and makes it read-only. Two marks are equal
    if all of it is. `dataclasses.replace` gives a mark with other parts, and so with other symbols.

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

    protocol: int  # how symbols are derived and evidence is computed: 2
    mark_id: bytes  # 16 random bytes, not secret
    secret: bytes = field(repr=False)  # 32 bytes, from the owner key and the id
    owner: str  # whom the mark speaks for, 1 to 200 printable characters
    model_digest: str  # SHA-256 of the unmarked model, 64 hexadecimal digits
    feature_names: tuple[str, ...] | None  # d distinct names, or None if they are not known
    classes: tuple[Label, ...]  # all K labels of the model, of one type, in its order; or none
    answers: str  # what a suspect answers with: "classes" or "numbers"
    columns: tuple[Column, ...]  # d columns of k rows, or of 2k, each float64 or texts
    # int32 [k, q] of distinct class numbers, keep first, or float64 [k, q] of rising levels of the
    # second answer minus the first; q is 2 or 4
    alphabets: ClassIndices | Reals
    # float64 [k, K], the unmarked model's probabilities, from 1e-6 to 1, or [k, 2], its numbers
    reference: Reals
    draws: int  # how many sets of symbols were derived until this one was kept, from 1
    created: str  # UTC, as 2030-12-31T23:59:59Z
    about: Mapping[str, Plain]  # how it was made, free-form plain values
    # float64 [k, R, q], from 1e-6 to 1: scores of the alphabets' labels by R models without the
    # mark, such as thieves might make; none with numbers
    alternatives: Reals = field(default_factory=lambda: mark_checks.NO_ALTERNATIVES)
    # Deriving the symbols takes a fraction of a second: once for each instance is enough.
    _derived: dict[str, Any] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        mark_checks.check_protocol(self.protocol)
        mark_checks.check_secrets(self.mark_id, self.secret)
        mark_checks.check_words(self.owner, self.model_digest, self.answers, self.created)
        if not isinstance(self.about, Mapping):
            raise InputError("about is not a dictionary.", hint="use {} if there is nothing.")
        columns = freeze_columns(self.columns)
        k, d = mark_checks.count_triggers(len(columns[0]), self.answers), len(columns)
        frozen = {
            "columns": columns,
            **mark_checks.freeze_answers(self, k),
            "feature_names": mark_checks.freeze_names(self.feature_names, d),
            "draws": mark_checks.check_draws(self.draws),
            "about": freeze(self.about, "about"),
        }
        for name, value in frozen.items():
            object.__setattr__(self, name, value)
        check_fits(self)

    @classmethod
    def make(
        cls,
        key: OwnerKey,
        *,
        owner: str,
        model_digest: str,
        classes: Iterable[Label] = (),
        answers: str = "classes",
        triggers: Any,
        alphabets: ArrayLike,
        reference: ArrayLike,
        alternatives: ArrayLike = mark_checks.NO_ALTERNATIVES,
        feature_names: Iterable[str] | None = None,
        draws: int = 1,
        about: Mapping[str, Any] | None = None,
    ) -> "Mark":
        """Return a new mark with an id and a secret of its own, made now. See the class.

        ``triggers`` is a matrix [k, d] of numbers, an object matrix or list of rows whose columns
        hold numbers or texts, or a data frame. ``reference`` [k, K] are the unmarked model's
        probabilities on them, ``alternatives`` [k, R, q] those of other models for the labels of
        the alphabets. With ``answers="numbers"`` there are no classes, ``triggers`` is
        [2k, d], one pair of rows after the other, ``alphabets`` are levels of the second answer
        minus the first, and ``reference`` [k, 2] are the unmarked model's numbers.
        """
        mark_id = secrets.token_bytes(MARK_ID_BYTES)
        return cls(
            protocol=mark_checks.PROTOCOL,
            mark_id=mark_id,
            secret=key.mark_secret(mark_id),
            owner=owner,
            model_digest=model_digest,
            feature_names=None if feature_names is None else tuple(feature_names),
            classes=tuple(classes),
            answers=answers,
            columns=split_columns(triggers),
            alphabets=np.asarray(alphabets),
            reference=np.asarray(reference),
            alternatives=np.asarray(alternatives),
            draws=draws,
            created=datetime.now(UTC).strftime(mark_checks.TIME_FORMAT),
            about={} if about is None else about,
        )

    def with_draws(self, draws: int) -> "Mark":
        """Return the same mark with another number of draws, and therefore with other symbols.

        ``mark.with_draws(mark.draws + 1)`` draws again; what that costs in evidence is counted.

        >>> mark = Mark.make(
        ...     OwnerKey.generate(), owner="Ann", model_digest="0" * 64, classes=[0, 1],
        ...     triggers=[[0.5]], alphabets=[[0, 1]], reference=[[0.9, 0.1]],
        ... )
        >>> mark.with_draws(2).draws, mark.with_draws(2).digest == mark.digest
        (2, False)
        """
        return replace(self, draws=draws)

    @property
    def n_triggers(self) -> int:
        """Return the number of triggers k."""
        return len(self.alphabets)

    @property
    def in_pairs(self) -> bool:
        """Return whether a trigger is a pair of rows, as where suspects answer with numbers."""
        return self.answers == "numbers"

    @property
    def n_features(self) -> int:
        """Return the number of columns d."""
        return len(self.columns)

    @property
    def q(self) -> int:
        """Return the size of the alphabets, 2 or 4."""
        return int(self.alphabets.shape[1])

    @property
    def full_bits(self) -> float:
        """Return the bits of evidence if a suspect matches every symbol: k·log₂ q − log₂ draws."""
        return self.n_triggers * math.log2(self.q) - math.log2(self.draws)

    @property
    def prices(self) -> tuple[Price, ...]:
        """Return what is subtracted from the evidence of any suspect: for the draws of symbols."""
        return (price_of_draws(self.draws),) if self.draws > 1 else ()

    @property
    def has_texts(self) -> bool:
        """Return whether any column holds texts."""
        return any(isinstance(column, tuple) for column in self.columns)

    @property
    def triggers(self) -> Rows:
        """Return the triggers, read-only float64 [k, d]. Raises InputError if there are texts."""
        if self.has_texts:
            raise InputError(
                "The triggers hold texts, so they are no matrix of numbers.",
                hint="use mark.rows().",
            )
        return self._once("triggers", lambda: _read_only(self.rows()))

    def rows(self) -> AnyArray:
        """Return the triggers as a new matrix [k, d]: float64, or of objects if there are texts.

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
    def leaves(self) -> tuple[bytes, ...]:
        """Return the hash of each trigger's record: the leaves of the mark's Merkle tree."""
        return self._once("leaves", self._hash_records)

    def _hash_records(self) -> tuple[bytes, ...]:
        records = encode_records(
            self.places, self.salts, self.columns, self.alphabets, self.reference,
            self.alternatives,
        )  # fmt: skip
        return tuple(map(hash_leaf, records))

    @property
    def head(self) -> Head:
        """Return what the digest is made of: all but the triggers, which the Merkle root covers.

        Whoever sees it learns nothing about the secret, the triggers or ``about``.
        """
        return self._once("head", self._make_head)

    def _make_head(self) -> Head:
        about = _ABOUT_DOMAIN + self.secret + encode(self.about)
        return Head(
            protocol=self.protocol,
            mark_id=self.mark_id,
            secret_digest=hashlib.sha256(_SECRET_DOMAIN + self.secret).digest(),
            owner=self.owner,
            model_digest=self.model_digest,
            feature_names=self.feature_names,
            columns=kinds_of_columns(self.columns),
            classes=self.classes,
            answers=self.answers,
            q=self.q,
            n_triggers=self.n_triggers,
            draws=self.draws,
            created=self.created,
            about_digest=hashlib.sha256(about).digest(),
            root=merkle_root(self.leaves),
        )

    @property
    def digest(self) -> bytes:
        """Return the SHA-256 that commits to all of the mark; see docs/mark-format.md."""
        return self._once("digest", lambda: self.head.digest)

    @property
    def symbols(self) -> SmallKinds:
        """Return the number of each trigger's symbol in its alphabet, uint8 [k]."""
        given = self._seed, self.places, self.salts
        return self._once("symbols", lambda: _read_only(derive_symbols(*given, self.q)))

    @property
    def order(self) -> NDArray[np.int64]:
        """Return the order in which the triggers are asked, a permutation, int64 [k]."""
        given = self._seed, self.places, self.salts
        return self._once("order", lambda: _read_only(query_order(*given)))

    @property
    def order_numbers(self) -> NDArray[np.uint64]:
        """Return the numbers that `order` sorts triggers by, uint64 [k]: to put decoys between."""
        return query_numbers(self._seed, self.places, self.salts)

    @property
    def row_order(self) -> NDArray[np.int64]:
        """Return the order in which rows are asked; all first rows of pairs before the second."""
        order = self.order
        return np.concatenate([2 * order, 2 * order + 1]) if self.in_pairs else order

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
        """Return the class number that each symbol asks for, int32 [k]."""
        asked = self.alphabets[np.arange(self.n_triggers), self.symbols]
        return np.asarray(asked, CLASS_INDEX)

    @property
    def levels(self) -> Reals:
        """Return the levels of a mark of numbers, float64 [k, q]. Raises InputError for others."""
        if not self.in_pairs:
            raise InputError("The mark is one of classes.", hint="use mark.alphabets.")
        return np.asarray(self.alphabets, np.float64)

    @property
    def expected_levels(self) -> Reals:
        """Return the difference of numbers that each symbol asks for, float64 [k]."""
        asked: Reals = self.levels[np.arange(self.n_triggers), self.symbols]
        return asked

    @property
    def expected(self) -> tuple[Label, ...]:
        """Return the label, or the difference of numbers, that each symbol asks for."""
        if self.in_pairs:
            return tuple(self.expected_levels.tolist())
        return tuple(self.classes[number] for number in self.expected_numbers)

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
            fields = read_mark(source, name, passphrase)
            try:
                return cls(**fields)
            except InputError as error:
                raise not_sound(name, error) from None
        except MemoryError:
            raise FileFormatError(
                f"{name} needs more memory than there is.", "end other programs and try again."
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

    def __copy__(self) -> "Mark":
        return self

    def __deepcopy__(self, memo: object) -> "Mark":
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "A mark cannot be pickled: its secret would lie in the open. Hint: pass the file that "
            "mark.save(path, passphrase) writes."
        )


def _read_only(array: Array) -> Array:
    array.flags.writeable = False
    return array
