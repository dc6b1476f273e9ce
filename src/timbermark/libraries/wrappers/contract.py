"""What the module of a kind of wrapper has, and what it says of a deployed model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol, TypeAlias

from timbermark.dtypes import AnyArray, Reals
from timbermark.errors import InputError
from timbermark.libraries.contract import ForeignModel

Scores: TypeAlias = Callable[[Sequence[ForeignModel], Sequence[Reals]], Reals]


@dataclass(frozen=True, slots=True, eq=False)
class Peeled:
    """The boosted models in a deployed one, the way in and the way out.

    ``scores`` makes answers [n, classes] of the opened models and their margins, in their order;
    None where they are those of the only model inside. ``numbers`` makes the numbers that the
    deployed model gives of those of the only model inside; None where they are the same.
    ``steps``: the fitted transformers that rows pass on their way to the first model, in order.
    ``frozen``: wrappers that a copy must be made of by hand.
    """

    models: tuple[Any, ...]
    rows: Callable[[Any], tuple[Any, ...]]  # what predict takes -> what each model takes
    scores: Scores | None = None
    numbers: Callable[[Reals], Reals] | None = None
    classes: AnyArray | None = None  # None: those of the only model inside
    steps: tuple[Any, ...] = ()
    frozen: tuple[Any, ...] = ()


Peel: TypeAlias = Callable[[Any], Peeled]


class WrapperKind(Protocol):
    """What the module of a kind of wrapper has."""

    KINDS: tuple[str, ...]  # names of types
    TRUSTED: tuple[str, ...]  # types in its files, beyond what skops trusts by itself

    def is_kind(self, model: object) -> bool:
        """Return whether an object is such a wrapper, fitted or not."""

    def peel(self, model: Any, peel: Peel) -> Peeled:
        """Return what is inside a fitted wrapper; ``peel`` does that for what is inside it.

        Raises InputError if it is not fitted or not supported.
        """


def refuse_unfitted(model: Any) -> NoReturn:
    """Raise InputError for a wrapper that is not fitted."""
    raise InputError(f"The {type(model).__name__} is not fitted.", hint="call its fit first.")
