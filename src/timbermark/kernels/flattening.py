"""From rectangles of nodes in bin codes to the flat arrays of an ensemble."""

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
