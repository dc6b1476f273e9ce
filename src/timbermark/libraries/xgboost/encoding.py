"""An `Ensemble` as the trees of an XGBoost document, encoded as UBJ."""

from __future__ import annotations

import numpy as np

from timbermark.dtypes import AnyArray, Flags, Reals
from timbermark.errors import InputError
from timbermark.libraries.xgboost.forest import MOST_CATEGORIES, Walk, breadth_first
from timbermark.libraries.xgboost.ubjson import array_head, encode, encode_key
from timbermark.trees.ensemble import Ensemble

_NO_PARENT = 2147483647
_TYPES = {"d": ">f4", "l": ">i4", "L": ">i8", "U": "u1"}


def encode_trees(e: Ensemble, base_weights: Reals | None = None) -> list[bytes]:
    """Return each tree as UBJ.

    The ensemble must be of XGBoost's kind: float32, ``x < threshold``, NaN missing, categories go
    right. ``base_weights`` [N] are the values of all nodes if they are None.

    Raises InputError if a category is too large for XGBoost.
    """
    empty = _empty_sets(e)
    walk = breadth_first(
        e.tree_start, np.where(empty, e.right, e.left), np.where(empty, e.left, e.right)
    )
    order, tree, inner = walk.order, walk.tree, walk.left >= 0
    value = e.value[order, 0]
    weight = value if base_weights is None else base_weights[order]
    local = np.arange(len(order)) - walk.start[tree]
    node_set = np.where(inner & ~empty[order], e.category_set[order], -1)
    threshold = np.where(empty[order], -np.inf, e.threshold[order])
    threshold = np.where(inner & (node_set < 0), threshold, 0.0)
    fields = {
        "base_weights": ("d", weight),
        **_categories(e, walk, node_set),
        "default_left": ("U", inner & (e.missing_left[order] ^ empty[order])),
        "left_children": ("l", walk.left),
        "loss_changes": ("d", np.where(inner, e.gain[order], 0.0)),
        "parents": ("l", _parents(walk, local)),
        "right_children": ("l", np.where(inner, walk.left + 1, -1)),
        "split_conditions": ("d", np.where(inner, threshold, value)),
        "split_indices": ("l", np.where(inner, e.feature[order], 0)),
        "split_type": ("U", node_set >= 0),
        "sum_hessian": ("d", e.hessian[order]),
    }
    return _cut(fields, walk, node_set, e.n_features)


def has_empty_sets(e: Ensemble) -> bool:
    """Return whether a node asks for a category in an empty set, which XGBoost cannot express.

    >>> from timbermark.trees.construction import constant_ensemble
    >>> has_empty_sets(constant_ensemble(n_features=1, value=1.0))
    False
    """
    return bool(_empty_sets(e).any())


def _empty_sets(e: Ensemble) -> Flags:
    """Return which nodes ask for a category in an empty set, [N].

    XGBoost knows no such set. These nodes send left all that is not missing; nothing is below
    minus infinity, so with their children swapped they compare with that.
    """
    by_category = np.flatnonzero(e.category_set >= 0)
    empty: Flags = np.zeros(e.n_nodes, dtype=np.bool_)
    empty[by_category] = np.diff(e.category_offsets)[e.category_set[by_category]] == 0
    return empty


def _categories(e: Ensemble, walk: Walk, node_set: AnyArray) -> dict[str, tuple[str, AnyArray]]:
    """Return the four fields of category splits, for all trees one after the other."""
    sets = node_set[node_set >= 0]
    size = np.diff(e.category_offsets)[sets]
    begin = np.append(0, np.cumsum(size))
    place = np.repeat(e.category_offsets[sets] - begin[:-1], size) + np.arange(begin[-1])
    values = e.category_values[place]
    if values.max(initial=0) >= MOST_CATEGORIES:
        raise InputError(
            f"The category {values.max()} is too large for XGBoost.",
            hint=f"number categories below {MOST_CATEGORIES}.",
        )
    nodes = np.flatnonzero(node_set >= 0)
    tree = walk.tree[nodes]
    first = np.searchsorted(tree, tree)
    return {
        "categories": ("l", values),
        "categories_nodes": ("l", nodes - walk.start[tree]),
        "categories_segments": ("L", begin[:-1] - begin[first]),
        "categories_sizes": ("L", size),
    }


def _parents(walk: Walk, local: AnyArray) -> AnyArray:
    splits = np.flatnonzero(walk.left >= 0)
    before = np.searchsorted(splits, walk.start[:-1])[walk.tree]
    below = np.flatnonzero(local > 0)
    parents = np.full(len(local), _NO_PARENT)
    # The k-th split of a tree has the k-th pair of its nodes below it.
    parents[below] = local[splits[before[below] + (local[below] - 1) // 2]]
    return parents


def _cut(
    fields: dict[str, tuple[str, AnyArray]], walk: Walk, node_set: AnyArray, n_features: int
) -> list[bytes]:
    """Return all fields cut into one encoded document per tree."""
    by_node = walk.start
    with_set = np.searchsorted(np.flatnonzero(node_set >= 0), by_node)
    members = np.append(0, np.cumsum(fields["categories_sizes"][1]))[with_set]
    parts = []
    for name, (mark, array) in fields.items():
        dtype = np.dtype(_TYPES[mark])
        bounds = by_node
        if name.startswith("categories"):
            bounds = members if name == "categories" else with_set
        data = array.astype(dtype).tobytes()
        parts.append((encode_key(name), mark, data, (bounds * dtype.itemsize).tolist(), dtype))
    sizes = np.diff(by_node)
    params = {
        size: encode_key("tree_param")
        + encode(
            {
                "num_deleted": "0",
                "num_feature": str(n_features),
                "num_nodes": str(size),
                "size_leaf_vector": "1",
            }
        )
        for size in np.unique(sizes).tolist()
    }
    trees = []
    for number, size in enumerate(sizes.tolist()):
        pieces = [b"{"]
        for key, mark, data, bounds, dtype in parts:
            begin, end = bounds[number], bounds[number + 1]
            pieces += [key, array_head(mark, (end - begin) // dtype.itemsize), data[begin:end]]
        pieces += [encode_key("id"), encode(number), params[size], b"}"]
        trees.append(b"".join(pieces))
    return trees
