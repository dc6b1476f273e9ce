"""Which triggers are cheap together, not only each by itself.

Triggers that share leaves hold each other back: what the edit does for one, it must undo for the
other. A trigger's room is how easily its margin moves; what is left of it after others have taken
theirs is the part that is independent of them. Candidates are chosen one after the other, each the
cheapest for the room that is left: a Cholesky decomposition of the shared room, pivoted by price.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from timbermark.editing.routing import Router, Routes
from timbermark.kernels.routing import add_shared_leaves
from timbermark.kernels.workers import Workers

_LEAST_LEFT = 1e-9
"""A candidate with less than this share of its room left counts as dependent on the others."""


def order_by_joint_price(
    price: np.ndarray,
    k: int,
    routes: Routes,
    router: Router,
    ease: Sequence[np.ndarray],
    workers: Workers,
    in_pairs: bool = False,
) -> np.ndarray:
    """Return an order of candidates, int64 [n]: the first k are cheap together.

    ``price`` [n]: of each candidate by itself; ``routes``: of the n candidates, or of n pairs of
    rows, whose differences count; ``ease[c]``: how easily each leaf of output c moves.
    """
    n = len(price)
    shared = _Shared(routes, router, ease, workers, in_pairs)
    factor = np.empty((min(k, n), n))
    left = np.ones(n)  # the share of its room that each candidate has left
    room = shared.own_room()
    order: list[int] = []
    free = np.ones(n, np.bool_)
    for step in range(len(factor)):
        worth = np.where(free & (left > _LEAST_LEFT), price / np.maximum(left, _LEAST_LEFT), np.inf)
        chosen = int(worth.argmin())
        if not np.isfinite(worth[chosen]):
            break
        order.append(chosen)
        free[chosen] = False
        own = shared.with_one(chosen) / np.sqrt(room * room[chosen])
        own -= factor[:step].T @ factor[:step, chosen]
        factor[step] = own / np.sqrt(left[chosen])
        left = np.maximum(left - factor[step] ** 2, 0.0)
    others = np.flatnonzero(free)
    last = price[others] / np.maximum(left[others], _LEAST_LEFT)
    return np.concatenate([np.array(order, np.int64), others[np.argsort(last, kind="stable")]])


class _Shared:
    """The room that candidates share with one another."""

    def __init__(
        self, routes: Routes, router: Router, ease: Sequence[np.ndarray], workers: Workers,
        in_pairs: bool,
    ) -> None:  # fmt: skip
        self.leaf, self.first, self.ease = routes.leaf, router.first, ease
        self.workers, self.in_pairs = workers, in_pairs
        self.n_rows = routes.n_rows

    def with_one(self, chosen: int) -> np.ndarray:
        """Return float64 [n]: the room that each candidate shares with a given one."""
        if not self.in_pairs:
            return self._of_row(chosen)
        moved = self._of_row(2 * chosen + 1) - self._of_row(2 * chosen)
        return np.asarray(moved[1::2] - moved[::2])

    def own_room(self) -> np.ndarray:
        """Return float64 [n]: the room of each candidate, above 0."""
        total = np.zeros(self.n_rows // 2 if self.in_pairs else self.n_rows)
        for leaf, first, ease in zip(self.leaf, self.first, self.ease, strict=True):
            for t, here in enumerate(leaf):
                worth = ease[first[t] + here.astype(np.int64)]
                if self.in_pairs:
                    worth = (worth[::2] + worth[1::2]) * (here[::2] != here[1::2])
                total += worth
        return np.maximum(total, 1e-300)

    def _of_row(self, row: int) -> np.ndarray:
        parts = np.zeros((len(self.leaf), self.n_rows))

        def add(thread: int, c: int) -> None:
            add_shared_leaves(self.leaf[c], row, self.first[c], self.ease[c], parts[c])

        self.workers.drain(add, len(parts))
        return np.asarray(parts.sum(axis=0))
