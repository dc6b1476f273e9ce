"""The two seals of a mark: triggers in leaves, and triggers in splits.

A trigger of the *leaf seal* is a row; its symbol says which label of its alphabet the marked model
answers with. A trigger of the *split seal* is a row of which one value is set to a, to the middle
and to b, the ends of a gap in which the model has thresholds; its symbol says whether the middle is
answered like a (0) or like b (1). Both seals hold what the unmarked model answers, which was fixed
before symbols were drawn.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import DTypeLike

from timbermark.dtypes import (
    CLASS_INDEX,
    NODE_INDEX,
    REAL,
    SMALL_KIND,
    AnyArray,
    ClassIndices,
    Flags,
    Reals,
)
from timbermark.errors import InputError
from timbermark.ownership.columns import (
    Column,
    check_distinct,
    freeze_columns,
    split_columns,
    take_rows,
)
from timbermark.ownership.encoding import freeze, require
from timbermark.ownership.symbols import ALPHABET_SIZES, HASH_BYTES

Label: TypeAlias = bool | int | float | str

SCORE_FLOOR = 1e-6
"""Probabilities below this count as this: the logarithm of 0 would outweigh everything else."""
MOST_ALTERNATIVES = 16
NO_ALTERNATIVES: Reals = np.zeros((0, 0, 0))
MOST_STRATA = 8
NO_STRATA: AnyArray = np.zeros((0, 0), NODE_INDEX)
LOW, MIDDLE, HIGH = range(3)
_LABEL_TYPES = (bool, int, float, str)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class LeafSeal:
    """k rows, each with an alphabet of q labels; what models without the mark answer to them.

    `timbermark.ownership.mark.Mark` checks and freezes all of it.
    """

    columns: tuple[Column, ...]  # d columns of k values, each float64 or texts
    alphabets: ClassIndices  # int32 [k, q] of distinct class numbers, keep first; q is 2 or 4
    reference: Reals  # float64 [k, K], the unmarked model's probabilities, from 1e-6 to 1
    # float64 [k, R, q], from 1e-6 to 1: scores of the alphabets' labels by R models without the
    # mark, such as thieves might make
    alternatives: Reals

    name: ClassVar[str] = "leaves"
    rows_each: ClassVar[int] = 1
    types: ClassVar[Mapping[str, DTypeLike]] = {
        "alphabets": CLASS_INDEX,
        "reference": REAL,
        "alternatives": REAL,
    }

    @classmethod
    def make(
        cls,
        triggers: Any,
        alphabets: Any,
        reference: Any,
        alternatives: Any = NO_ALTERNATIVES,
    ) -> "LeafSeal":
        """Return a seal of rows [k, d]: a matrix, a list of rows or a data frame."""
        return cls(split_columns(triggers), alphabets, reference, alternatives)

    @property
    def q(self) -> int:
        """Return the size of the alphabets."""
        return int(self.alphabets.shape[1])

    def rows(self) -> tuple[Column, ...]:
        """Return the rows to ask, as columns of k values."""
        return self.columns

    def frozen(self, classes: Sequence[Label]) -> "LeafSeal":
        """Return the seal checked, copied and read-only. Raises InputError if it is not sound."""
        require(
            len(classes) > 0,
            "a mark of numbers has triggers in leaves",
            "use splits.",
            "leaves.numbers",
        )
        return LeafSeal(**_freeze_leaves(self, classes))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SplitSeal:
    """n rows, each with a column that is set to a, to the middle and to b of a gap.

    `timbermark.ownership.mark.Mark` checks and freezes all of it.
    """

    columns: tuple[Column, ...]  # d columns of n values: the rows with their column at a
    features: AnyArray  # int32 [n], which column is set; it holds numbers
    values: Reals  # float64 [n, 3], a < middle < b
    # float64 [n, 2, K] from 1e-6 to 1, or [n, 2, 1] where the answers are numbers: what the
    # unmarked model answers at a and at b
    reference: Reals
    # int32 [n, S]: divisions of the triggers into kinds that an attack may hit separately
    strata: AnyArray

    name: ClassVar[str] = "splits"
    rows_each: ClassVar[int] = 3
    q: ClassVar[int] = 2
    types: ClassVar[Mapping[str, DTypeLike]] = {
        "features": NODE_INDEX,
        "values": REAL,
        "reference": REAL,
        "strata": NODE_INDEX,
    }

    @classmethod
    def make(
        cls, rows: Any, features: Any, values: Any, reference: Any, strata: Any = NO_STRATA
    ) -> "SplitSeal":
        """Return a seal of rows [n, d]; the value that each has in its own column is set to a."""
        columns = list(split_columns(rows))
        places, gaps = np.asarray(features), np.asarray(values, dtype=REAL)
        require(
            places.shape == (len(columns[0]),)
            and gaps.shape == (len(places), 3)
            and places.dtype.kind in "iu",
            "features and values do not fit the rows of the split seal",
            "give one column number and three values for each row.",
            "splits.shape",
        )
        for feature in np.unique(places):
            known = 0 <= feature < len(columns) and isinstance(columns[feature], np.ndarray)
            require(
                bool(known),
                f"column {feature} of the split seal does not hold numbers",
                code="splits.features",
            )
            column = np.array(columns[feature])
            column[places == feature] = gaps[places == feature, LOW]
            columns[feature] = column
        return cls(tuple(columns), places, gaps, reference, strata)

    @property
    def shows_in_labels(self) -> Flags:
        """Return for which triggers the unmarked model has different labels at a and b, bool [n].

        >>> reference = [[[0.9, 0.1], [0.4, 0.6]], [[0.9, 0.1], [0.8, 0.2]]]
        >>> seal = SplitSeal.make([[0.0], [5.0]], [0, 0], [[0, 1, 2], [5, 6, 7]], reference)
        >>> seal.frozen(["no", "yes"]).shows_in_labels
        array([ True, False])
        """
        best = self.reference.argmax(axis=2)
        return np.asarray(best[:, 0] != best[:, 1])

    def rows(self) -> tuple[Column, ...]:
        """Return the rows to ask, as columns of 3n values: each trigger at a, the middle and b."""
        n = len(self.features)
        each = np.repeat(np.arange(n), 3)
        columns = list(take_rows(self.columns, each.tolist()))
        for feature in np.unique(self.features):
            column = np.array(columns[feature])
            own = self.features[each] == feature
            column[own] = self.values.reshape(-1)[own]
            columns[feature] = column
        return tuple(columns)

    def frozen(self, classes: Sequence[Label]) -> "SplitSeal":
        """Return the seal checked, copied and read-only. Raises InputError if it is not sound."""
        columns = freeze_columns(self.columns)
        n = len(columns[0])
        features = _array(self, "features", (n,), "iu")
        numeric = [isinstance(column, np.ndarray) for column in columns]
        require(
            all(0 <= feature < len(columns) and numeric[feature] for feature in features.tolist()),
            "the features of the split seal are not columns of numbers",
            "give the number of one column for each row.",
            "splits.features",
        )
        values = _frozen(_array(self, "values", (n, 3)) + 0.0, REAL)
        require(
            bool(np.isfinite(values).all() and (np.diff(values, axis=1) > 0).all()),
            "the values of the split seal are not three rising numbers for each row",
            "give the lower end, the middle and the upper end of each gap.",
            "splits.values",
        )
        at_low = np.array([columns[f][i] for i, f in enumerate(features.tolist())])
        require(
            bool((at_low == values[:, LOW]).all()),
            "a row of the split seal is not at its low end",
            code="splits.rows",
        )
        boundaries = {(int(f), *gap) for f, gap in zip(features, values.tolist(), strict=True)}
        require(
            len(boundaries) == n,
            "two triggers of the split seal ask the same gap",
            code="splits.same",
        )
        reference = _array(self, "reference", (n, 2, len(classes) or 1))
        require(
            bool(np.isfinite(reference).all()),
            "the reference of the split seal is not finite",
            code="splits.reference",
        )
        known = _shares(reference, "splits.reference") if classes else _frozen(reference, REAL)
        strata = _array(self, "strata", (n, MOST_STRATA), "iu", up_to=True)
        return SplitSeal(
            columns, _frozen(features, NODE_INDEX), values, known, _frozen(strata, NODE_INDEX)
        )


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class DrawnSeal(LeafSeal):
    """k questions that a guard answered; it drew each symbol by its key when the question came.

    It stands where a leaf seal stands and is asked and weighed like one, but its symbols are stored
    and not derived from the mark. Where suspects answer with numbers, the alphabet is 0 (the lower
    answer) and 1 (the higher one), and ``reference`` [k, 2] holds both.
    `timbermark.ownership.mark.Mark` checks and freezes all of it.
    """

    drawn: AnyArray  # uint8 [k], the symbol of each question
    links: AnyArray  # uint8 [k, 32], a secret of each question's entry in the guard's ledger

    types: ClassVar[Mapping[str, DTypeLike]] = {
        **LeafSeal.types,
        "drawn": SMALL_KIND,
        "links": SMALL_KIND,
    }

    def frozen(self, classes: Sequence[Label]) -> "DrawnSeal":
        """Return the seal checked, copied and read-only. Raises InputError if it is not sound."""
        parts = _freeze_leaves(self, classes)
        k, q = parts["alphabets"].shape
        require(q == 2, "a guard draws one of two labels", code="leaves.alphabets")
        drawn = _array(self, "drawn", (k,), "iu")
        require(
            bool(((drawn >= 0) & (drawn < 2)).all()),
            "the drawn symbols are not 0 or 1 for each question",
            code="leaves.drawn",
        )
        links = _array(self, "links", (k, HASH_BYTES), "u")
        require(links.dtype == SMALL_KIND, "the links are no bytes", code="leaves.links")
        return DrawnSeal(
            **parts, drawn=_frozen(drawn, SMALL_KIND), links=_frozen(links, SMALL_KIND)
        )


def _freeze_leaves(seal: LeafSeal, classes: Sequence[Label]) -> dict[str, Any]:
    """Return the parts of a leaf seal checked, copied and read-only.

    Without classes suspects answer with numbers: the reference is a lower and a higher answer.
    """
    columns = freeze_columns(seal.columns)
    check_distinct(columns)
    k, n_answers = len(columns[0]), len(classes) or 2
    alphabets = _freeze_alphabets(seal, k, n_answers)
    reference = _array(seal, "reference", (k, n_answers))
    most = MOST_ALTERNATIVES if classes else 0
    others = _array(seal, "alternatives", (k, most, alphabets.shape[1]), up_to=True)
    if classes:
        reference = _shares(reference, "leaves.reference")
        others = _shares(others, "leaves.alternatives")
    else:
        require(
            bool(np.isfinite(reference).all() and (reference[:, 0] < reference[:, 1]).all()),
            f"the reference is not a lower and a higher answer for each of {k} questions",
            code="leaves.reference",
        )
    return {
        "columns": columns,
        "alphabets": alphabets,
        "reference": _frozen(reference, REAL),
        "alternatives": _frozen(others, REAL),
    }


Seal: TypeAlias = LeafSeal | SplitSeal


def take_triggers(seal: Seal, places: Sequence[int]) -> Any:
    """Return a seal with some of its triggers only, in the given order."""
    chosen = list(places)
    arrays = {name: getattr(seal, name)[chosen] for name in seal.types}
    return type(seal)(columns=take_rows(seal.columns, chosen), **arrays)


def agree_on_missing(*seals: Seal | None) -> list[Seal]:
    """Return the seals of one mark that are there, with columns of the same kinds where possible.

    A column in which every trigger of one seal has no value looks like numbers; if it holds texts
    in the other seal, it is one of missing texts.
    """
    given = [replace(seal, columns=freeze_columns(seal.columns)) for seal in seals if seal]
    texts = {
        place
        for seal in given
        for place, column in enumerate(seal.columns)
        if not isinstance(column, np.ndarray)
    }
    return [
        replace(
            seal,
            columns=tuple(
                (None,) * len(column)
                if place in texts and isinstance(column, np.ndarray) and np.isnan(column).all()
                else column
                for place, column in enumerate(seal.columns)
            ),
        )
        for seal in given
    ]


def check_classes(given: Any) -> tuple[Label, ...]:
    """Return the labels of a model as Python values, in the given order.

    Raises InputError unless it is a list, tuple or array of at least two, all distinct, and all
    bool, all int, all float or all str.

    >>> check_classes(np.array([3, 5]))
    (3, 5)
    """
    if not isinstance(given, list | tuple | np.ndarray):
        raise InputError(
            "The classes are no list of labels.",
            hint="give them in their order.",
            code="field.classes",
        )
    classes: tuple[Any, ...] = tuple(freeze(label, "classes") for label in given)
    kinds = {type(label) for label in classes}
    if len(kinds) > 1 or not kinds <= set(_LABEL_TYPES):
        named = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise InputError(
            f"The classes are of the types {named}.",
            hint="labels are all booleans, all whole numbers, all numbers or all texts.",
            code="field.classes",
        )
    if len(classes) < 2 or len(set(classes)) < len(classes):
        raise InputError(
            f"{len(classes)} classes, of which {len(set(classes))} are distinct, are not enough.",
            hint="give every label of the model once.",
            code="field.classes",
        )
    return classes


def _freeze_alphabets(seal: LeafSeal, k: int, n_classes: int) -> ClassIndices:
    array = _array(seal, "alphabets", (k, max(ALPHABET_SIZES)), "iu", up_to=True)
    require(
        array.shape[1] in ALPHABET_SIZES,
        f"the alphabets have {array.shape[1]} labels",
        "use 2 or 4.",
        "leaves.alphabets",
    )
    require(
        bool((array >= 0).all() and (array < n_classes).all()),
        f"an alphabet has a class number outside 0 to {n_classes - 1}",
        "alphabets hold numbers of classes, not labels.",
        "leaves.alphabets",
    )
    ordered = np.sort(array, axis=1)
    require(
        bool((ordered[:, 1:] != ordered[:, :-1]).all()),
        "an alphabet has the same class twice",
        "the labels of an alphabet must differ.",
        "leaves.alphabets",
    )
    return _frozen(array, CLASS_INDEX)


def _shares(array: AnyArray, code: str) -> Reals:
    """Return probabilities read-only, from 1e-6 to 1; raises InputError for anything else."""
    # A sum of float32 numbers may pass 1 by a few units in the last place.
    require(
        bool(((array >= 0) & (array <= 1 + 1e-5)).all()),
        "the reference or the alternatives hold values that are no probabilities",
        "use predict_proba, not margins.",
        code,
    )
    return _frozen(np.clip(np.asarray(array, REAL), SCORE_FLOOR, 1.0), REAL)


def _array(
    seal: Any, name: str, shape: tuple[int, ...], kinds: str = "biuf", up_to: bool = False
) -> AnyArray:
    """Return an array of a seal, checked to have a shape and a type of some kinds.

    With ``up_to`` the second size is the largest one that it may have; an array without any entry
    stands for 0. Raises InputError for anything else.
    """
    try:
        array = np.asarray(getattr(seal, name))
    except ValueError:
        raise InputError(
            f"The {name} are rows of different lengths.", hint="give a matrix.", code="seal.shape"
        ) from None
    wanted = shape
    if up_to and array.shape in ((0,), (0,) * len(shape)):
        array = np.zeros((shape[0], 0, *shape[2:]), int)
    if up_to and array.ndim == len(shape):
        wanted = (shape[0], min(shape[1], array.shape[1]), *shape[2:])
    require(
        array.dtype.kind in kinds and array.shape == wanted,
        f"{name} of the {seal.name} has the type {array.dtype} and the shape {array.shape}, not "
        f"{'up to ' * up_to}{shape}",
        "give numbers of that shape, one row for each trigger.",
        f"{seal.name}.{name}",
    )
    return array


def _frozen(array: AnyArray, dtype: Any) -> AnyArray:
    copy = np.array(array, dtype=dtype, order="C")
    copy.flags.writeable = False
    return copy
