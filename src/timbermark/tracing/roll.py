"""The roll: the secret file that says which customer's copy carries which symbols.

It holds the boundaries that tell copies apart, as a mark of its own whose symbols no copy carries
(the *grid*), the owner's mark, which all copies carry, and the customers' names. A customer's
symbols follow from the grid's secret, which follows from the owner key, and the name. The claim of
a roll commits to all of this in public, and an opening shows one customer's part to a judge.
docs/copies.md describes the files.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

import numpy as np

from timbermark.dtypes import AnyArray, SmallKinds
from timbermark.errors import FileFormatError, InputError
from timbermark.files.encrypting import SizeLimits, save_sealed, seal, unseal, warn_if_readable
from timbermark.ownership.encoding import FOREIGN, check_digest, check_name, encode, require
from timbermark.ownership.mark import Mark
from timbermark.ownership.opening import OpenedMark, clean_name
from timbermark.ownership.symbols import HASH_BYTES, derive_seed
from timbermark.tracing.codes import derive_biases, derive_customer_seed, derive_customer_symbols
from timbermark.trees.ensemble import Ensemble, digest

KIND = "roll"
FORMAT_VERSION = 1
LIMITS = SizeLimits(file=512 << 20, meta=16 << 20)
MOST_CUSTOMERS = 10_000
EDGES = {"feature": "i8", "below": "f8", "above": "f8", "falls": "b1", "low": "f8", "high": "f8"}
"""What the ensemble is changed by, beside what the grid asks: arrays [n] and their types."""
_TOKEN_DOMAIN = b"timbermark/customer-token/1"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Roll:
    """The boundaries and customers of all copies of one model. All of it is secret.

    Raises InputError if anything is not as stated below.
    """

    grid: Mark  # the boundaries as triggers of a split seal; no copy carries its symbols
    mark: Mark  # the owner's, which every copy carries
    edges: Mapping[str, AnyArray] = field(repr=False)  # see EDGES
    blank_digest: str  # SHA-256 of the trees with the symbol 0 in all boundaries
    seeds: Mapping[str, bytes] = field(default_factory=dict)  # of each customer's symbols, 32 bytes

    def __post_init__(self) -> None:
        check_digest("blank_digest", self.blank_digest)
        n = self.grid.n_splits
        require(
            n > 0 and self.grid.n_leaves == 0 and self.grid.model_digest == self.mark.model_digest,
            "the roll does not consist of boundaries and of the owner's mark of the same model",
            code="roll.marks",
        )
        require(
            self.edges.keys() == EDGES.keys()
            and all(
                self.edges[name].shape == (n,) and self.edges[name].dtype == np.dtype(kind)
                for name, kind in EDGES.items()
            ),
            "the edges of the boundaries have the wrong shape",
            code="roll.edges",
        )
        require(
            len(self.seeds) <= MOST_CUSTOMERS,
            f"{len(self.seeds)} customers are more than the {MOST_CUSTOMERS} that a roll holds",
            code="roll.customers",
        )
        for name, seed in self.seeds.items():
            check_name(name, "customers")
            require(
                isinstance(seed, bytes) and len(seed) == HASH_BYTES,
                "the seed of a customer is not 32 bytes",
                code="roll.seeds",
            )

    @property
    def customers(self) -> tuple[str, ...]:
        """Return the names of all customers, in the order in which they came."""
        return tuple(self.seeds)

    @property
    def n_boundaries(self) -> int:
        """Return the number of boundaries that tell copies apart."""
        return self.grid.n_splits

    def token(self, name: str) -> bytes:
        """Return the secret of one customer, 32 bytes; it says nothing about other customers."""
        return hmac.digest(self.grid.secret, _TOKEN_DOMAIN + encode(name), "sha256")

    def with_customers(self, names: Iterable[str]) -> Roll:
        """Return the roll with more customers.

        Raises InputError for a name that is none, twice in the list, or in the roll already.
        """
        seeds = dict(self.seeds)
        for given in names:
            name = clean_name(given, "customers")
            if name in seeds:
                raise InputError(
                    f"There are two customers of the name {name!r}.",
                    hint="give each a name of its own; a customer in the roll keeps the copy.",
                    code="customers.twice",
                    parameter="customers",
                )
            seeds[name] = derive_customer_seed(self.grid.digest, name, self.token(name))
        return replace(self, seeds=seeds)

    def find(self, name: str) -> str:
        """Return the name of a customer as it is in the roll.

        Raises InputError if there is no such customer.
        """
        found = clean_name(name, "customers")
        if found not in self.seeds:
            raise InputError(
                f"There is no customer {found!r} in the roll.",
                hint=f"it has {len(self.seeds)} customers; add this one with timbermark.copies.",
                code="customers.unknown",
                parameter="customer",
            )
        return found

    def symbols(self, names: Iterable[str] | None = None) -> SmallKinds:
        """Return the symbols of all customers, or of some in the given order, uint8 [c, n]."""
        biases = find_biases(self.grid)
        chosen = self.customers if names is None else [self.find(name) for name in names]
        found = [derive_customer_symbols(self.seeds[name], biases) for name in chosen]
        return np.array(found, np.uint8).reshape(len(found), self.n_boundaries)

    def place(self, ensemble: Ensemble, symbols: AnyArray) -> Ensemble:
        """Return an ensemble of the model with its thresholds where symbols [n] ask for."""
        # Whoever traces needs no engine.
        from timbermark.marking.boundaries import Boundaries
        from timbermark.marking.splits import set_thresholds

        splits, zeros = self.grid.splits, np.zeros(self.n_boundaries)
        assert splits is not None
        a, mid, b = splits.values.T
        boundaries = Boundaries(
            column=splits.features, a=a, mid=mid, b=b, **self.edges,
            wide=zeros.astype(bool), inside=zeros, mass=zeros, price=zeros,
        )  # fmt: skip
        return set_thresholds(ensemble, boundaries, symbols)

    def check_model(self, ensemble: Ensemble) -> None:
        """Raise InputError unless an ensemble is that of one of the roll's copies."""
        fits = ensemble.n_features > self.edges["feature"].max(initial=0)
        if fits:
            blank = self.place(ensemble, np.zeros(self.n_boundaries))
            fits = digest(blank) == self.blank_digest
        if not fits:
            raise InputError(
                "The roll is of another model.",
                hint="give one of the copies that were made with it, as it was made.",
                code="roll.other-model",
                parameter="roll",
            )

    def to_bytes(self, passphrase: str | None = None) -> bytes:
        """Return the roll as its file, encrypted if there is a passphrase.

        The law: reading it gives the same roll.
        """
        arrays = {name: np.asarray(self.edges[name]) for name in EDGES}
        for name, mark in (("grid", self.grid), ("mark", self.mark)):
            arrays[name] = np.frombuffer(mark.to_bytes(), np.uint8)
        seeds = b"".join(self.seeds.values())
        arrays["seeds"] = np.frombuffer(seeds, np.uint8).reshape(-1, HASH_BYTES)
        meta = {"blank_digest": self.blank_digest, "customers": list(self.seeds)}
        return seal(KIND, FORMAT_VERSION, meta, arrays, passphrase, compress=False)

    @classmethod
    def from_bytes(cls, data: bytes, passphrase: str | None = None) -> Roll:
        """Return the roll that `to_bytes` wrote. Raises as `load` does."""
        return cls._read(data, "The data", passphrase)

    def save(
        self, path: str | os.PathLike[str], passphrase: str | None = None, force: bool = False
    ) -> None:
        """Write the roll to a file that only its owner may read, encrypted with any passphrase.

        Raises InputError if the file exists, unless ``force``, or if the passphrase is empty.
        """
        save_sealed(path, self.to_bytes(passphrase), "roll", force=force)

    @classmethod
    def load(cls, path: str | os.PathLike[str], passphrase: str | None = None) -> Roll:
        """Read what `save` wrote; warns if others may read the file.

        Raises PassphraseError if the passphrase does not fit, FileFormatError if it is anything but
        a whole and sound roll, OSError if it cannot be opened.
        """
        roll = cls._read(path, os.fspath(path), passphrase)
        warn_if_readable(path, "roll")
        return roll

    @classmethod
    def _read(
        cls, source: str | os.PathLike[str] | bytes, name: str, passphrase: str | None
    ) -> Roll:
        _, meta, arrays = unseal(source, KIND, FORMAT_VERSION, passphrase, limits=LIMITS)
        try:
            return cls(**_read_fields(meta, arrays))
        except (InputError, FileFormatError) as error:
            raise FileFormatError(
                f"{name} holds no sound roll. {error.message}", FOREIGN, error.code
            ) from None

    def __repr__(self) -> str:
        return (
            f"Roll(owner={self.mark.owner!r}, n_boundaries={self.n_boundaries}, "
            f"customers={len(self.seeds)})"
        )

    def __reduce__(self) -> NoReturn:
        raise InputError(
            "A roll cannot be pickled: its secrets would lie in the open.",
            hint="save it with a passphrase and load it there.",
            code="roll.pickled",
        )


def find_biases(grid: Mark) -> AnyArray:
    """Return the bias of each boundary of a grid, or of the opened part of one, in 256ths."""
    biases = derive_biases(derive_seed(grid.digest), grid.head.n_triggers)
    return biases[list(grid.places)] if isinstance(grid, OpenedMark) else biases


def commit_customer(name: str, token: bytes) -> bytes:
    """Return the record of one customer under the Merkle root of a claim."""
    return hashlib.sha256(_TOKEN_DOMAIN + encode({"name": name, "token": token})).digest()


def _read_fields(meta: Mapping[str, Any], arrays: Mapping[str, AnyArray]) -> dict[str, Any]:
    names = meta.get("customers")
    require(
        meta.keys() == {"blank_digest", "customers"}
        and isinstance(names, list)
        and all(isinstance(name, str) for name in names)
        and len(set(names)) == len(names)
        and arrays.keys() == {*EDGES, "grid", "mark", "seeds"}
        and all(arrays[name].dtype == np.uint8 for name in ("grid", "mark", "seeds"))
        and arrays["seeds"].shape == (len(names), HASH_BYTES),
        "it has not exactly the parts of a roll",
        code="file.parts",
    )
    assert isinstance(names, list)
    return {
        "grid": Mark.from_bytes(arrays["grid"].tobytes()),
        "mark": Mark.from_bytes(arrays["mark"].tobytes()),
        "edges": {name: arrays[name] for name in EDGES},
        "blank_digest": meta["blank_digest"],
        "seeds": dict(zip(names, (seed.tobytes() for seed in arrays["seeds"]), strict=True)),
    }
