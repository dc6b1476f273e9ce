"""Which leaves rows end in, for ensembles of every library, and the margins that follow.

The margins are sums in float64. A library that adds up in float32 gives the same up to roundings;
`timbermark.trees.reference` gives its margins bit for bit, at a tenth of the speed.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from timbermark.boosting.predicting import Masks, make_masks
from timbermark.editing.monotone import promised_leaves
from timbermark.errors import InputError
from timbermark.kernels.routing import (
    LEFT,
    MISSING_LEFT,
    MOST_LEAVES,
    RIGHT,
    ROUTE,
    ZERO,
    add_leaf_values,
    route_masked_rows,
    route_plain_rows,
    route_rows,
)
from timbermark.kernels.workers import Workers
from timbermark.trees.ensemble import MISSING_NONE, MISSING_ZERO, ZERO_RANGE, Ensemble
from timbermark.trees.statistics import inner_levels


@dataclass(frozen=True, slots=True, eq=False)
class Routes:
    """The leaf of every row in every tree: for each output uint8|uint16|int32 [T_c, n].

    Outputs that share all their trees (leaf vectors) share one array.
    """

    leaf: tuple[np.ndarray, ...]

    @property
    def n_rows(self) -> int:
        """Return the number of rows."""
        return int(self.leaf[0].shape[1])

    def take(self, rows: np.ndarray) -> Routes:
        """Return the routes of some of the rows, int64 [m] or bool [n]."""
        taken: dict[int, np.ndarray] = {}
        for leaf in self.leaf:
            taken.setdefault(id(leaf), np.ascontiguousarray(leaf[:, rows]))
        return Routes(tuple(taken[id(leaf)] for leaf in self.leaf))

    def same(self, other: Routes) -> np.ndarray:
        """Return bool [n]: whether each row ends in the same leaves in both."""
        alike = [(a == b).all(axis=0) for a, b in zip(self.leaf, other.leaf, strict=True)]
        return np.asarray(np.logical_and.reduce(alike))


class Router:
    """An ensemble, prepared for sending rows down its trees.

    ``trees[c]`` int64: the trees that add to output c and can be edited, in their order.
    ``first[c]`` int64 [T_c + 1]: where each tree's leaves begin among the output's leaves.
    ``nodes[c]`` int64: the node of each of the output's leaves. ``factor[c]`` float64: by how much
    the margin moves when a leaf's value moves by 1, for each leaf.

    >>> from timbermark.trees.construction import constant_ensemble
    >>> router = Router(constant_ensemble(n_features=1, value=2.0))
    >>> with Workers(1) as workers:
    ...     routes = router.route(np.zeros((3, 1)), workers)
    ...     router.margins(routes, workers)
    array([[2.],
           [2.],
           [2.]])
    """

    def __init__(self, ensemble: Ensemble) -> None:
        e = self.ensemble = ensemble
        sizes = np.diff(e.tree_start)
        owner = np.repeat(np.arange(e.n_trees), sizes)
        base = e.tree_start[owner]
        is_leaf = e.left < 0
        before = np.concatenate([[0], np.cumsum(is_leaf)])
        self._records = np.zeros(e.n_nodes, ROUTE)
        threshold = e.threshold
        if e.strict:
            # x < t is x <= the next number below t; nothing is below minus infinity.
            lower = np.nextafter(threshold, -np.inf)
            threshold = np.where(np.isneginf(threshold), np.nan, lower)
        self._records["threshold"] = threshold
        self._records["feature"] = np.where(is_leaf, -1, e.feature)
        self._records["left"] = np.where(is_leaf, -1, base + e.left)
        self._records["right"] = np.where(is_leaf, -1, base + e.right)
        self._records["category_set"] = e.category_set
        self._records["leaf"] = before[:-1] - before[e.tree_start[:-1]][owner]
        self._records["missing"] = MISSING_LEFT * e.missing_left + 2 * e.missing_kind
        inner = ~is_leaf
        self._plain: _PlainNodes | None = None
        self._masks: Masks | None = None
        if (
            e.n_features
            and not ((e.category_set[inner] >= 0) | (e.missing_kind[inner] == MISSING_ZERO)).any()
        ):
            if (sizes < 2 * MOST_LEAVES).all() and not np.isnan(threshold[inner]).any():
                missing = np.where(e.missing_left, LEFT, RIGHT).astype(np.int8)
                missing[e.missing_kind == MISSING_NONE] = ZERO
                # -0.0 and 0.0 are equal and must stay one threshold.
                self._masks = make_masks(e, threshold + 0.0, self._records["leaf"], missing)
            if self._masks is None:
                self._plain = _PlainNodes.of(e, self._records, owner)
        self._category_values = e.category_values.astype(np.float64)
        n_leaves = before[e.tree_start[1:]] - before[e.tree_start[:-1]]
        most = int(n_leaves.max(initial=1))
        self._type = np.uint8 if most <= 256 else np.uint16 if most <= 65_536 else np.int32
        scale = e.scale if e.init_last else 1.0
        leaf_nodes = np.flatnonzero(is_leaf)
        self._promised: dict[bool, list[np.ndarray]] = {}
        self.trees: list[np.ndarray] = []
        self.first: list[np.ndarray] = []
        self.nodes: list[np.ndarray] = []
        self.factor: list[np.ndarray] = []
        for output in range(e.n_outputs):
            mine = np.flatnonzero((e.tree_output == output) | (e.tree_output < 0))
            kept = n_leaves[mine]
            chosen = np.isin(owner[leaf_nodes], mine)
            self.trees.append(mine.astype(np.int64))
            self.first.append(np.concatenate([[0], np.cumsum(kept)]).astype(np.int64))
            self.nodes.append(leaf_nodes[chosen])
            self.factor.append(np.repeat(e.tree_weight[mine] * scale, kept))

    def route(self, X: np.ndarray, workers: Workers) -> Routes:
        """Return where rows end: ``X`` float64 [n, n_features], NaN for missing values.

        Raises InputError if the number of columns is not the ensemble's.
        """
        e = self.ensemble
        if X.ndim != 2 or X.shape[1] != e.n_features:
            raise InputError(
                f"The rows have the shape {X.shape}, the model takes {e.n_features} features.",
                hint="pass a matrix with one column per feature.",
            )
        rows = np.ascontiguousarray(X, np.float64)
        if e.input_dtype == "f4":
            with np.errstate(over="ignore"):
                rows = rows.astype(np.float32).astype(np.float64)
        shared = bool((e.tree_output < 0).all())
        leaf = [
            np.empty((len(trees), len(rows)), self._type)
            for trees in (self.trees[:1] if shared else self.trees)
        ]
        parts = [(c, part) for c in range(len(leaf)) for part in _parts(len(rows))]
        m = self._masks
        if m is not None:
            missing = bool(np.isnan(rows).any())
            codes = m.encode(rows, len(rows), missing, workers)
            column = m.column if missing else m.feature

        def route_part(thread: int, item: int) -> None:
            c, (start, stop) = parts[item]
            if m is not None:
                route_masked_rows(
                    codes, start, stop, self.trees[c], m.split_start, column, m.code, m.mask,
                    m.leaf_start, m.value, leaf[c],
                )  # fmt: skip
                return
            roots = e.tree_start[:-1][self.trees[c]]
            if self._plain is not None and not np.isnan(rows[start:stop]).any():
                nodes = self._plain
                route_plain_rows(
                    rows, start, stop, roots, nodes.depth[self.trees[c]], nodes.feature,
                    nodes.threshold, nodes.child, nodes.leaf, leaf[c],
                )  # fmt: skip
                return
            route_rows(
                rows, start, stop, roots, self._records,
                e.category_offsets, self._category_values, e.categories_go == "left", ZERO_RANGE,
                leaf[c],
            )  # fmt: skip

        workers.drain(route_part, len(parts))
        return Routes(tuple(leaf * e.n_outputs if shared else leaf))

    def around(self, ensemble: Ensemble) -> Router:
        """Return the same router for an ensemble that differs in leaf values only."""
        other = copy.copy(self)
        other.ensemble = ensemble
        other._promised = {}
        return other

    def promised(self, told: bool) -> list[np.ndarray]:
        """Return for each output which leaves must stay as they are, see `promised_leaves`."""
        if told not in self._promised:
            self._promised[told] = promised_leaves(self, told)
        return self._promised[told]

    def values(self, output: int) -> np.ndarray:
        """Return what each of an output's leaves adds to its margin, float64."""
        column = output if self.ensemble.value.shape[1] > 1 else 0
        value = self.ensemble.value[self.nodes[output], column]
        with np.errstate(over="ignore"):
            return np.asarray(value * self.factor[output])

    def margins(self, routes: Routes, workers: Workers) -> np.ndarray:
        """Return the margins of routed rows, float64 [n, K]."""
        e = self.ensemble
        out = np.repeat(e.init[:, None], routes.n_rows, axis=1)
        values = [self.values(c) for c in range(e.n_outputs)]
        parts = [(c, part) for c in range(e.n_outputs) for part in _parts(routes.n_rows)]

        def add_part(thread: int, item: int) -> None:
            c, (start, stop) = parts[item]
            add_leaf_values(routes.leaf[c], start, stop, self.first[c], values[c], out[c])

        workers.drain(add_part, len(parts))
        return np.ascontiguousarray(out.T)


class _PlainNodes(NamedTuple):
    """Nodes as `timbermark.kernels.routing.route_plain_rows` takes them."""

    depth: np.ndarray  # int64 [trees]
    feature: np.ndarray
    threshold: np.ndarray
    child: np.ndarray
    leaf: np.ndarray

    @classmethod
    def of(cls, e: Ensemble, records: np.ndarray, owner: np.ndarray) -> _PlainNodes:
        """Return splits by thresholds alone; ``owner`` [N]: the tree of each node."""
        is_leaf = e.left < 0
        depth = np.zeros(e.n_trees, np.int64)
        for number, level in enumerate(inner_levels(e), start=1):
            depth[owner[level]] = number
        own = np.arange(len(records), dtype=np.int32)
        child = np.column_stack(
            [np.where(is_leaf, own, records[side]) for side in ("right", "left")]
        ).astype(np.int32)
        threshold = np.where(is_leaf, np.inf, records["threshold"])
        feature = np.where(is_leaf, 0, records["feature"]).astype(np.int32)
        return cls(depth, feature, threshold, child, np.ascontiguousarray(records["leaf"]))


def _parts(n: int) -> list[tuple[int, int]]:
    """Return ranges of rows that are worth a task each."""
    step = 4096
    return [(start, min(start + step, n)) for start in range(0, n, step)]
