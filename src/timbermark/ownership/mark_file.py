"""The files of marks and openings: what is written, and every check before one is built from it.

Both hold seals, each as its rows and its arrays; the rest is plain values. Nothing is compressed,
so that a reader can hold what a file declares against its size. `PublicFile` reads and writes what
is handed to others: claims, openings and chains.
"""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from timbermark.dtypes import FEATURE_VALUE
from timbermark.errors import FileFormatError, InputError
from timbermark.files import container_bytes, read_container
from timbermark.files.encrypting import SizeLimits, seal, unseal
from timbermark.files.reading import Arrays, Meta
from timbermark.ownership.columns import Column, numeric_matrix
from timbermark.ownership.encoding import FOREIGN, freeze, from_hex, require, thaw
from timbermark.ownership.seals import DrawnSeal, LeafSeal, Seal, SplitSeal

if TYPE_CHECKING:
    from timbermark.ownership.mark import Mark

Built = TypeVar("Built")
KIND = "mark"
FORMAT_VERSION = 4
"""Raised whenever a reader of the present version would refuse a new file."""
LIMITS = SizeLimits(file=256 << 20, meta=8 << 20)
_WORDS = (
    *("protocol", "owner", "model_digest", "feature_names", "classes", "answers", "draws"),
    *("created", "about"),
)
_BYTES = ("mark_id", "claim_key", "secret")
_ROOM = 1 << 16


def mark_to_bytes(mark: "Mark", passphrase: str | None) -> bytes:
    """Return the file of a mark, encrypted if there is a passphrase; see `Mark.to_bytes`."""
    meta, arrays = _parts(mark)
    return seal(KIND, FORMAT_VERSION, meta, arrays, passphrase, compress=False)


def check_fits(mark: "Mark") -> None:
    """Raise InputError if the mark is too large for its file, before any work is put into it."""
    meta, arrays = _parts(mark)
    n_meta = len(json.dumps(meta))
    n_bytes = n_meta + sum(array.nbytes for array in arrays.values())
    require(
        n_meta <= LIMITS.meta and n_bytes + _ROOM <= LIMITS.file,
        f"the mark has {n_meta} bytes of text and {n_bytes} in all, its file holds at most "
        f"{LIMITS.meta} and {LIMITS.file - _ROOM}",
        "use fewer triggers or features, or say less in about.",
        "mark.size",
    )


def read_mark(
    source: str | os.PathLike[str] | bytes, name: str, passphrase: str | None
) -> dict[str, Any]:
    """Return the fields of the mark in a file, by name, for its constructor to check.

    Raises PassphraseError if the passphrase does not fit, FileFormatError if it is anything but a
    file of a mark of this format, InputError if its parts do not fit together.
    """
    version, meta, arrays = unseal(source, KIND, FORMAT_VERSION, passphrase, limits=LIMITS)
    if version != FORMAT_VERSION:
        raise old_version(name, KIND, version, FORMAT_VERSION, "mark the model again.")
    require(
        meta.keys() == {*_WORDS, *_BYTES, "kinds", "texts"},
        "it has not exactly the parts of a mark",
        code="file.parts",
    )
    found = read_seals(meta["kinds"], meta["texts"], arrays)
    return {
        **{word: meta[word] for word in _WORDS},
        **{part: from_hex(part, meta[part]) for part in _BYTES},
        **found,
    }


def _parts(mark: "Mark") -> tuple[Meta, Arrays]:
    texts, arrays = write_seals(mark.seals)
    meta = {
        **{word: thaw(getattr(mark, word)) for word in _WORDS},
        **{part: getattr(mark, part).hex() for part in _BYTES},
        "kinds": list(mark.kinds),
        "texts": texts,
    }
    return meta, arrays


def write_seals(seals: Sequence[Seal]) -> tuple[dict[str, list[list[str | None]]], Arrays]:
    """Return the columns of texts of each seal, by its name, and all arrays."""
    texts, arrays = {}, Arrays()
    for one in seals:
        texts[one.name] = [list(c) for c in one.columns if not isinstance(c, np.ndarray)]
        arrays[f"{one.name}.rows"] = numeric_matrix(one.columns)
        arrays.update({f"{one.name}.{name}": getattr(one, name) for name in one.types})
    return texts, arrays


def read_seals(kinds: Any, texts: Any, arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Return the seals that `write_seals` wrote, by name; None for one that is not there.

    Raises InputError if the parts are not those of seals. What they hold is for the mark to check.
    """
    require(
        isinstance(kinds, list)
        and len(kinds) >= 1
        and all(kind in ("numbers", "texts") for kind in kinds),
        "the columns are neither numbers nor texts",
        code="field.kinds",
    )
    require(isinstance(texts, dict), "the columns of texts are not there", code="field.texts")
    # The symbols of a guard are stored; all other symbols are derived.
    kinds_of_seals: tuple[type[LeafSeal] | type[SplitSeal], ...]
    kinds_of_seals = (DrawnSeal if "leaves.drawn" in arrays else LeafSeal, SplitSeal)
    expected = {f"{kind.name}.{part}" for kind in kinds_of_seals if kind.name in texts
                for part in ("rows", *kind.types)}  # fmt: skip
    require(
        arrays.keys() == expected and texts.keys() <= {kind.name for kind in kinds_of_seals},
        "it has not exactly the arrays of its seals",
        code="file.parts",
    )
    found: dict[str, Any] = {}
    for kind in kinds_of_seals:
        found[kind.name] = None
        if kind.name not in texts:
            continue
        parts = {part: arrays[f"{kind.name}.{part}"] for part in kind.types}
        for part, dtype in kind.types.items():
            require(
                parts[part].dtype == dtype,
                f"{part} of the {kind.name} has the type {parts[part].dtype}",
                code=f"{kind.name}.{part}",
            )
        rows = arrays[f"{kind.name}.rows"]
        require(
            rows.dtype == FEATURE_VALUE and rows.ndim == 2,
            "the rows are no matrix of numbers",
            code=f"{kind.name}.rows",
        )
        found[kind.name] = kind(columns=_read_columns(kinds, texts[kind.name], rows), **parts)
    return found


def _read_columns(kinds: Sequence[str], texts: Any, numbers: Any) -> tuple[Column, ...]:
    n = len(numbers)
    require(
        isinstance(texts, list)
        and len(texts) == kinds.count("texts")
        and numbers.shape[1] == kinds.count("numbers")
        and all(
            isinstance(column, list)
            and len(column) == n
            and all(text is None or isinstance(text, str) for text in column)
            for column in texts
        ),
        f"the columns are not {n} numbers or texts each",
        code="triggers.shape",
    )
    left, right = iter(numbers.T), iter(texts)
    return tuple(
        np.ascontiguousarray(next(left))
        if kind == "numbers"
        else tuple(freeze(text, "a text") for text in next(right))  # type: ignore[misc]
        for kind in kinds
    )


@dataclass(frozen=True, slots=True)
class PublicFile:
    """A kind of file without a secret, and the one version of it that is written and read."""

    kind: str
    version: int
    limits: SizeLimits
    what: str  # what it is called
    again: str = ""  # what to do about a file of an older version

    def write(self, meta: Meta, arrays: Arrays) -> bytes:
        """Return the bytes of a file."""
        return container_bytes(self.kind, self.version, meta, arrays, compress=False)

    def read(
        self,
        source: str | os.PathLike[str] | bytes,
        build: Callable[[Meta, Arrays], Built],
        name: str = "",
    ) -> Built:
        """Return what ``build`` makes of the parts of a file; ``name`` is for messages.

        Raises FileFormatError if it is another file, or ``build`` finds that it is not sound.
        """
        name = name or ("The data" if isinstance(source, bytes) else os.fspath(source))
        self.limits.check(source, name)
        version, meta, arrays = read_container(source, self.kind, self.version)
        if version != self.version:
            raise old_version(name, self.kind, version, self.version, self.again)
        try:
            return build(meta, arrays)
        except (InputError, FileFormatError) as error:
            raise FileFormatError(
                f"{name} is no sound {self.what}. {error.message}", FOREIGN, error.code
            ) from None


def old_version(name: str, kind: str, version: int, known: int, hint: str) -> FileFormatError:
    """Return the error for a file of a format that is no longer read.

    >>> print(old_version("a.mark", "mark", 3, 4, "mark the model again."))
    a.mark was written by a timbermark before 0.2 (mark, format 3), this one reads format 4. \
Hint: mark the model again.
    """
    return FileFormatError(
        f"{name} was written by a timbermark before 0.2 ({kind}, format {version}), this one reads "
        f"format {known}.",
        hint,
        "file.version",
    )
