"""LightGBM's text: taken apart, checked, printed again.

A text is a header of ``key=value`` lines, a block of such lines per tree, importances, parameters
and one line of the Python package's own::

    tree
    version=v4
    ...
    tree_sizes=459 569

    Tree=0
    num_leaves=3
    ...
    shrinkage=1


    Tree=1
    ...
    end of trees

    feature_importances:
    Column_0=6

    parameters:
    [boosting: gbdt]
    ...

    end of parameters

    pandas_categorical:null

The library trusts every line of it: a tree size, an array or a parameter that is not what it
expects ends the process. So nothing goes to it but what `print_text` made of checked values.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any, NoReturn

import numpy as np

from timbermark.dtypes import AnyArray, Offsets, Reals
from timbermark.errors import FileFormatError
from timbermark.libraries.contract import Task
from timbermark.trees.ensemble import Objective

OF_SPLITS = (
    *("split_feature", "split_gain", "threshold", "decision_type", "left_child", "right_child"),
    *("internal_value", "internal_weight", "internal_count"),
)
OF_LEAVES = ("leaf_value", "leaf_weight", "leaf_count")
_OF_SETS = ("cat_boundaries", "cat_threshold")
_STATISTICS = (
    *("split_gain", "leaf_weight", "leaf_count"),
    *("internal_value", "internal_weight", "internal_count"),
)
_INTEGERS = (
    *("split_feature", "decision_type", "left_child", "right_child"),
    *("leaf_count", "internal_count", *_OF_SETS),
)
_TREE_KEYS = {*OF_SPLITS, *OF_LEAVES, *_OF_SETS, "num_leaves", "num_cat", "is_linear", "shrinkage"}
BY_CATEGORY = 1  # the bit of decision_type that says so
_LINEAR_KEYS = {"leaf_const", "num_features", "leaf_features", "leaf_coeff"}
OBJECTIVES: dict[str, tuple[Task, Objective]] = {
    "binary": ("classification", "logistic"),
    "multiclass": ("classification", "softmax"),
    "multiclassova": ("classification", "sigmoid"),
    **dict.fromkeys(
        ("regression", "regression_l1", "huber", "fair", "quantile", "mape"),
        ("regression", "identity"),
    ),
    **dict.fromkeys(("poisson", "gamma", "tweedie"), ("regression", "exponential")),
    "cross_entropy": ("regression", "expit"),
    **dict.fromkeys(("lambdarank", "rank_xendcg"), ("ranking", "identity")),
}
"""What a model is for, and what its margins become, by its objective."""
_MANY_CLASSES, _WITH_SIGMOID = ("multiclass", "multiclassova"), ("binary", "multiclassova")
# LightGBM 3 wrote v3, which has the same lines.
_VERSIONS = ("v3", "v4")
_REQUIRED = (
    *("version", "num_class", "num_tree_per_iteration", "label_index", "max_feature_idx"),
    *("feature_names", "feature_infos"),
)
_KEYS = {*_REQUIRED, "objective", "average_output", "monotone_constraints", "tree_sizes"}
# These are printed as they were found.
_KEPT = ("label_index", "max_feature_idx", "objective", "monotone_constraints", "feature_infos")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_WHOLE = re.compile(r"-?[0-9]{1,9}")
_NUMBER = r"[-+]?(?:[0-9]+\.?[0-9]*(?:[eE][-+]?[0-9]+)?|inf|nan)"
_FEATURE_INFO = re.compile(rf"none|\[{_NUMBER}:{_NUMBER}\]|-?[0-9]+(?::-?[0-9]+)*")
_PARAMETER = re.compile(r"\[(\w+): (.*)\]")
# The library refuses these at training, because it writes names into JSON as they are.
_NOT_IN_NAMES = frozenset('",:[]{}')


@dataclass(frozen=True, eq=False)
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

    @cached_property
    def lines(self) -> dict[str, list[str]]:
        """Return the numbers of every array as they are printed, a text for each tree."""
        return self.lines_like(None)

    def lines_like(self, known: Blocks | None) -> dict[str, list[str]]:
        """Return ``lines``, those of ``known`` where its trees, as large as these, are the same."""
        found = {}
        for key, size in _sizes(self.num_leaves, self.num_cat, self.n_words).items():
            array, start = getattr(self, key), starts(size)
            trees, lines = np.arange(len(size)), [""] * len(size)
            if known is not None:
                differ = np.flatnonzero(array.view(np.int64) != getattr(known, key).view(np.int64))
                trees, lines = np.unique(tree_of(start, differ)), list(known.lines[key])
            for tree in trees.tolist():
                lines[tree] = " ".join(map(repr, array[start[tree] : start[tree + 1]].tolist()))
            found[key] = lines
        return found


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
    words = [
        _count(tree.get("cat_threshold", "")) if n else 0
        for tree, n in zip(lines, num_cat.tolist(), strict=True)
    ]
    n_words = np.array(words, dtype=np.int64)
    arrays = {
        key: _numbers(lines, key, sizes.tolist(), int if key in _INTEGERS else float)
        for key, sizes in _sizes(num_leaves, num_cat, n_words).items()
    }
    return Blocks(num_leaves, num_cat, shrinkage, n_words=n_words, **arrays)


def _sizes(num_leaves: Offsets, num_cat: Offsets, n_words: Offsets) -> dict[str, Offsets]:
    """Return how many numbers each array has in every tree, [T] each."""
    return {
        **dict.fromkeys(OF_SPLITS, num_leaves - 1),
        **dict.fromkeys(OF_LEAVES, num_leaves),
        "cat_boundaries": np.where(num_cat > 0, num_cat + 1, 0),
        "cat_threshold": n_words,
    }


def print_blocks(blocks: Blocks, known: Blocks | None = None) -> list[str]:
    """Return the text of each tree; `parse_blocks` reads the same arrays from it.

    Every number is as short as it can be without becoming another when it is read. ``known`` are
    trees of the same sizes, of which nothing is printed again that was printed before.
    """
    lines = blocks.lines if known is None else blocks.lines_like(known)
    of_trees = zip(
        blocks.num_leaves.tolist(), blocks.num_cat.tolist(), blocks.shrinkage.tolist(), strict=True
    )
    trees = []
    for number, (n_leaves, n_cat, shrinkage) in enumerate(of_trees):
        printed = {
            "Tree": number, "num_leaves": n_leaves, "num_cat": n_cat,
            **{key: lines[key][number] for key in (*OF_SPLITS, *OF_LEAVES)},
            **{key: lines[key][number] for key in (_OF_SETS if n_cat else ())},
            "is_linear": 0, "shrinkage": shrinkage,
        }  # fmt: skip
        trees.append("\n".join([f"{key}={value}" for key, value in printed.items()]) + "\n\n\n")
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
        if key not in _TREE_KEYS:
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
) -> AnyArray:
    """Return the numbers of one line of all trees; of a statistic that is empty, zeros."""
    values = [tree.get(key, "") for tree in trees]
    for number, (value, size) in enumerate(zip(values, sizes, strict=True)):
        if key in _STATISTICS and not value:
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


def tree_of(start: Offsets, place: AnyArray) -> Offsets:
    """Return the number of the piece that each place is in; ``start`` is what `starts` gives.

    >>> tree_of(np.array([0, 2, 5]), np.array([1, 2]))
    array([0, 1])
    """
    return np.searchsorted(start, place, side="right") - 1


@dataclass(frozen=True, slots=True)
class Frame:
    """Everything in the text but the trees."""

    objective: str  # one of OBJECTIVES
    n_outputs: int
    sigmoid: float  # what margins are multiplied by before the logistic function
    average_output: bool  # a random forest: answers come from the mean, not from the sum
    feature_names: tuple[str, ...]
    kept: dict[str, str]  # lines of the header that are printed as they were
    parameters: dict[str, str]
    pandas_categorical: str  # as JSON


def parse_text(text: str) -> tuple[Frame, Blocks]:
    """Take a text apart.

    Raises FileFormatError if the text is not whole or not that of a supported objective. Whether
    the arrays make trees is not checked here.

    >>> parse_text("tree\\nversion=v4\\n")
    Traceback (most recent call last):
    timbermark.errors.FileFormatError: The LightGBM model is damaged: it ends before its last \
tree does. Hint: get the file again from where it came.
    """
    text = text.replace("\r\n", "\n")
    found = _CONTROL.search(text)
    if found:
        damaged(f"it holds the control character {found[0]!r}")
    body, mark, tail = text.partition("\nend of trees\n")
    if not mark:
        if not text.startswith("tree\n"):
            _refuse_kind(text)
        damaged("it ends before its last tree does")
    top, *parts = body.split("\nTree=")
    header = _parse_header(top.split("\n"))
    parameters, categories = _parse_tail(tail.split("\n"))
    frame = _make_frame(header, parameters, categories)
    _check_sizes(header.get("tree_sizes"), parts)
    if len(parts) % frame.n_outputs:
        damaged(f"it has {len(parts)} trees for {frame.n_outputs} classes")
    if not all(part.isascii() for part in parts):
        damaged("a tree holds something else than numbers")
    return frame, parse_blocks(parts)


def print_text(frame: Frame, blocks: Blocks, known: Blocks | None = None) -> str:
    """Return a text that the library reads and that `parse_text` gives the same back from.

    The importances are left out: the library counts them itself. ``known`` is as in `print_blocks`.
    """
    trees = print_blocks(blocks, known)
    kept = {key: f"{key}={value}" for key, value in frame.kept.items()}
    header = [
        "tree",
        "version=v4",
        f"num_class={frame.n_outputs}",
        f"num_tree_per_iteration={frame.n_outputs}",
        *(kept.pop(key) for key in ("label_index", "max_feature_idx", "objective")),
        *(["average_output"] if frame.average_output else []),
        f"feature_names={' '.join(frame.feature_names)}",
        *kept.values(),
        f"tree_sizes={' '.join(str(len(tree)) for tree in trees)}",
    ]
    tail = [
        "end of trees\n\nfeature_importances:\n\nparameters:",
        *(f"[{key}: {value}]" for key, value in frame.parameters.items()),
        f"\nend of parameters\n\npandas_categorical:{frame.pandas_categorical}\n",
    ]
    return "\n".join(header) + "\n\n" + "".join(trees) + "\n".join(tail)


def _refuse_kind(text: str) -> NoReturn:
    raise FileFormatError(
        f"This is not a LightGBM text: it begins with {text[:20]!r}.",
        hint="give a file that LightGBM's save_model wrote.",
    )


def _parse_header(lines: Sequence[str]) -> dict[str, str]:
    if lines[0] != "tree":
        _refuse_kind(lines[0])
    header: dict[str, str] = {}
    for line in filter(None, lines[1:]):
        key, _, value = line.partition("=")
        if key not in _KEYS:
            refuse_layout(f"the line {line[:40]!r} is not known")
        if key in header:
            damaged(f"it has two lines {key}")
        header[key] = value
    for key in _REQUIRED:
        if key not in header:
            damaged(f"it has no line {key}")
    if header["version"] not in _VERSIONS:
        refuse_layout(f"its version is {header['version'][:20]!r}")
    return header


def _make_frame(header: dict[str, str], parameters: dict[str, str], categories: str) -> Frame:
    objective, options = _parse_objective(header.get("objective"))
    if parameters.get("linear_tree") == "1":
        refuse_linear()
    many = objective in _MANY_CLASSES
    n_outputs = _whole("num_class", options.get("num_class", "")) if many else 1
    if many and n_outputs < 2:
        damaged(f"its objective has {n_outputs} classes")
    for key in ("num_class", "num_tree_per_iteration"):
        if _whole(key, header[key]) != n_outputs:
            damaged(f"{key}={header[key]} does not go with the objective")
    _whole("label_index", header["label_index"])
    names = tuple(header["feature_names"].split(" "))
    _check_features(header, names)
    return Frame(
        objective=objective,
        n_outputs=n_outputs,
        sigmoid=_positive(options.get("sigmoid", "")) if objective in _WITH_SIGMOID else 1.0,
        average_output="average_output" in header,
        feature_names=names,
        kept={key: header[key] for key in _KEPT if key in header},
        parameters=parameters,
        pandas_categorical=categories,
    )


def _parse_objective(line: str | None) -> tuple[str, dict[str, str]]:
    hint = f"train with one of the objectives {', '.join(OBJECTIVES)}."
    if line is None:
        raise FileFormatError(
            "This LightGBM model has an objective of the user's own, so that its margins have no "
            "known meaning.",
            hint=hint,
        )
    name, *options = line.split(" ")
    if name == "regression" and "sqrt" in options:
        raise FileFormatError(
            "This LightGBM model has reg_sqrt: it answers with squares of its margins.",
            hint="train it on the square root of the target, without reg_sqrt.",
        )
    if name not in OBJECTIVES:
        raise FileFormatError(
            f"This LightGBM model has the objective {name[:40]!r}, which is not supported.",
            hint=hint,
        )
    return name, {key: value for key, _, value in (option.partition(":") for option in options)}


def _check_features(header: dict[str, str], names: tuple[str, ...]) -> None:
    n_features = _whole("max_feature_idx", header["max_feature_idx"]) + 1
    infos = header["feature_infos"].split(" ")
    if len(names) != n_features or len(infos) != n_features:
        damaged(f"it has {len(names)} names and {len(infos)} ranges for {n_features} features")
    for name in names:
        if not name or not _NOT_IN_NAMES.isdisjoint(name):
            damaged(f"a feature cannot be called {name[:40]!r}")
    for info in infos:
        # The library looks for the second half of an interval without asking whether it is there.
        if not _FEATURE_INFO.fullmatch(info):
            damaged(f"the range {info[:40]!r} of a feature is not understood")
    signs = header.get("monotone_constraints")
    if signs is not None and (
        signs.count(" ") != n_features - 1 or not set(signs.split(" ")) <= {"-1", "0", "1"}
    ):
        damaged("its monotone_constraints are not -1, 0 or 1 for each feature")


def _whole(key: str, value: str) -> int:
    if not _WHOLE.fullmatch(value):
        damaged(f"{key}={value[:20]!r} is not a whole number")
    return int(value)


def _positive(value: str) -> float:
    if re.fullmatch(_NUMBER, value):
        number = float(value)
        if 0 < number < math.inf:
            return number
    damaged(f"the objective's sigmoid {value[:20]!r} is not a positive number")


def _parse_tail(lines: Sequence[str]) -> tuple[dict[str, str], str]:
    """Return the parameters, and the categories of pandas as JSON."""
    parameters: dict[str, str] = {}
    categories = "null"
    section = "trees"
    for line in filter(None, lines):
        if section == "trees" and line == "feature_importances:":
            section = "importances"
        elif section == "importances" and line == "parameters:":
            section = "parameters"
        elif section == "parameters" and line == "end of parameters":
            section = "end"
        elif section == "parameters":
            found = _PARAMETER.fullmatch(line)
            if not found:
                damaged(f"the parameter {line[:40]!r} is not understood")
            parameters[found[1]] = found[2]
        elif section in ("importances", "end") and line.startswith("pandas_categorical:"):
            # Without parameters there is no such section: then this line alone tells that it ends.
            categories = _check_categories(line.partition(":")[2])
            section = "pandas"
        elif section == "end" and line == "parser:":
            refuse_layout("it has a parser of its own")
        elif section != "importances":
            damaged(f"the line {line[:40]!r} after its trees is not understood")
    if section not in ("end", "pandas"):
        damaged("it ends before its last parameter")
    return parameters, categories


def _check_categories(line: str) -> str:
    try:
        lists: Any = json.loads(line)
    except (ValueError, RecursionError):
        lists = False
    if lists is not None and not (
        isinstance(lists, list)
        and all(isinstance(names, list) for names in lists)
        and not any(isinstance(name, list | dict) for names in lists for name in names)
    ):
        damaged("its pandas_categorical is not a list of categories per column")
    return line


def _check_sizes(line: str | None, parts: Sequence[str]) -> None:
    """Compare the lengths that the header states, if it does, with those of the trees."""
    # What the text was split at belongs to the tree: its first word and its last newline.
    found = " ".join(str(len(part) + len("Tree=\n")) for part in parts)
    if line is not None and line != found:
        damaged("its trees are not as long as its header says")
