"""A model of another library as the engine sees it, and back again.

The engine knows one kind of tree: numeric splits ``x <= threshold`` on float64, missing values to
either side, one output per tree. Everything else that an Ensemble can express is turned into that
by adding columns and exchanging values, and turned back after the update:

- a category split becomes a split on a column of its own, 0 where a row goes left, else 1; the
  column of the categories themselves is blanked, so that nobody compares them as numbers;
- what counts as missing becomes NaN, and NaN that counts as 0.0 becomes 0.0;
- leaf vectors become one tree per output, and one tree again where the copies still agree;
- tree weights and the scale are folded into the leaves.

Trees that the update left alone come back bit for bit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from timbermark.boosting.forest import parents_first
from timbermark.boosting.statistics import carry_statistics
from timbermark.errors import StateError
from timbermark.trees.ensemble import (
    MISSING_NAN,
    MISSING_NONE,
    MISSING_ZERO,
    ZERO_RANGE,
    Ensemble,
)
from timbermark.trees.making import make_ensemble


@dataclass(frozen=True, slots=True)
class View:
    """``numeric``: the trees for the engine, which take turns over the outputs.

    ``source`` int64[T']: the original tree that each of them stands for. ``kind`` int64[d]: what
    counts as missing in a feature, one of MISSING_*. ``fill`` float64[d]: what takes the place of
    a missing value, NaN where it may go to either side. ``node_of`` int64[S]: for each column
    added, a node of the original with that category split.
    """

    original: Ensemble
    numeric: Ensemble
    source: np.ndarray
    kind: np.ndarray
    fill: np.ndarray
    node_of: np.ndarray


def make_view(ensemble: Ensemble, missing_by_feature: bool = False) -> View:
    """The view of any sound ensemble whose outputs have equally many trees.

    ``missing_by_feature``: the library knows one side for the missing values of a feature, which
    every split has to follow. Raises StateError for rules about missing values that differ from
    node to node of a feature.
    """
    e = ensemble
    kind = _missing_kinds(e)
    fill = np.full(e.n_features, -np.inf if missing_by_feature else np.nan)
    if missing_by_feature:
        numbers = (e.left >= 0) & (e.category_set < 0)
        for f in np.unique(e.feature[numbers]):
            sides = e.missing_left[numbers & (e.feature == f)]
            fill[f] = -np.inf if sides.mean() >= 0.5 else np.inf
    column, node_of = _category_columns(e)
    source, output = _take_turns(e)
    return View(e, _numeric(e, source, output, column, len(node_of)), source, kind, fill, node_of)


def view_rows(view: View, X: np.ndarray) -> np.ndarray:
    """float64[n, d + S]: rows of the original as rows of ``view.numeric``."""
    e = view.original
    with np.errstate(over="ignore"):
        given = X.astype(e.input_dtype).astype(np.float64)
    rows = given.copy()
    for f in range(e.n_features):
        x = rows[:, f]
        if view.kind[f] == MISSING_NONE:
            x[np.isnan(x)] = 0.0
        elif view.kind[f] == MISSING_ZERO:
            x[np.abs(x) <= ZERO_RANGE] = np.nan
        if not np.isnan(view.fill[f]):
            x[np.isnan(x)] = view.fill[f]
    rows[:, e.feature[view.node_of]] = np.nan
    added = [_goes_right(e, node, given[:, e.feature[node]]) for node in view.node_of]
    return np.column_stack([rows, *added]) if added else rows


def restore(
    view: View, renewed: Ensemble, hessian_factor: float = 1.0, own_statistics: bool = False
) -> Ensemble:
    """The original with what the update changed: ``renewed`` is ``view.numeric`` after it.

    ``hessian_factor``: what the library's hessian is in units of the engine's. ``own_statistics``:
    counts and hessians come from the original, for the update's rows were not its training rows.
    """
    e, old = view.original, view.numeric
    foreign = _foreign_nodes(view, renewed, hessian_factor)
    untouched = {name: getattr(e, name) for name in _PER_NODE}
    copies = np.argsort(view.source, kind="stable").reshape(e.n_trees, -1)
    parts: dict[str, list[np.ndarray]] = {name: [] for name in _PER_NODE}
    of: list[int] = []

    def add(nodes: dict[str, np.ndarray], at: slice, value: np.ndarray | None = None) -> None:
        for name in _PER_NODE:
            parts[name].append(nodes[name][at])
        if value is not None:
            parts["value"][-1] = value

    for t in range(e.n_trees):
        mine = copies[t]
        if all(_name(old, i) == _name(renewed, i) for i in mine):
            add(untouched, _span(e, t))
            of.append(t)
        elif len(mine) == 1:
            add(foreign, _span(renewed, mine[0]))
            of.append(t)
        else:
            # Copies that still have the same splits are one tree with leaf vectors again.
            groups: dict[bytes, list[int]] = {}
            for i in mine:
                groups.setdefault(_name(renewed, i, values=False), []).append(int(i))
            for members in groups.values():
                at = _span(renewed, members[0])
                value = np.zeros((at.stop - at.start, e.n_outputs))
                for i in members:
                    value[:, renewed.tree_output[i]] = foreign["value"][_span(renewed, i), 0]
                add(foreign, at, value)
                of.append(t)
    sizes = [len(feature) for feature in parts["feature"]]
    per_node: dict[str, Any] = {name: np.concatenate(arrays) for name, arrays in parts.items()}
    restored = replace(
        e,
        tree_start=np.concatenate([[0], np.cumsum(sizes)]),
        tree_output=e.tree_output[of],
        tree_weight=e.tree_weight[of],
        **per_node,
    )
    return carry_statistics(e, restored, of) if own_statistics else restored


_PER_NODE = (
    "feature", "threshold", "left", "right", "missing_left", "missing_kind", "category_set",
    "value", "count", "hessian", "gain",
)  # fmt: skip


def _missing_kinds(e: Ensemble) -> np.ndarray:
    numbers = (e.left >= 0) & (e.category_set < 0)
    kinds = e.missing_kind[numbers].astype(np.int64)
    usual = int(np.bincount(kinds, minlength=3).argmax()) if len(kinds) else MISSING_NAN
    kind = np.full(e.n_features, usual)
    for f in np.unique(e.feature[numbers]):
        here = np.unique(e.missing_kind[numbers & (e.feature == f)])
        if len(here) > 1:
            raise StateError(
                f"The model treats missing values of feature {f} in more than one way.",
                hint="train it again with one rule for missing values.",
            )
        kind[f] = here[0]
    return kind


def _category_columns(e: Ensemble) -> tuple[np.ndarray, np.ndarray]:
    """int64[N]: which added column a node splits on, -1 for none; int64[S]: a node for each."""
    nodes = np.flatnonzero(e.category_set >= 0)
    column = np.full(e.n_nodes, -1)
    known: dict[tuple[int, bool, bytes], int] = {}
    found: list[int] = []
    for node in nodes:
        start, stop = e.category_offsets[e.category_set[node] : e.category_set[node] + 2]
        name = (
            int(e.feature[node]),
            bool(e.missing_left[node]),
            e.category_values[start:stop].tobytes(),
        )
        if name not in known:
            known[name] = len(found)
            found.append(int(node))
        column[node] = known[name]
    return column, np.array(found, np.int64)


def _take_turns(e: Ensemble) -> tuple[np.ndarray, np.ndarray]:
    """Original trees and outputs in the engine's order: all outputs, again and again."""
    if (e.tree_output < 0).any():
        if (e.tree_output >= 0).any():
            raise StateError(
                "The model mixes leaf vectors and plain leaves.", hint="this cannot be updated."
            )
        source = np.repeat(np.arange(e.n_trees), e.n_outputs)
        return source, np.tile(np.arange(e.n_outputs), e.n_trees)
    by_output = [np.flatnonzero(e.tree_output == k) for k in range(e.n_outputs)]
    if len({len(trees) for trees in by_output}) > 1:
        raise StateError(
            "The model has more trees for one class than for another.",
            hint="only models with as many trees for every class can be updated in place.",
        )
    source = np.stack(by_output, axis=1).ravel()
    return source, np.tile(np.arange(e.n_outputs), len(by_output[0]))


def _numeric(
    e: Ensemble, source: np.ndarray, output: np.ndarray, column: np.ndarray, n_columns: int
) -> Ensemble:
    """The engine's trees: for each (original tree, output) a copy with plain numeric splits."""
    orders = [_order(e, t) for t in range(e.n_trees)]
    places = [np.argsort(order) for order in orders]
    sizes = [len(orders[t]) for t in source]
    nodes = np.concatenate([e.tree_start[t] + orders[t] for t in source])
    left = np.concatenate([_children(e.left, e, t, orders[t], places[t]) for t in source])
    right = np.concatenate([_children(e.right, e, t, orders[t], places[t]) for t in source])
    vectors = e.value.shape[1] > 1
    which = np.repeat(output, sizes) if vectors else np.zeros(len(nodes), np.int64)
    by_category = column[nodes] >= 0
    feature = np.where(by_category, e.n_features + column[nodes], e.feature[nodes])
    threshold = np.where(by_category, 0.5, _at_most(e)[nodes])
    inner = e.left[nodes] >= 0
    factor = e.scale * np.repeat(e.tree_weight[source], sizes)
    return make_ensemble(
        n_features=e.n_features + n_columns,
        n_outputs=e.n_outputs,
        objective="logistic" if e.n_outputs == 1 else "softmax",
        tree_start=np.concatenate([[0], np.cumsum(sizes)]),
        tree_output=output,
        feature=np.where(inner, feature, -1),
        threshold=np.where(inner, threshold, 0.0),
        left=left,
        right=right,
        missing_left=e.missing_left[nodes] & ~by_category,
        value=np.where(inner, 0.0, e.value[nodes, which] * factor),
        count=e.count[nodes],
        hessian=e.hessian[nodes],
        gain=e.gain[nodes],
        init=e.init,
    )


def _order(e: Ensemble, t: int) -> np.ndarray:
    """Nodes of a tree in the engine's order: what it leaves alone is then seen to be the same."""
    at = slice(e.tree_start[t], e.tree_start[t + 1])
    return parents_first(e.left[at], e.right[at])


def _children(
    child: np.ndarray, e: Ensemble, t: int, order: np.ndarray, place: np.ndarray
) -> np.ndarray:
    here = child[e.tree_start[t] + order]
    return np.asarray(np.where(here >= 0, place[here], -1))


def _at_most(e: Ensemble) -> np.ndarray:
    """float64[N]: thresholds t such that a row of the input type goes left if x <= t."""
    if not e.strict:
        return e.threshold
    with np.errstate(over="ignore"):
        below = np.nextafter(e.threshold.astype(e.input_dtype), -np.inf)
    return np.asarray(below.astype(np.float64))


def _below(e: Ensemble, threshold: np.ndarray) -> np.ndarray:
    """The inverse: ``x <= threshold`` in the model's own comparison and type of threshold."""
    if e.input_dtype == "f8":
        top = np.finfo(np.float64).max
        kept = np.clip(threshold, -top, top)
        return np.asarray(np.nextafter(kept, np.inf) if e.strict else kept)
    top32 = np.finfo(np.float32).max
    single = np.clip(threshold, -top32, top32).astype(np.float32)
    with np.errstate(over="ignore"):
        single = np.where(single > threshold, np.nextafter(single, np.float32(-np.inf)), single)
        if e.strict:
            single = np.minimum(np.nextafter(single, np.float32(np.inf)), top32)
    return np.asarray(single.astype(np.float64))


def _goes_right(e: Ensemble, node: int, x: np.ndarray) -> np.ndarray:
    start, stop = e.category_offsets[e.category_set[node] : e.category_set[node] + 2]
    inside = np.isin(np.trunc(x), e.category_values[start:stop].astype(np.float64))
    left = inside == (e.categories_go == "left")
    right = np.where(np.isnan(x), ~e.missing_left[node], ~left)
    return np.asarray(right.astype(np.float64))


def _foreign_nodes(view: View, renewed: Ensemble, hessian_factor: float) -> dict[str, np.ndarray]:
    """All nodes of the renewed trees, by name, in the original's own terms."""
    e = view.original
    inner = renewed.left >= 0
    by_category = renewed.feature >= e.n_features
    like = (
        view.node_of[np.where(by_category, renewed.feature - e.n_features, 0)]
        if len(view.node_of)
        else np.zeros(renewed.n_nodes, np.int64)
    )
    feature = np.where(by_category, e.feature[like], renewed.feature)
    fill = view.fill[np.maximum(feature, 0)]
    side = np.where(np.isnan(fill), renewed.missing_left, fill < 0)
    factor = e.scale * np.repeat(e.tree_weight[view.source], np.diff(renewed.tree_start))
    value = np.divide(renewed.value[:, 0], factor, out=np.zeros(renewed.n_nodes), where=factor != 0)
    if e.sum_dtype == "f4":
        value = value.astype(np.float32).astype(np.float64)
    numeric = inner & ~by_category
    return {
        "feature": feature,
        "threshold": np.where(
            numeric, _below(e, renewed.threshold), np.where(by_category, e.threshold[like], 0.0)
        ),
        "left": renewed.left,
        "right": renewed.right,
        "missing_left": np.where(by_category, e.missing_left[like], side & inner),
        "missing_kind": np.where(
            by_category, e.missing_kind[like], view.kind[np.maximum(feature, 0)]
        ),
        "category_set": np.where(by_category, e.category_set[like], -1),
        "value": np.where(inner, 0.0, value)[:, None],
        "count": renewed.count,
        "hessian": renewed.hessian * hessian_factor,
        "gain": renewed.gain,
    }


def _span(e: Ensemble, t: int) -> slice:
    return slice(int(e.tree_start[t]), int(e.tree_start[t + 1]))


def _name(e: Ensemble, t: int, values: bool = True) -> bytes:
    """The splits of a tree as bytes, with its leaf values or without."""
    at = _span(e, t)
    names = ("feature", "threshold", "left", "right", "missing_left", *(["value"] * values))
    return b"".join(getattr(e, name)[at].tobytes() for name in names)
