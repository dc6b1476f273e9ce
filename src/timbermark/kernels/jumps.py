"""How much a margin changes when one value of a row crosses the thresholds of a boundary."""

import numpy as np

from timbermark.kernels.compile import kernel, part
from timbermark.kernels.routing import turns_left


@part
def _find_leaf(
    row, column, replaced, beyond, node, nodes, offsets, values, in_set_left, zero_range
):
    """Return the leaf below ``node`` in which a row ends whose ``column`` is ``replaced``.

    Also returns the first node on the way at which ``beyond``, a larger value, goes right; or -1.
    """
    parts = -1
    feature = nodes[node]["feature"]
    while feature >= 0:
        own = feature == column
        x = replaced if own else row[feature]
        at = nodes[node]
        goes_left = turns_left(x, at, offsets, values, in_set_left, zero_range)
        if own and parts < 0 and goes_left and beyond > at["threshold"]:
            parts = node
        node = nodes[node]["left"] if goes_left else nodes[node]["right"]
        feature = nodes[node]["feature"]
    return node, parts


@kernel
def measure_jumps(
    Z, rows, column, below, above, first, last, tree, root, early, output, weight, nodes,
    offsets, values, in_set_left, zero_range, value, start, stop, jump, largest, begun,
):  # fmt: skip
    """Measure how margins change from one side of a boundary to the other.

    IN Z float64[n, d]; IN rows int64[W, R]: the rows that are tried at each of W boundaries; IN
    column int64[W], below, above float64[W]: the value that is replaced and its two values; IN
    first, last int64[W]: the boundary's splits, a range of ``tree`` int64[S], the tree of each
    split; IN root int64[T], early bool[T], output int64[T] (-1: all), weight float64[T]: of the
    trees; IN nodes ROUTE[N], offsets, values, in_set_left, zero_range: as in
    `timbermark.kernels.routing.route_rows`; IN value float64[N, m]; IN start, stop: which
    boundaries; OUT jump float64[W, R, K]: what the margins gain from ``below`` to ``above``;
    largest float64[W, R]: the largest part of a single tree; begun float64[W, R, K]: the part of
    early trees. All OUT are zero before.
    """
    seen = np.full(root.shape[0], -1, np.int64)
    for w in range(start, stop):
        f, a, b = column[w], below[w], above[w]
        for s in range(first[w], last[w]):
            t = tree[s]
            if seen[t] == w:
                continue
            seen[t] = w
            for r in range(rows.shape[1]):
                row = Z[rows[w, r]]
                low, at = _find_leaf(
                    row, f, a, b, root[t], nodes, offsets, values, in_set_left, zero_range
                )
                if at < 0:
                    continue
                high, _ = _find_leaf(
                    row, f, b, b, nodes[at]["right"], nodes, offsets, values, in_set_left,
                    zero_range,
                )  # fmt: skip
                for c in range(value.shape[1]):
                    moved = weight[t] * (value[high, c] - value[low, c])
                    k = c if output[t] < 0 else output[t]
                    jump[w, r, k] += moved
                    if early[t]:
                        begun[w, r, k] += moved
                    largest[w, r] = max(largest[w, r], abs(moved))
