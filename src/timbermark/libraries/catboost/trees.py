"""CatBoost's trees as the flat arrays of an ensemble, and the splits that they ask.

A symmetric tree asks one split per level; its leaf is the number that the answers make, the last
split being the highest bit. Nested trees say for each node how far ahead its children are, and 0
for a child that is a leaf without a node of its own: such a leaf's values are its parent's.

CatBoost numbers splits through all features: the borders of numbers first, then the categories
that are asked for one by one (one-hot), then the borders of category statistics (CTR). The
ensemble's columns are those of the table that the model predicts on, and after them one for each
split of the last two kinds, 1 where a row passes it. A column of categories itself is all zero.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from timbermark.dtypes import AnyArray, Flags, NodeIndices, Offsets, Reals
from timbermark.libraries.catboost.cbm import Record

# The value of "NanValueTreatment" where a missing value passes every split; else it fails them.
_PASSES = 2
# Passing a split of a category is 1, failing it is 0.
_BETWEEN = 0.5


@dataclass(frozen=True, slots=True, eq=False)
class Nodes:
    """All trees' nodes, numbered as in an ensemble; ``leaf`` [N] is -1 at inner nodes."""

    tree_start: Offsets
    split: AnyArray  # [N] a split's number, -1 at leaves
    left: AnyArray
    right: AnyArray
    leaf: AnyArray  # [N] which of CatBoost's leaves


def read_nodes(trees: Record) -> Nodes:
    """Return the nodes of a sound model, parents before their children."""
    if len(trees["NonSymmetricStepNodes"]) == 0:
        return _unfold_symmetric(trees["TreeSplits"], trees["TreeSizes"])
    return _read_nested(trees)


def _unfold_symmetric(splits: AnyArray, sizes: AnyArray) -> Nodes:
    n_nodes = (2 << sizes.astype(np.int64)) - 1
    tree_start = np.concatenate([[0], np.cumsum(n_nodes)])
    split = np.full(tree_start[-1], -1, dtype=np.int64)
    leaf = np.full(tree_start[-1], -1, dtype=np.int64)
    local = np.arange(tree_start[-1]) - np.repeat(tree_start[:-1], n_nodes)
    ends = np.cumsum(sizes.astype(np.int64))
    n_leaves = 0
    for start, depth, end in zip(tree_start[:-1], sizes.tolist(), ends.tolist(), strict=True):
        # Level by level, node i has the children 2 i + 1 and 2 i + 2.
        inner = (1 << depth) - 1
        asked = splits[end - depth : end][::-1]
        split[start : start + inner] = np.repeat(asked, 1 << np.arange(depth))
        leaf[start + inner : start + 2 * inner + 1] = np.arange(n_leaves, n_leaves + inner + 1)
        n_leaves += inner + 1
    has_children = split >= 0
    left = np.where(has_children, 2 * local + 1, -1)
    return Nodes(tree_start, split, left, np.where(has_children, left + 1, -1), leaf)


def _read_nested(trees: Record) -> Nodes:
    steps, sizes = trees["NonSymmetricStepNodes"], trees["TreeSizes"].astype(np.int64)
    left, right = steps["left"].astype(np.int64), steps["right"].astype(np.int64)
    leaf_of = trees["NonSymmetricNodeIdToLeafId"].astype(np.int64) // trees["ApproxDimension"]
    tree = np.repeat(np.arange(len(sizes)), sizes)
    # Leaves without a node get one behind all others of their tree.
    hidden = np.flatnonzero((left == 0) != (right == 0))
    extra = np.bincount(tree[hidden], minlength=len(sizes))
    tree_start = np.concatenate([[0], np.cumsum(sizes + extra)])
    old_start = np.cumsum(sizes) - sizes
    place = np.arange(len(tree)) + (tree_start[:-1] - old_start)[tree]
    rank = np.arange(len(hidden)) - (np.cumsum(extra) - extra)[tree[hidden]]
    behind = (tree_start[:-1] + sizes)[tree[hidden]] + rank
    total = int(tree_start[-1])
    found = {
        name: np.full(total, -1, dtype=np.int64) for name in ("split", "left", "right", "leaf")
    }
    inner = (left > 0) | (right > 0)
    found["split"][place[inner]] = trees["TreeSplits"][inner]
    found["leaf"][place[~inner]] = leaf_of[~inner]
    found["leaf"][behind] = leaf_of[hidden]
    local = place - tree_start[:-1][tree]
    for name, step in (("left", left), ("right", right)):
        child = local + step
        child[hidden] = np.where(
            step[hidden] == 0, behind - tree_start[tree[hidden]], child[hidden]
        )
        found[name][place[inner]] = child[inner]
    return Nodes(tree_start, **found)


@dataclass(frozen=True, slots=True, eq=False)
class Splits:
    """What each split asks, by its number: ``column`` x <= ``threshold`` fails it, goes left."""

    column: NodeIndices
    threshold: Reals
    missing_left: Flags
    n_numeric: int  # the splits before this one are of numbers


def list_splits(trees: Record, n_columns: int) -> Splits:
    """Return the splits of a model whose table has ``n_columns``."""
    floats = trees["FloatFeatures"]
    borders = [feature["Borders"].astype(np.float64) for feature in floats]
    numeric = np.concatenate([*borders, np.empty(0)])
    column = np.repeat(
        np.array([feature["FlatIndex"] for feature in floats], dtype=np.int32),
        np.array([len(each) for each in borders], dtype=np.int64),
    )
    n_others = count_derived(trees)
    return Splits(
        column=np.concatenate([column, np.arange(n_columns, n_columns + n_others, dtype=np.int32)]),
        threshold=np.concatenate([numeric, np.full(n_others, _BETWEEN)]),
        missing_left=np.concatenate(
            [_missing_left(trees, column, numeric), np.zeros(n_others, dtype=np.bool_)]
        ),
        n_numeric=len(numeric),
    )


def fixed_borders(trees: Record, n_columns: int) -> dict[int, frozenset[float] | None]:
    """Return the thresholds that cannot move: those of categories, and borders in statistics.

    A statistic of categories (CTR) may be of the rows on one side of a border only. With another
    border it would be another statistic.
    """
    flat = {feature["Index"]: feature["FlatIndex"] for feature in trees["FloatFeatures"]}
    found: dict[int, set[float]] = {}
    for feature in trees["CtrFeatures"]:
        for split in feature["Ctr"]["Base"]["FeatureCombination"]["FloatSplits"]:
            found.setdefault(flat[int(split["index"])], set()).add(float(split["border"]))
    derived = range(n_columns, n_columns + count_derived(trees))
    return {
        **dict.fromkeys(derived),
        **{column: frozenset(borders) for column, borders in found.items()},
    }


def move_borders(trees: Record, split: AnyArray, threshold: Reals) -> Record:
    """Return the fields of ``trees`` that change when splits get other borders.

    ``split``: numbers of splits of numbers, the same one as often as nodes ask it, always with the
    same ``threshold``. The borders of a feature rise, so that splits are numbered anew where one
    passes another; two that meet become one.
    """
    features = trees["FloatFeatures"]
    sizes = [len(feature["Borders"]) for feature in features]
    border = np.concatenate([feature["Borders"] for feature in features])
    border[split] = threshold.astype(border.dtype)
    number = np.arange(sum(sizes))
    made, first, count = [], 0, 0
    for feature, size in zip(features, sizes, strict=True):
        borders, place = np.unique(border[first : first + size], return_inverse=True)
        number[first : first + size] = count + place
        made.append({**feature, "Borders": borders})
        first, count = first + size, count + len(borders)
    splits = trees["TreeSplits"]
    later = np.arange(first, max(int(splits.max(initial=0)) + 1, first)) + count - first
    renumbered = np.concatenate([number, later])[splits].astype(splits.dtype)
    return {"FloatFeatures": made, "TreeSplits": renumbered}


def count_derived(trees: Record) -> int:
    """Return how many splits of categories there are."""
    return sum(len(feature["Values"]) for feature in trees["OneHotFeatures"]) + sum(
        len(feature["Borders"]) for feature in trees["CtrFeatures"]
    )


def _missing_left(trees: Record, column: AnyArray, border: Reals) -> Flags:
    """Return whether missing values go left: they count as −∞ or +∞, by their treatment."""
    passing = {
        each["FlatIndex"] for each in trees["FloatFeatures"] if each["NanValueTreatment"] == _PASSES
    }
    passes: Flags = np.isin(column, np.array(sorted(passing), dtype=np.int64))
    return ~(passes & (border < np.inf))
