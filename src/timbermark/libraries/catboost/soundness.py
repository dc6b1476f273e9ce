"""What makes the contents of a CatBoost file sound: the library, given them, cannot go astray.

CatBoost itself trusts the numbers in a file: a split, a leaf or a bucket that does not exist ends
the process or reads foreign memory. So every number that leads somewhere is checked here first.
"""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import numpy as np

from timbermark.dtypes import AnyArray
from timbermark.errors import FileFormatError
from timbermark.libraries.catboost.cbm import BUCKET, Contents, Record

# What CatBoost numbers in sixteen bits, and what a symmetric tree can be deep.
_MOST_COLUMNS = 1 << 24
_MOST_DEPTH = 30
_MOST_NESTING = 200
_LABEL_KEYS = (b"class_params", b"multiclass_params")
_NO_LEAF = 0xFFFFFFFF
_NO_HASH = 0xFFFFFFFFFFFFFFFF
_MEAN_TYPES = (2, 3)
_COUNTER_TYPES, _MOST_TYPE = (4, 5), 5

_HINT = "it was damaged, or changed by another program; get it again from where it came."


class _UnsoundError(ValueError):
    """What is wrong, without the file's name."""


def check_contents(contents: Contents) -> None:
    """Check every number that CatBoost would use as an index or a length.

    Raises FileFormatError for the first that leads nowhere.
    """
    try:
        _check_trees(contents.trees)
        _check_ctrs(contents.trees, contents.tables or ())
        for key, value in contents.info.items():
            _require(_nesting(value) <= _MOST_NESTING, f"its {key!r} is nested too deeply")
            if key in _LABEL_KEYS:
                _check_labels(value, contents.trees["ApproxDimension"])
    except _UnsoundError as error:
        raise FileFormatError(f"This is not a sound CatBoost model: {error}.", _HINT) from None


def _count_splits(trees: Record) -> int:
    """Return how many splits the features of a model offer; trees name them by number."""
    lists = [feature["Borders"] for feature in trees["FloatFeatures"]]
    lists += [feature["Values"] for feature in trees["OneHotFeatures"]]
    lists += [feature["Borders"] for feature in trees["CtrFeatures"]]
    return sum(len(each) for each in lists)


def _ctr_key(base: Record) -> tuple[Any, ...]:
    """Return what tells one statistic of categories from another."""
    parts = base["FeatureCombination"]
    combination = tuple(parts[name].tobytes() for name in parts)
    return (combination, base["CtrType"], base["TargetBorderClassifierIdx"])


def _check_trees(trees: Record) -> None:
    """Check features and trees; raises ValueError that says what is wrong."""
    dimension = trees["ApproxDimension"]
    _require(1 <= dimension <= _MOST_COLUMNS, f"it has {dimension} outputs")
    bias = len(trees["MultiBias"])
    _require(bias in (0, dimension), f"it has {dimension} outputs but {bias} starting points")
    _check_features(trees)
    splits = trees["TreeSplits"]
    n_splits = _count_splits(trees)
    symmetric = len(trees["NonSymmetricStepNodes"]) == 0
    # A leaf of a nested tree has split 0, even if there are none.
    most = max(n_splits, 0 if symmetric else 1)
    _require(_within(splits, 0, most), f"a tree splits by a number that is none of {n_splits}")
    sizes = trees["TreeSizes"].astype(np.int64)
    _require(_within(sizes, 0 if symmetric else 1, len(splits) + 1), "a tree has a wrong size")
    starts = np.cumsum(sizes) - sizes
    _require(int(sizes.sum()) == len(splits), "its trees do not add up to its nodes")
    _require(np.array_equal(starts, trees["TreeStartOffsets"]), "its trees begin at wrong nodes")
    if symmetric:
        # One list that is not empty is enough to make CatBoost walk through nested trees.
        _require(len(trees["NonSymmetricNodeIdToLeafId"]) == 0, "it has leaves but no nodes")
        _require(_within(sizes, 0, _MOST_DEPTH), f"a tree is deeper than {_MOST_DEPTH}")
        n_leaves = int((1 << sizes).sum())
    else:
        n_leaves = _check_nested(trees, starts, sizes)
    values, weights = len(trees["LeafValues"]), len(trees["LeafWeights"])
    _require(
        values == n_leaves * dimension and weights in (0, n_leaves),
        f"it has {n_leaves} leaves of {dimension} values each, but {values} values and "
        f"{weights} weights",
    )


def _require(sound: bool | np.bool_, message: str) -> None:
    if not sound:
        raise _UnsoundError(message)


def _within(numbers: AnyArray, low: int, stop: int) -> bool:
    return len(numbers) == 0 or (int(numbers.min()) >= low and int(numbers.max()) < stop)


def _nesting(text: bytes) -> int:
    """Return how deep brackets go; CatBoost reads them as JSON, deeper and deeper in its stack."""
    codes = np.frombuffer(text, dtype=np.uint8)
    opening, closing = np.isin(codes, list(b"[{")), np.isin(codes, list(b"]}"))
    return int(np.cumsum(opening.astype(np.int64) - closing).max(initial=0))


def _check_labels(text: bytes, dimension: int) -> None:
    """Check which class each output is of; CatBoost puts an output's values where this says."""
    try:
        options = json.loads(text)
        labels = list(options.get("class_to_label", []))
        known = max(options.get("classes_count", 0), len(options.get("class_names", [])))
    except (ValueError, AttributeError, TypeError):
        raise _UnsoundError("what it says of its classes cannot be read") from None
    known = known or len(labels)
    whole = all(isinstance(label, int) and 0 <= label < known for label in labels)
    rising = whole and all(a < b for a, b in pairwise(labels))
    sound = rising and (dimension == 1 or len(labels) in (0, dimension))
    _require(sound, "its outputs are of classes that do not exist")


def _check_features(trees: Record) -> None:
    floats, categories = trees["FloatFeatures"], trees["CatFeatures"]
    flat: list[int] = []
    for kind, features in (("number", floats), ("category", categories)):
        index = np.array([feature["Index"] for feature in features], dtype=np.int64)
        columns = np.array([feature["FlatIndex"] for feature in features], dtype=np.int64)
        for numbers in (index, columns):
            ascending = (np.diff(numbers) > 0).all() and _within(numbers, 0, _MOST_COLUMNS)
            _require(ascending, f"its features of type {kind} are not in order")
        flat += columns.tolist()
    _require(len(set(flat)) == len(flat), "two of its features are the same column")
    for feature in floats:
        _check_borders(feature["Borders"], f"feature {feature['FlatIndex']}")
        treatment = feature["NanValueTreatment"]
        _require(0 <= treatment <= 2, f"it treats missing values in an unknown way, {treatment}")
    known = {feature["Index"] for feature in categories}
    for feature in trees["OneHotFeatures"]:
        _require(feature["Index"] in known, f"category feature {feature['Index']} does not exist")
        texts = len(feature["StringValues"])
        _require(texts in (0, len(feature["Values"])), "categories and their names differ")


def _check_borders(borders: AnyArray, where: str) -> None:
    _require(not np.isnan(borders).any(), f"a border of {where} is not a number")
    _require(bool((borders[1:] > borders[:-1]).all()), f"the borders of {where} do not rise")


def _check_nested(trees: Record, starts: AnyArray, sizes: AnyArray) -> int:
    """Check that every nested tree is a tree with leaves of its own; return the leaves' number."""
    steps, leaf_of = trees["NonSymmetricStepNodes"], trees["NonSymmetricNodeIdToLeafId"]
    n_nodes = len(trees["TreeSplits"])
    _require(len(steps) == len(leaf_of) == n_nodes, "its nodes have lists of different length")
    here = np.arange(n_nodes)
    end = np.repeat(starts + sizes, sizes)
    reached = np.zeros(n_nodes, dtype=np.int64)
    for side in ("left", "right"):
        child = here + steps[side]
        _require(bool((child < end).all()), "a node leads out of its tree")
        np.add.at(reached, child[steps[side] > 0], 1)
    # Children come after their parents, so that one parent each makes it a tree.
    expected = np.ones(n_nodes, dtype=np.int64)
    expected[starts] = 0
    _require(np.array_equal(reached, expected), "a node is not reached, or reached twice")
    holds = (steps["left"] == 0) | (steps["right"] == 0)
    dimension = trees["ApproxDimension"]
    # Leaves are numbered tree by tree, in any order within a tree.
    tree = np.repeat(np.arange(len(sizes)), sizes)
    leaf, rest = np.divmod(leaf_of[holds].astype(np.int64), dimension)
    order = np.lexsort((leaf, tree[holds]))
    sound = not rest.any() and np.array_equal(leaf[order], np.arange(len(leaf)))
    _require(sound, "its leaves are not numbered tree by tree")
    return len(leaf)


def _check_ctrs(trees: Record, tables: tuple[Record, ...]) -> None:
    known = {feature["Index"]: feature["UsedInModel"] for feature in trees["CatFeatures"]}
    borders = {each["Index"]: each["Borders"] for each in trees["FloatFeatures"]}
    values = {each["Index"]: each["Values"] for each in trees["OneHotFeatures"]}
    by_key = {}
    for table in tables:
        _check_base(table["ModelCtrBase"])
        _check_table(table)
        by_key[_ctr_key(table["ModelCtrBase"])] = table
    _require(len(by_key) == len(tables), "two of its category statistics are the same")
    for feature in trees["CtrFeatures"]:
        ctr = feature["Ctr"]
        _require(ctr is not None, "a category statistic is missing")
        _check_base(ctr["Base"])
        _check_borders(feature["Borders"], "a category statistic")
        parts = ctr["Base"]["FeatureCombination"]
        used = all(known.get(int(index), False) for index in parts["CatFeatures"])
        _require(used, "a category statistic is of a feature that does not exist")
        for split in parts["FloatSplits"]:
            found = split["border"] in borders.get(int(split["index"]), ())
            _require(found, "a category statistic is of a border that does not exist")
        for split in parts["OneHotSplits"]:
            found = split["value"] in values.get(int(split["index"]), ())
            _require(found, "a category statistic is of a category that does not exist")
        key = _ctr_key(ctr["Base"])
        _require(key in by_key, "the table of a category statistic is missing")
        if ctr["Base"]["CtrType"] not in (*_MEAN_TYPES, *_COUNTER_TYPES):
            inside = 0 <= ctr["TargetBorderIdx"] < by_key[key]["TargetClassesCount"]
            _require(inside, f"a category statistic is of class {ctr['TargetBorderIdx']}")


def _check_base(base: Record | None) -> None:
    _require(
        base is not None
        and base["FeatureCombination"] is not None
        and 0 <= base["CtrType"] <= _MOST_TYPE,
        "a category statistic is of an unknown kind",
    )


def _check_table(table: Record) -> None:
    kind, classes = table["ModelCtrBase"]["CtrType"], table["TargetClassesCount"]
    raw, blob = table["IndexHashRaw"], len(table["CTRBlob"])
    count = len(raw) // BUCKET.itemsize
    # A number of buckets that is a power of two, one of them empty so that every search ends.
    whole = count >= 1 and len(raw) == count * BUCKET.itemsize and count & (count - 1) == 0
    _require(whole, f"a category statistic has {len(raw)} bytes of buckets")
    buckets = np.frombuffer(raw.tobytes(), BUCKET)
    filled = buckets["hash"] != _NO_HASH
    _require(not filled.all(), "a category statistic has no empty bucket")
    if kind in _MEAN_TYPES or kind in _COUNTER_TYPES:
        width = 8 if kind in _MEAN_TYPES else 4
    else:
        fewest = 2 if kind == 0 else 1
        sound = fewest <= classes <= _MOST_COLUMNS
        _require(sound, f"a category statistic has {classes} classes")
        width = 4 * classes
    index = buckets["index"][filled]
    index = index[index != _NO_LEAF]
    sound = blob % width == 0 and _within(index, 0, blob // width)
    _require(sound, "a category statistic leads outside its table")
