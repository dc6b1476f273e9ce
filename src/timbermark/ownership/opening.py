"""Openings: some triggers of a claimed mark, shown to one judge; the rest stays secret.

Which triggers are shown is drawn from a hash of the claim and the judge's name, so that nobody
chooses them. The draw has few outcomes for each mark, `N_PARTS`, and evidence from a part pays for
all of them: whoever searches for a name or a claim whose draw suits him gains nothing. What is
shown is checked against the claim alone. docs/claim-format.md describes the file and the argument.
"""

import hashlib
import math
import os
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from timbermark.dtypes import ClassIndices, Reals
from timbermark.errors import EvidenceError, FileFormatError, InputError
from timbermark.ownership.claim import Claim
from timbermark.ownership.columns import Column
from timbermark.ownership.encoding import encode
from timbermark.ownership.head import Head
from timbermark.ownership.mark import Mark
from timbermark.ownership.mark_checks import check_name, rows_per_trigger
from timbermark.ownership.merkle import hash_leaf, merkle_paths, root_from_path
from timbermark.ownership.opening_file import opening_to_bytes, read_opening
from timbermark.ownership.records import encode_records
from timbermark.ownership.sealing import save_sealed
from timbermark.ownership.symbols import derive_seed
from timbermark.ownership.verdict import Price, price_of_draws

EIGHTHS = 8
N_ORDERS = 256
N_PARTS = N_ORDERS * (EIGHTHS - 1)
"""How many parts of a mark, other than the whole, can ever be opened."""
_DRAW_DOMAIN = b"timbermark/draw/1"
_PLACES_DOMAIN = b"timbermark/places/1"
_OPENING_DOMAIN = b"timbermark/opening/1"
_PART_DOMAIN = b"timbermark/opened/1"
_FOREIGN = "it was not written by timbermark, do not trust it."


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Opening:
    """Some triggers of a mark with their salts and Merkle paths, for one judge.

    Whoever has it can make a model answer otherwise on these triggers. Nothing is checked until it
    is held to its claim: see `check`.
    """

    claim_digest: bytes  # 32 bytes: which claim it opens
    judge: str  # the name of whom it is for, 1 to 200 printable characters
    head: Head
    places: tuple[int, ...]  # m places in the mark, ascending
    salts: tuple[bytes, ...] = field(repr=False)
    columns: tuple[Column, ...] = field(repr=False)  # d columns of m rows, or of 2m
    alphabets: ClassIndices | Reals = field(repr=False)  # [m, q], as in the mark
    reference: Reals = field(repr=False)  # float64 [m, K] or [m, 2]
    alternatives: Reals = field(repr=False)  # float64 [m, R, q], as in the mark
    paths: tuple[tuple[bytes, ...], ...] = field(repr=False)

    @property
    def n_opened(self) -> int:
        """Return the number of triggers shown, m."""
        return len(self.places)

    @property
    def digest(self) -> bytes:
        """Return the SHA-256 that names the opening; claim and salts stand for the triggers."""
        named = {
            "claim": self.claim_digest,
            "for": self.judge,
            "places": list(self.places),
            "salts": b"".join(self.salts),
        }
        return hashlib.sha256(_OPENING_DOMAIN + encode(named)).digest()

    @property
    def full_bits(self) -> float:
        """Return the bits of evidence if a suspect matches every symbol that is shown."""
        prices = price_of_part(self.n_opened, self.head.n_triggers)
        bits = self.n_opened * math.log2(self.head.q) - math.log2(self.head.draws)
        return max(0.0, bits - math.fsum(price.bits for price in prices))

    def check(self, claim: Claim, judge: str | None = None) -> "OpenedMark":
        """Return the opened triggers, after everything about them was held to the claim.

        Checked are the claim, the head of the mark, the name of the judge if one is given, the
        draw of the triggers, and each trigger's record against the Merkle root. The symbols are
        derived by the mark that is returned.

        Raises EvidenceError with a sentence for each of these.
        """
        if self.claim_digest != claim.digest:
            raise EvidenceError(
                "The opening belongs to another claim.", hint="give the claim that it opens."
            )
        claim.check_head(self.head)
        if judge is not None and clean_name(judge) != self.judge:
            raise EvidenceError(
                f"The opening is for {self.judge!r}, not for {clean_name(judge)!r}.",
                hint="ask the owner to open the mark for you.",
            )
        if not self._is_drawn(claim):
            raise EvidenceError(
                "The opened triggers are not those that the draw gives: they were picked by hand.",
                hint="ask the owner to open the mark with timbermark open.",
            )
        self._check_records()
        try:
            return self._opened_mark()
        except EvidenceError:
            raise
        except InputError as error:
            raise EvidenceError(f"The opened mark is not sound. {error.message}", "") from None

    def _is_drawn(self, claim: Claim) -> bool:
        sizes = [count_opened(claim.n_triggers, part) for part in range(1, EIGHTHS + 1)]
        if self.n_opened not in sizes:
            return False
        return self.places == draw_places(claim, self.judge, sizes.index(self.n_opened) + 1)

    def _check_records(self) -> None:
        records = encode_records(
            self.places, self.salts, self.columns, self.alphabets, self.reference,
            self.alternatives,
        )  # fmt: skip
        for place, record, path in zip(self.places, records, self.paths, strict=True):
            try:
                root = root_from_path(hash_leaf(record), place, self.head.n_triggers, path)
            except InputError:
                root = b""
            if root != self.head.root:
                raise EvidenceError(
                    f"Trigger {place} is not the one that the claim commits to.",
                    hint="the opening was changed; ask the owner for the original.",
                )

    def _opened_mark(self) -> "OpenedMark":
        head = self.head
        return OpenedMark(
            protocol=head.protocol,
            mark_id=head.mark_id,
            secret=hashlib.sha256(_PART_DOMAIN + b"".join(self.salts)).digest(),
            owner=head.owner,
            model_digest=head.model_digest,
            feature_names=head.feature_names,
            classes=head.classes,
            answers=head.answers,
            columns=self.columns,
            alphabets=self.alphabets,
            reference=self.reference,
            alternatives=self.alternatives,
            draws=head.draws,
            created=head.created,
            about={},
            opened_head=head,
            opened_places=self.places,
            opened_salts=self.salts,
        )

    def to_bytes(self) -> bytes:
        """Return the opening as its file. The law: reading it gives the same opening."""
        return opening_to_bytes(self)

    @classmethod
    def from_bytes(cls, data: bytes, name: str = "The data") -> "Opening":
        """Return the opening that `to_bytes` wrote.

        Raises FileFormatError if it is anything but a whole opening.
        """
        return cls._read(data, name)

    def save(self, path: str | os.PathLike[str], force: bool = False) -> None:
        """Write the opening to a file that only its owner may read, for the judge alone.

        Raises InputError if the file exists, unless ``force``.
        """
        save_sealed(path, self.to_bytes(), "opening", force=force)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Opening":
        """Read what `save` wrote. Raises as `from_bytes` does; OSError if it cannot be opened."""
        return cls._read(path, os.fspath(path))

    @classmethod
    def _read(cls, source: str | os.PathLike[str] | bytes, name: str) -> "Opening":
        try:
            return cls(**read_opening(source, name))
        except InputError as error:
            raise FileFormatError(
                f"{name} is no sound opening. {error.message}", _FOREIGN
            ) from None


@dataclass(frozen=True, slots=True, repr=False, eq=False, kw_only=True)
class OpenedMark(Mark):
    """The opened triggers of a mark: asked and judged like a whole one.

    `Opening.check` makes it. Its digest is that of the whole mark; its secret, which only keeps the
    order of questions from the suspect, comes from the opened salts.
    """

    opened_head: Head
    opened_places: tuple[int, ...]
    opened_salts: tuple[bytes, ...]

    def __post_init__(self) -> None:
        Mark.__post_init__(self)
        head = self.opened_head
        same = (
            (self.q, head.q),
            (self.draws, head.draws),
            (self.classes, head.classes),
            (self.feature_names, head.feature_names),
            (self.n_features, len(head.columns)),
            (self.n_triggers, len(self.opened_places)),
            (self.n_triggers, len(self.opened_salts)),
        )
        if any(mine != stated for mine, stated in same):
            raise EvidenceError(
                "The opened triggers do not have the shape that the mark commits to.",
                hint="ask the owner for the original.",
            )

    @property
    def places(self) -> Sequence[int]:
        """Return the place of each opened trigger in the mark."""
        return self.opened_places

    @property
    def salts(self) -> tuple[bytes, ...]:
        """Return the salt of each opened trigger, 32 bytes."""
        return self.opened_salts

    @property
    def head(self) -> Head:
        """Return the head of the whole mark."""
        return self.opened_head

    @property
    def prices(self) -> tuple[Price, ...]:
        """Return what is subtracted from evidence: for draws of symbols and for the drawn part."""
        draws = (price_of_draws(self.draws),) if self.draws > 1 else ()
        part = price_of_part(self.n_triggers, self.opened_head.n_triggers)
        return (*draws, *part)

    def to_bytes(self, passphrase: str | None = None) -> bytes:
        """Raise InputError: a part of a mark cannot be saved as a mark."""
        raise InputError(
            "The opened part of a mark is no mark of its own.", hint="save the opening."
        )


def open_mark(mark: Mark, claim: Claim, *, judge: str, share: float = 0.5) -> Opening:
    """Return an opening of a share of a mark's triggers for one judge.

    The same arguments always give the same opening. ``share`` is from above 0 to 1 and is rounded
    up to eighths.

    Raises EvidenceError if the claim is not about this mark, InputError for a share out of bounds
    or a name that is none.

    >>> from timbermark.ownership import OwnerKey
    >>> key = OwnerKey.generate()
    >>> mark = Mark.make(
    ...     key, owner="Ann", model_digest="0" * 64, classes=[0, 1],
    ...     triggers=np.arange(8.0)[:, None], alphabets=[[0, 1]] * 8, reference=[[0.9, 0.1]] * 8,
    ... )
    >>> claim = Claim.make(mark, key, marked_digest="1" * 64)
    >>> opening = open_mark(mark, claim, judge="Judge Judy", share=0.5)
    >>> opening.n_opened, opening.check(claim).symbols.tolist() == (
    ...     mark.symbols[list(opening.places)].tolist()
    ... )
    (4, True)
    """
    if isinstance(mark, OpenedMark) or not isinstance(mark, Mark):
        raise InputError("Only a whole mark can be opened.", hint="load one with Mark.load(path).")
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 1:
        raise InputError(
            f"share={share!r} is not from above 0 to 1.", hint="0.5 opens half of the triggers."
        )
    claim.check_head(mark.head)
    name = clean_name(judge)
    places = draw_places(claim, name, math.ceil(share * EIGHTHS))
    chosen = list(places)
    # Where suspects answer with numbers, a trigger is a pair of rows.
    width = rows_per_trigger(mark.answers)
    rows = [width * place + j for place in chosen for j in range(width)]
    return Opening(
        claim_digest=claim.digest,
        judge=name,
        head=mark.head,
        places=places,
        salts=tuple(mark.salts[place] for place in chosen),
        columns=tuple(_take(column, rows) for column in mark.columns),
        alphabets=mark.alphabets[chosen],
        reference=mark.reference[chosen],
        alternatives=mark.alternatives[chosen],
        paths=tuple(merkle_paths(mark.leaves, chosen)),
    )


def draw_places(claim: Claim, judge: str, eighths: int) -> tuple[int, ...]:
    """Return which triggers are opened to a judge: places in the mark, ascending.

    The claim and the name select one of 256 orders of the triggers, which derive from the mark's
    digest through scrypt; the first ``eighths`` of 8 parts of them are opened.
    """
    named = encode({"claim": claim.digest, "for": judge})
    number = hashlib.sha256(_DRAW_DOMAIN + named).digest()[:1]
    stream = hashlib.shake_256(_PLACES_DOMAIN + derive_seed(claim.mark_digest) + number)
    keys = np.frombuffer(stream.digest(8 * claim.n_triggers), "<u8")
    order = np.argsort(keys, kind="stable")
    return tuple(sorted(order[: count_opened(claim.n_triggers, eighths)].tolist()))


def count_opened(n_triggers: int, eighths: int) -> int:
    """Return how many triggers are opened, rounded up.

    >>> count_opened(96, 4), count_opened(9, 1)
    (48, 2)
    """
    return -(-n_triggers * eighths // EIGHTHS)


def price_of_part(n_opened: int, n_triggers: int) -> tuple[Price, ...]:
    """Return the price of evidence from a part: log₂ of the number of parts that can be drawn.

    >>> price_of_part(96, 96), round(price_of_part(48, 96)[0].bits, 2)
    ((), 10.81)
    """
    if n_opened == n_triggers:
        return ()
    return (Price(f"one of {N_PARTS} parts that could be opened", math.log2(N_PARTS)),)


def clean_name(name: Any) -> str:
    """Return a judge's name without blanks around it, in Unicode's form NFC.

    Raises InputError unless it is a name.

    >>> clean_name(" Judge Judy ")
    'Judge Judy'
    """
    check_name(name, "the judge's name")
    return unicodedata.normalize("NFC", name).strip()


def _take(column: Column, rows: list[int]) -> Column:
    if isinstance(column, np.ndarray):
        return np.asarray(column[rows])
    return tuple(column[row] for row in rows)
