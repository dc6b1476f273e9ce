"""Trees and sums in other shapes: the flat arrays of an ensemble, the narrow ones of a file."""

from typing import Any, NamedTuple

import numpy as np

from timbermark.kernels.compile import kernel


class Flat(NamedTuple):
    """The nodes of all trees, one after the other, as an ensemble holds them."""

    feature: Any  # int32[N]
    threshold: Any  # float64[N]
    left: Any  # int32[N]
    right: Any  # int32[N]
    missing_left: Any  # bool[N]
    value: Any  # float64[N, 1]
    count: Any  # float64[N]
    hessian: Any  # float64[N]
    gain: Any  # float64[N], in the units of the sums


@kernel
def flatten_trees(nodes, n_nodes, values, starts, unit, out):
    """Write the nodes of all trees to ``out``; codes become thresholds.

    IN nodes NODE[T, m]; IN n_nodes int64[T]; IN values float64, the thresholds of all features, and
    starts int64[d + 1], where those of each begin; IN unit float64, of the hessians; OUT out Flat.
    """
    i = 0
    for t in range(n_nodes.shape[0]):
        for j in range(n_nodes[t]):
            node = nodes[t, j]
            left = node["left"]
            out.left[i] = left
            out.missing_left[i] = node["missing_left"] == 1
            out.count[i] = node["c"]
            out.hessian[i] = node["h"] / unit
            if left < 0:
                out.feature[i] = -1
                out.threshold[i] = 0.0
                out.right[i] = -1
                out.value[i, 0] = node["value"]
                out.gain[i] = 0.0
            else:
                f = node["feature"]
                out.feature[i] = f
                # A split of missing values against all others: nothing is above infinity.
                place = starts[f] + node["code"]
                threshold = np.inf
                if node["code"] < 0:
                    threshold = -np.inf
                elif place < starts[f + 1]:
                    threshold = values[place]
                out.threshold[i] = threshold
                out.right[i] = left + 1
                out.value[i, 0] = 0.0
                out.gain[i] = node["gain"]
            i += 1


@kernel
def pack_sums(record, n_splits, kept, shift, g, h, c):
    """Write the sums of all splits apart, and only those of the candidates ``kept``.

    IN record int64[T, splits, 2 * candidates]; IN n_splits int64[T]; IN kept int64[k]; OUT g, h, c
    int32|int64[n, k]. Returns whether every sum fits its array.
    """
    mask = (np.int64(1) << shift) - np.int64(1)
    fits = True
    row = 0
    for t in range(record.shape[0]):
        for s in range(n_splits[t]):
            sums = record[t, s]
            for j in range(kept.shape[0]):
                gradients, packed = sums[2 * kept[j]], sums[2 * kept[j] + 1]
                g[row, j] = gradients
                h[row, j] = packed >> shift
                c[row, j] = packed & mask
                fits &= g[row, j] == gradients and h[row, j] == packed >> shift
            row += 1
    return fits


@kernel
def unpack_sums(g, h, c, n_splits, kept, shift, record):
    """Write sums back to where `pack_sums` took them from; IN and OUT the other way round."""
    row = 0
    for t in range(record.shape[0]):
        for s in range(n_splits[t]):
            sums = record[t, s]
            for j in range(kept.shape[0]):
                sums[2 * kept[j]] = g[row, j]
                sums[2 * kept[j] + 1] = (np.int64(h[row, j]) << shift) + np.int64(c[row, j])
            row += 1


@kernel
def find_counted(record, n_splits, shift, out):
    """Mark the candidates at which some split has counted a row; OUT out bool[candidates]."""
    mask = (np.int64(1) << shift) - np.int64(1)
    for t in range(record.shape[0]):
        for s in range(n_splits[t]):
            sums = record[t, s]
            for j in range(out.shape[0]):
                out[j] |= (sums[2 * j + 1] & mask) != 0


@kernel
def count_leaves(leaf, count, n_nodes, out):
    """Add up how many rows end in each node; return False where a row ends in no node.

    IN leaf uint8|uint16[T, n]; IN count int32[n]; IN n_nodes int64[T]; OUT out int64[T, m].
    """
    for t in range(leaf.shape[0]):
        ends, held = leaf[t], out[t]
        for i in range(ends.shape[0]):
            if ends[i] >= n_nodes[t]:
                return False
            held[ends[i]] += count[i]
    return True
