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
from dataclasses import dataclass, field, fields, replace
from itertools import pairwise
from typing import Any

import numpy as np

from timbermark.dtypes import AnyArray
from timbermark.errors import EvidenceError, InputError
from timbermark.files.encrypting import SizeLimits, save_sealed
from timbermark.files.reading import Arrays, Meta
from timbermark.ownership.claim import Claim
from timbermark.ownership.encoding import (
    FOREIGN,
    check_name,
    check_time,
    encode,
    from_hex,
    require,
)
from timbermark.ownership.evidence import (
    CONCLUSIVE_BITS,
    Price,
    full_bits,
    price_of_draws,
)
from timbermark.ownership.mark import (
    IN_BOTH,
    Head,
    Mark,
    check_answers,
    check_counts,
    check_names,
    check_stated,
)
from timbermark.ownership.mark_file import PublicFile, read_seals, write_seals
from timbermark.ownership.seals import (
    NO_ALTERNATIVES,
    DrawnSeal,
    LeafSeal,
    SplitSeal,
    take_triggers,
)
from timbermark.ownership.symbols import (
    HASH_BYTES,
    derive_seed,
    hash_leaf,
    merkle_paths,
    path_length,
    root_from_path,
)

FILE = PublicFile("opening", 3, SizeLimits(256 << 20, 8 << 20), "opening", "open the mark again.")
EIGHTHS = 8
N_ORDERS = 256
N_PARTS = N_ORDERS * (EIGHTHS - 1)
"""How many parts of a mark, other than the whole, can ever be opened."""
_LOSS, _SLACK = 0.1, 8.0
"""What a copy that nobody touched may lack of the full bits: a share of them, and the price of
mixing forms of evidence. An opening is worth its questions if 64 bits are left after that."""
_DRAW_DOMAIN = b"timbermark/draw/2"
_PLACES_DOMAIN = b"timbermark/places/2"
_OPENING_DOMAIN = b"timbermark/opening/2"
_PART_DOMAIN = b"timbermark/opened/2"
_HEAD_BYTES = {"mark_id": 16, "claim_key": 32, "secret_digest": 32, "about_digest": 32, "root": 32}


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Opening:
    """Some triggers of a mark with their salts and Merkle paths, for one judge.

    Whoever has it can make a model answer otherwise on these triggers. Nothing is checked until it
    is held to its claim: see `check`.
    """

    claim_digest: bytes  # 32 bytes: which claim it opens
    judge: str  # the name of whom it is for, 1 to 200 printable characters
    head: Head
    places: tuple[int, ...]  # m places in the mark, ascending; those of the leaf seal come first
    salts: tuple[bytes, ...] = field(repr=False)
    leaves: LeafSeal | None = field(repr=False)
    splits: SplitSeal | None = field(repr=False)
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
        """Return the bits of evidence if a suspect carries every symbol that is shown."""
        return worth(self.head, self.places)

    def check(self, claim: Claim, judge: str | None = None) -> "OpenedMark":
        """Return the opened triggers, after everything about them was held to the claim.

        Checked are the claim, the head of the mark, the name of the judge if one is given, the
        draw of the triggers, and each trigger's record against the Merkle root. The symbols are
        derived by the mark that is returned.

        Raises EvidenceError with a sentence for each of these.
        """
        if self.claim_digest != claim.digest:
            raise EvidenceError(
                "The opening belongs to another claim.",
                hint="give the claim that it opens.",
                code="opening.other-claim",
            )
        claim.check_head(self.head)
        if judge is not None and clean_name(judge) != self.judge:
            raise EvidenceError(
                f"The opening is for {self.judge!r}, not for {clean_name(judge)!r}.",
                hint="ask the owner to open the mark for you.",
                code="opening.other-judge",
            )
        if not self._is_drawn(claim):
            raise EvidenceError(
                "The opened triggers are not those that the draw gives: they were picked by hand.",
                hint="ask the owner to open the mark with timbermark open.",
                code="opening.picked",
            )
        try:
            opened = self._opened_mark()
        except EvidenceError:
            raise
        except InputError as error:
            raise EvidenceError(
                f"The opened mark is not sound. {error.message}", FOREIGN, error.code
            ) from None
        self._check_records(opened)
        if isinstance(opened.leaves, DrawnSeal):
            # The owner can train them when the symbols and a suspect's answers are known.
            leaves = replace(opened.leaves, alternatives=NO_ALTERNATIVES)
            opened = replace(opened, leaves=leaves)
        return opened

    def _is_drawn(self, claim: Claim) -> bool:
        sizes = [count_opened(claim.n_triggers, part) for part in range(1, EIGHTHS + 1)]
        if self.n_opened not in sizes:
            return False
        return self.places == draw_places(claim, self.judge, sizes.index(self.n_opened) + 1)

    def _check_records(self, opened: "OpenedMark") -> None:
        for place, record, path in zip(self.places, opened.records(), self.paths, strict=True):
            try:
                root = root_from_path(hash_leaf(record), place, self.head.n_triggers, path)
            except InputError:
                root = b""
            if root != self.head.root:
                raise EvidenceError(
                    f"Trigger {place} is not the one that the claim commits to.",
                    hint="the opening was changed; ask the owner for the original.",
                    code="opening.record",
                )

    def _opened_mark(self) -> "OpenedMark":
        return OpenedMark(
            **{name: getattr(self.head, name) for name in IN_BOTH},
            secret=hashlib.sha256(_PART_DOMAIN + b"".join(self.salts)).digest(),
            leaves=self.leaves,
            splits=self.splits,
            about={},
            opened_head=self.head,
            opened_places=self.places,
            opened_salts=self.salts,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return for whom it is and what it shows, ready for JSON; no trigger is in it."""
        return {
            "for": self.judge,
            "opened": self.n_opened,
            "bits": round(self.full_bits, 3),
            "mark_id": self.head.mark_id.hex(),
        }

    def __repr__(self) -> str:
        shown = f"{self.n_opened} triggers of {self.head.mark_id.hex()!r}"
        return f"Opening({shown} for {self.judge!r})"

    def to_bytes(self) -> bytes:
        """Return the opening as its file. The law: reading it gives the same opening."""
        texts, arrays = write_seals([s for s in (self.leaves, self.splits) if s is not None])
        arrays["salts"] = _bytes_matrix(self.salts)
        arrays["paths"] = _bytes_matrix([step for path in self.paths for step in path])
        meta = {
            "claim": self.claim_digest.hex(),
            "for": self.judge,
            "head": {f.name: _plain(getattr(self.head, f.name)) for f in fields(Head)},
            "places": list(self.places),
            "texts": texts,
        }
        return FILE.write(meta, arrays)

    @classmethod
    def from_bytes(cls, data: bytes, name: str = "The data") -> "Opening":
        """Return the opening that `to_bytes` wrote.

        Raises FileFormatError if it is anything but a whole opening.
        """
        return FILE.read(data, cls._build, name)

    def save(self, path: str | os.PathLike[str], force: bool = False) -> None:
        """Write the opening to a file that only its owner may read, for the judge alone.

        Raises InputError if the file exists, unless ``force``.
        """
        save_sealed(path, self.to_bytes(), "opening", force=force)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Opening":
        """Read what `save` wrote. Raises as `from_bytes` does; OSError if it cannot be opened."""
        return FILE.read(path, cls._build)

    @classmethod
    def _build(cls, meta: Meta, arrays: Arrays) -> "Opening":
        return cls(**_read_fields(meta, dict(arrays)))


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
        n_leaves = sum(place < head.n_leaves for place in self.opened_places)
        same = (
            *((getattr(self, name), getattr(head, name)) for name in IN_BOTH),
            (self.leaves is None or self.q == head.q, True),
            (self.kinds, head.columns),
            (self.n_leaves, n_leaves),
            (self.n_triggers, len(self.opened_places)),
            (self.n_triggers, len(self.opened_salts)),
        )
        if any(mine != stated for mine, stated in same):
            raise EvidenceError(
                "The opened triggers do not have the shape that the mark commits to.",
                hint="ask the owner for the original.",
                code="opening.shape",
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
        return _prices(self.opened_head, self.n_triggers)

    def to_bytes(self, passphrase: str | None = None) -> bytes:
        """Raise InputError: a part of a mark cannot be saved as a mark."""
        raise InputError(
            "The opened part of a mark is no mark of its own.",
            hint="save the opening.",
            code="opening.part",
        )


def open_mark(
    mark: Mark, claim: Claim, *, judge: str, share: float | None = None, force: bool = False
) -> Opening:
    """Return an opening of a share of a mark's triggers for one judge.

    The same arguments always give the same opening. ``share`` is from above 0 to 1 and is rounded
    up to eighths; by default it is the smallest with which a copy that nobody touched is
    conclusive, with a margin. A smaller one is refused unless ``force``, because its questions
    would be spent for nothing.

    Raises EvidenceError if the claim is not about this mark, InputError for a share that is out of
    bounds or too small, or a name that is none.

    >>> from timbermark.ownership import OwnerKey
    >>> key = OwnerKey.generate()
    >>> mark = Mark.make(
    ...     key, owner="Ann", model_digest="0" * 64, classes=[0, 1],
    ...     triggers=np.arange(8.0)[:, None], alphabets=[[0, 1]] * 8, reference=[[0.9, 0.1]] * 8,
    ... )
    >>> claim = Claim.make(mark, key, marked_digest="1" * 64)
    >>> opening = open_mark(mark, claim, judge="Judge Judy", share=0.5, force=True)
    >>> opening.n_opened, opening.check(claim).symbols.tolist() == (
    ...     mark.symbols[list(opening.places)].tolist()
    ... )
    (4, True)
    """
    if isinstance(mark, OpenedMark) or not isinstance(mark, Mark):
        raise InputError(
            "Only a whole mark can be opened.",
            hint="load one with Mark.load(path).",
            code="opening.part",
        )
    claim.check_head(mark.head)
    name = clean_name(judge)
    eighths = _choose_eighths(claim, mark.head, name, share, force)
    places = draw_places(claim, name, eighths)
    inside = [place for place in places if place < mark.n_leaves]
    beyond = [place - mark.n_leaves for place in places if place >= mark.n_leaves]
    return Opening(
        claim_digest=claim.digest,
        judge=name,
        head=mark.head,
        places=places,
        salts=tuple(mark.salts[place] for place in places),
        leaves=take_triggers(mark.leaves, inside) if mark.leaves and inside else None,
        splits=take_triggers(mark.splits, beyond) if mark.splits and beyond else None,
        paths=tuple(merkle_paths(mark.hashes, places)),
    )


def _choose_eighths(claim: Claim, head: Head, judge: str, share: float | None, force: bool) -> int:
    def suffices(eighths: int) -> bool:
        return is_enough(worth(head, draw_places(claim, judge, eighths)))

    enough = next((part for part in range(1, EIGHTHS + 1) if suffices(part)), None)
    if share is None:
        if enough is None and not force:
            raise InputError(
                f"The whole mark is worth {worth(head, range(head.n_triggers)):.0f} bits, too few "
                "to be conclusive to a judge.",
                hint="mark the model again with more triggers, or open it with force=True.",
                code="opening.too-little",
                parameter="force",
            )
        return enough or EIGHTHS
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 1:
        raise InputError(
            f"share={share!r} is not from above 0 to 1.",
            hint="0.5 opens half of the triggers.",
            code="opening.share",
            parameter="share",
        )
    eighths = math.ceil(share * EIGHTHS)
    if not suffices(eighths) and not force:
        bits = worth(head, draw_places(claim, judge, eighths))
        needed = "the whole mark" if enough is None else f"share={enough / EIGHTHS:g}"
        raise InputError(
            f"share={share:g} opens {bits:.0f} bits, and a copy may show a tenth less: its "
            "questions would be spent and prove too little.",
            hint=f"open {needed}, or force=True to open less all the same.",
            code="opening.too-little",
            parameter="share",
        )
    return eighths


def is_enough(bits: float) -> bool:
    """Return whether a copy that nobody touched is conclusive, if all symbols are worth ``bits``.

    >>> is_enough(64.0), is_enough(96.0)
    (False, True)
    """
    return (1.0 - _LOSS) * bits - _SLACK >= CONCLUSIVE_BITS


def worth(head: Head, places: Sequence[int]) -> float:
    """Return the bits that some triggers of a mark are worth at most, after prices."""
    n_leaves = sum(place < head.n_leaves for place in places)
    return _worth(head, n_leaves, len(places) - n_leaves)


def smallest_share(head: Head, places: Sequence[int]) -> float | None:
    """Return the smallest share of a mark to open so that these triggers alone are enough.

    An opening draws from all triggers, and shows about a like share of these. None if there is no
    such share.
    """
    n_leaves = sum(place < head.n_leaves for place in places)
    n_splits = len(places) - n_leaves
    for part in range(1, EIGHTHS + 1):
        shown = (n * part // EIGHTHS for n in (n_leaves, n_splits))
        if is_enough(_worth(head, *shown)):
            return part / EIGHTHS
    return None


def _worth(head: Head, n_leaves: int, n_splits: int) -> float:
    prices = _prices(head, n_leaves + n_splits)
    return max(0.0, full_bits(n_leaves, head.q, n_splits, prices))


def _prices(head: Head, n_opened: int) -> tuple[Price, ...]:
    return (*price_of_draws(head.draws), *price_of_part(n_opened, head.n_triggers))


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
    return (Price("part", math.log2(N_PARTS), {"parts": N_PARTS}),)


def clean_name(name: Any, whose: str = "judge") -> str:
    """Return a name without blanks around it, in Unicode's form NFC.

    Raises InputError unless it is a name.

    >>> clean_name(" Judge Judy ")
    'Judge Judy'
    """
    check_name(name, whose)
    return unicodedata.normalize("NFC", name).strip()


def _read_fields(meta: dict[str, Any], arrays: dict[str, AnyArray]) -> dict[str, Any]:
    require(
        meta.keys() == {"claim", "for", "head", "places", "texts"}
        and {"salts", "paths"} <= arrays.keys(),
        "it has not exactly the parts of an opening",
        code="file.parts",
    )
    salts, paths = arrays.pop("salts"), arrays.pop("paths")
    head = _read_head(meta["head"])
    places = meta["places"]
    require(
        isinstance(places, list)
        and all(type(place) is int and 0 <= place < head.n_triggers for place in places)
        and len(places) >= 1
        and all(a < b for a, b in pairwise(places)),
        "the places of the triggers are not ascending numbers",
        code="field.places",
    )
    require(
        salts.dtype == np.uint8 and salts.shape == (len(places), HASH_BYTES),
        "the salts have the wrong shape",
        code="field.salts",
    )
    check_name(meta["for"], "judge")
    return {
        "claim_digest": from_hex("claim", meta["claim"], HASH_BYTES),
        "judge": meta["for"],
        "head": head,
        "places": tuple(places),
        "salts": tuple(salt.tobytes() for salt in salts),
        "paths": _read_paths(paths, places, head.n_triggers),
        **read_seals(list(head.columns), meta["texts"], arrays),
    }


def _read_head(given: Any) -> Head:
    names = {f.name for f in fields(Head)}
    require(
        isinstance(given, dict) and given.keys() == names,
        "it has no head of a mark",
        code="field.head",
    )
    parts = dict(given)
    for name, size in _HEAD_BYTES.items():
        parts[name] = from_hex(name, parts[name], size)
    kinds = parts["columns"]
    require(
        isinstance(kinds, list) and all(kind in ("numbers", "texts") for kind in kinds),
        "the columns are neither numbers nor texts",
        code="field.columns",
    )
    parts["columns"] = tuple(kinds)
    head = Head(**parts)
    check_stated(head)
    check_counts(head)
    check_time("created", head.created)
    return replace(
        head,
        classes=check_answers(head.answers, head.classes),
        feature_names=check_names(head.feature_names, len(kinds)),
    )


def _read_paths(
    given: AnyArray, places: Sequence[int], count: int
) -> tuple[tuple[bytes, ...], ...]:
    lengths = [path_length(place, count) for place in places]
    require(
        given.dtype == np.uint8 and given.shape == (sum(lengths), HASH_BYTES),
        "the Merkle paths have the wrong length",
        code="field.paths",
    )
    steps = iter(given)
    return tuple(tuple(next(steps).tobytes() for _ in range(length)) for length in lengths)


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    return list(value) if isinstance(value, tuple) else value


def _bytes_matrix(rows: Any) -> AnyArray:
    return np.frombuffer(b"".join(rows), np.uint8).reshape(-1, HASH_BYTES)
