"""Closing a model around other leaf values and thresholds, checked before and after.

`check_edit` says what may change, `probe_rows` makes rows that ask a tree model awkward questions,
and `check_margins` compares its margins with ours on them.

Some trees were grown by splitting the leaf with the highest gain next. The splits of such a tree
are numbered as they were made. Children are given by number: a split, or ~leaf. When gains have
changed, the tree can be numbered as if it had been grown with them.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, NoReturn

import numpy as np

from timbermark.dtypes import AnyArray, Flags, Offsets, Reals
from timbermark.errors import InputError, StateError
from timbermark.libraries.contract import ForeignModel
from timbermark.trees import reference
from timbermark.trees.ensemble import Ensemble, FloatType
from timbermark.trees.statistics import NodeStatistics, node_statistics

_EDITABLE = ("value", "threshold")
_FEWEST_ROWS, _MOST_ROWS = 32, 256
_WALKS = 1 << 16
"""Rows times trees that a model is asked about. Every row tests each tree at one split of every
level, so that more trees need fewer rows to show what a library does at thresholds."""
_MOST_SINGLE = float(np.finfo(np.float32).max)
_SINGLE_ROWS = 5  # how many of them are also asked one by one


def check_edit(foreign: ForeignModel, ensemble: Ensemble) -> None:
    """Raise InputError unless an ensemble differs in leaf values and movable thresholds only.

    Both must be finite and exact in the type that the library holds them in. Where the library
    shares thresholds, equal ones of a column must stay equal.
    """
    old = foreign.ensemble
    for name in (field.name for field in fields(Ensemble) if field.name not in _EDITABLE):
        if not _same(getattr(old, name), getattr(ensemble, name)):
            _refuse(f"{name} of the ensemble is not that of the {foreign.kind}.")
    for name in _EDITABLE:
        shape, expected = getattr(ensemble, name).shape, getattr(old, name).shape
        if shape != expected:
            _refuse(f"{name} of the ensemble has the shape {shape}, not {expected}.")
    values = ensemble.value[ensemble.left < 0]
    _check_numbers("leaf value", values, foreign.leaf_dtype, foreign.library)
    moved = changed_thresholds(old, ensemble)
    if not moved.any():
        return
    stuck = np.flatnonzero(moved & ~foreign.movable)
    if len(stuck):
        raise InputError(
            f"Node {stuck[0]} of the {foreign.kind} has no threshold that can be moved.",
            hint="move thresholds where the opened model's movable says so; leaves, splits by "
            "category and splits of missing values stay as they are.",
            code="thresholds.fixed",
        )
    _check_numbers("threshold", ensemble.threshold[moved], foreign.threshold_dtype, foreign.library)
    if foreign.shared_thresholds:
        _check_shared(foreign, ensemble)


def _refuse(message: str) -> NoReturn:
    raise InputError(
        message,
        hint="change nothing but leaf values and thresholds of the ensemble that was opened.",
    )


def _check_numbers(what: str, numbers: Reals, dtype: FloatType, library: str) -> None:
    if not np.isfinite(numbers).all():
        raise InputError(
            f"A {what} is not finite.", hint=f"check the new {what}s.", code="values.not-finite"
        )
    with np.errstate(over="ignore"):
        held = numbers.astype(dtype).astype(np.float64)
    if not np.array_equal(held, numbers):
        raise InputError(
            f"A {what} is not exact in {library}'s {np.dtype(dtype).name}.",
            hint=f"round the {what}s with astype({dtype!r}) first.",
            code="values.not-exact",
        )


def _check_shared(foreign: ForeignModel, ensemble: Ensemble) -> None:
    """Raise InputError if splits with one threshold, which all trees share, got different ones."""
    old = foreign.ensemble
    nodes = np.flatnonzero(foreign.movable)
    order = nodes[np.lexsort((old.threshold[nodes], old.feature[nodes]))]
    here, there = order[:-1], order[1:]
    together = (old.feature[here] == old.feature[there]) & (
        old.threshold[here] == old.threshold[there]
    )
    bits = ensemble.threshold.view(np.int64)
    apart = np.flatnonzero(together & (bits[here] != bits[there]))
    if len(apart):
        node = here[apart[0]]
        raise InputError(
            f"Splits of column {old.feature[node]} at {old.threshold[node]:.9g} got different "
            f"thresholds, but {foreign.library} has one border for all of them.",
            hint="move all splits of a column that have one threshold to the same new one.",
            code="thresholds.shared",
        )


def changed_thresholds(old: Ensemble, new: Ensemble) -> Flags:
    """Return which nodes have another threshold, bool [N].

    >>> from timbermark.trees.construction import constant_ensemble
    >>> one = constant_ensemble(n_features=1, value=1.0)
    >>> changed_thresholds(one, one)
    array([False])
    """
    differ: Flags = old.threshold.view(np.int64) != new.threshold.view(np.int64)
    return differ


def changed_leaves(old: Ensemble, new: Ensemble) -> AnyArray:
    """Return which nodes are leaves with another value, bool [N].

    >>> from timbermark.trees.construction import constant_ensemble
    >>> one, two = (constant_ensemble(n_features=1, value=v) for v in (1.0, 2.0))
    >>> changed_leaves(one, one), changed_leaves(one, two)
    (array([False]), array([ True]))
    """
    differ: AnyArray = (old.value.view(np.int64) != new.value.view(np.int64)).any(axis=1)
    return differ & (new.left < 0)


def _same(old: object, new: object) -> bool:
    if isinstance(old, np.ndarray) and isinstance(new, np.ndarray):
        return old.shape == new.shape and old.tobytes() == new.tobytes()
    return old == new


def probe_rows(ensemble: Ensemble, n_rows: int | None = None, seed: int = 0) -> Reals:
    """Return rows on, just below and just above the ensemble's thresholds, some missing, [n, d].

    Values of category features are categories that occur in its sets, and some that do not. By
    default there are 256 rows, and fewer where the ensemble has more than 256 trees.

    >>> from timbermark.trees.construction import constant_ensemble
    >>> probe_rows(constant_ensemble(n_features=2, value=1.0), n_rows=3).shape
    (3, 2)
    """
    if n_rows is None:
        n_rows = min(max(_WALKS // max(ensemble.n_trees, 1), _FEWEST_ROWS), _MOST_ROWS)
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n_rows, ensemble.n_features))
    inner = ensemble.left >= 0
    by_category = inner & (ensemble.category_set >= 0)
    for feature in np.unique(ensemble.feature[inner]):
        here = inner & (ensemble.feature == feature)
        if (here & by_category).any():
            sets = np.unique(ensemble.category_set[here & by_category])
            known = np.concatenate(
                [
                    ensemble.category_values[
                        ensemble.category_offsets[s] : ensemble.category_offsets[s + 1]
                    ]
                    for s in sets
                ]
            )
            values = np.append(np.unique(known), [0, known.max(initial=0) + 1]).astype(np.float64)
        else:
            at = np.unique(ensemble.threshold[here])
            at = at[np.isfinite(at)]
            if len(at) == 0:
                continue
            # A threshold beyond float32 is asked as an infinity.
            with np.errstate(over="ignore"):
                single = at.astype(np.float32)
                below = np.nextafter(single, np.float32(-np.inf)).astype(np.float64)
                above = np.nextafter(single, np.float32(np.inf)).astype(np.float64)
            values = np.concatenate([at, below, above, [at.min() - 1.0, at.max() + 1.0]])
            if ensemble.input_dtype == "f4":  # such libraries take no infinity
                values = np.clip(values, -_MOST_SINGLE, _MOST_SINGLE)
        rows[:, feature] = rng.choice(values, n_rows)
    rows[rng.random(rows.shape) < 0.05] = np.nan
    return rows


def check_margins(
    foreign: ForeignModel, ensemble: Ensemble, model: Any, probes: Reals | None = None
) -> None:
    """Raise StateError unless a model's margins are those of an ensemble, bit for bit.

    ``model`` is of the foreign model's library. It is asked for many rows at once and for single
    ones, which some libraries predict in another way. ``probes``: rows [n, d] to ask about, by
    default those of the ensemble. The models inside a deployed one are checked one by one when
    they are closed.
    """
    if foreign.inside:
        return
    adapter = foreign.adapter
    X = adapter.native_rows(foreign, probe_rows(ensemble) if probes is None else probes)
    ours = reference.margins(ensemble, adapter.rows(foreign, X)).astype(np.float64)
    check_equal(ours, adapter.margins(model, X), adapter.name)
    for i in range(_SINGLE_ROWS):
        check_equal(ours[i : i + 1], adapter.margins(model, X[i : i + 1]), adapter.name)


def check_equal(ours: Reals, theirs: Reals, library: str) -> None:
    """Raise StateError unless two sets of margins are equal bit for bit."""
    hint = "nothing was written; please report the model's parameters and versions."
    if ours.shape != theirs.shape:
        raise StateError(f"{library} gives margins of the shape {theirs.shape}.", hint)
    differ = int((ours != theirs).any(axis=1).sum())
    if differ:
        raise StateError(
            f"{library} does not predict what timbermark does on {differ} of {len(ours)} rows.",
            hint,
        )


def close(foreign: ForeignModel, ensemble: Ensemble) -> Any:
    """Return a new model of the same type with the leaf values and thresholds of ``ensemble``.

    Everything else stays, trees after the best iteration included. The statistics of inner nodes
    follow leaf values by the library's own formula; counts, hessians and gains stay as they are
    where only thresholds move. Margins are those of `timbermark.trees.reference`, bit for bit,
    which is checked on rows at and next to thresholds, old and new.

    Raises InputError if anything else differs from the foreign model's ensemble, a number cannot be
    held by the library, or a threshold cannot be moved (see `ForeignModel.movable`); StateError if
    the new model predicts something else.

    >>> from dataclasses import replace
    >>> from sklearn.ensemble import GradientBoostingClassifier
    >>> from timbermark import libraries
    >>> model = GradientBoostingClassifier(init="zero").fit([[0.0], [1.0]], [0, 1])
    >>> foreign = libraries.open(model)
    >>> halved = replace(foreign.ensemble, value=foreign.ensemble.value / 2)
    >>> marked = close(foreign, halved)
    >>> bool(marked.decision_function([[0.0]]) * 2 == model.decision_function([[0.0]]))
    True
    """
    check_edit(foreign, ensemble)
    model = foreign.adapter.close(foreign, ensemble)
    probes = probe_rows(ensemble)
    if changed_thresholds(foreign.ensemble, ensemble).any():
        probes = np.concatenate([probes, probe_rows(foreign.ensemble)])
    check_margins(foreign, ensemble, model, probes)
    return model


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """How leaves were made: a leaf's value is its weight times ``rate`` plus ``bias``, [T] each.

    ``l2_of_node`` [N]: what each node's own weight was regularized with, if not all by ``l2``.
    """

    rate: Reals
    l2: float
    l1: float = 0.0
    l2_of_node: Reals | None = None
    bias: Reals | float = 0.0

    def statistics(self, ensemble: Ensemble) -> NodeStatistics:
        """Return what the leaves of an ensemble, which holds the first trees, say of every node."""
        return node_statistics(
            ensemble,
            ensemble.value[:, 0],
            hessian=ensemble.hessian,
            l1=self.l1,
            l2=self.l2,
            l2_of_node=self.l2_of_node,
            learning_rate=self.rate[: ensemble.n_trees],
            bias=self.bias,
        )


def gains_fall(left: AnyArray, right: AnyArray, gain: AnyArray) -> bool:
    """Return whether each split had the highest gain of all that could be made when it was made.

    >>> left, right = np.array([1, -1, -3]), np.array([2, -2, -4])
    >>> gains_fall(left, right, np.array([3.0, 2.0, 1.0]))
    True
    >>> gains_fall(left, right, np.array([3.0, 1.0, 2.0]))
    False
    """
    # Lists, because trees are many and small.
    parent = [-1] * len(left)
    for side in (left.tolist(), right.tolist()):
        for split, child in enumerate(side):
            if child >= 0:
                parent[child] = split
    is_tree = parent[:1] in ([], [-1]) and all(0 <= parent[j] < j for j in range(1, len(parent)))
    if not is_tree:
        return False
    # Whatever was split while this one could have been must have gained at least as much.
    gains = gain.tolist()
    return all(
        min(gains[parent[j] + 1 : j], default=np.inf) >= gains[j] for j in range(1, len(gains))
    )


def grow_best_first(
    left: AnyArray,
    right: AnyArray,
    gain: AnyArray,
    number_children: Callable[[int, int], tuple[int, int]],
) -> tuple[Offsets, Offsets, Offsets]:
    """Return the splits in the order of their gains, and the numbers that nodes get by it.

    ``number_children(step, number)`` says what the children of a node with this number are called
    that is split at this step; the root is 0. Of equal gains the node with the lower number is
    split first. Returns the splits by their old numbers, [S], the number of each split as a node,
    [S], and that of each leaf, [S + 1].

    >>> left, right = np.array([1, -1, -3]), np.array([2, -2, -4])
    >>> by_pairs = lambda step, number: (2 * step + 1, 2 * step + 2)
    >>> grow_best_first(left, right, np.array([3.0, 1.0, 2.0]), by_pairs)
    (array([0, 2, 1]), array([0, 1, 2]), array([5, 6, 3, 4]))
    """
    splits: list[int] = []
    node = np.zeros(len(left), dtype=np.int64)
    leaf = np.zeros(len(left) + 1, dtype=np.int64)
    gains, children = (-gain.astype(np.float64)).tolist(), (left.tolist(), right.tolist())
    heap = [(gains[0], 0, 0)]
    while heap:
        _, number, split = heapq.heappop(heap)
        node[split] = number
        numbers = number_children(len(splits), number)
        splits.append(split)
        for side, below in zip(children, numbers, strict=True):
            child = side[split]
            if child < 0:
                leaf[~child] = below
            else:
                heapq.heappush(heap, (gains[child], below, child))
    return np.array(splits), node, leaf
