"""The neutral ensemble: flat arrays for all trees, and what a predictor must know to use them.

It expresses, bit for bit, the models of XGBoost, LightGBM, CatBoost and scikit-learn as well as
our own: what they cast rows to, how they compare, where missing values and categories go, in which
type and order they add up. `timbermark.trees.reference` says precisely what each field means for a
prediction; `timbermark.trees.ensemble_file` says what makes an ensemble sound.

Node 0 of each tree is its root. The nodes of tree t are ``tree_start[t]:tree_start[t + 1]`` in
every per-node array, and children are numbered within their tree::

    tree_start   0           5       8
    tree         0 0 0 0 0   1 1 1
    left         1 3 . . .   1 . .
    right        2 4 . . .   2 . .
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import DTypeLike

from timbermark.dtypes import (
    CATEGORY,
    FLAG,
    NODE_INDEX,
    OFFSET,
    REAL,
    SMALL_KIND,
    AnyArray,
    Categories,
    Flags,
    NodeIndices,
    Offsets,
    Reals,
    SmallKinds,
)
from timbermark.errors import InputError

Objective: TypeAlias = Literal["softmax", "logistic", "sigmoid", "identity", "exponential", "expit"]
Side: TypeAlias = Literal["left", "right"]
FloatType: TypeAlias = Literal["f4", "f8"]

OBJECTIVES: tuple[Objective, ...] = (
    *("softmax", "logistic", "sigmoid"),
    *("identity", "exponential", "expit"),
)
NUMBERS: tuple[Objective, ...] = ("identity", "exponential", "expit")
"""What a margin becomes where the answer is a number: itself, its exponential, or a share."""
SINGLE_OUTPUT: tuple[Objective, ...] = ("logistic", *NUMBERS)
SIDES: tuple[Side, ...] = ("left", "right")
FLOAT_TYPES: tuple[FloatType, ...] = ("f4", "f8")

# The values of `missing_kind`.
MISSING_NONE = 0  # nothing is missing: NaN counts as 0.0
MISSING_ZERO = 1  # NaN and everything within ZERO_RANGE of zero are missing
MISSING_NAN = 2  # NaN is missing
# float32(1e-35) as a float64, as in LightGBM.
ZERO_RANGE = 1.0000000180025095e-35

ARRAY_TYPES: dict[str, DTypeLike] = {
    "tree_start": OFFSET,
    "tree_output": NODE_INDEX,
    "tree_weight": REAL,
    "feature": NODE_INDEX,
    "threshold": REAL,
    "left": NODE_INDEX,
    "right": NODE_INDEX,
    "missing_left": FLAG,
    "missing_kind": SMALL_KIND,
    "category_set": NODE_INDEX,
    "category_offsets": OFFSET,
    "category_values": CATEGORY,
    "value": REAL,
    "count": REAL,
    "hessian": REAL,
    "gain": REAL,
    "init": REAL,
}


@dataclass(frozen=True, slots=True, eq=False)
class Ensemble:
    """T trees with N nodes in all, S category sets and K outputs; see the module for the layout.

    Construction converts every array to its type in ``ARRAY_TYPES``, in C order, and makes it
    read-only; an array that somebody could still write to is copied. Nothing else is checked: use
    `make_ensemble`, or `validate_ensemble` after construction. Two ensembles are equal if they are
    the same bit for bit.

    Raises InputError if an array cannot be converted without loss.
    """

    n_features: int
    n_outputs: int  # K: 1 for numbers and for two classes (one margin), else one per class
    objective: Objective  # sigmoid: one against all; identity: numbers, the margin is the answer
    tree_start: Offsets  # [T + 1] where each tree's nodes begin
    tree_output: NodeIndices  # [T] which output a tree adds to; -1: leaf vectors add to all
    tree_weight: Reals  # [T] what its leaves are multiplied by
    feature: NodeIndices  # [N] -1 at leaves
    threshold: Reals  # [N] unused at leaves and category splits
    left: NodeIndices  # [N] -1 at leaves
    right: NodeIndices  # [N] -1 at leaves
    missing_left: Flags  # [N] whether missing values go left
    missing_kind: SmallKinds  # [N] what counts as missing, one of MISSING_*
    category_set: NodeIndices  # [N] -1: compare with the threshold; else which set to look in
    category_offsets: Offsets  # [S + 1] where each set's values begin
    category_values: Categories  # ascending within a set
    categories_go: Side  # where a row goes whose category is in the set; others go opposite
    value: Reals  # [N, 1], or [N, K] for leaf vectors; only leaves count
    count: Reals  # [N] training rows, a statistic
    hessian: Reals  # [N] sum of hessians, a statistic
    gain: Reals  # [N] what the split gained, a statistic
    init: Reals  # [K] where the sum starts, or what is added last
    init_last: bool  # margin = sum * scale + init rather than init + sum
    scale: float  # 1.0 unless init_last
    strict: bool  # left if x < threshold rather than x <= threshold
    input_dtype: FloatType  # what rows are cast to before anything else
    sum_dtype: FloatType  # what margins are added up in
    zero_is_positive: bool  # the label of two classes at a margin of exactly 0

    def __post_init__(self) -> None:
        for name, dtype in ARRAY_TYPES.items():
            object.__setattr__(self, name, _frozen(name, getattr(self, name), dtype))

    @property
    def n_trees(self) -> int:
        """Return the number of trees, T."""
        return len(self.tree_start) - 1

    @property
    def n_nodes(self) -> int:
        """Return the number of nodes over all trees, N."""
        return len(self.feature)

    @property
    def n_leaves(self) -> int:
        """Return the number of leaves over all trees."""
        return int(np.count_nonzero(self.left < 0))

    @property
    def n_classes(self) -> int:
        """Return the number of classes: 2 for one logistic margin, 0 for numbers."""
        if self.gives_numbers:
            return 0
        return 2 if self.objective == "logistic" else self.n_outputs

    @property
    def gives_numbers(self) -> bool:
        """Return whether it answers with numbers rather than with labels."""
        return self.objective in NUMBERS

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ensemble) and equal(self, other)

    def __hash__(self) -> int:
        return hash(digest(self))

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy from another process passes through the constructor, and so is read-only as well.
        return Ensemble, tuple(getattr(self, field.name) for field in fields(self))


def _frozen(name: str, array: AnyArray, dtype: DTypeLike) -> AnyArray:
    given = np.asarray(array)
    try:
        with np.errstate(invalid="ignore", over="ignore"):
            frozen = given.astype(dtype, order="C", copy=False)
        exact = given.dtype == dtype or np.array_equal(frozen, given, equal_nan=True)
    except (TypeError, ValueError):
        exact = False
    if not exact:
        raise InputError(
            f"{name} does not fit into {np.dtype(dtype).name} without loss.",
            hint="check its values; indices must be whole numbers in range.",
        )
    if frozen.flags.writeable or frozen.base is not None:
        frozen = frozen.copy()
        frozen.flags.writeable = False
    return frozen


def equal(first: Ensemble, second: Ensemble) -> bool:
    """Return whether two ensembles are the same bit for bit, statistics and zeros' signs included.

    >>> from dataclasses import replace
    >>> from timbermark.trees.construction import constant_ensemble
    >>> two = constant_ensemble(n_features=1, value=2.0)
    >>> equal(two, replace(two)), equal(two, replace(two, init=np.array([-0.0])))
    (True, False)
    """
    return all(a == b for a, b in zip(_canonical(first), _canonical(second), strict=True))


def digest(ensemble: Ensemble) -> str:
    """Return the SHA-256 of the content, as 64 hexadecimal digits; equal if `equal`.

    >>> from timbermark.trees.construction import constant_ensemble
    >>> len(digest(constant_ensemble(n_features=1, value=2.0)))
    64
    """
    total = hashlib.sha256()
    for part in _canonical(ensemble):
        # Lengths keep two neighbouring parts from being cut elsewhere.
        total.update(len(part).to_bytes(8, "little") + part)
    return total.hexdigest()


def scalars(ensemble: Ensemble) -> dict[str, int | float | bool | str]:
    """Return the fields that are not arrays, by name.

    >>> from timbermark.trees.construction import constant_ensemble
    >>> scalars(constant_ensemble(n_features=1, value=2.0))["objective"]
    'logistic'
    """
    names = (field.name for field in fields(ensemble))
    return {name: getattr(ensemble, name) for name in names if name not in ARRAY_TYPES}


def _canonical(ensemble: Ensemble) -> Iterator[bytes]:
    yield json.dumps(scalars(ensemble), sort_keys=True).encode()
    for name in ARRAY_TYPES:
        array: AnyArray = getattr(ensemble, name)
        little = array.astype(array.dtype.newbyteorder("<"), copy=False)
        yield json.dumps([name, *array.shape]).encode()
        yield little.tobytes()
