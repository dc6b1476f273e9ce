"""Trees that were grown by splitting the leaf with the highest gain next.

The splits of such a tree are numbered as they were made. Children are given by number: a split,
or ~leaf. When gains have changed, the tree can be numbered as if it had been grown with them.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

import numpy as np

from timbermark.dtypes import AnyArray, Offsets


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
