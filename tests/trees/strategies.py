"""Random sound ensembles of every flavour, and rows that hit their thresholds."""

import numpy as np
from hypothesis import strategies as st

from timbermark.trees.construction import make_ensemble
from timbermark.trees.ensemble import OBJECTIVES, SINGLE_OUTPUT

TENTH = float(np.float32(0.1))
# Few values, so that rows and thresholds meet; among them what differs by type or is nearly zero.
NUMBERS = [
    0.0,
    -0.0,
    1.0,
    2.0,
    -1.0,
    0.1,
    TENTH,
    1e-35,
    -1e-36,
    1.0000000180025095e-35,
    2e-35,
    1e300,
]
THRESHOLDS = [*NUMBERS, np.inf, -np.inf, np.nextafter(0.1, 1)]
VALUES = [*NUMBERS, np.nan, np.inf, -np.inf, 2.7, -0.5, 3.0, 4.0, 2.0**31, -(2.0**40)]
LEAF_VALUES = st.floats(-10, 10) | st.sampled_from([0.0, -0.0, TENTH, 0.1])


@st.composite
def shapes(draw, max_splits=5):
    """The children of one tree, numbered in any order but for the root."""
    n_nodes = 2 * draw(st.integers(0, max_splits)) + 1
    number = [0, *draw(st.permutations(range(1, n_nodes)))]
    left, right = [-1] * n_nodes, [-1] * n_nodes
    leaves = [0]
    for new in range(1, n_nodes, 2):
        parent = leaves.pop(draw(st.integers(0, len(leaves) - 1)))
        left[number[parent]], right[number[parent]] = number[new], number[new + 1]
        leaves += [new, new + 1]
    return left, right


@st.composite
def ensembles(draw):
    n_features = draw(st.integers(1, 3))
    objective = draw(st.sampled_from(OBJECTIVES))
    n_outputs = 1 if objective in SINGLE_OUTPUT else draw(st.integers(2, 3))
    trees = draw(st.lists(shapes(), max_size=4))
    left = [child for tree in trees for child in tree[0]]
    right = [child for tree in trees for child in tree[1]]
    n_nodes, n_trees = len(left), len(trees)

    def per_node(inner, at_leaves):
        given = draw(st.lists(inner, min_size=n_nodes, max_size=n_nodes))
        return [x if child >= 0 else at_leaves for x, child in zip(given, left, strict=True)]

    def numbers(size, inner=LEAF_VALUES):
        return draw(st.lists(inner, min_size=size, max_size=size))

    sets = draw(st.lists(st.sets(st.integers(0, 4)), max_size=3))
    width = draw(st.sampled_from([1, n_outputs]))
    single_precision = draw(st.booleans())
    value = np.reshape(numbers(n_nodes * width), (n_nodes, width))
    init_last = draw(st.booleans())
    output = st.integers(-1, -1) if width > 1 else st.integers(0, n_outputs - 1)
    return make_ensemble(
        n_features=n_features,
        n_outputs=n_outputs,
        objective=objective,
        tree_start=np.cumsum([0, *(len(tree[0]) for tree in trees)]),
        tree_output=np.array(numbers(n_trees, output), dtype=np.int32),
        tree_weight=np.array(numbers(n_trees, st.sampled_from([1.0, 0.5, TENTH])), dtype=float),
        feature=np.array(per_node(st.integers(0, n_features - 1), -1), dtype=np.int32),
        threshold=np.array(per_node(st.sampled_from(THRESHOLDS), 0.0), dtype=float),
        left=np.array(left, dtype=np.int32),
        right=np.array(right, dtype=np.int32),
        missing_left=np.array(per_node(st.booleans(), False), dtype=bool),
        missing_kind=np.array(per_node(st.integers(0, 2), 0), dtype=np.uint8),
        category_set=np.array(per_node(st.integers(-1, len(sets) - 1), -1), dtype=np.int32),
        category_offsets=np.cumsum([0, *map(len, sets)]),
        category_values=np.array([c for s in sets for c in sorted(s)], dtype=np.int32),
        categories_go=draw(st.sampled_from(["left", "right"])),
        value=value.astype(np.float32) if single_precision else value,
        count=np.array(numbers(n_nodes, st.integers(0, 9)), dtype=float),
        init=numbers(n_outputs),
        init_last=init_last,
        scale=draw(st.sampled_from([1.0, 0.1])) if init_last else 1.0,
        strict=draw(st.booleans()),
        input_dtype=draw(st.sampled_from(["f4", "f8"])),
        sum_dtype=draw(st.sampled_from(["f4", "f8"])),
        zero_is_positive=draw(st.booleans()),
    )


@st.composite
def rows_for(draw, ensemble, max_rows=6):
    row = st.lists(
        st.sampled_from(VALUES), min_size=ensemble.n_features, max_size=ensemble.n_features
    )
    rows = draw(st.lists(row, max_size=max_rows))
    return np.array(rows, dtype=np.float64).reshape(len(rows), ensemble.n_features)


@st.composite
def ensembles_and_rows(draw):
    ensemble = draw(ensembles())
    return ensemble, draw(rows_for(ensemble))
