"""Which leaves rows end in, for ensembles of every library, and the margins that follow.

The margins are sums in float64. A library that adds up in float32 gives the same up to roundings;
`timbermark.trees.reference` gives its margins bit for bit, at a tenth of the speed.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

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
    route_rows,
)
from timbermark.kernels.workers import Workers
from timbermark.trees.ensemble import MISSING_NONE, MISSING_ZERO, ZERO_RANGE, Ensemble


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
        self._masks: Masks | None = None
        if (
            e.n_features
            and not ((e.category_set[inner] >= 0) | (e.missing_kind[inner] == MISSING_ZERO)).any()
            and (sizes < 2 * MOST_LEAVES).all()
            and not np.isnan(threshold[inner]).any()
        ):
            missing = np.where(e.missing_left, LEFT, RIGHT).astype(np.int8)
            missing[e.missing_kind == MISSING_NONE] = ZERO
            # -0.0 and 0.0 are equal and must stay one threshold.
            self._masks = make_masks(e, threshold + 0.0, self._records["leaf"], missing)
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
                    codes, start, stop, self.trees[c], m.words, m.cut, column, m.code, m.rest,
                    m.leaf_start, m.value, leaf[c],
                )  # fmt: skip
                return
            route_rows(
                rows, start, stop, e.tree_start[:-1][self.trees[c]], self._records,
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


def _parts(n: int) -> list[tuple[int, int]]:
    """Return ranges of rows that are worth a task each."""
    step = 4096
    return [(start, min(start + step, n)) for start in range(0, n, step)]
