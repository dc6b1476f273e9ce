"""The trees in LightGBM's text: one block of ``key=value`` lines each, read into flat arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NoReturn

import numpy as np

from timbermark.dtypes import AnyArray, Offsets, Reals
from timbermark.errors import FileFormatError

OF_SPLITS = (
    *("split_feature", "split_gain", "threshold", "decision_type", "left_child", "right_child"),
    *("internal_value", "internal_weight", "internal_count"),
)
OF_LEAVES = ("leaf_value", "leaf_weight", "leaf_count")
_OF_TREES = ("num_leaves", "num_cat", "cat_boundaries", "cat_threshold", "is_linear", "shrinkage")
_KEYS = {*OF_SPLITS, *OF_LEAVES, *_OF_TREES}
BY_CATEGORY = 1  # the bit of decision_type that says so
_LINEAR_KEYS = {"leaf_const", "num_features", "leaf_features", "leaf_coeff"}


@dataclass(frozen=True, slots=True, eq=False)
class Blocks:
    """T trees as LightGBM has them: tree t with L leaves and L - 1 splits, split 0 its root.

    The arrays of all trees follow each other. A child >= 0 is a split, otherwise ~child is a leaf.
    """

    num_leaves: Offsets  # [T]
    num_cat: Offsets  # [T] category sets
    shrinkage: Reals  # [T]
    split_feature: Offsets  # per split
    split_gain: Reals
    threshold: Reals  # at a category split: which set of its tree
    decision_type: Offsets
    left_child: Offsets
    right_child: Offsets
    leaf_value: Reals  # per leaf
    leaf_weight: Reals
    leaf_count: Offsets
    internal_value: Reals  # per split
    internal_weight: Reals
    internal_count: Offsets
    cat_boundaries: Offsets  # num_cat + 1 of each tree that has sets: where they begin and end
    cat_threshold: Offsets  # 32 categories per number
    n_words: Offsets  # [T] how many of these numbers a tree has


def damaged(what: str) -> NoReturn:
    """Raise FileFormatError for a text that is not whole; ``what`` ends the sentence."""
    raise FileFormatError(
        f"The LightGBM model is damaged: {what}.",
        hint="get the file again from where it came.",
    )


def refuse_layout(why: str) -> NoReturn:
    """Raise FileFormatError for a text with lines that are not known; ``why`` ends the sentence."""
    raise FileFormatError(
        f"This LightGBM text has another layout: {why}.",
        hint="timbermark knows what LightGBM 3 and 4 write.",
    )


def refuse_linear() -> NoReturn:
    """Raise FileFormatError for a model with linear leaves."""
    raise FileFormatError(
        "This LightGBM model has linear functions in its leaves (linear_tree), not numbers.",
        hint="train with linear_tree=False.",
    )


def parse_blocks(parts: Sequence[str]) -> Blocks:
    """Read the trees from their parts of the text, each of which begins after ``Tree=``.

    Every array has the length that the tree's number of leaves and categories asks for, and holds
    numbers; nothing else is checked.

    Raises FileFormatError otherwise.

    >>> parse_blocks(["0\\nnum_leaves=1\\nnum_cat=0\\nleaf_value=0.5 2\\nshrinkage=1\\n"])
    Traceback (most recent call last):
    timbermark.errors.FileFormatError: The LightGBM model is damaged: tree 0 has 2 numbers in \
leaf_value, not 1. Hint: get the file again from where it came.
    """
    lines = [_parse_lines(number, part) for number, part in enumerate(parts)]
    single = [1] * len(lines)
    num_leaves = _numbers(lines, "num_leaves", single, int)
    num_cat = _numbers(lines, "num_cat", single, int)
    if (num_leaves < 1).any() or (num_cat < 0).any():
        damaged("a tree has no leaves, or less than no categories")
    shrinkage = _numbers(lines, "shrinkage", single, float)
    if not np.isfinite(shrinkage).all():
        damaged("the shrinkage of a tree is not finite")
    leaves, splits = num_leaves.tolist(), (num_leaves - 1).tolist()
    bounds = [n + 1 if n else 0 for n in num_cat.tolist()]
    words = [
        _count(tree.get("cat_threshold", "")) if n else 0
        for tree, n in zip(lines, bounds, strict=True)
    ]
    return Blocks(
        num_leaves=num_leaves,
        num_cat=num_cat,
        shrinkage=shrinkage,
        split_feature=_numbers(lines, "split_feature", splits, int),
        split_gain=_numbers(lines, "split_gain", splits, float, optional=True),
        threshold=_numbers(lines, "threshold", splits, float),
        decision_type=_numbers(lines, "decision_type", splits, int),
        left_child=_numbers(lines, "left_child", splits, int),
        right_child=_numbers(lines, "right_child", splits, int),
        leaf_value=_numbers(lines, "leaf_value", leaves, float),
        leaf_weight=_numbers(lines, "leaf_weight", leaves, float, optional=True),
        leaf_count=_numbers(lines, "leaf_count", leaves, int, optional=True),
        internal_value=_numbers(lines, "internal_value", splits, float, optional=True),
        internal_weight=_numbers(lines, "internal_weight", splits, float, optional=True),
        internal_count=_numbers(lines, "internal_count", splits, int, optional=True),
        cat_boundaries=_numbers(lines, "cat_boundaries", bounds, int),
        cat_threshold=_numbers(lines, "cat_threshold", words, int),
        n_words=np.array(words, dtype=np.int64),
    )


def print_blocks(blocks: Blocks) -> list[str]:
    """Return the text of each tree; `parse_blocks` reads the same arrays from it.

    Every number is as short as it can be without becoming another when it is read.
    """
    split, leaf = starts(blocks.num_leaves - 1).tolist(), starts(blocks.num_leaves).tolist()
    bound = starts(np.where(blocks.num_cat > 0, blocks.num_cat + 1, 0)).tolist()
    word = starts(blocks.n_words).tolist()
    by_split = {key: list(map(repr, getattr(blocks, key).tolist())) for key in OF_SPLITS}
    by_leaf = {key: list(map(repr, getattr(blocks, key).tolist())) for key in OF_LEAVES}
    bounds, words = blocks.cat_boundaries.tolist(), blocks.cat_threshold.tolist()
    trees = []
    for number, (n_leaves, n_cat, shrinkage) in enumerate(
        zip(
            blocks.num_leaves.tolist(),
            blocks.num_cat.tolist(),
            blocks.shrinkage.tolist(),
            strict=True,
        )
    ):
        lines = [f"Tree={number}", f"num_leaves={n_leaves}", f"num_cat={n_cat}"]
        for place, columns in ((split, by_split), (leaf, by_leaf)):
            first, last = place[number], place[number + 1]
            lines += [f"{key}={' '.join(column[first:last])}" for key, column in columns.items()]
        if n_cat:
            first, last = bound[number], bound[number + 1]
            lines.append(f"cat_boundaries={' '.join(map(str, bounds[first:last]))}")
            first, last = word[number], word[number + 1]
            lines.append(f"cat_threshold={' '.join(map(str, words[first:last]))}")
        trees.append("\n".join([*lines, "is_linear=0", f"shrinkage={shrinkage!r}", "\n\n"]))
    return trees


def _parse_lines(number: int, part: str) -> dict[str, str]:
    name, *lines = part.split("\n")
    if name != str(number):
        damaged(f"tree {number} is called {name[:20]!r}")
    tree: dict[str, str] = {}
    for line in filter(None, lines):
        key, _, value = line.partition("=")
        if key in _LINEAR_KEYS:
            refuse_linear()
        if key not in _KEYS:
            refuse_layout(f"the line {line[:40]!r} of tree {number} is not known")
        if key in tree:
            damaged(f"tree {number} has two lines {key}")
        tree[key] = value
    if tree.get("is_linear", "0") != "0":
        refuse_linear()
    return tree


def _numbers(
    trees: Sequence[dict[str, str]],
    key: str,
    sizes: Sequence[int],
    convert: Callable[[str], Any],
    optional: bool = False,
) -> AnyArray:
    """Return the numbers of one line of all trees; of an ``optional`` one that is empty, zeros."""
    values = [tree.get(key, "") for tree in trees]
    for number, (value, size) in enumerate(zip(values, sizes, strict=True)):
        if optional and not value:
            values[number] = " ".join(["0"] * size)
        elif _count(value) != size:
            damaged(f"tree {number} has {_count(value)} numbers in {key}, not {size}")
    words = list(chain.from_iterable(value.split(" ") for value in values if value))
    try:
        # Python would take the underscore for a separator of thousands.
        if any("_" in value for value in values):
            raise ValueError
        return np.array(list(map(convert, words)), dtype=np.int64 if convert is int else np.float64)
    except (ValueError, OverflowError):
        damaged(f"a tree's {key} holds something else than numbers")


def _count(value: str) -> int:
    return value.count(" ") + 1 if value else 0


def starts(sizes: Offsets) -> Offsets:
    """Return where each of several pieces begins, and where the last one ends, int64 [n + 1].

    >>> starts(np.array([2, 3]))
    array([0, 2, 5])
    """
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
