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
# Cover adds up this closely in XGBoost's own trees, which add up float32 numbers.
_CLOSE = 1e-3


def encode_trees(e: Ensemble, *, weighted: bool, mend: bool = True) -> tuple[list[bytes], AnyArray]:
    """Return each tree as UBJ, and the weight of each, float32 [T].

    ``weighted``: whether the model has weights; where not, they go into the leaves. ``mend``:
    whether hessians that would make SHAP values NaN are replaced. Margins come out bit for bit as
    the reference predictor's for this ensemble, which must be sound and of XGBoost's kind:
    float32, ``x < threshold``, NaN missing, categories going right.

    Raises InputError if a leaf is too large for a float32, or a category for XGBoost.
    """
    empty = _empty_sets(e)
    walk = breadth_first(
        e.tree_start, np.where(empty, e.right, e.left), np.where(empty, e.left, e.right)
    )
    order, tree, inner = walk.order, walk.tree, walk.left >= 0
    leaf, weight = _leaves(e, walk, weighted)
    local = np.arange(len(order)) - walk.start[tree]
    node_set = np.where(inner & ~empty[order], e.category_set[order], -1)
    threshold = np.where(empty[order], -np.inf, e.threshold[order])
    threshold = np.where(inner & (node_set < 0), threshold, 0.0)
    hessian = e.hessian[order]
    fields = {
        "base_weights": ("d", np.where(inner, _single(e.value[order, 0]), leaf)),
        **_categories(e, walk, node_set),
        "default_left": ("U", inner & (e.missing_left[order] ^ empty[order])),
        "left_children": ("l", walk.left),
        "loss_changes": ("d", np.where(inner, _single(e.gain[order]), 0.0)),
        "parents": ("l", _parents(walk, local)),
        "right_children": ("l", np.where(inner, walk.left + 1, -1)),
        "split_conditions": ("d", np.where(inner, _not_below(threshold), leaf)),
        "split_indices": ("l", np.where(inner, e.feature[order], 0)),
        "split_type": ("U", node_set >= 0),
        "sum_hessian": ("d", _mended(walk, hessian, e.count[order]) if mend else hessian),
    }
    return _cut(fields, walk, node_set, e.n_features), weight


def _empty_sets(e: Ensemble) -> Flags:
    """Return which nodes ask for a category in an empty set, [N].

    XGBoost knows no such set. These nodes send left all that is not missing; nothing is below
    minus infinity, so with their children swapped they compare with that.
    """
    by_category = np.flatnonzero(e.category_set >= 0)
    empty: Flags = np.zeros(e.n_nodes, dtype=np.bool_)
    empty[by_category] = np.diff(e.category_offsets)[e.category_set[by_category]] == 0
    return empty


def _leaves(e: Ensemble, walk: Walk, weighted: bool) -> tuple[AnyArray, AnyArray]:
    """Return leaf values float32 [M] (anything at inner nodes) and tree weights float32 [T]."""
    value, tree = e.value[walk.order, 0], walk.tree
    # Other than with weights, a product is rounded only once: as the reference rounds it.
    with np.errstate(over="ignore"):
        single = value.astype(np.float32)
        leaf = (value * e.tree_weight[tree]).astype(np.float32)
        weight = e.tree_weight.astype(np.float32)
    keep: Flags = np.zeros(e.n_trees, dtype=np.bool_)
    if weighted:
        rounded = (walk.left < 0) & (single != value)
        keep = weight == e.tree_weight
        keep[tree[rounded]] = False
        leaf = np.where(keep[tree], single, leaf)
    at_leaf = walk.left < 0
    if not np.isfinite(leaf[at_leaf]).all():
        raise InputError(
            "A leaf is too large for XGBoost's float32.", hint="scale the leaf values down."
        )
    return leaf, np.where(keep, weight, np.float32(1.0))


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


def _mended(walk: Walk, hessian: Reals, count: Reals) -> Reals:
    """Return hessians that SHAP can divide by: all positive, and adding up to the parent's.

    Trees where they do already keep theirs. Elsewhere a leaf without any counts its rows instead,
    or as much as the smallest other leaf, and inner nodes are added up anew.
    """
    tree, leaf = walk.tree, walk.left < 0
    single = hessian.astype(np.float32)
    inner = np.flatnonzero(~leaf)
    below = walk.start[tree[inner]] + walk.left[inner]
    wrong = single <= np.finfo(np.float32).tiny
    wrong[inner] |= np.abs(hessian[below] + hessian[below + 1] - hessian[inner]) > (
        _CLOSE * hessian[inner]
    )
    broken = np.zeros(len(walk.start) - 1, dtype=np.bool_)
    broken[tree[wrong]] = True
    if not broken.any():
        return hessian
    poor = leaf & (single <= np.finfo(np.float32).tiny)
    smallest = np.full(len(broken), np.inf)
    np.minimum.at(smallest, tree[leaf & ~poor], hessian[leaf & ~poor])
    smallest[np.isinf(smallest)] = 1.0
    mended = np.where(poor, np.where(count > 0, count, smallest[tree]), hessian)
    by_level = inner[np.argsort(-walk.level[inner], kind="stable")]
    ends = np.flatnonzero(np.diff(walk.level[by_level])) + 1
    for nodes in np.split(by_level, ends):
        nodes = nodes[broken[tree[nodes]]]
        child = walk.start[tree[nodes]] + walk.left[nodes]
        mended[nodes] = mended[child] + mended[child + 1]
    return mended


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


def _single(values: Reals) -> AnyArray:
    """Return a statistic as float32, with the largest finite number for what is beyond."""
    largest = np.finfo(np.float32).max
    return np.clip(values, -largest, largest).astype(np.float32)


def _not_below(threshold: Reals) -> AnyArray:
    """Return the smallest float32 that is not below each: no float32 row tells them apart."""
    with np.errstate(over="ignore"):
        single = threshold.astype(np.float32)
        return np.where(single < threshold, np.nextafter(single, np.float32(np.inf)), single)
