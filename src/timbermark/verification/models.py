"""The digests of models, by which claims name them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from timbermark import libraries
from timbermark.errors import InputError
from timbermark.ownership.claim import Claim
from timbermark.ownership.keys import OwnerKey
from timbermark.ownership.mark import Mark
from timbermark.ownership.statistics import INDICATIVE_BITS
from timbermark.ownership.suspects import is_own_file, read_own_model
from timbermark.trees.ensemble import Ensemble, digest
from timbermark.verification.file_digests import open_with_digest
from timbermark.verification.verifying import verify


@dataclass(frozen=True, slots=True)
class NamedModel:
    """A model's trees and what identifies them."""

    trees: Ensemble
    digest: str  # SHA-256 of the trees, the same in every file format
    file_digest: str | None  # SHA-256 of the file, if it is one


def name_model(model: Any) -> NamedModel:
    """Return the trees of a model or a model file, and the digests by which a claim names them.

    Raises InputError or FileFormatError if it is no model with trees, OSError if the file cannot be
    opened.

    >>> from sklearn.ensemble import GradientBoostingClassifier
    >>> fitted = GradientBoostingClassifier(n_estimators=2).fit([[0.0], [1.0]], [0, 1])
    >>> len(name_model(fitted).digest)
    64
    """
    if isinstance(model, str | os.PathLike):
        if is_own_file(model):
            own = read_own_model(model)
            return NamedModel(own.trees, digest(own.trees), own.file_digest)
        foreign, file_digest = open_with_digest(model)
        return NamedModel(foreign.ensemble, digest(foreign.ensemble), file_digest)
    own_trees = getattr(model, "ensemble_", None)
    trees = own_trees if isinstance(own_trees, Ensemble) else libraries.open(model).ensemble
    return NamedModel(trees, digest(trees), None)


def claim(model: Any, mark: Mark, *, key: OwnerKey, force: bool = False) -> Claim:
    """Return the signed claim that a model carries a mark, to be published before it leaves.

    ``model`` is the marked model or its file; ``key`` the owner key that the mark was made with.
    The model is asked whether it carries the mark, unless ``force``.

    Raises InputError if the model is the unmarked one or does not carry the mark, or the key is
    another.

    >>> from sklearn.ensemble import GradientBoostingClassifier
    >>> marked = GradientBoostingClassifier(n_estimators=2).fit([[0.0], [1.0]], [0, 1])
    >>> key = OwnerKey.generate()
    >>> mark = Mark.make(
    ...     key, owner="Ann", model_digest="0" * 64, classes=[0, 1], triggers=[[0.5]],
    ...     alphabets=[[0, 1]], reference=[[0.9, 0.1]],
    ... )
    >>> claim(marked, mark, key=key, force=True).owner
    'Ann'
    """
    named = name_model(model)
    made = Claim.make(mark, key, marked_digest=named.digest, marked_file=named.file_digest)
    if not force:
        found = verify(model, mark).bits
        if found < min(INDICATIVE_BITS, mark.full_bits / 2):
            raise InputError(
                f"The model does not carry the mark: {found:.0f} of {mark.full_bits:.0f} bits were "
                "found, and a claim on it would prove nothing.",
                hint="give the model that marking gave back with this mark.",
            )
    return made
