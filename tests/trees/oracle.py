"""The naive twin of the reference predictor: one row, one node, one Python float at a time."""

import math

import numpy as np


def naive_leaf(e, tree, row):
    start = e.tree_start[tree]
    node = 0
    while e.left[start + node] >= 0:
        i = start + node
        x = row[e.feature[i]]
        node = e.left[i] if naive_goes_left(e, i, x) else e.right[i]
    return node


def naive_goes_left(e, i, x):
    missing_left = bool(e.missing_left[i])
    if e.category_set[i] >= 0:
        if math.isnan(x):
            return missing_left
        s = e.category_set[i]
        members = set(e.category_values[e.category_offsets[s] : e.category_offsets[s + 1]].tolist())
        inside = math.isfinite(x) and int(x) in members
        return inside if e.categories_go == "left" else not inside
    if e.missing_kind[i] == 0 and math.isnan(x):
        x = 0.0
    if e.missing_kind[i] == 1 and (math.isnan(x) or abs(x) <= 1.0000000180025095e-35):
        return missing_left
    if e.missing_kind[i] == 2 and math.isnan(x):
        return missing_left
    return x < float(e.threshold[i]) if e.strict else x <= float(e.threshold[i])


def naive_cast(e, row):
    with np.errstate(over="ignore"):
        return [float(np.float32(x)) if e.input_dtype == "f4" else float(x) for x in row]


def naive_leaves(e, X):
    rows = [naive_cast(e, row) for row in X]
    return [[int(naive_leaf(e, tree, row)) for tree in range(e.n_trees)] for row in rows]


def naive_margins(e, X):
    real = np.float32 if e.sum_dtype == "f4" else np.float64
    result = []
    for leaves in naive_leaves(e, X):
        total = [real(0.0) if e.init_last else real(init) for init in e.init]
        for tree, leaf in enumerate(leaves):
            values = e.value[e.tree_start[tree] + leaf]
            outputs = range(e.n_outputs) if e.tree_output[tree] < 0 else [e.tree_output[tree]]
            for value, output in zip(values, outputs, strict=True):
                total[output] = total[output] + real(value * e.tree_weight[tree])
        if e.init_last:
            total = [t * real(e.scale) + real(i) for t, i in zip(total, e.init, strict=True)]
        result.append(total)
    return np.array(result, dtype=real).reshape(len(X), e.n_outputs)


def naive_is_tree(left, right):
    """Whether child numbers describe one binary tree with root 0 that uses every node once."""
    seen = set()
    waiting = [0]
    while waiting:
        node = waiting.pop()
        if node in seen or not 0 <= node < len(left):
            return False
        seen.add(node)
        if (left[node] == -1) != (right[node] == -1):
            return False
        if left[node] != -1:
            waiting += [left[node], right[node]]
    return len(seen) == len(left)
